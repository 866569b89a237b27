"""The reader: how much it reads and decodes, and what it keeps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from metatable.storage import cache
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile import reader
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import LASTKEY
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import opened, passes
from metatable.storage.store import Store
from metatable.storage.threads import WORKERS
from tests.storage.hfile.making import binary, cold, entries_of, folder, write

COUNT = 20_000
ENTRIES = {b"%016d" % number: b"%04d" % (number % 10_000) for number in range(COUNT)}


@pytest.fixture
def large(tmp_path: Path) -> Store:
    """Larger than what opening reads, and not on a disk, so that blocks are requested."""
    store = Store(f"memory://{tmp_path.name}")
    write(store, "a.hfile", ENTRIES, codec=Codec.NONE, block_size_bytes=2048)
    return store


def test_a_batch_decodes_each_block_at_most_once(large: Store) -> None:
    found = cold(large, "a.hfile")
    keys = binary(sorted([*ENTRIES, *ENTRIES]))
    assert found.get_sorted(keys).null_count == 0
    assert found._store.counters["hfile.blocks"] == len(found.tree.all()) == 409
    assert found._store.counters["hfile.lookups"] == 2 * COUNT


def test_a_batch_decodes_only_blocks_that_can_hold_a_key(large: Store) -> None:
    found = cold(large, "a.hfile")
    keys = [b"%016d" % number for number in (3, 4, 5, 9_000, 19_999)]
    assert found.get_sorted(binary(keys)).to_pylist() == [ENTRIES[key] for key in keys]
    assert found._store.counters["hfile.blocks"] == 3


def test_keys_outside_the_file_decode_nothing_before_and_one_block_behind(large: Store) -> None:
    found = cold(large, "a.hfile")
    assert found.get_sorted(binary([b"", b"/"])).null_count == 2
    assert found.get(b"/") is None
    assert found._store.counters["hfile.blocks"] == 0
    assert found.get_sorted(binary([b"a", b"b"])).null_count == 2
    assert found._store.counters["hfile.blocks"] == 1


def test_neighbouring_blocks_come_with_one_request(large: Store) -> None:
    found = cold(large, "a.hfile")
    opening = found._store.counters["store.requests"]
    assert opening == 2  # size, and the end of the file
    found.get_sorted(binary(sorted(ENTRIES)))
    assert found._store.counters["store.requests"] == opening + 1


def test_a_known_size_saves_a_request(large: Store) -> None:
    found = cold(large, "a.hfile", large.size("a.hfile"))
    assert found._store.counters["store.requests"] == 1


def test_a_small_file_is_read_with_one_request_altogether(tmp_path: Path) -> None:
    store = folder(tmp_path)
    size = write(store, "a.hfile", {b"a": b"1", b"b": b"2"}, meta={"m": b"x"}).size_bytes
    found = cold(store, "a.hfile", size)
    assert found.get(b"a") == b"1"
    assert found.meta("m") == b"x"
    assert len(entries_of(found)) == 2
    assert found._store.counters["store.requests"] == 1


def test_an_index_larger_than_the_first_read_is_fetched(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "TAIL_BYTES", 5000)
    found = cold(large, "a.hfile")
    assert found.get(b"%016d" % 777) == b"0777"
    assert found._store.counters["store.requests"] == 4


def test_a_file_is_opened_once_a_process(large: Store) -> None:
    first = cold(large, "a.hfile")
    second = HFileReader.open(first._store, "a.hfile")
    assert second.opened is first.opened
    assert first._store.counters["store.requests"] == 2


def test_decoded_blocks_are_kept_for_the_next_lookup(large: Store) -> None:
    found = cold(large, "a.hfile")
    keys = binary([b"%016d" % number for number in range(0, 500, 7)])
    found.get_sorted(keys)
    before = dict(found._store.counters)
    assert HFileReader.open(found._store, "a.hfile").find(keys).null_count == 0
    assert found.get(b"%016d" % 100) == b"0100"
    assert set(found._store.counters.since(before)) == {"hfile.lookups"}


def test_scans_leave_the_cache_alone(large: Store) -> None:
    found = cold(large, "a.hfile")
    before = cache.blocks.size_bytes
    assert len(entries_of(found)) == COUNT
    assert cache.blocks.size_bytes == before


def test_large_passes_leave_the_cache_alone(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cold(large, "a.hfile")
    before = cache.blocks.size_bytes
    monkeypatch.setattr(passes, "CACHED_SHARE", 1000)
    found.get_sorted(binary(sorted(ENTRIES)))
    assert cache.blocks.size_bytes == before


def test_scans_come_in_batches_of_about_the_group_size(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "GROUP_BYTES", 10_000)
    monkeypatch.setattr(passes, "SEARCH_BYTES", 10_000)
    monkeypatch.setattr(passes, "READ_BYTES", 17_000)
    found = cold(large, "a.hfile")
    batches = list(found.scan())
    assert len(batches) == pytest.approx(409 / 4, abs=2)
    assert pa.Table.from_batches(batches)["key"].to_pylist() == list(ENTRIES)
    assert found._store.counters["store.requests"] == pytest.approx(2 + 820_000 / 17_000, abs=3)
    assert found.get_sorted(binary(ENTRIES)).to_pylist() == list(ENTRIES.values())


@pytest.mark.parametrize("step_bytes", [1, 10_000, 1 << 30])
def test_a_scan_may_take_smaller_steps(large: Store, step_bytes: int) -> None:
    found = cold(large, "a.hfile")
    batches = list(found.scan(step_bytes=step_bytes))
    assert pa.Table.from_batches(batches)["key"].to_pylist() == list(ENTRIES)
    most = max(step_bytes, 2500)  # a block is taken whole
    assert all(one.nbytes <= most for one in batches)
    requests = found._store.counters["store.requests"]
    assert requests == pytest.approx({1: 410, 10_000: 104, 1 << 30: 4}[step_bytes], abs=4)


def test_scan_from_a_key_skips_the_blocks_before_it(large: Store) -> None:
    found = cold(large, "a.hfile")
    first = b"%016d" % 19_000
    assert entries_of(found, first) == [pair for pair in ENTRIES.items() if pair[0] >= first]
    assert found._store.counters["hfile.blocks"] < 25


def test_prefix_reads_only_the_blocks_that_can_begin_so(large: Store) -> None:
    found = cold(large, "a.hfile")
    assert found.prefix(b"00000000000123").num_rows == 100
    assert found._store.counters["hfile.blocks"] <= 4
    assert found.prefix(b"x").num_rows == 0
    assert found.prefix(b"x").schema == reader.SCHEMA


def test_get_sorted_refuses_falling_keys_and_nulls(large: Store) -> None:
    found = cold(large, "a.hfile")
    with pytest.raises(UsageError, match="keys must be ascending"):
        found.get_sorted(binary([b"b", b"a"]))
    for ask in (found.get_sorted, found.find):
        with pytest.raises(UsageError, match="keys must not be null"):
            ask(binary([b"b", None]))
        with pytest.raises(UsageError, match="keys are not bytes"):
            ask(pa.array([1, 2]))


def test_find_answers_in_the_order_of_the_question(large: Store) -> None:
    found = cold(large, "a.hfile")
    keys = [b"%016d" % (number * 7919 % COUNT) for number in range(3000)] + [b"no"]
    assert found.find(binary(keys)).to_pylist() == [ENTRIES.get(key) for key in keys]
    shared_start = [b"%016d" % 5 + b"%d" % number for number in range(9, 0, -1)]
    assert found.find(binary(shared_start)).null_count == 9


def test_answers_are_the_same_whether_keys_or_blocks_are_fewer(large: Store) -> None:
    found = cold(large, "a.hfile")
    keys = [b"%016d" % number for number in range(-5, COUNT + 5, 61)]  # fewer than the blocks
    assert len(keys) < len(found.tree.all())
    expected = [ENTRIES.get(key) for key in sorted(keys)]
    assert found.get_sorted(binary(sorted(keys))).to_pylist() == expected
    many = sorted(keys * 3)
    assert found.get_sorted(binary(many)).to_pylist() == [ENTRIES.get(key) for key in many]


def test_scan_reports_a_wrong_number_of_entries_at_its_end(tmp_path: Path) -> None:
    store = folder(tmp_path)
    write(store, "a.hfile", {b"a": b"1"}, codec=Codec.NONE)
    body = store.fetch("a.hfile")
    at = body.rindex(b"\x38\x01")  # trailer field 7
    store.put("a.hfile", body[:at] + b"\x38\x02" + body[at + 2 :])
    found = cold(store, "a.hfile")
    batches = found.scan()
    assert next(batches).num_rows == 1
    with pytest.raises(CorruptError, match="another number of entries"):
        next(batches)


def test_memory_of_a_scan_does_not_grow_with_the_file(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"%05d" % number: bytes(4000) for number in range(50_000)}
    write(store, "a.hfile", entries)  # 200 MB of payload
    found = cold(store, "a.hfile")
    before = pa.total_allocated_bytes()
    for batch in found.scan():
        assert batch.nbytes < 6 << 20
        assert pa.total_allocated_bytes() - before < (WORKERS + 3) * 6 << 20


def test_a_file_that_names_no_last_key_tells_it_by_its_last_block(large: Store) -> None:
    found = cold(large, "a.hfile")
    assert found.file_info.pop(LASTKEY)
    assert found.last_key == max(ENTRIES)
    assert found._store.counters["hfile.blocks"] == 1


def test_what_is_kept_of_an_open_file_counts_for_what_it_holds(large: Store) -> None:
    held = cold(large, "a.hfile").opened
    facts = sum(map(len, [*held.file_info, *held.file_info.values()]))
    assert held.memory_bytes > len(held.whole) + facts + held.root.size_bytes
