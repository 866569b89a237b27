"""`changes` between any two versions is what a comparison of their rows says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

import metatable
from metatable import CorruptError, StaleError, Table, UsageError
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.reading import logs_together, slice_reader
from metatable.engine import local
from metatable.metadata.commits import transaction
from metatable.query.changed_rows import CHANGE_TYPE, IDENTITY, _are_of_one_commit, settled
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from tests.long import LONG
from tests.model import SCHEMA, Identity, Model, Row, arrow

COLUMNS = [*SCHEMA.names, CHANGE_TYPE]
Told = dict[Identity, Row]
States = dict[int, Told]


OPTIONS: dict[str, Any] = {"file_rows": 4, "stats_columns": 1, "hfile_codec": "none"}


@pytest.fixture
def table(table_uri: str) -> Table:
    return _created(table_uri, "record", "global")


def _created(uri: str, index: str, scope: str, **more: Any) -> Table:
    options = {**OPTIONS, "key_scope": scope, **more}
    return metatable.create(
        uri, SCHEMA, key="id", partition_by="city", index=index, options=options
    )


def row(number: int, v: int = 0, city: str = "ny") -> Row:
    return {"id": f"k{number:02}", "city": city, "v": v, "ts": 0}


def told(changes: Any) -> list[tuple[str, str, int]]:
    rows = changes.to_arrow().to_pylist()
    return sorted((one["id"], one[CHANGE_TYPE], one["v"]) for one in rows)


def test_a_base_file_without_a_column_of_ours_is_damage(table: Table) -> None:
    """One turned bit in its footer renames it; a scan does not ask for it."""
    for v in (1, 2):
        table.upsert(arrow([row(number, v) for number in range(3)]))
    [file] = table.files()
    path = Path(table.uri, file.path)
    path.write_bytes(path.read_bytes().replace(b"_hoodie_commit_time", b"_hoodie_bommit_time"))
    with pytest.raises(CorruptError, match=r"lacks a column: path=.*_hoodie_commit_time"):
        table.changes(1).to_arrow()


KINDS = ("upsert", "upsert", "delete")


def _history(
    table: Table,
    model: Model,
    draw: random.Random,
    commits: int,
    kinds: Sequence[str] = KINDS,
) -> States:
    """Random commits, some undone again; the rows of each version that was not undone."""
    states = {table.version: model.rows}
    of_instant: dict[str | None, list[int]] = {table.instant: [table.version]}
    for _ in range(commits):
        keys = draw.sample(range(14), draw.randint(1, 7))
        rows = [row(key, draw.randrange(9), draw.choice(["ny", "sf", "la"])) for key in keys]
        kind = draw.choice(kinds)
        before = table.version
        if kind == "rollback" and model.commits:
            for undone in of_instant.pop(table.instant):
                del states[undone]
            model.rollback()
            table.rollback()
        elif kind == "delete":
            model.delete(rows)
            table.delete(arrow(rows))
        elif kind == "cluster":
            model.upsert([])  # no row changes, and a rollback undoes it
            table.cluster(by="v")
        elif kind == "overwrite":
            rows = _of_a_city(model, rows, draw.choice(["ny", "sf", "la"]))
            model.overwrite(rows)
            table.insert_overwrite(arrow(rows))
        else:
            model.upsert(rows)
            table.upsert(arrow(rows))
        if table.version == before:
            model.forget_commit()
        else:
            states[table.version] = model.rows
            of_instant.setdefault(table.instant, []).append(table.version)
    return states


def _of_a_city(model: Model, rows: Sequence[Row], city: str) -> list[Row]:
    """These rows there, but those that would have to move."""
    there = [one | {"city": city} for one in rows]
    return [one for one in there if model.rows.get(model.identity(one), one)["city"] == city]


def _expected(before: Told, after: Told) -> Iterator[tuple[Identity, Row]]:
    for name, one in before.items():
        if name not in after:
            yield name, one | {CHANGE_TYPE: "delete"}
    for name, one in after.items():
        if before.get(name) != one:
            yield name, one | {CHANGE_TYPE: "update" if name in before else "insert"}


def _check(found: list[Row], model: Model, before: Told, after: Told) -> None:
    by_identity = {model.identity(one): one for one in found}
    assert len(by_identity) == len(found), "a row was told twice"
    expected = dict(_expected(before, after))
    for name in by_identity.keys() - expected.keys():  # written again, as it was
        assert by_identity.pop(name) == after[name] | {CHANGE_TYPE: "update"}
    assert by_identity == expected


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize("seed", range(20 if LONG else 1))
@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_changes_between_any_two_versions_are_those_of_a_dict(
    table_uri: str, scope: str, small_bytes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr("metatable.query.changes.PART_BYTES", draw.choice([1 << 11, 32 << 20]))
    monkeypatch.setattr("metatable.query.changed_rows.SMALL_BYTES", small_bytes)
    model = Model(scope == "global", ordering=False)
    index = ["record", "metadata_bloom"][seed % 2]
    table = _created(table_uri, index, scope, upkeep_files=draw.choice([0, 2]))
    states = {0: {}, **_history(table, model, draw, 9, (*KINDS, "rollback"))}
    for since, until in combinations_with_replacement(sorted(states), 2):
        if until:
            changes = table.changes(since, until)
            assert (changes.since, changes.until) == (since, until)
            _check(changes.to_arrow().to_pylist(), model, states[since], states[until])


@pytest.mark.each_once
@pytest.mark.both_table_types
@pytest.mark.parametrize("seed", range(20 if LONG else 1))
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_so_are_those_between_versions_of_other_file_groups(
    table_uri: str, scope: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr("metatable.query.changes.PART_BYTES", draw.choice([1 << 11, 32 << 20]))
    monkeypatch.setattr("metatable.query.changed_rows.SMALL_BYTES", draw.choice([0, 1 << 20]))
    model = Model(scope == "global", ordering=False)
    options = {"stats_columns": 3, "small_file_bytes": draw.choice([0, 1 << 20])}
    table = _created(table_uri, "record", scope, **options)
    states = {0: {}, **_history(table, model, draw, 1, ["upsert"])}
    states |= _history(table, model, draw, 8, (*KINDS, "cluster", "overwrite"))
    anew = [row(number, 5) for number in range(4, 9)]
    model.overwrite(anew, ["ny", "sf", "la"])
    table.insert_overwrite(arrow(anew), by="table")
    states[table.version] = model.rows
    both = 0
    for since, until in combinations_with_replacement(sorted(states), 2):
        if until:
            changes = table.changes(since, until)
            _check(changes.to_arrow().to_pylist(), model, states[since], states[until])
            groups, _ = changes._groups(1)
            both += groups["before"].null_count > 0 < groups["after"].null_count
    assert both


def _whole_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are exchanged with all their columns, task by task."""
    counts: list[int] = []

    def counted(is_global: bool, batches: Iterator[pa.RecordBatch], counters: Counters) -> Any:
        given = [*batches]
        counts.extend(one.num_rows for one in given if "v" in one.schema.names)
        return settled(is_global, iter(given), counters)

    monkeypatch.setattr("metatable.query.changes.settled", counted)
    return counts


@pytest.mark.both_table_types
@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_only_rows_that_differ_are_exchanged_whole_where_all_lie_elsewhere(
    table_uri: str, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metatable.query.changed_rows.SMALL_BYTES", small_bytes)
    table = _created(table_uri, "record", "global", stats_columns=3)
    for start in range(3):  # which overlap in v
        table.insert(arrow([row(number, number) for number in range(start, 30, 3)]))
    table.insert(arrow([row(90, city="sf")]))
    seen, counts = table.version, _whole_rows(monkeypatch)
    assert table.cluster(by="v").files_before
    assert told(table.changes(seen)) == []
    assert sum(counts) == 0
    table.upsert(arrow([row(3, v=99), row(4, v=99, city="la"), row(5, v=99, city="sf")]))
    table.delete(arrow([row(6)]))
    table.insert(arrow([row(91)]))
    assert told(table.changes(seen)) == [
        *((f"k0{number}", "update", 99) for number in (3, 4, 5)),
        ("k06", "delete", 6),
        ("k91", "insert", 0),
    ]
    assert sum(counts) == 6  # that of k05 as it was, too: where it is now others were before


@pytest.mark.both_table_types
def test_a_copy_that_follows_the_changes_stays_equal(table: Table) -> None:
    copy: dict[str, Row] = {}
    seen, draw, model = 0, random.Random(7), Model(is_global=True, ordering=False)
    for _ in range(5):
        _history(table, model, draw, 2)
        changes = table.changes(since=seen)
        for one in changes.to_arrow().to_pylist():
            if one.pop(CHANGE_TYPE) == "delete":
                del copy[one["id"]]
            else:
                copy[one["id"]] = one
        seen = changes.until
        assert copy == {one["id"]: one for one in model.rows.values()}


def test_a_row_that_moves_to_another_partition_is_updated_in_global_scope(table: Table) -> None:
    table.insert(arrow([row(1), row(2)]))
    table.upsert(arrow([row(1, v=5, city="sf")]))
    assert told(table.changes(since=2)) == [("k01", "update", 5)]


def test_in_partition_scope_it_is_another_row(table_uri: str) -> None:
    table = _created(table_uri, "record", "partition")
    table.insert(arrow([row(1), row(2)]))
    table.delete(arrow([row(1)]))
    table.insert(arrow([row(1, v=5, city="sf")]))
    assert told(table.changes(since=2)) == [("k01", "delete", 0), ("k01", "insert", 5)]


def test_what_is_deleted_and_inserted_again_elsewhere_is_updated(table: Table) -> None:
    table.insert(arrow([row(number) for number in range(4)]))  # the group is full then
    table.delete(arrow([row(0)]))
    table.insert(arrow([row(number) for number in range(4, 8)]))
    table.insert(arrow([row(0, v=9)]))
    assert told(table.changes(2)) == [
        ("k00", "update", 9),
        *((f"k{number:02}", "insert", 0) for number in range(4, 8)),
    ]


def test_what_came_and_went_in_between_is_not_told(table: Table) -> None:
    table.insert(arrow([row(1)]))
    table.insert(arrow([row(2)]))
    table.delete(arrow([row(2)]))
    assert told(table.changes(since=2)) == []
    assert told(table.changes(since=2, until=3)) == [("k02", "insert", 0)]


def test_a_commit_that_was_slow_is_told_to_who_has_seen_a_faster_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instant is the older one, so that it is no question of instants."""
    table.insert(arrow([row(number) for number in range(4)]))
    put, other = transaction.publish, metatable.open(table.uri)
    seen: list[int] = []

    def after_a_faster_one(*given: Any) -> Any:
        if not seen:
            seen.append(0)
            other.upsert(arrow([row(20, city="sf")]))
            seen.append(other.version)
        return put(*given)

    monkeypatch.setattr(transaction, "publish", after_a_faster_one)
    slow = table.upsert(arrow([row(1, v=3)]))
    instants = [one.instant for one in table.history() if one.instant]
    assert instants[0] == slow.instant < instants[1], "it was meant to come behind a faster one"
    assert told(table.changes(since=seen[1])) == [("k01", "update", 3)]


def test_versions_are_named_by_number_instant_and_time(table: Table) -> None:
    first = table.insert(arrow([row(1)]))
    second = table.insert(arrow([row(2)]))
    assert first.instant is not None
    for since in (first.version, first.instant):
        for until in (None, second.version, second.instant):
            assert told(table.changes(since, until)) == [("k02", "insert", 0)]
    before = datetime.now(UTC) - timedelta(hours=1)
    assert told(table.changes(before, first.instant)) == [("k01", "insert", 0)]
    assert told(table.changes(0)) == [("k01", "insert", 0), ("k02", "insert", 0)]


def test_the_answer_goes_wherever_arrow_goes(table: Table) -> None:
    table.insert(arrow([row(1), row(2)]))
    table.delete(arrow([row(2)]))
    changes = table.changes(since=2)
    assert changes.schema.names == COLUMNS
    assert repr(changes) == f"Changes('{table.uri}', since=2, until=3, columns={SCHEMA.names})"
    assert pa.table(changes).equals(changes.to_arrow())
    assert polars.DataFrame(changes).to_dicts() == [row(2) | {CHANGE_TYPE: "delete"}]
    relation = duckdb.sql(f"select {CHANGE_TYPE}, count(*) from changes group by 1")
    assert relation.fetchall() == [("delete", 1)]
    assert table.changes(since=3).to_arrow().schema == changes.schema


def test_columns_of_any_name_are_told(tmp_path: Path) -> None:
    names = ["id", "_task", "before", "after", "kind"]
    schema = pa.schema([(name, pa.string()) for name in names])
    table = metatable.create(str(tmp_path / "t"), schema, key="id", index="record")
    rows = pa.table({name: [f"{name}{place}" for place in range(3)] for name in names})
    table.insert(rows)
    table.delete(rows.slice(0, 1))
    found = table.changes(since=0, until=2).to_arrow().drop_columns([CHANGE_TYPE])
    assert found.sort_by("id").equals(rows)
    assert table.changes(since=2).to_arrow().drop_columns([CHANGE_TYPE]).equals(rows.slice(0, 1))


def test_chosen_columns_may_be_those_of_hudi(table: Table) -> None:
    done = table.insert(arrow([row(1)]))
    found = table.changes(1, columns=["v", "_hoodie_commit_time", "_hoodie_record_key"])
    assert found.to_arrow().to_pylist() == [
        {
            "v": 0,
            "_hoodie_commit_time": done.instant,
            "_hoodie_record_key": "k01",
            CHANGE_TYPE: "insert",
        }
    ]


def test_only_groups_that_have_changed_are_read(table: Table) -> None:
    for place in range(6):
        table.insert(arrow([row(place, city=f"c{place}")]))
    seen = table.version
    table.upsert(arrow([row(3, v=1, city="c3")]))
    before = Counters(table.counters)
    assert told(table.changes(since=seen)) == [("k03", "update", 1)]
    read = table.counters.since(before)
    assert read["data.row_groups"] == 2  # of the older slice the keys; of the newer one all


def test_only_rows_that_differ_are_read_whole_of_large_slices(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metatable.query.changed_rows.SMALL_BYTES", 0)
    for place in range(6):
        table.insert(arrow([row(place, city=f"c{place}")]))
    seen = table.version
    table.upsert(arrow([row(3, v=1, city="c3")]))
    before = Counters(table.counters)
    assert told(table.changes(since=seen)) == [("k03", "update", 1)]
    # of the two slices the keys; of the newer one the row
    assert table.counters.since(before)["data.row_groups"] == 3


def test_logs_of_small_slices_are_read_once_and_together(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    read = slice_reader.logs_of_each

    def counted(store: Store, logs: Any, asked: ReadColumns) -> Any:
        calls.append(len(logs))
        return read(store, logs, asked)

    options = {"bucket_count": 64, "new_groups": "log"}
    table = metatable.create(
        table_uri, SCHEMA, key="id", index="bucket", table_type="mor", options=options
    )
    table.upsert(arrow([row(number) for number in range(400)]))
    seen = table.version
    table.upsert(arrow([row(number, v=1) for number in range(0, 400, 2)]))
    table.files(read_optimized=True)
    monkeypatch.setattr(logs_together, "logs_of_each", counted)
    for since, sides in ((1, 1), (seen, 2)):
        calls.clear()
        before = Counters(table.counters)
        assert len(told(table.changes(since))) == (400 if since == 1 else 200)
        groups = len(table.changes(since)._groups(1)[0])
        assert sum(calls) == sides * groups > 40
        assert len(calls) <= sides * local.LocalEngine().slots
        logs = {1: 2, 2: 3}[sides] * groups
        assert table.counters.since(before)["store.requests"] <= logs + 30


def test_only_groups_that_have_changed_are_read_where_logs_come_or_go(table_uri: str) -> None:
    """All of them, where one of the two versions has no log at all."""
    table = _created(table_uri, "record", "global", table_type="mor")
    for first in range(0, 12, 4):
        table.insert(arrow([row(number) for number in range(first, first + 4)]))
    versions = [table.version]
    table.upsert(arrow([row(5, v=9)]))
    versions.append(table.version)
    table.compact_logs(ratio=0)
    versions.append(table.version)
    for since, until in pairwise(versions):
        changes = table.changes(since, until)
        held, _ = changes._groups(1)
        assert len(held) == 1
        assert told(changes) == ([("k05", "update", 9)] if until == versions[1] else [])


def test_a_file_is_read_row_group_by_row_group(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _created(table_uri, "record", "global", file_rows=100, row_group_rows=3)
    table.insert(arrow([row(number) for number in range(20)]))
    some = (0, 1, 2, 6, 14, 19)
    table.upsert(arrow([row(number, v=number + 1) for number in some]))
    table.delete(arrow([row(7), row(8)]))
    monkeypatch.setattr("metatable.data.base_files.base_file.STEP_BYTES", 1)
    monkeypatch.setattr("metatable.query.changed_rows.SMALL_BYTES", 0)
    expected = [*((f"k{number:02}", "update", number + 1) for number in some)]
    expected += [("k07", "delete", 0), ("k08", "delete", 0)]
    assert told(table.changes(since=2)) == sorted(expected)
    assert table.changes(since=2, columns=["_hoodie_record_key"]).to_arrow().num_rows == 8


def test_rows_that_only_lie_elsewhere_have_not_changed() -> None:
    """No verb of ours does that to them, a service that rewrites groups may."""
    schema = pa.schema([*IDENTITY, (CHANGE_TYPE, pa.string())])
    rows = [
        {"_hoodie_commit_time": commit, "_hoodie_record_key": key, CHANGE_TYPE: kind}
        for commit, key, kind in [
            ("1", "a", "delete"),
            ("2", "b", "delete"),
            ("1", "a", "insert"),
            ("3", "b", "insert"),
            ("3", "c", "insert"),
        ]
    ]
    batches = pa.Table.from_pylist(rows, schema).to_batches()
    [found] = settled(True, iter(batches), Counters())
    names = ("_hoodie_record_key", CHANGE_TYPE)
    assert list(zip(*(found[name].to_pylist() for name in names), strict=True)) == [
        ("b", "update"),
        ("c", "insert"),
    ]


def test_rows_that_do_not_fit_into_memory_go_through_a_disk(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(number, v=1, city=f"c{number % 5}") for number in range(60)]
    table.insert(arrow(rows))
    table.upsert(arrow([one | {"v": 2, "city": "other"} for one in rows[:50]]))
    expected = told(table.changes(since=2))
    small = local.LocalEngine
    made: list[local.LocalEngine] = []

    def tiny() -> local.LocalEngine:
        made.append(small(2, memory_bytes=0))
        return made[-1]

    monkeypatch.setattr("metatable.query.changes.LocalEngine", tiny)
    assert told(table.changes(since=2)) == expected
    assert len(expected) == 50
    assert made


def test_a_task_that_is_tried_again_changes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    _history(table, Model(is_global=True, ordering=False), random.Random(3), 6)
    expected = told(table.changes(since=3))
    real = local.LocalEngine
    monkeypatch.setattr(
        "metatable.query.changes.LocalEngine", lambda: real(2, twice=True, shuffle_seed=1)
    )
    assert told(table.changes(since=3)) == expected


def test_who_has_seen_a_commit_that_was_undone_is_told(table: Table) -> None:
    table.insert(arrow([row(1)]))
    table.upsert(arrow([row(1, v=7)]))
    table.rollback()
    for since, until in ((3, None), (2, 3)):
        with pytest.raises(StaleError, match="this version was undone"):
            table.changes(since, until)
    assert told(table.changes(since=2)) == []


def test_a_version_that_is_not_kept_is_refused(table: Table) -> None:
    for number in range(4):
        table.upsert(arrow([row(1, v=number)]))
    table.clean(versions=1, hours=0)
    with pytest.raises(StaleError, match="not kept any more"):
        table.changes(since=2)
    assert told(table.changes(since=0)) == [("k01", "insert", 3)]


def test_files_that_go_while_they_are_read_are_told(table: Table) -> None:
    table.insert(arrow([row(1)]))
    for number in range(3):
        table.upsert(arrow([row(1, v=number)]))
    changes = table.changes(since=2)
    table.clean(versions=1, hours=0)
    with pytest.raises(StaleError, match="not kept any more"):
        changes.to_arrow()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"since": 3, "until": 2}, "go forward"),
        ({"since": None}, "begin after which version"),
        ({"since": True}, "a version is a number"),
        ({"since": -1}, "no such version"),
        ({"since": 99}, "no such version"),
        ({"since": "yesterday"}, "yesterday"),
        ({"since": 0, "until": 0}, "no such version"),
        ({"since": 1, "columns": ["nope"]}, "no such column"),
        ({"since": 1, "columns": []}, "no column is asked for"),
    ],
)
def test_what_makes_no_sense_is_refused(table: Table, given: dict[str, Any], words: str) -> None:
    table.insert(arrow([row(1)]))
    table.insert(arrow([row(2)]))
    with pytest.raises(metatable.MetatableError, match=words):
        table.changes(**given)


def test_a_table_with_a_column_of_that_name_is_refused(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field(CHANGE_TYPE, pa.string()))
    table = metatable.create(str(tmp_path / "t"), schema, key="id")
    with pytest.raises(UsageError, match="a column of this name"):
        table.changes(since=0)


def test_commits_are_the_same_if_their_texts_are_whatever_number_a_file_gives_them() -> None:
    was = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 1], pa.int32()), ["a", "b", "c"])
    twice = pa.array(["c", "b", "b", "d"])
    now = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, 3, None, 2, 0], pa.int32()), twice)
    places = np.array([1, 4, 2, 0, 3, -1, 3])
    assert _are_of_one_commit(was, now, places).tolist() == [True, True, True, *[False] * 4]
    nothing = was.slice(0, 0)
    assert not _are_of_one_commit(nothing, now, np.full(7, -1)).any()
    assert not len(_are_of_one_commit(was, nothing, np.zeros(0, np.int64)))
