"""A DataFrame of few rows: handled in this process, and evaluated once wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import metatable
from metatable.engine.local import LocalEngine
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.spark.columns import weight_of_row
from metatable.spark.engine import SparkEngine
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write import entries_gone, few_rows, partial_rows, stale_rows
from metatable.write.few_rows import prepared_near
from tests.index.rows import SCHEMA, make, rows
from tests.long import each_once
from tests.spark.settings import settings
from tests.spark.telling import telling

WRITTEN = [(1 << 20, 60, "local"), (0, 60, "spark"), (1 << 20, 59, "spark")]
"""How much may be made anew, how many rows are few, and where they are written then."""
SAID = ("what it is", None, 0, 1 << 62)


@pytest.mark.parametrize(
    ("rewritten_bytes", "most", "engine", "said"),
    [(*one, said) for one, said in each_once(WRITTEN, SAID)],
)
def test_few_rows_are_written_here_unless_much_is_made_anew(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewritten_bytes: int,
    most: int,
    engine: str,
    said: int | str | None,
) -> None:
    """The source counts how often it is asked, and is different every time. What is said of its
    size is not believed: rows are counted."""
    monkeypatch.setattr(few_rows, "ROWS", most)
    monkeypatch.setattr(few_rows, "NEAR_ROWS", most)
    if said != "what it is":
        monkeypatch.setattr(SparkEngine, "estimate", lambda *_: said)
    monkeypatch.setattr(few_rows, "REWRITTEN_BYTES", rewritten_bytes)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 30))
    log = tmp_path / "evaluated"
    source = (
        spark.createDataFrame(rows(0, 60, value=7))
        .coalesce(1)
        .selectExpr("id", "city", "value", "cast(rand() as string) as note")
    )
    result = table.upsert(telling(source, log))
    assert (result.inserted, result.updated, result.engine) == (30, 30, engine)
    assert ("on Spark" in repr(result)) == (engine == "spark")
    assert log.read_text() == "once\n"  # its partition is one batch
    assert table.verify().findings == ()
    found = table.scan(columns=["id", "city", "value"]).to_arrow().sort_by("id")
    assert found.equals(rows(0, 60, value=7).select(found.schema.names).cast(found.schema))


READS = [(partial_rows, "stream_slice"), (entries_gone, "slices_ahead"), (stale_rows, "read_slice")]
"""Where stored rows are read for those that come, before any file is made anew."""


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who read stored rows in this process, to which few rows come; Spark's workers are others."""
    monkeypatch.setattr(few_rows, "ROWS", 60)
    calls = list[str]()
    for module, name in READS:
        read, who = getattr(module, name), module.__name__.rpartition(".")[2]

        def noting(*asked: Any, _read: Any = read, _who: str = who) -> Any:
            calls.append(_who)
            return _read(*asked)

        monkeypatch.setattr(module, name, noting)
    return calls


HERE = pytest.mark.parametrize(("most", "engine"), [(1 << 20, "local"), (0, "spark")])
"""How many bytes of files this process may read, and what reads them then."""


@pytest.mark.each_once
@HERE
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_columns_that_a_merge_leaves_out_are_read_here_unless_files_are_large(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_here: list[str],
    table_type: str,
    most: int,
    engine: str,
) -> None:
    monkeypatch.setattr(few_rows, "REWRITTEN_BYTES", most)
    table = make(str(tmp_path / "table"), "record", "global", table_type=table_type)
    table.insert(rows(0, 30))
    given = rows(20, 40, value=7)
    done = table.merge(spark.createDataFrame(given.select(["id", "city", "value"])))
    assert (done.updated, done.inserted, done.engine) == (10, 10, engine)
    assert set(read_here) == ({"partial_rows"} if engine == "local" else set())
    assert table.verify().findings == ()
    found = table.scan(columns=["id", "value", "note"]).to_arrow().sort_by("id")
    values = [*rows(0, 20)["value"].to_pylist(), *given["value"].to_pylist()]
    assert found["value"].to_pylist() == values
    assert found["note"].to_pylist() == [*rows(0, 30)["note"].to_pylist(), *[None] * 10]


@HERE
def test_keys_that_are_overwritten_are_read_here_unless_files_are_large(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_here: list[str],
    most: int,
    engine: str,
) -> None:
    monkeypatch.setattr(few_rows, "REWRITTEN_BYTES", most)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 30))
    done = table.insert_overwrite(spark.createDataFrame(rows(20, 40, value=7)), by="table")
    assert (done.updated, done.inserted, done.deleted, done.engine) == (10, 10, 20, engine)
    assert set(read_here) == ({"entries_gone"} if engine == "local" else set())
    assert table.verify().findings == ()


def test_an_overwrite_that_reads_no_keys_is_done_here(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_here: list[str]
) -> None:
    monkeypatch.setattr(few_rows, "REWRITTEN_BYTES", 0)
    table = make(str(tmp_path / "table"), "metadata_bloom", "partition")
    table.insert(rows(0, 30))
    done = table.insert_overwrite(spark.createDataFrame(rows(20, 40, value=7)), by="table")
    assert (done.updated, done.deleted, done.engine, read_here) == (10, 20, "local", [])


@HERE
def test_rows_that_may_be_stale_are_judged_here_unless_files_are_large(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_here: list[str],
    most: int,
    engine: str,
) -> None:
    monkeypatch.setattr(few_rows, "REWRITTEN_BYTES", most)
    table = metatable.create(
        str(tmp_path / "table"),
        SCHEMA,
        key="id",
        ordering="value",
        index="record",
        table_type="mor",
        storage_options={"durable": "false"},
    )
    table.insert(at(5, 0, 30))
    table.upsert(at(9, 20, 30))
    newer = table.upsert(spark.createDataFrame(at(9, 0, 30)))
    assert (newer.stale, newer.updated, newer.engine, read_here) == (0, 30, "local", [])
    done = table.upsert(spark.createDataFrame(at(7, 20, 40)))
    assert (done.stale, done.inserted, done.engine) == (10, 10, engine)
    assert set(read_here) == ({"stale_rows"} if engine == "local" else set())
    assert table.verify().findings == ()


def at(value: int, first: int, last: int) -> pa.Table:
    """Rows of one age."""
    return rows(first, last).set_column(2, SCHEMA.field("value"), [[value] * (last - first)])


@pytest.mark.parametrize("few", [0, 60])
def test_texts_of_a_declared_length_are_texts(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", few)
    table = make(str(tmp_path / "table"), "record", "global")
    with settings(spark, {"spark.sql.preserveCharVarcharTypeInfo": "true"}):
        texts = "cast(id as varchar(9)) as id", "cast(city as char(9)) as city"
        given = spark.createDataFrame(rows(0, 30)).selectExpr(*texts, "value", "note")
        assert given.schema["city"].dataType.simpleString() == "char(9)"
        assert table.upsert(given).engine == ("local" if few else "spark")
        assert table.filter_exists(given).count() == 30
    cities = {row["city"] for row in table.scan("city").to_arrow().to_pylist()}
    assert cities == {"amsterdam", "berlin   ", "cairo    "}


def test_rows_that_were_seen_before_are_evaluated_once_more(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark plans what a DataFrame itself is asked for but once, and keeping it comes too late."""
    monkeypatch.setattr(few_rows, "ROWS", 60)
    table = make(str(tmp_path / "table"), "record", "global")
    log = tmp_path / "evaluated"
    given = telling(spark.createDataFrame(rows(0, 60)).coalesce(1), log)
    assert len(given.collect()) == 60
    assert log.read_text() == "once\n"
    assert table.upsert(given).engine == "local"
    assert log.read_text() == "once\n" * 2


def test_what_a_plan_tells_does_not_keep_rows_from_being_kept_later(
    spark: Any, tmp_path: Path
) -> None:
    engine, log = SparkEngine(spark), tmp_path / "evaluated"
    given = telling(spark.range(3).coalesce(1), log)
    assert engine.estimate(given)
    assert not engine.is_stored(given)
    given.persist()
    assert [len(given.collect()), len(given.collect())] == [3, 3]
    given.unpersist()
    assert log.read_text() == "once\n"


def test_rows_that_their_owner_keeps_are_kept_for_him(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 60)
    table = make(str(tmp_path / "table"), "record", "global")
    log = tmp_path / "evaluated"
    given = telling(spark.createDataFrame(rows(0, 60)).coalesce(1), log).cache()
    assert table.upsert(given).engine == "local"
    assert given.storageLevel.useMemory
    assert given.count() == 60
    given.unpersist()
    assert log.read_text() == "once\n"


def test_rows_that_are_kept_twice_are_let_go_of_one_by_one(spark: Any) -> None:
    engine, given = SparkEngine(spark), spark.range(3)
    with engine.keep(given) as kept:
        with engine.keep(given):
            pass
        plan = kept._jdf.queryExecution().withCachedData().toString()
        assert "InMemoryRelation" in plan


@pytest.mark.parametrize("said", ["bigger than spark.driver.maxResultSize (1 MiB)", "disk full"])
def test_rows_are_not_few_for_a_driver_that_may_not_take_them(
    spark: Any, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    engine = SparkEngine(spark)
    gathered = engine.to_table

    def to_table(rows: Any) -> pa.Table:
        if rows.columns != ["rows", "bytes"]:
            raise RuntimeError(said)
        return gathered(rows)

    monkeypatch.setattr(engine, "to_table", to_table)
    with engine.keep(spark.range(3)) as kept:
        if "maxResultSize" in said:
            assert engine.few(kept, 3, 1 << 20) is None
        else:
            with pytest.raises(RuntimeError, match=said):
                engine.few(kept, 3, 1 << 20)


def test_rows_are_weighed_by_their_texts_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column is 8 bytes and its text in UTF-8, a list what it is as JSON."""
    engine, jobs = SparkEngine(spark), list[list[str]]()
    gathered = engine.to_table
    monkeypatch.setattr(engine, "to_table", lambda one: jobs.append(one.columns) or gathered(one))
    given = spark.createDataFrame(
        [(1, "ä" * 50, [1, 2]), (2, None, None)], "n int, s string, a array<int>"
    )
    size_bytes = 2 * 3 * 8 + 100 + len('{"a":[1,2]}') + len("{}")
    with engine.keep(given) as kept:
        assert engine.few(kept, 2, size_bytes - 1) is None
        found = engine.few(kept, 2, size_bytes)
    assert found is not None
    assert found["s"].to_pylist() == ["ä" * 50, None]
    assert jobs == [["rows", "bytes"], given.columns]


def test_rows_of_very_many_columns_are_weighed(spark: Any) -> None:
    """Each text is a part of one sum, which Spark goes down by calls."""
    names = [StructField(f"c{number}", StringType()) for number in range(200)]
    weight = str(weight_of_row(StructType(names)))
    depth = [0]
    for letter in weight:
        depth.append(depth[-1] + {"(": 1, ")": -1}.get(letter, 0))
    assert max(depth) < 20
    few = spark.createDataFrame([("ab", None), ("c", "é")], "a string, b string")
    assert few.select(weight_of_row(few.schema).alias("w")).toArrow()["w"].to_pylist() == [18, 19]


def test_a_delete_keeps_the_columns_of_keys_alone(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 60)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 30))
    kept, keep = list[list[str]](), SparkEngine.keep
    monkeypatch.setattr(
        SparkEngine, "keep", lambda engine, one: kept.append(one.columns) or keep(engine, one)
    )
    assert table.delete(spark.createDataFrame(rows(10, 40)).repartition(2)).deleted == 20
    assert kept == [["id"]]


def test_spark_tells_the_size_of_files_and_of_rows_of_the_driver(
    spark: Any, tmp_path: Path
) -> None:
    engine, path = SparkEngine(spark), tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": range(10_000)}), path)
    told = engine.estimate(spark.read.parquet(str(path)))
    assert told is not None
    assert path.stat().st_size // 2 <= told <= path.stat().st_size * 2
    assert engine.estimate(spark.createDataFrame([(1,)], "n int")) is not None
    unknown = spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "n int")
    assert (engine.estimate(unknown) or 0) > few_rows.NEAR_BYTES


class Asked:
    """An engine that has three rows; it remembers how many it was asked for, and what it kept."""

    counters, in_process = None, False
    limits: tuple[int, int] | None = None

    def __init__(
        self, slots: int = 1, least: int = 0, said: int | None = None, stored: bool = False
    ) -> None:
        self.slots, self._least, self._said, self._stored = slots, least, said, stored
        self.kept: list[str] = []

    def estimate(self, rows: str) -> int | None:
        return self._said

    def is_stored(self, rows: str) -> bool:
        return self._stored

    @contextmanager
    def keep(self, rows: str) -> Iterator[str]:
        self.kept.append(rows)
        yield f"kept {rows}"

    def few(self, rows: str, count: int, size_bytes: int) -> pa.Table | None:
        self.limits = count, size_bytes
        return pa.table({"n": [1, 2, 3]}) if count >= self._least else None


def ten_rows(folder: Path, index: str, scope: str) -> Snapshot:
    table = make(str(folder / "table"), index, scope)
    table.insert(rows(0, 10))
    store = Store(table.uri)
    manifest = load_newest(store)
    assert manifest is not None
    return Snapshot(store, manifest)


def made_of(engine: Any, rows: Any) -> Any:
    """What the pass of a commit prepares; of rows that are here nothing else is made."""
    return f"made of {rows}" if isinstance(rows, str) else rows


@pytest.mark.parametrize("more", [False, True])
def test_rows_are_few_sooner_where_the_cluster_has_more_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 10)
    snapshot = ten_rows(tmp_path, "record", "global")
    engine: Any = Asked(slots=LocalEngine().slots + more, least=11)
    with prepared_near(engine, "rows", snapshot, made_of) as (near, found):
        if more:
            assert (near, found) == (engine, "kept made of rows")
            assert engine.limits == (10, few_rows.ROW_BYTES)
        else:
            assert near.to_table(found)["n"].to_pylist() == [1, 2, 3]
            assert engine.limits == (few_rows.NEAR_ROWS, few_rows.NEAR_BYTES)


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("least", [0, few_rows.NEAR_ROWS + 1])
@pytest.mark.parametrize("too_many", [None, False, True])
def test_rows_that_may_be_few_are_prepared_where_they_are_looked_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: bool,
    least: int,
    too_many: bool | None,
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 10)
    snapshot = ten_rows(tmp_path, "record", "global")
    limit = (few_rows.ROW_BYTES if more else few_rows.NEAR_BYTES) // few_rows.TOLD_SHARE
    said = None if too_many is None else limit + too_many
    engine: Any = Asked(slots=LocalEngine().slots + more, least=least, said=said)
    with prepared_near(engine, "rows", snapshot, made_of) as (near, found):
        first = "rows" if too_many is False else "made of rows"
        if least:
            again = ["made of kept rows"] if too_many is False else []
            assert (near, engine.kept) == (engine, [first, *again])
            assert found == f"kept {engine.kept[-1]}"
        else:
            assert near.to_table(found)["n"].to_pylist() == [1, 2, 3]
            assert engine.kept == [first]


@pytest.mark.parametrize("least", [0, few_rows.NEAR_ROWS + 1])
def test_rows_that_are_read_as_they_are_stored_are_kept_only_if_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 10)
    snapshot = ten_rows(tmp_path, "record", "global")
    engine: Any = Asked(least=least, said=0, stored=True)
    with prepared_near(engine, "rows", snapshot, made_of) as (near, found):
        if least:
            assert (near, found, engine.kept) == (engine, "kept made of rows", ["made of rows"])
        else:
            assert near.to_table(found)["n"].to_pylist() == [1, 2, 3]
            assert engine.kept == []


@pytest.mark.parametrize(("most", "engine"), [(60, "local"), (59, "spark")])
def test_files_are_weighed_and_read_without_being_kept(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, engine: str
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", most)
    monkeypatch.setattr(few_rows, "NEAR_ROWS", most)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 30))
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(0, 60, value=7), path)
    asked, keep = list[Any](), SparkEngine.keep
    monkeypatch.setattr(
        SparkEngine, "keep", lambda of, one: asked.append(one.columns) or keep(of, one)
    )
    read = spark.read.parquet(str(path))
    result = table.upsert(read)
    assert (result.inserted, result.updated, result.engine) == (30, 30, engine)
    assert (asked == []) == (engine == "local")
    assert read.columns not in asked  # as they are; prepared they are kept
    found = table.scan(columns=["id", "city", "value"]).to_arrow().sort_by("id")
    assert found.equals(rows(0, 60, value=7).select(found.schema.names).cast(found.schema))


STORED = {
    "as they are": "select * from given",
    "columns and rows": "select s, n as m, 3 as t, cast(n as string) from given where n in (1, 2)",
    "compared": "select n from given where not (n <= 3 or s is null) and s <=> 'b'",
    "numbers": "select id from range(9)",
}
MADE = {
    "by chance": "select n, rand() from given",
    "by a name": "select n, uuid() from given",
    "by Java": "select reflect('java.lang.Math', 'abs', n) from given",
    "by a function of ours": "select ours(n) from given",
    "by a function": "select sha2(s, 256) from given",
    "by grouping": "select n, count(*) from given group by n",
    "by a join": "select a.n from given a join given b on a.n = b.n",
    "twice": "select n from given union all select n from given",
    "by asking another": "select n from given where n > (select avg(id) from range(9))",
    "by a window": "select n, row_number() over (order by s) from given",
}


@pytest.mark.parametrize("asked", [*STORED, *MADE])
def test_rows_are_stored_where_nothing_is_done_but_reading_one_source(
    spark: Any, tmp_path: Path, asked: str
) -> None:
    pq.write_table(pa.table({"n": range(10), "s": list("abcdefghij")}), tmp_path / "given.parquet")
    spark.read.parquet(str(tmp_path)).createOrReplaceTempView("given")
    spark.udf.register("ours", lambda n: n)
    read = spark.sql((STORED | MADE)[asked])
    assert SparkEngine(spark).is_stored(read) is (asked in STORED)


def test_rows_of_the_driver_are_stored_and_those_of_an_rdd_are_not(spark: Any) -> None:
    engine = SparkEngine(spark)
    assert engine.is_stored(spark.createDataFrame(pa.table({"n": [1, 2]})))
    assert not engine.is_stored(
        spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "n int")
    )


def test_rows_that_cannot_be_prepared_are_refused_before_they_are_asked_for(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 60)
    table = make(str(tmp_path / "table"), "record", "global")
    table.insert(rows(0, 3))
    log = tmp_path / "evaluated"
    nameless = spark.createDataFrame(rows(0, 3)).drop("id")
    with pytest.raises(UsageError, match="the key column is missing"):
        table.upsert(telling(nameless, log))
    assert not log.exists()


@pytest.mark.parametrize("index", ["record", "bucket", "metadata_bloom", "bloom"])
def test_where_many_filters_may_be_asked_rows_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    monkeypatch.setattr(few_rows, "ROWS", 10)
    snapshot = ten_rows(tmp_path, index, "partition")
    for listed_bytes, stay in ((1 << 20, False), (0, index.endswith("bloom"))):
        monkeypatch.setattr(few_rows, "LISTED_BYTES", listed_bytes)
        engine: Any = Asked(said=0)
        with prepared_near(engine, "rows", snapshot, made_of) as (near, found):
            if stay:
                assert (near, found, engine.limits) == (engine, "kept made of rows", None)
            else:
                assert engine.limits == (10, few_rows.ROW_BYTES)
                assert near.to_table(found)["n"].to_pylist() == [1, 2, 3]
