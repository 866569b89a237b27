"""Rows that tasks take by number are written as those that they are dealt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metatable
from metatable.engine import local
from metatable.write import held_rows as held
from metatable.write.task_rows import TaskRows
from tests.long import examples

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("value", pa.int64())])
CITIES = ("Ulm", "Bonn", "Jena")


def _create(path: Path, **options: object) -> metatable.Table:
    return metatable.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options={"file_rows": 10, "stats_columns": 0, **options},
        storage_options={"durable": "false"},
    )


def _rows(keys: list[int], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    cities = [CITIES[place] for place in rng.integers(0, len(CITIES), len(keys)).tolist()]
    values = rng.integers(0, 1000, len(keys)).tolist()
    return pa.table([[f"key-{key:04}" for key in keys], cities, values], schema=SCHEMA)


def _told(table: metatable.Table) -> list[dict[str, Any]]:
    names = ["_hoodie_partition_path", *SCHEMA.names]
    found = table.scan(names).to_arrow().sort_by("id").to_pylist()
    assert all(row.pop("_hoodie_partition_path").endswith(row["city"]) for row in found)
    return found


def _counts(told: metatable.WriteResult) -> tuple[Any, ...]:
    return told.inserted, told.updated, told.deleted, told.moved, told.files


def _played(
    path: Path, steps: list[tuple[str, list[int]]], cuts: int, scope: str, least: int
) -> tuple[Any, ...]:
    table, counts = _create(path, key_scope=scope), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "LEAST_ROWS", least)
        patch.setattr(held, "LEAST_ROWS_ALONE", least)
        patch.setattr("metatable.engine.partitions.PARTITION_ROWS", 5)
        for seed, (verb, keys) in enumerate(steps):
            rows = _rows(keys, seed)
            if cuts:
                each = max(1, len(rows) // cuts)
                rows = pa.concat_tables(
                    [rows.slice(at, each) for at in range(0, len(rows), each)] or [rows]
                )
            counts.append(_counts(getattr(table, verb)(rows)))
    assert table.verify().findings == ()
    assert scope == "partition" or _told(table) == _expected(steps)
    return counts, _told(table)


def _expected(steps: list[tuple[str, list[int]]]) -> list[dict[str, Any]]:
    """Of keys that are the table's, by a plain dict."""
    held: dict[str, dict[str, Any]] = {}
    for seed, (verb, keys) in enumerate(steps):
        for row in _rows(keys, seed).to_pylist():
            held.pop(row["id"], None)
            held |= {row["id"]: row} if verb == "upsert" else {}
    return [held[key] for key in sorted(held)]


KEYS = st.lists(st.integers(0, 60), min_size=1, max_size=50, unique=True)
STEPS = st.lists(st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), KEYS), max_size=4)


@settings(max_examples=examples(8, 25), deadline=None)
@given(STEPS, st.integers(0, 3), st.sampled_from(["global", "partition"]))
def test_rows_taken_by_number_are_written_as_those_dealt(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, list[int]]],
    cuts: int,
    scope: str,
) -> None:
    paths = [tmp_path_factory.mktemp(name) / "table" for name in ("held", "dealt")]
    assert _played(paths[0], steps, cuts, scope, 1) == _played(
        paths[1], steps, cuts, scope, 1 << 40
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TaskRows | None]:
    """What each commit was told of rows that stay in the process, be they few or not."""
    told: list[TaskRows | None] = []

    def spied(*given: Any) -> TaskRows | None:
        told.append(held.held_rows(*given))
        return told[-1]

    monkeypatch.setattr("metatable.write.commit_pass.held_rows", spied)
    monkeypatch.setattr(held, "LEAST_ROWS", 1)
    return told


def test_few_rows_of_one_task_are_not_dealt(
    tmp_path: Path, asked: list[TaskRows | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "LEAST_ROWS", 1 << 40)
    monkeypatch.setattr(local, "_processors", lambda: 2)
    table = _create(tmp_path / "table")
    table.upsert(_rows([1], 1))
    assert asked[-1] is not None
    table.upsert(_rows([*range(30)], 2))  # of three cities, each another file group's
    assert asked[-1] is None
    assert _told(table) == _rows([*range(30)], 2).to_pylist()


@pytest.mark.parametrize("most", ["MOST_ROWS", "COPIED_BYTES", "memory"])
def test_rows_beyond_a_limit_are_dealt(
    tmp_path: Path, most: str, asked: list[TaskRows | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _rows(list(range(100)), 1)
    two = pa.concat_tables([rows.slice(50), rows.slice(0, 50)])
    table = _create(tmp_path / "table")
    table.upsert(two)
    assert asked[-1] is not None
    if most == "memory":
        monkeypatch.setattr("metatable.engine.spill.Hand.is_on_disk", True)
    else:
        monkeypatch.setattr(held, most, 99)
        monkeypatch.setattr("metatable.engine.partitions.PARTITION_ROWS", 50)  # in two pieces
    assert table.upsert(two).updated == 100
    assert asked[-1] is None
    assert _told(table) == rows.sort_by("id").to_pylist()


@pytest.mark.parametrize("most", [99, 1 << 20])
def test_rows_in_the_order_of_wide_columns_are_dealt(
    tmp_path: Path, most: int, asked: list[TaskRows | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of a column are made in one piece, which Arrow bounds by 2 GiB."""
    monkeypatch.setattr(held, "MOST_SORTED_BYTES", most)
    table, rows = _create(tmp_path / "table"), _rows(list(range(100)), 1)
    table.bulk_insert(rows, sort_by=["value", "city"])
    assert [one is None for one in asked] == [most == 99]
    assert _told(table) == rows.sort_by("id").to_pylist()
