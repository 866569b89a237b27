"""Paths of many files at once: their folders, their names, and whether these are of logs.

Columns of paths (strings, relative to the table, without nulls) are cut as bytes, some thousand at
a time, and no path becomes an object.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Bools, Int32s, Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import byte_layout, from_gaps, size_of_all
from metatable.storage.ordering import sort_order
from metatable.storage.quick_hash import quick_hash

__all__ = [
    "begin_as_logs",
    "folders_of",
    "name_hashes",
    "name_starts",
    "names_of",
    "which_are_logs",
]

STEP_PATHS = 16 << 10
"""Paths that are cut at a time: what comes of them stays near the processor."""


def names_of(paths: pa.Array) -> pa.Array:
    """The bare name of each file's path."""
    (offsets, data), names_at = byte_layout(paths), name_starts(paths)
    return from_gaps(data, names_at, offsets[1:] - names_at).cast(pa.string())


def name_hashes(paths: pa.Array) -> UInt64s:
    """`quick_hash` of each bare name."""
    (offsets, data), names_at = byte_layout(paths), name_starts(paths)
    return quick_hash(data, names_at, offsets[1:] - names_at)


def which_are_logs(paths: pa.Array) -> Bools:
    """Whether each path is that of a log."""
    return begin_as_logs(paths, name_starts(paths))


def begin_as_logs(paths: pa.Array, names_at: Int64s) -> Bools:
    """Whether each path is that of a log, whose name begins with a point, as `is_log` tells of one.
    `names_at`: where the names begin in the bytes of the column."""
    offsets, data = byte_layout(paths)
    if not len(paths) or (names_at == offsets[1:]).any():  # a name without a byte
        return np.array(pc.starts_with(names_of(paths), ".").to_numpy(zero_copy_only=False))
    return np.asarray(data[names_at] == ord("."))


def name_starts(paths: pa.Array) -> Int64s:
    """Where the name of each begins in the bytes of the column: behind the last slash."""
    found = np.empty(len(paths), np.int64)
    offsets, data = byte_layout(paths)
    for at in range(0, len(paths), STEP_PATHS):
        ends = offsets[at : at + STEP_PATHS + 1].astype(np.int64)
        size = size_of_all(ends)
        place = _place_of_names(data[ends[0] : ends[-1]].reshape(-1, size)) if size > 0 else -1
        if place >= 0:
            found[at : at + STEP_PATHS] = ends[:-1] + place
            continue
        slashes = np.flatnonzero(data[ends[0] : ends[-1]] == ord("/")) + ends[0]
        behind = np.append(0, slashes + 1)[np.searchsorted(slashes, ends[1:])]
        np.maximum(behind, ends[:-1], out=found[at : at + STEP_PATHS])
    return found


def _place_of_names(paths: UInt8s) -> int:
    """Where the names begin in a table of paths of one size; -1: not at one place."""
    place = paths[0].tobytes().rfind(b"/") + 1
    if place and (paths[:, place - 1] != ord("/")).any():
        return -1
    return -1 if (paths[:, place:] == ord("/")).any() else place


def folders_of(paths: pa.Array, names_at: Int64s) -> tuple[pa.Array, Int32s]:
    """The distinct partition paths in byte order, "" for that of an unpartitioned table, and the
    place there of each path's."""
    offsets, data = byte_layout(paths)
    parts = [pa.array([], pa.string()).dictionary_encode()]
    for at in range(0, len(paths), STEP_PATHS):
        starts = offsets[:-1][at : at + STEP_PATHS].astype(np.int64)
        lengths = np.maximum(names_at[at : at + STEP_PATHS] - 1 - starts, 0)
        parts.append(from_gaps(data, starts, lengths).cast(pa.string()).dictionary_encode())
    encoded = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    order = sort_order(encoded.dictionary)
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    return encoded.dictionary.take(pa.array(order)), places[encoded.indices.to_numpy()]
