"""Build: makes the HFiles of a commit or a service, few of them, from runs of entries.

One task makes one file. Few entries of an engine of this process, which are here already, make no
task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.metadata.hfiles.entry_files import Run, build_hfile, cut_ranges
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.storage.counters import Counters
from metatable.storage.sinks import Caught
from metatable.storage.store import Store

__all__ = ["build_hfiles"]

RIDING_BYTES = 256 << 10
"""An HFile of no more entries rides in its receipt: cheaper than to wait for its own request."""

Made = tuple[str, HFileRef, bytes | None]
"""One HFile: its partition, its reference, and its body if it is small and was not put yet."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Job: the entries of buckets [lo, hi) of a metadata partition."""

    partition: str
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class _Built:
    """Receipt: a file that a version may name."""

    partition: str
    ref: str
    body: bytes | None
    """The file itself, if it is small: then it was not put yet."""


def build_hfiles(
    engine: Engine[Any],
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
) -> tuple[dict[str, tuple[HFileRef, ...]], dict[str, bytes]]:
    """The HFiles of what runs tell, by metadata partition. And what is still to be put of them, by
    path: small ones go together with all that a version needs."""
    jobs = [
        _Range(partition.name, lo, hi)
        for partition in partitions
        for lo, hi in cut_ranges(
            partition, _of(runs, partition), partition.options.hfile_target_bytes
        )
    ]
    told = store, scratch, tuple(partitions), tuple(runs), owner
    few = sum(run.entry_bytes for run in runs) <= RIDING_BYTES
    made: Iterable[Made]
    # workers elsewhere reach what may hold a partition's entries; the driver need not
    if few and engine.in_process and all(run.path is None for run in runs):
        made = _made(*told, jobs, engine.counters)
    else:
        built = run_jobs(engine, jobs, partial(_build, *told), _Built, 1 if few else None)
        made = ((one.partition, HFileRef.decode(json.loads(one.ref)), one.body) for one in built)
    refs: dict[str, tuple[HFileRef, ...]] = {}
    files: dict[str, bytes] = {}
    for name, ref, body in made:
        refs[name] = (*refs.get(name, ()), ref)
        if body is not None:
            files[ref.path] = body
    return refs, files


def _build(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
    jobs: Iterator[_Range],
    counters: Counters,
) -> Iterator[_Built]:
    """Task: receipts of the HFiles of some jobs."""
    for name, ref, body in _made(store, scratch, partitions, runs, owner, jobs, counters):
        yield _Built(name, json.dumps(ref.encode()), body)


def _made(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
    jobs: Iterable[_Range],
    counters: Counters,
) -> Iterator[Made]:
    """One HFile a job, or none where nothing is in its buckets."""
    by_name = {partition.name: partition for partition in partitions}
    store, scratch = store.counting(counters), scratch.counting(counters)
    for job in jobs:
        partition = by_name[job.partition]
        ours = _of(runs, partition)
        small = sum(run.entry_bytes for run in ours) <= RIDING_BYTES
        caught = Caught(counters)
        sinks = caught if small else store
        ref = build_hfile(sinks, scratch, partition, ours, job.lo, job.hi, owner)
        if ref is not None:
            yield partition.name, ref, caught.body if small else None


def _of(runs: Sequence[Run], partition: MetadataPartition) -> list[Run]:
    return [run for run in runs if run.partition == partition.name]
