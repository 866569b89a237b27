"""`bucket`: where a key is follows from its hash, by one of three engines.

simple               N buckets a table partition, for ever (`simple.py`)
consistent_hashing   ranges of hashes, which may be split and merged (`ring.py`)
extendible_hashing   ranges that are told by the first bits of a hash (`directory.py`)
"""

from __future__ import annotations

from metatable.data.config.options import BUCKET, Options
from metatable.index.bucket.rings import RingBuckets
from metatable.index.bucket.simple import SimpleBuckets
from metatable.index.placed import PlacedIndex
from metatable.index.placement import Placement
from metatable.index.protocol import Index, register
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.rings import RingsPartition
from metatable.metadata.view import TableView

__all__ = ["BucketIndex", "bucket_index"]


class BucketIndex(PlacedIndex):
    """`index="bucket"`: a key's file group follows from its hash."""

    name = BUCKET

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.resizes:
            self.partitions: tuple[MetadataPartition, ...] = (RingsPartition(options),)

    def placement(self, view: TableView) -> Placement:
        if self.options.resizes:
            return RingBuckets(view)
        return SimpleBuckets(self.options.key, self.options.bucket_count)


def bucket_index(index: Index) -> BucketIndex | None:
    """The index itself where the file groups of a table are buckets; None for any other."""
    return index if isinstance(index, BucketIndex) else None


register(BucketIndex.name, BucketIndex)
