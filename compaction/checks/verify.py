"""Verify: hold a table against its data, all ways, by reading all of it.

    versions -> files  every kept version can be read: its root, pages and HFiles are what they were
    timeline -> us     every completed commit is ours, every one of ours is completed, and says what
                       it said; nothing is under way that nobody does
    data -> index      every live file is there and can be read; `files` names it with its size; its
                       statistics cover it, its filter passes all of its keys, the record index
                       finds each key in its group; its footer and page indexes tell what is so,
                       and pass its keys, where the index asks footers; an index that places rows
                       would place them there
    index -> data      no entry is left of what is gone; no key lives twice in its scope

Findings are data: an empty list means that the index equals the data at this version. Damage is
found and passed: what can still be read is checked on. `examine` is the same for `repair`, which
is also handed what each finding needs to be mended.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from metatable.compaction.checks.beside_data import (
    look_at_barriers,
    look_at_plans,
    look_at_timeline,
    look_at_versions,
)
from metatable.compaction.checks.data_and_index import look_at_slices
from metatable.compaction.checks.examined import Examined
from metatable.compaction.checks.findings import Findings
from metatable.compaction.checks.kept_versions import IndexFiles, Remains, Versions
from metatable.compaction.checks.live_slices import LiveSlices, entries_of_files, instants_of
from metatable.compaction.checks.own_commits import ways_of
from metatable.compaction.checks.timeline_check import TimelineState
from metatable.engine.protocol import Engine
from metatable.metadata.manifests.versions import gone_since, load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.results import ServiceResult
from metatable.storage.errors import CorruptError, StaleError
from metatable.storage.store import Store

__all__ = ["examine", "result_of", "verify"]


def verify(engine: Engine[Any], snapshot: Snapshot) -> ServiceResult:
    """Compare everything; memory: some twenty bytes a row, eight a column of a file, some hundred a
    file, and for each worker the keys of a file, or of some small ones."""
    began = time.perf_counter()
    found = examine(engine, snapshot)
    return result_of(engine, "verify", snapshot.version, found, began)


def result_of(
    engine: Engine[Any], service: str, version: int, found: Examined, began: float, done: str = ""
) -> ServiceResult:
    """What was found, as the result of a service. `version`: the table's in the end; `began`: by
    `time.perf_counter`; `done`: what became of what is wrong, for people."""
    reason = f"{found.files} files, {found.rows} rows"
    reason += ": index equals data" if not len(found.findings) else done
    return ServiceResult(
        service=service,
        version=version,
        entries=found.rows,
        bytes_read=engine.counters["store.bytes_read"],
        bytes_written=engine.counters["store.bytes_written"],
        seconds=time.perf_counter() - began,
        reason=reason,
        findings=found.findings.told,
        finding_counts=found.findings.counts,
        rows_lost=found.findings.rows_lost,
        counters=dict(engine.counters),
    )


def examine(
    engine: Engine[Any], snapshot: Snapshot, scratch: Store | None = None, again: str = ""
) -> Examined:
    """Look at all of a version. `scratch`: where the entries are kept that would mend it; `again`:
    the instant of a commit whose version is lost, and which counts here.

    Raises CorruptError where files went meanwhile, as their version was undone or cleaned,
    StaleError where those of another version that was kept did.
    """
    store = snapshot.store
    versions = Versions.of(store, snapshot.manifest)
    index_files = IndexFiles.of(store, versions)
    view = Remains.of(snapshot, index_files.forgetting)
    entries = entries_of_files(view)
    named = partial(instants_of, store, entries)
    state = TimelineState.of(store, snapshot.manifest, versions, named, again)
    live = LiveSlices.of(view, entries, state)
    found = Examined(snapshot, state, versions, index_files, live, Findings())
    ways = ways_of(snapshot, versions, state, live)
    look_at_barriers(store, snapshot, state, live, ways, found.findings)
    look_at_timeline(found)
    look_at_versions(found)
    look_at_plans(view, found)
    look_at_slices(engine, view, found, scratch)
    if len(found.findings):
        _check_kept(snapshot)
    return found


def _check_kept(snapshot: Snapshot) -> None:
    """Raises where a version was kept when the look began, and is not any more: what is missing of
    it went by right, and is no finding."""
    store, began = snapshot.store, snapshot.manifest
    went = "files went while they were verified"
    if gone_since(store, began.version):
        raise CorruptError(went, path=store.uri)
    newest = load_newest(store) or began
    if newest.oldest > began.oldest or not began.pins.items() <= newest.pins.items():
        raise StaleError(f"{went}: try again", path=store.uri, newest=newest.version)
