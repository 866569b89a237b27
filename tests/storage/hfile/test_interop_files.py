"""HFiles that HBase and Hudi wrote, read with exactly the facts known of them."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.hfile import inspect
from metatable.storage.hfile.block import BlockType, decode_block
from metatable.storage.hfile.block_index import BlockIndex, decode_inner, decode_root
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import NUMBERS
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading.finding import find_records
from metatable.storage.hfile.trailer import FIELDS
from metatable.storage.store import Store
from tests.storage.hfile import raw_file
from tests.storage.hfile.making import binary, cold, entries_of
from tests.storage.hfile.raw_file import RawFile


class Facts(NamedTuple):
    """One line of what is known: offsets and counts as in the trailer, 0 for an absent field."""

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
    message: int


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
    "20000 86 1 1 0 110121 110484 111452 3663 1407393 80",
    "hudi_1_0_hbase_2_4_13_1KB_GZ_10000_large_keys_deep_index 246061 9f42348a17551ec3 3 1 2 "
    "10000 7 3 1 0 238924 241454 241721 226930 1865933 80",
    "hudi_1_0_hbase_2_4_13_1KB_GZ_20000_large_keys 458683 e09951e586a38db2 3 1 2 "
    "20000 4 2 1 0 451930 454111 454342 420439 3718936 82",
    "hudi_1_0_hbase_2_4_9_16KB_GZ_20000 105235 1ce6bc514d912340 3 1 2 "
    "20000 72 1 1 0 98598 100021 100901 3081 1186920 80",
    "hudi_1_0_hbase_2_4_9_16KB_GZ_200_20_non_unique 19476 db896094b959ab22 3 1 2 "
    "4200 16 1 1 0 14262 14830 15143 687 262872 76",
    "hudi_1_0_hbase_2_4_9_16KB_NONE_5000 301098 ef56447f92ca38f9 3 2 2 "
    "5000 18 1 1 0 279531 295839 296708 771 300138 79",
    "hudi_1_0_hbase_2_4_9_no_entry 5087 3c241ab5b95f4f26 3 1 2 0 0 1 1 -1 -1 530 661 0 436019 96",
)
HUDI = facts(
    "col-stats-0000-0_11-1133-3290_20251220210130942 12800 5db068f79fcab2cc 3 1 2 "
    "48 1 1 1 0 0 6485 6682 73 456610 78",
    "files-0000-0_0-955-2690_00000000000000000 6982 460dec8362ca8e18 3 1 2 "
    "1 1 1 1 0 0 790 955 43 444027 78",
    "files-0000-0_23-1133-3302_20251220210130942 7662 ac39027404c4fe05 3 1 2 "
    "4 1 1 1 0 0 1454 1621 43 445183 78",
    "record-index-0003-0_4-1133-3283_20251220210130942 6652 ba17ef92a67589ba 3 1 2 "
    "0 0 1 1 -1 -1 530 661 0 443809 96",
)
"""Of metadata tables: minor 0 by Hudi's own writer, minor 3 by HBase's."""

ZIPS = {
    "hudi/quickstart_trips_table__mor__avro__v8_trips_8i3u1d": (24, 35),
    "hudi/sample_table__cow__v9_txns_simple_meta": (29, 74),
    "hudi/sample_table__mor__avro__v9_txns_nonpart_meta": (27, 61),
    "hudi-spark/cow_v6_mdt_all": (23, 43),
    "hudi-spark/cow_v9_mdt_all": (37, 82),
    "hudi-spark/mor_avro_logs_v6": (4, 30),
    "hudi-spark/mor_bucket_simple": (1, 16),
    "hudi-spark/mor_consistent_1initial": (1, 8),
    "hudi-spark/mor_consistent_2pending": (1, 16),
    "hudi-spark/mor_consistent_3done": (1, 24),
}
"""Zipped tables with metadata: how many base HFiles, and HFiles in log blocks."""

SYSTEM_FACTS = {
    b"hfile.LASTKEY",
    b"hfile.AVG_KEY_LEN",
    b"hfile.AVG_VALUE_LEN",
    b"hfile.CREATE_TIME_TS",
    b"KEY_VALUE_VERSION",
    b"MAX_MEMSTORE_TS_KEY",
}
BASE_FACTS = {b"schema", b"minRecordKey", b"maxRecordKey", b"bloomFilterTypeCode"}
HFILE_BLOCK = 4
SCHEMA_HEADER = 2


@pytest.fixture(params=HBASE, ids=lambda one: one.name)
def hbase_file(request: pytest.FixtureRequest, interop: Path) -> tuple[Store, Facts]:
    return Store(interop / "hfile"), request.param


class Held(NamedTuple):
    """An HFile of a zipped table; of one in a log block, the schema that its header says."""

    name: str
    body: bytes
    schema: bytes | None


def hfiles(archive: Path) -> Iterator[Held]:
    """Every HFile in the zipped metadata table, those in log blocks included."""
    with zipfile.ZipFile(archive) as table:
        for path in table.namelist():
            name = path.rpartition("/")[2]
            if "/.hoodie/metadata/" not in f"/{path}" or "__MACOSX" in path or not name:
                continue
            if name.endswith(".hfile"):
                yield Held(name, table.read(path), None)
            elif (body := table.read(path)).startswith(b"#HUDI#"):
                yield from hfiles_of_log(name, body)


def hfiles_of_log(name: str, log: bytes) -> Iterator[Held]:
    """The HFiles in the blocks of a log: magic, size, version, kind, header, content, footer."""
    at = 0
    while at < len(log):
        size, _, kind = struct.unpack_from(">qii", log, at + 6)
        headers, start = log_map(log, at + 22)
        [length] = struct.unpack_from(">q", log, start)
        if kind == HFILE_BLOCK:
            content = log[start + 8 : start + 8 + length]
            yield Held(f"{name}.{at}", content, headers[SCHEMA_HEADER])
        at += 14 + size


def log_map(log: bytes, at: int) -> tuple[dict[int, bytes], int]:
    [count] = struct.unpack_from(">i", log, at)
    at += 4
    found = {}
    for _ in range(count):
        key, size = struct.unpack_from(">ii", log, at)
        found[key] = log[at + 8 : at + 8 + size]
        at += 8 + size
    return found, at


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
    assert body[-4096 + 8] == known.message
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
    index = reader.tree.all()
    for offset, size, row in zip(index.offsets, index.sizes, index.keys.to_pylist(), strict=True):
        [raw] = store.read(name, [(int(offset), int(size))])
        codec = reader.trailer.compression_codec
        payload = decode_block(raw, codec, name, 0, [BlockType.DATA])[1]
        keys = find_records(np.frombuffer(payload, np.uint8), True, name, 0).keys()
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
        for place, (offset, size) in enumerate(zip(level.offsets, level.sizes, strict=True)):
            [raw] = store.read(name, [(int(offset), int(size))])
            children = decode_inner(decode_block(raw, Codec.GZ, name, 0, inner)[1], name, 0)
            assert children.row(0) == level.row(place)
            below.append(children)
        level = BlockIndex.joined(below)
        counts.append([len(children) for children in below])
    assert (len(counts[0]), sum(counts[0])) == (7, 103)
    assert counts[1] == [14] * 102 + [1]
    assert level.keys.equals(reader.tree.all().keys)
    assert len(level) == 1429


def test_mid_keys_are_those_of_the_middle_block(interop: Path) -> None:
    for known, middle in ((HBASE[1], (1429 - 1) // 2), (HBASE[2], (2858 - 1) // 2)):
        raw = parsed(interop, known)
        offset, size, entry = struct.unpack(">qii", raw.roots[0].behind)
        [leaf] = [one for one in raw.of(raw_file.LEAF) if one.offset == offset]
        assert (leaf.size, leaf.links[entry].child) == (size, raw.of(raw_file.DATA)[middle])  # type: ignore[index]
    assert raw.roots[0].behind.hex() == "0000000000042db2000023ea00000217"


def test_large_keys_file_has_four_leaves(interop: Path) -> None:
    raw = parsed(interop, HBASE[2])
    assert [len(one.links or ()) for one in raw.of(raw_file.LEAF)] == [893, 893, 893, 179]
    assert len(cold(Store(interop / "hfile"), f"{HBASE[2].name}.hfile").tree.all()) == 2858


def parsed(interop: Path, known: Facts) -> RawFile:
    return RawFile.parse(known.name, (interop / "hfile" / f"{known.name}.hfile").read_bytes())


def test_checksums_of_hbase_are_crc32c_of_header_and_payload(interop: Path) -> None:
    body = (interop / "hfile" / f"{HBASE[5].name}.hfile").read_bytes()
    assert body[16435:16443].hex() == "27445457fec571ed"
    assert [google_crc32c.value(part) for part in (body[:16384], body[16384:16435])] == [
        0x27445457,
        0xFEC571ED,
    ]


@pytest.mark.parametrize("known", HUDI, ids=lambda known: known.name)
def test_hudi_metadata_files_have_the_facts_known_of_them(
    known: Facts, interop: Path, tmp_path: Path
) -> None:
    for table in ZIPS:
        for name, body, _ in hfiles(interop / f"{table}.zip"):
            if name == f"{known.name}.hfile" and len(body) == known.size:
                (tmp_path / name).write_bytes(body)
                check(Store(tmp_path), known)
                return
    pytest.fail("not among the interop files")


@pytest.mark.parametrize("table", ZIPS)
def test_every_hfile_of_a_metadata_table_is_read_as_its_bytes_say(
    table: str, interop: Path, tmp_path: Path
) -> None:
    store, found = Store(tmp_path), list(hfiles(interop / f"{table}.zip"))
    bases = sum(one.schema is None for one in found)
    assert (bases, len(found) - bases) == ZIPS[table]
    for one in found:
        (tmp_path / "one.hfile").write_bytes(one.body)
        reader = cold(store, "one.hfile")
        raw = RawFile.parse(one.name, one.body)
        check_entries(reader, raw)
        check_trailer(reader, raw, one.body)
        check_facts(reader, one)
        metas = {link.key.decode(): link.child for link in raw.roots[1].links or ()}
        assert {name: block.payload for name, block in metas.items() if block} == {
            name: reader.meta(name) for name in reader.opened.meta
        }
        assert list(metas) == ([] if one.schema else ["bloomFilter"])
        assert inspect.verify(store, "one.hfile") == []


def check_entries(reader: HFileReader, raw: RawFile) -> None:
    """The reader finds what the records say when they are taken one by one."""
    expected = raw_file.entries_in([block.payload for block in raw.of(raw_file.DATA)])
    assert entries_of(reader) == expected
    keys = [key for key, _ in expected]
    assert len(set(keys)) == len(keys)
    values = [value for _, value in expected]
    assert reader.get_sorted(binary(keys)).to_pylist() == values
    assert reader.find(binary(reversed(keys))).to_pylist() == values[::-1]
    assert [reader.get(key) for key in keys[:20]] == values[:20]
    assert reader.find(binary(key + b"\0" for key in keys)).null_count == len(keys)
    ends = (keys[0], keys[-1]) if keys else (b"", b"")
    assert (reader.first_key, reader.last_key) == ends


def check_trailer(reader: HFileReader, raw: RawFile, body: bytes) -> None:
    """The trailer's fields, and what they are of the blocks by the rules of their writer."""
    fields = dict(raw.trailer)
    for number, name in FIELDS.items():
        found, stored = getattr(reader.trailer, name, None), fields.get(number)
        if isinstance(stored, bytes):
            assert found == stored.decode()
        elif stored is not None:
            assert found == (stored if stored < 1 << 63 else stored - (1 << 64)), name
    assert [number for number, _ in raw.trailer] == sorted(fields)
    raw.build()  # gives the blocks their places
    facts = {number: value for number, value in raw._facts().items() if number in fields}
    body_facts = {number: getattr(reader.trailer, FIELDS[number]) for number in facts}
    compressed_alike = raw.codec is Codec.NONE
    loose = set() if compressed_alike else {1, 2, 10}  # offsets, where this zlib is another
    assert {n: v for n, v in body_facts.items() if n not in loose} == {
        n: v for n, v in facts.items() if n not in loose
    }


def check_facts(reader: HFileReader, one: Held) -> None:
    """FILE_INFO holds what it must, and the numbers in it are those of the entries."""
    facts, native = reader.file_info, reader.trailer.minor == 0
    assert json.loads(facts[b"schema"])["name"] == "HoodieMetadataRecord"
    entries = entries_of(reader)
    expected = SYSTEM_FACTS | ({b"schema"} if one.schema else BASE_FACTS)
    assert set(facts) == (expected if entries or native else expected - {b"hfile.LASTKEY"})
    if one.schema:
        assert facts[b"schema"] == one.schema
    else:
        ends = (entries[0][0], entries[-1][0]) if entries else (b"", b"")
        assert (facts[b"minRecordKey"], facts[b"maxRecordKey"]) == ends
        assert facts[b"bloomFilterTypeCode"] == b"DYNAMIC_V0"
    count = max(len(entries), 1)
    rows = sum(len(key) + (0 if native else 12) for key, _ in entries)
    values = sum(len(value) for _, value in entries)
    numbers = {name: int.from_bytes(facts[name], "big") for name in NUMBERS}
    assert numbers.pop(b"hfile.CREATE_TIME_TS") > 0 or not native
    assert numbers == {
        b"hfile.AVG_KEY_LEN": rows // count,
        b"hfile.AVG_VALUE_LEN": values // count,
        b"KEY_VALUE_VERSION": 1,
        b"MAX_MEMSTORE_TS_KEY": 0,
    }


@pytest.mark.parametrize("table", [one for one in ZIPS if "v9" in one])
def test_hfiles_of_hudis_own_writer_have_the_form_known_of_it(table: str, interop: Path) -> None:
    for one in hfiles(interop / f"{table}.zip"):
        raw = RawFile.parse(one.name, one.body)
        assert raw.minor == 0
        assert {block.checksum for block in raw.blocks} == {Checksum.NULL}
        assert bool(raw.of(raw_file.DATA)) is bool(dict(raw.trailer)[7])
        assert 4 not in dict(raw.trailer)
        for link in raw.roots[0].links or ():  # keys without the ten bytes behind the row
            assert len(link.key) == 2 + int.from_bytes(link.key[:2], "big")
        assert dict(raw.trailer)[11] == b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"


def test_first_files_record_of_hudis_own_writer_is_the_all_partitions_one(
    interop: Path, tmp_path: Path
) -> None:
    name = "files-0000-0_0-5-4_00000000000000000.hfile"
    table = interop / "hudi" / "sample_table__cow__v9_txns_simple_meta.zip"
    (tmp_path / name).write_bytes({one.name: one.body for one in hfiles(table)}[name])
    [(key, value)] = entries_of(cold(Store(tmp_path), name))
    assert key == b"__all_partitions__"
    assert value[:8] == bytes.fromhex("0000000000000202")
