"""Clean on real servers: killed at its steps, and beside a process that writes, compacts, rolls
back and cleans. What is left then is what somebody names, and the rows are as they were.

Killed after the first call of each kind that changes something; with METATABLE_LONG=1 after each.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table
from metatable.compaction.cleaning.clean import Clean
from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import execute
from metatable.data.hoodie.timeline import next_instant
from metatable.engine.local import LocalEngine
from metatable.storage import cache
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.cleaned import strange_files
from tests.face.test_kill import _kill, _shape
from tests.faults import Watched, dying, watched
from tests.long import LONG
from tests.model import SCHEMA, Model, arrow, read_by_hudi, scanned
from tests.root_refs import SOME_REFS, root_refs
from tests.services.servers import Bucket, Versitygw
from tests.services.test_s3_tables import rows

ROOT = Path(__file__).resolve().parents[2]
BEFORE_PUT = r"create .*/manifest/\d+\.json"
GARBAGE = r"""
city=\w+/.+\.parquet  .+/files/.+\.hfile  .+/record_index/.+\.hfile  .+/pages/.+  .+/commits/.+
\.hoodie/\.temp/.+  .+/savepoints/.+  .+/manifest/\d+\.json  .+/leases/\d+  .+/services/compact-.+
\.hoodie/\d+\.commit  \.hoodie/\d+\.replacecommit
"""
"""What the clean that is killed has to delete, each kind of file."""
KINDS, NAMES = "replace|compact-|clean-|late-", r"[0-9a-f-]{8,}|\d+|ny|sf|\w+(?=/[^/]+\.hfile)"
"""What differs between two steps of one kind."""


def opened(bucket: Bucket) -> Table:
    """As a process of its own has it."""
    cache.clear()
    return metatable.open(bucket.uri, storage_options=dict(bucket.storage_options))


def made(bucket: Bucket, **options: Any) -> Table:
    small = {"file_rows": 5, "key_scope": "global", "timeline_commits": 2, "upkeep_files": 0}
    return metatable.create(
        bucket.uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options={**small, **options},
        storage_options=dict(bucket.storage_options),
    )


def littered(bucket: Bucket) -> Table:
    """A table with everything that a clean deletes; leases of no time."""
    with root_refs(SOME_REFS):
        return _littered(made(bucket, lease_seconds=0), bucket)


def _littered(table: Table, bucket: Bucket) -> Table:
    first = table.upsert(arrow(rows(0, 6, 0))).instant
    for number in (1, 2):
        table.upsert(arrow(rows(2 * number, 2 * number + 6, number)))
    between = next_instant(datetime(2020, 1, 1, tzinfo=UTC), first)
    table._store.put(f"city=ny/late-0_0-0-0_{between}.parquet", b"of a writer long dead")
    table.savepoint("books")
    table.compact(major=True)
    table.insert_overwrite(arrow(rows(0, 4, 5)))
    table.drop_savepoint("books")
    for number in (6, 7):
        table.upsert(arrow(rows(2, 8, number)))
    table.rollback()
    table.upsert(arrow(rows(5, 12, 8)))
    with dying(bucket.uri, BEFORE_PUT, bucket.storage_options) as store:
        execute(store, LocalEngine(1), Compact(major=True))
    with dying(bucket.uri, BEFORE_PUT, bucket.storage_options) as store:
        write(store, LocalEngine(1), arrow(rows(6, 18, 2)), "upsert")
    return table


def steps(backend: Watched) -> list[int]:
    """The calls to be killed before: behind the first of each kind, or behind each."""
    if LONG:
        return [0, *backend.kills()]
    kinds: dict[str, int] = {}
    for limit in backend.kills():
        call = re.sub(KINDS, "", " ".join(backend.calls[limit - 1]))
        kinds.setdefault(re.sub(NAMES, "*", call), limit)
    return [0, *kinds.values()]


def test_a_killed_clean_on_s3_is_gone_on_with(s3_server: Versitygw, bucket: Bucket) -> None:
    expected = scanned(littered(bucket))

    def copied(name: object) -> Bucket:
        folder = bucket.folder.with_name(f"{bucket.name}-{name}")
        shutil.copytree(bucket.folder, folder, copy_function=os.link)
        return s3_server.bucket(folder.name)

    def cleans(store: Store) -> None:
        cache.clear()
        execute(store, LocalEngine(1), Clean(1, 0))

    dry = copied("dry")
    store, backend = watched(dry.uri, dry.storage_options)
    cleans(store)
    for kind in GARBAGE.split():
        assert any(re.fullmatch(kind, path) for path in backend.paths("delete")), kind
    seen: set[tuple[str, ...]] = set()
    for limit in steps(backend):
        killed = copied(limit)
        _kill(killed.uri, cleans, limit, options=killed.storage_options)
        assert read_by_hudi(str(killed.folder)) == expected, "Hudi reads something else"
        table = opened(killed)
        assert scanned(table) == expected
        if (shape := _shape(str(killed.folder))) not in seen:
            seen.add(shape)
            _is_gone_on_with(table, killed, expected, by_writer=bool(limit % 2))
    assert len(seen) > len(GARBAGE.split())
    assert scanned(opened(bucket)) == expected, "the copies are none"


def _is_gone_on_with(
    table: Table, bucket: Bucket, rows_before: list[tuple[Any, ...]], by_writer: bool
) -> None:
    """By the next writer, or at once by the next clean."""
    model = Model(is_global=True, ordering=False)
    model.upsert(dict(zip(SCHEMA.names, row, strict=True)) for row in rows_before)
    if by_writer:
        table.upsert(arrow(rows(10, 16, 9)))
        model.upsert(rows(10, 16, 9))
    table.clean(versions=1, hours=0)
    assert strange_files(table._store) == []
    assert scanned(opened(bucket)) == read_by_hudi(str(bucket.folder)) == model.listed()
    assert table.verify().findings == ()


BESIDE = """
import json, sys
import metatable
from metatable import ConflictError, StaleError, UsageError
from metatable.metadata.commits import transaction
from tests.model import Model, arrow
from tests.services.test_s3_tables import rows

def publish(*given):
    print("about to put", flush=True)
    sys.stdin.readline()
    return put(*given)

def is_undone(instant):
    while True:
        try:
            return bool(table.rollback(instant).version)
        except (ConflictError, StaleError):  # a clean was first
            continue
        except UsageError as error:
            assert "not kept any more" in str(error), error
            return False

put, transaction.publish = transaction.publish, publish
table = metatable.open(sys.argv[1], storage_options=json.loads(sys.argv[2]))
model = Model(is_global=True, ordering=False)
model.upsert(rows(0, 8, 0))
number = 0
while sys.stdin.readline():
    number += 1
    for first, v in ((2 * number, number), (0, 100 + number)):
        done = table.upsert(arrow(rows(first, first + 8, v)))
        model.upsert(rows(first, first + 8, v))
        if first:
            table.compact(major=True)
    if is_undone(done.instant):
        model.rollback()
    table.clean(versions=2, hours=0)
    print(json.dumps(model.listed()), flush=True)
"""
"""A process that waits before each of its puts until it is told to go on."""


def test_cleans_beside_another_process_take_nothing_that_is_its_own(any_bucket: Bucket) -> None:
    if any_bucket.scheme != "s3" and not LONG:
        pytest.skip("METATABLE_LONG is not set")
    table = made(any_bucket)
    table.upsert(arrow(rows(0, 8, 0)))
    kept = table.version, scanned(table)
    table.savepoint("books", kept[0])
    options = json.dumps(dict(any_bucket.storage_options))
    other = subprocess.Popen(
        [sys.executable, "-c", BESIDE, any_bucket.uri, options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with other:
        for number in range(8 if LONG else 2):
            told = "about to put\n"
            while told == "about to put\n":
                told = _told(other, table, versions=1 + number % 2)
            assert scanned(opened(any_bucket)) == [tuple(row) for row in json.loads(told)]
            assert scanned(table, kept[0]) == kept[1]
    assert other.returncode == 0
    expected = scanned(table)
    table.drop_savepoint("books")
    table.clean(versions=1, hours=0)
    assert strange_files(table._store) == []
    assert scanned(opened(any_bucket)) == expected
    assert table.verify().findings == ()


def _told(other: subprocess.Popen[str], table: Table, versions: int) -> str:
    """What the process says next. Cleaned is before it goes on, and then beside it."""
    assert other.stdin is not None
    assert other.stdout is not None
    table.clean(versions=versions, hours=0)
    other.stdin.write("go\n")
    other.stdin.flush()
    while not select.select([other.stdout], [], [], 0)[0]:
        table.clean(versions=versions, hours=0)
    return other.stdout.readline()
