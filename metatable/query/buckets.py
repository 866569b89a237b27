"""Lists the buckets of a table that has rings of them, one row per bucket. Only metadata is read:
rings, `files` and `column_stats`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.index.bucket.rings import each_ring
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import UsageError

__all__ = ["BUCKETS", "bucket_facts", "buckets_of"]

BUCKETS = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("after", pa.int64()),
        pa.field("upto", pa.int64()),
        pa.field("file_id", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("resized", pa.int64()),
    ]
)
"""A bucket holds the hashes in (after, upto], around the end where `after` is not below `upto`.
`bytes` and `rows` are null where it has no file yet, `rows` also where logs would have to be merged
to tell them; `resized`: how often its partition was."""


def buckets_of(snapshot: Snapshot, partition_paths: Collection[str] | None = None) -> pa.Table:
    """The buckets of partitions that have files, as `BUCKETS`. Raises UsageError for a table
    without rings."""
    if not snapshot.options.resizes:
        raise UsageError("the buckets of this table have no rings", index=snapshot.options.index)
    files = snapshot.slices()
    file_ids = files.file_ids()
    counts = snapshot.row_counts(files)
    sizes, rows = pa.array(files.slice_sizes), pa.array(counts, mask=counts < 0)
    asked = {
        path: ordinals
        for path, ordinals in files.by_folder()
        if partition_paths is None or path in partition_paths
    }
    parts = []
    for (path, ordinals), ring in zip(asked.items(), each_ring(snapshot, [*asked]), strict=True):
        here = pa.array(ordinals)
        places = pc.index_in(ring.file_ids, value_set=file_ids.take(here))
        count = len(ring.nodes)
        columns = [
            pa.repeat(path, count),
            pa.array(np.roll(ring.values, 1)),
            pa.array(ring.values),
            ring.file_ids,
            sizes.take(here).take(places),
            rows.take(here).take(places),
            pa.repeat(pa.scalar(ring.metadata.seq_no, pa.int64()), count),
        ]
        parts.append(pa.table(columns, schema=BUCKETS))
    return pa.concat_tables([BUCKETS.empty_table(), *parts])


def bucket_facts(snapshot: Snapshot) -> dict[str, float]:
    """The buckets of a table with rings in a few numbers, for its description. `skew`: how many
    times the mean the largest one is."""
    held = buckets_of(snapshot)
    resized = held.filter(pc.greater(held["resized"], 0))["partition_path"]
    largest, mean = pc.max(held["bytes"]).as_py() or 0, pc.mean(held["bytes"]).as_py() or 1.0
    return {
        "buckets": held.num_rows,
        "with_files": held.num_rows - held["bytes"].null_count,
        "resized_partitions": len(pc.unique(resized)),
        "largest_bytes": largest,
        "skew": round(largest / mean, 2),
    }
