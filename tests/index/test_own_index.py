"""An index from outside: where it says that rows go, they go, and what it says wrong is told."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable import Table, UsageError
from tests.index.by_letter import ByLetter
from tests.model import SCHEMA, Model, Row, arrow, check

FAST = {"durable": "false"}


def rows(keys: str, v: int = 0) -> list[Row]:
    return [
        {"id": f"{key}{place % 3}", "city": ("ny", "sf")[place % 2], "v": v, "ts": v}
        for place, key in enumerate(keys)
    ]


@pytest.fixture
def table(table_uri: str) -> Table:
    return metatable.create(
        table_uri, SCHEMA, key="id", partition_by="city", index="by_letter", storage_options=FAST
    )


def test_rows_go_where_the_index_says(table: Table) -> None:
    model = Model(is_global=False, ordering=False)
    for given in (rows("abcabc"), rows("abcxyz", 1)):
        table.upsert(arrow(given))
        model.upsert(given)
    assert {one.file_id for one in table.files()} == set("abcxyz")
    check(table, model, rows("abcabcabcxyzuvw"))


def test_nothing_is_due_by_columns_where_the_index_places_rows(table_uri: str) -> None:
    """Inserts go by them within the file groups, but no clustering does."""
    table = metatable.create(
        table_uri, SCHEMA, key="id", index="by_letter", options={"cluster_by": "v"}
    )
    table.upsert(arrow(rows("abcxyz")))
    assert [one for one in table.due() if one.service == "cluster"] == []
    with pytest.raises(UsageError, match="the index tells which file a row goes to"):
        table.cluster()


class Placing:
    def __init__(self, told: Any) -> None:
        self.told = told

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> Any:
        return self.told(len(keys))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lambda count: (np.arange(count - 1), pa.array(["a"] * (count - 1))), "not placed all"),
        (lambda count: (np.arange(1, count), pa.array(["a"] * (count - 1))), "not placed all"),
        (lambda count: (np.arange(count) * 2, pa.array(["a"] * count)), "not placed all"),
        (lambda count: (np.arange(count) * 1.0, pa.array(["a"] * count)), "not placed all"),
        (lambda count: (np.arange(count), pa.array(["a"])), "not placed all"),
        (lambda count: (np.arange(count)[::-1], pa.array(["a"] * count)), "not placed all"),
        (lambda count: (np.arange(count), pa.array(["a_b"] * count)), "makes no file name"),
        (lambda count: (np.arange(count), pa.array(["../a"] * count)), "makes no file name"),
        (lambda count: (np.arange(count), pa.array([""] * count)), "makes no file name"),
        (lambda count: (np.arange(count), pa.array([None] * count, pa.string())), "no file name"),
        (lambda count: (np.arange(count), [None] * count), "no file name"),
        (lambda count: (np.arange(count), pa.array([["a"]] * count)), "are no texts.*list"),
        (lambda count: (np.arange(count), 7), "are no texts.*int"),
    ],
    ids=[
        "the last row short",
        "the first row short",
        "rows that are not there",
        "halves",
        "an id short",
        "in no order",
        "underscore",
        "a path",
        "empty",
        "null",
        "a list of nulls",
        "lists",
        "a number",
    ],
)
@pytest.mark.parametrize("tags", [True, False], ids=["tagged", "placed"])
def test_a_placement_that_cannot_be_is_refused_before_anything_is_written(
    table: Table, told: Any, says: str, tags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ByLetter, "where", Placing(told))
    if not tags:
        monkeypatch.setattr(ByLetter, "tag", _nowhere)
    with pytest.raises(UsageError, match=says):
        table.upsert(arrow(rows("abc")))
    assert table.version == 1


class InForm:
    """Letters, as somebody may give them."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> Any:
        return list(range(len(keys))), self.form(pc.utf8_slice_codeunits(keys, 0, 1))


@pytest.mark.parametrize(
    "form",
    [
        lambda ids: ids.to_pylist(),
        lambda ids: np.array(ids, dtype=object),
        lambda ids: pa.chunked_array([ids[:1], ids[1:]]),
        lambda ids: ids.cast(pa.large_string()),
        lambda ids: ids.cast(pa.string_view()),
        lambda ids: ids.dictionary_encode(),
    ],
    ids=["list", "numpy", "chunks", "large", "view", "dictionary"],
)
def test_what_a_placement_says_is_taken_in_any_form(
    table: Table, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ByLetter, "where", InForm(form))
    for version in (2, 3):
        table.upsert(arrow(rows("abc", version)))
        assert sorted(one.file_id for one in table.files()) == ["a", "b", "c"]
    assert table.scan().count() == 3
    assert table.verify().findings == ()


def _nowhere(self: Any, engine: Any, given: Any, snapshot: Any) -> Any:
    from metatable.index.locations import LOCATION_FIELD  # noqa: PLC0415

    return engine.extend(given, [], _nothing, LOCATION_FIELD)


def _nothing(batches: Any, counters: Any) -> Any:
    from metatable.index.locations import LOCATION, LOCATION_FIELD  # noqa: PLC0415

    for batch in batches:
        nulls = pa.nulls(batch.num_rows, LOCATION)
        yield pa.RecordBatch.from_arrays([nulls], schema=LOCATION_FIELD)


class Twice:
    """Every row to two groups, as while a bucket is split."""

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> Any:
        return np.repeat(np.arange(len(keys)), 2), pa.array(["old", "new"] * len(keys))


def test_a_row_may_go_to_two_groups(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByLetter, "where", Twice())
    table.upsert(arrow(rows("abcdef")))
    groups = [(one.partition_path, one.file_id, one.row_count) for one in table.files()]
    expected = [(f"city={city}", name, 3) for city in ("ny", "sf") for name in ("new", "old")]
    assert sorted(groups) == expected


def test_an_index_that_nobody_registered_is_told_with_those_that_are(table_uri: str) -> None:
    with pytest.raises(UsageError, match=r"no such index.*by_lettre.*metadata_bloom"):
        metatable.create(table_uri, SCHEMA, key="id", index="by_lettre")


@pytest.mark.parametrize("adopts", [True, False])
def test_groups_by_key_are_not_found_over_partitions(table_uri: str, adopts: bool) -> None:
    """A key's group lies in a partition: in a table of unique keys nobody could tell in which."""
    make: Any = partial(metatable.create, table_uri, SCHEMA, key="id", partition_by="city")
    options = {"key_scope": "global"}
    if adopts:
        make(index="record", options=options)
        make, options = partial(metatable.adopt, table_uri), {}
    with pytest.raises(UsageError, match=r"one table partition.*option='key_scope'"):
        make(index=ByLetter.name, options=options)
