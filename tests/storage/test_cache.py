"""The process's caches: within their bytes, the least recently used goes first."""

from __future__ import annotations

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


def test_blocks_never_drive_parsed_things_out() -> None:
    cache.clear()
    assert cache.shared is not cache.blocks
    cache.shared.offer("parsed", 1, 10)
    cache.blocks.offer("block", 2, cache.blocks.budget_bytes)
    assert (cache.shared.get("parsed"), cache.blocks.get("block")) == (1, 2)
    cache.clear()
    assert cache.shared.size_bytes == cache.blocks.size_bytes == 0
