"""Merge the HFiles of a range of places into one, in columns, bounded by a few blocks per file.

Inputs come newest first: of equal keys the newest entry stays. A file that covers more of them
is read for the entries of this range only, and stays listed for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.sorted_merge import merge_newest_first
from metatable.storage.store import Store

__all__ = ["merge_hfiles"]

STEPS_BYTES = 16 << 20
"""What is decoded of all inputs at a time; as much may be left of what was before."""

LEAST_STEP_BYTES = 512 << 10
"""However many inputs there are: less is not worth a request."""


def merge_hfiles(
    store: Store,
    partition: MetadataPartition,
    inputs: Sequence[HFileRef],
    lo: int,
    hi: int,
    owner: Owner,
    *,
    keep_tombstones: bool,
) -> HFileRef | None:
    """One new HFile with the entries that `inputs` (newest first) have in places [lo, hi).

    None where nothing is left. Without `keep_tombstones` the inputs must include the oldest
    file of the range, or a hidden entry would come back.
    """
    readers = [HFileReader.open(store, ref.path, ref.size_bytes) for ref in inputs]
    step = max(LEAST_STEP_BYTES, STEPS_BYTES // len(readers))
    streams = [
        _entries(partition, reader, max(lo, ref.lo), min(hi, ref.hi), step)
        for reader, ref in zip(readers, inputs, strict=True)
    ]
    batches = merge_newest_first(streams)
    return partition.rewrite(
        store, lo, hi, readers, batches, owner, keep_tombstones=keep_tombstones
    )


def _entries(
    partition: MetadataPartition, reader: HFileReader, lo: int, hi: int, step_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Where keys are in the order of places, only the blocks of these places are read."""
    bounds = partition.key_range(lo, hi)
    if bounds is not None:
        yield from reader.scan(*bounds, step_bytes=step_bytes)
        return
    for batch in reader.scan(step_bytes=step_bytes):
        yield partition.live(batch, lo, hi)
