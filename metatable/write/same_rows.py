"""Same rows: what tasks were given to write is what the plan was made for.

A cluster keeps rows with the machines that have worked them out. Those of a machine that is lost
are worked out again, and may come out otherwise: their source has changed meanwhile, keys are made
by chance, a limit without an order takes other rows. The plan knows nothing of the file groups that
hold these keys, so they would be put in once more, beside what is stored.

So where rows are elsewhere hashes of their keys are added up by table partition, in whatever order
they come, once for the plan and once by the tasks that write; nothing is published where the sums
differ. A file that another attempt has stored is held against its keys, too. Only keys decide what
is planned: of two values of a row either will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.operations import DELETE
from metatable.storage.arrays import Int64s
from metatable.storage.errors import UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import has_repeats
from metatable.write.receipts import FileReceipt

__all__ = ["key_sum", "key_sums", "other_rows", "refuse_other_keys", "refuse_other_rows"]

SUMS = 1 << 64
"""Sums of hashes are taken by this; they travel as int64."""

NAMED = 3
"""The most table partitions, or keys, that an error names."""


def key_sum(keys: pa.Array, *, once: bool = False) -> int:
    """The sum of the hashes of these keys (texts), as int64. `once`: raises UsageError where one is
    there twice, for rows were looked through for that before they were planned."""
    if not len(keys):
        return 0
    hashes = xxh64(keys, 0)
    if once and has_repeats(hashes) and pc.count_distinct(keys).as_py() < len(keys):
        counts = pc.value_counts(keys)
        twice = pc.greater(counts.field("counts"), 1)
        raise other_rows(counts.field("values").filter(twice)[:NAMED].to_pylist())
    return int(hashes.sum(dtype=np.uint64).astype(np.int64))


def key_sums(keys: pa.Array, row_of: Int64s, kinds: Sequence[Int64s]) -> pa.Array:
    """`key_sum` of each of these kinds of rows, which are places in `row_of`."""
    hashes = xxh64(keys, 0)[row_of]
    totals = np.array([hashes[here].sum(dtype=np.uint64) for here in kinds], np.uint64)
    return pa.array(totals.view(np.int64))


def refuse_other_rows(profile: pa.Table, receipts: Sequence[FileReceipt], operation: str) -> None:
    """Raises UsageError where tasks have written other rows than were counted."""
    path = "located_path" if operation == DELETE else "partition_path"
    planned, written = Counter[str](), Counter[str]()
    for name, total in zip(profile[path].to_pylist(), profile["key_sum"].to_pylist(), strict=True):
        planned[name] += total
    for one in receipts:
        written[one.stat.partition_path] += one.key_sum
    names = sorted({*planned, *written})
    other = [name for name in names if (planned[name] - written[name]) % SUMS]
    if other:
        raise other_rows(other[:NAMED])


def refuse_other_keys(path: str, rows: int | None, ours: pa.Array, stored: pa.Array) -> None:
    """Raises UsageError where a file that another attempt has stored does not hold our keys (texts;
    none where nobody asked for them), or as many rows."""
    if len(stored) != rows or (len(ours) and key_sum(ours) != key_sum(stored)):
        raise other_rows([path])


def other_rows(found: Sequence[str]) -> UsageError:
    """What is told where rows were not the same twice: of which table partitions, keys or files."""
    return UsageError(
        "rows came out otherwise when they were worked out again",
        expected="rows that are the same each time: of files, or of DataFrame.checkpoint()",
        found=list(found),
    )
