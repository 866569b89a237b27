"""A commit that counts is told as one, though what follows it cannot be tidied up."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import pytest

import metatable
from metatable import AccessError, StoreError, Table
from metatable.compaction.merging import upkeep
from metatable.engine.local import LocalEngine
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import LEASES, SERVICES, leased
from metatable.metadata.manifests.leases import serving as serving_now
from metatable.storage.errors import MetatableError
from metatable.storage.store import TEMPORARY, Store
from metatable.write.commit_pass import write
from tests.face.protocol.making import FAST, recover, rows
from tests.faults import watched
from tests.model import SCHEMA, arrow
from tests.storage.s3_server import serving

MARKERS = ".hoodie/.temp"


def leftovers(table: Table) -> tuple[int, int]:
    """How many leases and markers there are."""
    store = Store(table.uri, FAST)
    return len(store.list(LEASES)), len(store.list(MARKERS, recursive=True))


def values(table: Table) -> dict[str, int]:
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


NEW = {f"k{number:02}": 2 if 4 <= number < 8 else 1 for number in range(12)}
"""What `rows(4, 8, 2)` make of the twelve rows."""


def upsert_refused(table: Table, where: str, error: MetatableError) -> int:
    """Upsert into a store that refuses the calls (verb and path) that `where` matches; how often it
    did."""
    refused = []

    def refuse(verb: str, path: str) -> None:
        if re.fullmatch(where, f"{verb} {path}"):
            refused.append(path)
            raise error

    store, _ = watched(table.uri, before=refuse)
    write(store, LocalEngine(1), arrow(rows(4, 8, 2)), "upsert")
    return len(refused)


REFUSALS = [AccessError("the store refuses us"), StoreError("no answer")]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    ("where", "left"),
    [
        (r"delete \.hoodie/\.temp/.*", (1, 4)),
        (r"delete .*/leases/\d+", (1, 0)),
        (r"put .*/manifest/latest", (0, 0)),
    ],
)
def test_a_commit_whose_traces_stay_is_there_and_the_next_writer_tidies_up(
    one: Table,
    caplog: pytest.LogCaptureFixture,
    where: str,
    left: tuple[int, int],
    error: MetatableError,
) -> None:
    with caplog.at_level(logging.WARNING, "metatable.metadata"):
        assert upsert_refused(one, where, error) > 0
    assert "left to the next writer" in caplog.text
    assert values(one) == NEW
    assert leftovers(one) == left
    caplog.clear()
    recover(one)
    assert leftovers(one) == (0, 0)
    assert values(metatable.open(one.uri, FAST)) == NEW


def test_a_commit_whose_runs_stay_is_there(
    one: Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(Store, "dismiss", refused)
    one.upsert(arrow(rows(4, 8, 2)))
    assert values(one) == NEW
    assert "left to the next writer: runs" in caplog.text


def test_who_may_not_delete_is_refused_once_by_each_commit_and_leaves_leases(
    one: Table,
) -> None:
    refused = StoreError("no answer")
    counts = [upsert_refused(one, r"delete .*/leases/\d+", refused) for _ in range(3)]
    assert counts == [1, 2, 2]
    assert leftovers(one) == (3, 0)


def test_who_may_not_delete_may_write() -> None:
    with serving() as server:
        options = server.options
        server.kept_once = ["AccessDenied"] * 1000
        table = metatable.create(
            f"{server.uri}/t", SCHEMA, key="id", partition_by="city", storage_options=options
        )
        table.insert(arrow(rows(0, 12, 1)))
        table.upsert(arrow(rows(4, 8, 2)))
        assert values(table) == NEW
        assert len(leased(Store(table.uri, options))) == 2
        server.kept_once.clear()
        table.upsert(arrow(rows(0, 1, 3)))
        assert not leased(Store(table.uri, options))
        assert not [key for key in server.objects if MARKERS in key]
        assert table.verify().findings == ()


def test_who_may_not_delete_archives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version would have a step that the store does not do, and no other one could follow."""
    monkeypatch.setattr(upkeep, "MOST_ARCHIVED", 1)
    with serving() as server:
        options = server.options
        own = {"timeline_commits": 2, "upkeep_files": 1}
        table = metatable.create(
            f"{server.uri}/t", SCHEMA, key="id", options=own, storage_options=options
        )
        table.set_options({"upkeep_files": 0})
        for number in range(6):
            table.upsert(arrow(rows(0, 2, number)))
        table.set_options({"upkeep_files": 1})
        server.kept_once = ["AccessDenied"] * 10_000
        for number in range(6):
            table.upsert(arrow(rows(0, 2, 10 + number)))
            upkeep.keep_up(Store(table.uri, options), LocalEngine(1))
        server.kept_once.clear()
        table.upsert(arrow(rows(0, 2, 20)))
        assert upkeep.keep_up(Store(table.uri, options), LocalEngine(1))
        assert values(table) == {"k00": 20, "k01": 20}


def test_objects_that_mark_folders_are_nobody_s_leases() -> None:
    with serving() as server:
        options = server.options
        table = metatable.create(f"{server.uri}/t", SCHEMA, key="id", storage_options=options)
        table.insert(arrow(rows(0, 2, 1)))
        below = f"{MARKERS}/20260101000000000/city=ny", f"{TEMPORARY}/clean/a"
        for folder in (LEASES, SERVICES, f"{HOME}/manifest", f"{HOME}/commits", ".hoodie", *below):
            server.objects[f"t/{folder}/"] = b"", datetime(2026, 1, 1, tzinfo=UTC)
        store = Store(table.uri, options)
        assert leased(store) == frozenset() == serving_now(store)
        assert not table.due()
        assert table.clean().version == table.version == 2
