"""What a scheduled resize comes to on the version that it is put on.

Parents leave with all that they hold alone; a child begins with its base file, and has the logs on
top that the parents' entries name by then. So no commit of writers makes a resize begin again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from metatable.data.file_groups.children import node_of
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
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

_Lies = tuple[str, str, str]
"""(partition path, file id, instant)"""


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
        gone, left = list[FileSlice](), list[FileSlice]()
        for one in waiting_slices(view, self.instant):
            (gone if made.issuperset(_names(one.children)) else left).append(one)
        SetUnscheduled(tuple(left), self.owner).apply(draft)
        files, rings = FilesPartition(draft.options), RingsPartition(draft.options)
        now = files.of_slices(_children(self.bases, gone))
        entries = pa.concat_tables([now, files.retired(gone, ())])
        add_entries(draft, files, entries, self.owner)
        retire_files(draft, [one for each in gone for one in each.unscheduled.files], self.owner)
        cut = [ring.metadata for ring in _rings(view, gone, self.instant)]
        add_entries(draft, rings, ring_entries(draft.options, cut), self.owner)
        Unschedule(self.instant).apply(draft)


def _names(files: Iterable[DataFile]) -> set[str]:
    return {one.name for one in files}


def _children(bases: Iterable[DataFile], parents: Iterable[FileSlice]) -> list[FileSlice]:
    """With the logs that their parents have put on them."""
    logs = defaultdict[_Lies, list[LogFile]](list)
    for log in chain.from_iterable(one.forwarded for one in parents):
        logs[_lies(log)].append(log)
    return [FileSlice(base).with_logs(logs[_lies(base)]) for base in bases]


def _lies(file: DataFile | LogFile) -> _Lies:
    """Whether a log `follows` a base file, in bulk: then these are equal."""
    return file.partition_path, file.file_id, file.instant


def _rings(view: Snapshot, parents: Sequence[FileSlice], instant: str) -> Iterable[Ring]:
    """The new rings of the table partitions of these. Raises CorruptError."""
    held = defaultdict[str, list[FileSlice]](list)
    for one in parents:
        held[one.partition_path].append(one)
    paths = sorted(held)
    for path, ring in zip(paths, rings_of(view, paths), strict=True):
        ids = {one.file_id for one in held[path]}
        gone = [node for node in ring.nodes if node.file_id in ids]
        come = {node_of(child) for one in held[path] for child in one.children}
        yield ring.resized(gone, come, instant)
