"""The process's caches: within their bytes, the least recently used goes first."""

from __future__ import annotations

import numpy as np

from metatable.storage import cache
from metatable.storage.cache import Cache


def test_the_least_recently_used_goes_when_the_bytes_are_used_up() -> None:
    kept = Cache(100)
    for name in "abc":
        kept.offer(name, name.upper(), 30)
    assert kept.get("a") == "A"
    kept.offer("d", "D", 30)
    assert [kept.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    assert kept.size_bytes == 90


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    kept = Cache(100)
    kept.offer("a", "A", 50)
    assert kept.offer("b", "B", 101) == "B"
    assert (kept.get("b"), kept.get("a"), len(kept)) == (None, "A", 1)


def test_the_first_one_in_wins() -> None:
    kept = Cache(100)
    first = kept.offer("a", object(), 10)
    assert kept.offer("a", object(), 10) is first
    assert kept.size_bytes == 10


def test_what_several_entries_hold_counts_once_as_long_as_one_of_them_is_kept() -> None:
    kept, listing = Cache(100), np.zeros(50, np.int8)
    kept.offer("listing", listing, 0, [listing])
    kept.offer("a", "A", 20, [listing])
    kept.offer("b", "B", 20, [listing])
    assert (kept.size_bytes, len(kept)) == (90, 3)
    kept.offer("c", "C", 20)
    assert [kept.get(name) for name in ("listing", "a", "b", "c")] == [None, None, "B", "C"]
    assert kept.size_bytes == 90, "b holds the listing"
    kept.replace("b", "B", 20)
    assert kept.size_bytes == 40
    assert kept.offer("d", "D", 51, [listing]) == "D"
    assert kept.get("d") is None
    kept.offer("e", "E", 50, [listing])
    assert (kept.size_bytes, len(kept)) == (100, 1)
    kept.clear()
    assert kept.size_bytes == 0
    kept.offer("listing", listing, 0, [listing])
    assert kept.size_bytes == 50


def test_a_smaller_budget_drives_out_and_no_larger_one_is_set() -> None:
    kept = Cache(100)
    for name in "abc":
        kept.offer(name, name.upper(), 30)
    kept.keep_at_most(60)
    kept.keep_at_most(80)
    assert [kept.get(name) for name in "abc"] == [None, "B", "C"]
    assert (kept.budget_bytes, kept.size_bytes) == (60, 60)


def test_blocks_never_drive_parsed_things_out() -> None:
    cache.clear()
    assert cache.shared is not cache.blocks
    cache.shared.offer("parsed", 1, 10)
    cache.blocks.offer("block", 2, cache.blocks.budget_bytes)
    assert (cache.shared.get("parsed"), cache.blocks.get("block")) == (1, 2)
    cache.clear()
    assert cache.shared.size_bytes == cache.blocks.size_bytes == 0
