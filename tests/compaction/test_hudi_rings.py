"""Rings in Hudi's own place: at any time Hudi's writers find the ring of what its timeline has."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table, UsageError
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.service import execute
from metatable.data.file_groups.hashing_metadata import (
    FIRST_INSTANT,
    HASHING_FOLDER,
    HashingMetadata,
)
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.hudi_rings import mark_rings, put_rings
from metatable.metadata.commits.steps import settle
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.manifests.versions import load_newest
from metatable.results import Fault
from metatable.storage.errors import StoreError
from metatable.storage.store import Store
from tests.compaction.test_resize import FAST, MERGE, PATH, SPLIT, resize, ring_of, rows
from tests.faults import READS, Refused, watched
from tests.index.test_ring_buckets import made
from tests.long import one_in
from tests.model import Model, arrow, check

OTHER = "city=sf"
ONE_SPLIT = replace(SPLIT, partitions=(PATH,), most_bytes=1)


def filled(uri: str, **more: Any) -> tuple[Table, Model]:
    told = {"table_type": "mor", "options": {"hudi_hashing_metadata": True}, **more}
    table = made(uri, "consistent_hashing", 2, **told)
    model = Model(is_global=False, ordering=True)
    upsert(table, model, 0, 60)
    return table, model


def upsert(table: Table, model: Model, first: int, last: int, v: int = 0) -> None:
    table.upsert(arrow(rows(first, last, v)))
    model.upsert(rows(first, last, v))


def completed(uri: str, action: str = r"\w+") -> set[str]:
    """Instants that are complete on Hudi's timeline."""
    names = (one.name for one in Path(uri, ".hoodie").iterdir())
    return {found[1] for name in names if (found := re.fullmatch(rf"(\d{{17}})\.{action}", name))}


def hudi_ring(uri: str, path: str = PATH) -> HashingMetadata:
    """The ring that Hudi 1.2.0 takes: the latest that is marked, or complete on its timeline."""
    folder = Path(uri, HASHING_FOLDER, path)
    counts = {FIRST_INSTANT, *completed(uri), *(one.stem for one in folder.glob("*.commit"))}
    there = sorted(one for one in folder.glob("*.hashing_meta") if one.stem in counts)
    return HashingMetadata.decode(there[-1].read_bytes(), str(there[-1]))


def names(uri: str, path: str = PATH) -> list[str]:
    return sorted(one.name for one in Path(uri, HASHING_FOLDER, path).iterdir())


def equal(table: Table) -> None:
    for path in (PATH, OTHER):
        assert hudi_ring(table.uri, path) == ring_of(table, path).metadata
    assert table.verify().findings == ()


def test_hudi_s_ring_is_ours_after_every_step(table_uri: str) -> None:
    table, model = filled(table_uri)
    assert names(table_uri) == [f"{FIRST_INSTANT}.hashing_meta"]
    equal(table)
    resize(table, SPLIT)
    split = table.instant
    assert names(table_uri)[1:] == [f"{split}.commit", f"{split}.hashing_meta"]
    equal(table)
    upsert(table, model, 40, 90, 1)
    kept = table.version
    resize(table, MERGE)
    equal(table)
    resize(table, SPLIT)
    equal(table)
    table.rollback()
    equal(table)
    table.restore(version=kept)
    equal(table)
    assert names(table_uri)[1:] == [f"{split}.commit", f"{split}.hashing_meta"]
    table.delete_partition({"city": "ny"})
    model.overwrite([], ["ny"])
    upsert(table, model, 0, 60, 7)
    equal(table)
    check(table, model, rows(0, 100))


@pytest.mark.parametrize("way", ["dual_write", "virtual_log"])
def test_a_resize_that_waits_changes_hudi_s_ring_when_it_is_carried_out(
    table_uri: str, way: str
) -> None:
    table, model = filled(table_uri)
    before = table.version
    sizes = {"split_above": 1, "merge_below": 0, "writers": way}
    table.resize_buckets(**sizes, schedule=True)
    upsert(table, model, 40, 90, 1)
    assert names(table_uri) == [f"{FIRST_INSTANT}.hashing_meta"]
    equal(table)
    table.resize_buckets(**sizes)
    assert len(names(table_uri)) > 1
    equal(table)
    upsert(table, model, 0, 60, 2)
    check(table, model, rows(0, 100))
    table.restore(version=before)
    assert names(table_uri) == [f"{FIRST_INSTANT}.hashing_meta"]
    equal(table)


def test_a_table_without_partitions_has_its_ring_in_the_folder_itself(table_uri: str) -> None:
    table, _ = filled(table_uri, partition_by=())
    resize(table, SPLIT)
    assert hudi_ring(table_uri, "") == ring_of(table, "").metadata
    assert table.verify().findings == ()


def test_without_the_option_nothing_lies_there(table_uri: str) -> None:
    table, _ = filled(table_uri, options={})
    resize(table, SPLIT)
    table.rollback()
    assert not Path(table_uri, HASHING_FOLDER).parent.exists()


def split_once(store: Store) -> None:
    execute(store, LocalEngine(1), Resize(ONE_SPLIT))


def roll_back(store: Store) -> None:
    Table(store).rollback()


@pytest.mark.parametrize("act", [split_once, roll_back])
def test_killed_anywhere_hudi_finds_the_ring_of_its_timeline(
    table_uri: str, act: Callable[[Store], None]
) -> None:
    table, model = filled(table_uri)
    resize(table, ONE_SPLIT)
    seen = set[str]()
    for limit in one_in(2, limits(table_uri, act)):
        uri = f"{table_uri}-{limit}"
        shutil.copytree(table_uri, uri)
        store, backend = watched(uri, limit=limit)
        with suppress(Refused, StoreError):
            act(store)
        found, newest = hudi_ring(uri).instant, load_newest(Store(uri, FAST))
        assert found in {FIRST_INSTANT, *completed(uri)}, backend.calls[-1]
        assert newest is not None
        assert found == table.instant or newest.version > table.version, "nobody has published it"
        if act is split_once:
            assert found == max(completed(uri, "replacecommit"))
        told = metatable.open(uri, FAST).verify().findings
        assert Fault.HASHING_METADATA not in {one.kind for one in told}
        seen.add(found)
        settle(Store(uri, FAST), newest)
        assert hudi_ring(uri) == ring_of(metatable.open(uri, FAST)).metadata
        shutil.rmtree(uri)
    assert len(seen) > 1
    equal(table)
    check(table, model)


def limits(origin: str, act: Callable[[Store], None]) -> list[int]:
    """Calls at which to die: one before the put of the root, and from it on all that change
    something."""
    uri = shutil.copytree(origin, f"{origin}-whole")
    store, backend = watched(uri)
    act(store)
    changing = [place for place, (verb, _) in enumerate(backend.calls) if verb not in READS]
    put = next(one for one in changing if backend.calls[one][1].startswith(version_path(0)[:-25]))
    return [put - 1, *(one for one in changing if one >= put)]


def test_clean_takes_rings_that_no_kept_version_has(table_uri: str) -> None:
    table, model = filled(table_uri)
    resize(table, SPLIT)
    kept = table.instant
    table.savepoint("kept")
    for sizes in (MERGE, SPLIT):
        resize(table, sizes)
        upsert(table, model, 0, 2, 5)
    table.clean(versions=1, hours=0)
    last = hudi_ring(table_uri).instant
    pair = [f"{kept}.commit", f"{kept}.hashing_meta"]
    assert names(table_uri) == [*pair, f"{last}.commit", f"{last}.hashing_meta"]
    equal(table)
    table.drop_savepoint("kept")
    table.clean(versions=1, hours=0)
    assert names(table_uri) == [f"{last}.commit", f"{last}.hashing_meta"]
    table.upsert(arrow([{"id": "new", "city": "la", "v": 1, "ts": 1}]))
    table.clean(versions=1, hours=0)
    assert names(table_uri, "city=la") == [f"{FIRST_INSTANT}.hashing_meta"]
    equal(table)


def damaged(folder: Path, instant: str) -> None:
    (folder / f"{instant}.hashing_meta").write_bytes(b"{}")


def another_s(folder: Path, instant: str) -> None:
    shutil.copy(folder.parent / OTHER / f"{instant}.hashing_meta", folder)


def lost(folder: Path, instant: str) -> None:
    (folder / f"{instant}.hashing_meta").unlink()


def unmarked(folder: Path, instant: str) -> None:
    (folder / f"{instant}.commit").unlink()


def test_repair_puts_a_ring_again(table_uri: str) -> None:
    table, model = filled(table_uri)
    resize(table, SPLIT)
    instant = table.instant
    upsert(table, model, 0, 2, 5)
    for hurt in (damaged, another_s, lost, unmarked):
        hurt(Path(table_uri, HASHING_FOLDER, PATH), instant)
        [found] = table.verify().findings
        assert found.kind == Fault.HASHING_METADATA, hurt
        assert found.where.startswith(f"{HASHING_FOLDER}/{PATH}/{instant}.")
        assert found.remedy == "written anew"
        assert table.repair(dry_run=False).unmended == ()
    equal(table)


def test_repair_puts_the_ring_of_a_partition_that_nobody_has_resized(table_uri: str) -> None:
    table, _ = filled(table_uri)
    shutil.rmtree(Path(table_uri, HASHING_FOLDER, OTHER))
    [found] = table.verify().findings
    assert found.where == f"{HASHING_FOLDER}/{OTHER}/{FIRST_INSTANT}.hashing_meta"
    table.repair(dry_run=False)
    equal(table)


@pytest.mark.parametrize("mend", [lambda one: one.repair(dry_run=False), lambda one: one.clean()])
def test_what_a_late_hand_has_put_goes(table_uri: str, mend: Callable[[Table], Any]) -> None:
    """It slept, while what it was to complete was undone, and did not wake for the last look."""
    table, model = filled(table_uri)
    resize(table, SPLIT)
    folder = Path(table_uri, HASHING_FOLDER, PATH)
    held = {one.name: one.read_bytes() for one in folder.iterdir()}
    table.rollback()
    upsert(table, model, 0, 2, 5)
    for name, body in held.items():
        (folder / name).write_bytes(body)
    assert [one.remedy for one in table.verify().findings] == ["deleted"] * 2
    mend(table)
    assert names(table_uri) == [f"{FIRST_INSTANT}.hashing_meta"]
    equal(table)


def test_a_ring_that_the_disk_does_not_take_has_no_name(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on takes one that is listed for whole."""
    table, _ = filled(table_uri)
    resize(table, SPLIT)
    resized = load_newest(Store(table_uri, FAST))
    assert resized is not None
    shutil.rmtree(Path(table_uri, HASHING_FOLDER, PATH))

    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="the disk takes no more"):
            put_rings(Store(table_uri), resized, resized.steps[0])
    assert not Path(table_uri, HASHING_FOLDER, PATH).exists()
    put_rings(Store(table_uri), resized, resized.steps[0])
    assert names(table_uri) == [f"{table.instant}.hashing_meta"]


@pytest.mark.parametrize("sleep_before", ["begin", "put"])
def test_a_late_hand_takes_back_what_it_puts(table_uri: str, sleep_before: str) -> None:
    table, _ = filled(table_uri)
    resize(table, SPLIT)
    resized = load_newest(Store(table_uri, FAST))
    assert resized is not None

    def undo(verb: str, path: str) -> None:
        if verb == "put" and path.startswith(HASHING_FOLDER) and table.version == resized.version:
            table.rollback()

    store, backend = watched(table_uri, before=undo)
    if sleep_before == "begin":
        table.rollback()
    else:
        shutil.rmtree(Path(table_uri, HASHING_FOLDER, PATH))
    for do, step in zip(
        (put_rings, mark_rings), (resized.steps[0], resized.steps[-1]), strict=True
    ):
        do(store, resized, step)
    left = {one.name for one in Path(table_uri, HASHING_FOLDER).rglob("*.*")}
    assert left == {f"{FIRST_INSTANT}.hashing_meta"}
    assert bool(backend.paths("put")) == (sleep_before == "put")


@pytest.mark.parametrize(
    "more",
    [
        {"table_type": "cow"},
        {"options": {"hudi_hashing_metadata": True, "bucket_engine": "extendible_hashing"}},
        {"options": {"hudi_hashing_metadata": True, "bucket_engine": "simple"}},
    ],
)
def test_what_hudi_has_no_hashing_metadata_of_is_refused(
    table_uri: str, more: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="Hudi has no such hashing metadata"):
        filled(table_uri, **more)
