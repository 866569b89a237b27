"""Entry files: the entries that many tasks of a commit have made become few HFiles.

A task's entries of one partition are a *run*: an Arrow IPC file sorted by place, in scratch,
or, when it is tiny, inside the task's receipt. Each HFile is built from its range of places
of all runs. Ranges are contiguous and cut so that a file is worth its overhead: a small
commit makes one HFile per partition, never one per bucket. Where keys are in the order of their
places, a file is built from one narrow range after the other, so that what is in memory does
not grow with the commit; a run tells where its batches begin, and only those of the range are
read. In scratch far away some runs are read at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.storage.ordering import number_order
from metatable.storage.portions import MOST_TOGETHER
from metatable.storage.sinks import Sinks
from metatable.storage.store import Store

__all__ = [
    "NONE_RIDES",
    "RUN_SCHEMA",
    "Run",
    "RunReceipt",
    "build_hfile",
    "cut_ranges",
    "drop_runs",
    "read_places",
    "read_run",
    "read_runs",
    "read_together",
    "write_run",
]

INLINE_BYTES = 64 << 10
"""A run up to this size rides in its receipt: cheaper than a request of its own."""

ALL_INLINE_BYTES = 64 << 20
"""What rides of one partition's runs together, at most: it meets in one process, and goes from
there to each task that builds a file."""

NONE_RIDES = ALL_INLINE_BYTES + 1
"""As so many tasks: of these no run rides."""

BATCH_ROWS = 8 << 10
"""Rows of a batch of a run. One batch of each run that a file is built from is in memory."""

STEP_BYTES = 16 << 20
"""Entries that pass to a file at once."""

_OPTIONS = pa.ipc.IpcWriteOptions()
"""Said, or the environment would be asked for them four times a run."""

STARTS = b"starts"
"""In the metadata of a run's schema: the place that each of its batches begins with, int64."""

RUN_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("entry_count", pa.int64()),
        pa.field("entry_bytes", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("body", pa.binary()),
        pa.field("size_bytes", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Run:
    """One task's entries of one partition; `entry_bytes` is their size in memory, `size_bytes` that
    of the file that they are."""

    partition: str
    entry_count: int
    entry_bytes: int
    path: str | None
    body: bytes | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReceipt:
    """Base of a task's receipts (`run_jobs`) that may be a run: its fields, as `Run` has them, and
    `partition` is None where there is none."""

    partition: str | None = None
    entry_count: int = 0
    entry_bytes: int = 0
    path: str | None = None
    body: bytes | None = None
    size_bytes: int = 0

    @property
    def run(self) -> Run | None:
        """The run that it is."""
        if self.partition is None:
            return None
        sizes = self.entry_count, self.entry_bytes
        return Run(self.partition, *sizes, self.path, self.body, self.size_bytes)


def write_run(scratch: Store, partition: str, entries: pa.Table, tasks: int = 1) -> Run:
    """Keep `entries` in the scratch until the HFiles are built, or in the run itself while they are
    few, by themselves (`INLINE_BYTES`) and together with those of so many tasks; sorted by place
    where they have one."""
    starts = np.empty(0, np.int64)
    if "place" in entries.column_names and len(entries) > 1:
        entries = entries.take(pa.array(number_order(entries["place"].to_numpy())))
    if "place" in entries.column_names:
        starts = entries["place"].to_numpy()[::BATCH_ROWS]
    sink = pa.BufferOutputStream()
    schema = entries.schema.with_metadata({STARTS: starts.tobytes()})
    with pa.ipc.new_file(sink, schema, options=_OPTIONS) as file:
        file.write_table(entries.unify_dictionaries().combine_chunks(), BATCH_ROWS)
    body = sink.getvalue().to_pybytes()
    told = partition, entries.num_rows, entries.nbytes
    if len(body) <= min(INLINE_BYTES, ALL_INLINE_BYTES // max(tasks, 1)):
        return Run(*told, None, body, len(body))
    path = f"{uuid.uuid4().hex}.arrow"
    scratch.put(path, body)
    return Run(*told, path, None, len(body))


def drop_runs(scratch: Store, runs: Iterable[Run]) -> None:
    """Once the HFiles are built."""
    scratch.delete_all(run.path for run in runs if run.path is not None)
    scratch.dismiss()


def read_run(scratch: Store, run: Run) -> Iterator[pa.RecordBatch]:
    """The entries of a run, in batches, by place."""
    with _opened(scratch, run) as file:
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def read_places(scratch: Store, run: Run, lo: int, hi: int) -> Iterator[pa.RecordBatch]:
    """The entries that a run has in places [lo, hi), by place; other batches are not read."""
    with _opened(scratch, run) as file:
        starts = np.frombuffer(file.schema.metadata[STARTS], np.int64)
        first, end = np.searchsorted(starts, [lo, hi])
        for number in range(max(int(first) - 1, 0), int(end)):
            batch = file.get_batch(number)
            inside = slice(*np.searchsorted(batch["place"].to_numpy(), [lo, hi]))
            yield batch.slice(inside.start, inside.stop - inside.start)


def _opened(scratch: Store, run: Run) -> pa.ipc.RecordBatchFileReader:
    if run.path is None:
        return pa.ipc.open_file(pa.BufferReader(run.body))
    return pa.ipc.open_file(scratch.open(run.path, run.size_bytes))


def read_runs(scratch: Store, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
    """The entries of all of these, in batches, of which few are in memory."""
    most = MOST_TOGETHER if scratch.is_distant else 1
    for start in range(0, len(runs), most):
        left = [read_run(scratch, run) for run in runs[start : start + most]]
        while left:
            told = scratch.together([partial(next, one, None) for one in left])
            left = [one for one, batch in zip(left, told, strict=True) if batch is not None]
            yield from (batch for batch in told if batch is not None)


def read_together(
    scratch: Store, parts: Iterable[Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """What all of these read of runs, in their order, all of it in memory."""
    return chain.from_iterable(scratch.together([partial(list, one) for one in parts]))


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
    store: Sinks,
    scratch: Store,
    partition: MetadataPartition,
    runs: Sequence[Run],
    lo: int,
    hi: int,
    owner: Owner,
    change: Callable[[pa.Table], pa.Table] | None = None,
) -> HFileRef | None:
    """One HFile from the entries that `runs` have in places [lo, hi); None if there are none.

    `change`: makes of a piece of them what goes into the file, with keys of that piece alone.
    Entries of one key have one place: they are in one piece.
    """
    held = [_InOrder(scratch, run, lo, hi) for run in runs]
    pieces = (
        pa.Table.from_batches(
            read_together(scratch, (one.below(end) for one in held)), partition.schema
        )
        for end in _steps(partition, runs, lo, hi)
    )
    return partition.store_pieces(store, lo, hi, map(change, pieces) if change else pieces, owner)


def _steps(partition: MetadataPartition, runs: Sequence[Run], lo: int, hi: int) -> list[int]:
    """The ends of the narrow ranges that [lo, hi) is cut into."""
    if not partition.takes_pieces:
        return [hi]
    size_bytes = sum(run.entry_bytes for run in runs) * (hi - lo) // partition.space
    count = max(1, min(-(-size_bytes // STEP_BYTES), hi - lo))
    return [lo + (hi - lo) * (number + 1) // count for number in range(count)]


class _InOrder:
    """The entries of a run in places [lo, hi), given once, range by range."""

    def __init__(self, scratch: Store, run: Run, lo: int, hi: int) -> None:
        self._batches = read_places(scratch, run, lo, hi)
        self._waiting: pa.RecordBatch | None = None

    def below(self, end: int) -> Iterator[pa.RecordBatch]:
        """The entries of places below `end` that were not given yet."""
        while (batch := self._waiting or next(self._batches, None)) is not None:
            count = int(np.searchsorted(batch["place"].to_numpy(), end))
            yield batch.slice(0, count)
            self._waiting = batch.slice(count) if count < batch.num_rows else None
            if self._waiting:
                return
