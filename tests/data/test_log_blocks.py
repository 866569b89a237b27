"""Rows and deletes as blocks of log files: every type, Hudi's own blocks, what is refused."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.data.columns.schema import META_COLUMNS, with_meta_columns
from metatable.data.columns.schema_text import TableSchema
from metatable.data.logs import log_blocks
from metatable.data.logs.block_rows import block_rows, blocks_rows
from metatable.data.logs.log_blocks import LogWriter, block_deletes, blocks_deletes
from metatable.storage.avro import RecordCodec
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.hudi_log.deletes import DELETES, encode_deletes
from metatable.storage.hudi_log.log_file import LogFile
from metatable.storage.hudi_log.records import decode_datums
from tests.data.other_blocks import delete_block
from tests.data.test_schema import EVERY_TYPE, FULL_ROW
from tests.long import one_in
from tests.storage.hudi_log.corpus import log_files, tables

INSTANT = "20260101000000000"
SCHEMA = with_meta_columns(EVERY_TYPE)
META = dict(zip(META_COLUMNS, (INSTANT, f"{INSTANT}_0_0", "1", "p", "f-0"), strict=True))
NULLS = dict.fromkeys(EVERY_TYPE.names, None) | {"id": 2}
ROWS = pa.Table.from_pylist([META | FULL_ROW, META | NULLS, META | FULL_ROW | {"id": 3}], SCHEMA)
WRITER = LogWriter(EVERY_TYPE, "my-table")


def avro_block(rows: pa.Table = ROWS, writer: LogWriter = WRITER) -> LogBlock:
    [block] = writer.avro_blocks(rows, INSTANT)
    return LogFile.decode(block.encode(), "a/log").blocks[0]


def blocks_of_both_kinds() -> list[LogBlock]:
    return [avro_block(), WRITER.parquet_block(ROWS, INSTANT, "zstd")]


@pytest.mark.parametrize("columns", [None, TableSchema.of(EVERY_TYPE)])
@pytest.mark.parametrize("kind", [0, 1])
def test_rows_of_every_type_go_both_ways(kind: int, columns: TableSchema | None) -> None:
    block = blocks_of_both_kinds()[kind]
    found = block_rows(block, SCHEMA, columns)
    found.validate(full=True)
    assert found.schema == SCHEMA
    assert found.to_pylist() == ROWS.to_pylist()
    some = pa.schema([SCHEMA.field(name) for name in ("tz", "_hoodie_record_key", "point")])
    assert block_rows(block, some, columns).to_pylist() == ROWS.select(some.names).to_pylist()
    assert block.header[HeaderKey.INSTANT_TIME] == INSTANT


@pytest.mark.parametrize("kind", [0, 1])
def test_rows_of_every_type_go_both_ways_by_the_ids_of_their_columns(kind: int) -> None:
    """Avro has one timestamp, with a zone or without."""
    columns = TableSchema.of(EVERY_TYPE)
    writer = LogWriter(EVERY_TYPE, "my-table", columns)
    block = [avro_block(writer=writer), writer.parquet_block(ROWS, INSTANT, "zstd")][kind]
    found = block_rows(block, SCHEMA, columns)
    found.validate(full=True)
    assert found.schema == SCHEMA
    assert found.to_pylist() == ROWS.to_pylist()


def test_ids_that_are_not_those_of_the_columns_are_damage() -> None:
    columns = TableSchema.of(EVERY_TYPE)
    block = avro_block(writer=LogWriter(EVERY_TYPE, "my-table", columns))
    told = block.header[HeaderKey.SCHEMA]
    others = ",".join(str(one) for one in sorted(columns.ids().values())[1:])
    first = ("1e999", "1.5", '"1"', "true", str(10**30), "null", "-1", "2")
    for ids in ("1", "1,1,1", *(f"{one},{others}" for one in first)):
        wrong = f'"metatable.column_ids":[{ids}]'
        bent = re.sub(r'"metatable.column_ids":\[[^\]]*\]', wrong, told)
        hurt = replace(block, header={**block.header, HeaderKey.SCHEMA: bent})
        with pytest.raises(CorruptError, match="column ids"):
            block_rows(hurt, SCHEMA, columns)


def test_rows_are_what_fastavro_reads_by_the_schema_in_the_header() -> None:
    block = avro_block()
    schema = json.loads(block.header[HeaderKey.SCHEMA])
    assert [one["name"] for one in schema["fields"]] == SCHEMA.names
    assert (schema["name"], schema["namespace"]) == ("my__table_record", "hoodie.my__table")
    parsed = fastavro.parse_schema(schema)
    bodies = decode_datums(block).column().to_pylist()
    found = [fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in bodies]
    utc = [{"t": dt.UTC, "ms": dt.UTC}]
    expected = [
        {
            name: dict(value)
            if name == "attrs" and value is not None
            else value.replace(tzinfo=utc[0][name])
            if name in utc[0] and value is not None
            else value
            for name, value in row.items()
        }
        for row in ROWS.to_pylist()
    ]
    assert found == expected


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_no_bit_of_a_parquet_block_changes_a_row_unseen(compression: str) -> None:
    block, draw, refused = WRITER.parquet_block(ROWS, INSTANT, compression), Random(3), 0
    raw = bytes(block.content)
    footer = len(raw) - int.from_bytes(raw[-8:-4], "little") - 8
    for _ in range(200):
        hurt = bytearray(raw)
        hurt[draw.randrange(4, footer)] ^= 1 << draw.randrange(8)
        try:
            found = block_rows(replace(block, content=bytes(hurt)), SCHEMA, None)
        except CorruptError:
            refused += 1
        else:
            assert found.equals(ROWS)
    assert refused > 50


def test_large_rows_become_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_blocks, "BLOCK_BYTES", ROWS.nbytes // 3 + 1)
    blocks = list(WRITER.avro_blocks(ROWS, INSTANT))
    assert len(blocks) == 3
    parts = [block_rows(block, SCHEMA, None) for block in blocks]
    assert pa.concat_tables(parts).to_pylist() == ROWS.to_pylist()


def test_columns_that_a_block_lacks_are_null_and_narrow_ones_are_widened() -> None:
    before = pa.schema([("id", pa.int32()), ("gone", pa.string())])
    rows = pa.table({"id": pa.array([7], pa.int32()), "gone": ["x"]})
    block = avro_block(rows, LogWriter(before, "t"))
    now = pa.schema([("id", pa.int64()), ("new", pa.string())])
    for columns in (None, TableSchema.of(now)):
        assert block_rows(block, now, columns).to_pylist() == [{"id": 7, "new": None}]
        none = pa.schema([("new", pa.string())])
        for one in (block, LogWriter(before, "t").parquet_block(rows, INSTANT, "none")):
            assert block_rows(one, none, columns).to_pylist() == [{"new": None}]
    required = pa.schema([pa.field("new", pa.string(), nullable=False)])
    with pytest.raises(CorruptError, match=r"lacks a required column: path='a/log'"):
        block_rows(block, required, None)


@pytest.mark.parametrize("kind", [0, 1])
def test_rows_of_a_table_whose_columns_changed_their_names_are_refused(kind: int) -> None:
    """A name may be that of before, or that of now."""
    columns = replace(TableSchema.of(EVERY_TYPE), by_id=True)
    with pytest.raises(UpgradeError, match="tells no column ids"):
        block_rows(blocks_of_both_kinds()[kind], SCHEMA, columns)


@pytest.mark.parametrize(
    ("block", "kind", "told"),
    [
        (replace(avro_block(), content=b"\0" * 9), UpgradeError, "unknown version"),
        (replace(avro_block(), kind=BlockKind.HFILE_DATA), UpgradeError, "HFILE_DATA"),
        (replace(avro_block(), kind=BlockKind.CDC_DATA), UpgradeError, "CDC_DATA"),
        (
            replace(avro_block(), header={HeaderKey.IS_PARTIAL: "true"}),
            UpgradeError,
            "some columns only",
        ),
        (replace(avro_block(), header={}), CorruptError, "not readable"),
        (replace(avro_block(), header={HeaderKey.SCHEMA: "{"}), CorruptError, "not readable"),
        (replace(avro_block(), kind=BlockKind.PARQUET_DATA), CorruptError, "not readable"),
    ],
)
def test_blocks_that_cannot_be_read_are_refused(
    block: LogBlock, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=f"{told}.*" if kind is UpgradeError else told) as caught:
        block_rows(block, SCHEMA, None)
    assert "a/log" in str(caught.value)


NARROW = LogWriter(pa.schema([("id", pa.int64())]), "my-table")


def many_blocks(draw: Random) -> list[LogBlock]:
    """Of several schemas and kinds, some without rows."""
    made = []
    for number in range(draw.randrange(12)):
        rows = ROWS.slice(0, draw.randrange(4))
        rows = rows.set_column(2, "_hoodie_record_key", [[f"{number}"] * len(rows)])
        narrow = rows.select([*META_COLUMNS, "id"])
        made += draw.choice(
            [
                [*WRITER.avro_blocks(rows, INSTANT)],
                [*WRITER.avro_blocks(rows, INSTANT)],
                [WRITER.parquet_block(rows, INSTANT, "zstd")],
                [*NARROW.avro_blocks(narrow, INSTANT)],
            ]
        )
    body = b"".join(one.encode() for one in made)
    return [*LogFile.decode(body, "a/log").blocks]


@pytest.mark.parametrize("seed", one_in(3, range(25)))
def test_rows_of_many_blocks_are_those_of_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Random(seed)
    blocks = many_blocks(draw)
    monkeypatch.setattr(
        "metatable.data.logs.block_rows.TOGETHER_BYTES", draw.choice([0, 300, 1500, 1 << 20])
    )
    for schema in (SCHEMA, pa.schema([SCHEMA.field("tz")]), pa.schema([("absent", pa.int8())])):
        found = blocks_rows(blocks, schema, None)
        assert found == [block_rows(one, schema, None) for one in blocks]


def test_blocks_of_one_schema_are_decoded_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    decode = RecordCodec.decode

    def counted(codec: RecordCodec, datums: Any, *given: Any) -> pa.Table:
        sizes.append(len(datums))
        return decode(codec, datums, *given)

    monkeypatch.setattr(RecordCodec, "decode", counted)
    block = avro_block()
    assert len(blocks_rows([block] * 9, SCHEMA, None)) == 9
    assert sizes == [27]
    monkeypatch.setattr("metatable.data.logs.block_rows.TOGETHER_BYTES", 2 * len(block.content))
    blocks_rows([block] * 5, SCHEMA, None)
    assert sizes[1:] == [6, 6, 3]


@pytest.mark.parametrize("place", range(3))
def test_of_many_blocks_the_one_that_is_damaged_is_named(place: int) -> None:
    body = b"".join(avro_block().encode() for _ in range(3))
    blocks = [*LogFile.decode(body, "a/log").blocks]
    content = bytearray(blocks[place].content)
    content[-1] ^= 0xFF
    blocks[place] = replace(blocks[place], content=bytes(content), path="another/log")
    with pytest.raises(CorruptError) as alone:
        block_rows(blocks[place], SCHEMA, None)
    with pytest.raises(CorruptError, match="another/log") as told:
        blocks_rows(blocks, SCHEMA, None)
    assert str(told.value) == str(alone.value)


@pytest.mark.parametrize(
    "odd",
    [
        replace(avro_block(), kind=BlockKind.CDC_DATA),
        replace(avro_block(), header={**avro_block().header, HeaderKey.IS_PARTIAL: "true"}),
        replace(avro_block(), content=b"\0" * 9),
    ],
)
def test_among_many_blocks_one_that_cannot_be_read_is_refused(odd: LogBlock) -> None:
    with pytest.raises(UpgradeError) as alone:
        block_rows(odd, SCHEMA, None)
    with pytest.raises(UpgradeError) as told:
        blocks_rows([avro_block(), odd, avro_block()], SCHEMA, None)
    assert str(told.value) == str(alone.value)


def test_a_column_of_another_type_is_damage() -> None:
    block = avro_block(pa.table({"id": ["x"]}), LogWriter(pa.schema([("id", pa.string())]), "t"))
    with pytest.raises(CorruptError, match="not readable"):
        block_rows(block, pa.schema([("id", pa.int64())]), None)


# Deletes

MOMENT = dt.datetime(2024, 3, 1, 1, 2, 3, 4000)
ORDERINGS: list[tuple[pa.DataType, Any, str]] = [
    (pa.bool_(), True, "BooleanWrapper"),
    (pa.int32(), 5, "IntWrapper"),
    (pa.int64(), 0, "LongWrapper"),
    (pa.float32(), 1.5, "FloatWrapper"),
    (pa.float64(), -0.5, "DoubleWrapper"),
    (pa.binary(), b"x", "BytesWrapper"),
    (pa.string(), "日", "StringWrapper"),
    (pa.date32(), dt.date(2024, 3, 1), "DateWrapper"),
    (pa.decimal128(10, 2), Decimal("-12.50"), "DecimalWrapper"),
    (pa.time64("us"), dt.time(1, 2, 3, 4), "LongWrapper"),
    (pa.timestamp("us"), MOMENT, "LongWrapper"),
    (pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=dt.UTC), "LongWrapper"),
    (pa.timestamp("ms"), MOMENT, "LongWrapper"),
]


@pytest.mark.parametrize(("kind", "value", "wrapper"), ORDERINGS)
def test_deletes_keep_their_ordering_values(kind: pa.DataType, value: Any, wrapper: str) -> None:
    ordering = pa.array([None, value, value], kind)[1:]
    block = delete_block(WRITER, pa.array(["a", "b"]), "p", INSTANT, ordering)
    found = block_deletes(block, kind)
    assert found.keys.to_pylist() == ["a", "b"]
    assert found.ordering == ordering
    assert found.unordered.to_pylist() == [False, False]
    for one in log_blocks.decode_deletes(block).to_pylist():
        assert one["partitionPath"] == "p"
        assert [name for name, held in one["orderingVal"].items() if held] == [wrapper]


def test_a_block_of_hudi_s_may_mix_deletes_with_and_without_ordering_values() -> None:
    """Ours do not: the wheel refuses them."""
    rows = [
        {"recordKey": "a", "orderingVal": {"LongWrapper": {"value": 7}}},
        {"recordKey": "b", "orderingVal": {"IntWrapper": {"value": 0}}},
        {"recordKey": "c", "orderingVal": None},
        {"recordKey": "d", "orderingVal": {"IntWrapper": {"value": 9}}},
    ]
    [content] = encode_deletes(pa.Table.from_pylist(rows, DELETES))
    found = block_deletes(LogBlock(BlockKind.DELETE, {}, content), pa.int64())
    assert found.unordered.to_pylist() == [False, True, True, False]
    assert found.ordering.to_pylist() == [7, None, None, 9]  # type: ignore[union-attr]


def test_deletes_without_ordering_are_an_int_0_as_spark_writes_it() -> None:
    block = delete_block(WRITER, pa.array(["a"]), "part=alpha", INSTANT)
    assert bytes(block.content)[8:].hex() == "02020261021470" + b"art=alpha".hex() + "040000"
    for kind in (None, pa.int64(), pa.int32()):
        found = block_deletes(block, kind)
        assert found.unordered.to_pylist() == [True]
        assert found.ordering is None if kind is None else found.ordering.to_pylist() == [None]


def test_an_int_0_is_no_ordering_value_and_a_long_0_is_one() -> None:
    for kind, unordered in ((pa.int32(), True), (pa.int64(), False)):
        block = delete_block(WRITER, pa.array(["a"]), "p", INSTANT, pa.array([0], kind))
        assert block_deletes(block, kind).unordered.to_pylist() == [unordered]


def test_days_told_as_an_int_and_narrow_numbers_are_read() -> None:
    block = delete_block(WRITER, pa.array(["a"]), "p", INSTANT, pa.array([19783], pa.int32()))
    for kind, value in (
        (pa.date32(), dt.date(2024, 3, 1)),
        (pa.int64(), 19783),
        (pa.float64(), 19783.0),
        (pa.decimal128(20, 2), Decimal("19783.00")),
    ):
        assert block_deletes(block, kind).ordering.to_pylist() == [value]


def test_ordering_values_of_another_type_are_damage() -> None:
    text = delete_block(WRITER, pa.array(["a"]), "p", INSTANT, pa.array(["x"]))
    half = delete_block(WRITER, pa.array(["a"]), "p", INSTANT, pa.array([0.5]))
    for block, kind in ((text, pa.int64()), (half, pa.int64()), (half, pa.string())):
        with pytest.raises(CorruptError, match="not readable"):
            block_deletes(block, kind)


@pytest.mark.parametrize("ordering", [None, pa.int64()])
def test_deletes_of_many_blocks_are_those_of_each(ordering: pa.DataType | None) -> None:
    """With values and without, of several types, and none at all."""
    values = [None, pa.array([1, 2]), None, pa.array([3, 4], pa.int32())]
    blocks = [
        delete_block(WRITER, pa.array([f"{number}", f"x{number}"]), f"p{number}", INSTANT, value)
        for number, value in enumerate(values)
    ]
    blocks.insert(2, delete_block(WRITER, pa.array([], pa.string()), "p", INSTANT))
    for some in (blocks, blocks[:1], []):
        found = blocks_deletes(some, ordering)
        assert found == [block_deletes(one, ordering) for one in some]


@pytest.mark.parametrize("place", range(3))
def test_of_many_blocks_of_deletes_the_one_that_is_damaged_is_named(place: int) -> None:
    blocks = [delete_block(WRITER, pa.array(["a", "b"]), "p", INSTANT) for _ in range(3)]
    for hurt, told in (
        (replace(blocks[0], content=bytes(blocks[0].content)[:-3], path="x"), "another size"),
        (replace(delete_block(WRITER, pa.array([None, "b"]), "p", ""), path="x"), "has no key"),
        (replace(delete_block(WRITER, pa.array(["b"]), "p", "", pa.array(["t"])), path="x"), "not"),
    ):
        some = [*blocks[:place], hurt, *blocks[place:]]
        with pytest.raises(CorruptError, match=f"{told}.*path='x'"):
            blocks_deletes(some, pa.int64())


def test_a_delete_without_a_key_is_damage() -> None:
    block = delete_block(WRITER, pa.array(["a", None]), "p", INSTANT)
    with pytest.raises(CorruptError, match="a delete has no key"):
        block_deletes(block, None)


def test_hudi_s_own_rows_are_written_again_byte_for_byte(interop: Path) -> None:
    """By its schemas; and the schema that we make of the same columns is Hudi's."""
    [table] = [one for one in tables(interop) if one.stem == "mor_avro_logs_v6"]
    row = pq.read_schema(interop / "hudi-spark/mor_avro_logs_v6.expected.parquet")
    columns = pa.schema([one for one in row if one.name not in META_COLUMNS]).remove_metadata()
    writer = LogWriter(columns, "mor_avro_logs_v6")
    seen = 0
    for name, body in log_files(table):
        for block in LogFile.decode(body, name).blocks:
            if block.kind is BlockKind.AVRO_DATA and "/.hoodie/" not in name:
                assert json.loads(writer.schema_text) == json.loads(block.header[HeaderKey.SCHEMA])
                rows = block_rows(block, with_meta_columns(columns), None)
                [again] = writer.avro_blocks(rows, "")
                assert bytes(again.content) == bytes(block.content)
                seen += rows.num_rows
    assert seen > 900


def test_rows_of_which_some_are_far_wider_are_cut_by_what_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["x" * 1000] * 9 + ["y"] * 991
    columns = [pa.nulls(1000, pa.string()) for _ in META_COLUMNS]
    rows = pa.table([*columns, pa.array(texts)], names=[*META_COLUMNS, "text"])
    monkeypatch.setattr(log_blocks, "BLOCK_BYTES", 4000)
    writer = LogWriter(pa.schema({"text": pa.string()}), "t")
    assert max(one.nbytes for one in log_blocks._cut(rows)) <= 8000
    assert pa.concat_tables(log_blocks._cut(rows)).equals(rows)
    assert len([*writer.avro_blocks(rows, INSTANT)]) == len([*log_blocks._cut(rows)])
