"""The rings of table partitions at a version, and to which of their buckets rows go.

A ring is a matter of the version, not of what came after another one; it is looked up once per
process and kept. Of a partition that nobody has resized nothing is stored, but that nothing is has
to be looked up: the entries of `hashing_metadata` are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.data.config.options import EXTENDIBLE, Options
from metatable.data.file_groups.hashing_metadata import FIRST_INSTANT, HashingMetadata
from metatable.index.bucket.directory import Directory
from metatable.index.bucket.ring import Ring, hashes_of
from metatable.metadata.view import TableView
from metatable.storage.arrays import Int64s
from metatable.storage.cache import cached, shared

__all__ = ["RINGS_AT_ONCE", "RingBuckets", "each_ring", "put_first_ring", "ring_kind", "rings_of"]

NODE_BYTES = 400
"""What a node costs in memory, about."""

RINGS_AT_ONCE = 64
"""So many are looked up together where all of a table's are gone through."""


def ring_kind(options: Options) -> type[Ring]:
    """What the rings of a table with these options are."""
    return Directory if options.bucket_engine == EXTENDIBLE else Ring


def rings_of(view: TableView, partition_paths: Sequence[str]) -> list[Ring]:
    """The ring of each table partition at this version; those that are not in memory by one lookup.

    Raises CorruptError.
    """
    kept: dict[str, Any] = {
        path: shared.get(("ring", view.identity, path)) for path in partition_paths
    }
    missing = [path for path, ring in kept.items() if ring is None]
    for path, stored in zip(missing, view.rings(missing) if missing else (), strict=True):
        kept[path] = _ring(view, path, stored)
    return [kept[path] for path in partition_paths]


def each_ring(view: TableView, partition_paths: Sequence[str]) -> Iterator[Ring]:
    """The same of very many table partitions, of which a few are held. Raises CorruptError."""
    for start in range(0, len(partition_paths), RINGS_AT_ONCE):
        yield from rings_of(view, partition_paths[start : start + RINGS_AT_ONCE])


def put_first_ring(view: TableView, partition_path: str) -> None:
    """Put a partition's first ring where Hudi looks for it, before its first files; unless the
    partition was resized, or the ring was put, before."""
    [ring] = rings_of(view, [partition_path])
    if ring.metadata.instant == FIRST_INSTANT:
        view.store.create(ring.metadata.path, ring.metadata.encode())


def _ring(view: TableView, path: str, stored: HashingMetadata | None) -> Ring:
    """Kept for this version, or, where nothing is stored, for all: its ids are as many MD5 sums."""
    kind, count = ring_kind(view.options), view.options.bucket_count
    if stored is None:
        key = "first ring", kind.engine, count, path
        first = cached(key, lambda: kind.first(path, count), _size_bytes)
        return shared.offer(("ring", view.identity, path), first, NODE_BYTES)
    return cached(("ring", view.identity, path), lambda: kind.of(stored), _size_bytes)


def _size_bytes(ring: Ring) -> int:
    return NODE_BYTES * len(ring.nodes)


@dataclass(frozen=True, slots=True)
class RingBuckets:
    """The placement: every row goes to its key's bucket, whether or not it is there yet."""

    view: TableView

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> tuple[Int64s, pa.Array]:
        """As of `Placement`; rings are asked once for all rows of a partition."""
        folders = partition_paths.dictionary_encode()
        hashes = hashes_of(keys, self.view.options.key)
        codes = folders.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        cuts = np.searchsorted(codes[order], np.arange(1, len(folders.dictionary)))
        rings = rings_of(self.view, folders.dictionary.to_pylist())
        places = np.empty(len(keys), np.int64)
        begin = 0
        for ring, rows in zip(rings, np.split(order, cuts), strict=False):
            places[rows] = begin + ring.place(hashes[rows])
            begin += len(ring.nodes)
        named = pa.concat_arrays([pa.array([], pa.string()), *(one.file_ids for one in rings)])
        return np.arange(len(keys)), named.take(pa.array(places))
