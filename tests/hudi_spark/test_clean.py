"""Hudi on Spark reads the same rows before, while and after a table is cleaned and archived."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import dying
from tests.hudi_spark.histories import FAST, Kind, history, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import EVERY_INDEX, as_rows
from tests.model import Model, arrow, completed

KEEP = 3


def grown(uri: str, kind: Kind) -> tuple[metatable.Table, Model]:
    table, model = kind.create(uri, timeline_commits=KEEP, lease_seconds=0), kind.model
    for _ in history(table, model):
        pass
    return table, model


@EVERY_INDEX
def test_hudi_reads_the_same_rows_after_a_clean(
    hudi: HudiOnSpark, table_uri: str, kind: Kind
) -> None:
    table, model = grown(table_uri, kind)
    assert as_rows(hudi.read(table_uri)) == model.listed()
    instants = sorted(completed(table_uri))
    then = as_rows(hudi.as_of(table_uri, instants[-2]))
    table.clean(versions=2, hours=0)
    assert sorted(completed(table_uri)) == instants[-KEEP:]
    assert len(instants) > KEEP
    assert as_rows(hudi.read(table_uri)) == model.listed()
    assert as_rows(hudi.as_of(table_uri, instants[-2])) == then
    late = {row["id"] for row in hudi.since(table_uri, instants[-2]).to_pylist()}
    if hudi.is_old and kind == Kind("bucket"):  # its own fault: test_reads.py
        assert late < {row["id"] for row in rows(70, 95)}
    else:
        assert late == {row["id"] for row in rows(70, 95)}
    for number in range(3):
        given = rows(number, 40 + number, 9 + number)
        table.upsert(arrow(given))
        model.upsert(given)
        table.clean(versions=1, hours=0)
        assert as_rows(hudi.read(table_uri)) == model.listed()


@pytest.mark.parametrize(
    "where",
    [
        r"delete .*\.parquet",
        r"delete .*\.requested",
        r"delete .*\d\.inflight",
        r"delete .*\.commit",
    ],
    ids=["deleting", "requested", "inflight", "completed"],
)
def test_a_clean_that_died_shows_hudi_nothing_else(
    hudi: HudiOnSpark, table_uri: str, where: str
) -> None:
    table, model = grown(table_uri, Kind("record", "global"))
    with dying(table_uri, where) as store:
        twin = metatable.open(table_uri, FAST)
        twin._store = store
        twin.clean(versions=1, hours=0)
    assert as_rows(hudi.read(table_uri)) == model.listed()
    with Transaction.begin(Store(table_uri, FAST)):
        pass
    assert as_rows(hudi.read(table_uri)) == model.listed()
    table.clean(versions=1, hours=0)
    assert as_rows(hudi.read(table_uri)) == model.listed()


def test_a_dead_writer_s_files_never_come_to_light(hudi: HudiOnSpark, table_uri: str) -> None:
    """Not those that lie there when its commit is passed by the archive, nor late ones."""
    table, model = grown(table_uri, Kind("record", "global"))
    before = set(Path(table_uri).rglob("*.parquet"))
    with dying(table_uri, r"create .*/manifest/\d+\.json") as store:
        write(store, LocalEngine(1), arrow(rows(0, 95, 77)), "upsert")
    late = {path: path.read_bytes() for path in set(Path(table_uri).rglob("*.parquet")) - before}
    assert late
    for _ in range(3):
        with Transaction.begin(Store(table_uri, FAST)):
            pass
    for path, body in late.items():
        path.write_bytes(body)
    for number in range(2 * KEEP):
        given: pa.Table = arrow(rows(0, 5, 100 + number))
        table.upsert(given)
        model.upsert(rows(0, 5, 100 + number))
        table.clean(versions=1, hours=0)
        assert as_rows(hudi.read(table_uri)) == model.listed()
    assert not any(path.exists() for path in late)
