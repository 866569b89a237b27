"""Rings against groups: what the entries of `hashing_metadata` say wrongly.

Each can be read, and is its partition's; each names a live group of it at least, where there are
any (buckets without rows have none, and may all be merged); and every live group is named by its
partition's ring, for no key leads to one that is not. Whether rows are in the right one, the check
of their slice says.

A ring cannot be made anew from the data: where the nodes of empty buckets end, and which ids were
taken away from Hudi's readers, no file says. So nothing of this is mended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from metatable.data.file_groups.slices import FileSlice
from metatable.index.bucket.rings import RINGS_AT_ONCE, rings_of
from metatable.metadata.partitions.rings import RingsPartition, partition_path
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import CorruptError
from metatable.storage.portions import in_portions

__all__ = ["ring_faults"]


def ring_faults(view: Snapshot, live: Sequence[FileSlice]) -> Iterator[tuple[str, str]]:
    """(where, what is wrong) of a table whose buckets are resized."""
    groups: dict[str, set[str]] = {}
    for one in live:
        groups.setdefault(one.partition_path, set()).add(one.file_id)
    try:
        for batch in view.scan(RingsPartition(view.options)):
            for key in batch["key"].to_pylist():
                groups.setdefault(partition_path(key), set())
    except CorruptError as error:
        yield RingsPartition.name, str(error)
        return
    for some in in_portions(sorted(groups), lambda _: 0, 0, RINGS_AT_ONCE):
        with suppress(CorruptError):  # whose it is the ring tells by itself
            rings_of(view, some)
        for path in some:
            for what in _faults(view, path, groups[path]):
                yield path or ".", what


def _faults(view: Snapshot, path: str, groups: set[str]) -> Iterator[str]:
    try:
        [ring] = rings_of(view, [path])
    except CorruptError as error:
        yield str(error)
        return
    ids = set(ring.file_ids.to_pylist())
    if groups and ring.metadata.seq_no and not ids & groups:
        yield "a ring without a group: none of its buckets has a file"
    for file_id in sorted(groups - ids):
        yield f"its ring does not name the live group {file_id}"
