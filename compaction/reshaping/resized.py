"""What a scheduled resize comes to on the version that it is put on.

Parents leave with all that they hold alone; a child begins with its base file, and has the logs on
top that the parents' entries name by then. So no commit of writers makes a resize begin again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metatable.data.file_groups.children import node_of
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.index.bucket.ring import Ring
from metatable.index.bucket.rings import rings_of
from metatable.metadata.commits.change import Draft
from metatable.metadata.commits.scheduled import (
    SetUnscheduled,
    Unschedule,
    add_entries,
    retire_files,
)
from metatable.metadata.commits.scheduled_plans import waiting_slices
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.rings import RingsPartition, ring_entries
from metatable.metadata.partitions.snapshot import Snapshot

__all__ = ["Resized"]


@dataclass(frozen=True, slots=True)
class Resized:
    """The children of the resize `instant` are `bases`; parents of which a child is none of these
    are as if it had not been scheduled."""

    instant: str
    bases: tuple[DataFile, ...]
    owner: Owner

    def apply(self, draft: Draft) -> None:
        view = Snapshot(draft.store, draft.content)
        made = {one.name for one in self.bases}
        waits = waiting_slices(view, self.instant)
        left = tuple(one for one in waits if not made.issuperset(_names(one.children)))
        gone = [one for one in waits if one not in left]
        SetUnscheduled(left, self.owner).apply(draft)
        files, rings = FilesPartition(draft.options), RingsPartition(draft.options)
        now = files.of_slices([_child(base, gone) for base in self.bases])
        entries = pa.concat_tables([now, files.retired(gone, ())])
        add_entries(draft, files, entries, self.owner)
        retire_files(draft, [one for each in gone for one in each.unscheduled.files], self.owner)
        cut = [ring.metadata for ring in _rings(view, gone, self.instant)]
        add_entries(draft, rings, ring_entries(draft.options, cut), self.owner)
        Unschedule(self.instant).apply(draft)


def _names(files: Iterable[DataFile]) -> set[str]:
    return {one.name for one in files}


def _child(base: DataFile, parents: Sequence[FileSlice]) -> FileSlice:
    """With the logs that its parents have put on it."""
    logs = (log for one in parents for log in one.forwarded)
    return FileSlice(base).with_logs([one for one in logs if one.follows(base)])


def _rings(view: Snapshot, parents: Sequence[FileSlice], instant: str) -> Iterable[Ring]:
    """The new rings of the table partitions of these. Raises CorruptError."""
    paths = sorted({one.partition_path for one in parents})
    for path, ring in zip(paths, rings_of(view, paths), strict=True):
        held = [one for one in parents if one.partition_path == path]
        ids = {one.file_id for one in held}
        gone = [node for node in ring.nodes if node.file_id in ids]
        come = {node_of(child) for one in held for child in one.children}
        yield ring.resized(gone, come, instant)
