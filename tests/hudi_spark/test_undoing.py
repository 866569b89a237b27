"""Hudi on Spark lists what we have undone, and cleans and archives after it."""

from __future__ import annotations

from pathlib import Path

import metatable
from tests.hudi_spark.histories import FAST, Kind, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.hudi_spark.test_savepoints import called
from tests.model import arrow, completed, data_files, scanned


def on_timeline(uri: str, action: str) -> list[str]:
    names = [path.name for path in Path(uri, ".hoodie").glob(f"*.{action}")]
    return sorted(name.split(".")[0] for name in names)


def test_rollbacks_and_restores_are_listed_cleaned_and_archived(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    table = Kind("record", "global").create(table_uri)
    for number in range(4):
        table.upsert(arrow(rows(number, 40, number)))
    back, undone, before = table.version, [], len(data_files(table_uri))
    for number in range(4, 8):
        table.upsert(arrow(rows(number, 40, number)))
        undone.append(str(table.instant))
        gone = len(data_files(table_uri)) - before
        table.rollback()
        assert gone > 0
    assert as_rows(hudi.read(table_uri)) == scanned(table)
    listed = called(hudi, table_uri, "show_rollbacks(table => '{table}')")
    assert sorted(one["instant"] for one in listed) == on_timeline(table_uri, "rollback")
    assert sorted(one["rollback_instant"] for one in listed) == undone
    assert {one["total_files_deleted"] for one in listed} == {gone}
    record = on_timeline(table_uri, "rollback")[0]
    told = called(
        hudi, table_uri, f"show_rollback_detail(table => '{{table}}', instant_time => '{record}')"
    )
    assert {one["rollback_instant"].strip("[]") for one in told} == {undone[0]}
    assert len(told) == gone
    for number in range(8, 11):
        table.upsert(arrow(rows(number, 40, number)))
    table.restore(back)
    assert len(on_timeline(table_uri, "restore")) == 1
    assert as_rows(hudi.read(table_uri)) == scanned(table)
    for number in range(11, 15):
        table.upsert(arrow(rows(number, 40, number)))
    expected, files = scanned(table), len(data_files(table_uri))
    called(hudi, table_uri, "run_clean(table => '{table}', retain_commits => 1)")
    assert len(data_files(table_uri)) < files, "nothing was cleaned"
    assert as_rows(hudi.read(table_uri)) == expected
    commits, rollbacks = completed(table_uri), on_timeline(table_uri, "rollback")
    called(
        hudi,
        table_uri,
        "archive_commits(table => '{table}', min_commits => 1, max_commits => 2,"
        " retain_commits => 1, enable_metadata => false)",
    )
    assert commits - completed(table_uri), "nothing was archived"
    assert len(on_timeline(table_uri, "rollback")) < len(rollbacks), "no rollback was archived"
    assert as_rows(hudi.read(table_uri)) == expected
    again = metatable.open(table_uri, storage_options=FAST)
    again.upsert(arrow(rows(0, 3, 50)))
    assert as_rows(hudi.read(table_uri)) == scanned(again)
