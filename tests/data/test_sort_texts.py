"""Sort texts are in the order of the rows they are made of."""

from __future__ import annotations

import random
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metatable import UsageError
from metatable.data.keys.key_texts import KEY
from metatable.data.keys.sort_texts import check_sortable, sort_texts

INF, NAN = float("inf"), float("nan")
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [None, -128, -1, 0, 1, 127]),
    (pa.int64(), [None, -(2**63), -7, 0, 2**31, 2**63 - 1]),
    (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
    (pa.bool_(), [None, False, True]),
    (pa.float64(), [None, -INF, -1e300, -2.5, -5e-324, 0.0, 5e-324, 1.0, 1e9, INF, NAN]),
    (pa.float32(), [None, -1.5, -0.5, 0.0, 1.5, INF, NAN]),
    (pa.string(), [None, "", "\0", "\0\0", "\0a", "\x01", "a", "a\0", "a\0b", "a\x01", "ab", "ä"]),
    (pa.large_string(), [None, "", "x", "\U0001f600"]),
    (pa.binary(), [None, b"", b"\0", b"\0\xff", b"\x10", b"a", b"ab", b"\xff"]),
    (pa.binary(2), [None, b"\0\0", b"\0\x01", b"\xff\0"]),
    (pa.date32(), [None, date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2026, 3, 1)]),
    (pa.timestamp("us"), [None, datetime(1960, 1, 1), datetime(1970, 1, 1), datetime(2026, 3, 1)]),
    (pa.timestamp("ms", "UTC"), [None, datetime(1960, 1, 1), datetime(2026, 3, 1)]),
    (pa.time64("us"), [None, time(0), time(0, 0, 1), time(23, 59)]),
    (pa.time32("s"), [None, time(0), time(23, 59)]),
    (pa.decimal128(38, 2), [None, *map(Decimal, ("-1e34", "-0.01", "0", "0.01", "12", "1e35"))]),
    (pa.dictionary(pa.int32(), pa.string()), [None, "a", "b"]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda one: str(one)[:20])
def test_values_ascend_as_their_texts_do(kind: pa.DataType, values: list[Any]) -> None:
    count = len(values)
    keys = [f"k{number % 3}" for number in range(count)]
    column = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
    found = sort_texts(pa.table({KEY: keys, "a": column}), ["a"])
    assert found.cast(pa.binary()).to_pylist() == sorted(found.cast(pa.binary()).to_pylist())
    assert len(set(found.to_pylist())) == count
    middle = pa.table({KEY: keys, "a": column}).slice(1, count - 2)
    assert sort_texts(middle, ["a"]).to_pylist() == found.to_pylist()[1:-1]


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_several_columns_are_in_the_order_of_the_first_that_differs(seed: int) -> None:
    chosen = random.Random(seed)
    rows = [
        {
            KEY: f"k{number}",
            "a": chosen.choice([None, "", "\0", "a", "a\0", "b"]),
            "b": chosen.choice([None, -1, 0, 1]),
        }
        for number in range(200)
    ]
    table = pa.Table.from_pylist(rows)
    order = pc.array_sort_indices(sort_texts(table, ["a", "b"]).cast(pa.binary()))
    expected = sorted(
        rows,
        key=lambda row: (
            (row["a"] is not None, (row["a"] or "").encode()),
            (row["b"] is not None, row["b"] or 0),
            row[KEY],
        ),
    )
    assert table.take(order).to_pylist() == expected


def test_a_nan_of_any_bits_and_minus_zero_are_what_they_are_equal_to() -> None:
    column = pa.array([-NAN, NAN, -0.0, 0.0])
    found = sort_texts(pa.table({KEY: [""] * 4, "a": column}), ["a"]).to_pylist()
    assert found[0] == found[1]
    assert found[2] == found[3]


@pytest.mark.parametrize(
    ("columns", "words"),
    [(["b"], "'b'"), (["a", "a"], "'a'"), (["c"], "has no order"), (["d"], "has no order")],
)
def test_columns_without_an_order_are_refused(columns: list[str], words: str) -> None:
    schema = pa.schema(
        [("a", pa.int8()), ("c", pa.list_(pa.int8())), ("d", pa.struct({"e": pa.int8()}))]
    )
    check_sortable(schema, ["a"])
    with pytest.raises(UsageError, match=words):
        check_sortable(schema, columns)
