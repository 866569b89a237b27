"""The HFiles of a commit: runs of entries in, few files out, a task each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.engine.protocol import Engine
from metatable.metadata.entry_files import Run, build_hfile, cut_ranges
from metatable.metadata.manifest import HFileRef
from metatable.metadata.owner import Owner
from metatable.metadata.partition import MetadataPartition
from metatable.storage.counters import Counters
from metatable.storage.store import Store
from metatable.write.plan import TASK_COLUMN

__all__ = ["build_hfiles"]

_BUILT = pa.schema([pa.field("partition", pa.string()), pa.field("ref", pa.string())])


def build_hfiles(
    engine: Engine[Any],
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
) -> dict[str, tuple[HFileRef, ...]]:
    """The HFiles of a commit, by metadata partition: a task each."""
    jobs = []
    for partition in partitions:
        ours = [run for run in runs if run.partition == partition.name]
        target = partition.options.hfile_target_bytes
        jobs += [(partition.name, lo, hi) for lo, hi in cut_ranges(partition, ours, target)]
    table = pa.Table.from_pylist(
        [
            {"partition": name, "lo": lo, "hi": hi, TASK_COLUMN: place}
            for place, (name, lo, hi) in enumerate(jobs)
        ],
        schema=_JOB,
    )
    work = partial(_build_files, store, scratch, tuple(partitions), tuple(runs), owner)
    spread = engine.exchange(engine.rows(table), TASK_COLUMN, max(1, len(jobs)))
    built = engine.run(spread, work, _BUILT).to_pylist()
    refs = [(one["partition"], HFileRef.decode(json.loads(one["ref"]))) for one in built]
    return {
        partition.name: tuple(ref for name, ref in refs if name == partition.name)
        for partition in partitions
        if any(name == partition.name for name, _ in refs)
    }


_JOB = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("lo", pa.int32()),
        pa.field("hi", pa.int32()),
        pa.field(TASK_COLUMN, pa.int32()),
    ]
)


def _build_files(
    store: Store,
    scratch: Store,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    owner: Owner,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: one HFile a row of `_JOB`."""
    by_name = {partition.name: partition for partition in partitions}
    store, scratch = store.counting(counters), scratch.counting(counters)
    for job in (row for batch in batches for row in batch.to_pylist()):
        partition = by_name[job["partition"]]
        ours = [run for run in runs if run.partition == partition.name]
        ref = build_hfile(store, scratch, partition, ours, job["lo"], job["hi"], owner)
        if ref is not None:
            row = {"partition": partition.name, "ref": json.dumps(ref.encode())}
            yield pa.RecordBatch.from_pylist([row], schema=_BUILT)
