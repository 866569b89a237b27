"""Writes of a Spark DataFrame: the same rows, tags and entries as in process, evaluated once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import metatable
from metatable.data.base_files.base_file import read_base_file
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.data.hoodie.operations import UPSERT
from metatable.engine import adding_up
from metatable.engine.local import LocalEngine
from metatable.index import bloom_lookup, presence
from metatable.metadata.hfiles.payload import decode_blooms, decode_stats
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write import commit_pass, few_rows
from metatable.write.commit_pass import write
from tests.index.rows import make, rows, told_tags
from tests.long import LONG
from tests.model import SCHEMA, Model, Row, arrow, check
from tests.spark.telling import telling

KINDS = [("record", "global"), ("metadata_bloom", "partition")]
"""The first in the long run alone: test_merge, test_changes and test_spark_history write it."""


@pytest.fixture(params=KINDS if LONG else KINDS[1:], ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


def _hudi_rows(uri: str) -> list[str]:
    batches = HudiTableBuilder.from_base_uri(uri).build().read()
    return sorted(row["id"] + "/" + row["city"] for batch in batches for row in batch.to_pylist())


def _rows_of(table: metatable.Table) -> list[Any]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


def _groups(table: metatable.Table) -> list[tuple[str, tuple[str, ...]]]:
    """File groups by what they hold: their names are random."""
    store, wanted = Store(table.uri), pa.schema([("_hoodie_record_key", pa.string())])
    held = (
        (file.partition_path, tuple(sorted(read_base_file(store, file, wanted)[0].to_pylist())))
        for file in table.scan().files()
    )
    return sorted(held)


def _entries(table: metatable.Table) -> dict[str, Any]:
    """Metadata entries without the names of files."""
    store = Store(table.uri)
    manifest = load_newest(store)
    assert manifest is not None
    snapshot = Snapshot(store, manifest)
    entries: dict[str, list[Any]] = {"stats": [], "filters": [], "keys": []}
    for batch in snapshot.scan(ColumnStatsPartition(snapshot.options)):
        told = decode_stats(batch["value"], pa.string()).drop_columns(_VARIES)
        entries["stats"] += told.to_pylist()  # bounds of text columns, counts of all
    if "record_index" in manifest.pages:
        for batch in snapshot.scan(RecordIndexPartition(snapshot.options)):
            entries["keys"] += batch["key"].to_pylist()
    else:
        for batch in snapshot.scan(BloomFilterPartition(snapshot.options)):
            entries["filters"] += decode_blooms(batch["value"]).select(["filter"]).to_pylist()
    return {name: Counter(map(repr, found)) for name, found in entries.items()}


_VARIES = ["file_name", "size_bytes", "uncompressed_bytes"]


def test_a_history_on_spark_equals_the_same_history_in_process(
    spark: Any, table_uri: str, kind: tuple[str, str]
) -> None:
    salts = {"key_salts": (1, 2)}  # else the two tables hash keys differently
    local = make(f"{table_uri}-local", *kind, **salts)
    remote = make(f"{table_uri}-spark", *kind, **salts)
    history = [
        ("insert", rows(0, 150)),
        ("upsert", rows(120, 180, value=1000)),
        ("delete", rows(30, 60).append_column("other", pa.array([1] * 30))),
        ("insert", rows(40, 50)),
        ("compact", None),
        ("upsert", rows(0, 10, value=5000)),
    ]
    if kind[1] == "global":
        moved = rows(60, 70)
        history.append(("upsert", moved.set_column(1, "city", pa.array(["elsewhere"] * 10))))
    for verb, batch in history:
        if batch is None:
            local.compact(major=True)
            remote.compact(major=True, engine=spark)
            continue
        here = getattr(local, verb)(batch)
        there = getattr(remote, verb)(spark.createDataFrame(batch))
        for name in ("inserted", "updated", "deleted", "moved", "stale", "absent", "files"):
            assert getattr(there, name) == getattr(here, name), (verb, name)
        assert there.version == here.version
    assert _rows_of(remote) == _rows_of(local)
    assert _groups(remote) == _groups(local)
    assert _entries(remote) == _entries(local)
    assert remote.verify().findings == ()
    assert len(_hudi_rows(remote.uri)) == remote.scan().count() == local.scan().count()
    found = [place is not None for place in told_tags(local.tag_locations(rows(0, 200)))]
    tagged = remote.filter_exists(spark.createDataFrame(rows(0, 200)))
    assert tagged.count() == sum(found)


def test_the_input_is_evaluated_once(spark: Any, tmp_path: Path, kind: tuple[str, str]) -> None:
    """A source of random values, which also counts how often it is asked."""
    table = make(str(tmp_path / "table"), *kind)
    table.insert(rows(0, 30))
    log = tmp_path / "evaluated"
    asked = "concat('k', lpad(cast(id as string), 6, '0')) as id"
    city = "element_at(array('amsterdam','berlin','cairo'), cast(id % 3 as int) + 1) as city"
    value = "cast(rand() * 1e15 as bigint) as value"
    source = spark.range(0, 60, 1, 2).selectExpr(
        asked, city, value, "cast(rand() as string) as note"
    )
    result = table.upsert(telling(source, log))
    assert (result.inserted, result.updated) == (30, 30)
    assert log.read_text() == "once\n" * 2  # one for each of its two partitions
    assert table.verify().findings == ()


class FailsOnce(Store):
    """Writes the first data file it is asked for, and then says that it failed. Workers know of
    each other by a file beside the table."""

    def create(self, path: str, body: Any, **how: Any) -> bool:
        done = super().create(path, body, **how)
        tripped = Path(self.uri).with_name("trip")
        if path.endswith(".parquet") and not tripped.exists():
            tripped.write_text(path)
            raise RuntimeError("lost the answer")
        return done


class AlwaysFails(Store):
    """Writes data files, and says that it failed, each time."""

    def create(self, path: str, body: Any, **how: Any) -> bool:
        done = super().create(path, body, **how)
        if path.endswith(".parquet"):
            raise RuntimeError("lost the answer")
        return done


def _engine(spark: Any, frame: Any) -> Any:
    from metatable.spark.engine import SparkEngine  # noqa: PLC0415

    return SparkEngine(frame)


def test_a_task_that_fails_once_leaves_one_file_of_each_slice(
    spark: Any, tmp_path: Path, kind: tuple[str, str]
) -> None:
    table = make(str(tmp_path / "table"), *kind)
    table.insert(rows(0, 60))
    store = FailsOnce(table.uri, {"durable": "false"})
    frame = spark.createDataFrame(rows(40, 100, value=7))
    result = write(store, _engine(spark, frame), frame, UPSERT)
    assert (tmp_path / "trip").exists()
    assert (result.inserted, result.updated) == (40, 20)
    assert table.verify().findings == ()
    stored = [one.name for one in Store(table.uri).list("", recursive=True)]
    slices = [
        name.rpartition("_")[0].partition("_")[0] + name[-25:]
        for name in stored
        if name.endswith(".parquet")
    ]
    assert len(slices) == len(set(slices))
    commit = CommitMetadata.decode(
        Store(table.uri).fetch(f".hoodie/{result.instant}.commit"), "commit"
    )
    assert len(commit.stats) == result.files
    assert len(_hudi_rows(table.uri)) == 100


def test_a_failed_job_leaves_nothing_visible(
    spark: Any, tmp_path: Path, kind: tuple[str, str]
) -> None:
    table = make(str(tmp_path / "table"), *kind)
    table.insert(rows(0, 60))
    before, version = _rows_of(table), table.version
    store = AlwaysFails(table.uri, {"durable": "false"})
    frame = spark.createDataFrame(rows(40, 100, value=7))
    with pytest.raises(Exception, match="lost the answer"):
        write(store, _engine(spark, frame), frame, UPSERT)
    assert table.version == version
    assert _rows_of(table) == before
    assert len(_hudi_rows(table.uri)) == 60
    assert table.upsert(rows(40, 100, value=7)).inserted == 40
    assert table.verify().findings == ()


def _lose_what_is_kept(spark: Any) -> None:
    """As where the executors that keep it are lost: it is worked out again when it is asked for."""
    held = spark.sparkContext._jsc.getPersistentRDDs()
    for number in [*held]:
        held[number].unpersist(True)


@pytest.mark.each_once
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_rows_that_come_out_otherwise_when_an_executor_is_lost_are_not_written(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, same: bool
) -> None:
    """The plan was made without the file group that holds the key which comes the second time."""
    first = {"upsert": "k001000", "delete": "k000003"}[verb]
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 60))
    before, asked, plan = _rows_of(table), tmp_path / "asked", commit_pass.planned

    def drawn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            other = asked.exists() and not same
            asked.touch()
            yield batch.set_column(0, "id", pa.array(["k000001" if other else first]))

    def planned(*told: Any) -> Any:
        made = plan(*told)
        _lose_what_is_kept(spark)
        return made

    monkeypatch.setattr(commit_pass, "planned", planned)
    given = spark.createDataFrame(rows(3, 4, value=7)).coalesce(1)
    given = given.mapInArrow(drawn, given.schema)
    if same:
        assert getattr(table, verb)(given).files == 1
    else:
        with pytest.raises(UsageError, match=r"came out otherwise"):
            getattr(table, verb)(given)
        assert _rows_of(table) == before
    assert table.verify().findings == ()


def test_keys_that_repeat_only_when_rows_are_worked_out_again_are_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, asked = make(str(tmp_path / "table"), "record", "global"), tmp_path / "asked"
    once = commit_pass.distinct

    def drawn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = ["k1", "k1"] if asked.exists() else ["k1", "k2"]
            asked.touch()
            drawn_one = batch.set_column(0, "id", pa.array(ids))
            yield drawn_one.set_column(1, "city", pa.array(["berlin"] * 2))

    def distinct(*told: Any) -> Any:
        made = once(*told)
        _lose_what_is_kept(spark)
        return made

    monkeypatch.setattr(commit_pass, "distinct", distinct)
    given = spark.createDataFrame(rows(0, 2)).coalesce(1)
    given = given.mapInArrow(drawn, given.schema)
    with pytest.raises(UsageError, match="came out otherwise"):
        table.upsert(given)
    assert table.scan().count() == 0


def test_bad_rows_on_spark_are_refused_with_our_errors(spark: Any, table_uri: str) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 10))
    with pytest.raises(UsageError, match="use upsert"):
        table.insert(spark.createDataFrame(rows(5, 15)))
    with pytest.raises(UsageError, match="repeat"):
        table.upsert(spark.createDataFrame(pa.concat_tables([rows(20, 25), rows(20, 25)])))
    with pytest.raises(UsageError, match="extra"):
        table.upsert(spark.createDataFrame(rows(20, 25)).selectExpr("*", "1 as extra"))
    nulls = spark.sql("select cast(null as string) as id, 'x' as city")
    with pytest.raises(UsageError, match="null"):
        table.upsert(nulls)
    assert table.version == 2


def test_the_driver_is_told_of_each_file_group_once_where_rows_are_many(
    spark: Any, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random keys meet all of them in each task."""
    for module, name in ((few_rows, "ROWS"), (few_rows, "NEAR_ROWS"), (adding_up, "MOST_TOLD")):
        monkeypatch.setattr(module, name, 0)
    table = metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        ordering="ts",
        options={"file_rows": 20, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )
    model = Model(is_global=True, ordering=True)

    def given(first: int, last: int, v: int) -> list[Row]:
        return [
            {"id": f"k{n * 77 % 1000}", "city": "ny", "v": v, "ts": v} for n in range(first, last)
        ]

    from metatable.spark.engine import SparkEngine  # noqa: PLC0415

    table.insert(arrow(given(0, 100, 1)))
    model.upsert(given(0, 100, 1))
    told, run = dict[str, int](), SparkEngine.run

    def noting(engine: Any, rows: Any, task: Any, schema: pa.Schema) -> pa.Table:
        made = run(engine, rows, task, schema)
        for name in {"key_sum", "least"} & {*schema.names}:
            told[name] = len(made["file_id"].drop_null())
        return made

    monkeypatch.setattr(SparkEngine, "run", noting)
    frame = spark.createDataFrame(arrow(given(0, 110, 2))).repartition(8)  # at random
    result = table.upsert(frame)
    assert (result.engine, result.inserted, result.updated) == ("spark", 10, 100)
    assert told == {"key_sum": 5, "least": 5}
    model.upsert(given(0, 110, 2))
    check(table, model)


def test_candidates_of_a_hot_file_spread_over_tasks(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = metatable.create(
        table_uri, rows(0, 0).schema, key="id", options={"key_scope": "global"}
    )
    table.insert(rows(0, 400))
    assert len(table.scan().files()) == 1
    monkeypatch.setattr(presence, "CHUNK_KEYS", 10)
    engine = LocalEngine(threads=1)
    manifest = load_newest(Store(table.uri))
    assert manifest is not None
    snapshot = Snapshot(Store(table.uri), manifest)
    from metatable.index.metadata_bloom import MetadataSource  # noqa: PLC0415

    asked = rows(0, 400).select(["id"]).to_batches()
    counters = engine.counters
    found = list(
        bloom_lookup.candidates(MetadataSource(), snapshot, iter(asked), counters, tasks=8)
    )
    tasks = Counter(batch["_task"][0].as_py() for batch in found)
    assert len(found) == 40
    assert len(tasks) == 8
    assert max(tasks.values()) <= 10
    assert table.tag_locations(rows(0, 400))["_location"].null_count == 0


CONNECT = """
import os, sys, warnings
warnings.simplefilter("ignore")
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
assert "connect" in type(spark).__module__
from tests.index.rows import make, rows
table = make({uri!r}, {index!r}, {scope!r})
frame = spark.createDataFrame
told = [table.insert(frame(rows(0, 60))).inserted, table.upsert(frame(rows(50, 80))).updated]
told += [table.delete(frame(rows(0, 20))).deleted, table.filter_exists(frame(rows(0, 99))).count()]
told += [table.compact(major=True, engine=spark).files_after]
told += [len(table.verify().findings), table.scan().count()]
print(told)
"""


@pytest.mark.parametrize("kind", [KINDS[0]], ids="-".join)
def test_every_verb_runs_on_spark_connect(
    spark: Any, table_uri: str, tmp_path: Path, kind: tuple[str, str]
) -> None:
    """In a process of its own; `spark` only says that there is a Java."""
    pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")
    script = tmp_path / "connect.py"
    script.write_text(CONNECT.format(uri=table_uri, index=kind[0], scope=kind[1]))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().splitlines()[-1] == "[60, 10, 20, 60, 3, 0, 60]"


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("raise_error('worked out') as other", "column is not in the table: column='other'"),
        ("cast(raise_error('worked out') as double) as value", "another type than the table's"),
    ],
)
def test_columns_that_are_not_the_tables_are_refused_before_a_row_is_worked_out(
    spark: Any, table_uri: str, column: str, told: str
) -> None:
    table = make(table_uri, "record", "global")
    frame = spark.createDataFrame(rows(0, 50)).selectExpr("id", "city", column)
    for verb in (table.upsert, table.insert, table.merge):
        with pytest.raises(UsageError, match=told):
            verb(frame)


@pytest.mark.each_once
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("near", [True, False])
def test_what_spark_has_no_type_for_is_written_back(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: bool, table_type: str
) -> None:
    schema = pa.schema(
        {
            "id": pa.string(),
            "n": pa.int64(),
            "digest": pa.binary(2),
            "at": pa.timestamp("ms"),
            "inner": pa.struct([("d", pa.list_(pa.binary(3))), ("t", pa.timestamp("ms", "UTC"))]),
        }
    )
    monkeypatch.setattr(few_rows, "ROWS", 1000 if near else 0)
    monkeypatch.setattr(few_rows, "NEAR_ROWS", 1000 if near else 0)
    table = metatable.create(
        tmp_path / "t",
        schema,
        key="id",
        ordering="n",
        table_type=table_type,
        storage_options={"durable": "false"},
    )
    held = [
        {"id": "a", "n": 1, "digest": b"12", "at": 1, "inner": {"d": [b"abc", None], "t": 5000}},
        {"id": "b", "n": 2000, "digest": None, "at": 2000, "inner": None},
    ]
    given = pa.Table.from_pylist(held, schema)
    table.insert(given)
    text = "named_struct('d', array(cast('abc' as binary), null), 't', timestamp_millis(5000))"
    frame = spark.createDataFrame(
        [("a", 2, "34"), ("b", 1999, "56")], "id string, n bigint, d string"
    )
    digest, moment = "cast(d as binary) as digest", "timestamp_millis(n)::timestamp_ntz as at"
    done = table.upsert(frame.selectExpr("id", "n", digest, moment, f"{text} as inner"))
    assert (done.updated, done.stale, done.engine) == (1, 1, "local" if near else "spark")
    expected = pa.Table.from_pylist([held[0] | {"n": 2, "digest": b"34", "at": 2}, held[1]], schema)
    assert table.scan().to_arrow().sort_by("id").equals(expected)
    for changed in (
        "cast('123' as binary) as digest",
        "timestamp_micros(1)::timestamp_ntz as at",
    ):
        others = [digest] if changed.endswith("at") else [moment]
        with pytest.raises(UsageError, match=r"another (size|type) than the table"):
            table.upsert(frame.selectExpr("id", "n", changed, *others))
    assert table.verify().findings == ()
