"""Merge-on-read, what is its own: what is written where, what readers of base files are told, rows
that come late. (Histories beside a dict, of every index: tests/index/test_logs.py; what is marked
`both_table_types` has both.)"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import metatable
from metatable import Table, UsageError
from metatable.data.file_groups.slices import LogFile
from metatable.engine.local import LocalEngine
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions import column_stats
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import TableView
from metatable.storage import unsettled
from metatable.storage.local_files import LocalFiles
from metatable.storage.store import Store
from metatable.write import groups, held_rows, new_log, planning, written_files
from metatable.write.made_group import MadeGroup
from tests.long import LONG
from tests.model import (
    SCHEMA,
    Model,
    Row,
    arrow,
    check,
    check_counts,
    listed,
    read_by_hudi,
    scanned,
)

FAST = {"durable": "false"}


def created(uri: str, index: str = "record", **given: Any) -> Table:
    options = {"small_file_bytes": 0} if index != "bucket" else {"bucket_count": 2}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        table_type="mor",
        ordering=given.pop("ordering", None),
        options=options | given,
        storage_options=FAST,
    )


def row(key: str, v: int, ts: int | None = None, city: str = "ny") -> Row:
    return {"id": key, "city": city, "v": v, "ts": ts}


@pytest.fixture
def table(table_uri: str) -> Table:
    """Three rows in a base file, one of them once more in a log."""
    table = created(table_uri)
    table.insert(arrow([row(key, 1) for key in "abc"]))
    table.upsert(arrow([row("b", 2)]))
    return table


def files(table: Table, pattern: str) -> list[str]:
    return sorted(path.name for path in Path(table.uri).glob(f"*/{pattern}"))


def logs(table: Table) -> list[str]:
    return files(table, ".*.log.*")


def test_what_comes_to_a_group_is_a_log_and_a_deltacommit(table: Table) -> None:
    [base], [log] = files(table, "*.parquet"), logs(table)
    file_id, _, instant = base.removesuffix(".parquet").split("_")
    assert log.startswith(f".{file_id}_{instant}.log.1_")
    done = [path.suffix for path in Path(table.uri, ".hoodie").glob(f"{table.instant}.*")]
    assert {*done} == {".requested", ".inflight", ".deltacommit"}
    assert read_by_hudi(table.uri) == scanned(table)
    gone = table.delete(pa.table({"id": ["a"]}))
    assert (gone.deleted, len(logs(table)), len(files(table, "*.parquet"))) == (1, 2, 1)
    assert table.scan(["id", "v"]).to_arrow().sort_by("id").to_pydict() == {
        "id": ["b", "c"],
        "v": [2, 1],
    }
    assert table.verify().findings == ()


def test_a_log_is_as_large_as_what_comes(table_uri: str) -> None:
    table = created(table_uri)
    table.insert(arrow([row(f"k{number:05}", number) for number in range(20_000)]))
    told = table.upsert(arrow([row("k00007", 1)]))
    assert (told.updated, told.files) == (1, 1)
    assert told.bytes < 4_000 < table.describe().data_bytes / 20
    assert "data.files_opened" not in told.counters


def test_files_that_logs_are_put_on_weigh_nothing(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(table_uri, file_rows=20)
    table.insert(arrow([row(f"k{number:05}", number) for number in range(400)]))
    called: list[None] = []

    def spied(*given: Any) -> Iterator[pa.RecordBatch]:
        called.append(None)
        return groups.write_groups(*given)

    monkeypatch.setattr(written_files, "write_groups", spied)
    monkeypatch.setattr(held_rows, "LEAST_ROWS_ALONE", 1 << 40)  # one task's, too, are dealt
    monkeypatch.setattr(planning, "TASK_BYTES", 10_000)
    told = table.upsert(arrow([row(f"k{number:05}", 1) for number in range(0, 400, 20)]))
    assert (told.updated, told.files) == (20, 20)
    assert 1 <= len(called) <= LocalEngine().slots


@pytest.mark.parametrize("durable", ["true", "false"])
def test_logs_wait_at_the_same_time_for_a_disk_that_takes_its_time(
    table_uri: str, durable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsettled, "_QUICK_SECONDS", -1)
    created(table_uri, file_rows=20).insert(arrow([row(f"k{one:05}", one) for one in range(80)]))
    putting: list[str] = []
    create, every = LocalFiles.create, threading.Barrier(4)

    def spied(self: LocalFiles, path: str, body: Any, **how: Any) -> bool:
        if ".log." in path:
            putting.append(threading.current_thread().name)
            if durable == "true":
                every.wait(60)
        return create(self, path, body, **how)

    monkeypatch.setattr(LocalFiles, "create", spied)
    table = metatable.open(table_uri, {"durable": durable})
    assert table.upsert(arrow([row(f"k{one:05}", 1) for one in range(0, 80, 20)])).files == 4
    assert len(putting) == 4
    assert ("metatable-request" in putting) == (durable == "true")


def test_who_reads_base_files_is_told_of_logs(table: Table) -> None:
    with pytest.raises(UsageError, match="read_optimized"):
        table.files().uris  # noqa: B018
    bases = table.files(read_optimized=True)
    assert (bases.row_count, len(bases.uris)) == (3, 1)
    assert table.files().row_count is None
    before = table.scan(["v"], read_optimized=True)
    assert before.to_arrow()["v"].to_pylist() == [1, 1, 1]
    assert before.count() == 3
    assert table.scan(["v"], version=2).to_arrow()["v"].to_pylist() == [1, 1, 1]
    assert sorted(table.scan(["v"]).to_arrow()["v"].to_pylist()) == [1, 1, 2]


def test_describe_tells_logs_and_no_rows_that_it_does_not_know(table: Table) -> None:
    facts = table.describe()
    size = sum(path.stat().st_size for path in Path(table.uri).glob("*/.*.log.*"))
    assert (facts.table_type, facts.rows, facts.log_files) == ("mor", None, 1)
    assert facts.log_bytes == size < facts.data_bytes
    assert table.scan().count() == 3


def test_rows_are_looked_up_only_of_slices_of_which_they_are_told(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = column_stats.stats_of

    def counted(entries: Entries, column: str, kind: pa.DataType, files: Any) -> pa.Table:
        asked.append(len(files))
        return real(entries, column, kind, files)

    monkeypatch.setattr(column_stats, "stats_of", counted)
    assert (table.files().row_count, table.describe().rows, sum(asked)) == (None, None, 0)
    table.insert(arrow([row("y", 9, city="sf"), row("z", 9, city="sf")]))
    table.insert(arrow([row("x", 9, city="la")]))
    newest = load_newest(Store(table.uri))
    assert newest is not None
    view = Snapshot(Store(table.uri), newest)
    slices = view.slices()
    for given in (slices, [*slices]):
        asked.clear()
        assert view.row_counts(given).tolist() == [1, -1, 2]
        assert view.row_counts(given, at_most=True).tolist() == [1, 4, 2]
        assert asked == [2, 3]


def test_a_slice_is_skipped_only_where_neither_base_nor_log_can_match(table: Table) -> None:
    table.insert(arrow([row("z", 9, city="la")]))
    kept = [len(table.files(where=[("v", "=", value)])) for value in (1, 2, 9, 5)]
    assert kept == [1, 1, 1, 0]
    assert table.scan(where=[("v", "=", 2)]).to_arrow()["id"].to_pylist() == ["b"]
    table.upsert(arrow([row("b", 7), row("z", 8, city="la")]))
    kept = [len(table.files(where=[("v", "=", value)])) for value in (7, 8, 6, 10)]
    assert kept == [1, 1, 1, 0]  # ny holds values from 1 to 7, la 9 and 8
    assert table.scan(where=[("v", "=", 2)]).count() == 0


LATE = {
    "older than the row that was deleted": [row("b", 5, 3)],
    "newer than it": [row("b", 5, 30)],
    "another key": [row("c", 5, 30)],
    "without an ordering value": [row("c", 5), row("d", 6)],
}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int64()), [1]),
        (pa.struct([("x", pa.int64())]), {"x": 1}),
        (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    ],
    ids=["list", "struct", "map"],
)
def test_rows_of_slices_with_logs_are_found_by_the_nulls_of_a_nested_column(
    table_uri: str, kind: pa.DataType, value: Any
) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("a", kind)])
    words: dict[str, Any] = {"partition_by": "city", "table_type": "mor", "storage_options": FAST}
    table = metatable.create(table_uri, schema, key="id", **words)
    cities = ["all", "none", "some"]
    for given in ([value, None, value], [value, None, None]):
        table.upsert(pa.table([["a", "b", "c"], cities, given], schema=schema))
    assert len(logs(table)) == 3
    is_null, is_not_null = metatable.col("a").is_null(), metatable.col("a").is_not_null()
    for where, ids in ((is_null, "bc"), (is_not_null, "a")):
        scan = table.scan(where=where)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == list(ids)
        assert scan.count() == len(ids)
        assert len(table.files(where)) == 3  # of nested columns no statistics are kept


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_zero_that_is_negative_is_no_older_to_any_reader(table_uri: str, kind: Any) -> None:
    """Hudi's readers put -0 below 0."""
    schema = pa.schema([("id", pa.string()), ("at", kind), ("v", pa.int64())])
    words: dict[str, Any] = {"table_type": "mor", "storage_options": FAST}
    table = metatable.create(table_uri, schema, key="id", ordering="at", **words)
    for v, at in enumerate((0.0, -0.0, 1.0)):
        table.upsert(pa.table([["a"], [at], [v]], schema=schema))
        batches = HudiTableBuilder.from_base_uri(table_uri).build().read()
        [row] = [row for batch in batches for row in batch.to_pylist()]
        assert row["v"] == table.scan().to_arrow()["v"].to_pylist()[0] == v
    assert table.describe().log_files == 1


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(1)])
def test_bytes_of_128_and_more_are_no_less_to_any_reader(table_uri: str, kind: Any) -> None:
    """Hudi's readers on the JVM take bytes for numbers from -128 to 127."""
    schema = pa.schema([("id", pa.string()), ("at", kind), ("v", pa.int64())])
    words: dict[str, Any] = {"table_type": "mor", "storage_options": FAST}
    table = metatable.create(table_uri, schema, key="id", ordering="at", **words)
    for v, at in enumerate((b"\x7f", b"\x80", b"\x01")):
        table.upsert(pa.table([["a"], [at], [v]], schema=schema))
    assert table.scan().to_arrow()["v"].to_pylist() == [1]
    assert table.describe().log_files == 0


@pytest.mark.each_once
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("index", ["record", "metadata_bloom", "bucket"])
def test_a_row_that_follows_a_delete_is_there_for_every_reader(
    table_uri: str, index: str, late: str
) -> None:
    """Hudi forgets a delete once a row of its key follows in a log (DECISIONS 79), and cannot read
    a null there: such rows come by a file that is written anew."""
    table, model = created(table_uri, index, ordering="ts"), Model(index == "record", True)
    given = [row(key, 1, 10) for key in "abc"]
    table.insert(arrow(given))
    model.upsert(given)
    table.delete(pa.table({"id": ["b"], "city": ["ny"]}))
    model.delete([row("b", 0)])
    check_counts(table, table.upsert(arrow(LATE[late])), model.upsert(LATE[late]))
    check(table, model, [row(key, 0) for key in "abcd"])


@pytest.mark.parametrize("index", ["record", "bucket"])
def test_only_rows_of_deleted_keys_make_a_file_anew(
    table_uri: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_group = {"bucket_count": 1} if index == "bucket" else {"small_file_bytes": 1 << 20}
    table = created(table_uri, index, ordering="ts", **one_group)
    table.insert(arrow([row(key, 1, 10) for key in "abc"]))
    table.delete(pa.table({"id": ["b"], "city": ["ny"]}))
    table.upsert(arrow([row("c", 2, 20)]))
    assert (len(files(table, "*.parquet")), len(logs(table))) == (1, 2)
    held: list[tuple[bytes, ...]] = []
    stored = MadeGroup.stored

    def spied(made: MadeGroup, view: TableView) -> Any:
        held.append(made.bodies)
        return stored(made, view)

    monkeypatch.setattr(MadeGroup, "stored", spied)
    table.upsert(arrow([row("b", 2, 5)]))
    assert (len(files(table, "*.parquet")), len(logs(table))) == (2, 2)
    if index == "bucket":  # without one it opens a group
        assert held == [()], "a whole file does not wait for logs"
    assert scanned(table) == read_by_hudi(table.uri)
    assert len(scanned(table)) == 3


@pytest.mark.each_once
@pytest.mark.parametrize("stats_columns", [0, 32])
@pytest.mark.parametrize("index", ["record", "metadata_bloom", "bucket"])
def test_a_row_whose_stored_one_has_a_null_to_order_by_makes_a_file_anew(
    table_uri: str, index: str, stats_columns: int
) -> None:
    """Hudi on Spark holds the log's value against a 0 of another type, and reads nothing."""
    one_group = {"bucket_count": 1} if index == "bucket" else {"small_file_bytes": 1 << 20}
    given = one_group | {"stats_columns": stats_columns}
    table, model = created(table_uri, index, ordering="ts", **given), Model(index == "record", True)

    def put(key: str, v: int, ts: int | None) -> tuple[int, int]:
        check_counts(table, table.upsert(arrow([row(key, v, ts)])), model.upsert([row(key, v, ts)]))
        return len(files(table, "*.parquet")), len(logs(table))

    table.insert(arrow([row("a", 1), row("b", 1), row("c", 1, 10)]))
    model.upsert([row("a", 1), row("b", 1), row("c", 1, 10)])
    assert put("c", 2, 20) == (1, 1)
    assert put("a", 2, 5) == (2, 1)
    assert put("a", 3, 7) == (2, 2)
    table.delete(pa.table({"id": ["b"], "city": ["ny"]}))
    model.delete([row("b", 0)])
    assert len(logs(table)) == 3, "a delete has no value"
    check(table, model, [row(key, 0) for key in "abc"])


@pytest.mark.usefixtures("pages_as_files")
def test_tables_with_logs_ask_for_who_knows_them(table: Table) -> None:
    newest = load_newest(Store(table.uri))
    assert newest is not None
    assert newest.format["reader"] == 8


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_rows_of_a_table_with_logs_are_ordered_by_microseconds(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    """Hudi 0.15.0 on Spark takes no row of a log for later by milliseconds."""
    kind, micros = pa.timestamp(unit, zone), pa.timestamp("us", zone)
    schema = pa.schema([("id", pa.int64()), ("at", kind), ("seen", kind), ("v", pa.int64())])
    usual = pa.timestamp({"s": "ms", "ns": "us"}.get(unit, unit), zone)

    def made(name: str, ordering: str | None = "at", **more: Any) -> Table:
        words = {"key": "id", "ordering": ordering, "storage_options": FAST} | more
        return metatable.create(tmp_path / name, schema, **words)

    table = made("mor", table_type="mor")
    assert table.schema.types == [pa.int64(), micros, usual, pa.int64()]
    for one in (
        made("cow"),
        made("unordered", None, table_type="mor"),
        made("by_number", "v", table_type="mor"),
        made("alone", table_type="mor", options={"hudi_readable": False}),
    ):
        assert one.schema.types == [pa.int64(), usual, usual, pa.int64()]
    days = [datetime(2024, 1, day, tzinfo=UTC if zone else None) for day in (2, 3, 1)]
    for v, day in enumerate(days):
        given = [{"id": 1, "at": day, "seen": day, "v": v}]
        table.upsert(pa.Table.from_pylist(given, schema))
    [found] = table.scan().to_arrow().to_pylist()
    assert found == {"id": 1, "at": days[1], "seen": days[1], "v": 1}
    assert metatable.open(tmp_path / "mor", FAST).schema == table.schema


def test_what_is_no_table_type_is_refused(table_uri: str) -> None:
    with pytest.raises(UsageError, match="table_type"):
        metatable.create(table_uri, SCHEMA, key="id", table_type="both")


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_values_of_all_histories_are_those_of_a_dict_and_of_hudi(
    table_uri: str, log_format: str
) -> None:
    """With an ordering column, over many logs: each version as it was."""
    draw = random.Random(log_format)
    table, model = created(table_uri, ordering="ts", log_format=log_format), Model(True, True)
    states = {}
    for step in range(12 if LONG else 8):
        keys = draw.sample([f"k{number:02}" for number in range(20)], 8)
        rows = [row(key, step, draw.choice([None, step - 2, step, step + 2])) for key in keys]
        if step % 4 == 3:
            check_counts(table, table.delete(arrow(rows)), model.delete(rows))
        else:
            check_counts(table, table.upsert(arrow(rows)), model.upsert(rows))
        check(table, model)
        states[table.version] = model.listed()
    for version, expected in states.items():
        assert scanned(table, version) == expected


def test_logs_are_looked_into_for_deletes_where_there_may_be_some(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of groups that lost no key, nor by deletes; those of a task's groups together."""
    table = created(table_uri, ordering="ts")
    looked, real = list[str](), new_log.log_deletes
    together, at_once = Store.together, list[int]()

    def spy(store: Store, log: LogFile) -> pa.Array:
        looked.append(log.partition_path)
        return real(store, log)

    def counted(self: Store, calls: Sequence[Any], **how: Any) -> Any:
        at_once.append(sum(isinstance(one, partial) and one.func is spy for one in calls))
        return together(self, calls, **how)

    monkeypatch.setattr(new_log, "log_deletes", spy)
    monkeypatch.setattr(Store, "together", counted)

    def given(ts: int, cities: str) -> pa.Table:
        return arrow([row(f"k{n}", ts, ts, city) for n, city in enumerate(cities)])

    table.insert(given(0, "abcdabcd"))
    for ts in (1, 2, 3):
        table.upsert(given(ts, "abcdabcd"))
    assert looked == []
    table.upsert(given(4, "bbcd"))  # a key goes from a, by a delete in its log
    table.upsert(given(5, "bbcdabcd"))
    assert looked == ["city=a"]
    table.delete(given(6, "bbcd"))
    table.delete(given(6, "bbcdab").slice(4))
    assert looked == ["city=a"]
    monkeypatch.setattr(planning, "_spread", lambda weights, _: (1, [0] * len(weights)))
    table.upsert(given(7, "bbcdabcd"))  # what is left of c and d, and others that are new
    assert sorted(looked) == ["city=a", "city=c", "city=d"]
    assert max(at_once) == 2
    assert scanned(table) == read_by_hudi(table_uri) == listed(given(7, "bbcdabcd").to_pylist())
