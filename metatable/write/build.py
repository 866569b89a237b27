"""The HFiles of a commit: runs of entries in, few files out, a task each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.metadata.entry_files import Run, build_hfile, cut_ranges
from metatable.metadata.manifest import HFileRef
from metatable.metadata.owner import Owner
from metatable.metadata.partition import MetadataPartition
from metatable.storage.counters import Counters
from metatable.storage.store import Store

__all__ = ["build_hfiles"]


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


def build_hfiles(
    engine: Engine[Any],
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
) -> dict[str, tuple[HFileRef, ...]]:
    """The HFiles of a commit, by metadata partition: a task each."""
    jobs = [
        _Range(partition.name, lo, hi)
        for partition in partitions
        for lo, hi in cut_ranges(
            partition, _of(runs, partition), partition.options.hfile_target_bytes
        )
    ]
    work = partial(_build, store, scratch, tuple(partitions), tuple(runs), owner)
    refs: dict[str, tuple[HFileRef, ...]] = {}
    for one in run_jobs(engine, jobs, work, _Built):
        ref = HFileRef.decode(json.loads(one.ref))
        refs[one.partition] = (*refs.get(one.partition, ()), ref)
    return refs


def _build(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
    jobs: Iterator[_Range],
    counters: Counters,
) -> Iterator[_Built]:
    """Task: one HFile a job, or none where nothing is in its buckets."""
    by_name = {partition.name: partition for partition in partitions}
    store, scratch = store.counting(counters), scratch.counting(counters)
    for job in jobs:
        partition = by_name[job.partition]
        ours = _of(runs, partition)
        ref = build_hfile(store, scratch, partition, ours, job.lo, job.hi, owner)
        if ref is not None:
            yield _Built(partition.name, json.dumps(ref.encode()))


def _of(runs: Sequence[Run], partition: MetadataPartition) -> list[Run]:
    return [run for run in runs if run.partition == partition.name]
