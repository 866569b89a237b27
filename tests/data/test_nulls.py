"""Below a null struct a field that may not be null holds a value, whoever made the struct."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, UsageError
from metatable.data.columns.nulls import has_stray_nulls, nulls, without_nulls
from metatable.data.columns.schema import align

FLAT = [
    *(pa.bool_(), pa.int32(), pa.float32(), pa.string(), pa.binary(), pa.binary(3)),
    *(pa.decimal128(38, 38), pa.date32(), pa.time64("us"), pa.timestamp("ms", "UTC")),
]
EVERY = pa.struct([pa.field(f"f{n}", kind, nullable=False) for n, kind in enumerate(FLAT)])
DEEP = pa.struct(
    [
        pa.field("every", EVERY, nullable=False),
        pa.field("list", pa.list_(pa.field("element", EVERY, nullable=False)), nullable=False),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        pa.field("loose", pa.int64()),
        pa.field("below", pa.struct([pa.field("may", EVERY)]), nullable=False),
    ]
)
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.struct([pa.field("x", pa.int64(), False)]))])
ROWS = [{"id": "a", "at": {"x": 1}}, {"id": "b", "at": None}]


def test_nulls_of_any_depth_are_cast_as_any_other_column() -> None:
    made = nulls(3, DEEP)
    assert made.null_count == 3
    assert not has_stray_nulls(made)
    assert made.cast(DEEP).equals(made)
    assert has_stray_nulls(pa.nulls(3, DEEP))


def test_some_value_takes_the_place_of_each_null() -> None:
    made = without_nulls(pa.nulls(2, DEEP))
    made.validate(full=True)
    assert made.null_count == 0
    assert not has_stray_nulls(made)


@pytest.mark.parametrize("given", [pa.nulls(1, pa.struct([("every", EVERY)])), pa.nulls(1)])
def test_below_given_null_structs_a_value_is_put(given: pa.Array) -> None:
    kind = pa.struct([pa.field("every", EVERY, nullable=False)])
    aligned = align(pa.RecordBatch.from_arrays([given], ["at"]), pa.schema([("at", kind)]))
    assert not has_stray_nulls(aligned["at"])
    assert aligned["at"].to_pylist() == [None]


LOOSE = pa.struct([("address", pa.struct([("geo", pa.struct([("lat", pa.float64())]))]))])
GEO = pa.struct([pa.field("geo", pa.struct([pa.field("lat", pa.float64(), nullable=False)]))])
CUSTOMER = pa.struct([pa.field("address", GEO, nullable=False)])


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", [CUSTOMER, LOOSE], ids=["the table's", "a looser one"])
def test_a_null_struct_above_one_that_may_be_null_is_merged(
    tmp_path: Path, table_type: str, kind: pa.DataType
) -> None:
    """The value that stands below it has nulls that may be, and values where they may not."""
    schema = pa.schema([("id", pa.string()), ("customer", CUSTOMER)])
    options: dict[str, Any] = {"storage_options": {"durable": "false"}, "table_type": table_type}
    table = metatable.create(tmp_path / "t", schema, key="id", **options)
    one = {"address": {"geo": {"lat": 1.5}}}
    table.insert(pa.table({"id": ["a", "b"], "customer": pa.array([one, one], CUSTOMER)}))
    taken = pa.array([one], kind).take(pa.array([None], pa.int64()))
    table.upsert(
        pa.table([pa.array(["a"]), taken], pa.schema([("id", "string"), ("customer", kind)]))
    )
    table.merge(
        pa.table([pa.array(["b"]), taken], pa.schema([("id", "string"), ("customer", kind)]))
    )
    if table_type == "mor":
        table.compact_logs(ratio=0)
    assert table.scan().to_arrow()["customer"].to_pylist() == [None, None]
    assert table.verify().findings == ()


def of_polars() -> Any:
    return pl.DataFrame(ROWS)


def of_arrow() -> Any:
    """As a kernel makes it, which takes a null for the row that is not there."""
    return (
        pa.Table.from_pylist(ROWS[:1], SCHEMA)
        .take(pa.array([0, None]))
        .set_column(0, "id", pa.array(["a", "b"]))
    )


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize("made", [of_polars, of_arrow])
@pytest.mark.parametrize("verb", ["upsert", "bulk_insert", "insert_overwrite", "merge"])
def test_null_structs_with_a_required_field_are_written(
    tmp_path: Path, made: Callable[[], Any], verb: str
) -> None:
    table = metatable.create(tmp_path / "table", SCHEMA, key="id", index="record")
    getattr(table, verb)(made())
    assert table.scan().to_arrow().sort_by("id").to_pylist() == ROWS
    assert table.verify().findings == ()


@pytest.mark.each_once
@pytest.mark.parametrize("new_groups", ["base", "log"])
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_null_structs_with_a_required_field_are_read_from_logs(
    tmp_path: Path, log_format: str, new_groups: str
) -> None:
    options = {"log_format": log_format, "new_groups": new_groups, "table_type": "mor"}
    uri = tmp_path / "table"
    table = metatable.create(uri, SCHEMA, key="id", index="record", options=options)
    for rows in (ROWS, [{"id": "a", "at": None}], [{"id": "c", "at": None}]):
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    expected = [{"id": key, "at": None} for key in "abc"]
    for found in (table.scan(), table.changes(0, columns=SCHEMA.names)):
        assert found.to_arrow().select(SCHEMA.names).sort_by("id").to_pylist() == expected
    table.compact_logs(ratio=0)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    assert table.verify().findings == ()


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize("verb", ["upsert", "merge"])
def test_a_struct_with_a_required_field_may_be_left_out_or_come_later(
    tmp_path: Path, verb: str
) -> None:
    table = metatable.create(tmp_path / "table", SCHEMA, key="id", index="record")
    getattr(table, verb)(pa.table({"id": ["a", "b"]}))
    table.alter(AddColumn("later", SCHEMA.field("at").type))
    getattr(table, verb)(pa.table({"id": ["a"], "later": [{"x": 2}]}))
    [first, second] = table.scan().to_arrow().sort_by("id").to_pylist()
    assert first == {"id": "a", "at": None, "later": {"x": 2}}
    assert second == {"id": "b", "at": None, "later": None}
    assert table.verify().findings == ()


REQUIRED = pa.field("element", pa.int64(), nullable=False)
OFFSETS = pa.array([0, 1, 2], pa.int32())
BROKEN = {
    "at.element": pa.ListArray.from_arrays(OFFSETS, pa.array([1, None]), type=pa.list_(REQUIRED)),
    "at.x": pa.StructArray.from_arrays([pa.array([1, None])], fields=[REQUIRED.with_name("x")]),
    "at.value": pa.MapArray.from_arrays(
        *(OFFSETS, pa.array(["k", "l"]), pa.array([1, None])),
        type=pa.map_(pa.string(), REQUIRED.with_name("value")),
    ),
}


@pytest.mark.parametrize("path", BROKEN)
def test_a_null_that_its_own_type_forbids_is_refused(tmp_path: Path, path: str) -> None:
    schema = pa.schema([("id", pa.string()), ("at", BROKEN[path].type)])
    table = metatable.create(tmp_path / "table", schema, key="id")
    with pytest.raises(UsageError, match=f"must not be null: column='{path}'"):
        table.upsert(pa.table([pa.array(["a", "b"]), BROKEN[path]], schema=schema))
