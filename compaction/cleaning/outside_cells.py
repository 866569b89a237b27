"""Cells in a store outside that no kept version needs: dropped by `clean`, by one scan.

    lower     a key has a cell above it that every kept version believes
    deleted   every kept version believes that the key is deleted, and nothing is left below
    dead      of a commit or a service that no kept version believes, and none ever will: its
              instant is withdrawn; or it has no lease, and was not published before that was
              looked at

A deletion goes last, a clean later than what is below it: were it first, and the rest not done,
the key would be there again. Killed anywhere, the next clean goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.compaction.cleaning.kept_files import Kept
from metatable.index import create_index
from metatable.metadata.manifests.leases import leased, serving
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.outside import DELETED, SEAL, OutsidePartition, client_for
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.arrays import Bools
from metatable.storage.portions import in_order_far

__all__ = ["drop_cells"]

_INSTANT = re.compile(rb"(\d{14}|\d{17})-")
"""What names of commits begin with; those of services do not (`commit_name`)."""


def drop_cells(kept: Kept) -> int:
    """How many were dropped; none of a table that has no such cells. `kept`: of a version that has
    been published. Raises StoreError where the store does not answer."""
    options, counters = kept.newest.options, kept.store.counters
    if not any(isinstance(one, OutsidePartition) for one in create_index(options).partitions):
        return 0
    client, judge, dropped = client_for(options), _Judge(kept), 0
    for batch in client.scan(counters):
        gone = judge.gone(batch)
        if gone.any():
            chosen = batch.filter(pa.array(gone))
            client.delete_many(chosen["key"], chosen["name"], counters)
            dropped += len(chosen)
    counters.add("kv.cells_dropped", dropped)
    return dropped


class _Judge:
    """Says which cells of whole rows nobody needs."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        roots = [kept.roots[0], *kept.pinned, kept.newest]
        self._views = [Snapshot(kept.store, root) for root in roots]
        self._dead: dict[bytes, bool] = {}

    def gone(self, cells: pa.RecordBatch) -> Bools:
        """For each of these cells, all of some rows, whether it may be dropped."""
        names, keys = (cells[word].dictionary_encode() for word in ("name", "key"))
        name, row = names.indices.to_numpy(), keys.indices.to_numpy()
        believed = [view.published(names.dictionary) for view in self._views]
        settled = np.logical_and.reduce(believed)[name]
        doubtful = np.flatnonzero(~np.logical_or.reduce(believed))
        dead = np.zeros(len(names.dictionary), bool)
        dead[doubtful] = [*self._are_dead(names.dictionary.take(pa.array(doubtful)).to_pylist())]
        rank = pc.rank(names.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)[name]
        top = np.zeros(len(keys.dictionary), np.int64)
        np.maximum.at(top, row[settled], rank[settled])
        lower = rank < top[row]
        alone = np.bincount(row[lower], minlength=len(top))[row] == 0
        deleted = settled & (rank == top[row]) & alone & _true(pc.equal(cells["value"], DELETED))
        deleted &= ~_true(pc.starts_with(cells["key"], SEAL))
        return np.asarray(lower | dead[name] | deleted)

    def _are_dead(self, names: Sequence[bytes]) -> Iterator[bool]:
        """For names that the versions do not believe, whether they are dead. What the scan has read
        was put before this looks at leases, and what has no lease any more was published before
        this looks at that."""
        unknown = [one for one in names if one not in self._dead]
        if unknown:
            store, asked = self._kept.store, pa.array(unknown)
            writers = {one.encode() for one in leased(store)}
            services = {one.encode() for one in serving(store)}
            newest = load_newest(store) or self._kept.newest
            published = Snapshot(store, newest).published(asked)
            if not all(_INSTANT.match(one) for one in unknown):
                published = published | self._between(asked)
            withdrawn = {one.encode() for one in newest.withdrawn}
            needed = {one.encode() for one in self._kept.instants}
            for name, is_published in zip(unknown, published, strict=True):
                told = _INSTANT.match(name)
                instant, nonce = told[1] if told else b"", name.rpartition(b"-")[2]
                lost = instant not in writers | needed if instant else nonce not in services
                self._dead[name] = not is_published and (lost or instant in withdrawn)
        return (self._dead[one] for one in names)

    def _between(self, names: pa.Array) -> Bools:
        """Which are of services that kept versions believe, between those that are asked always:
        an index that was made, given up, and made again."""
        store, none = self._kept.store, np.zeros(len(names), bool)
        made = [one for one in self._kept.whole if not one.instant or one.version == 1]
        told = in_order_far(store, lambda one: Snapshot(store, one).published(names), made)
        return np.asarray(np.logical_or.reduce([none, *told]))


def _true(mask: pa.Array) -> Bools:
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)
