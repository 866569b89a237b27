"""Hudi's metadata records: golden bytes, fastavro, and what Hudi itself has stored."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.base_files.statistics import ColumnStats
from metatable.metadata.hfiles.payload import (
    BLOOM_TOMBSTONE,
    FILES_TOMBSTONE,
    STATS_TOMBSTONE,
    decode_blooms,
    decode_files,
    decode_stats,
    encode_blooms,
    encode_files,
    encode_stats,
    schema_text,
)
from metatable.storage.avro import RecordCodec
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store

SCHEMA = fastavro.parse_schema(json.loads(schema_text()))
COUNTS = {"null_count": 1, "value_count": 10, "size_bytes": 500, "uncompressed_bytes": 6000}


def as_fastavro_reads(values: pa.Array) -> list[dict[str, Any]]:
    named = {"return_record_name": True, "return_record_name_override": True}
    return [
        fastavro.schemaless_reader(io.BytesIO(value), SCHEMA, None, **named)
        for value in values.to_pylist()
    ]


def fastavro_bytes(**content: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, {"key": "", **content})
    return out.getvalue()


def stats(kind: pa.DataType, minimum: Any, maximum: Any, column: str = "c") -> ColumnStats:
    return ColumnStats(column, kind, minimum, maximum, **COUNTS)


def binaries(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


# files


def test_a_file_record_is_these_bytes() -> None:
    (value,) = encode_files(pa.array(["p/f"]), np.array([300])).to_pylist()
    assert value.hex() == "00000000000004" + "02" + "02" + "06702f66" + "d80400" + "00" + "00000000"
    assert value == fastavro_bytes(
        type=2, filesystemMetadata={"p/f": {"size": 300, "isDeleted": False}}
    )


@given(st.lists(st.tuples(st.text(), st.integers(0, (1 << 63) - 1)), max_size=20))
@settings(deadline=None)
def test_file_records_round_trip_and_fastavro_reads_them(files: list[tuple[str, int]]) -> None:
    paths, sizes = pa.array([f[0] for f in files], pa.string()), [f[1] for f in files]
    values = encode_files(paths, np.array(sizes, np.int64))
    one_each = [[{"path": path, "size": size}] for path, size in files]
    assert decode_files(values).to_pylist() == one_each
    for (path, size), record in zip(files, as_fastavro_reads(values), strict=True):
        assert record["type"] == 2
        assert record["filesystemMetadata"] == {path: {"size": size, "isDeleted": False}}


@given(st.lists(st.dictionaries(st.text(), st.integers(0, 1 << 62), min_size=1, max_size=4)))
@settings(deadline=None)
def test_records_of_several_files_round_trip_and_fastavro_reads_them(
    slices: list[dict[str, int]],
) -> None:
    files = [file for one in slices for file in one.items()]
    offsets = np.cumsum([0, *map(len, slices)], dtype=np.int32)
    sizes = np.array([size for _, size in files], np.int64)
    values = encode_files(pa.array([path for path, _ in files], pa.string()), sizes, offsets)
    told = [[{"path": path, "size": size} for path, size in one.items()] for one in slices]
    assert decode_files(values).to_pylist() == told
    assert decode_files(values.slice(1)).to_pylist() == told[1:]
    for one, record in zip(slices, as_fastavro_reads(values), strict=True):
        held = {path: {"size": size, "isDeleted": False} for path, size in one.items()}
        assert record["filesystemMetadata"] == held


def test_records_that_are_of_no_files_are_reported() -> None:
    golden = bytes.fromhex("00000000000002020212726567696f6e3d757300000000000000")
    told = r"another type: path='\.hoodie/metatable/files' row=0 expected=2 found=1"
    with pytest.raises(CorruptError, match=told):
        decode_files(binaries(golden))
    none, one = (
        fastavro_bytes(
            type=2, filesystemMetadata={name: {"size": 1, "isDeleted": False} for name in names}
        )
        for names in ("", "a")
    )
    for values in ([none], [one, none], [none, one]):
        with pytest.raises(CorruptError, match="no file"):
            decode_files(binaries(*values))
    with pytest.raises(CorruptError, match="without content"):
        decode_files(binaries(fastavro_bytes(type=2)))


# bloom_filter


@given(st.lists(st.tuples(st.text(), st.text(), st.binary()), max_size=20))
@settings(deadline=None)
def test_filter_records_round_trip_and_fastavro_reads_them(
    rows: list[tuple[str, str, bytes]],
) -> None:
    columns = [
        pa.array([row[i] for row in rows], kind)
        for i, kind in enumerate((pa.string(), pa.string(), pa.binary()))
    ]
    values = encode_blooms(*columns)
    assert decode_blooms(values).equals(pa.table(columns, ["kind", "instant", "filter"]))
    for (kind, instant, body), record in zip(rows, as_fastavro_reads(values), strict=True):
        assert record["type"] == 4
        assert record["BloomFilterMetadata"] == {
            "type": kind,
            "timestamp": instant,
            "bloomFilter": body,
            "isDeleted": False,
        }


def test_one_kind_and_instant_stand_for_a_column() -> None:
    filters = binaries(b"x", b"y")
    both = pa.array(["k", "k"]), pa.array(["t", "t"])
    assert encode_blooms("k", "t", filters).equals(encode_blooms(*both, filters))


# column_stats: (type, minimum, maximum, wrapper, ordinal, info, what the wrapper holds)

WRAPPED = [
    (pa.bool_(), False, True, "Boolean", 2, None, (False, True)),
    (pa.int8(), -5, 7, "Int", 3, None, (-5, 7)),
    (pa.int32(), -(1 << 31), 7, "Int", 3, None, (-(1 << 31), 7)),
    (pa.int64(), -(1 << 63), (1 << 63) - 1, "Long", 4, None, (-(1 << 63), (1 << 63) - 1)),
    (pa.float32(), -1.5, None, "Float", 5, None, (-1.5, None)),
    (pa.float64(), -1e300, 0.1, "Double", 6, None, (-1e300, 0.1)),
    (pa.string(), "", "zé😀", "String", 7, None, ("", "zé😀")),
    (pa.binary(), b"", b"\xff\x00", "Bytes", 8, None, (b"", b"\xff\x00")),
    (pa.binary(3), b"abc", b"abd", "Bytes", 9, None, (b"abc", b"abd")),
    (
        *(pa.decimal128(15, 2), Decimal("-12.34"), Decimal("90.00")),
        *("Bytes", 10, "15,2", (b"\xfb\x2e", b"\x23\x28")),
    ),
    (
        *(pa.decimal256(50, 3), Decimal("-0.128"), Decimal("0.128")),
        *("Bytes", 10, "50,3", (b"\x80", b"\x00\x80")),
    ),
    (pa.date32(), date(1969, 12, 31), date(2024, 1, 21), "Int", 12, None, (-1, 19743)),
    (pa.time32("ms"), time(0, 0, 1), None, "Int", 13, None, (1000, None)),
    (pa.time64("us"), time(0, 0, 1), None, "Long", 14, None, (1_000_000, None)),
    (pa.timestamp("ms"), datetime(1970, 1, 1, 0, 0, 2), None, "Long", 15, None, (2000, None)),
    (
        *(pa.timestamp("us", "UTC"), datetime(1970, 1, 2, tzinfo=UTC), None),
        *("Long", 16, None, (86_400_000_000, None)),
    ),
    (pa.timestamp("ns"), datetime(1970, 1, 1, 0, 0, 2), None, "Long", 17, None, (2 * 10**9, None)),
    (pa.int32(), None, None, None, 1, None, (None, None)),
    (pa.list_(pa.int32()), None, None, None, 1, None, (None, None)),
]


def wrapped(kind: str | None, value: Any) -> Any:
    if value is None:
        return None
    return f"org.apache.hudi.avro.model.{kind}Wrapper", {"value": value}


@pytest.mark.parametrize("case", WRAPPED, ids=[str(case[0]) for case in WRAPPED])
def test_bounds_are_wrapped_as_hudi_does(case: Any) -> None:
    kind, minimum, maximum, wrapper, ordinal, info, held = case
    values = encode_stats(["f"], [stats(kind, minimum, maximum)])
    (record,) = as_fastavro_reads(values)
    assert record["type"] == 3
    assert record["ColumnStatsMetadata"] == {
        "fileName": "f",
        "columnName": "c",
        "minValue": wrapped(wrapper, held[0]),
        "maxValue": wrapped(wrapper, held[1]),
        "valueCount": 10,
        "nullCount": 1,
        "totalSize": 500,
        "totalUncompressedSize": 6000,
        "isDeleted": False,
        "isTightBound": False,
        "valueType": {"typeOrdinal": ordinal, "additionalInfo": info},
    }
    (row,) = decode_stats(values, kind).to_pylist()
    assert row == {"file_name": "f", "column": "c", "minimum": minimum, "maximum": maximum} | COUNTS


def test_statistics_of_many_types_stay_in_their_rows() -> None:
    many = [stats(*case[:3], column=f"c{i}") for i, case in enumerate(WRAPPED * 3)]
    names = [f"f{i}" for i in range(len(many))]
    values = encode_stats(names, many)
    for row, (name, one) in enumerate(zip(names, many, strict=True)):
        assert values[row] == encode_stats([name], [one])[0]
        (found,) = decode_stats(values[row : row + 1], one.type).to_pylist()
        assert (found["file_name"], found["column"]) == (name, one.column)
        assert (found["minimum"], found["maximum"]) == (one.minimum, one.maximum)
        only = decode_stats(values[row : row + 1], one.type, names=["maximum", "value_count"])
        assert only.to_pylist() == [{name: found[name] for name in ("maximum", "value_count")}]
    unions = decode_stats(values, None)
    assert unions["minimum"].null_count == 6
    assert unions["file_name"].to_pylist() == names


@given(
    st.lists(
        st.tuples(st.text(), st.none() | st.text(), st.none() | st.text()), min_size=1, max_size=20
    ),
    st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), min_size=20, max_size=20),
)
@settings(deadline=None)
def test_statistics_of_a_column_round_trip(
    rows: list[tuple[str, str | None, str | None]], numbers: list[int | None]
) -> None:
    names = [name for name, *_ in rows]
    texts = [stats(pa.string(), low, high) for _, low, high in rows]
    longs = [stats(pa.int64(), number, number) for number in numbers[: len(rows)]]
    for kind, listed in ((pa.string(), texts), (pa.int64(), longs)):
        found = decode_stats(encode_stats(names, listed), kind)
        assert found["file_name"].to_pylist() == names
        assert found["minimum"].to_pylist() == [one.minimum for one in listed]
        assert found["maximum"].to_pylist() == [one.maximum for one in listed]
        assert found["minimum"].type == kind


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=20))
@settings(deadline=None)
def test_decimals_are_javas_shortest_bytes(unscaled: list[int]) -> None:
    kind = pa.decimal128(38, 0)
    listed = [stats(kind, Decimal(number), None) for number in unscaled]
    values = encode_stats(["f"] * len(listed), listed)
    for number, record in zip(unscaled, as_fastavro_reads(values), strict=True):
        body = record["ColumnStatsMetadata"]["minValue"][1]["value"]
        assert int.from_bytes(body, "big", signed=True) == number
        shorter = 8 * (len(body) - 1) - 1
        assert len(body) == 1 or not -(1 << shorter) <= number < 1 << shorter
    assert decode_stats(values, kind)["minimum"].to_pylist() == [Decimal(n) for n in unscaled]


WIDENED = [
    (pa.int32(), 5, pa.int64(), 5),
    (pa.float32(), 1.5, pa.float64(), 1.5),
    (pa.decimal128(10, 2), Decimal("1.25"), pa.decimal128(20, 4), Decimal("1.2500")),
    (pa.timestamp("ms"), datetime(2020, 1, 1), pa.timestamp("us"), datetime(2020, 1, 1)),
    (pa.string(), "a", pa.large_string(), "a"),
]
OTHERWISE = [
    (pa.string(), "a", pa.int64()),
    (pa.int64(), 5, pa.string()),
    (pa.float64(), 0.5, pa.float32()),
    (pa.binary(), b"a", pa.decimal128(5, 2)),
    (pa.int64(), 5, pa.timestamp("us")),
    (pa.bool_(), True, pa.list_(pa.int8())),
]


@pytest.mark.parametrize(("stored", "bound", "now", "expected"), WIDENED)
def test_bounds_are_read_for_the_type_a_column_has_now(
    stored: pa.DataType, bound: Any, now: pa.DataType, expected: Any
) -> None:
    mixed = [stats(stored, bound, None), stats(now, expected, expected)]
    found = decode_stats(encode_stats(["f", "g"], mixed), now)
    assert found["minimum"].to_pylist() == [expected, expected]
    assert found["minimum"].type == now


@pytest.mark.parametrize(("stored", "bound", "now"), OTHERWISE)
def test_bounds_of_another_type_say_nothing(
    stored: pa.DataType, bound: Any, now: pa.DataType
) -> None:
    found = decode_stats(encode_stats(["f"], [stats(stored, bound, bound)]), now)
    assert found["minimum"].to_pylist() == found["maximum"].to_pylist() == [None]
    assert found["value_count"].to_pylist() == [10]


def test_bounds_without_a_wrapper_are_refused() -> None:
    with pytest.raises(UsageError, match="duration"):
        encode_stats(["f"], [stats(pa.duration("s"), 1, 2)])


@pytest.mark.parametrize(
    ("body", "info"),
    [
        *((b"", "5,2"), (b"a" * 17, "5,2"), (b"a", "5"), (b"a", "x,y"), (b"a", "99,0")),
        *((b"a", f"5,{10**20}"), (b"a", "5,6"), (b"a", "5,-1"), (b"a", "38,2000000000")),
    ],
)
def test_impossible_decimals_are_reported(body: bytes, info: str) -> None:
    content = {
        **dict.fromkeys(("valueCount", "nullCount", "totalSize", "totalUncompressedSize"), 1),
        **dict.fromkeys(("isDeleted", "isTightBound"), False),
        **dict.fromkeys(("fileName", "columnName"), "c"),
        "minValue": wrapped("Bytes", body),
        "maxValue": None,
        "valueType": {"typeOrdinal": 10, "additionalInfo": info},
    }
    value = fastavro_bytes(type=3, ColumnStatsMetadata=content)
    with pytest.raises(CorruptError, match=r"path='\.hoodie/metatable/column_stats'"):
        decode_stats(binaries(value), pa.decimal128(5, 2))


# tombstones


def test_tombstones_are_records_that_say_deleted() -> None:
    values = binaries(FILES_TOMBSTONE, STATS_TOMBSTONE, BLOOM_TOMBSTONE)
    files, column, bloom = as_fastavro_reads(values)
    assert files["filesystemMetadata"] == {"": {"size": 0, "isDeleted": True}}
    assert column["ColumnStatsMetadata"]["isDeleted"] is True
    assert bloom["BloomFilterMetadata"]["isDeleted"] is True
    assert [record["type"] for record in (files, column, bloom)] == [2, 3, 4]
    assert FILES_TOMBSTONE.hex() == "0000000000000402020000010000000000"
    assert BLOOM_TOMBSTONE.hex() == "00000000000008000200000001000000"
    assert STATS_TOMBSTONE.hex() == "0000000000000600000200000000000000000100000000"


def test_tombstones_read_as_nulls_between_living_entries() -> None:
    living = encode_files(pa.array(["p"]), np.array([7]))[0].as_py()
    found = decode_files(binaries(FILES_TOMBSTONE, living))
    assert found.to_pylist() == [None, [{"path": "p", "size": 7}]]
    living = encode_blooms("k", "t", binaries(b"x"))[0].as_py()
    assert decode_blooms(binaries(living, BLOOM_TOMBSTONE))["filter"].to_pylist() == [b"x", None]
    living = encode_stats(["f"], [stats(pa.int32(), 1, 2)])[0].as_py()
    rows = decode_stats(binaries(living, STATS_TOMBSTONE), pa.int32())
    assert rows["file_name"].to_pylist() == ["f", None]
    assert rows["minimum"].to_pylist() == [1, None]


def test_no_entries_are_no_rows() -> None:
    nothing = binaries()
    assert decode_stats(nothing, pa.decimal128(5, 2)).num_rows == 0
    assert decode_stats(nothing, pa.timestamp("us")).num_rows == 0
    assert decode_blooms(nothing).num_rows == 0
    assert len(decode_files(nothing)) == 0
    assert len(encode_stats([], [])) == 0
    assert len(encode_blooms("k", "t", nothing)) == 0


# What Hudi has stored. One data block and the file info of its HFiles are read by hand


def gunzipped(raw: bytes, offset: int) -> bytes:
    return gzip.decompress(
        raw[offset + 33 : offset + struct.unpack_from(">i", raw, offset + 29)[0]]
    )


def entries_of(raw: bytes) -> dict[bytes, bytes]:
    block, at, found = gunzipped(raw, 0), 0, {}
    while at < len(block):
        key_size, value_size = struct.unpack_from(">ii", block, at)
        key, value = at + 10, at + 8 + key_size
        found[block[key : at + 8 + key_size - 10]] = block[value : value + value_size]
        at += 8 + key_size + value_size + 1
    return found


def hfiles(interop: Path, table: str, partition: str) -> list[bytes]:
    with zipfile.ZipFile(interop / "hudi" / f"{table}.zip") as archive:
        names = [
            name
            for name in archive.namelist()
            if f"/.hoodie/metadata/{partition}/" in name
            and name.endswith(".hfile")
            and "__MACOSX" not in name
        ]
        return [archive.read(name) for name in sorted(names)]


V9 = "sample_table__cow__v9_txns_simple_meta"


def test_our_schema_is_the_one_in_hudis_files(interop: Path) -> None:
    for raw in hfiles(interop, V9, "files"):
        info = gunzipped(raw, raw.index(b"FILEINF2"))
        start = info.index(b'{"type"')
        assert info[start : start + 8910].decode() == schema_text()
        assert info[start - 2 : start] == b"\xce\x45"  # the length, 8910, as a protobuf varint
    assert len(schema_text()) == 8910


@pytest.mark.parametrize(
    ("table", "entries_by_type"),
    [
        ("hudi-spark/cow_v6_mdt_all", {1: 4, 2: 6, 3: 216, 4: 16, 5: 4360}),
        (
            "hudi/quickstart_trips_table__mor__avro__v8_trips_8i3u1d",
            {1: 2, 2: 3, 3: 90, 5: 6, 6: 27, 7: 14},
        ),
        ("hudi-spark/cow_v9_mdt_all", {1: 4, 2: 6, 3: 180, 4: 17, 5: 4360, 6: 60}),
        (f"hudi/{V9}", {1: 2, 2: 3, 3: 128, 5: 6, 6: 48, 7: 24}),
    ],
)
def test_every_record_that_hudi_stored_survives_both_directions(
    interop: Path, tmp_path: Path, table: str, entries_by_type: dict[int, int]
) -> None:
    with zipfile.ZipFile(interop / f"{table}.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith(".hfile")]
        paths = [name for name in names if "__MACOSX" not in name]
        archive.extractall(tmp_path, paths)
    store, seen = Store(str(tmp_path)), Counter[int]()
    for path in paths:
        reader = HFileReader.open(store, path)
        codec = RecordCodec(bytes(reader.file_info[b"schema"]).decode())  # each version its own
        for batch in reader.scan():
            records = codec.decode(batch["value"], path=path)
            assert codec.encode(records).equals(batch["value"])
            seen.update(records["type"].to_pylist())
    assert seen == entries_by_type


def test_hudis_column_statistics_are_read_as_they_are_meant(interop: Path) -> None:
    values = [
        value for raw in hfiles(interop, V9, "column_stats") for value in entries_of(raw).values()
    ]
    every = binaries(*values)
    columns = decode_stats(every, None)["column"].to_pylist()

    def bounds(column: str, kind: pa.DataType) -> set[tuple[Any, Any]]:
        of_column = [v for v, name in zip(values, columns, strict=True) if name == column]
        rows = decode_stats(binaries(*of_column), kind)
        return set(zip(rows["minimum"].to_pylist(), rows["maximum"].to_pylist(), strict=True))

    assert ("TXN-001", "TXN-003") in bounds("_hoodie_record_key", pa.string())
    assert (Decimal("89.99"), Decimal("5000.00")) in bounds("amount", pa.decimal128(15, 2))
    assert (date(2024, 1, 15), date(2024, 1, 15)) in bounds("txn_date", pa.date32())
    assert (1700000000003, 1700100000001) in bounds("txn_ts", pa.int64())
    assert bounds("is_international", pa.bool_()) <= {(False, False), (False, True), (True, True)}
    assert (datetime(2024, 1, 15, 16, 30), datetime(2024, 1, 15, 20, 20)) in bounds(
        "txn_datetime", pa.timestamp("us")
    )
