"""Records and delete lists: against fastavro with Hudi's own schema, real files, hostile bytes."""

from __future__ import annotations

import datetime as dt
import io
import random
import tracemalloc
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log import deletes, records
from metatable.storage.hudi_log.block import BlockKind, LogBlock
from metatable.storage.hudi_log.deletes import (
    DELETES,
    ORDERING_TYPES,
    decode_deletes,
    encode_deletes,
)
from metatable.storage.hudi_log.log_file import LogFile
from metatable.storage.hudi_log.records import decode_datums, encode_datums
from tests.long import examples
from tests.storage.hudi_log.corpus import log_files, tables
from tests.storage.hudi_log.test_format_doc import documented


def block(content: bytes, kind: BlockKind = BlockKind.AVRO_DATA) -> LogBlock:
    return LogBlock(kind, {}, content, path="a/log", offset=7)


def binary(values: list[bytes]) -> pa.Array:
    return pa.array([b"before", *values], pa.binary())[1:]


# Records


def test_records_have_the_golden_bytes() -> None:
    golden = "00000003 00000002 00000001 61 00000000"
    assert encode_datums(binary([b"a", b""])) == [bytes.fromhex(golden)]


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_records_go_both_ways(datums: list[bytes]) -> None:
    [content] = encode_datums(binary(datums))
    assert decode_datums(block(content)).column().to_pylist() == datums
    assert decode_datums(block(memoryview(content))).column().to_pylist() == datums  # type: ignore[arg-type]


@given(st.data())
def test_many_walks_come_past_the_same_records(data: st.DataObject) -> None:
    """Some begin alike, as all do in a block of one commit; some look so, and are none."""
    begins = encode_datums(binary([b"alike"]))[0][8:]
    parts = st.lists(st.sampled_from([b"alike", begins, b"", b"\0", b"x"]), max_size=6).map(
        b"".join
    )
    datums = data.draw(st.lists(parts | parts.map(b"alike".__add__), max_size=60))
    content = bytearray(encode_datums(binary(datums))[0])
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(8, len(content))) - 1] ^= data.draw(st.integers(1, 255))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "SEEMING_BYTES", data.draw(st.integers(1, 9)))
        patch.setattr(records, "LEAST_WALKED", 1 << 30)
        expected = outcome(bytes(content))
        patch.setattr(records, "LEAST_WALKED", 0)
        assert outcome(bytes(content)) == expected


def outcome(content: bytes) -> tuple[Any, ...]:
    try:
        return (decode_datums(block(content)).column().to_pylist(),)
    except (CorruptError, UpgradeError) as error:
        return type(error), str(error)


def test_a_block_of_one_commit_is_walked_by_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ends_by_one_walk", None)
    datums = [b"\2\x22" + b"20261123213827679" + bytes(row % 50) for row in range(3000)]
    assert decode_datums(block(encode_datums(binary(datums))[0])).column().to_pylist() == datums


def test_walks_that_nobody_goes_beside_are_given_up() -> None:
    """A round of many walks costs as much as ten records of one."""
    datums = [b"%08x and the rest" % row for row in range(5000)]
    [content] = encode_datums(binary(datums))
    assert records._ends_by_many_walks(memoryview(content), len(datums)) is None
    assert decode_datums(block(content)).column().to_pylist() == datums


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no head"),
        ("00000003", "no head.*expected=8 found=4"),
        ("00000003 ffffffff", "impossible number"),
        ("00000003 00000002 00000000", "impossible number"),
        ("00000003 7fffffff 00000000", "impossible number"),
        ("00000003 00000001 00000001", "size of record 0 is out of bounds.*found=1"),
        ("00000003 00000001 ffffffff 00", "size of record 0 is out of bounds.*found=-1"),
        ("00000003 00000002 00000004 00000000", "records end too early.*record 1 of 2"),
        ("00000003 00000002 00000001 ff ff0000", "records end too early.*record 1 of 2"),
        ("00000003 00000002 fffffff0 00000000", "size of record 0 is out of bounds.*found=-16"),
        ("00000003 00000001 00000000 00", "bytes behind the last record"),
        ("00000003 00000000 00", "bytes behind the last record"),
    ],
)
@pytest.mark.parametrize("least", [0, records.LEAST_WALKED])
def test_records_out_of_bounds_are_damage(
    content: str, told: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LEAST_WALKED", least)
    with pytest.raises(CorruptError, match=told) as caught:
        decode_datums(block(bytes.fromhex(content)))
    assert (caught.value.facts["path"], caught.value.facts["offset"]) == ("a/log", 7)


def test_other_versions_of_contents_are_of_another_hudi() -> None:
    for version in (1, 2, 4):
        content = version.to_bytes(4, "big") + bytes(4)
        with pytest.raises(UpgradeError, match=f"version of a log block's records.*{version}"):
            decode_datums(block(content))
        with pytest.raises(UpgradeError, match=f"version of a delete list.*{version}"):
            decode_deletes(block(content, BlockKind.DELETE))


# Delete lists

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BooleanWrapper": st.booleans(),
    "IntWrapper": st.integers(-(1 << 31), (1 << 31) - 1),
    "LongWrapper": st.integers(-(1 << 63), (1 << 63) - 1),
    "FloatWrapper": st.floats(width=32, allow_nan=False),
    "DoubleWrapper": st.floats(allow_nan=False),
    "BytesWrapper": st.binary(max_size=9),
    "StringWrapper": st.text(max_size=70),
    "DateWrapper": st.dates(),
    "DecimalWrapper": st.integers(-(10**20), 10**20).map(lambda one: Decimal(f"{one}e-15")),
    "TimeMicrosWrapper": st.times(),
    "TimestampMicrosWrapper": st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2300, 1, 1)).map(
        lambda one: one.replace(tzinfo=dt.UTC)
    ),
}
WRAPPERS = [
    {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}
    for name, kind in ORDERING_TYPES.items()
]
HUDI = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"]},
                            {"name": "partitionPath", "type": ["null", "string"]},
                            {"name": "orderingVal", "type": ["null", *WRAPPERS]},
                        ],
                    },
                },
            }
        ],
    }
)
WRAPPED = st.sampled_from([*VALUES]).flatmap(
    lambda name: VALUES[name].map(lambda value: (name, value))
)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=70), st.none() | st.text(max_size=3), st.none() | WRAPPED
    ),
    max_size=6,
)


def by_fastavro(records: list[Any]) -> bytes:
    """The content of a delete block that holds them."""
    listed = [
        {
            "recordKey": key,
            "partitionPath": path,
            "orderingVal": None if value is None else (value[0], {"value": value[1]}),
        }
        for key, path, value in records
    ]
    with io.BytesIO() as out:
        fastavro.schemaless_writer(out, HUDI, {"deleteRecordList": listed})
        body = out.getvalue()
    return (3).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


def as_columns(records: list[Any]) -> pa.Table:
    names = [one.name for one in DELETES.field("orderingVal").type]
    rows = [
        {
            "recordKey": key,
            "partitionPath": path,
            "orderingVal": None
            if value is None
            else {name: {"value": value[1]} if name == value[0] else None for name in names},
        }
        for key, path, value in records
    ]
    return pa.Table.from_pylist(rows, DELETES)


@given(RECORDS)
@settings(max_examples=examples(75, 300), deadline=None)
def test_deletes_go_both_ways_as_in_fastavro(records: list[Any]) -> None:
    theirs, table = by_fastavro(records), as_columns(records)
    assert decode_deletes(block(theirs)) == table
    [ours] = encode_deletes(table)
    assert decode_deletes(block(ours)) == table
    assert by_fastavro(records) == ours or any(
        value and value[0] == "DecimalWrapper" for *_, value in records
    )


def test_the_union_has_the_branches_of_the_table() -> None:
    rows = documented("branch", "ordering value")
    told = [row[1] for row in rows]
    assert told == ["null", *(name.removesuffix("Wrapper") for name in ORDERING_TYPES), "Array"]
    assert [int(row[0]) for row in rows] == [*range(13)]
    assert deletes._ARRAY_WRAPPER == 12


def test_a_list_in_several_parts_is_read() -> None:
    one = bytes.fromhex("02 02 61 00 00")
    body = b"\x01\x0a" + one + b"\x02" + one + b"\x00"
    content = (3).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    found = decode_deletes(block(content))
    assert found.column("recordKey").to_pylist() == ["a", "a"]


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        ("", CorruptError, "ends too early"),
        ("02", CorruptError, "impossible count"),
        ("02 00 00 00", CorruptError, "ends too early"),
        ("00 00", CorruptError, "bytes behind its end"),
        ("fe ff ff ff 0f 00 00 00 00", CorruptError, "impossible count"),
        ("02 02 0e 61 00 00 00", CorruptError, "size out of bounds.*found=7"),
        ("02 02 01 61 00 00 00", CorruptError, "size out of bounds.*found=-1"),
        ("02 02 02 61 00 1a 00", CorruptError, "no such ordering value.*found=13"),
        ("02 02 02 61 00 01 00", CorruptError, "no such ordering value.*found=-1"),
        ("02 02 02 61 00 18 00 00", UpgradeError, "several ordering values"),
        ("02 06 02 61 00 00 00", CorruptError, "no such branch"),
        ("02 02 02 ff 00 00 00", CorruptError, "not UTF-8"),
        ("02 ff ff ff ff ff ff ff ff ff ff 01 00 00 00", CorruptError, "Avro|size"),
    ],
)
def test_delete_lists_that_break_the_format_are_told(
    body: str, kind: type[Exception], told: str
) -> None:
    raw = bytes.fromhex(body)
    content = (3).to_bytes(4, "big") + len(raw).to_bytes(4, "big") + raw
    with pytest.raises(kind, match=told) as caught:
        decode_deletes(block(content))
    assert "a/log" in str(caught.value)


def test_heads_of_delete_lists_are_checked() -> None:
    with pytest.raises(CorruptError, match="no head"):
        decode_deletes(block(bytes(7)))
    with pytest.raises(CorruptError, match=r"another size than told.*expected=1 found=2"):
        decode_deletes(block(bytes.fromhex("00000003 00000002 00")))


def test_mutated_contents_end_in_our_errors_or_in_columns() -> None:
    records = [
        (f"key-{n}", "p", [("LongWrapper", n), ("StringWrapper", "x" * n), None][n % 3])
        for n in range(9)
    ]
    of_deletes, of_rows = (
        by_fastavro(records),
        encode_datums(binary([b"x" * n for n in range(9)]))[0],
    )
    rng = random.Random(3)
    told: Counter[str] = Counter()
    for number in range(8_000):
        name, content = (("deletes", of_deletes), ("rows", of_rows))[number % 2]
        bent = bytearray(content)
        for _ in range(rng.choice((1, 1, 2))):
            bent[rng.randrange(len(bent))] = rng.choice(
                (0, 1, 2, 127, 128, 255, rng.randrange(256))
            )
        try:
            bytes_ = block(bytes(bent))
            found = decode_deletes(bytes_) if name == "deletes" else decode_datums(bytes_).column()
            found.validate(full=True)
            told[f"{name} read"] += 1
        except (CorruptError, UpgradeError):
            told[f"{name} refused"] += 1
    assert (
        min(told[f"{name} {end}"] for name in ("deletes", "rows") for end in ("read", "refused"))
        > 50
    )


def test_told_counts_get_no_memory_before_there_are_bytes_for_them() -> None:
    body = b"\xfe\xff\xff\xff\x0f" + bytes(20)
    contents = [
        (3).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body,
        bytes.fromhex("00000003 7fffffff") + bytes(20),
    ]
    tracemalloc.start()
    for content, decode in zip(contents, (decode_deletes, decode_datums), strict=True):
        with pytest.raises(CorruptError):
            decode(block(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_hudi_s_own_contents_are_read_and_written_again_byte_for_byte(interop: Path) -> None:
    seen: Counter[str] = Counter()
    for table in tables(interop):
        for name, body in log_files(table):
            for one in LogFile.decode(body, name).blocks:
                if one.kind is BlockKind.AVRO_DATA:
                    assert encode_datums(decode_datums(one).column()) == [bytes(one.content)]
                    seen["records"] += 1
                if one.kind is BlockKind.DELETE:
                    assert encode_deletes(decode_deletes(one)) == [bytes(one.content)]
                    seen["deletes"] += 1
    assert seen["records"] > 150
    assert seen["deletes"] > 60
