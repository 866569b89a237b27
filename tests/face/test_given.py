"""Rows and keys as users have them: a pandas index, plain values, a dict of columns; and what a
table's own text tells."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import metatable
from metatable.storage import cache
from metatable.storage.errors import UsageError

FAST = {"durable": "false"}
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.timestamp("us")), ("fare", pa.float64())])
DAYS = [datetime(2024, 1, 1), datetime(2024, 1, 2)]
FRAME = pd.DataFrame({"id": ["a", "b"], "at": pd.to_datetime(DAYS), "fare": [1.0, 2.0]})


@pytest.fixture
def table(table_uri: str) -> metatable.Table:
    made = metatable.create(table_uri, SCHEMA, key="id", storage_options=FAST)
    made.insert(FRAME)
    return made


def held(table: metatable.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return found


def test_a_level_of_an_index_that_is_named_as_a_column_is_that_column(
    table: metatable.Table,
) -> None:
    """As `resample` and `groupby` leave rows; stored values became null."""
    series = FRAME.assign(fare=9.0).set_index("at")
    table.upsert(series)
    assert [(row["at"], row["fare"]) for row in held(table)] == [(day, 9.0) for day in DAYS]
    assert list(series.columns) == ["id", "fare"]  # the user's own is as it was
    table.upsert(FRAME.assign(fare=8.0).set_index(["at", "id"]))
    assert [(row["at"], row["fare"]) for row in held(table)] == [(day, 8.0) for day in DAYS]


def test_other_levels_of_an_index_are_left_out(table: metatable.Table) -> None:
    unnamed = FRAME.set_index(pd.Index([7, 8]))
    of_other_names = FRAME.set_index(pd.MultiIndex.from_tuples([(1, 2), (3, 4)], names=["x", None]))
    both = FRAME.set_index("fare", drop=False)
    for given in (unnamed, of_other_names, both):
        assert table.upsert(given.assign(fare=3.0)).updated == 2
        assert [row["fare"] for row in held(table)] == [3.0, 3.0]
    assert table.tag_locations(of_other_names).column_names == [*SCHEMA.names, "_location"]
    assert table.schema.names == SCHEMA.names


def test_with_evolve_any_level_of_an_index_that_has_a_name_is_a_column(
    table: metatable.Table,
) -> None:
    tips = pd.MultiIndex.from_tuples([(1, 0.5), (2, 1.5)], names=[None, "tip"])
    table.upsert(FRAME.set_index(tips), evolve=True)
    assert table.schema.names == [*SCHEMA.names, "tip"]
    assert [row["tip"] for row in held(table)] == [0.5, 1.5]
    for name in ("_hoodie_record_key", "Unnamed: 0", 7):  # none that a column may have
        table.upsert(FRAME.set_index(pd.Index([1, 2], name=name)), evolve=True)
    assert table.schema.names == [*SCHEMA.names, "tip"]


def test_keys_may_be_an_index(table: metatable.Table) -> None:
    keys = FRAME[["id", "fare"]].set_index("id")
    assert table.read_keys(keys).num_rows == 2
    assert table.filter_exists(keys)["id"].to_pylist() == ["a", "b"]
    assert table.explain(keys).found == 2
    assert table.delete(keys[:1]).deleted == 1
    assert [row["id"] for row in held(table)] == ["b"]


def test_the_text_of_a_table_asks_the_store_nothing(table: metatable.Table) -> None:
    """Debuggers and logs ask for it, of a table that is gone, too."""
    before, told = dict(table.counters), f"Table({table.uri!r}, version=%d, index='metadata_bloom')"
    assert repr(table) == told % 2
    assert table.counters.since(before) == {}
    table.delete(FRAME[:1])
    assert repr(table) == told % 3
    shutil.rmtree(table.uri)
    assert repr(table) == told % 3
    cache.clear()
    assert repr(table) == told % 1  # as it was opened


VALUES: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "pandas": lambda keys: pd.Series(keys, index=[7] * len(keys)),
    "pandas index": pd.Index,
    "polars": pl.Series,
    "arrow": pa.array,
    "chunks": lambda keys: pa.chunked_array([[], keys], pa.large_string()),
    "dict": lambda keys: {"id": keys, "other": [*range(len(keys))]},
    "dict of arrays": lambda keys: {"id": pa.array(keys)},
}


@pytest.mark.parametrize("form", VALUES)
def test_keys_of_one_column_may_be_plain_values(table: metatable.Table, form: str) -> None:
    keys = VALUES[form](["b", "zz"])
    assert table.read_keys(keys, ["fare"]).to_pylist() == [{"fare": 2.0}]
    tagged = table.tag_locations(keys)
    assert tagged["id"].to_pylist() == ["b", "zz"]
    assert tagged["_location"].is_valid().to_pylist() == [True, False]
    assert table.filter_exists(keys)["id"].to_pylist() == ["b"]
    assert (table.explain(keys).keys, table.explain(keys).found) == (2, 1)
    done = table.delete(keys)
    assert (done.deleted, done.absent) == (1, 1)
    assert table.read_keys(keys).num_rows == 0


def test_no_keys_are_none_that_are_there(table: metatable.Table) -> None:
    assert table.read_keys([]).num_rows == table.tag_locations([]).num_rows == 0
    assert table.delete(()).deleted == 0


NUMBERS = pa.schema([("n", pa.int32()), ("day", pa.date32()), ("x", pa.float64())])


@pytest.fixture
def numbers(table_uri: str) -> metatable.Table:
    """A key of numbers of 32 bits, which Python has not."""
    how: dict[str, Any] = {"key": "n", "partition_by": "day", "storage_options": FAST}
    made = metatable.create(table_uri, NUMBERS, options={"key_scope": "global"}, **how)
    made.insert({"n": [1, 2], "day": [date(2024, 1, 1), None], "x": (1, 2)})
    return made


def test_integers_of_python_have_no_width(numbers: metatable.Table) -> None:
    assert numbers.read_keys([2]).to_pylist() == [{"n": 2, "day": None, "x": 2.0}]
    assert numbers.tag_locations(range(3))["_location"].null_count == 1
    done = numbers.upsert({"n": [3], "day": np.array(["2024-01-02"], "datetime64[D]"), "x": [3]})
    assert done.inserted == 1
    with pytest.raises(
        UsageError, match=r"column='n' found='list' reason='Value 2147483648 too large"
    ):
        numbers.read_keys([1 << 31])


WIDTHS = pa.schema(
    [
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(5, 2)),
        ("l", pa.list_(pa.int32())),
        ("s", pa.struct([("n", pa.int32()), ("f", pa.float32())])),
    ]
)


def test_numbers_of_python_have_no_width_within_others_either(table_uri: str) -> None:
    table = metatable.create(table_uri, WIDTHS, key="n", storage_options=FAST)
    given: dict[str, Any] = {"n": [1], "f": [0.5], "d": [7], "l": [[1, None]], "s": [{"n": 2}]}
    table.insert(given)
    structs = pa.array([{"n": 3, "f": 1.5}], WIDTHS.field("s").type)
    table.insert(
        {"n": [2], "s": structs, "l": pa.chunked_array([pa.array([[4]], WIDTHS.field("l").type)])}
    )
    assert table.scan(["f", "d", "l", "s"]).to_arrow().to_pylist() == [
        {"f": 0.5, "d": Decimal(7), "l": [1, None], "s": {"n": 2, "f": None}},
        {"f": None, "d": None, "l": [4], "s": {"n": 3, "f": 1.5}},
    ]
    for wrong in ({"n": [3], "l": [[1.5]]}, {"n": [3], "d": [1000]}, {"n": [3], "s": [{"x": 1}]}):
        with pytest.raises(UsageError):
            table.insert(wrong)


def test_values_that_are_structs_are_keys_of_several_columns(table_uri: str) -> None:
    how: dict[str, Any] = {"key": ["id", "n"], "storage_options": FAST}
    table = metatable.create(table_uri, pa.schema([("id", "string"), ("n", "int64")]), **how)
    keys = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    table.insert(pa.Table.from_pylist(keys))
    kind = pa.struct([("id", pa.string()), ("n", pa.int64())])
    of_pandas = pd.Series(keys, dtype=pd.ArrowDtype(kind))
    for given in (pa.array(keys, kind), pl.Series(keys), of_pandas):
        assert table.read_keys(given).sort_by("id").to_pylist() == keys


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ([1, None], "key is null or empty: column='n' rows=[1]"),
        (pd.Series([1, None], dtype="Int32"), "key is null or empty: column='n' rows=[1]"),
        ([1.5], "another type than the table's: column='n' expected='int32' found='double'"),
        (["1"], "another type than the table's: column='n' expected='int32' found='string'"),
        (np.array([1]), "another type than the table's: column='n' expected='int32' found='int64'"),
        ([1, "b"], "values cannot be taken over as Arrow: column='n' found='list' reason="),
        ({1}, "keys come in a list, or as rows: expected='list(keys)' found='set'"),
        ({1: 2}.keys(), "expected='list(keys)' found='dict_keys'"),
        ((n for n in (1, 2)), "expected='list(keys)' found='generator'"),
        (1, "keys come in a list, or as rows: expected='[key]' found='int'"),
        ("1", "expected='[key]' found='str'"),
        ([{"n": 1}], "expected='pyarrow.Table.from_pylist(keys)' found='a list of dicts'"),
        ({"n": 1}, "not a column of a dict of rows: column='n' expected="),
        ({"n": [1], "day": []}, "columns of rows are equally long: found={'n': 1, 'day': 0}"),
        (
            pl.LazyFrame({"n": [1]}),
            "these are no rows yet: expected='.collect()' found='LazyFrame'",
        ),
        (None, "these are no rows"),
    ],
)
def test_what_are_no_keys_is_told_with_the_way(
    numbers: metatable.Table, keys: Any, told: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        numbers.read_keys(keys)


def test_keys_of_several_columns_are_rows(table_uri: str) -> None:
    made = metatable.create(table_uri, SCHEMA, key=["id"], partition_by="at", storage_options=FAST)
    told = """keys of this table are told by several columns: expected='pyarrow.table({"id": […],"""
    for ask in (made.read_keys, made.tag_locations, made.filter_exists, made.explain, made.delete):
        with pytest.raises(UsageError, match=re.escape(told)):
            ask(["a"])


def test_the_partition_may_be_the_key(table_uri: str) -> None:
    made = metatable.create(table_uri, SCHEMA, key="id", partition_by="id", storage_options=FAST)
    made.insert(FRAME)
    assert made.read_keys(["a", "zz"])["id"].to_pylist() == ["a"]


def test_rows_may_be_a_dict_of_columns(table: metatable.Table) -> None:
    done = table.upsert({"id": ["b", "c"], "fare": pl.Series([7.0, 8.0])})
    assert (done.inserted, done.updated) == (1, 1)
    table.merge({"id": ["a"], "fare": [4]})
    table.insert({"id": ["d"], "fare": [5], "tip": [1]}, evolve=True)
    assert [row["fare"] for row in held(table)] == [4.0, 7.0, 8.0, 5.0]
    assert held(table)[0]["at"] == DAYS[0]
    assert table.schema.field("tip").type == pa.int64()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"id": "a"}], "these are no rows: expected='a dict of columns, or pyarrow.Table.from_py"),
        (["a"], "these are no rows: expected='a Table, RecordBatch or reader, a dict of columns"),
        ({"id": "a"}, "not a column of a dict of rows: column='id'"),
        ({7: ["a"]}, "not a column of a dict of rows: column=7"),
        ({"id": ["a"], "fare": [1 << 60]}, "cannot be taken over as Arrow: column='fare'"),
        ({"id": ["a"], "nope": [1]}, "column is not in the table: column='nope'"),
        (pl.LazyFrame({"id": ["a"]}), "these are no rows yet: expected='.collect()'"),
    ],
)
def test_what_are_no_rows_is_told_with_the_way(
    table: metatable.Table, rows: Any, told: str
) -> None:
    for verb in (table.insert, table.upsert, table.merge, table.insert_overwrite):
        with pytest.raises(UsageError, match=re.escape(told)):
            verb(rows)
