"""Whole partitions are replaced, or go: what was in them leaves the table, for Hudi, too."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table, UsageError
from metatable.data.hoodie.timeline import Timeline
from metatable.metadata.commits.steps import staged_path
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.store import Store
from metatable.write import entries_gone, overwrite
from tests.face.protocol.making import recover
from tests.long import LONG, one_in
from tests.model import (
    SCHEMA,
    Model,
    Row,
    arrow,
    check,
    check_counts,
    read_by_hudi,
    replaced,
    scanned,
)

FAST = {"durable": "false"}
KINDS = [
    ("record", "global"),
    ("record", "partition"),
    ("metadata_bloom", "global"),
    ("metadata_bloom", "partition"),
    ("bloom", "partition"),
    ("bucket", "partition"),
]
ORDERED = [(*kind, (None, "ts")[place % 2]) for place, kind in enumerate(KINDS)]
if LONG:
    ORDERED = [(*kind, ordering) for kind in KINDS for ordering in (None, "ts")]
CITIES = ("ny", "sf", "la")


def created(uri: str, index: str, scope: str, ordering: str | None = None, **options: Any) -> Table:
    cut = {"bucket_count": 3} if index == "bucket" else {"file_rows": 7}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering=ordering,
        index=index,
        options={"key_scope": scope, **cut, **options},
        storage_options=FAST,
    )


def row(number: int, city: str, v: int, ts: int = 0) -> Row:
    return {"id": f"k{number:02}", "city": city, "v": v, "ts": ts}


def few(v: int, *numbers: int, city: str = "ny") -> list[Row]:
    return [row(number, city, v) for number in numbers]


@pytest.fixture
def table(table_uri: str) -> Table:
    """Eight rows in ny, in two files, four in sf."""
    table = created(table_uri, "record", "global")
    table.insert(arrow(few(1, *range(8)) + few(1, *range(8, 12), city="sf")))
    return table


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize(("index", "scope", "ordering"), one_in(2, ORDERED))
def test_after_any_overwrites_rows_index_and_hudi_are_those_of_a_dict(
    table_uri: str, index: str, scope: str, ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries_gone, "FILES_TOGETHER", 2)
    monkeypatch.setattr(entries_gone, "KEYS_BYTES", 100)
    monkeypatch.setattr(overwrite, "FEW_PARTITIONS", 1 if ordering else 16)
    table = created(table_uri, index, scope, ordering)
    model = Model(scope == "global", ordering is not None)
    chosen = random.Random(f"{index} {scope} {ordering}")
    probe = [row(number, city, 0) for number in range(24) for city in CITIES]
    verbs = ["upsert", "upsert", "overwrite", "overwrite", "table", "partition", "delete"]
    for step in range(7):
        verb = verbs[step] if step < 3 else chosen.choice(verbs)
        rows = [
            row(number, chosen.choice(CITIES[: 2 + step % 2]), step, step - chosen.randrange(3))
            for number in chosen.sample(range(24), 10)
        ]
        before = table.version
        if verb == "upsert":
            told, counts = table.upsert(arrow(rows)), model.upsert(rows)
        elif verb == "delete":
            told, counts = table.delete(arrow(rows)), model.delete(rows)
        elif verb == "table":
            told = table.insert_overwrite(arrow(rows), by="table")
            counts = model.overwrite(rows, CITIES)
        elif verb == "partition":
            city = chosen.choice(CITIES)
            told, counts = table.delete_partition({"city": city}), model.overwrite([], [city])
        else:
            rows = [one for one in rows if not lives_elsewhere(model, one, rows)]
            told, counts = table.insert_overwrite(arrow(rows)), model.overwrite(rows)
        check_counts(table, told, counts)
        check(table, model, probe if step % 3 == 2 else ())
        if told.version == before:
            model.forget_commit()
        elif step == 4:
            table.rollback()
            model.rollback()
            check(table, model)


def lives_elsewhere(model: Model, given: Row, rows: list[Row]) -> bool:
    """Whether it is in a partition that none of `rows` is for."""
    held = model.rows.get(model.identity(given))
    return held is not None and held["city"] != given["city"]


def commit_of(table: Table) -> dict[str, Any]:
    path = Path(table.uri, ".hoodie", f"{table.instant}.replacecommit")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_hudi_is_told_which_groups_are_gone(table: Table) -> None:
    old = {(one.partition_path, one.file_id) for one in table.files()}
    told = table.insert_overwrite(arrow(few(2, 5, 6, 20)), note={"job": "nightly"})
    assert (told.inserted, told.updated, told.deleted, told.files) == (1, 2, 6, 1)
    commit = commit_of(table)
    assert commit["operationType"] == "INSERT_OVERWRITE"
    assert list(commit["partitionToReplaceFileIds"]) == ["city=ny"]
    assert replaced(table.uri) == {group for group in old if group[0] == "city=ny"}
    assert commit["extraMetadata"]["job"] == "nightly"
    states = sorted(path.name for path in Path(table.uri, ".hoodie").glob(f"{told.instant}*"))
    endings = ["", ".inflight", ".requested"]
    assert states == [f"{told.instant}.replacecommit{ending}" for ending in endings]
    done = table.history(1)[0]
    assert (done.operation, done.summary["deleted"]) == ("insert_overwrite", 6)
    assert done.note == {"job": "nightly"}


def test_a_deleted_partition_is_a_replacecommit_with_a_schema(table: Table) -> None:
    told = table.delete_partition("city=ny")
    assert (told.deleted, told.files, told.operation) == (8, 0, "delete_partition")
    commit = commit_of(table)
    assert commit["operationType"] == "DELETE_PARTITION"
    assert commit["partitionToWriteStats"] == {}
    assert json.loads(commit["extraMetadata"]["schema"])["type"] == "record"
    assert read_by_hudi(table.uri) == scanned(table)
    assert [one[0] for one in scanned(table)] == [f"k{number:02}" for number in range(8, 12)]
    assert table.describe().partitions == 1
    assert table.read_keys(pa.table({"id": ["k01", "k08"]}))["id"].to_pylist() == ["k08"]


@pytest.mark.parametrize("rows", [[], few(2, 3, 30), few(2, 3, 30, city="la")])
def test_the_whole_table_is_overwritten(table: Table, rows: list[Row]) -> None:
    told = table.insert_overwrite(arrow(rows), by="table")
    assert told.operation == "insert_overwrite_table"
    assert (told.inserted, told.updated, told.deleted) == (bool(rows), bool(rows), 12 - bool(rows))
    assert commit_of(table)["operationType"] == "INSERT_OVERWRITE_TABLE"
    model = Model(is_global=True, ordering=False)
    model.upsert(rows)
    check(table, model, few(0, *range(12)) + few(0, 30))


def test_what_says_nothing_makes_no_version(table: Table) -> None:
    version = table.version
    assert table.insert_overwrite(arrow([])).version == version
    assert table.delete_partition([]).version == version
    assert table.delete_partition(["city=la", {"city": "city"}]).version == version
    table.insert_overwrite(arrow([]), by="table")
    assert table.insert_overwrite(arrow([]), by="table").version == version + 1
    table.insert(arrow(few(3, 1)))
    assert table.insert_overwrite(arrow(few(3, 1))).version == version + 3


@pytest.mark.parametrize(
    "named",
    [
        "city=sf",
        "city=sf/",
        {"city": "sf"},
        ["city=sf", {"city": "sf"}],
        ({"city": "sf"}, "city=nowhere"),
    ],
    ids=str,
)
def test_partitions_are_named_by_path_or_by_values(table: Table, named: Any) -> None:
    assert table.delete_partition(named).deleted == 4
    assert list(commit_of(table)["partitionToReplaceFileIds"]) == ["city=sf"]
    assert {one[1] for one in scanned(table)} == {"ny"}


def test_a_partition_of_several_columns_and_of_null_is_named_by_its_values(table_uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("year", pa.int32()), ("city", pa.string())])
    table = metatable.create(table_uri, schema, key="id", partition_by=["year", "city"])
    rows = {"id": [1, 2, 3], "year": [2024, 2024, None], "city": ["Ulm", None, "Ulm"]}
    table.insert(pa.table(rows, schema=schema))
    assert table.delete_partition({"year": 2024, "city": None}).deleted == 1
    assert table.delete_partition({"city": "Ulm", "year": None}).deleted == 1
    assert table.scan().to_arrow()["id"].to_pylist() == [1]


def test_without_hive_s_names_a_path_is_values_alone(table_uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("day", pa.string())])
    options = {"hive_style": False}
    table = metatable.create(
        table_uri, schema, key="id", partition_by=["city", "day"], options=options
    )
    table.insert(pa.table({"id": [1, 2], "city": ["Ulm", "Bonn"], "day": ["d1", "d2"]}))
    for path in ("Ulm", "Ulm/d1/x", "Ulm/..", "Ulm//d1"):
        with pytest.raises(UsageError, match="not what names a partition"):
            table.delete_partition(path)
    assert table.delete_partition("Ulm/d1").deleted == 1


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda table: table.insert_overwrite(arrow(few(1, 1)), by="file"), ["'file'", "table"]),
        (lambda table: table.insert_overwrite(arrow(few(1, 1)), by=None), ["None", "partition"]),
        (lambda table: table.insert_overwrite(arrow(few(1, 1, 1))), ["repeat", "k01"]),
        (lambda table: table.insert_overwrite(pa.table({"id": ["a"]})), ["partition column"]),
        (
            lambda table: table.insert_overwrite(arrow(few(1, 9, 8, 3))),
            ["other partitions", "['k08', 'k09']", "city=sf"],
        ),
        (lambda table: table.delete_partition({"town": "ny"}), ["'town'", "city"]),
        (lambda table: table.delete_partition({"city": 7}), ["'city': 7", "string"]),
        (lambda table: table.delete_partition({"city": "a/b"}), ["not a partition value", "a/b"]),
        (lambda table: table.delete_partition(""), ["names a partition", "''"]),
        (lambda table: table.delete_partition(None), ["names partitions", "None"]),
        (lambda table: table.delete_partition([7]), ["names a partition", "7"]),
        *(
            (partial(Table.delete_partition, partitions=path), ["names a partition", "city=…"])
            for path in ("ny", "town=ny", "city=", "city=ny/day=1", "a//b", "..")
        ),
        (lambda table: table.delete_partition("city=\ud800"), ["names a partition", "UTF-8"]),
        (lambda table: table.delete_partition("city=ny", note={"schema": 1}), ["schema"]),
    ],
)
def test_a_mistake_changes_nothing(
    table: Table, work: Callable[[Table], Any], words: list[str]
) -> None:
    before = sorted(Path(table.uri).rglob("*"))
    with pytest.raises(UsageError) as told:
        work(table)
    for word in words:
        assert word in str(told.value)
    left = [one for one in sorted(Path(table.uri).rglob("*")) if one not in before]
    assert [one for one in left if one.is_file()] == []
    assert table.version == 2


def test_a_table_without_partitions_is_overwritten_whole(table_uri: str) -> None:
    table = metatable.create(table_uri, SCHEMA, key="id", storage_options=FAST)
    table.insert(arrow(few(1, 1, 2)))
    table.insert_overwrite(arrow(few(2, 2, 3)))
    assert [one[:3] for one in scanned(table)] == [("k02", "ny", 2), ("k03", "ny", 2)]
    assert read_by_hudi(table.uri) == scanned(table)
    with pytest.raises(UsageError, match="has no partitions"):
        table.delete_partition("city=ny")


def test_the_ordering_column_decides_among_the_rows_given_alone(table_uri: str) -> None:
    table = created(table_uri, "metadata_bloom", "partition", ordering="ts")
    table.insert(arrow([row(1, "ny", 1, ts=9)]))
    told = table.insert_overwrite(arrow([row(1, "ny", 2, ts=3), row(1, "ny", 3, ts=2)]))
    assert (told.updated, told.stale) == (1, 0)
    assert scanned(table) == [("k01", "ny", 2, 3)]


@pytest.mark.in_turn("table_type")
@pytest.mark.both_table_types
def test_changes_over_an_overwrite_are_net_rows(table: Table) -> None:
    before = table.version
    table.insert_overwrite(arrow(few(2, 5, 6, 20)))
    found = table.changes(before).to_arrow().sort_by("id")
    told = dict(zip(found["id"].to_pylist(), found["_change_type"].to_pylist(), strict=True))
    gone = dict.fromkeys((f"k{number:02}" for number in (0, 1, 2, 3, 4, 7)), "delete")
    assert told == {**gone, "k05": "update", "k06": "update", "k20": "insert"}
    table.delete_partition("city=ny")
    told = table.changes(before).to_arrow()["_change_type"].to_pylist()
    assert told == ["delete"] * 8


def test_versions_before_an_overwrite_stay_what_they_were(table: Table) -> None:
    before, version = scanned(table), table.version
    table.savepoint("kept")
    table.insert_overwrite(arrow(few(2, 5)), by="table")
    table.delete_partition("city=ny")
    assert scanned(table, version) == before
    assert table.scan().count() == 0
    table.restore(savepoint="kept")
    assert scanned(table) == read_by_hudi(table.uri) == before
    assert table.verify().findings == ()
    assert not list(Path(table.uri, ".hoodie").glob("*.replacecommit*"))


@pytest.mark.both_table_types
def test_an_overwrite_is_rolled_back_and_done_again(table: Table) -> None:
    model = Model(is_global=True, ordering=False)
    model.upsert(few(1, *range(8)) + few(1, *range(8, 12), city="sf"))
    for rows in (few(2, 5, 20), few(3, 6, 21)):
        done = table.insert_overwrite(arrow(rows))
        assert str(done.instant) in table.rollback(done.instant).reason
        check(table, model, few(0, *range(24)))
    done = table.delete_partition("city=sf")
    table.rollback(done.instant)
    check(table, model)
    assert not list(Path(table.uri, ".hoodie").glob("*.replacecommit*"))


@pytest.mark.parametrize("index", ["record", *(["metadata_bloom"] if LONG else []), "bucket"])
def test_what_was_overwritten_is_cleaned_and_the_timeline_is_archived(
    table_uri: str, index: str
) -> None:
    table = created(table_uri, index, "partition", timeline_commits=2, upkeep_files=3)
    model = Model(is_global=False, ordering=False)
    for step in range(3):
        rows = few(step, *range(step, step + 9)) + few(step, 1, 2, city="sf")
        table.insert_overwrite(arrow(rows))
        model.overwrite(rows)
        table.upsert(arrow(few(step, 30)))
        model.upsert(few(step, 30))
    check(table, model)
    table.compact(major=True)
    table.clean(versions=1, hours=0)
    check(table, model, few(0, *range(32)))
    newest = load_newest(Store(table.uri))
    assert newest is not None
    assert newest.archived
    live = {one.path for one in table.files()}
    held = {path.relative_to(table.uri).as_posix() for path in Path(table.uri).rglob("*.parquet")}
    assert held == live
    table.upsert(arrow(few(9, 1, 31)))
    model.upsert(few(9, 1, 31))
    check(table, model)


def test_a_bucket_keeps_its_id_and_is_written_without_rows(table_uri: str) -> None:
    """A replaced file id is gone for ever, for Hudi: the next row of the bucket would be hidden."""
    table = created(table_uri, "bucket", "partition")
    table.insert(arrow(few(1, *range(12))))
    ids = {one.file_id for one in table.files()}
    assert len(ids) == 3
    table.insert_overwrite(arrow(few(2, 5)))
    assert replaced(table.uri) == set()
    assert {one.file_id for one in table.files()} == ids
    assert table.delete_partition("city=ny").deleted == 1
    assert table.delete_partition("city=ny").instant is None
    table.insert(arrow(few(3, *range(4))))
    model = Model(is_global=False, ordering=False)
    model.upsert(few(3, *range(4)))
    check(table, model, few(0, *range(12)))


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize(
    ("by", "late"),
    [
        *(("partition", late) for late in ("same", "other", "new", "delete", "table")),
        *(("table", late) for late in ("same", "new")),
    ],
)
def test_of_two_writers_at_once_nothing_is_lost(
    table: Table, between: Callable[[Callable[[], Any]], None], by: str, late: str
) -> None:
    model = Model(is_global=True, ordering=False)
    model.upsert(few(1, *range(8)) + few(1, *range(8, 12), city="sf"))
    rows = few(2, 5, 20)
    beside: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "same": (lambda: table.upsert(arrow(few(7, 1))), lambda: model.upsert(few(7, 1))),
        "other": (lambda: _sf(table, 9), lambda: model.upsert(few(7, 9, city="sf"))),
        "new": (lambda: _sf(table, 40), lambda: model.upsert(few(7, 40, city="sf"))),
        "delete": (
            lambda: table.delete_partition("city=ny"),
            lambda: model.overwrite([], ["ny"]),
        ),
        "table": (
            lambda: table.insert_overwrite(arrow(few(7, 5)), by="table"),
            lambda: model.overwrite(few(7, 5), CITIES),
        ),
    }
    act, follow = beside[late]
    between(act)
    done = table.insert_overwrite(arrow(rows), by=by)
    follow()
    model.overwrite(rows, CITIES if by == "table" else None)
    assert done.attempts == (1 if by == "partition" and late in ("other", "new") else 2)
    check(table, model, few(0, *range(12)) + few(0, 20, 40))
    assert {one.state for one in Timeline(Store(table.uri)).load()} == {"completed"}


def _sf(table: Table, number: int) -> None:
    table.upsert(arrow(few(7, number, city="sf")))


def test_a_key_that_another_one_inserts_elsewhere_meanwhile_is_refused(
    table: Table, between: Callable[[Callable[[], Any]], None]
) -> None:
    between(lambda: table.insert(arrow(few(7, 20, city="la"))))
    with pytest.raises(UsageError, match=r"live in other partitions.*k20"):
        table.insert_overwrite(arrow(few(2, 5, 20)))
    model = Model(is_global=True, ordering=False)
    rows = few(1, *range(8)) + few(1, *range(8, 12), city="sf") + few(7, 20, city="la")
    model.upsert(rows)
    check(table, model)


@pytest.mark.parametrize("verb", ["insert", "upsert", "delete"])
def test_a_writer_that_an_overwrite_forestalls_begins_anew(
    table: Table, between: Callable[[Callable[[], Any]], None], verb: str
) -> None:
    between(lambda: table.insert_overwrite(arrow(few(2, 5, 20))))
    given = arrow(few(3, 20 if verb == "insert" else 1))
    if verb == "insert":
        with pytest.raises(UsageError, match="keys that the table holds"):
            table.insert(given)
    else:
        assert getattr(table, verb)(given).attempts == 2
    model = Model(is_global=True, ordering=False)
    model.upsert(few(2, 5, 20) + few(1, *range(8, 12), city="sf"))
    model.upsert(few(3, 1) if verb == "upsert" else [])
    check(table, model, few(0, *range(24)))


def test_what_was_staged_and_is_lost_is_made_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next writer, from the version before and what the index has of it."""
    expected = few(2, 5, 20)
    with monkeypatch.context() as patch:
        patch.setattr("metatable.metadata.commits.transaction.announce", lambda *_: None)
        done = table.insert_overwrite(arrow(expected))
    staged = Path(table.uri, staged_path(str(done.instant)))
    body = json.loads(staged.read_text())
    staged.unlink()
    recover(table)
    made = commit_of(table)
    for one in (body, made):
        for stats in one["partitionToWriteStats"].values():
            for stat in stats:
                stat["numInserts"] = 0
        ids = one["partitionToReplaceFileIds"]
        one["partitionToReplaceFileIds"] = {path: sorted(found) for path, found in ids.items()}
    assert made == body
    model = Model(is_global=True, ordering=False)
    model.upsert(expected + few(1, *range(8, 12), city="sf"))
    check(table, model)


@pytest.mark.parametrize("actions", [("commit", "replacecommit"), ("replacecommit", "commit")])
def test_an_instant_is_of_one_action_alone(
    table: Table, actions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two writers who read the same clock, the second on an older base."""
    first, second = (
        (lambda: table.upsert(arrow(few(7, 1))))
        if one == "commit"
        else (lambda: table.insert_overwrite(arrow(few(7, 9, city="sf"))))
        for one in actions
    )
    from metatable.metadata.commits import transaction  # noqa: PLC0415

    real, given = transaction.next_instant, []

    def stopped(now: Any = None, after: str | None = None) -> str:
        given.append(real(now, after) if not given or len(given) > 1 else given[0])
        return given[-1]

    monkeypatch.setattr(transaction, "next_instant", stopped)
    with Transaction.begin(Store(table.uri, FAST)) as slow:
        done = first()
        assert slow.start(actions[1]) != done.instant
        assert given[0] == given[1] == done.instant
    assert table.verify().findings == ()
    second()
    assert read_by_hudi(table.uri) == scanned(table)


@pytest.mark.parametrize(
    ("kind", "held", "named"),
    [
        (pa.int32(), 1, 1.7),
        (pa.int32(), 1, Decimal("1.7")),
        (pa.int32(), 1, True),
        (pa.date32(), date(2020, 1, 1), datetime(2020, 1, 1, 15, 30)),
        (pa.timestamp("ms"), datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 999)),
        (pa.timestamp("ms"), datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1)),
        (pa.string(), "1", b"1"),
    ],
)
def test_no_partition_goes_by_a_value_that_is_not_its_own(
    table_uri: str, kind: pa.DataType, held: Any, named: Any
) -> None:
    schema = pa.schema([("id", pa.string()), pa.field("p", kind)])
    table = metatable.create(table_uri, schema, key="id", partition_by="p", storage_options=FAST)
    table.insert(pa.Table.from_pylist([{"id": "a", "p": held}], schema))
    with pytest.raises(UsageError, match="not a partition's value"):
        table.delete_partition({"p": named})
    assert table.scan().count() == 1
    assert table.delete_partition({"p": held}).deleted == 1


def test_what_is_not_known_of_deleted_rows_is_told(table_uri: str) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = metatable.create(
        table_uri, schema, key="id", partition_by="p", table_type="mor", storage_options=FAST
    )
    held = pa.table({"id": ["a", "b"], "p": ["x", "x"]})
    table.insert(held)
    table.upsert(held.slice(1))
    done = table.delete_partition("p=x")
    assert done.deleted is None
    assert "rows deleted, how many is not known" in repr(done)
