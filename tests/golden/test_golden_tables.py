"""Tables of every format that was ever released are read, written, compacted and verified.

`tests/golden/make.py` says what they are. Each is unpacked twice: one is only read, the other is
written as any table.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.leases import LEASES
from metatable.metadata.manifests.manifest import WRITER_FORMAT
from metatable.metadata.manifests.plans import PLANS
from metatable.metadata.manifests.versions import load_newest
from metatable.storage import cache
from metatable.storage.store import Store
from tests.cleaned import strange_files
from tests.golden.make import (
    CITIES,
    FAST,
    FOLDER,
    FORMATS,
    column_ids,
    rows,
    unpack,
    whole,
)
from tests.long import LONG, one_in
from tests.model import Model, Row, arrow, check, read_by_hudi, scanned

GOLDEN = sorted(path.stem for path in FOLDER.glob("*.json"))

BETWEEN = ("format2", "format3", "format4", "format5", "format6", "format7")
WRITTEN = one_in(5, [name for name in GOLDEN if LONG or not name.startswith(BETWEEN)])
"""What lies between the oldest and the newest is as others are; to read it, and to clean it or to
commit once, is enough."""

LONG_AGO = 1_600_000_000


def unpacked(name: str, folder: Path) -> Table:
    """The table in `folder`, its files as old as they would be by now."""
    unpack(name, folder)
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    cache.clear()
    return metatable.open(folder, FAST)


def told(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def ids_of(held: dict[str, Any], table: Table) -> dict[str, int]:
    """Those it was written with; of before there were any, what its (flat) columns count as."""
    return held.get("ids") or {name: n for n, name in enumerate(table.schema.names, 1)}


def kept_alone(held: dict[str, Any]) -> list[int]:
    """Versions that savepoints alone keep: they are read, and the history left them out then."""
    told_of = {one["version"] for one in held["history"]}
    readable = {int(version) for version, rows in held["rows"].items() if rows is not None}
    return sorted(readable - told_of)


def newest_rows(name: str) -> list[Row]:
    held = told(name)["rows"]
    names = ("id", "city", "v", "ts")
    return [dict(zip(names, row, strict=True)) for row in held[max(held, key=int)]]


def probe() -> list[Row]:
    return [row | {"city": city} for row in rows(0, 40, 0) for city in CITIES]


def test_every_kind_of_table_is_there_in_every_format() -> None:
    assert list(FORMATS) == [f"format{number}" for number in range(1, WRITER_FORMAT + 1)]
    assert sorted(f"{one}-{name}" for one, names in FORMATS.items() for name in names) == GOLDEN


@pytest.mark.parametrize("name", GOLDEN)
def test_an_old_table_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    held = told(name)
    since_then = {"note": {}}  # told of all versions, and stored with none of these
    history = {one.version: one.to_dict() for one in table.history()}
    for version in kept_alone(held):  # these are told since
        assert history.pop(version)["version"] == version
    assert list(history.values()) == [since_then | one for one in held["history"]]
    undone = {one.summary.get("undone_version") for one in table.history()}
    for version, expected in held["rows"].items():
        if int(version) in undone:  # its files may be there still
            with pytest.raises(metatable.StaleError, match="undone"):
                scanned(table, int(version))
        elif expected is None:
            with pytest.raises(metatable.MetatableError):
                scanned(table, int(version))
        else:
            assert scanned(table, int(version)) == [tuple(row) for row in expected]
    assert held.get("newest", whole(table)) == whole(table)
    assert column_ids(table) == ids_of(held, table)
    assert table.verify().findings == () or name.endswith(("unfinished", "undone-half"))


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_table_is_written_compacted_and_rolled_back(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    model = Model(table.options.is_global, ordering=True)
    model.upsert(newest_rows(name))
    for _ in range(3):  # what dead writers left goes
        with Transaction.begin(Store(table.uri, FAST)):
            pass
    check(table, model, probe())
    for step, major in enumerate((False, True)):
        given = rows(2 + step, 30, 10 + step, shift=step, cities=3)
        table.upsert(arrow(given))
        model.upsert(given)
        gone = rows(8, 12, 0, shift=step, cities=3)
        table.delete(arrow(gone))
        model.delete(gone)
        table.compact(major=major)
        check(table, model, probe())
    table.rollback()
    model.rollback()
    check(table, model, probe())
    newest = load_newest(Store(table.uri, FAST))
    assert newest is not None
    assert "last_column_id" in json.loads(newest.schema)
    assert column_ids(table) == ids_of(told(name), table)


@pytest.mark.parametrize("name", one_in(2, GOLDEN, 1))
def test_hudi_reads_an_old_table_before_and_after_it_is_written(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    table.upsert(arrow(rows(31, 33, 1)))
    assert read_by_hudi(table.uri) == scanned(table)


@pytest.mark.parametrize("name", one_in(2, GOLDEN))
def test_an_old_table_is_cleaned(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    for _ in range(3):  # what dead writers left goes
        with Transaction.begin(Store(table.uri, FAST)):
            pass
        for path in Path(table.uri, LEASES).glob("*"):
            os.utime(path, (LONG_AGO, LONG_AGO))
    before = scanned(table)
    table.clean(versions=1, hours=0)
    cache.clear()
    assert scanned(table) == read_by_hudi(table.uri) == before
    assert table.verify().findings == ()
    plans = {path for path in strange_files(Store(table.uri)) if "/plans/" in path}
    assert set(strange_files(Store(table.uri))) == plans


def test_a_plan_of_long_ago_is_carried_out_and_one_that_was_is_dropped(tmp_path: Path) -> None:
    table = unpacked("format4-record-planned", tmp_path)
    held = set(Path(table.uri, PLANS).iterdir())
    table.upsert(arrow(rows(31, 33, 1)))
    [left] = Path(table.uri, PLANS).iterdir()
    assert len(held - {left}) == 1
    before = scanned(table)
    assert "column_stats" in left.read_text()
    done = table.compact(plan=left.stem)
    assert done.files_after < done.files_before
    assert not list(Path(table.uri, PLANS).glob("*"))
    assert scanned(table) == before
    assert table.verify().findings == ()
