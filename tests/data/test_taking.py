"""Rows taken from tables whose columns may pass what one piece can hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from metatable.data import taking
from metatable.data.taking import grouped, taken, whole

SCHEMA = pa.schema([pa.field("text", pa.string()), pa.field("n", pa.int64())])


class Wide:
    """A table of which so few rows fit into one piece."""

    def __init__(self, fit: int) -> None:
        self.fit = fit
        self.asked: list[int] = []

    def take(self, rows: pa.Array) -> pa.Table:
        self.asked.append(len(rows))
        if len(rows) > self.fit:
            raise pa.ArrowInvalid("offset overflow")
        return pa.table([rows.cast(pa.string()), rows], schema=SCHEMA)


@pytest.mark.parametrize("fit", [1, 2, 3, 9])
def test_rows_too_wide_for_one_piece_come_in_halves(fit: int) -> None:
    rows = pa.array([4, 1, 3, 0, 2])
    found = pa.concat_tables(taking._narrow(Wide(fit), rows, SCHEMA))
    assert found["n"].to_pylist() == [4, 1, 3, 0, 2]


def test_one_row_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        taking._narrow(Wide(0), pa.array([0, 1]), SCHEMA)


@pytest.mark.parametrize("limit", [0, 100, 1 << 30])
def test_rows_are_taken_in_order_whatever_fits(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "WHOLE_BYTES", limit or 1)
    table = pa.table([[f"t{n}" for n in range(40)], range(40)], schema=SCHEMA)
    table = pa.concat_tables([table.slice(20), table.slice(0, 20)])
    wanted = [3, 39, 3, 0, 20]
    found = taken(table, pa.array(wanted))
    assert found.schema == SCHEMA
    assert found.to_pylist() == [table.to_pylist()[place] for place in wanted]
    assert taken(table, pa.array([], pa.int64())).num_rows == 0


def test_rows_are_grouped_by_value_and_null_equals_null() -> None:
    groups, rows = grouped({"a": pa.array(["x", None, "x", None]), "b": pa.array([1, 1, 2, 1])})
    found = {
        (row["a"], row["b"]): here.tolist()
        for row, here in zip(groups.to_pylist(), rows, strict=True)
    }
    assert found == {("x", 1): [0], (None, 1): [1, 3], ("x", 2): [2]}


def test_a_column_in_one_piece_is_not_copied() -> None:
    column = pa.array(["a", "b"])
    for given in (column, pa.chunked_array([column])):
        assert whole(given).buffers()[2].address == column.buffers()[2].address
    assert whole(pa.chunked_array([column, column])).to_pylist() == ["a", "b"] * 2
    assert whole(pa.chunked_array([], pa.string())).to_pylist() == []
