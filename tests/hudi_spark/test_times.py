"""Hudi 1.x and logs of a group that was written anew: of a table of version 6 it tells by the times
of files which base file they lie on, and in the zone of its JVM. 0.15.0 goes by names, as we do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.storage import clock
from tests.hudi_spark.histories import FAST
from tests.hudi_spark.session import HudiOnSpark

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@contextmanager
def zone(hudi: HudiOnSpark, name: str) -> Iterator[None]:
    """Of the JVM, for as long as the block lasts."""
    jvm = hudi.session._jvm
    assert jvm is not None
    zones = jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(name))
    try:
        yield
    finally:
        zones.setDefault(before)


def found(hudi: HudiOnSpark, uri: str) -> dict[str, int]:
    return {row["id"]: row["v"] for row in hudi.read(uri).to_pylist()}


def made(uri: str) -> Table:
    """A table whose small file groups without logs are written anew for new keys."""
    return metatable.create(uri, SCHEMA, key="id", table_type="mor", storage_options=FAST)


def upsert(table: Table, **values: int) -> str:
    rows = [{"id": name, "v": value} for name, value in values.items()]
    instant = table.upsert(pa.Table.from_pylist(rows, SCHEMA)).instant
    assert instant is not None
    return instant


def compacted(uri: str) -> Table:
    """A group whose first base file has a log, and whose last one has none."""
    table = made(uri)
    upsert(table, a=1)
    upsert(table, a=2)
    table.compact_logs(ratio=0)
    upsert(table, a=3, b=3)
    return table


def written_at(uri: str, monkeypatch: pytest.MonkeyPatch, anew: datetime, told: datetime) -> Table:
    """A group of noon, written anew at a moment that its commit's file tells otherwise, and a log
    on that."""
    monkeypatch.setattr(clock, "now", lambda: NOON)
    table = made(uri)
    first = upsert(table, a=1)
    monkeypatch.setattr(clock, "now", lambda: anew)
    second = upsert(table, a=2, b=2)
    upsert(table, a=3)
    for instant, moment in ((first, NOON), (second, told)):
        os.utime(Path(uri, ".hoodie", f"{instant}.deltacommit"), (moment.timestamp(),) * 2)
    assert len(list(Path(uri).glob("*.parquet"))) == 2
    assert len(list(Path(uri).glob(".*.log.*"))) == 1
    return table


def test_east_of_utc_old_logs_lie_on_new_base_files(hudi: HudiOnSpark, table_uri: str) -> None:
    table = compacted(table_uri)
    with zone(hudi, "UTC"):
        assert found(hudi, table_uri) == {"a": 3, "b": 3}
    with zone(hudi, "Asia/Tokyo"):
        assert found(hudi, table_uri) == {"a": 3 if hudi.is_old else 2, "b": 3}
        table.clean(versions=1, hours=0)
        assert found(hudi, table_uri) == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    ("where", "anew", "told"),
    [
        ("America/New_York", timedelta(hours=6), timedelta(hours=6, milliseconds=300)),
        ("UTC", timedelta(seconds=6, milliseconds=200), timedelta(seconds=6)),
    ],
    ids=["west of UTC", "whole seconds"],
)
def test_new_logs_lie_on_old_base_files_where_a_commit_seems_to_end_before_it_begins(
    hudi: HudiOnSpark,
    table_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    anew: timedelta,
    told: timedelta,
) -> None:
    """West of UTC; and of a quick commit on a store that tells whole seconds, in any zone."""
    table = written_at(table_uri, monkeypatch, NOON + anew, NOON + told)
    if where != "UTC":
        with zone(hudi, "UTC"):
            assert found(hudi, table_uri) == {"a": 3, "b": 2}
    with zone(hudi, where):
        assert found(hudi, table_uri) == {"a": 3 if hudi.is_old else 2, "b": 2}
        table.clean(versions=1, hours=0)
        assert found(hudi, table_uri) == {"a": 3, "b": 2}
