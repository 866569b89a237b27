"""The left join by value, against loops over dicts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.engine import matching
from metatable.engine.matching import Matches, attached_schema

TEXT = st.sampled_from([None, "", "a", "b", "a\0", "ab", "ü", "x" * 40])
SMALL = st.sampled_from([None, 0, 1, -1, 2**62])
LEFT = pa.schema({"k": pa.string(), "p": pa.int64(), "v": pa.int64()})
RIGHT = pa.schema({"p": pa.int64(), "k": pa.string(), "w": pa.struct({"x": pa.int32()})})
PAYLOAD = st.sampled_from([None, {"x": None}, {"x": 1}])


def join(left: pa.Table, right: pa.Table, on: list[str]) -> pa.Table:
    schema = attached_schema(left.schema, right.schema, on)
    matches = Matches(right, on)
    return pa.Table.from_batches(
        [matches.attach(batch, schema) for batch in left.to_batches()], schema
    )


def expected(left: pa.Table, right: pa.Table, on: list[str]) -> list[dict[str, Any]]:
    blank = {name: None for name in right.schema.names if name not in on}
    rows = []
    for ours in left.to_pylist():
        found: list[dict[str, Any]] = []
        for theirs in right.to_pylist():
            if all(ours[name] == theirs[name] for name in on) and theirs not in found:
                found.append(theirs)
        rows += [ours | {name: one[name] for name in blank} for one in found or [blank]]
    return rows


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    """Rows that differ only in the order of one row's several matches are the same answer."""
    return sorted(repr(list(row.items())) for row in rows)


@given(
    st.lists(st.tuples(TEXT, SMALL), max_size=12),
    st.lists(st.tuples(SMALL, TEXT, PAYLOAD), max_size=12),
    st.sampled_from([["k"], ["p"], ["k", "p"]]),
    st.booleans(),
)
def test_it_is_the_join_of_two_loops(
    ours: list[Any], theirs: list[Any], on: list[str], collide: bool
) -> None:
    left = pa.Table.from_pylist(
        [{"k": k, "p": p, "v": v} for v, (k, p) in enumerate(ours)], schema=LEFT
    )
    right = pa.Table.from_pylist([{"p": p, "k": k, "w": w} for p, k, w in theirs], schema=RIGHT)
    right = right.select([name for name in RIGHT.names if name in (*on, "w")])
    with pytest.MonkeyPatch.context() as patch:
        if collide:  # every key has one hash: only the comparison by value is left
            patch.setattr(matching, "_hashes", lambda _, count: np.zeros(count, np.uint64))
        got = join(left, right, on).to_pylist()
    assert [row["v"] for row in got] == sorted(row["v"] for row in got)
    assert canonical(got) == canonical(expected(left, right, on))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [1, -1]),
        (pa.uint64(), [1, 2**63 + 1]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [date(2024, 1, 1), date(1969, 12, 31)]),
        (pa.timestamp("us", "America/New_York"), [datetime(2024, 1, 1), datetime(1950, 1, 1)]),
        (pa.timestamp("s"), [datetime(2024, 1, 1), datetime(1950, 1, 1)]),
        (pa.decimal128(20, 2), [Decimal("1.00"), Decimal("-1.00")]),
        (pa.large_string(), ["a", "a\0"]),
        (pa.binary(), [b"a", b"a\0"]),
        (pa.large_binary(), [b"a", b""]),
        (pa.binary(2), [b"ab", b"\0\0"]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_told_apart(kind: pa.DataType, values: list[Any]) -> None:
    first, second = pa.array(values, kind)
    absent = pa.scalar(None, kind)
    left = pa.table({"k": pa.array([second, absent, first, second], kind)})
    right = pa.table({"k": pa.array([first, absent], kind), "w": [1, 2]})
    assert join(left, right, ["k"])["w"].to_pylist() == [None, 2, 1, None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [b"\xff", b"a"]),
        (pa.decimal128(9, 3), [Decimal("1.000"), Decimal("-1.000")]),
        (pa.date32(), [date(2024, 1, 1), date(1969, 12, 31)]),
    ],
    ids=str,
)
def test_keys_of_a_dictionary_are_its_values_also_where_nothing_is_to_match(
    kind: pa.DataType, values: list[Any]
) -> None:
    first, second = values
    left = pa.table({"k": pa.array([second, None, first, second], kind).dictionary_encode()})
    right = pa.table({"k": pa.array([first, None], kind).dictionary_encode(), "w": [1, 2]})
    assert join(left, right, ["k"])["w"].to_pylist() == [None, 2, 1, None]
    assert join(left, right.schema.empty_table(), ["k"])["w"].to_pylist() == [None] * 4
    none = pa.Table.from_batches([], right.schema)
    assert join(left, none, ["k"])["w"].to_pylist() == [None] * 4


def test_keys_of_an_extension_are_its_storage() -> None:
    first, second = (pa.scalar(bytes(range(n, n + 16)), pa.binary(16)) for n in (0, 200))

    def keys(values: list[pa.Scalar]) -> pa.Array:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))

    left = pa.table({"k": keys([second, first, pa.scalar(None, pa.binary(16)), second])})
    right = pa.table({"k": keys([first, second, first]), "w": [1, 2, 1]})
    assert join(left, right, ["k"])["w"].to_pylist() == [2, 1, None, 2]


def test_nothing_matches_nothing() -> None:
    left = pa.table({"k": ["a", None]})
    right = pa.table({"k": pa.array([], pa.string()), "w": pa.array([], pa.int64())})
    assert join(left, right, ["k"]).to_pylist() == [{"k": "a", "w": None}, {"k": None, "w": None}]
    assert join(left.slice(0, 0), right, ["k"]).num_rows == 0
