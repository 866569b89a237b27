"""Roots, pages, hints and staged commits that are not as they should be; two creators."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import (
    ConflictError,
    CorruptError,
    StaleError,
    Table,
)
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.manifests.manifest import READER_OF_OWN_REFS, version_path
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import ROOT_KEY_BYTES
from metatable.metadata.manifests.sealed import seal, unseal
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.face.protocol.making import (
    FAST,
    dies,
    made,
    newest,
    recover,
    rows,
)
from tests.faults import watched
from tests.model import (
    Row,
    arrow,
    read_by_hudi,
    scanned,
)
from tests.root_refs import root_refs

pytestmark = pytest.mark.in_turn("table")


def test_a_root_that_is_a_copy_of_another_is_damage_and_nobody_spins(one: Table) -> None:
    root = Path(one.uri, version_path(one.version))
    shutil.copy(root, root.with_name(f"{one.version + 1:020d}.json"))
    for act in (lambda: one.upsert(arrow(rows(3, 5, 2))), one.compact, lambda: one.scan().count()):
        with pytest.raises(CorruptError, match="manifest is another version's") as told:
            act()
        assert told.value.facts["expected"] == 3
        assert told.value.facts["found"] == 2


def test_a_root_whose_last_commit_is_still_to_come_is_damage(one: Table) -> None:
    """Who goes from commit to commit by such roots goes in a circle."""
    root = Path(one.uri, version_path(one.version))
    body = unseal(root.read_bytes(), root.name)
    for wrong in (one.version + 1, 0, -1):
        root.write_bytes(seal({**body, "last_commit": [wrong, body["instant"]]}))
        for act in (one.history, lambda: one.scan().count(), one.compact):
            with pytest.raises(CorruptError, match="manifest names a commit that is no version"):
                act()


def test_a_put_that_is_always_forestalled_ends(one: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    store, backend = watched(one.uri)
    base = newest(one)
    create = backend.create

    def forestalled(path: str, body: bytes, **how: Any) -> bool:
        if "/manifest/" in path:
            publish(Store(one.uri, FAST), newest(one), Change("compact"), Owner.new("compact"))
        return create(path, body, **how)

    monkeypatch.setattr("metatable.metadata.commits.commit.MOST_PUTS", 5)
    backend.create = forestalled  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="others were always first"):
        publish(store, base, Change("compact"), Owner.new("compact"))
    assert one.version == base.version + 5


@pytest.mark.parametrize(
    "hint", [None, b"", b"garbage", b"1", b"99", b"9" * 20, b"-1", b"\xff", b"3 other"]
)
def test_the_newest_version_is_found_whatever_the_hint_says(one: Table, hint: bytes | None) -> None:
    for v in range(3):
        one.upsert(arrow(rows(0, 3, v)))
    path = Path(one.uri, ".hoodie/metatable/manifest/latest")
    if hint is None:
        path.unlink()
    else:
        path.write_bytes(hint)
    assert one.version == 5
    assert one.upsert(arrow(rows(0, 3, 7))).version == 6
    assert path.read_bytes() == f"6 {newest(one).nonce}".encode()


def test_a_folder_in_the_hint_s_place_is_no_commit_s_loss(one: Table) -> None:
    hint = Path(one.uri, ".hoodie/metatable/manifest/latest")
    hint.unlink()
    hint.mkdir()
    for v in range(2):
        version = one.upsert(arrow(rows(0, 3, v))).version
        assert metatable.open(one.uri, storage_options=FAST).version == version
    assert one.verify().findings == ()


@pytest.mark.parametrize("part", [1, 31, 33])
def test_part_of_a_nonce_is_no_nonce(one: Table, part: int) -> None:
    """As a writer leaves it who dies while he writes it: other roots may have that as well."""
    path = Path(one.uri, ".hoodie/metatable/manifest/latest")
    path.write_bytes(f"{one.version} {newest(one).nonce}0".encode()[: part - 33 or None])
    cache.clear()
    store, backend = watched(one.uri)
    assert load_newest(store) == newest(one)
    assert ".hoodie/metatable/manifest" in backend.paths("list")


def test_a_root_that_is_cleaned_between_its_listing_and_its_reading_is_no_damage(
    one: Table,
) -> None:
    """A process sleeps there, and others publish and clean."""
    Path(one.uri, ".hoodie/metatable/manifest/latest").unlink()
    waiting = [one.version]

    def meanwhile(verb: str, path: str) -> None:
        if verb == "read_whole" and waiting and path == version_path(waiting[0]):
            waiting.clear()
            for v in range(3):
                one.upsert(arrow(rows(0, 3, v)))
            one.clean(versions=1, hours=0)

    store, _ = watched(one.uri, before=meanwhile)
    cache.clear()
    found = load_newest(store)
    assert not waiting
    assert found == newest(one)


@pytest.mark.parametrize("name", ["000000000000000000\u00b26.json", "\u0660" * 19 + "\u0666.json"])
def test_a_file_beside_the_roots_with_digits_of_another_kind_is_passed_over(
    one: Table, name: str
) -> None:
    folder = Path(one.uri, ".hoodie/metatable/manifest")
    (folder / name).write_bytes(b"{}")
    (folder / "latest").unlink()
    assert metatable.open(one.uri, storage_options=FAST).version == one.version


def test_long_keys_are_not_in_roots(table_uri: str) -> None:
    """An index that keeps keys as they are tells the first and the last of each file."""
    options = {"record_key_form": "plain", "upkeep_files": 0}
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = metatable.create(
        table_uri, schema, key="id", options=options, storage_options=FAST, index="record"
    )
    keys = [f"{number:05}{number % 10}" + "k" * 3000 for number in range(8)]
    for number, key in enumerate(keys):
        table.insert(pa.table({"id": [key], "v": [number]}))
        own = [len(one.first_key) + len(one.last_key) for one in newest(table).own_refs]
        assert sum(own) <= ROOT_KEY_BYTES
    assert [*newest(table).page_files]
    assert table.read_keys(keys)["v"].to_pylist() == [*range(8)]
    assert table.verify().findings == ()


def test_a_root_holds_no_more_references_than_it_may(table_uri: str) -> None:
    table = made(table_uri, upkeep_files=0)
    folder = Path(table_uri, ".hoodie/metatable/pages")
    with root_refs(7):
        for number in range(2):
            table.upsert(arrow(rows(0, 8, number)))
        assert (len([*newest(table).own_refs]), folder.exists()) == (5, False)
        for number in range(2, 5):
            table.upsert(arrow(rows(0, 8, number)))
            assert len([*newest(table).own_refs]) <= 7
        root = newest(table)
        assert len([*root.own_refs]) + sum(one.ref_count for one in root.page_files) == 11
        assert {one.path for one in root.page_files} == {
            f".hoodie/metatable/pages/{path.name}" for path in folder.iterdir()
        }
        assert root.format["reader"] == READER_OF_OWN_REFS
        before = scanned(table)
        table.compact(major=True)
    assert scanned(table) == before == scanned(metatable.open(table_uri, FAST), table.version - 1)
    assert (len([*newest(table).own_refs]), [*newest(table).page_files]) == (3, [])
    assert table.verify().findings == ()
    table.upsert(arrow(rows(0, 8, 4)))
    table.clean(versions=1, hours=0)
    assert not folder.exists()
    assert scanned(table) == before


@pytest.mark.usefixtures("pages_as_files")
def test_a_page_in_the_place_of_another_is_damage(one: Table) -> None:
    first, second = newest(one).pages["files"][0], newest(one).pages["record_index"][0]
    shutil.copy(Path(one.uri, second.path), Path(one.uri, first.path))
    cache.clear()
    with pytest.raises(CorruptError, match="page is not the one that the manifest names"):
        scanned(one)


@pytest.mark.parametrize("damage", [None, b"{}"])
def test_a_staged_commit_that_was_lost_or_damaged_is_made_again_from_the_index(
    table: Table, damage: bytes | None
) -> None:
    dies(table, rows(8, 16, 2), r"create .*/\d+\.commit")
    [step] = newest(table).steps
    before = CommitMetadata.decode(Path(table.uri, step.staged).read_bytes(), step.staged)
    if damage is None:
        Path(table.uri, step.staged).unlink()
    else:
        Path(table.uri, step.staged).write_bytes(damage)
    recover(table)
    path = f".hoodie/{step.instant}.commit"
    after = CommitMetadata.decode(Path(table.uri, path).read_bytes(), path)
    unknown = {"inserted": 0, "updated": 0, "deleted": 0}
    assert sorted(after.stats, key=lambda one: one.path) == [
        replace(one, **unknown) for one in sorted(before.stats, key=lambda one: one.path)
    ]
    assert (after.extra, after.operation) == (before.extra, before.operation)
    assert read_by_hudi(table.uri) == scanned(table)
    assert len(scanned(table)) == 16
    assert table.upsert(arrow(rows(0, 2, 7))).updated == 2


def test_a_table_that_was_made_anew_is_not_read_by_an_old_plan(table_uri: str) -> None:
    table = made(table_uri)
    table.insert(arrow(rows(0, 4, 1)))
    plan = pickle.dumps(Snapshot(Store(table_uri, FAST), newest(table)))
    shutil.rmtree(table_uri)
    again = made(table_uri)
    again.insert(arrow(rows(0, 4, 2)))
    cache.clear()
    with pytest.raises(StaleError, match="table was replaced by another one"):
        pickle.loads(plan)


def test_of_two_creators_of_one_table_one_is_told_and_the_table_is_one(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: list[Table] = []
    create = Store.create

    def second_first(store: Store, path: str, body: bytes, **how: Any) -> bool:
        if not inner and path.endswith("hoodie.properties"):
            inner.append(Table.__new__(Table))
            inner[0] = made(table_uri)
        return create(store, path, body, **how)

    monkeypatch.setattr(Store, "create", second_first)
    with pytest.raises(ConflictError, match="somebody else has just created this table"):
        made(table_uri)
    inner[0].insert(arrow(rows(0, 4, 1)))
    table = metatable.open(table_uri, FAST)
    assert table.options.key_salts == inner[0].options.key_salts
    assert table.verify().findings == ()


def test_a_creation_that_died_is_finished_by_the_next_one_for_the_same_table(
    table_uri: str,
) -> None:
    table = made(table_uri)
    salts = table.options.key_salts
    Path(table_uri, ".hoodie/hoodie.properties").unlink()
    assert made(table_uri).options.key_salts == salts
    table.insert(arrow(rows(0, 4, 1)))
    assert read_by_hudi(table_uri) == scanned(table)


def test_a_creator_of_another_table_is_told_of_the_one_that_was_begun(table_uri: str) -> None:
    made(table_uri)
    Path(table_uri, ".hoodie/hoodie.properties").unlink()
    with pytest.raises(ConflictError, match="began to create, another table here"):
        made(table_uri, index="metadata_bloom")


def test_no_table_is_created_over_one_that_lost_its_properties(one: Table) -> None:
    Path(one.uri, ".hoodie/hoodie.properties").unlink()
    with pytest.raises(CorruptError, match="a table without its properties"):
        made(one.uri)
    assert newest(one).version == 2


def _write(store: Store, given: list[Row]) -> None:
    write(store, LocalEngine(1), arrow(given), "upsert")


@pytest.mark.parametrize("where", [r"create city=.*\.parquet", r"create .*/manifest/\d+\.json"])
def test_a_put_where_the_table_was_moved_away_is_not_acknowledged(
    one: Table, tmp_path: Path, where: str
) -> None:
    """The next write makes the folder anew: there a put is always the first."""
    moved, before = tmp_path / "elsewhere", scanned(one)

    def move(verb: str, path: str) -> None:
        if not moved.exists() and re.fullmatch(where, f"{verb} {path}"):
            Path(one.uri).rename(moved)

    store, _ = watched(one.uri, before=move)
    with pytest.raises(StaleError, match="moved or deleted meanwhile"):
        _write(store, rows(20, 30, 2, "la"))
    assert not [path for path in Path(one.uri).rglob("*") if path.is_file()]
    there = metatable.open(moved, storage_options=FAST)
    assert scanned(there) == before
    there.upsert(arrow(rows(8, 16, 3)))
    assert read_by_hudi(there.uri) == scanned(there)
    assert there.verify().findings == ()


@pytest.mark.parametrize(("commits", "since"), [(0, 0), (1, 0), (1, 1), (1, 3)])
def test_a_put_for_a_table_that_was_made_anew_meanwhile_is_taken_back(
    table_uri: str, commits: int, since: int
) -> None:
    """It was the next version of the new table, or of one to come."""
    table = made(table_uri)
    for v in range(commits):
        table.upsert(arrow(rows(0, 4, v)))
    place, again = version_path(table.version + 1), list[Table]()

    def anew(verb: str, path: str) -> None:
        if f"{verb} {path}" == f"create {place}":
            shutil.rmtree(table_uri)
            again.append(made(table_uri))
            for v in range(since):
                again[0].upsert(arrow(rows(2, 6, v)))

    store, _ = watched(table_uri, before=anew)
    with pytest.raises(StaleError, match="another one"):
        _write(store, rows(8, 16, 2))
    [there] = again
    assert there.version == 1 + since
    for v in range(3):
        there.upsert(arrow(rows(2, 6, 5 + v)))
    assert there.version == 4 + since
    assert {row[2] for row in scanned(there)} == {7}
    assert read_by_hudi(table_uri) == scanned(there)
    assert there.verify().findings == ()


def test_rows_are_not_written_to_another_table_than_they_were_prepared_for(
    one: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream lasts; its keys and partition paths were made by the options of the table before."""
    monkeypatch.setattr("metatable.write.commit_pass.YOUNG_MS", -1)
    given = arrow(rows(8, 16, 2))

    def stream() -> Iterator[pa.RecordBatch]:
        shutil.rmtree(one.uri)
        made(one.uri)
        yield from given.to_batches()

    with pytest.raises(StaleError, match="table was replaced by another one"):
        one.upsert(pa.RecordBatchReader.from_batches(given.schema, stream()))
    assert newest(one).version == 1
