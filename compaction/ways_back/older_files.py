"""Older files: whether the data files of an older version are still there.

Whoever goes back to a version, or keeps it by a savepoint, looks first: Hudi's own cleaner knows
nothing of our versions, and deletes what is older than it retains. Files that the newest version
names as well are passed over, for without them the table is damaged whatever is done. Of that
version eight bytes a file are in memory, of the older one some files at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from metatable.data.file_groups.slices import DataFile
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.partitions.files import FilesPartition, files_there
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.arrays import Int64s, UInt64s
from metatable.storage.errors import CorruptError
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import which_are_among
from metatable.storage.portions import in_portions
from metatable.storage.store import TOGETHER

__all__ = ["check_files"]


def check_files(
    snapshot: Snapshot,
    older: Manifest,
    what: str,
    made: Sequence[DataFile] = (),
    passed: Collection[str] = (),
) -> None:
    """Whether `older` has its data files, those apart that this newest version names too. `what`
    the error says, `made` are needed besides, paths in `passed` are not. Raises CorruptError, and
    StaleError where that version is not kept any more."""
    name = FilesPartition.name
    if snapshot.manifest.pages.get(name) == older.pages.get(name) and not made:
        return
    held = Snapshot(snapshot.store, older)
    differ = _differing(snapshot, held, made)
    with held.reading():
        _check_sizes(held, (one for one in differ if one[0] not in passed), what)


def _check_sizes(older: Snapshot, needed: Iterator[tuple[str, int]], what: str) -> None:
    store = older.store
    for some in in_portions(needed, lambda _: 1, TOGETHER):
        sizes = store.together([partial(store.size, path) for path, _ in some])
        for (path, size), found in zip(some, sizes, strict=True):
            if found != size:
                raise CorruptError(
                    what,
                    path=path,
                    version=older.version,
                    expected=f"{size} bytes",
                    found=found,
                )


def _differing(
    newest: Snapshot, older: Snapshot, made: Sequence[DataFile]
) -> Iterator[tuple[str, int]]:
    """(path, bytes) of the files of `older`, and of those `made`, that the newest does not name."""
    named = _hashes(newest)
    for paths, sizes in files_there(older):
        yield from _others(paths, sizes, named)
    more = pa.array([one.path for one in made], pa.string())
    yield from _others(more, np.array([one.size_bytes for one in made], np.int64), named)


def _others(paths: pa.Array, sizes: Int64s, named: UInt64s) -> Iterator[tuple[str, int]]:
    others = ~which_are_among(xxh64(paths, 0), named)
    return zip(paths.filter(pa.array(others)).to_pylist(), sizes[others].tolist(), strict=True)


def _hashes(version: Snapshot) -> UInt64s:
    """Of the paths of its data files, ascending; of none where its index is damaged, which to go
    back is the way out of."""
    try:
        held = [xxh64(paths, 0) for paths, _ in files_there(version)]
    except CorruptError:
        held = []
    return np.sort(np.concatenate([np.zeros(0, np.uint64), *held]))
