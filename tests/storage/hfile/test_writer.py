"""The writer: its bytes, its rules, and what becomes of a file that is not finished."""

from __future__ import annotations

import zlib
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from metatable.storage import filters, threads
from metatable.storage.errors import UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.hfile import inspect, record_sizes, writer
from metatable.storage.hfile.block import BlockHeader, BlockType
from metatable.storage.hfile.checksum import CHECKSUM_BYTES, chunk_count
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import file_filter
from metatable.storage.hfile.record_sizes import RecordSizes
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.hfile.writing import block_writer, packing, runs
from metatable.storage.store import Store
from tests.storage.hfile.making import (
    binary,
    blocks_of,
    cold,
    entries_of,
    folder,
    write,
    write_in_parts,
)

NAMES = ["", "hfile.LASTKEY", "hfile.anything", "KEY_VALUE_VERSION", "metatable.filter"]


def headers(store: Store, path: str) -> list[tuple[int, BlockHeader]]:
    """All blocks of a file: (offset, header)."""
    return list(blocks_of(store.fetch(path)))


def test_equal_entries_make_equal_files(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"%05d" % number: b"%d" % number for number in range(1000)}
    first, second = write(store, "a.hfile", entries), write(store, "b.hfile", entries)
    assert first.checksum == second.checksum
    assert store.fetch("a.hfile") == store.fetch("b.hfile")


def many(count: int) -> tuple[pa.Array, pa.Array]:
    keys = binary(b"%06d" % number for number in range(count))
    return keys, binary(b"x" * (number * 7919 % 100) for number in range(count))


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.NONE, Codec.ZSTD])
def test_bytes_depend_neither_on_threads_nor_on_what_is_done_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    store = folder(tmp_path)
    keys, values = many(20_000)
    bodies = set()
    for workers, run_bytes, waiting_bytes, step in (
        (1, 1 << 20, 8 << 20, 20_000),
        (2, 1, 1, 20_000),
        (3, 20_000, 100_000, 333),
        (8, 100_000, 1, 20_000),
        (8, 1 << 20, 8 << 20, 777),
    ):
        monkeypatch.setattr(threads, "WORKERS", workers)
        monkeypatch.setattr(runs, "RUN_BYTES", run_bytes)
        monkeypatch.setattr(writer, "WAITING_BYTES", waiting_bytes)
        options = {"block_size_bytes": 4096, "index_chunk_bytes": 1000, "codec": codec}
        with HFileWriter(store, "a.hfile", filter_kind="fingerprints", **options) as file:
            for at in range(0, len(keys), step):
                file.add(keys[at : at + step], values[at : at + step])
        bodies.add(store.fetch("a.hfile"))
    assert len(bodies) == 1


def test_exception_on_a_thread_of_the_pool_reaches_the_caller_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    calls = iter(range(1000))

    def fails(*_: object, **__: object) -> bytes:
        if next(calls) == 7:
            raise MemoryError("in the pool")
        return b""

    monkeypatch.setattr(threads, "WORKERS", 2)
    monkeypatch.setattr(runs, "RUN_BYTES", 1000)
    monkeypatch.setattr(packing, "compress", fails)
    monkeypatch.setattr(writer, "WAITING_BYTES", 1)

    def goes_on_after_it() -> None:
        with HFileWriter(store, "a.hfile", block_size_bytes=1000) as file:
            with pytest.raises(MemoryError, match="in the pool"):
                file.add(*many(500))

    with pytest.raises(UsageError, match="not open for writing"):
        goes_on_after_it()
    assert store.list("", recursive=True) == []


def test_exception_while_the_rest_is_packed_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> bytes:
        raise MemoryError("in the pool")

    store = folder(tmp_path)
    monkeypatch.setattr(packing, "compress", fails)
    with pytest.raises(MemoryError, match="in the pool"):
        write(store, "a.hfile", {b"k": b"v"})
    assert store.list("", recursive=True) == []


def test_refused_entries_leave_those_before_them_writable(tmp_path: Path) -> None:
    store = folder(tmp_path)
    with HFileWriter(store, "a.hfile") as file:
        file.add(binary([b"b"]), binary([b"1"]))
        with pytest.raises(UsageError, match="ascending"):
            file.add(binary([b"c", b"a"]), binary([b"2", b"3"]))
        file.add(binary([b"c"]), binary([b"4"]))
    assert entries_of(cold(store, "a.hfile")) == [(b"b", b"1"), (b"c", b"4")]


def test_small_additions_are_held_until_they_are_worth_a_turn_of_the_pool(tmp_path: Path) -> None:
    keys, values = many(1000)
    with HFileWriter(folder(tmp_path), "a.hfile", block_size_bytes=1000) as file:
        for at in range(0, len(keys), 10):
            file.add(keys[at : at + 10], values[at : at + 10])
        assert len(file._waiting) > 50


def test_small_additions_that_wait_do_not_keep_large_arrays_alive(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    with HFileWriter(folder(tmp_path), "a.hfile", block_size_bytes=1) as file:
        for number in range(5):
            column = binary([b"%04d-a" % number, b"%04d-b" % number, *[bytes(1000)] * 1000])
            file.add(column[:2], column[:2])
            del column
        assert len(file._waiting) == 5
        assert pa.total_allocated_bytes() - before < 10_000


@pytest.mark.parametrize("value_size", [None, 4])
@pytest.mark.parametrize("key_size", [None, 6])
@pytest.mark.parametrize("block_size_bytes", [200, 65536])
def test_record_sizes_are_told_where_they_do_not_follow_from_the_fact(
    tmp_path: Path, key_size: int | None, value_size: int | None, block_size_bytes: int
) -> None:
    store = folder(tmp_path)
    entries = {
        b"%06d" % number if key_size else b"%d" % number: b"x" * (value_size or number)
        for number in range(1, 300)
    }
    write(store, "a.hfile", entries, block_size_bytes=block_size_bytes)
    reader = cold(store, "a.hfile")
    told = record_sizes.decode_fact(reader.file_info)
    assert told == (key_size or -1, value_size or -1)
    raw = reader.meta(record_sizes.META)
    assert (raw is not None) == (told is not None and -1 in told and block_size_bytes == 200)
    if raw is not None:
        found = RecordSizes.decode(raw, "", 0)
        pairs = sorted(entries.items())
        assert np.array_equal(found.key_sizes, key_size or [len(key) for key, _ in pairs])
        assert np.array_equal(found.value_sizes, value_size or [len(value) for _, value in pairs])
        data = [header for _, header in headers(store, "a.hfile") if is_data(header)]
        assert len(found.block_counts) == len(data)
        assert len(raw) < 2000


def test_long_keys_and_values_have_wider_sizes(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"a": b"", b"b" * 300: b"v" * 70_000, b"c": b"w" * 300}
    write(store, "a.hfile", entries, block_size_bytes=1)
    found = RecordSizes.decode(cold(store, "a.hfile").meta(record_sizes.META) or b"", "", 0)
    assert np.array_equal(found.key_sizes, [1, 300, 1])
    assert np.array_equal(found.value_sizes, [0, 70_000, 300])


def test_filter_knows_every_key_and_few_others(tmp_path: Path) -> None:
    store = folder(tmp_path)
    keys, values = many(5000)
    with HFileWriter(store, "a.hfile", filter_kind="fingerprints", filter_fpp=0.01) as file:
        file.add(keys, values)
    reader = cold(store, "a.hfile")
    assert reader.file_info[file_filter.FACT] == b"fingerprints"
    found = filters.decode("fingerprints", reader.meta(file_filter.META) or b"")
    assert found.might_contain(xxh64(keys)).all()
    others = binary(b"other-%d" % number for number in range(5000))
    assert found.might_contain(xxh64(others)).sum() < 100
    assert reader.get_sorted(keys).to_pylist() == values.to_pylist()


def test_file_without_entries_has_no_hints(tmp_path: Path) -> None:
    store = folder(tmp_path)
    write(store, "a.hfile", {}, filter_kind="fingerprints")
    reader = cold(store, "a.hfile")
    assert not reader.opened.meta
    assert not [name for name in reader.file_info if name.startswith(b"metatable.")]


@pytest.mark.parametrize(("kind", "fpp"), [("nonsense", 0.1), ("fingerprints", 0.0)])
def test_filters_that_cannot_be_made_are_refused_at_once(kind: str, fpp: float) -> None:
    with pytest.raises(UsageError):
        HFileWriter(Store("memory://none"), "a.hfile", filter_kind=kind, filter_fpp=fpp)


def test_one_checksum_is_enough_for_a_block(tmp_path: Path) -> None:
    store = folder(tmp_path)
    keys, values = many(5000)
    for codec, chunk_bytes in ((Codec.NONE, 1 << 20), (Codec.GZ, 1 << 20)):
        with HFileWriter(store, "a.hfile", codec=codec) as file:
            file.add(keys, values)
        assert {one.chunk_bytes for _, one in headers(store, "a.hfile")} == {chunk_bytes}


def test_written_tells_of_the_file(tmp_path: Path) -> None:
    store = folder(tmp_path)
    written = write(store, "in/a.hfile", {b"b": b"2", b"a": b"1", b"c": b"3"})
    body = store.fetch("in/a.hfile")
    assert written.path == "in/a.hfile"
    assert (written.entry_count, written.first_key, written.last_key) == (3, b"a", b"c")
    assert written.size_bytes == len(body)
    assert written.checksum == f"{google_crc32c.value(body):08x}"


def test_empty_file_has_no_last_key_and_answers_nothing(tmp_path: Path) -> None:
    store = folder(tmp_path)
    written = write(store, "a.hfile", {}, meta={"m": b"still here"})
    assert (written.entry_count, written.first_key, written.last_key) == (0, b"", b"")
    reader = cold(store, "a.hfile")
    assert b"hfile.LASTKEY" not in reader.file_info
    trailer = reader.trailer
    assert (trailer.first_data_block_offset, trailer.last_data_block_offset) == (-1, -1)
    assert reader.get(b"a") is None
    assert reader.get_sorted(binary([b"a", b"b"])).to_pylist() == [None, None]
    assert reader.get_sorted(binary([])).to_pylist() == []
    assert reader.prefix(b"").num_rows == 0
    assert list(reader.scan()) == []
    assert reader.meta("m") == b"still here"


def test_blocks_name_the_block_of_their_magic_before_them(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"%03d" % number: b"x" * 20 for number in range(20)}
    write(store, "a.hfile", entries, block_size_bytes=128, meta={"a": b"1", "b": b"2"})
    last: dict[BlockType, int] = {}
    for offset, header in headers(store, "a.hfile"):
        assert header.previous_offset == last.get(header.kind, -1)
        last[header.kind] = offset
    assert set(last) == {BlockType.DATA, BlockType.META, BlockType.ROOT_INDEX, BlockType.FILE_INFO}


def test_no_block_grows_past_the_block_size_unless_one_record_does(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"%03d" % number: b"x" * (number % 50) for number in range(200)} | {
        b"100": b"y" * 5000
    }
    write(store, "a.hfile", entries, block_size_bytes=256)
    sizes = [header.payload_size for _, header in headers(store, "a.hfile") if is_data(header)]
    assert sum(size > 256 for size in sizes) == 1
    assert max(sizes) == 5000 + 3 + 21
    assert len(sizes) < 50


def is_data(header: BlockHeader) -> bool:
    return header.kind is BlockType.DATA


@pytest.mark.parametrize("block_size_bytes", [65536, 1 << 20])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZ])
def test_no_record_begins_in_the_bytes_that_hudi_io_drops(
    tmp_path: Path, codec: Codec, block_size_bytes: int
) -> None:
    store = folder(tmp_path)
    count = 120_000
    noise = np.random.default_rng(7).integers(0, 256, (count, 8), dtype=np.uint8)
    keys = binary(b"%06d" % number for number in range(count))
    with HFileWriter(store, "a.hfile", codec=codec, block_size_bytes=block_size_bytes) as file:
        file.add(keys, binary(row.tobytes() for row in noise))
    assert [one for one in inspect.verify(store, "a.hfile") if one.code == "tail"] == []


def test_no_block_seems_to_have_more_checksums_than_it_has(tmp_path: Path) -> None:
    store = folder(tmp_path)
    for size in range(
        (1 << 20) - 70, (1 << 20) - 30
    ):  # around where header and payload fill a chunk
        write(store, "a.hfile", {b"k": b"v" * size}, codec=Codec.NONE)
        for _, header in headers(store, "a.hfile"):
            area = CHECKSUM_BYTES * chunk_count(header.covered_size, header.chunk_bytes)
            seeming = CHECKSUM_BYTES * chunk_count(header.size, header.chunk_bytes)
            assert area == seeming


def test_equal_keys_beyond_a_block_keep_the_tail_safe(tmp_path: Path) -> None:
    store = folder(tmp_path)
    pairs = [(b"k", b"")] * 60_000  # 1.3 MB of one key in one block, 22 bytes a record
    write(store, "a.hfile", pairs, codec=Codec.NONE, unique=False)
    assert inspect.verify(store, "a.hfile") == []
    assert len(entries_of(cold(store, "a.hfile"))) == 60_000


def test_gz_payloads_are_members_with_the_plain_header(tmp_path: Path) -> None:
    store = folder(tmp_path)
    write(store, "a.hfile", {b"k": b"v" * 100})
    raw = store.fetch("a.hfile")
    for offset, header in headers(store, "a.hfile"):
        member = raw[offset + 33 : offset + header.covered_size]
        assert member[:10].hex() == "1f8b0800000000000000"
        assert len(zlib.decompress(member, 31)) == header.payload_size


@pytest.mark.parametrize(
    ("first", "second"),
    [([b"b"], [b"a"]), ([b"a", b"c", b"b"], []), ([b"a"], [b"a"]), ([b"a", b"a"], [])],
    ids=["between calls", "within a call", "equal between calls", "equal within a call"],
)
def test_keys_out_of_order_are_refused(
    tmp_path: Path, first: list[bytes], second: list[bytes]
) -> None:
    store = folder(tmp_path)
    told = r"strictly ascending: path='a\.hfile' previous="
    with pytest.raises(UsageError, match=told):
        write_in_parts(store, "a.hfile", first, second)
    assert store.list("", recursive=True) == []


def test_falling_keys_are_refused_where_equal_ones_are_allowed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keys must be ascending"):
        write(folder(tmp_path), "a.hfile", [(b"b", b""), (b"a", b"")], unique=False)


@pytest.mark.parametrize(
    ("keys", "values", "what"),
    [
        (pa.array([b""]), pa.array([b"v"]), "impossible size"),
        (pa.array([b"k" * 32768]), pa.array([b"v"]), "impossible size"),
        (pa.array([None, b"k"]), pa.array([b"v", b"v"]), "keys must not be null"),
        (pa.array([b"k"]), pa.array([None], pa.binary()), "values must not be null"),
        (pa.array([1]), pa.array([b"v"]), "keys are not bytes"),
        (pa.array([b"k"]), pa.array([b"v", b"w"]), "differ in number"),
    ],
)
def test_columns_that_are_no_entries_are_refused(
    tmp_path: Path, keys: pa.Array, values: pa.Array, what: str
) -> None:
    store = folder(tmp_path)
    with pytest.raises(UsageError, match=what), HFileWriter(store, "a.hfile") as file:
        file.add(keys, values)
    assert store.size("a.hfile") is None


def test_longest_key_is_written_and_found(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"k" * 32767: b"v", b"k" * 200: b"w"}
    write(store, "a.hfile", entries, block_size_bytes=1)
    reader = cold(store, "a.hfile")
    assert entries_of(reader) == sorted(entries.items())
    assert reader.get(b"k" * 32767) == b"v"


def test_file_is_not_there_until_a_clean_exit(tmp_path: Path) -> None:
    store = folder(tmp_path)
    with HFileWriter(store, "a.hfile") as file:
        file.add(binary([b"a"]), binary([b"1"]))
        assert store.size("a.hfile") is None
    assert store.size("a.hfile") == file.written.size_bytes


def test_failed_writer_leaves_the_earlier_file_alone(tmp_path: Path) -> None:
    store = folder(tmp_path)
    write(store, "a.hfile", {b"old": b"1"})
    with pytest.raises(UsageError):
        write_in_parts(store, "a.hfile", [b"new"], [b"falls"])
    assert entries_of(cold(store, "a.hfile")) == [(b"old", b"1")]
    assert [one.path for one in store.list("", recursive=True)] == ["a.hfile"]


def test_writer_refuses_entries_outside_its_block(tmp_path: Path) -> None:
    file = HFileWriter(folder(tmp_path), "a.hfile")
    for act in (
        lambda: file.add(binary([b"a"]), binary([b"1"])),
        lambda: file.add_meta("m", b""),
        lambda: file.add_file_info("f", b""),
    ):
        with pytest.raises(UsageError, match="not open for writing"):
            act()


@pytest.mark.parametrize("name", NAMES)
def test_reserved_file_info_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="name is taken"):
        write(folder(tmp_path), "a.hfile", {}, facts={name: b""})


@pytest.mark.parametrize("name", ["", "metatable.record_sizes", "metatable.anything"])
def test_reserved_meta_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="need names of their own"):
        write(folder(tmp_path), "a.hfile", {}, meta={name: b""})


def test_unwritten_codecs_and_block_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="codec is not written"):
        HFileWriter(folder(tmp_path), "a.hfile", codec=Codec.BZIP2)
    with pytest.raises(UsageError, match="block size out of range"):
        HFileWriter(folder(tmp_path), "a.hfile", block_size_bytes=0)


def test_meta_blocks_are_found_whatever_their_order_and_size(tmp_path: Path) -> None:
    store = folder(tmp_path)
    meta = {"z": b"last", "ä": b"\0" * 200_000, "a": b""}
    write(store, "a.hfile", {b"k": b"v"}, meta=meta)
    reader = cold(store, "a.hfile")
    assert {name: reader.meta(name) for name in meta} == meta
    assert list(reader.opened.meta) == ["a", "z", "ä"]
    assert reader.meta("b") is None


def test_body_that_is_too_large_for_a_block_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    monkeypatch.setattr(block_writer, "MAX_PAYLOAD", 1000)
    with pytest.raises(UsageError, match="META block is too large: expected='at most 1000 bytes'"):
        write(store, "a.hfile", {}, meta={"m": bytes(1001)})
    assert store.size("a.hfile") is None


def test_averages_and_sums_are_those_of_the_entries(tmp_path: Path) -> None:
    store = folder(tmp_path)
    entries = {b"a": b"12345", b"bbb": b"", b"cc": b"12"}
    write(store, "a.hfile", entries, meta={"m": b"body"})
    reader: HFileReader = cold(store, "a.hfile")
    facts = inspect.meta(reader)["file_info"]
    assert facts["hfile.AVG_KEY_LEN"] == (1 + 3 + 2 + 3 * 12) // 3
    assert facts["hfile.AVG_VALUE_LEN"] == 7 // 3
    all_headers = [header for _, header in headers(store, "a.hfile")]
    roots = [header for header in all_headers if header.kind is BlockType.ROOT_INDEX]
    total = sum(33 + header.payload_size for header in all_headers) + 4096
    trailer = reader.trailer
    assert trailer.uncompressed_data_index_size == roots[0].payload_size
    assert trailer.total_uncompressed_bytes == total - 33 - roots[0].payload_size


def test_hints_are_left_out_where_they_would_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    keys, values = many(5000)
    for most, metas in ((5000, {file_filter.META, record_sizes.META}), (4999, set())):
        monkeypatch.setattr(packing, "HINTED_ENTRIES", most)
        with HFileWriter(store, "a.hfile", filter_kind="split_block") as file:
            file.add(keys, values)
        found = cold(store, "a.hfile")
        assert set(found.opened.meta) == metas
        assert record_sizes.decode_fact(found.file_info) == (6, -1)
        assert inspect.verify(store, "a.hfile") == []
        assert found.get_sorted(keys).equals(values)
