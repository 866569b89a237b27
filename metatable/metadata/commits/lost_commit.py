"""Lost commit: makes the file of a published commit, or of a savepoint, anew, if it was lost before
it came onto Hudi's timeline.

Without it nobody could write to the table again. What Hudi's readers need of it is in the index
entries of the version that published it: the files, their sizes and rows; and, in the version
before, which slices they replaced and which file groups are gone. How many rows were new nobody
reads: that is left at zero. Of a savepoint all is in the pin and in the version that it keeps, but
for the random bytes between the blocks of an Avro file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat, columns_beside
from metatable.data.hoodie.savepoint_metadata import savepoint_metadata
from metatable.data.hoodie.timeline import PLANNED, REPLACING
from metatable.data.rows.row_counts import RowCounts
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_version
from metatable.metadata.partitions.column_stats import rows_in
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store

__all__ = ["rebuilt_commit", "rebuilt_savepoint"]


def rebuilt_commit(store: Store, manifest: Manifest, action: str = "commit") -> bytes:
    """The Hudi commit of the version `manifest`, which is the newest one. Raises CorruptError."""
    late = Snapshot(store, manifest).since(manifest.parent)
    base = Snapshot(store, load_version(store, manifest.parent, manifest.oldest))
    slices = list(late.slices())
    if action in PLANNED:  # logs on top are of others
        slices = [FileSlice(one.base) for one in slices if one.instant == manifest.instant]
    paths, ids = [one.partition_path for one in slices], [one.file_id for one in slices]
    written = [
        (one, before)
        for one, before in zip(slices, base.current(paths, ids), strict=True)
        if before is None or one.names != before.names
    ]
    files = [each for one, before in written for each in _new_files(one, before)]
    rows = rows_in(late, [file for _, _, file in files])
    stats = [_stat(*each, max(count, 0)) for each, count in zip(files, rows, strict=True)]
    is_replacing = action in REPLACING
    gone = _groups_gone(base, Snapshot(store, manifest)) if is_replacing else None
    told = manifest.operation, stats, manifest.note, late.schema, late.options.name
    changed = manifest.schema != base.manifest.schema
    columns = columns_beside(late.table_schema, changed=changed)
    return CommitMetadata.of_ours(*told, gone, columns).encode()


def rebuilt_savepoint(store: Store, newest: Manifest, instant: str) -> bytes | None:
    """The savepoint of this commit, if the newest version has one. Raises CorruptError."""
    for pin in newest.pins.values():
        if pin.instant == instant:
            held = Snapshot(store, load_version(store, pin.version, newest.oldest)).slices()
            return savepoint_metadata(list(held), pin.time_ms, pin.note)
    return None


_New = tuple[FileSlice, FileSlice | None, DataFile | LogFile]
"""A slice, the one before, and a file that only the later has."""


def _new_files(made: FileSlice, before: FileSlice | None) -> Iterator[_New]:
    known = {one.name for one in before.files} if before else ()
    return ((made, before, one) for one in made.files if one.name not in known)


def _stat(
    made: FileSlice, before: FileSlice | None, file: DataFile | LogFile, rows: int
) -> WriteStat:
    if isinstance(file, LogFile):
        return WriteStat.of_log(made, file, rows, RowCounts())
    file = replace(file, row_count=rows)
    return WriteStat.of(file, before.instant if before else None, RowCounts())


def _groups_gone(base: Snapshot, now: Snapshot) -> dict[str, tuple[str, ...]]:
    """The file groups of a version that a later one lacks, by partition path."""
    live = {(one.partition_path, one.file_id) for one in now.slices()}
    gone: dict[str, list[str]] = {}
    for one in base.slices():
        if (one.partition_path, one.file_id) not in live:
            gone.setdefault(one.partition_path, []).append(one.file_id)
    return {path: tuple(ids) for path, ids in gone.items()}
