"""Hudi on Spark lists our savepoints, and cleans and archives around them; then we go back."""

from __future__ import annotations

from typing import Any

import metatable
from tests.hudi_spark.histories import FAST, Kind, rows
from tests.hudi_spark.session import PEACEFUL, HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.model import arrow, completed, data_files, scanned

NAME = "ours"


def called(hudi: HudiOnSpark, uri: str, call: str) -> list[dict[str, Any]]:
    """What a procedure of Hudi's answers of the table."""
    for name, value in PEACEFUL.items():
        hudi.session.conf.set(name, value)
    hudi.session.sql(f"DROP TABLE IF EXISTS {NAME}")
    hudi.session.sql(f"CREATE TABLE {NAME} USING hudi LOCATION '{uri}'")
    rows: list[dict[str, Any]] = hudi.sql(f"CALL {call.format(table=NAME)}").to_pylist()
    return rows


def test_a_savepoint_holds_against_their_cleaner_and_archive(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    kind = Kind("record", "global")
    table = kind.create(table_uri)
    for number in range(4):
        table.upsert(arrow(rows(number, 40, number)))
    kept, version, then = table.instant, table.version, scanned(table)
    table.savepoint("kept", note="before the change")
    listed = called(hudi, table_uri, "show_savepoints(table => '{table}')")
    assert [one["savepoint_time"] for one in listed] == [kept]
    for number in range(4, 9):
        table.upsert(arrow(rows(number, 40, number)))
    expected = scanned(table)
    before = len(data_files(table_uri))
    called(hudi, table_uri, "run_clean(table => '{table}', retain_commits => 1)")
    assert len(data_files(table_uri)) < before, "nothing was cleaned"
    assert as_rows(hudi.read(table_uri)) == expected
    assert scanned(table, version) == then, "files of the savepoint are gone"
    commits = completed(table_uri)
    called(
        hudi,
        table_uri,
        "archive_commits(table => '{table}', min_commits => 2, max_commits => 3,"
        " retain_commits => 1, enable_metadata => false)",
    )
    archived = commits - completed(table_uri)
    assert archived, "nothing was archived"
    assert max(archived) < (kept or "")
    assert as_rows(hudi.read(table_uri)) == expected
    again = metatable.open(table_uri, storage_options=FAST)
    assert scanned(again) == expected
    again.restore(savepoint="kept")
    assert scanned(again) == then == as_rows(hudi.read(table_uri))
    again.upsert(arrow(rows(0, 3, 50)))
    assert scanned(again) == as_rows(hudi.read(table_uri))
    told = again.verify().findings
    assert sorted(one.where.split("/")[1].split(".")[0] for one in told) == sorted(archived)
    assert {one.code for one in told} == {"commit-missing"}
