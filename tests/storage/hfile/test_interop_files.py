"""HFiles that HBase and Hudi wrote, read with exactly the facts known of them."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from metatable.storage.hfile import inspect
from metatable.storage.hfile.block import BlockType, decode_block
from metatable.storage.hfile.block_index import decode_inner, decode_root
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.key_values import parse, row_of
from metatable.storage.store import Store
from tests.storage.hfile.making import cold, entries_of


class Facts(NamedTuple):
    """One line of what is known: offsets and counts as in the trailer; -2: field absent."""

    name: str
    size: int
    sha256: str
    minor: int
    codec: Codec
    checksum: Checksum
    entries: int
    roots: int
    levels: int
    metas: int
    first: int
    last: int
    load: int
    info: int
    index_bytes: int
    total_bytes: int


def facts(*lines: str) -> list[Facts]:
    made = []
    for line in lines:
        name, size, sha, minor, codec, checksum, *numbers = line.split()
        rest = [0 if number == "-" else int(number) for number in numbers]
        kinds = Codec(int(codec)), Checksum(int(checksum))
        made.append(Facts(name, int(size), sha, int(minor), *kinds, *rest))
    return made


HBASE = facts(
    "hudi_1_0_hbase_2_4_13_16KB_GZ_20000_fake_first_key 115796 09e832adb510f671 3 1 2 "
    "20000 86 1 1 0 110121 110484 111452 3663 1407393",
    "hudi_1_0_hbase_2_4_13_1KB_GZ_10000_large_keys_deep_index 246061 9f42348a17551ec3 3 1 2 "
    "10000 7 3 1 0 238924 241454 241721 226930 1865933",
    "hudi_1_0_hbase_2_4_13_1KB_GZ_20000_large_keys 458683 e09951e586a38db2 3 1 2 "
    "20000 4 2 1 0 451930 454111 454342 420439 3718936",
    "hudi_1_0_hbase_2_4_9_16KB_GZ_20000 105235 1ce6bc514d912340 3 1 2 "
    "20000 72 1 1 0 98598 100021 100901 3081 1186920",
    "hudi_1_0_hbase_2_4_9_16KB_GZ_200_20_non_unique 19476 db896094b959ab22 3 1 2 "
    "4200 16 1 1 0 14262 14830 15143 687 262872",
    "hudi_1_0_hbase_2_4_9_16KB_NONE_5000 301098 ef56447f92ca38f9 3 2 2 "
    "5000 18 1 1 0 279531 295839 296708 771 300138",
    "hudi_1_0_hbase_2_4_9_no_entry 5087 3c241ab5b95f4f26 3 1 2 0 0 1 1 -1 -1 530 661 0 436019",
)

V9 = ("sample_table__cow__v9_txns_simple_meta", "sample_table__mor__avro__v9_txns_nonpart_meta")
V8 = "quickstart_trips_table__mor__avro__v8_trips_8i3u1d"
HUDI_V8 = facts(
    "col-stats-0000-0_11-1133-3290_20251220210130942 12800 5db068f79fcab2cc 3 1 2 "
    "48 1 1 1 0 0 6485 6682 73 456610",
    "files-0000-0_0-955-2690_00000000000000000 6982 460dec8362ca8e18 3 1 2 "
    "1 1 1 1 0 0 790 955 43 444027",
    "files-0000-0_23-1133-3302_20251220210130942 7662 ac39027404c4fe05 3 1 2 "
    "4 1 1 1 0 0 1454 1621 43 445183",
    "record-index-0003-0_4-1133-3283_20251220210130942 6652 ba17ef92a67589ba 3 1 2 "
    "0 0 1 1 -1 -1 530 661 0 443809",
)


@pytest.fixture(params=HBASE, ids=lambda one: one.name)
def hbase_file(request: pytest.FixtureRequest, interop: Path) -> tuple[Store, Facts]:
    return Store(interop / "hfile"), request.param


def hfiles(archive: Path) -> Iterator[tuple[str, bytes]]:
    """(bare name, bytes) of every HFile in a zipped table."""
    with zipfile.ZipFile(archive) as table:
        for path in table.namelist():
            name = path.rpartition("/")[2]
            if name.endswith(".hfile") and "__MACOSX" not in path:
                yield name, table.read(path)


def check(store: Store, known: Facts) -> None:
    name = f"{known.name}.hfile"
    body = store.fetch(name)
    assert (len(body), hashlib.sha256(body).hexdigest()[:16]) == (known.size, known.sha256)
    reader = cold(store, name)
    found = reader.trailer
    assert (found.minor, found.compression_codec) == (known.minor, known.codec)
    assert body[known.load + 24] == known.checksum
    assert (found.data_index_count, found.num_data_index_levels) == (known.roots, known.levels)
    assert found.meta_index_count == len(reader.opened.meta) == known.metas
    offsets = found.first_data_block_offset, found.last_data_block_offset
    assert offsets == (known.first, known.last)
    assert found.load_on_open_data_offset == known.load
    assert found.file_info_offset == known.info
    assert found.uncompressed_data_index_size == known.index_bytes
    assert found.total_uncompressed_bytes == known.total_bytes
    assert reader.entry_count == known.entries == len(entries_of(reader))
    assert inspect.verify(store, name) == []


def test_every_hbase_file_has_the_facts_known_of_it(hbase_file: tuple[Store, Facts]) -> None:
    check(*hbase_file)


def test_every_hbase_file_holds_the_entries_that_were_put_into_it(
    hbase_file: tuple[Store, Facts],
) -> None:
    store, known = hbase_file
    found = entries_of(cold(store, f"{known.name}.hfile"))
    assert found == list(expected_entries(known.name))


def expected_entries(name: str) -> Iterator[tuple[bytes, bytes]]:
    """The generator of the samples: numbered keys and values, with what the name says of them."""
    if name.endswith("no_entry"):
        return
    if "non_unique" in name:
        for number in range(200):
            yield b"hudi-key-%09d" % number, b"hudi-value-%09d" % number
            for repeat in range(20):
                yield b"hudi-key-%09d" % number, b"hudi-value-%09d_%d" % (number, repeat)
        return
    count = int(re.findall(r"(?:GZ|NONE)_(\d+)", name)[0])
    before = b"a" * 100 + b"-" if "large_keys" in name else b""
    suffix = b"-abcdefghij" if "fake_first_key" in name else b""
    for number in range(count):
        yield b"hudi-key-%s%09d%s" % (before, number, suffix), b"hudi-value-%09d" % number


def test_every_key_of_an_hbase_file_is_found_and_no_other(hbase_file: tuple[Store, Facts]) -> None:
    store, known = hbase_file
    reader = cold(store, f"{known.name}.hfile")
    entries = entries_of(reader)
    first_values = dict(reversed(entries))
    keys = pa.array([key for key, _ in entries], pa.binary())
    found = reader.get_sorted(keys)
    assert found.to_pylist() == [first_values[key] for key, _ in entries]
    between = pa.array([key + b"\0" for key, _ in entries], pa.binary())
    assert reader.find(between).null_count == len(between)
    for key in [key for key, _ in entries][:: max(len(entries) // 20, 1)]:
        assert reader.get(key) == first_values[key]
        assert reader.get(key[:-1]) is None
    assert reader.get(b"") is reader.get(b"hudi-key-b") is reader.get(b"\xff" * 99) is None


def test_first_and_last_key_are_those_of_the_scan(hbase_file: tuple[Store, Facts]) -> None:
    store, known = hbase_file
    reader = cold(store, f"{known.name}.hfile")
    entries = entries_of(reader)
    first, last = (entries[0][0], entries[-1][0]) if entries else (b"", b"")
    assert (reader.first_key, reader.last_key) == (first, last)


def test_bloom_filter_meta_block_is_base64_text(hbase_file: tuple[Store, Facts]) -> None:
    store, known = hbase_file
    body = cold(store, f"{known.name}.hfile").meta("bloomFilter")
    assert body is not None
    assert len(body) % 4 == 0
    assert body.isascii()


def test_non_unique_keys_are_all_scanned_and_prefixed(interop: Path) -> None:
    store = Store(interop / "hfile")
    reader = cold(store, f"{HBASE[4].name}.hfile")
    assert reader.prefix(b"hudi-key-000000007").num_rows == 21
    assert reader.prefix(b"hudi-key-00000001").num_rows == 21 * 10
    assert reader.get(b"hudi-key-000000007") == b"hudi-value-000000007"


def test_no_key_of_the_non_unique_file_crosses_a_block(interop: Path) -> None:
    last: bytes | None = None
    for first_key, last_key, _ in blocks(Store(interop / "hfile"), f"{HBASE[4].name}.hfile"):
        assert last is None or first_key > last
        last = last_key


def test_shortened_index_keys_lie_between_their_blocks(interop: Path) -> None:
    found = list(blocks(Store(interop / "hfile"), f"{HBASE[0].name}.hfile"))
    assert len(found) == 86
    assert sum(index_key != first for first, _, index_key in found) == 85
    assert all(before[1] < after[2] <= after[0] for before, after in pairwise(found))


def blocks(store: Store, name: str) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(first key, last key, index key) of every data block."""
    reader = cold(store, name)
    index = reader.opened.index
    for offset, size, row in zip(index.offsets, index.sizes, index.rows, strict=True):
        [raw] = store.read(name, [(int(offset), int(size))])
        codec = reader.trailer.compression_codec
        keys = parse(decode_block(raw, codec, name, 0, [BlockType.DATA])[1], True, name, 0).keys()
        yield keys[0].as_py(), keys[len(keys) - 1].as_py(), row


def test_deep_index_has_the_known_leaves_and_inner_blocks(interop: Path) -> None:
    store, name = Store(interop / "hfile"), f"{HBASE[1].name}.hfile"
    reader = cold(store, name)
    inner = (BlockType.INTERMEDIATE_INDEX, BlockType.LEAF_INDEX)
    [raw] = store.read(name, [(HBASE[1].load, HBASE[1].info - HBASE[1].load)])
    size = 33 + int.from_bytes(raw[8:12], "big")
    root = decode_block(raw[:size], Codec.GZ, name, 0, [BlockType.ROOT_INDEX])[1]
    level = decode_root(root, 7, name, 0)
    counts = []
    for _ in range(2):
        below = []
        for offset, size, key in level:
            [raw] = store.read(name, [(offset, size)])
            children = decode_inner(decode_block(raw, Codec.GZ, name, 0, inner)[1], name, 0)
            assert children[0][2] == key
            below.append(children)
        level = [entry for children in below for entry in children]
        counts.append([len(children) for children in below])
    assert (len(counts[0]), sum(counts[0])) == (7, 103)
    assert counts[1] == [14] * 102 + [1]
    assert [row_of(key) for _, _, key in level] == list(reader.opened.index.rows)
    assert len(level) == 1429


def test_large_keys_file_has_four_leaves(interop: Path) -> None:
    assert len(cold(Store(interop / "hfile"), f"{HBASE[2].name}.hfile").opened.index) == 2858


def test_hudi_v8_metadata_files_have_the_facts_known_of_them(interop: Path, tmp_path: Path) -> None:
    wanted = {f"{known.name}.hfile": known for known in HUDI_V8}
    seen = 0
    store = Store(tmp_path)
    for name, body in hfiles(interop / "hudi" / f"{V8}.zip"):
        if known := wanted.get(name):
            (tmp_path / name).write_bytes(body)
            check(store, known)
            seen += 1
    assert seen == len(HUDI_V8)


@pytest.mark.parametrize("table", V9)
def test_every_hfile_of_hudis_own_writer_is_read_whole(
    table: str, interop: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    count = 0
    for name, body in hfiles(interop / "hudi" / f"{table}.zip"):
        (tmp_path / name).write_bytes(body)
        reader = cold(store, name)
        assert reader.trailer.minor == 0
        assert json.loads(reader.file_info[b"schema"])["name"] == "HoodieMetadataRecord"
        entries = entries_of(reader)
        keys = pa.array([key for key, _ in entries], pa.binary())
        assert reader.get_sorted(keys).to_pylist() == [value for _, value in entries]
        assert inspect.verify(store, name) == []
        count += 1
    assert count > 10


@pytest.mark.parametrize("table", ["cow_v9_mdt_all", "cow_v6_mdt_all"])
def test_metadata_tables_of_hudi_on_spark_are_read_whole(
    table: str, interop: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    entries = 0
    for name, body in hfiles(interop / "hudi-spark" / f"{table}.zip"):
        (tmp_path / name).write_bytes(body)
        assert inspect.verify(store, name) == []
        entries += len(entries_of(cold(store, name)))
    assert entries > 100


def test_first_files_record_of_hudis_own_writer_is_the_all_partitions_one(
    interop: Path, tmp_path: Path
) -> None:
    name = "files-0000-0_0-5-4_00000000000000000.hfile"
    bodies = dict(hfiles(interop / "hudi" / "sample_table__cow__v9_txns_simple_meta.zip"))
    (tmp_path / name).write_bytes(bodies[name])
    reader = cold(Store(tmp_path), name)
    [(key, value)] = entries_of(reader)
    assert key == b"__all_partitions__"
    assert reader.trailer.comparator_class_name.endswith("HoodieHBaseKVComparator")
    assert value[:8] == bytes.fromhex("0000000000000202")
