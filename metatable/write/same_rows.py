"""Same rows: what tasks were given to write is what the plan was made for.

A cluster keeps rows with the machines that have worked them out. Those of a machine that is lost
are worked out again, and may come out otherwise: their source has changed meanwhile, keys are made
by chance, a limit without an order takes other rows. The plan knows nothing of the file groups that
hold these keys, so they would be put in once more, beside what is stored.

So where rows are elsewhere hashes of their keys are added up by table partition, in whatever order
they come, once for the plan and once by the tasks that write; nothing is published where the sums
differ. Before that, keys are looked up: of rows as they were then, and a key that comes afterwards
would look as if it was nowhere. So the sum over all rows is taken when they are first gone through
for keys that repeat, and held against what the plan is made for; and once more behind the last that
asks for the rows, where keys that do not come back leave the index. A file that another attempt has
stored is held against its keys, too. Only keys decide what is planned: of two values of a row
either will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.hoodie.operations import DELETE
from metatable.data.keys.key_texts import KEY, PATH
from metatable.storage.arrays import Int64s, UInt64s
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import has_repeats
from metatable.write.receipts import FileReceipt

__all__ = [
    "IDENTITY_SUM",
    "add_identities",
    "hash_sum",
    "identity_hashes",
    "identity_sum",
    "key_sum",
    "key_sums",
    "other_rows",
    "refuse_other_keys",
    "refuse_other_rows",
    "sum_of",
]

SUMS = 1 << 64
"""Sums of hashes are taken by this; they travel as int64."""

IDENTITY_SUM = pa.schema([pa.field("sum", pa.int64())])

_ODD = np.uint64(0x9E3779B97F4A7C15)

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
    return hash_sum(hashes)


def hash_sum(hashes: UInt64s) -> int:
    """Their sum, as int64."""
    return int(hashes.sum(dtype=np.uint64).astype(np.int64))


def sum_of(sums: pa.ChunkedArray) -> int:
    """The sum of such sums."""
    return int(sum(sums.to_pylist())) % SUMS


def identity_hashes(identity: Sequence[str], rows: pa.RecordBatch | pa.Table) -> UInt64s:
    """A hash of what tells rows apart: of their keys, in partition scope with their partitions."""
    hashes = xxh64(rows[KEY], 0)
    return hashes * _ODD + xxh64(rows[PATH], 0) if PATH in identity else hashes


def identity_sum(identity: Sequence[str], profile: pa.Table) -> int:
    """The sum of `identity_hashes` of all rows of a profile."""
    keys = profile["key_sum"].to_pylist()
    if PATH not in identity:
        return int(sum(keys)) % SUMS
    paths = xxh64(profile["partition_path"], 0).tolist()
    told = zip(keys, paths, profile["rows"].to_pylist(), strict=True)
    return int(sum(key * int(_ODD) + path * rows for key, path, rows in told)) % SUMS


def add_identities(
    identity: Sequence[str], batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the sum of `identity_hashes` of its rows, in `IDENTITY_SUM`."""
    total = sum(hash_sum(identity_hashes(identity, batch)) for batch in batches) % SUMS
    told = np.array([total], np.uint64).view(np.int64)
    yield pa.RecordBatch.from_arrays([pa.array(told)], schema=IDENTITY_SUM)


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


def other_rows(found: Sequence[str] = ()) -> UsageError:
    """What is told where rows were not the same twice: of which table partitions, keys or files, if
    that is known."""
    return UsageError(
        "rows came out otherwise when they were worked out again",
        expected="rows that are the same each time: of files, or of DataFrame.checkpoint()",
        **({"found": list(found)} if found else {}),
    )
