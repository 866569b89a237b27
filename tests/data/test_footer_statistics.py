"""What a footer tells of columns is what reading them tells, or nothing."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.data.base_files import footer_statistics
from metatable.data.base_files.footer_statistics import of_footer
from metatable.data.base_files.statistics import of_all, of_table

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("ms"): st.datetimes().map(lambda one: one.replace(microsecond=0)),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.string(): st.text(max_size=5) | st.integers(60, 70).map(lambda count: "é" * count),
    pa.binary(): st.binary(max_size=5) | st.integers(60, 70).map(lambda count: b"\xff" * count),
}
READ = {
    pa.float64(): st.floats(),
    pa.decimal128(5, 2): st.decimals(-100, 100, places=2),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.list_(pa.int32()): st.lists(st.integers(0, 3), max_size=2),
}


def footer(table: pa.Table, **how: Any) -> tuple[pq.FileMetaData, pa.Schema]:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=4, store_schema=False, **how)
    file = pq.ParquetFile(io.BytesIO(sink.getvalue()))
    return file.metadata, file.schema_arrow


@given(st.data(), st.sampled_from([*VALUES]))
def test_bounds_and_nulls_are_those_of_the_rows(data: st.DataObject, kind: pa.DataType) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=12))
    table = pa.table({"a": pa.array(values, kind)})
    [expected] = of_table(table, ["a"])
    [found] = of_footer(*footer(table), table.schema)
    assert (found.minimum, found.maximum) == (expected.minimum, expected.maximum)
    assert (found.null_count, found.value_count) == (expected.null_count, len(values))
    assert found.type == kind


@pytest.mark.parametrize("ends", [(-1, 86_399_999_999), (0, 86_400_000_000)])
def test_a_footer_with_times_beyond_a_day_says_nothing(ends: tuple[int, int]) -> None:
    raw = pa.array([36_000_000_000, *ends], pa.int64())
    table = pa.table({"a": raw.view(pa.time64("us")), "b": raw})
    assert [one.column for one in of_footer(*footer(table), table.schema)] == ["b"]


@pytest.mark.parametrize("kind", READ, ids=str)
@given(st.data())
def test_columns_that_have_to_be_read(kind: pa.DataType, data: st.DataObject) -> None:
    table = pa.table({"a": pa.array(data.draw(st.lists(READ[kind], max_size=5)), kind)})
    assert of_footer(*footer(table), table.schema) == []


@given(st.lists(st.none() | st.floats(allow_nan=False, width=32), max_size=12))
def test_of_floats_without_nan_a_footer_tells_all_bounds_but_zero(values: list[float]) -> None:
    table = pa.table({"a": pa.array(values, pa.float64()), "b": pa.array(values, pa.float32())})
    for expected in of_table(table, ["a", "b"]):
        wanted = pa.schema([table.schema.field(expected.column)])
        found = of_footer(*footer(table), wanted, wanted.names)
        told = [str((one.minimum, one.maximum, one.null_count)) for one in found]
        ends = str((expected.minimum, expected.maximum, expected.null_count))
        assert told == [ends] or (0 in values and not told)


ZEROS = st.sampled_from([-0.0, 0.0, 1.5, -1.5])


@given(st.lists(st.lists(st.none() | ZEROS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_of_zeros_only_their_row_groups_are_read(groups: list[list[float | None]]) -> None:
    parts = [pa.table({"a": pa.array(one, pa.float64())}) for one in groups]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    asked = []

    def read(name: str, group: int) -> pa.ChunkedArray:
        asked.append((name, group))
        return parts[group][name]

    metadata = pq.ParquetFile(sink).metadata
    [found] = of_footer(metadata, parts[0].schema, parts[0].schema, ["a"], read)
    [expected] = of_all([of_table(part, ["a"]) for part in parts])
    assert str((found.minimum, found.maximum)) == str((expected.minimum, expected.maximum))
    known = [[one for one in group if one is not None] for group in groups]
    zeros = [("a", at) for at, one in enumerate(known) if one and 0 in (min(one), max(one))]
    assert asked == zeros


def test_a_footer_that_tells_too_little_is_not_believed() -> None:
    table = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    assert of_footer(*footer(table, write_statistics=["b"]), table.schema)[0].column == "b"
    assert of_footer(*footer(table, write_statistics=False), table.schema) == []


def test_a_row_group_with_values_and_no_bounds_says_nothing() -> None:
    bounds = SimpleNamespace(
        has_null_count=True, null_count=1, has_min_max=True, min_raw=1, max_raw=2
    )
    none = SimpleNamespace(has_null_count=True, null_count=1, has_min_max=False)
    told = SimpleNamespace(statistics=bounds, num_values=3)
    field = pa.field("a", pa.int64())
    assert footer_statistics._ends_and_nulls(field, {0: told, 1: told}, None) == (1, 2, 2)
    for values, expected in ((1, (1, 2, 2)), (3, None)):
        silent = SimpleNamespace(statistics=none, num_values=values)
        assert footer_statistics._ends_and_nulls(field, {0: told, 1: silent}, None) == expected


def test_a_column_of_another_type_or_none_is_left_out() -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "c": [Decimal(1), Decimal(2)]})
    wanted = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.decimal128(1, 0))])
    assert of_footer(*footer(table), wanted) == []
