"""What a table's columns may be, in Arrow, in Avro and as text."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.data.columns import schema as schemas
from metatable.data.columns.avro_schema import from_avro, in_avro, tells_all, to_avro
from metatable.data.columns.schema_changes import AddColumn, DropColumn, MoveColumn, changed
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import Options
from metatable.storage.errors import CorruptError, UpgradeError, UsageError

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("x", pa.binary(16)),
        ("m", pa.decimal128(10, 2)),
        ("m38", pa.decimal128(38, 38)),
        ("day", pa.date32()),
        ("at", pa.time64("us")),
        ("t", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("ms", pa.timestamp("ms")),
        ("msz", pa.timestamp("ms", "UTC")),
        ("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ("attrs", pa.map_(pa.string(), pa.field("value", pa.decimal128(5, 1)))),
        ("point", pa.struct([("x", pa.float64()), ("inner", pa.struct([("y", pa.int32())]))])),
        ("points", pa.list_(pa.field("element", pa.struct([("x", pa.int64())])))),
    ]
)

MOMENT = datetime(2024, 3, 1, 1, 2, 3, 4000)
FULL_ROW: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "i": -5,
    "f": 1.5,
    "d": -0.25,
    "s": "日本",
    "b": b"\x00\xff",
    "x": b"0123456789abcdef",
    "m": Decimal("-12.50"),
    "m38": Decimal("0.5"),
    "day": date(1969, 12, 31),
    "at": time(1, 2, 3, 4),
    "t": MOMENT,
    "tz": MOMENT.replace(tzinfo=UTC),
    "ms": MOMENT,
    "msz": MOMENT.replace(tzinfo=UTC),
    "tags": ["a", "b"],
    "attrs": [("k", Decimal("1.5")), ("n", None)],
    "point": {"x": 1.0, "inner": {"y": None}},
    "points": [{"x": 1}, None],
}


@pytest.mark.parametrize(
    ("given_type", "expected"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.date64(), pa.date32()),
        (pa.time32("s"), pa.time64("us")),
        (pa.timestamp("s"), pa.timestamp("ms")),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.decimal256(38, 3), pa.decimal128(38, 3)),
        (pa.large_list(pa.int8()), pa.list_(pa.field("element", pa.int32()))),
        (pa.list_(pa.int32(), 3), pa.list_(pa.field("element", pa.int32()))),
        (pa.map_(pa.large_string(), pa.int8()), pa.map_(pa.string(), pa.int32())),
    ],
)
def test_types_are_brought_into_a_form_that_every_reader_knows(
    given_type: pa.DataType, expected: pa.DataType
) -> None:
    assert schemas.normal(pa.schema([("a", given_type)])) == pa.schema([("a", expected)])
    nested = schemas.normal(pa.schema([("a", pa.struct([("b", given_type)]))]))
    assert nested.field("a").type == pa.struct([("b", expected)])


def test_normal_form_is_left_as_it_is_and_loses_metadata() -> None:
    assert schemas.normal(EVERY_TYPE) == EVERY_TYPE
    noted = EVERY_TYPE.with_metadata({"pandas": "{}"})
    assert schemas.normal(noted).metadata is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.uint64(),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(3, -2),
        pa.decimal128(3, 5),
        pa.map_(pa.int32(), pa.string()),
        pa.struct([]),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.uuid(),
        pa.dense_union([pa.field("a", pa.int32())]),
    ],
)
def test_types_that_readers_of_hudi_cannot_read_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UsageError, match=r"cannot read a column of this type: column='a\.b'"):
        schemas.normal(pa.schema([("a", pa.struct([("b", kind)]))]))


@pytest.mark.parametrize("name", ["", "1a", "a b", "a-b", "ä", "a.b", "a\n"])
def test_names_that_avro_does_not_have_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a column name"):
        schemas.normal(pa.schema([(name, pa.int32())]))
    with pytest.raises(UsageError, match="not a column name"):
        schemas.normal(pa.schema([("s", pa.struct([(name, pa.int32())]))]))


def test_names_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(UsageError, match=r"one name.*column='A' found='a'"):
        schemas.normal(pa.schema([("a", pa.int32()), ("A", pa.int32())]))


@pytest.mark.parametrize("name", ["_hoodie_x", "_Hoodie_Record_Key"])
def test_names_of_the_meta_columns_are_refused_in_any_case(name: str) -> None:
    with pytest.raises(UsageError, match=f"taken by Hudi: column='{name}'"):
        schemas.normal(pa.schema([(name, pa.int32())]))


def test_a_table_needs_columns() -> None:
    with pytest.raises(UsageError, match="needs columns"):
        schemas.normal(pa.schema([]))


def test_meta_columns_stand_first() -> None:
    whole = schemas.with_meta_columns(EVERY_TYPE)
    assert tuple(whole.names[:5]) == schemas.META_COLUMNS
    assert whole.names[5:] == EVERY_TYPE.names


def test_schema_text_comes_back_exactly_and_can_be_read_by_a_person() -> None:
    text = schemas.encode_schema(EVERY_TYPE)
    assert schemas.decode_schema(text, "manifest") == EVERY_TYPE
    fields = {field["name"]: field for field in json.loads(text)["fields"]}
    tz = {"id": 14, "name": "tz", "type": "timestamp[us, tz=UTC]", "nullable": True}
    assert fields["tz"] == tz
    assert fields["m"]["type"] == "decimal128(10, 2)"
    assert fields["tags"]["type"] == {"list": {"id": 18, "type": "string", "nullable": False}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"fields": [{"name": "a"}]}',
        '{"fields": [{"name": "a", "type": {}, "nullable": true}]}',
        '{"fields": [{"name": "a", "type": 3, "nullable": true}]}',
        '{"fields": [{"name": "a", "type": "decimal128(0, 0)", "nullable": true}]}',
        '{"fields": [{"name": "a", "type": {"struct": 3}, "nullable": true}]}',
    ],
)
def test_text_that_is_no_schema_is_damage(text: str) -> None:
    with pytest.raises(CorruptError, match="schema is not readable: path='m'"):
        schemas.decode_schema(text, "m")


DECIMAL = {"type": "bytes", "logicalType": "decimal"}


@pytest.mark.parametrize(
    "kind",
    [
        *({**DECIMAL, "precision": digits} for digits in (10**30, 0, -1, "5", None)),
        *({**DECIMAL, "precision": 5, "scale": scale} for scale in (10**30, 6, -1)),
        *({"type": "fixed", "name": "x", "size": size} for size in (10**30, -1, 1e999, "x")),
        *({"type": "array"}, {"type": "record", "fields": 3}, {"type": 3, "logicalType": []}),
    ],
    ids=range(15),
)
def test_a_type_of_avro_that_there_cannot_be_is_damage(kind: Any) -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})
    with pytest.raises(CorruptError, match="schema is not readable: path='m'"):
        from_avro(text, "m")


@pytest.mark.parametrize("kind", ['"int128"', '{"set": {}}'])
def test_types_of_the_future_are_named(kind: str) -> None:
    text = f'{{"fields": [{{"name": "a", "type": {kind}, "nullable": true}}]}}'
    with pytest.raises(UpgradeError, match="unknown column type"):
        schemas.decode_schema(text, "m")


def test_avro_schema_is_one_that_avro_parses() -> None:
    made = to_avro(EVERY_TYPE, "my-table")
    assert (made["name"], made["namespace"]) == ("my__table_record", "hoodie.my__table")
    fastavro.parse_schema(json.loads(json.dumps(made)))
    types = {field["name"]: field["type"] for field in made["fields"]}
    assert types["id"] == "long"
    assert types["t"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    assert types["msz"] == ["null", {"type": "long", "logicalType": "timestamp-millis"}]
    assert types["tags"][1] == {"type": "array", "items": "string"}
    assert "local" not in json.dumps(made)


def test_avro_tells_columns_whole_whose_ids_are_in_order_and_timestamps_have_zones() -> None:
    plain = pa.schema([one for one in EVERY_TYPE if one.name not in ("t", "ms")])
    columns = TableSchema.of(plain)
    assert tells_all(columns)
    assert TableSchema.of(in_avro(plain)) == columns
    for field in (EVERY_TYPE.field("t"), pa.field("l", pa.list_(pa.timestamp("ms")))):
        assert not tells_all(TableSchema.of(plain.append(field)))
    options = Options("t", ("id",))
    added = changed(columns, [AddColumn("last", pa.list_(pa.int32()))], options)
    assert tells_all(added)
    for change in (AddColumn("new", pa.int32(), after=""), DropColumn("s"), MoveColumn("s", "")):
        assert not tells_all(changed(columns, [change], options))
    again = [DropColumn("last"), AddColumn("last", pa.list_(pa.int32()))]
    assert not tells_all(changed(added, again, options))


def test_only_nullable_fields_have_a_default() -> None:
    for field in to_avro(EVERY_TYPE, "t")["fields"]:
        assert (field["type"][0] == "null") == ("default" in field) == (field["name"] != "id")


@pytest.mark.parametrize(
    ("precision", "size"), [(1, 1), (2, 1), (3, 2), (10, 5), (18, 8), (19, 9), (30, 13), (38, 16)]
)
def test_decimals_take_the_fewest_bytes(precision: int, size: int) -> None:
    [field] = to_avro(pa.schema([("m", pa.decimal128(precision, 0))]), "t")["fields"]
    assert field["type"][1]["size"] == size


def test_avro_schema_is_that_of_hudi_on_spark_to_the_last_name(interop: Path) -> None:
    seen = 0
    for archive in sorted((interop / "hudi").glob("*cow__v6*.zip")):
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if "MACOSX" not in name]
            commits = sorted(name for name in names if name.endswith(".commit"))
            files = sorted(name for name in names if name.endswith(".parquet"))
            if not commits:
                continue
            stored = json.loads(json.loads(opened.read(commits[-1]))["extraMetadata"]["schema"])
            arrow = pq.read_schema(io.BytesIO(opened.read(files[-1])))
        table = schemas.normal(pa.schema([field for field in arrow if field.name[0] != "_"]))
        names_in_order = [field["name"] for field in stored["fields"]]
        ordered = pa.schema([table.field(name) for name in names_in_order])
        assert to_avro(nullable(ordered), stored["namespace"].split(".")[1]) == stored
        seen += 1
    assert seen >= 3


def nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, loosened(field.type)) for field in schema])


def loosened(kind: pa.DataType) -> Any:
    """Spark's own columns are all nullable, down to the leaves."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, loosened(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", loosened(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), loosened(kind.item_type))
    return kind
