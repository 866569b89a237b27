"""Many matches: the right side of a join, cut up by the partitions of its left side.

Matches that do not fit into memory are not held at once. Rows and matches first meet by ranges of
their hashes, of which the rows show nothing else: that tells which matches each partition of rows
may need. These go to it, and are matched there, by value.

    asked      of each row its hash, and the number of its partition        8 + 4 bytes
    offered    the matches, with the range of their hash
    told       of one range: the matches, with the partitions that ask for them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from metatable.engine.batches import Partition
from metatable.engine.matching import hashes_of
from metatable.engine.partitions import task_numbers

__all__ = ["ASKED", "ASKING", "RANGE", "asked", "offered", "offering", "telling", "told"]

RANGE = "_metatable_range"
HASH = "_metatable_hash"
ASKING = "_metatable_asking"

ASKED = pa.schema([(HASH, pa.uint64()), (ASKING, pa.int32()), (RANGE, pa.int32())])


def offering(matches: pa.Schema) -> pa.Schema:
    """Columns of `offered`."""
    return matches.append(pa.field(RANGE, pa.int32()))


def telling(matches: pa.Schema) -> pa.Schema:
    """Columns of `told`."""
    return matches.append(pa.field(ASKING, pa.list_(pa.int32())))


def asked(
    source: Partition, number: int, on: Sequence[str], ranges: int
) -> Iterator[pa.RecordBatch]:
    """The hashes that the rows of partition `number` have in the columns `on`, as `ASKED`."""
    for batch in source():
        hashes = np.unique(hashes_of(batch, on))
        numbers = np.full(len(hashes), number, np.int32)
        columns = [pa.array(hashes), pa.array(numbers), pa.array(task_numbers(hashes, ranges))]
        yield pa.RecordBatch.from_arrays(columns, schema=ASKED)


def offered(source: Partition, on: Sequence[str], ranges: int) -> Iterator[pa.RecordBatch]:
    """Matches with the range of their hash beside them."""
    for batch in source():
        yield batch.append_column(RANGE, pa.array(task_numbers(hashes_of(batch, on), ranges)))


def told(asking: Partition, offered: Partition, on: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Matches of one range with the list of partitions that ask for their hash."""
    wanted = pa.Table.from_batches(asking(), ASKED)
    hashes, numbers = (wanted[name].to_numpy() for name in (HASH, ASKING))
    order = np.lexsort((numbers, hashes))
    hashes, numbers = hashes[order], numbers[order]
    again = np.zeros(len(hashes), dtype=bool)
    again[1:] = (hashes[1:] == hashes[:-1]) & (numbers[1:] == numbers[:-1])
    hashes, numbers = hashes[~again], numbers[~again]
    for batch in offered():
        ours = hashes_of(batch, on)
        first = np.searchsorted(hashes, ours, "left")
        count = np.searchsorted(hashes, ours, "right") - first
        ends = np.cumsum(count)
        steps = np.arange(count.sum()) - np.repeat(ends - count, count)
        lists = pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], ends]), pa.int32()),
            pa.array(numbers[np.repeat(first, count) + steps], pa.int32()),
        )
        yield batch.drop_columns([RANGE]).append_column(ASKING, lists)
