"""From entries made by many tasks to few HFiles.

A task's entries of one partition are a *run*: an Arrow IPC file sorted by place, in scratch,
or, when it is tiny, inside the task's receipt. Each HFile is built from its range of places
of all runs. Ranges are contiguous and cut so that a file is worth its overhead: a small
commit makes one HFile a partition, never one a bucket.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.metadata.manifest import HFileRef
from metatable.metadata.owner import Owner
from metatable.metadata.partition import MetadataPartition
from metatable.storage.store import Store

__all__ = ["RUN_SCHEMA", "Run", "build_hfile", "cut_ranges", "read_run", "write_run"]

INLINE_BYTES = 64 << 10
"""A run up to this size rides in its receipt: cheaper than a request of its own."""

BATCH_ROWS = 64 << 10

RUN_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("entry_count", pa.int64()),
        pa.field("entry_bytes", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("body", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Run:
    """One task's entries of one partition; `entry_bytes` is their size in memory."""

    partition: str
    entry_count: int
    entry_bytes: int
    path: str | None
    body: bytes | None


def write_run(scratch: Store, partition: str, entries: pa.Table) -> Run:
    """Keep `entries` until the HFiles are built; sorted by place where they have one."""
    if "place" in entries.column_names:
        entries = entries.take(pa.array(np.argsort(entries["place"].to_numpy(), kind="stable")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, entries.schema) as file:
        file.write_table(entries.unify_dictionaries().combine_chunks(), BATCH_ROWS)
    body = sink.getvalue().to_pybytes()
    if len(body) <= INLINE_BYTES:
        return Run(partition, entries.num_rows, entries.nbytes, None, body)
    path = f"{uuid.uuid4().hex}.arrow"
    scratch.put(path, body)
    return Run(partition, entries.num_rows, entries.nbytes, path, None)


def read_run(scratch: Store, run: Run) -> Iterator[pa.RecordBatch]:
    """The entries of a run, in batches, by place."""
    source = pa.BufferReader(run.body) if run.path is None else scratch.open(run.path)
    with pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def cut_ranges(
    partition: MetadataPartition, runs: Sequence[Run], target_bytes: int
) -> list[tuple[int, int]]:
    """Ranges of places [lo, hi) that cover the partition, one for each HFile to write.

    Hashing spreads entries evenly, so equal ranges hold about equal bytes.
    """
    total = sum(run.entry_bytes for run in runs)
    if not any(run.entry_count for run in runs):
        return []
    return partition.cut(max(1, -(-total // target_bytes)))


def build_hfile(
    store: Store,
    scratch: Store,
    partition: MetadataPartition,
    runs: Iterable[Run],
    lo: int,
    hi: int,
    owner: Owner,
) -> HFileRef | None:
    """One HFile from the entries that `runs` have in places [lo, hi); None if there are none."""
    parts = [
        _within(batch, lo, hi)
        for run in runs
        for batch in read_run(scratch, run)
        if _overlaps(batch, lo, hi)
    ]
    return partition.store(store, lo, hi, pa.Table.from_batches(parts, partition.schema), owner)


def _overlaps(batch: pa.RecordBatch, lo: int, hi: int) -> bool:
    places = batch["place"]
    return len(places) > 0 and places[0].as_py() < hi and places[-1].as_py() >= lo


def _within(batch: pa.RecordBatch, lo: int, hi: int) -> pa.RecordBatch:
    first, last = np.searchsorted(batch["place"].to_numpy(), [lo, hi])
    return batch.slice(int(first), int(last - first))
