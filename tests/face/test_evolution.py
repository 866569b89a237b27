"""Columns that change: old files are read right, old versions keep theirs, Hudi reads equal rows.

The model knows nothing of ids or files: rows as dicts, all of them changed with each change.
METATABLE_SEED replays a history, METATABLE_LONG=1 plays more of them.
"""

from __future__ import annotations

import os
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder

import metatable
from metatable import (
    AddColumn,
    ConflictError,
    CorruptError,
    DropColumn,
    MakeNullable,
    MoveColumn,
    RenameColumn,
    Table,
    UsageError,
    WidenColumn,
    col,
)
from metatable.data.base_files.base_file import read_base_file
from metatable.data.columns.schema_changes import changed
from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.slices import DataFile
from metatable.metadata.manifests.manifest import LEAST_READER, READER_BY_ID
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from tests.faults import watched
from tests.golden.make import unpack
from tests.long import LONG

SEED = int(os.environ.get("METATABLE_SEED", "0"))
FAST = {"durable": "false"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("city", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("word", pa.string(), False),
        pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


def rows(low: int, high: int) -> pa.Table:
    made = [
        {"id": i, "city": "ab"[i % 2], "n": 10 * i, "word": f"w{i}", "s": {"x": i, "y": str(i)}}
        for i in range(low, high)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def create(uri: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Table:
    return metatable.create(
        uri,
        schema,
        key="id",
        partition_by="city",
        options={"small_file_bytes": 0, "file_rows": 4, "hfile_codec": "none", **options},
        storage_options=FAST,
    )


def hudis(table: Table) -> list[dict[str, Any]]:
    """The table's columns as the `hudi` wheel reads them, by key."""
    batches = HudiTableBuilder.from_base_uri(table.uri).build().read()
    found = pa.Table.from_batches(batches).select(table.schema.names).sort_by("id")
    return list(found.to_pylist())


def some(table: Table, **row: Any) -> pa.Table:
    """One row of some of the table's columns, or of others."""
    known = {name: table.schema.field(name).type for name in row if name in table.schema.names}
    return pa.table({name: pa.array([one], known.get(name)) for name, one in row.items()})


def snapshot_of(table: Table) -> Snapshot:
    store = Store(table.uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


def columns_of(table: Table) -> TableSchema:
    return snapshot_of(table).table_schema


def scanned(table: Table, **asked: Any) -> list[dict[str, Any]]:
    return list(table.scan(**asked).to_arrow().sort_by("id").to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Eight rows in four files."""
    made = create(tmp_path / "table")
    made.insert(rows(0, 4))
    made.insert(rows(4, 8))
    return made


@pytest.fixture
def ours(tmp_path: Path) -> Table:
    """The same of a table that Hudi need not read."""
    made = create(tmp_path / "ours", hudi_readable=False)
    made.insert(rows(0, 4))
    made.insert(rows(4, 8))
    return made


# One change at a time


@pytest.mark.both_table_types
def test_changes_are_one_version_and_hudi_reads_equal_rows(table: Table) -> None:
    before = scanned(table)
    done = table.alter(
        AddColumn("tip", pa.float32(), after="id"),
        WidenColumn("n", pa.int64()),
        MakeNullable("word"),
        MoveColumn("city", ""),
    )
    assert (done.version, done.files, table.history()[0].operation) == (4, 0, "alter")
    fields = [(one.name, one.type, one.nullable) for one in table.schema]
    assert fields[:2] == [("city", pa.string(), True), ("id", pa.int64(), False)]
    assert fields[2:5] == [
        ("tip", pa.float32(), True),
        ("n", pa.int64(), True),
        ("word", pa.string(), True),
    ]
    assert scanned(table) == hudis(table) == [{**row, "tip": None} for row in before]
    table.upsert(some(table, id=1, city="b", n=2**40, tip=0.5))
    assert scanned(table) == hudis(table)
    assert scanned(table, where=col("n") > 2**35)[0]["tip"] == 0.5
    assert table.verify().findings == ()


@pytest.mark.both_table_types
def test_structs_change_at_every_depth(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("q", pa.int32(), False), ("r", pa.string())])
    schema = pa.schema(
        [
            *SCHEMA,
            ("l", pa.list_(inner)),
            ("m", pa.map_(pa.string(), inner)),
        ]
    )
    table = create(tmp_path / "table", schema, hudi_readable=False)
    deep = [{"q": 1, "r": "a"}, {"q": 2, "r": None}]
    given = [{**row, "l": deep, "m": [("k", deep[0])]} for row in rows(0, 3).to_pylist()]
    given[2] |= {"s": None, "l": None, "m": None}
    given[1] |= {"l": [None], "m": [("k", None)]}
    table.insert(pa.Table.from_pylist(given, schema))
    table.alter(
        WidenColumn("s.x", pa.float64()),
        RenameColumn("s.y", "z"),
        AddColumn("s.y", pa.int64(), after=""),
        WidenColumn("l.element.q", pa.int64()),
        DropColumn("l.element.r"),
        AddColumn("l.element.r", pa.int32()),
        MakeNullable("m.value.q"),
        MoveColumn("m.value.r", ""),
        AddColumn("m.value.deep", pa.struct([("a", pa.int8())])),
    )
    first, second, third = scanned(table)
    assert first["s"] == {"y": None, "x": 0.0, "z": "0"}
    assert first["l"] == [{"q": 1, "r": None}, {"q": 2, "r": None}]
    assert first["m"] == [("k", {"r": "a", "q": 1, "deep": None})]
    assert (second["l"], second["m"]) == ([None], [("k", None)])
    assert (third["s"], third["l"], third["m"]) == (None, None, None)
    table.upsert(some(table, id=0, city="a", word="w", s={"y": 2**40}))
    assert scanned(table)[0]["s"] == {"y": 2**40, "x": None, "z": None}
    assert scanned(table)[1:] == [second, third]
    table.alter(DropColumn("s.x"), DropColumn("l"))
    assert "l" not in table.schema.names
    assert scanned(table)[1]["s"] == {"y": None, "z": "1"}


def test_a_new_name_is_metadata_alone_where_hudi_need_not_read(ours: Table) -> None:
    files = ours.files().paths
    assert ours.alter(RenameColumn("n", "count"), AddColumn("n", pa.string())).files == 0
    assert ours.files().paths == files
    assert [row["count"] for row in scanned(ours)] == [10 * i for i in range(8)]
    assert {row["n"] for row in scanned(ours)} == {None}
    ours.upsert(some(ours, id=0, city="a", word="w", n="x", count=-1))
    assert scanned(ours)[0]["n"] == "x"
    assert scanned(ours, where=col("n") == "x") == scanned(ours)[:1]
    assert scanned(ours, where=col("count") == 70) == scanned(ours)[7:]
    assert ours.verify().findings == ()


def test_a_new_name_writes_every_file_anew_where_hudi_reads(table: Table) -> None:
    before, old = scanned(table), set(table.files().paths.to_pylist())
    commits = table.scan(["id", "_hoodie_commit_time"]).to_arrow().sort_by("id")
    since = table.version
    assert table.alter(RenameColumn("n", "count")).files == 4
    assert not old & set(table.files().paths.to_pylist())
    assert scanned(table) == hudis(table)
    assert [{**row, "n": row["count"]} for row in scanned(table)] == [
        {**row, "count": row["n"]} for row in before
    ]
    assert table.scan(["id", "_hoodie_commit_time"]).to_arrow().sort_by("id") == commits
    assert table.changes(since).to_arrow().num_rows == 0
    assert table.verify().findings == ()
    for path in table.files().paths.to_pylist():
        assert "n" not in pq.read_schema(Path(table.uri, path)).names
    assert scanned(table, version=since) == before


@pytest.mark.both_table_types
def test_a_name_that_comes_again_is_another_column_to_everybody(table: Table) -> None:
    table.alter(DropColumn("n"))
    assert scanned(table) == hudis(table)
    assert table.alter(AddColumn("n", pa.int32())).files == 4
    columns = columns_of(table)
    assert (columns.past_names, columns.past_stats, columns.by_id) == ((), (), False)
    assert scanned(table) == hudis(table)
    assert {row["n"] for row in scanned(table)} == {None}
    assert scanned(table, where=col("n") >= 0) == []
    table.merge(some(table, id=2, city="a", n=7))
    assert [row["id"] for row in scanned(table, where=col("n") > 0)] == [2]
    assert scanned(table) == hudis(table)
    assert table.verify().findings == ()


def test_a_float_becomes_a_double_to_the_last_digit(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("f", pa.float32())])
    table = create(tmp_path / "table", schema)
    table.insert(some(table, id=1, city="a", f=0.1))
    table.alter(WidenColumn("f", pa.float64()))
    assert scanned(table) == hudis(table)
    assert scanned(table)[0]["f"] == 0.10000000149011612


def test_a_wider_number_in_a_column_writes_every_file_anew_where_hudi_reads(
    table: Table, ours: Table
) -> None:
    """Hudi on Spark reads no struct in which one has another type than the table says."""
    before = scanned(table)
    assert ours.alter(WidenColumn("s.x", pa.int64())).files == 0
    assert table.alter(WidenColumn("s.x", pa.int64())).files == 4
    assert table.alter(WidenColumn("s.x", pa.int64())).version == table.version, "it is that wide"
    assert scanned(table) == scanned(ours) == hudis(table) == before
    for path in table.files().paths.to_pylist():
        assert pq.read_schema(Path(table.uri, path)).field("s").type[0].type == pa.int64()
    assert table.alter(WidenColumn("n", pa.int64())).files == 0


@pytest.mark.parametrize(("log_format", "new_groups"), [("avro", "base"), ("parquet", "log")])
def test_logs_of_before_are_read_by_hudi_whatever_changes(
    tmp_path: Path, log_format: str, new_groups: str
) -> None:
    s = pa.struct([("x", pa.int32()), ("y", pa.string())])
    kinds = {"n": pa.int32(), "d": pa.decimal128(5, 2), "b": pa.binary(2), "s": s}
    kinds |= {"at": pa.timestamp("ms", "UTC"), "l": pa.list_(pa.int32())}
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), **kinds})
    options = {"log_format": log_format, "new_groups": new_groups, "small_file_bytes": 0}
    words: dict[str, Any] = {"key": "id", "table_type": "mor", "storage_options": FAST}
    words["index"] = "record" if new_groups == "log" else "metadata_bloom"  # with logs of updates
    table = metatable.create(tmp_path / "table", schema, options=options, **words)
    row = {"city": "a", "n": 1, "d": Decimal("1.25"), "b": b"ab", "s": {"x": 2, "y": "q"}}
    row |= {"at": datetime(2024, 1, 1, 0, 0, 0, 5000, UTC), "l": [3]}
    table.insert(pa.Table.from_pylist([{"id": 1, **row}, {"id": 2, **row}], schema))
    table.upsert(pa.Table.from_pylist([{"id": 2, **row, "n": 5}], schema))
    if new_groups == "base":  # without one the wheel takes no list from a log that lacks a column
        added = [AddColumn("new", s), AddColumn("gone", s), MoveColumn("d", "")]
        assert table.alter(*added).files == table.alter(DropColumn("gone")).files == 0
    assert scanned(table) == hudis(table)
    for changes in (
        [WidenColumn("d", pa.decimal128(9, 4)), WidenColumn("b", pa.binary())],
        [WidenColumn("at", pa.timestamp("us", "UTC")), WidenColumn("n", pa.int64())],
        [AddColumn("s.z", pa.string()), DropColumn("s.y"), WidenColumn("l.element", pa.int64())],
    ):
        assert table.alter(*changes).files == 1
        assert [one["d"] for one in scanned(table)] == [row["d"]] * 2
        table.upsert(table.scan().to_arrow().slice(0, 1))
        assert scanned(table) == hudis(table)
    w = pa.array([{"w": "w"}], pa.struct([("w", pa.string())]))
    news = pa.table({"id": [3], "city": ["a"], "s": w})
    with pytest.raises(UsageError, match=r"logs lack a new field.*s\.w"):
        table.upsert(news, evolve=True)
    table.compact_logs(ratio=0.0)
    table.upsert(news, evolve=True)
    assert scanned(table) == hudis(table)
    assert table.verify().findings == ()


@pytest.mark.each_once
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_logs_of_new_rows_go_where_a_column_comes_beside_nested_ones(
    tmp_path: Path, index: str, log_format: str
) -> None:
    """An index that does not find keys in logs has none of these, unless it took another's place;
    logs of updates alone stay."""
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), "l": pa.list_(pa.int32())})

    def given(*numbers: int) -> pa.Table:
        made = [{"id": one, "city": "a", "l": [one]} for one in numbers]
        return pa.Table.from_pylist(made, schema)

    words: dict[str, Any] = {"options": {"log_format": log_format}, "storage_options": FAST}
    table = metatable.create(
        tmp_path / "table", schema, key="id", index=index, table_type="mor", **words
    )
    table.insert(given(1, 2))
    table.upsert(given(2))
    finds = index == "record"
    if finds:
        table.insert(given(3))
    news = pa.table({"id": [2], "city": ["a"], "tip": [7]})
    if finds:
        with pytest.raises(UsageError, match=r"hold rows of their own and lack a column.*tip"):
            table.upsert(news, evolve=True)
    assert table.alter(AddColumn("tip", pa.int64())).files == finds
    assert scanned(table) == hudis(table)
    table.upsert(news)
    assert scanned(table) == hudis(table)
    if finds:
        other = metatable.adopt(table.uri, index="metadata_bloom", storage_options=FAST)
        assert other.alter(AddColumn("more", pa.int64())).files == 1
        assert scanned(other) == hudis(other)


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_logs_without_a_base_file_get_one_where_a_column_comes_beside_nested_ones(
    tmp_path: Path, log_format: str
) -> None:
    """Where such a log lacks any column Hudi's readers take no nested one from it."""
    nested = {"s": pa.struct([("x", pa.int32())]), "l": pa.list_(pa.int32())}
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), **nested})
    options = {"log_format": log_format, "new_groups": "log", "small_file_bytes": 0}
    words: dict[str, Any] = {"key": "id", "table_type": "mor", "storage_options": FAST}
    table = metatable.create(tmp_path / "table", schema, index="record", options=options, **words)
    table.insert(pa.Table.from_pylist([{"id": 1, "s": {"x": 1}, "l": [2]}], schema))
    news = pa.table({"id": [2], "city": ["a"], "tip": [7]})
    with pytest.raises(UsageError, match=r"hold rows of their own and lack a column.*tip"):
        table.upsert(news, evolve=True)
    assert table.alter(AddColumn("tip", pa.int64())).files == 1
    table.upsert(news, evolve=True)  # a group that begins as a log of all columns
    assert scanned(table) == hudis(table)
    assert table.verify().findings == ()


@pytest.mark.parametrize("name", ["format1-record-global", "format4-record-unfinished"])
def test_files_of_before_there_were_ids_are_known_by_names(tmp_path: Path, name: str) -> None:
    unpack(name, tmp_path)
    table = metatable.open(tmp_path, FAST)
    before = scanned(table)
    assert table.alter(RenameColumn("v", "w"), AddColumn("v", pa.string())).files > 0
    expected = [{**row, "w": row["v"], "v": None} for row in before]
    assert scanned(table) == hudis(table) == expected
    assert table.verify().findings == ()
    table.alter(DropColumn("w"), AddColumn("w", pa.int8()))
    assert scanned(table) == hudis(table) == [{**row, "w": None} for row in expected]


@pytest.mark.both_table_types
def test_point_reads_and_merges_find_what_was_renamed(ours: Table) -> None:
    ours.alter(RenameColumn("n", "count"), AddColumn("n", pa.string()))
    [found] = ours.read_keys(some(ours, id=3, city="b"), ["count", "n"]).to_pylist()
    assert found == {"count": 30, "n": None}
    ours.merge(some(ours, id=3, city="b", n="new"))
    [found] = ours.read_keys(some(ours, id=3, city="b"), ["count", "n", "word"]).to_pylist()
    assert found == {"count": 30, "n": "new", "word": "w3"}


@pytest.mark.usefixtures("pages_as_files")
def test_who_goes_by_names_is_kept_from_what_would_mislead(table: Table, ours: Table) -> None:
    def reader(table: Table) -> int:
        newest = load_newest(Store(table.uri, FAST))
        assert newest is not None
        return newest.format["reader"]

    for one in (table, ours):
        one.alter(AddColumn("x", pa.int8()), WidenColumn("n", pa.int64()), DropColumn("s"))
        assert reader(one) == LEAST_READER
        one.alter(RenameColumn("n", "count"))
    assert (reader(table), reader(ours)) == (LEAST_READER, READER_BY_ID)
    table.alter(AddColumn("n", pa.int64()))  # files know it by its name, statistics do not
    assert reader(table) == READER_BY_ID


def test_a_view_with_columns_to_come_is_the_same_on_a_worker(ours: Table) -> None:
    columns = changed(columns_of(ours), [AddColumn("tip", pa.int8())], ours.options)
    view = pickle.loads(pickle.dumps(snapshot_of(ours).with_columns(columns.encode())))
    assert view.table_schema == columns
    assert view.counting(Counters()).since(1).schema.names[-1] == "tip"


# Statistics


def test_statistics_of_before_leave_files_out(ours: Table) -> None:
    ours.alter(WidenColumn("n", pa.float64()), RenameColumn("n", "count"))
    assert ours.scan(where=col("count") > 65.5).explain().files["after statistics"] == 1
    ours.alter(RenameColumn("word", "text"), MoveColumn("text", ""))
    assert ours.scan(where=col("text") == "w3").explain().files["after statistics"] == 1
    assert [row["id"] for row in scanned(ours, where=col("text") == "w3")] == [3]


def test_columns_that_have_statistics_keep_them_when_others_are_put_before(tmp_path: Path) -> None:
    table = create(tmp_path / "table", stats_columns=3)
    table.alter(MoveColumn("word", ""), AddColumn("first", pa.int8(), after=""))
    table.insert(rows(0, 4))
    table.insert(rows(4, 8))
    assert table.scan(where=col("n") == 70).explain().files["after statistics"] == 1


def test_statistics_go_with_their_files_when_their_column_is_gone(ours: Table) -> None:
    ours.alter(DropColumn("n"), AddColumn("n", pa.int32()))
    ours.upsert(rows(0, 8).append_column("x", rows(0, 8)["n"]), evolve=True)
    ours.alter(DropColumn("x"), DropColumn("n"))
    ours.upsert(rows(0, 8).drop_columns(["n"]))
    ours.compact(major=True)
    assert ours.verify().findings == ()


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_statistics_of_logs_are_those_of_the_columns_that_they_hold(
    tmp_path: Path, log_format: str
) -> None:
    options = {"hudi_readable": False, "log_format": log_format}
    words: dict[str, Any] = {"key": "id", "table_type": "mor", "storage_options": FAST}
    table = metatable.create(tmp_path / "table", SCHEMA, options=options, **words)
    table.insert(rows(0, 4))
    table.upsert(rows(1, 2))
    table.alter(DropColumn("n"), AddColumn("n", pa.int32()), RenameColumn("word", "text"))
    assert table.verify().findings == ()
    table.upsert(some(table, id=1, city="b", text="w", n=5))
    assert table.verify().findings == ()
    assert table.scan(where=col("n") == 5).count() == 1


@pytest.mark.parametrize("path", ["N", "s.X"])
def test_a_name_of_the_past_in_another_case_is_one_of_the_past(
    table: Table, ours: Table, path: str
) -> None:
    """Spark and DuckDB would read what was dropped."""
    for one, rewritten in ((table, len(table.files())), (ours, 0)):
        one.alter(DropColumn(path.lower()))
        assert one.alter(AddColumn(path, pa.string())).files == rewritten
        assert columns_of(one).by_id == (one is ours)
        assert one.verify().findings == ()
    if "." not in path:
        held = duckdb.read_parquet(table.files().uris).project(path).fetchall()
        assert held == [(None,)] * 8


def test_a_batch_does_not_bring_a_name_of_the_past_in_another_case(table: Table) -> None:
    table.alter(DropColumn("n"))
    with pytest.raises(UsageError, match=r"AddColumn.*first.*'N'"):
        table.upsert(some(table, id=0, city="a", N="new"), evolve=True)


# Versions


@pytest.mark.both_table_types
def test_every_version_keeps_its_columns(table: Table) -> None:
    told = {table.version: (table.schema, scanned(table))}
    for changes in (
        [AddColumn("tip", pa.int32())],
        [RenameColumn("tip", "gift"), WidenColumn("n", pa.int64())],
        [DropColumn("n")],
        [AddColumn("n", pa.string())],
    ):
        version = table.alter(*changes).version
        told[version] = table.schema, scanned(table)
    for version, (schema, held) in told.items():
        assert table.scan(version=version).schema == schema
        assert scanned(table, version=version) == held
    deleted = table.changes(0, 3).to_arrow()
    assert deleted.num_rows == 8


def test_rollback_and_restore_take_the_columns_back_and_no_id_again(table: Table) -> None:
    schema, held = table.schema, scanned(table)
    table.alter(AddColumn("tip", pa.int32()))
    table.rollback()
    assert (table.schema, scanned(table), hudis(table)) == (schema, held, held)
    table.alter(AddColumn("tip", pa.string()))
    table.upsert(some(table, id=0, city="a", word="w", tip="t"))
    table.alter(RenameColumn("tip", "gift"))
    assert columns_of(table).ids()["gift"] == len(schema) + 2 + 2
    table.restore(3)
    assert (table.schema, scanned(table), hudis(table)) == (schema, held, held)
    assert table.verify().findings == ()


def test_changes_between_versions_have_the_columns_of_the_later_one(ours: Table) -> None:
    since = ours.version
    ours.alter(RenameColumn("n", "count"), DropColumn("s"), AddColumn("n", pa.string()))
    ours.upsert(some(ours, id=1, city="b", word="w", n="x", count=5))
    ours.delete(some(ours, id=2, city="a"))
    told = ours.changes(since).to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["count"], row["n"], row["_change_type"]) for row in told] == [
        (1, 5, "x", "update"),
        (2, 20, None, "delete"),
    ]


# Writes


@pytest.mark.parametrize("verb", ["insert", "upsert", "merge"])
def test_new_columns_come_with_the_rows_that_bring_them(table: Table, verb: str) -> None:
    inner = pa.array([{"x": 1, "q": 2}], pa.struct([("x", pa.int32()), ("q", pa.int64())]))
    news = some(table, id=20, city="a", word="w", tip=1).append_column("s", inner)
    with pytest.raises(UsageError, match="column is not in the table"):
        getattr(table, verb)(news)
    done = getattr(table, verb)(news, evolve=True)
    assert done.version == 4
    assert table.schema.names == [*SCHEMA.names, "tip"]
    assert scanned(table) == hudis(table)
    assert scanned(table)[-1]["s"] == {"x": 1, "y": None, "q": 2}
    assert table.upsert(news, evolve=True).updated == 1
    assert table.rollback().version == 6
    assert table.verify().findings == ()


def test_fields_of_structs_in_lists_and_maps_come_with_the_rows(tmp_path: Path) -> None:
    def schema(inner: pa.DataType) -> pa.Schema:
        nested = [("l", pa.list_(inner)), ("m", pa.map_(pa.string(), pa.list_(inner)))]
        return pa.schema([("id", pa.int64()), ("city", pa.string()), *nested])

    narrow, wide = pa.struct([("q", "i4")]), pa.struct([("q", "i4"), ("r", pa.string())])
    old = {"id": 1, "city": "a", "l": [{"q": 1}], "m": [("k", [{"q": 2}])]}
    new = {"id": 2, "city": "a", "l": [{"q": 3, "r": "x"}], "m": [("k", [{"q": 4, "r": "y"}])]}
    table = create(tmp_path / "table", schema(narrow))
    table.insert(pa.Table.from_pylist([old], schema(narrow)))
    assert table.upsert(pa.Table.from_pylist([new], schema(wide)), evolve=True).inserted == 1
    first, second = scanned(table)
    assert second == new
    assert (first["l"], first["m"]) == ([{"q": 1, "r": None}], [("k", [{"q": 2, "r": None}])])


@pytest.mark.parametrize("evolve", [False, True])
def test_fields_that_come_twice_are_no_new_columns(table: Table, evolve: bool) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1], pa.int32())] * 2, ["x", "x"])
    news = some(table, id=20, city="a", word="w").append_column("s", twice)
    with pytest.raises(UsageError, match=r"column is given twice: column='s\.x'"):
        table.upsert(news, evolve=evolve)


def test_a_new_column_of_an_old_name_is_refused_in_a_write(table: Table) -> None:
    table.alter(DropColumn("n"))
    with pytest.raises(UsageError, match=r"alter\(AddColumn"):
        table.upsert(rows(0, 1), evolve=True)
    table.alter(AddColumn("n", pa.int32()))
    assert table.upsert(rows(0, 1), evolve=True).updated == 1


# Races


class _Between:
    """Does something once, before a writer puts its version."""

    def __init__(self, table: Table, act: Any) -> None:
        self.table, self.act, self.done = table, act, False

    def __call__(self, verb: str, path: str) -> None:
        if verb == "create" and "/manifest/" in path and not self.done:
            self.done = True
            self.act(metatable.open(self.table.uri, FAST))


def between(table: Table, act: Any) -> Table:
    """The table, with something that happens before its first put."""
    slow = metatable.open(table.uri, FAST)
    slow._store, _ = watched(table.uri, before=_Between(table, act))
    return slow


def test_rows_prepared_for_other_columns_are_prepared_again(table: Table) -> None:
    slow = between(table, lambda other: other.alter(WidenColumn("n", pa.int64()), DropColumn("s")))
    given = rows(0, 9).drop_columns(["s"])
    assert slow.upsert(given).attempts == 2
    assert table.schema.names == ["id", "city", "n", "word"]
    assert scanned(table) == hudis(table)
    slow = between(table, lambda other: other.alter(DropColumn("n")))
    with pytest.raises(UsageError, match="column is not in the table"):
        slow.upsert(given)
    slow = between(table, lambda other: other.upsert(news, evolve=True))
    news = pa.table({"id": [1], "city": ["b"], "word": ["w"], "tip": pa.array([3], pa.int32())})
    wide = news.set_column(3, "tip", pa.array([4], pa.int64()))
    with pytest.raises(UsageError, match="another type"):
        slow.upsert(wide, evolve=True)
    assert table.verify().findings == ()


@pytest.mark.parametrize("change", [DropColumn("n"), AddColumn("m", pa.int8())])
def test_partitions_are_deleted_whatever_columns_the_table_has_by_then(
    table: Table, change: Any
) -> None:
    slow = between(table, lambda other: other.alter(change))
    done = slow.delete_partition("city=a")
    assert (done.deleted, done.attempts) == (4, 2)
    assert [one["city"] for one in scanned(table)] == ["b"] * 4
    assert scanned(table) == hudis(table)


@pytest.mark.parametrize("rewriting", [False, True])
def test_a_change_of_columns_is_made_behind_a_commit_that_came_first(
    table: Table, rewriting: bool
) -> None:
    change = RenameColumn("n", "count") if rewriting else AddColumn("count", pa.int64())
    slow = between(table, lambda other: other.upsert(rows(6, 10)))
    done = slow.alter(change)
    assert done.attempts == 2
    assert scanned(table) == hudis(table)
    assert len(scanned(table)) == 10
    assert table.verify().findings == ()


def behind(table: Table, act: Callable[[Table], object]) -> Table:
    """The table, for a commit before whose first put one of an earlier instant is published: what
    `act` does, which has waited with everything but that."""
    waits, goes = threading.Event(), threading.Event()

    def wait(verb: str, path: str) -> None:
        if verb == "create" and "/manifest/" in path:
            waits.set()
            assert goes.wait(60)

    earlier = metatable.open(table.uri, FAST)
    earlier._store, _ = watched(table.uri, before=wait)
    other = threading.Thread(target=act, args=[earlier])

    def let_go(_: Table) -> None:
        goes.set()
        other.join()

    other.start()
    assert waits.wait(60)
    return between(table, let_go)


def test_a_commit_of_an_earlier_instant_that_came_first_is_written_anew_too(table: Table) -> None:
    slow = behind(table, lambda other: other.insert(rows(20, 22)))
    assert slow.alter(RenameColumn("n", "count")).attempts == 2
    assert scanned(table) == hudis(table)
    assert [row["count"] for row in scanned(table)][-2:] == [200, 210]
    assert table.verify().findings == ()


def test_a_log_of_an_earlier_instant_that_came_first_is_none_of_before(tmp_path: Path) -> None:
    """Of a log that lacks the new field Hudi's readers would refuse the whole table."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])
    options = {"small_file_bytes": 0}  # each commit opens groups of its own
    words: dict[str, Any] = {"key": "id", "table_type": "mor", "storage_options": FAST}
    table = metatable.create(tmp_path / "table", schema, options=options, **words)
    old = pa.table({"id": [1], "s": [{"x": 1}]}, schema)
    table.insert(old)
    slow = behind(table, lambda other: other.upsert(old))
    news = pa.table({"id": [2], "s": pa.array([{"w": "w"}], pa.struct([("w", pa.string())]))})
    with pytest.raises(UsageError, match=r"logs lack a new field.*s\.w"):
        slow.upsert(news, evolve=True)
    assert scanned(table) == hudis(table)
    table.compact_logs(ratio=0)
    slow = behind(table, lambda other: other.insert(pa.table({"id": [3], "s": [{"x": 3}]}, schema)))
    assert slow.upsert(news, evolve=True).attempts == 2
    assert scanned(table) == hudis(table)


@pytest.mark.parametrize("change", [AddColumn("w", pa.int32()), WidenColumn("n", pa.int64())])
def test_a_log_of_an_earlier_instant_that_came_first_is_written_anew_too(
    tmp_path: Path, change: Any
) -> None:
    nested = {"l": pa.list_(pa.int32()), "n": pa.int32()}
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), **nested})
    words: dict[str, Any] = {"key": "id", "table_type": "mor", "storage_options": FAST}
    options = {"new_groups": "log"}
    table = metatable.create(tmp_path / "table", schema, index="record", options=options, **words)
    old = pa.Table.from_pylist([{"id": 1, "l": [2], "n": 3}], schema)
    slow = behind(table, lambda other: other.insert(old))
    assert slow.alter(change).attempts == 2
    assert scanned(table) == hudis(table)


def test_an_evolving_write_with_an_earlier_instant_is_made_behind(table: Table) -> None:
    slow = between(table, lambda other: other.insert(rows(30, 31)))
    tip = some(table, id=40, city="a", word="w", tip=1)
    assert slow.insert(tip, evolve=True).attempts == 2
    assert scanned(table) == hudis(table)


def test_a_lost_race_that_may_not_be_repeated_is_told(tmp_path: Path) -> None:
    table = create(tmp_path / "table", commit_retries=0)
    table.insert(rows(0, 2))
    slow = between(table, lambda other: other.alter(AddColumn("a", pa.int8())))
    with pytest.raises(ConflictError, match="columns"):
        slow.alter(AddColumn("b", pa.int8()))
    slow = between(table, lambda other: other.alter(AddColumn("b", pa.int8())))
    with pytest.raises(ConflictError, match="columns"):
        slow.upsert(rows(0, 1))


# What is refused


REFUSED: dict[str, tuple[Any, str]] = {
    "a narrower type": (WidenColumn("id", pa.int32()), "only widened"),
    "a narrower type that tables have not": (WidenColumn("n", pa.int16()), "found='int16'"),
    "a narrower field": (WidenColumn("s.x", pa.uint16()), "only widened"),
    "another kind": (WidenColumn("n", pa.string()), "only widened"),
    "a struct for a number": (WidenColumn("n", pa.struct([("a", pa.int8())])), "only widened"),
    "no such column": (DropColumn("m"), "no such column"),
    "no such field": (RenameColumn("s.q", "r"), "no such column"),
    "a field of a number": (AddColumn("n.x", pa.int8()), "not a struct"),
    "the key's name": (RenameColumn("id", "key"), "key column"),
    "the key": (DropColumn("id"), "key column"),
    "the partition": (DropColumn("city"), "partition column"),
    "the key's text": (WidenColumn("id", pa.float64()), "only widened"),
    "a taken name": (AddColumn("N", pa.int8()), "of this name"),
    "a name of Hudi's": (AddColumn("_hoodie_x", pa.int8()), "taken by Hudi"),
    "no name": (RenameColumn("n", "a b"), "not a column name"),
    "a type that is none": (AddColumn("x", pa.null()), "cannot read"),
    "no type": (AddColumn("x", "int64"), "not a type"),  # type: ignore[arg-type]
    "no place": (MoveColumn("n", "m"), "behind"),
    "an inner field of a name": (AddColumn("x", pa.int8(), after="q"), "behind"),
    "no change": ("n", "not a change"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_and_leaves_nothing(table: Table, name: str) -> None:
    change, told = REFUSED[name]
    before = sorted(Path(table.uri).rglob("*"))
    with pytest.raises(UsageError, match=told):
        table.alter(AddColumn("fine", pa.int64()), change)
    assert sorted(Path(table.uri).rglob("*")) == before
    assert table.schema == SCHEMA


@pytest.mark.parametrize(
    ("kind", "same", "less"),
    [
        (pa.int64(), [pa.int64()], [pa.uint32(), pa.int8()]),
        (pa.uint16(), [pa.int32()], [pa.uint16()]),
        (pa.float32(), [pa.float32()], [pa.float16()]),
        (pa.timestamp("ms", "UTC"), [pa.timestamp("ms", "Asia/Tokyo")], [pa.timestamp("s", "UTC")]),
        (pa.timestamp("us"), [pa.timestamp("us")], [pa.timestamp("ms"), pa.timestamp("s")]),
        (pa.time64("us"), [pa.time64("us")], [pa.time32("ms")]),
        (pa.string(), [pa.string(), pa.large_string(), pa.string_view()], []),
        (pa.date32(), [pa.date32(), pa.date64()], []),
        (pa.decimal128(9, 2), [pa.decimal128(9, 2), pa.decimal64(9, 2)], [pa.decimal128(8, 2)]),
    ],
)
def test_the_same_type_is_nothing_to_do_and_one_that_holds_less_is_refused(
    tmp_path: Path, kind: pa.DataType, same: list[pa.DataType], less: list[pa.DataType]
) -> None:
    table = create(tmp_path / "table", pa.schema([*SCHEMA, ("c", kind)]))
    for one in same:
        assert table.alter(WidenColumn("c", one)).version == 1
    for one in less:
        with pytest.raises(UsageError, match="only widened"):
            table.alter(WidenColumn("c", one))


def test_all_fields_of_a_struct_cannot_go_and_elements_have_no_name(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("l", pa.list_(pa.int32())), ("one", pa.struct([("a", "i4")]))])
    table = create(tmp_path / "table", schema)
    with pytest.raises(UsageError, match="only column"):
        table.alter(DropColumn("one.a"))
    with pytest.raises(UsageError, match="field of a struct"):
        table.alter(DropColumn("l.element"))
    with pytest.raises(UsageError, match="alter what"):
        table.alter()


def test_what_changes_nothing_makes_no_version(table: Table) -> None:
    assert table.alter(RenameColumn("n", "n"), MoveColumn("n", "city")).version == 3
    assert table.alter(AddColumn("x", pa.int8()), note={"job": "j"}).version == 4
    assert table.history()[0].note == {"job": "j"}


# Files that lie


def test_a_file_whose_ids_are_bent_is_damage(ours: Table) -> None:
    path = Path(ours.uri, ours.files().paths[0].as_py())
    held = pq.ParquetFile(path).read()
    metadata = pq.read_metadata(path).metadata
    for bad in ("twice", "other type"):
        fields = list(held.schema)
        place = held.schema.get_field_index("n")
        if bad == "twice":
            fields[place] = fields[place].with_metadata(fields[place - 1].metadata)
            told = "column ids of a data file are wrong"
        else:
            words = held["n"].cast(pa.string())
            held = held.set_column(place, fields[place].with_type(pa.string()), words)
            fields = list(held.schema)
            told = "another type"
        writer = pq.ParquetWriter(path, pa.schema(fields), store_schema=False)
        with writer:
            writer.write_table(held.cast(pa.schema(fields)))
            writer.add_key_value_metadata(metadata)
        file = DataFile.decode(path.relative_to(ours.uri).as_posix())
        with pytest.raises(CorruptError, match=told):
            read_base_file(Store(ours.uri), file, SCHEMA, columns_of(ours))


# Histories


class History:
    """Rows as dicts, and what happens to them: the table must tell the same."""

    def __init__(self, table: Table, readable: bool, random: random.Random) -> None:
        self.table, self.readable, self.random = table, readable, random
        self.fields = {one.name: (one.type, one.nullable) for one in SCHEMA}
        self.rows: dict[int, dict[str, Any]] = {}
        self.past: dict[int, list[dict[str, Any]]] = {}
        self.number = 0

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, *told) for name, told in self.fields.items()])

    def truth(self) -> pa.Table:
        held = [self.rows[key] for key in sorted(self.rows)]
        return pa.Table.from_pylist(held, self.schema())

    def some(self, kind: pa.DataType) -> Any:
        n = self.random.randrange(-40, 40)
        if pa.types.is_struct(kind):
            return {one.name: self.some(one.type) for one in kind}
        if pa.types.is_string(kind):
            return f"w{n}"
        if pa.types.is_decimal(kind):
            return Decimal(n).scaleb(-kind.scale)
        return n / 4 if pa.types.is_floating(kind) else n

    def upsert(self) -> None:
        given, lacking = [], set(self.random.sample(self.optional(), len(self.optional()) // 3))
        for key in self.random.sample(range(16), self.random.randint(1, 5)):
            row = {"id": key, "city": "ab"[key % 2]}
            for name, (kind, nullable) in self.fields.items():
                if name not in row and name not in lacking:
                    null = nullable and self.random.random() < 0.2
                    row[name] = None if null else self.some(kind)
            given.append(row)
        schema = pa.schema([one for one in self.schema() if one.name not in lacking])
        evolve = self.random.random() < 0.3
        if evolve:
            self.number += 1
            name, kind = f"e{self.number}", self.random.choice(KINDS)
            schema = schema.append(pa.field(name, kind))
            self.fields[name] = kind, True
            self.rows = {key: {**row, name: None} for key, row in self.rows.items()}
            given = [{**row, name: self.some(kind)} for row in given]
        batch = pa.Table.from_pylist(given, schema)
        whole = self.random.random() < 0.5
        (self.table.upsert if whole else self.table.merge)(batch, evolve=evolve)
        for row in given:
            before = {} if whole else self.rows.get(row["id"], {})
            nothing = dict.fromkeys(self.fields)
            self.rows[row["id"]] = nothing | before | row

    def optional(self) -> list[str]:
        """Columns that may be left out, and be altered."""
        return [name for name in self.fields if name not in ("id", "city", "word")]

    def delete(self) -> None:
        gone = self.random.sample(range(16), 2)
        self.table.delete(pa.table({"id": gone, "city": ["ab"[key % 2] for key in gone]}))
        self.rows = {key: row for key, row in self.rows.items() if key not in gone}

    def alter(self) -> None:
        changes = [self.change() for _ in range(self.random.randint(1, 3))]
        changes = [one for one in changes if one is not None]
        if changes:
            self.table.alter(*changes)

    def change(self) -> Any:
        act = self.random.choice(
            [self.add, self.add, self.rename, self.widen, self.drop, self.move]
        )
        return act()

    def add(self) -> Any:
        kind = self.random.choice(KINDS)
        free = [one for one in NAMES if one not in self.fields]
        if not free:
            return self.drop()
        name = self.random.choice(free)
        self.fields[name] = kind, True
        self.rows = {key: {**row, name: None} for key, row in self.rows.items()}
        return AddColumn(name, kind)

    def rename(self) -> Any:
        old = self.random.choice(self.optional())
        free = [one for one in NAMES if one not in self.fields]
        if not free:
            return self.drop()
        new = self.random.choice(free)
        self.fields = {new if one == old else one: told for one, told in self.fields.items()}
        self.rows = {
            key: {new if one == old else one: value for one, value in row.items()}
            for key, row in self.rows.items()
        }
        return RenameColumn(old, new)

    def widen(self) -> Any:
        name = self.random.choice(self.optional())
        kind, nullable = self.fields[name]
        wider = [wide for narrow, wide in WIDER if narrow == kind]
        if not wider:
            return None
        self.fields[name] = self.random.choice(wider), nullable
        return WidenColumn(name, self.fields[name][0])

    def drop(self) -> Any:
        if len(self.optional()) < 4:
            return None
        name = self.random.choice(self.optional())
        del self.fields[name]
        for row in self.rows.values():
            del row[name]
        return DropColumn(name)

    def move(self) -> Any:
        name = self.random.choice([*self.fields])
        told = self.fields.pop(name)
        after = self.random.choice(["", *self.fields])
        place = [*self.fields].index(after) + 1 if after else 0
        items = [*self.fields.items()]
        self.fields = dict([*items[:place], (name, told), *items[place:]])
        return MoveColumn(name, after)

    def undo(self) -> None:
        """Only what this step itself has done is undone."""
        before = dict(self.fields), {key: dict(row) for key, row in self.rows.items()}
        version = self.table.version
        self.random.choice([self.alter, self.upsert])()
        if self.table.version > version:
            self.table.rollback()
            self.fields, self.rows = before

    def compact(self) -> None:
        self.table.compact(major=self.random.random() < 0.5)

    def check(self) -> None:
        truth = self.truth()
        found = self.table.scan().to_arrow().sort_by("id")
        assert found.schema == truth.schema
        assert found.to_pylist() == truth.to_pylist()
        self.past[self.table.version] = truth.to_pylist()
        if self.readable:
            assert hudis(self.table) == truth.to_pylist()
        for where, sql, value in self.conditions():
            told = duckdb.execute(f"select id from truth where {sql} order by id", value).fetchall()
            assert [row["id"] for row in scanned(self.table, where=where)] == [
                one for (one,) in told
            ]

    def conditions(self) -> Iterator[tuple[Any, str, list[Any]]]:
        flat = [name for name, (kind, _) in self.fields.items() if not pa.types.is_struct(kind)]
        for name in self.random.sample(flat, 3):
            op = self.random.choice(["=", "<", "<=", ">", ">=", "!="])
            value = self.some(self.fields[name][0])
            yield [(name, "==" if op == "=" else op, value)], f'"{name}" {op} ?', [value]
        yield col(name).is_null(), f'"{name}" is null', []

    def last(self) -> None:
        for version, held in self.past.items():
            try:
                assert scanned(self.table, version=version) == held
            except metatable.StaleError:
                continue
        assert self.table.verify().findings == ()


NAMES = "abcdefgh"
"""Few, so that they come again."""
KINDS = [
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.string(),
    pa.decimal128(6, 2),
    SCHEMA.field("s").type,
]
WIDER = [
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(6, 2), pa.decimal128(12, 4)),
    (pa.decimal128(12, 4), pa.decimal128(24, 4)),
]


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize("number", range(60 if LONG else 2))
def test_any_history_of_columns_is_read_as_if_all_rows_were_written_anew(
    tmp_path: Path, number: int
) -> None:
    readable = bool(number % 2)
    draw = random.Random(SEED + number)
    table = create(tmp_path / "table", hudi_readable=readable, upkeep_files=3)
    history = History(table, readable, draw)
    acts: Sequence[Any] = [history.upsert, history.alter, history.delete, history.undo]
    history.upsert()
    for _ in range(40 if LONG else 8):
        draw.choices([*acts, history.compact], [4, 4, 1, 1, 1])[0]()
        history.check()
    history.last()
