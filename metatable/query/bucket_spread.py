"""How the keys of a batch spread over the buckets of their partitions: for `explain`.

Which buckets they hit, how large those are, and which one gets most: told by hashes, `files` and
rings. No data file is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.keys.key_texts import texts_of
from metatable.engine.adding_up import Sums, folded
from metatable.engine.batches import gathered
from metatable.index.bucket.index import BucketIndex
from metatable.index.bucket.rings import each_ring, rings_of
from metatable.index.locations import LOCATION_COLUMN
from metatable.index.placement import Placement
from metatable.index.presence import BATCH_KEYS
from metatable.metadata.hfiles.keys import partition_text
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import TableView
from metatable.results import BucketSpread
from metatable.storage.counters import Counters

__all__ = ["PLACED", "bucket_spread", "count_placed"]

PLACED = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("keys", pa.int64()),
        pa.field("found", pa.int64()),
    ]
)
"""A bucket, the keys that it is the place of, and those of them that have a location."""

_BUCKET = "partition_path", "file_id"


def count_placed(
    index: BucketIndex,
    view: TableView,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: tagged rows by their buckets, each of them once."""
    counted = partial(_counted, view, index.placement(view.counting(counters)))
    yield from folded(map(counted, gathered(batches, BATCH_KEYS)), _SUMS)


def _counted(view: TableView, placement: Placement, batch: pa.RecordBatch) -> pa.Table:
    """In `PLACED`, what some tagged rows tell."""
    keys, paths = texts_of(view.options, view.schema, batch)
    _, file_ids = placement.place(keys, paths)  # of a bucket index: one a row, in order
    found = batch[LOCATION_COLUMN].is_valid().cast(pa.int64())
    each = pa.repeat(pa.scalar(1, pa.int64()), len(batch))
    return _added(pa.table([paths, file_ids, each, found], schema=PLACED))


def _added(told: pa.Table) -> pa.Table:
    """In `PLACED`, each bucket once."""
    by = told.group_by(_BUCKET, use_threads=False)
    added = by.aggregate([("keys", "sum"), ("found", "sum")])
    return pa.table([added[name] for name in (*_BUCKET, "keys_sum", "found_sum")], schema=PLACED)


_SUMS = Sums(PLACED, _BUCKET, _added)


def bucket_spread(snapshot: Snapshot, counts: pa.Table) -> BucketSpread | None:
    """`counts`: in `PLACED`. None where there are no keys."""
    held = _added(counts).sort_by([("keys", "descending")])
    if not held.num_rows:
        return None
    paths, file_ids = held["partition_path"].to_pylist(), held["file_id"].to_pylist()
    slices = snapshot.current(paths, file_ids)
    fullest, mean = held["keys"][0].as_py(), pc.mean(held["keys"]).as_py()
    folders = [*dict.fromkeys(paths)]
    return BucketSpread(
        partitions=len(folders),
        buckets=_bucket_count(snapshot, folders),
        touched=held.num_rows,
        without_files=slices.count(None),
        bytes=sum(one.size_bytes for one in slices if one is not None),
        fullest_keys=fullest,
        skew=round(fullest / mean, 2),
        fullest=_named(snapshot, paths[0], file_ids[0]),
        fullest_bytes=slices[0].size_bytes if slices[0] is not None else None,
    )


def _bucket_count(snapshot: Snapshot, partition_paths: list[str]) -> int:
    if not snapshot.options.resizes:
        return snapshot.options.bucket_count * len(partition_paths)
    return sum(len(ring.nodes) for ring in each_ring(snapshot, partition_paths))


def _named(snapshot: Snapshot, partition_path: str, file_id: str) -> str:
    """A bucket, for people: its partition, and its range of hashes or its number."""
    if not snapshot.options.resizes:
        return f"{partition_text(partition_path)} bucket {int(file_id[:8])}"
    [ring] = rings_of(snapshot, [partition_path])
    number = ring.file_ids.to_pylist().index(file_id)
    after, upto = int(ring.values[number - 1]), int(ring.values[number])
    return f"{partition_text(partition_path)} hashes ({after}, {upto}]"
