"""Logical types of Avro as Arrow's own, against fastavro; where they do not count; hostile ones."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.avro import RecordCodec
from metatable.storage.errors import CorruptError, UsageError
from tests.long import examples


def named(logical: str, kind: str = "long", **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


def fixed(size: int, precision: int, scale: int) -> dict[str, Any]:
    name = f"f{size}_{precision}_{scale}"
    return named("decimal", "fixed", name=name, size=size, precision=precision, scale=scale)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, most, -most]
    numbers = st.one_of(st.integers(-most, most), st.sampled_from(edges))
    return numbers.map(lambda one: Decimal(f"{max(-most, min(most, one))}e-{scale}"))


def instants(step: int, zone: dt.timezone | None) -> st.SearchStrategy[dt.datetime]:
    return st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)).map(
        lambda one: one.replace(microsecond=one.microsecond // step * step, tzinfo=zone)
    )


NAIVE, UTC = None, dt.UTC

TYPES: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    (named("date", "int"), pa.date32(), st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    (
        named("time-millis", "int"),
        pa.time32("ms"),
        st.times().map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)),
    ),
    (named("time-micros"), pa.time64("us"), st.times()),
    (named("timestamp-millis"), pa.timestamp("ms", "UTC"), instants(1000, UTC)),
    (named("timestamp-micros"), pa.timestamp("us", "UTC"), instants(1, UTC)),
    (named("local-timestamp-millis"), pa.timestamp("ms"), instants(1000, NAIVE)),
    (named("local-timestamp-micros"), pa.timestamp("us"), instants(1, NAIVE)),
    (fixed(5, 10, 2), pa.decimal128(10, 2), decimals(10, 2)),
    (fixed(16, 38, 10), pa.decimal128(38, 10), decimals(38, 10)),
    (fixed(9, 3, 3), pa.decimal128(3, 3), decimals(3, 3)),
    (named("decimal", "bytes", precision=38, scale=0), pa.decimal128(38, 0), decimals(38, 0)),
    (named("decimal", "bytes", precision=4), pa.decimal128(4, 0), decimals(4, 0)),
]


def record(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": "r", "fields": fields}


@st.composite
def columns(draw: Any) -> tuple[dict[str, Any], pa.Schema, list[dict[str, Any]]]:
    """Each type plain, nullable, in an array, and in a map."""
    kind, arrow, values = draw(st.sampled_from(TYPES))
    schema = record(kind)
    again = kind.get("name", kind)
    shapes = (["null", again], {"type": "array", "items": again}, {"type": "map", "values": again})
    for number, shape in enumerate(shapes, 1):
        schema["fields"].append({"name": f"f{number}", "type": shape})
    kinds = [arrow, arrow, pa.list_(arrow), pa.map_(pa.string(), arrow)]
    row = st.fixed_dictionaries(
        {
            "f0": values,
            "f1": st.none() | values,
            "f2": st.lists(values, max_size=3),
            "f3": st.dictionaries(st.sampled_from("abc"), values, max_size=2),
        }
    )
    named_kinds = [(f"f{number}", one) for number, one in enumerate(kinds)]
    return schema, pa.schema(named_kinds), draw(st.lists(row, max_size=4))


@given(columns())
@settings(max_examples=examples(50, 200), deadline=None)
def test_logical_types_go_both_ways_as_in_fastavro(
    case: tuple[dict[str, Any], pa.Schema, list[dict[str, Any]]],
) -> None:
    schema, arrow, rows = case
    parsed = fastavro.parse_schema(schema)
    codec = RecordCodec(schema, logical=True)
    assert codec.arrow_schema.types == arrow.types
    table = pa.Table.from_pylist(rows, arrow)
    written = codec.encode(table)
    read = [fastavro.schemaless_reader(io.BytesIO(one), parsed) for one in written.to_pylist()]
    assert read == rows
    bodies = []
    for row in rows:
        with io.BytesIO() as out:
            fastavro.schemaless_writer(out, parsed, row)
            bodies.append(out.getvalue())
    found = codec.decode(pa.array(bodies, pa.binary()))
    found.validate(full=True)
    assert found.cast(arrow) == table
    last = codec.decode(pa.array(bodies, pa.binary()), ["f3"])
    assert last == found.select(["f3"])
    assert codec.encode(table.slice(1)).to_pylist() == written.to_pylist()[1:]
    assert RecordCodec(schema).encode(RecordCodec(schema).decode(written)) == written


def test_fewest_bytes_are_those_of_java() -> None:
    codec = RecordCodec(record(named("decimal", "bytes", precision=9)), logical=True)
    column = pa.array([0, -1, 127, 128, -128, -129, 65535], pa.decimal128(9, 0))
    written = codec.encode(pa.table({"f0": column})).to_pylist()
    numbers = ("00", "ff", "7f", "0080", "80", "ff7f", "00ffff")
    assert [one[1:].hex() for one in written] == [*numbers]


@pytest.mark.parametrize(
    "kind",
    [
        named("uuid", "string"),
        named("date", "long"),
        named("decimal", "bytes", precision=39),
        named("decimal", "bytes", precision=2, scale=3),
        named("decimal", "bytes", precision=0),
        fixed(17, 38, 0),
        named("duration", "fixed", name="d", size=12),
        named("unheard-of"),
    ],
)
def test_other_logical_types_are_what_they_are_stored_as(kind: dict[str, Any]) -> None:
    meant, stored = RecordCodec(record(kind), logical=True), RecordCodec(record(kind))
    assert meant.arrow_schema == stored.arrow_schema


def test_without_being_asked_for_they_are_what_they_are_stored_as() -> None:
    codec = RecordCodec(record(*(kind for kind, *_ in TYPES)))
    found = {*map(str, codec.arrow_schema.types)}
    assert found <= {"int32", "int64", "binary", *map("fixed_size_binary[{}]".format, (5, 9, 16))}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (named("decimal", "bytes", precision=4), b"\x00"),
        (named("decimal", "bytes", precision=4), b"\x22" + bytes(17)),
        (named("decimal", "bytes", precision=4), b"\x04\x7f\xff"),
        (fixed(2, 4, 0), b"\x7f\xff"),
    ],
)
def test_decimals_out_of_bounds_are_corruption(kind: Any, body: bytes) -> None:
    codec = RecordCodec(record(kind), logical=True)
    with pytest.raises(CorruptError, match=r"decimal in an Avro datum is out of bounds.*p/f"):
        codec.decode(pa.array([body], pa.binary()), path="p/f")


def test_what_a_fixed_cannot_hold_is_refused() -> None:
    codec = RecordCodec(record(fixed(1, 4, 0)), logical=True)
    column = pa.array([-128, 127], pa.decimal128(4, 0))
    assert codec.encode(pa.table({"f0": column})).to_pylist() == [b"\x80", b"\x7f"]
    for wide in (128, -129):
        with pytest.raises(UsageError, match="too many digits"):
            codec.encode(pa.table({"f0": pa.array([wide], pa.decimal128(4, 0))}))
    with pytest.raises(UsageError, match="another type"):
        codec.encode(pa.table({"f0": ["x"]}))


def test_schemas_nested_without_end_are_refused() -> None:
    kind: Any = "int"
    for _ in range(3000):
        kind = {"type": "map", "values": kind}
    with pytest.raises(UsageError):
        RecordCodec(record(kind), logical=True)
    with pytest.raises(UsageError):
        RecordCodec('{"type":' * 100_000)
