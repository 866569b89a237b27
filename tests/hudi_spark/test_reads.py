"""Hudi on Spark reads what metatable wrote: every index, after every verb, then and now."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, DropColumn, RenameColumn, WidenColumn
from metatable.data.columns.schema import META_COLUMNS
from tests.data.test_schema import EVERY_TYPE, FULL_ROW
from tests.hudi_spark.histories import FAST, KINDS, STEPS, Kind, history, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.writing import writer_options
from tests.model import arrow, listed, scanned

EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
EVERY_INDEX = pytest.mark.parametrize(
    "kind",
    [Kind("record", "global"), Kind("metadata_bloom"), Kind("bloom"), Kind("bucket")],
    ids=str,
)
MOMENTS_WITHOUT_ZONE = "spark.sql.parquet.inferTimestampNTZ.enabled"
NO_TIMES = r"Illegal Parquet type: INT64 \(TIME\(MICROS"
IN_BATCHES = "spark.sql.parquet.enableVectorizedReader"
"""Spark's default. In a session in which 1.x has read an increment it is false from then on."""
IN_MICROS = pa.timestamp("us", "UTC")
ANCIENT = "spark.sql.parquet.datetimeRebaseMode"


def as_rows(table: pa.Table) -> list[tuple[object, ...]]:
    return listed(table.to_pylist())


@pytest.mark.parametrize("last", STEPS)
@EVERY_KIND
def test_hudi_reads_the_rows_of_our_scan(
    hudi: HudiOnSpark, table_uri: str, kind: Kind, last: str
) -> None:
    table, model = kind.create(table_uri), kind.model
    for name in history(table, model):
        if name == last:
            break
    assert scanned(table) == model.listed()
    assert as_rows(hudi.read(table_uri)) == model.listed()


@EVERY_INDEX
def test_hudi_reads_every_version_at_its_instant(
    hudi: HudiOnSpark, table_uri: str, kind: Kind
) -> None:
    table, model = kind.create(table_uri), kind.model
    seen = {}
    for _ in history(table, model):
        assert table.instant is not None
        seen[table.instant] = model.listed()
    assert len(seen) == len(STEPS) - 1, "a rollback leaves the instant of the commit before"
    for instant, expected in seen.items():
        assert as_rows(hudi.as_of(table_uri, instant)) == expected


@EVERY_KIND
def test_increments_are_the_rows_that_were_written_since(
    hudi: HudiOnSpark, table_uri: str, kind: Kind
) -> None:
    """0.15.0 keeps the files of a commit by their ids alone. A bucket's id is one in all
    partitions, so of those it sees one, and loses the rows of the others without a word."""
    table, model = kind.create(table_uri), kind.model
    steps = history(table, model)
    next(steps)
    first, before = table.instant, set(model.listed())
    assert first is not None
    for _ in steps:
        pass
    since = set(model.listed()) - before
    assert 0 < len(since) < len(model.rows)
    found = hudi.since(table_uri, first)
    if hudi.is_old and kind == Kind("bucket"):
        assert set(as_rows(found)) < since
    else:
        assert set(as_rows(found)) == since
        assert found.num_rows == len(since)
    assert min(found["_hoodie_commit_time"].to_pylist()) > first


def test_an_undone_commit_is_not_there_at_its_own_instant(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    table = Kind("record", "global").create(table_uri)
    table.insert(arrow(rows(0, 20)))
    undone = table.upsert(arrow(rows(10, 30, 1))).instant
    assert undone is not None
    assert len(as_rows(hudi.as_of(table_uri, undone))) == 30
    table.rollback(undone)
    assert as_rows(hudi.as_of(table_uri, undone)) == listed(rows(0, 20))


def test_meta_columns_say_where_each_row_lies(hudi: HudiOnSpark, table_uri: str) -> None:
    table, model = Kind("record", "global").create(table_uri), Kind("record", "global").model
    for _ in history(table, model):
        pass
    found = hudi.read(table_uri)
    keys = found.select(["id", "city"])
    ours = table.tag_locations(keys)["_location"].to_pylist()
    theirs = zip(*(found[name].to_pylist() for name in META_COLUMNS[3:]), strict=True)
    assert found["_hoodie_record_key"].equals(found["id"])
    for place, (path, name) in zip(ours, theirs, strict=True):
        assert place["partition_path"] == path
        assert name.startswith(f"{place['file_id']}_")
        assert name.endswith(f"_{place['instant']}.parquet")


@pytest.mark.parametrize("hive_style", [True, False], ids=["hive-style", "plain-paths"])
def test_filters_on_partitions_and_columns_lose_no_row(
    hudi: HudiOnSpark, table_uri: str, hive_style: bool
) -> None:
    kind = Kind("metadata_bloom", hive_style=hive_style)
    table, model = kind.create(table_uri), kind.model
    for _ in history(table, model):
        pass
    hudi.session.read.format("hudi").load(table_uri).createOrReplaceTempView("filtered")
    for city in ("ny", "sf", "la"):
        told = hudi.sql(f"select * from filtered where city = '{city}' and v > 0")
        where = [("city", "=", city), ("v", ">", 0)]
        assert as_rows(told) == listed(table.scan(where=where).to_arrow().to_pylist())
        assert bool(told.num_rows) == (city != "la")


def test_a_table_in_spark_s_catalog_goes_on_being_ours(hudi: HudiOnSpark, table_uri: str) -> None:
    table = Kind("record", "global").create(table_uri)
    first = table.insert(arrow(rows(0, 20))).instant
    table.upsert(arrow(rows(10, 30, 1)))
    hudi.sql(f"create table rides using hudi location '{table_uri}'")
    try:
        assert as_rows(hudi.sql("select * from rides")) == scanned(table)
        then = hudi.sql(f"select * from rides timestamp as of '{first}'")
        assert as_rows(then) == listed(rows(0, 20))
        again = metatable.open(table_uri, storage_options=FAST)
        again.upsert(arrow(rows(25, 35, 2)))
        hudi.sql("refresh table rides")
        assert as_rows(hudi.sql("select * from rides")) == scanned(again)
        assert again.verify().findings == ()
    finally:
        hudi.sql("drop table rides")
    assert Path(table_uri, ".hoodie", "hoodie.properties").is_file()


def test_values_of_every_type_arrive(hudi: HudiOnSpark, table_uri: str) -> None:
    """But for times of a day: Spark 3.5 has no such type.

    Of timestamps without a zone Spark infers another type than Hudi's schema says, which it reads
    in batches only where it is told not to.
    """
    schema = pa.schema([field for field in EVERY_TYPE if not pa.types.is_time(field.type)])
    given = [FULL_ROW, dict.fromkeys(schema.names) | {"id": 2}]
    table = metatable.create(table_uri, schema, key="id", storage_options=FAST)
    table.insert(pa.Table.from_pylist(given, schema=schema))
    with hudi.settings({IN_BATCHES: "true"}):
        with pytest.raises(Exception, match="Datatype not supported"):
            hudi.read(table_uri)
        with hudi.settings({MOMENTS_WITHOUT_ZONE: "false"}):
            found = hudi.read(table_uri).select(schema.names)
    ours = table.scan().to_arrow()
    moments = [one.name for one in schema if pa.types.is_timestamp(one.type)]
    for name in schema.names:
        theirs, expected = found[name], ours[name]
        if name in moments:
            # readers of Hudi take all timestamps as UTC
            theirs, expected = theirs.cast(IN_MICROS), expected.cast(IN_MICROS)
        by_id = dict(zip(found["id"].to_pylist(), theirs.to_pylist(), strict=True))
        assert by_id == dict(zip(ours["id"].to_pylist(), expected.to_pylist(), strict=True)), name


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_of_tables_with_times_of_a_day_nothing_is_read(
    hudi: HudiOnSpark, table_uri: str, kind: str
) -> None:
    """Hudi looks at all columns of a file, whatever is asked for, and Spark 3.5 has no such type.
    Files keep a column that is dropped."""
    given = pa.table({"id": [1, 2], "at": [time(1, 2, 3, 4), None], "note": ["a", "b"]})
    table = metatable.create(
        table_uri, given.schema, key="id", table_type=kind, storage_options=FAST
    )
    table.insert(given)

    def ids() -> list[int]:
        rows = hudi.session.read.format("hudi").load(table_uri).select("id").collect()
        return sorted(row.id for row in rows)

    with pytest.raises(Exception, match=NO_TIMES):
        ids()
    table.alter(DropColumn("at"))
    with pytest.raises(Exception, match=NO_TIMES):
        ids()
    table.alter(RenameColumn("note", "word"))  # writes all files anew
    assert ids() == [1, 2]


def test_columns_and_what_lies_in_them_may_be_widened(hudi: HudiOnSpark, table_uri: str) -> None:
    """Spark refuses a struct, list or map of a file in which something has another type than the
    table's, even where it would read a column of that type: such files are written anew."""
    each = {
        "n": (7, pa.int32(), pa.int64()),
        "r": (7, pa.int32(), pa.float64()),
        "d": (Decimal("1.25"), pa.decimal128(5, 2), pa.decimal128(9, 4)),
        "t": (datetime(2024, 1, 1, 0, 0, 0, 5000, UTC), pa.timestamp("ms", "UTC"), IN_MICROS),
        "b": (b"ab", pa.binary(2), pa.binary()),
    }
    row = {name: value for name, (value, _, _) in each.items()}
    kinds = {name: kind for name, (_, kind, _) in each.items()}
    nested = {"at": pa.struct(kinds), "l": pa.list_(pa.int32())}
    nested["m"] = pa.map_(pa.string(), pa.struct([("y", pa.int32())]))
    schema = pa.schema({"id": pa.int64(), **kinds, **nested})
    given = [{"id": 1, **row, "at": row, "l": [8], "m": [("k", {"y": 9})]}, {"id": 2}]
    table = metatable.create(table_uri, schema, key="id", storage_options=FAST)
    table.insert(pa.Table.from_pylist(given, schema=schema))
    wider = {name: kind for name, (_, _, kind) in each.items()}
    ways = [([WidenColumn(name, kind) for name, kind in wider.items()], 0)]
    ways += [([AddColumn(f"{one}.z", pa.int32(), after="")], 0) for one in ("at", "m.value")]
    ways += [([WidenColumn(f"at.{name}", wider[name])], int(name in "nrd")) for name in each]
    ways += [([WidenColumn(name, pa.int64())], 1) for name in ("l.element", "m.value.y")]
    for changes, expected in ways:
        written = table.alter(*changes).files
        with hudi.settings({IN_BATCHES: "true"}):
            found = hudi.read(table_uri).select(table.schema.names).sort_by("id")
        assert found.to_pylist() == table.scan().to_arrow().sort_by("id").to_pylist()
        assert written == expected


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_days_of_long_ago_arrive_where_spark_is_told_to_take_them_as_they_are(
    hudi: HudiOnSpark, table_uri: str, kind: str
) -> None:
    """Spark 3.5 refuses days before 1582-10-15 and moments before 1900 in files that do not say
    that Spark wrote them: in those of Hudi's own upserts as in ours."""
    days = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), None]
    moments = [day and datetime(day.year, day.month, day.day, 2, 30, tzinfo=UTC) for day in days]
    ids = [f"k{number}" for number in range(len(days))]
    columns = {"id": ids, "at": moments, "day": days, "city": ["ny"] * 5, "ts": [1] * 5}
    given = pa.table({**columns, "at": pa.array(moments, IN_MICROS)})
    table = metatable.create(
        table_uri, given.schema, key="id", table_type=kind, storage_options=FAST
    )
    table.insert(given)
    table.upsert(given.slice(1, 3))
    theirs = f"{table_uri}-theirs"
    as_it_is = {f"{ANCIENT}InRead": "CORRECTED"}
    with hudi.settings({f"{ANCIENT}InWrite": "CORRECTED"}):
        with hudi.settings(as_it_is):
            hudi.write(given, theirs, writer_options("t", ("id",), ("city",)))
        for uri in (table_uri, theirs):
            with pytest.raises(Exception, match="READ_ANCIENT_DATETIME"):
                hudi.read(uri)
            with hudi.settings(as_it_is):
                found = hudi.read(uri).select(given.schema.names).sort_by("id")
            assert found.to_pylist() == given.to_pylist()
