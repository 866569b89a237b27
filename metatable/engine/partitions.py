"""Partitions of tables: slices that are not copied, so many that all threads have work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from metatable.engine.batches import Partition, conform, joined, together
from metatable.storage.arrays import Int32s, UInt64s

__all__ = ["cut", "is_full", "once", "pieces", "task_numbers"]

PARTITION_ROWS = 1 << 20
"""Large, because a partition pays once for opening, sorting and decoding what it looks up."""

PARTITION_BYTES = 48 << 20
"""Rows as wide as a page must not make partitions of gigabytes; several are under way."""

LEAST_ROWS = 32 << 10
"""Below this a second thread costs more than it saves."""


def is_full(rows: int, size_bytes: int) -> bool:
    """Whether a partition of so much should get no more."""
    return rows >= PARTITION_ROWS or size_bytes >= PARTITION_BYTES


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows, no more at once than a partition of a table has: those of a DataFrame may be
    of any size."""
    return map(pa.Table.from_batches, together(batches, PARTITION_ROWS, PARTITION_BYTES))


def cut(table: pa.Table, schema: pa.Schema, slots: int) -> list[Partition]:
    """Slices of `table`, so many rows each that all slots have work, within the limits."""
    if not table.num_rows:
        return []
    width = max(table.nbytes // table.num_rows, 1)
    fair = max(-(-table.num_rows // slots), LEAST_ROWS)
    most = max(min(fair, PARTITION_ROWS, PARTITION_BYTES // width), 1)
    rounds = -(-table.num_rows // (most * slots))  # of as many each, or one slot works alone
    rows = most if rounds == 1 else -(-table.num_rows // (rounds * slots))
    starts = range(0, table.num_rows, rows)
    return [partial(_slice, table, schema, start, rows) for start in starts]


def _slice(table: pa.Table, schema: pa.Schema, start: int, rows: int) -> list[pa.RecordBatch]:
    return joined([conform(batch, schema) for batch in table.slice(start, rows).to_batches()])


def task_numbers(hashes: UInt64s, tasks: int) -> Int32s:
    """The task, of so many, that each row is dealt to by its hash. Equal texts have equal hashes:
    their rows meet in one task."""
    return (hashes % np.uint64(tasks)).astype(np.int32)


def once(make: Callable[[], list[Partition]]) -> Callable[[], list[Partition]]:
    """The same, made when it is first asked for."""
    made: list[list[Partition]] = []

    def get() -> list[Partition]:
        if not made:
            made.append(make())
        return made[0]

    return get
