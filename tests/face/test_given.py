"""Rows and keys as users have them: a pandas index, plain values, a dict of columns; and the text of
a table."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import metatable
from metatable.storage import cache

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
