"""Leaving rows out: whatever the columns, the same rows are left as by a filter."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.data.rows.leaving_out import without

COUNT = 40
MADE: dict[str, tuple[pa.DataType, Any]] = {
    "key": (pa.string(), lambda row: f"k-{row:06}"),
    "large": (pa.large_binary(), lambda row: b"%03d" % row),
    "word": (pa.int32(), lambda row: row),
    "float": (pa.float64(), lambda row: row / 4),
    "seen": (pa.timestamp("us", "UTC"), lambda row: datetime.fromtimestamp(row, UTC)),
    "price": (pa.decimal128(20, 2), lambda row: Decimal(row) / 4),
    "fixed": (pa.binary(5), lambda row: b"%05d" % row),
    "some": (pa.int64(), lambda row: row if row % 3 else None),
    "flag": (pa.bool_(), lambda row: row % 3 == 1),
    "text": (pa.string(), lambda row: "x" * (row % 7)),
    "empty": (pa.string(), lambda _: ""),
    "list": (pa.list_(pa.int8()), lambda row: [row % 5] * (row % 3)),
    "nothing": (pa.null(), lambda _: None),
}


def made(names: list[str]) -> pa.Table:
    columns = [
        pa.array([MADE[name][1](row) for row in range(COUNT)], MADE[name][0]) for name in names
    ]
    return pa.table(dict(zip(names, columns, strict=True)))


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["key"]))


@given(st.lists(st.sampled_from(sorted(MADE)), unique=True), st.data())
def test_the_rows_that_are_left_are_those_of_a_filter(
    names: list[str], data: st.DataObject
) -> None:
    table = made(["key", *(name for name in names if name != "key")])
    first = data.draw(st.integers(0, COUNT))
    part = table.slice(first, data.draw(st.integers(0, COUNT - first)))
    behind = table.slice(first + part.num_rows).to_pylist()
    rows = sorted(data.draw(st.sets(st.integers(0, part.num_rows - 1)))) if part.num_rows else []
    listed = part.to_pylist()
    expected = [row for place, row in enumerate(listed) if place not in rows]
    found = without(part, np.array(rows, np.int64))
    found.validate(full=True)
    assert found.schema == table.schema
    assert in_order(found.to_pylist()) == in_order(expected)
    assert table.slice(0, first).to_pylist() == made(table.column_names).slice(0, first).to_pylist()
    assert table.slice(first + part.num_rows).to_pylist() == behind


def test_the_last_rows_go_into_the_places_of_those_that_go() -> None:
    table = made(["key", "word", "text"])
    places = [column.chunk(0).buffers()[-1].address for column in table.columns]
    found = without(table, np.array([3, 8, COUNT - 2]))
    last = [COUNT - 3, COUNT - 1]
    order = [*range(COUNT - 3)]
    order[3], order[8] = last
    assert found["word"].to_pylist() == order
    assert [column.chunk(0).buffers()[-1].address for column in found.columns][:2] == places[:2]


@pytest.mark.parametrize("names", [["key", "text", "list"], ["text", "some", "flag", "key"]])
def test_where_most_columns_have_values_of_many_sizes_rows_stay_in_order(names: list[str]) -> None:
    table = made(names)
    found = without(table, np.array([0, 5]))
    assert found.to_pylist() == [
        row for place, row in enumerate(made(names).to_pylist()) if place not in (0, 5)
    ]


def test_memory_that_is_not_to_be_written_on_is_left_as_it_is() -> None:
    words = np.arange(COUNT)
    words.flags.writeable = False
    table = pa.table({"word": pa.array(words)})
    found = without(table, np.array([1, 2]))
    assert found["word"].to_pylist() == [0, *range(3, COUNT)]
    assert words.tolist() == [*range(COUNT)]


def test_rows_in_several_chunks_are_filtered() -> None:
    table = pa.concat_tables([made(["key", "word"])] * 2)
    assert without(table, np.array([1, COUNT]))["word"].to_pylist() == [
        0,
        *range(2, COUNT),
        *range(1, COUNT),
    ]


def test_what_a_file_gives_is_memory_to_write_on() -> None:
    """Else nothing would be gained by it."""
    sink = pa.BufferOutputStream()
    pq.write_table(made(["key", "word", "float", "seen", "price", "fixed"]), sink)
    read = pq.ParquetFile(pa.BufferReader(sink.getvalue())).read_row_groups([0])
    places = [column.chunk(0).buffers()[-1].address for column in read.columns]
    found = without(read, np.array([0]))
    assert [column.chunk(0).buffers()[-1].address for column in found.columns] == places
    assert found["word"].to_pylist() == [COUNT - 1, *range(1, COUNT - 1)]
