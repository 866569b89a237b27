"""Rows taken from tables whose columns may pass what one piece can hold."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.data.rows import taking
from metatable.data.rows.taking import grouped, taken, whole
from tests.memory import watched_memory

SCHEMA = pa.schema([("text", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize("most", [1, 60, 1 << 30])
@pytest.mark.parametrize("joined", [1, 100, 1 << 30])
def test_rows_are_taken_in_order_whatever_fits(
    joined: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "JOINED_BYTES", joined)
    monkeypatch.setattr(taking, "MOST_BYTES", most)
    table = pa.table([[f"t{n}" * (n % 7) for n in range(40)], range(40)], schema=SCHEMA)
    parts = [table.slice(20, 5), table.slice(0, 0), table.slice(25), table.slice(0, 20)]
    table = pa.concat_tables(parts)
    wanted = [3, 39, 3, 0, 20, 21, 19]
    found = taken(table, pa.array(wanted))
    assert found.schema == SCHEMA
    assert found.to_pylist() == [table.to_pylist()[place] for place in wanted]
    assert taken(table, pa.array([], pa.int64())).num_rows == 0


def test_a_large_table_is_not_joined_before_rows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pa.chunked_array([["x" * 1000] * 1000] * 4)
    table = pa.table([text, pa.chunked_array([range(1000)] * 4)], schema=SCHEMA)
    monkeypatch.setattr(taking, "JOINED_BYTES", table.nbytes - 1)
    with watched_memory() as pool:
        assert taken(table, pa.array(range(0, 4000, 400))).num_rows == 10
    assert 10_000 < pool.max_memory() < table.nbytes // 10


def test_rows_are_grouped_by_value_and_null_equals_null() -> None:
    groups, rows = grouped({"a": pa.array(["x", None, "x", None]), "b": pa.array([1, 1, 2, 1])})
    found = {
        (row["a"], row["b"]): here.tolist()
        for row, here in zip(groups.to_pylist(), rows, strict=True)
    }
    assert found == {("x", 1): [0], (None, 1): [1, 3], ("x", 2): [2]}
    alone, rows = grouped({"a": pa.array([None], pa.string()), "b": pa.array([7])})
    assert (alone.to_pylist(), [here.tolist() for here in rows]) == ([{"a": None, "b": 7}], [[0]])


def test_a_column_in_one_piece_is_not_copied() -> None:
    column = pa.array(["a", "b"])
    for one in (column, pa.chunked_array([column])):
        assert whole(one).buffers()[2].address == column.buffers()[2].address
    assert whole(pa.chunked_array([column, column])).to_pylist() == ["a", "b"] * 2
    assert whole(pa.chunked_array([], pa.string())).to_pylist() == []


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.integers(0, 3))),
        min_size=1,
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
)
def test_rows_are_grouped_by_numbers_of_texts_as_by_texts(
    rows: list[tuple[int | None, int | None]], with_null: bool, few: bool
) -> None:
    texts = pa.array(["x", "y", "x", None if with_null else "z"])  # one is there twice
    coded = {
        name: pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), texts)
        for name, codes in zip("ab", zip(*rows, strict=True), strict=True)
    }
    nulls = {"c": pa.nulls(len(rows), pa.string())}
    plain = {name: one.dictionary_decode() for name, one in coded.items()}
    with pytest.MonkeyPatch.context() as patch:
        if few:
            patch.setattr(taking, "MOST_CODES", 5)
        found, expected = grouped(coded | nulls), grouped(plain | nulls)
    assert found[0].schema == expected[0].schema
    told, asked = (
        {tuple(group.values()): here.tolist() for group, here in zip(*one, strict=True)}
        for one in ((groups.to_pylist(), rows) for groups, rows in (found, expected))
    )
    assert told == asked


def test_a_large_table_of_one_chunk_is_taken_from_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "JOINED_BYTES", 24)
    table = pa.table({"n": pa.array(range(50))})
    rows = pa.array([7, 7, 49, 0, 3, 2, 1, 30])
    found = taking.taken(table, rows)
    assert found["n"].to_pylist() == rows.to_pylist()
    assert max(len(chunk) for chunk in found["n"].chunks) == 3


@pytest.mark.parametrize(("columns", "rows"), [(1, 512), (16, 32), (32, 16), (48, 16), (64, 16)])
def test_of_many_columns_a_piece_is_twice_as_large(
    monkeypatch: pytest.MonkeyPatch, columns: int, rows: int
) -> None:
    monkeypatch.setattr(taking, "COLUMN_BYTES", 128)
    table = pa.table({str(number): pa.array(range(2_000)) for number in range(columns)})
    assert taking.piece_rows(table, 4_096) == rows
