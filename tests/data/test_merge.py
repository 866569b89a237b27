"""Which of two rows of one key lives on, against a plain dict."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.rows import merge
from metatable.data.rows.merge import changed_columns, check_ordering, deduplicate, newer
from metatable.storage.errors import CorruptError, UsageError
from tests.data.merging import merge_rows
from tests.long import examples

KEY = "_hoodie_record_key"
SCHEMA = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("val", pa.string())])
FLOATS = st.none() | st.sampled_from([math.nan, -math.inf, math.inf, 0.0, -0.0, 1.5, -2.0])


def table(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def rank(value: Any) -> tuple[int, Any]:
    """Sorts as Spark does: null lowest, NaN greatest."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


KEYS = st.sampled_from("abcdefgh")
ROWS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3), st.text(max_size=2)), max_size=25)


@settings(deadline=None)
@given(ROWS)
def test_the_greatest_survives_and_the_later_of_equals(rows: list[tuple[Any, ...]]) -> None:
    best: dict[str, int] = {}
    for place, row in enumerate(rows):
        if row[0] not in best or rank(row[1]) >= rank(rows[best[row[0]]][1]):
            best[row[0]] = place
    found = deduplicate(table(rows), [KEY], "ts")
    assert tuples(found) == [rows[place] for place in sorted(best.values())]


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | KEYS, st.booleans(), st.integers(0, 2)), max_size=25))
def test_keys_of_several_columns_are_compared_together(rows: list[tuple[Any, ...]]) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.bool_()), ("ts", pa.int64())])
    given_rows = table(rows, schema)
    found = tuples(deduplicate(given_rows, ["a", "b"], "ts"))
    assert sorted(found, key=repr) == sorted(
        ({row[:2]: row for row in sorted(rows, key=lambda row: row[2])}).values(), key=repr
    )


@settings(deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=8))
def test_float_orderings_have_nan_on_top_and_one_zero(values: list[float | None]) -> None:
    schema = pa.schema([(KEY, pa.string()), ("ts", pa.float64()), ("row", pa.int64())])
    rows = [("k", value, row) for row, value in enumerate(values)]
    best = max(range(len(values)), key=lambda row: (rank(values[row]), row))
    found = deduplicate(table(rows, schema), [KEY], "ts")
    assert found["row"].to_pylist() == [best]


def test_repeated_keys_without_an_ordering_are_refused_naming_five() -> None:
    rows = [(f"k{number % 10}", 0, "") for number in range(17)] + [("once", 0, "")]
    with pytest.raises(UsageError, match="keys repeat") as raised:
        deduplicate(table(rows), [KEY], None)
    assert raised.value.facts["keys"] == ["k0", "k1", "k2", "k3", "k4"]
    assert raised.value.facts["found"] == "7 keys more than once"


def test_rows_without_repetition_pass_untouched() -> None:
    rows = table([("a", 1, "x"), ("b", None, "y")])
    assert deduplicate(rows, [KEY], None) is rows


@settings(deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=20))
def test_newer_is_not_older_for_floats(pairs: list[tuple[Any, Any]]) -> None:
    base = pa.array([pair[0] for pair in pairs], pa.float64())
    incoming = pa.array([pair[1] for pair in pairs], pa.float64())
    assert newer(base, incoming).tolist() == [rank(new) >= rank(old) for old, new in pairs]


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        ("Z", "a", pa.string()),
        (b"\x7f", b"\x80", pa.binary()),
        (False, True, pa.bool_()),
        (date(1969, 1, 1), date(2020, 1, 1), pa.date32()),
        (datetime(1969, 1, 1), datetime(2020, 1, 1), pa.timestamp("us")),
        (Decimal("-1.5"), Decimal("1.25"), pa.decimal128(9, 2)),
        (-1, 1, pa.int32()),
    ],
)
def test_every_type_orders_from_null_upwards(low: Any, high: Any, kind: pa.DataType) -> None:
    ladder = [None, low, high]
    old = pa.array([old for old in ladder for _ in ladder], kind)
    new = pa.array(ladder * 3, kind)
    assert newer(old, new).tolist() == [new >= old for old in range(3) for new in range(3)]
    schema = pa.schema([(KEY, pa.string()), ("ts", kind)])
    for rows in (ladder, ladder[::-1]):
        found = deduplicate(table([("k", value) for value in rows], schema), [KEY], "ts")
        assert found["ts"].to_pylist() == [high]


UNIQUE = st.dictionaries(KEYS, st.tuples(st.none() | st.integers(0, 3), st.text(max_size=2)))


@settings(deadline=None, max_examples=examples(75, 300))
@given(UNIQUE, UNIQUE, st.lists(KEYS), st.booleans())
def test_merging_is_what_a_dict_does(
    base: dict[str, Any], upserts: dict[str, Any], deletes: list[str], ordered: bool
) -> None:
    deletes = [key for key in deletes if key not in upserts]
    expected = dict(base)
    for key in deletes:
        expected.pop(key, None)
    stale = 0
    for key, row in upserts.items():
        if ordered and key in base and rank(row[0]) < rank(base[key][0]):
            stale += 1
        else:
            expected[key] = row
    merged = merge_rows(
        table([(key, *row) for key, row in base.items()]),
        table([(key, *row) for key, row in upserts.items()]),
        pa.array(deletes, pa.string()),
        "ts" if ordered else None,
    )
    assert tuples(merged.table) == [(key, *row) for key, row in expected.items()]
    counts = merged.counts
    assert counts.stale == stale
    assert counts.updated == len(set(base) & set(upserts)) - stale
    assert counts.inserted == len(set(upserts) - set(base))
    assert set(merged.deleted_keys.to_pylist()) == set(base) & set(deletes)
    assert counts.deleted == len(merged.deleted_keys)


def test_chunks_and_column_order_do_not_matter() -> None:
    base = pa.concat_tables([table([("a", 1, "x")]), table([("b", 1, "y")])])
    upserts = table([("b", 2, "z"), ("c", 0, "w")]).select(["val", KEY, "ts"])
    merged = merge_rows(base, upserts, pa.array(["a"]), "ts")
    assert tuples(merged.table) == [("b", 2, "z"), ("c", 0, "w")]
    assert merged.table.schema == base.schema


def test_a_key_stored_twice_is_damage() -> None:
    with pytest.raises(CorruptError, match="stored twice in one file: key='a'"):
        merge_rows(
            table([("b", 0, ""), ("a", 0, ""), ("a", 1, "")]),
            table([("a", 2, "")]),
            pa.array([], pa.string()),
            None,
        )


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"key is given twice: keys=\['b'\]"):
        merge_rows(
            table([]),
            table([("b", 0, ""), ("a", 0, ""), ("b", 1, "")]),
            pa.array([], pa.string()),
            None,
        )


def test_a_key_both_put_and_deleted_is_refused() -> None:
    with pytest.raises(UsageError, match=r"both put and deleted: keys=\['b'\]"):
        merge_rows(table([]), table([("b", 0, "")]), pa.array(["b"]), None)


@given(
    st.lists(st.integers(0, 40), max_size=30, unique=True),
    st.lists(st.integers(0, 40), max_size=6),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from(["a key of {:08d}", "{:08d} a key that ends alike", "{}"]),
)
def test_repeated_keys_are_refused_however_long_they_are(
    put: list[int], again: list[int], gone: list[int], form: str
) -> None:
    rows = table([(form.format(one), 0, "") for one in [*put, *again]])
    deletes = pa.array([form.format(one) for one in gone], pa.string())
    base = table([(form.format(one), 0, "") for one in range(20)])
    named = [*put, *again]
    if len(set(named)) < len(named):
        with pytest.raises(UsageError, match="key is given twice"):
            merge_rows(base, rows, deletes, None)
    elif {*named} & {*gone}:
        with pytest.raises(UsageError, match="both put and deleted"):
            merge_rows(base, rows, deletes, None)
    else:
        merged = merge_rows(base, rows, deletes, None)
        want = ({*range(20)} - {*gone}) | {*named}
        assert sorted(merged.table[KEY].to_pylist()) == sorted(map(form.format, want))


def test_nested_ordering_is_refused() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64())), ("b", pa.float64())])
    check_ordering(schema, "b")
    check_ordering(schema, None)
    with pytest.raises(UsageError, match="column has no order: column='a'"):
        check_ordering(schema, "a")


CHANGES = st.lists(st.tuples(st.booleans(), *[st.none() | st.sampled_from("ab")] * 4), max_size=12)


@settings(deadline=None)
@given(CHANGES)
def test_a_column_has_changed_where_any_row_of_it_has(rows: list[tuple[Any, ...]]) -> None:
    """`first_rows` of them are looked at before the others."""
    names = pa.schema([("same", pa.string()), ("coded", pa.dictionary(pa.int32(), pa.string()))])
    columns = list(zip(*rows, strict=True)) or [()] * 5
    is_put = np.array(columns[0], np.bool_)
    piece = pa.table([pa.array(one, pa.string()) for one in columns[1:3]], ["same", "coded"])
    put = pa.table([pa.array(one, pa.string()) for one in columns[3:5]], ["same", "coded"])
    places = np.arange(len(rows))
    places[is_put] = len(rows) + np.arange(int(is_put.sum()))
    put = put.filter(pa.array(is_put))
    replaced = piece.filter(pa.array(is_put))
    expected = [one for one in names.names if replaced[one].to_pylist() != put[one].to_pylist()]
    for first_rows in (0, 1, 128):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merge, "FIRST_ROWS", first_rows)
            assert changed_columns(piece.cast(names), put, places) == expected
