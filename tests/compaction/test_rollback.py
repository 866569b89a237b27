"""Rollback: the last data commit is undone, in our versions and on Hudi's timeline."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable import Table, UsageError
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.store import Store
from tests.model import SCHEMA, Model, Row, arrow, check, completed, data_files, scanned

pytestmark = pytest.mark.in_turn("table")


def rows(first: int, last: int, v: int, city: str | None = None) -> list[Row]:
    return [
        {"id": f"k{number:03}", "city": city or ("ny", "sf")[number % 2], "v": v, "ts": None}
        for number in range(first, last)
    ]


@pytest.fixture(params=["record", "metadata_bloom", "record-avro", "metadata_bloom-parquet"])
def table(request: pytest.FixtureRequest, table_uri: str) -> Table:
    """Behind a dash the format of logs, of a merge-on-read table."""
    index, _, log_format = request.param.partition("-")
    more = {"table_type": "mor", "log_format": log_format} if log_format else {}
    return metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"file_rows": 5, "key_scope": "global", **more},
        storage_options={"durable": "false"},
    )


@pytest.fixture
def model() -> Model:
    return Model(is_global=True, ordering=False)


def test_a_rollback_brings_back_rows_index_and_files_from_before_the_commit(
    table: Table, model: Model
) -> None:
    table.insert(arrow(rows(0, 20, 1)))
    model.upsert(rows(0, 20, 1))
    files, done = data_files(table.uri), completed(table.uri)
    undone = table.upsert(arrow(rows(10, 15, 2, "la") + rows(15, 30, 2)))
    result = table.rollback()
    assert result.version == undone.version + 1
    assert undone.instant is not None
    assert undone.instant in result.reason
    assert data_files(table.uri) == files
    assert completed(table.uri) == done
    assert not list(Path(table.uri, ".hoodie").glob(f"{undone.instant}*"))
    check(table, model, rows(0, 40, 0))


def test_a_rollback_after_a_compaction_takes_the_compaction_back_as_well(
    table: Table, model: Model
) -> None:
    table.insert(arrow(rows(0, 20, 1)))
    model.upsert(rows(0, 20, 1))
    before = table.describe().metadata
    table.delete(arrow(rows(0, 5, 0)))
    table.compact(major=True)
    table.compact(major=True, partitions=["column_stats"], buckets=[1])
    table.rollback()
    assert table.describe().metadata == before
    check(table, model, rows(0, 30, 0))


def test_a_compaction_from_before_the_commit_stays(table: Table, model: Model) -> None:
    table.insert(arrow(rows(0, 20, 1)))
    table.upsert(arrow(rows(10, 25, 2)))
    table.compact(major=True)
    model.upsert(rows(0, 20, 1))
    model.upsert(rows(10, 25, 2))
    before = table.describe().metadata
    table.delete(arrow(rows(0, 25, 0)))
    table.rollback()
    assert table.describe().metadata == before
    check(table, model, rows(0, 30, 0))


def test_commits_are_undone_one_after_the_other_back_to_the_empty_table(
    table: Table, model: Model
) -> None:
    for step in range(3):
        table.upsert(arrow(rows(step * 5, step * 5 + 10, step)))
        model.upsert(rows(step * 5, step * 5 + 10, step))
        if step == 1:
            table.compact(major=True)
    for _ in range(3):
        table.rollback()
        model.rollback()
        check(table, model, rows(0, 30, 0))
    with pytest.raises(UsageError, match="there is no commit to roll back"):
        table.rollback()
    assert data_files(table.uri) == []
    assert completed(table.uri) == set()


def test_after_a_rollback_commits_go_on_with_later_instants(table: Table, model: Model) -> None:
    table.insert(arrow(rows(0, 10, 1)))
    undone = table.insert(arrow(rows(10, 20, 1)))
    table.rollback()
    again = table.insert(arrow(rows(10, 20, 2)))
    assert again.instant is not None
    assert undone.instant is not None
    assert again.instant > undone.instant
    assert again.inserted == 10
    model.upsert(rows(0, 10, 1))
    model.upsert(rows(10, 20, 2))
    check(table, model, rows(0, 30, 0))
    table.rollback()
    model.rollback()
    check(table, model, rows(0, 30, 0))


def test_a_rolled_back_instant_is_withdrawn_for_ever(table: Table) -> None:
    instants = []
    for step in range(3):
        instants.append(table.upsert(arrow(rows(step, step + 5, step))).instant)
        table.rollback()
    newest = load_newest(Store(table.uri))
    assert newest is not None
    assert list(newest.withdrawn) == instants


def test_versions_before_the_undone_commit_stay_readable(table: Table) -> None:
    first = table.insert(arrow(rows(0, 10, 1)))
    expected = scanned(table)
    table.upsert(arrow(rows(5, 15, 2)))
    table.rollback()
    assert scanned(table, first.version) == expected
    asked = pa.table({"id": ["k001", "k012"]})
    found = table.tag_locations(asked, version=first.version)["_location"].to_pylist()
    assert [place is not None for place in found] == [True, False]


def test_the_history_keeps_the_undone_commit_and_tells_what_undid_it(table: Table) -> None:
    undone = table.insert(arrow(rows(0, 10, 1)))
    table.rollback()
    newest, before, _ = table.history()
    assert (newest.operation, newest.summary) == ("rollback", {"undone_version": undone.version})
    assert (before.operation, before.instant) == ("insert", undone.instant)


def test_nothing_is_rolled_back_in_a_new_table(table: Table) -> None:
    with pytest.raises(UsageError, match="there is no commit to roll back"):
        table.rollback()
    assert table.version == 1
