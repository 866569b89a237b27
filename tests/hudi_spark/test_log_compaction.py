"""Hudi on Spark and compactions of logs: it reads tables of ours also while one waits, carries out
what we have planned, and comes to the rows that we come to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import metatable
from metatable import Table
from tests.compaction.test_log_compaction import delete, filled, rows, upsert
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.hudi_spark.writing import BUCKETS, options_for
from tests.model import arrow, read_by_hudi, scanned

ON_READ = {"hoodie__datasource__write__table__type": "MERGE_ON_READ"}
AT_ONCE = {"hoodie__compact__inline": "true", "hoodie__compact__inline__max__delta__commits": "1"}


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("kind", ["record", "metadata_bloom", "bucket"])
def test_hudi_reads_while_a_compaction_waits_and_after_it(
    hudi: HudiOnSpark, table_uri: str, kind: str, log_format: str
) -> None:
    table, model = filled(table_uri, kind, log_format=log_format)

    def equal() -> None:
        assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)

    equal()
    first = table.compact_logs(ratio=0, schedule=True).plan
    equal()
    last = upsert(table, model, rows(10, 40, 5)).instant
    delete(table, model, rows(20, 24))
    equal()
    second = table.compact_logs(ratio=0, schedule=True).plan
    equal()
    table.compact_logs(plan=first)
    equal()
    changed = len(as_rows(hudi.since(table_uri, first)))
    assert last is not None
    if second:
        upsert(table, model, rows(30, 36, 7))
        equal()
        table.compact_logs(plan=second)
    equal()
    assert read_by_hudi(table_uri) == model.listed()
    assert changed == 26
    assert len(as_rows(hudi.since(table_uri, last))) == (6 if second else 0)
    version, before = table.version, model.listed()
    table.compact_logs(ratio=0, schedule=True)
    upsert(table, model, rows(0, 9, 9))
    table.restore(version)
    assert as_rows(hudi.read(table_uri)) == before == scanned(table)


@pytest.mark.parametrize("kind", ["record", "metadata_bloom"])
def test_hudi_reads_partitions_that_were_overwritten_while_a_compaction_waits(
    hudi: HudiOnSpark, table_uri: str, kind: str
) -> None:
    table, model = filled(table_uri, kind)

    def equal() -> None:
        assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)

    plan = table.compact_logs(ratio=0, schedule=True).plan
    upsert(table, model, rows(10, 20, 3))
    was = model.rows
    table.delete_partition({"city": "ny"})
    model.overwrite([], ["ny"])
    equal()
    table.rollback()
    model.rows = was
    equal()
    given = [one for one in rows(0, 12, 4) if one["city"] == "ny"]
    table.insert_overwrite(arrow(given))
    model.overwrite(given)
    equal()
    upsert(table, model, rows(4, 24, 5))
    equal()
    table.compact_logs(plan=plan)
    equal()
    assert read_by_hudi(table_uri) == model.listed()


def test_hudi_reads_groups_that_were_written_anew_while_a_compaction_waits(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    """By a row that no log may bring, on top of others that lie on what is to come."""
    table, model = filled(table_uri, "bucket", bucket_count=1)
    table.compact_logs(ratio=0, schedule=True)
    upsert(table, model, rows(10, 20, 3))
    delete(table, model, rows(12, 14))
    upsert(table, model, rows(12, 13, 9))
    assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)
    upsert(table, model, rows(10, 40, 11))
    table.compact_logs(ratio=0)
    assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)


def test_a_slice_whose_rows_are_all_deleted_is_an_empty_file(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    table, model = filled(table_uri)
    delete(table, model, rows(0, 40))
    table.compact_logs(ratio=0)
    assert as_rows(hudi.read(table_uri)) == [] == scanned(table)
    upsert(table, model, rows(3, 9, 4))
    assert as_rows(hudi.read(table_uri)) == model.listed() == scanned(table)


def test_hudi_carries_out_what_we_have_planned(hudi: HudiOnSpark, table_uri: str) -> None:
    table, model = filled(table_uri)
    plan = table.compact_logs(ratio=0, schedule=True).plan
    upsert(table, model, rows(10, 40, 5))
    copy = copied(table)
    told = options_for(metatable.open(copy), **ON_READ)
    options = ",".join(f"{name}={value}" for name, value in told.items() if "," not in value)
    hudi.sql(
        f"call run_compaction(op => 'run', path => '{copy}', timestamp => {plan},"
        f" options => '{options}')"
    )
    assert Path(copy, f".hoodie/{plan}.commit").is_file()
    assert as_rows(hudi.read(copy)) == model.listed() == read_by_hudi(copy)
    table.compact_logs(plan=plan)
    assert as_rows(hudi.read(table_uri)) == model.listed()
    ours, theirs = (base_files(one, plan) for one in (table_uri, copy))
    assert ours == theirs


@pytest.mark.parametrize("kind", ["metadata_bloom", "bucket"])
def test_a_copy_compacted_by_hudi_equals_ours(hudi: HudiOnSpark, table_uri: str, kind: str) -> None:
    table, model = filled(table_uri, kind)
    copy = copied(table)
    index = BUCKETS | {"hoodie.bucket.index.num.buckets": "2"} if kind == "bucket" else {}
    told = options_for(metatable.open(copy), **ON_READ, **AT_ONCE) | index
    for number in range(3):
        given = rows(number * 7, number * 7 + 20, 5 + number)
        upsert(table, model, given)
        table.compact_logs(ratio=0)
        hudi.write(arrow(given), copy, told)
        assert as_rows(hudi.read(copy)) == model.listed() == as_rows(hudi.read(table_uri))
        assert read_by_hudi(copy) == model.listed() == read_by_hudi(table_uri)


def copied(table: Table, name: str = "copy") -> str:
    """A copy with the times of its files: Hudi goes by them."""
    copy = f"{table.uri}-{name}"
    shutil.copytree(table.uri, copy)
    return copy


def base_files(uri: str, instant: str) -> list[tuple[str, list[object]]]:
    """Of each group the rows of the base file of this instant, but for the file's name."""
    found = []
    for path in Path(uri).rglob(f"*_{instant}.parquet"):
        held = pq.ParquetFile(path).read().drop_columns(["_hoodie_file_name"])
        told = held.sort_by("_hoodie_record_key").to_pylist()
        found.append((f"{path.parent.name}/{path.name.partition('_')[0]}", told))
    return sorted(found)
