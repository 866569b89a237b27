"""`hbase`: record keys in a table of HBase, or in a file of SQLite.

One lookup per key, in a store that everybody reaches; nothing is read of the data files, and the
metadata table holds only which commits are believed. What is stored where, and what is believed:
`metadata/partitions/outside.py`.

Any version that is kept is answered. A version that was undone is refused, and so is one that is
not kept any more, also where that happens while it is asked: `clean` drops cells that no kept
version needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.index.protocol import register
from metatable.index.record import KeyedIndex
from metatable.metadata.partitions.outside import DELETED, OutsidePartition, client_for, seal_key
from metatable.metadata.partitions.record_index import index_keys
from metatable.metadata.view import Located, TableView
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.errors import CorruptError

__all__ = ["HBaseIndex", "believed", "live_entries"]


class HBaseIndex(KeyedIndex):
    """`index="hbase"`: an entry a key, in a store outside of the table."""

    name = "hbase"
    partition = OutsidePartition

    @staticmethod
    def locate(view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Located:
        """Each key is asked for once, and beside them the seal of the last commit. Raises
        CorruptError, and StaleError where the version is not kept any more."""
        coded, rows, values = _asked(view, keys, partition_paths)
        groups, group = _decoded(values)
        of_key = np.full(len(coded.dictionary), -1, np.int64)
        of_key[rows] = group
        return Located(groups, of_key[coded.indices.to_numpy()])

    def holds(self, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
        """Also a key that was inserted and deleted again: the cell that says so may have a greater
        name than that of whoever asks, and hide what he has put."""
        coded, rows, _ = _asked(view, keys, partition_paths)
        is_told = np.zeros(len(coded.dictionary), bool)
        is_told[rows] = True
        return np.asarray(is_told[coded.indices.to_numpy()])


def _asked(
    view: TableView, keys: pa.Array, partition_paths: pa.Array
) -> tuple[pa.DictionaryArray, Int64s, pa.Array]:
    """(stored keys of these record keys; numbers of those of the distinct ones that have a cell
    which counts at this version; the values of the cells). Raises CorruptError."""
    coded = index_keys(view.options, keys, partition_paths).cast(pa.binary()).dictionary_encode()
    latest = view.latest_commit()
    if latest is None or not len(coded):
        return coded, np.zeros(0, np.int64), pa.array([], pa.binary())
    seal = pa.array([seal_key(latest)], pa.binary())
    asked = pa.concat_arrays([coded.dictionary, seal])
    cells = client_for(view.options).get_many(asked, view.store.counters)
    view.check_kept()
    _check_seal(view, cells, seal)
    return coded, *believed(view, cells, coded.dictionary)


def believed(view: TableView, cells: pa.Table, keys: pa.Array) -> tuple[Int64s, pa.Array]:
    """(numbers of those of these distinct keys that have a cell which counts at this version; the
    values of the cells, binary). Of several cells of a key the one of the last commit counts."""
    names = cells["name"].combine_chunks().dictionary_encode()
    row = pc.index_in(cells["key"].combine_chunks(), value_set=keys)
    counts = view.published(names.dictionary)[names.indices.to_numpy()]
    counts &= row.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(counts)
    row = row.take(pa.array(places)).to_numpy()
    order = pc.rank(names.dictionary, tiebreaker="dense").to_numpy()
    rank = order[names.indices.to_numpy()[places]]
    by_row = np.lexsort((rank, row))
    last = np.append(np.diff(row[by_row]) != 0, True)[: len(by_row)]
    chosen = by_row[last]
    return row[chosen], cells["value"].combine_chunks().take(pa.array(places[chosen]))


def live_entries(view: TableView) -> Iterator[pa.RecordBatch]:
    """(key, value) of all keys that are there at this version, by key: reads the whole store."""
    for batch in client_for(view.options).scan(view.store.counters):
        keys = batch["key"].unique()
        rows, values = believed(view, pa.Table.from_batches([batch]), keys)
        live = pc.not_equal(values, DELETED)
        columns = [keys.take(pa.array(rows)).filter(live), values.filter(live)]
        yield pa.RecordBatch.from_arrays(columns, names=["key", "value"])


def _decoded(values: pa.Array) -> tuple[tuple[tuple[str, str], ...], Int64s]:
    """The file groups (partition path, file id) that cells name, and of each cell which one it
    names; -1: deleted. Raises CorruptError."""
    coded = values.dictionary_encode()
    groups: list[tuple[str, str]] = []
    place = np.full(len(coded.dictionary), -1, np.int64)
    for number, raw in enumerate(coded.dictionary.to_pylist()):
        if raw == DELETED:
            continue
        try:
            path, file_id = map(str, json.loads(raw))
            _ = path.encode(), file_id.encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptError("an entry in HBase is damaged", found=(raw or b"")[:100]) from error
        place[number] = len(groups)
        groups.append((path, file_id))
    return tuple(groups), place[coded.indices.to_numpy()]


def _check_seal(view: TableView, cells: pa.Table, seal: pa.Array) -> None:
    """Raises CorruptError where the last commit that put entries has never been in this store."""
    if pc.any(pc.equal(cells["key"], seal[0])).as_py():
        return
    raise CorruptError(
        "the table of HBase lacks the last commit: it was emptied, restored, or is another one."
        " Restore it, mend it (repair), or take another index (adopt)",
        path=view.store.uri,
        table=view.options.hbase_table,
        address=view.options.hbase_address,
        expected=seal[0].as_py()[4:].decode(errors="replace"),
    )


register(HBaseIndex.name, HBaseIndex)
