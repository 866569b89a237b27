"""Hudi on Spark and file groups that we have opened by logs: it reads them, puts its own logs on
them, compacts them, and carries out our plans for them. Each key is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table
from metatable.engine.local import LocalEngine
from metatable.write.commit_pass import write
from tests.compaction.test_log_compaction import delete, filled, rows, upsert
from tests.faults import dying
from tests.hudi_spark.histories import Kind, history
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_log_compaction import AT_ONCE, ON_READ, base_files, copied
from tests.hudi_spark.test_reads import as_rows
from tests.hudi_spark.writing import BUCKETS, options_for
from tests.model import arrow, scanned

LOGS = {"new_groups": "log"}
RINGS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
}
READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}


def scanned_bases(table: Table) -> list[tuple[Any, ...]]:
    return as_rows(table.scan(read_optimized=True).to_arrow())


def bases(uri: str) -> list[str]:
    return [path.name for path in Path(uri).glob("city=*/*.parquet")]


@pytest.mark.parametrize("kind", [Kind("record", "global"), Kind("bucket")], ids=str)
def test_hudi_merges_as_we_do(hudi: HudiOnSpark, table_uri: str, kind: Kind) -> None:
    table, model = kind.create(table_uri, table_type="mor", **LOGS), kind.model
    seen = {}
    for _ in history(table, model):
        assert scanned(table) == model.listed() == as_rows(hudi.read(table_uri))
        seen_by_bases = scanned_bases(table)
        assert as_rows(hudi.read(table_uri, READ_OPTIMIZED)) == seen_by_bases
        assert table.verify().findings == ()
        assert table.instant is not None
        seen[table.instant] = model.listed()
    assert len(seen_by_bases) < 10, "rows that follow their deletes, older, are in base files"
    for instant, expected in seen.items():
        assert as_rows(hudi.as_of(table_uri, instant)) == expected
    table.compact_logs(ratio=0)
    assert as_rows(hudi.read(table_uri, READ_OPTIMIZED)) == model.listed()


@pytest.mark.parametrize("kind", ["record", "bucket"])
def test_hudi_reads_while_their_first_compaction_waits(
    hudi: HudiOnSpark, table_uri: str, kind: str
) -> None:
    table, model = filled(table_uri, kind, **LOGS)

    def equal() -> None:
        assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)

    plan = table.compact_logs(schedule=True).plan
    equal()
    upsert(table, model, rows(10, 40, 5))
    delete(table, model, rows(20, 24))
    equal()
    copy = copied(table)
    told = options_for(metatable.open(copy), **ON_READ)
    options = ",".join(f"{name}={value}" for name, value in told.items() if "," not in value)
    hudi.sql(
        f"call run_compaction(op => 'run', path => '{copy}', timestamp => {plan},"
        f" options => '{options}')"
    )
    assert as_rows(hudi.read(copy)) == model.listed()
    table.compact_logs(plan=plan)
    equal()
    assert base_files(table_uri, plan) == base_files(copy, plan) != []


@pytest.mark.parametrize("kind", ["bucket", "consistent_hashing"])
def test_a_copy_upserted_and_compacted_by_hudi_equals_ours(
    hudi: HudiOnSpark, table_uri: str, kind: str
) -> None:
    rings = {"hudi_hashing_metadata": True} if kind != "bucket" else {}
    table, model = filled(table_uri, kind, **LOGS, **rings)
    copy = copied(table)
    index = RINGS if rings else BUCKETS | {"hoodie.bucket.index.num.buckets": "2"}
    told = options_for(metatable.open(copy), **ON_READ, **AT_ONCE) | index
    told["hoodie.compact.inline.max.delta.commits"] = "99"
    for number in range(2):
        given = rows(number * 7, number * 7 + 20, 5 + number)
        upsert(table, model, given)
        hudi.write(arrow(given), copy, told)
        assert as_rows(hudi.read(copy)) == model.listed() == as_rows(hudi.read(table_uri))
        assert bases(copy) == []
    given = rows(30, 50, 9)
    upsert(table, model, given)
    table.compact_logs(ratio=0)
    hudi.write(arrow(given), copy, told | {"hoodie.compact.inline.max.delta.commits": "1"})
    assert as_rows(hudi.read(copy)) == model.listed() == as_rows(hudi.read(table_uri))
    assert as_rows(hudi.read(copy, READ_OPTIMIZED)) == model.listed()
    assert len(bases(copy)) == 4, "a base file a group"


def test_hudi_undoes_a_commit_that_died_with_its_first_logs(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    table, model = filled(table_uri, "bucket", **LOGS)
    given = [{**row, "city": "la"} for row in rows(0, 6, 4)]
    with dying(table_uri, r"create .*/manifest/\d+\.json") as store:
        write(store, LocalEngine(1), arrow(given), "upsert")
    copy = copied(table)
    died = [path.name for path in Path(copy, "city=la").glob("*.log.*")]
    assert died
    assert as_rows(hudi.read(copy)) == model.listed()
    index = BUCKETS | {"hoodie.bucket.index.num.buckets": "2"}
    hudi.write(arrow(given), copy, options_for(metatable.open(copy), **ON_READ) | index)
    model.upsert(given)
    assert as_rows(hudi.read(copy)) == model.listed()
