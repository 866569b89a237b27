"""What is scheduled, as versions know it: compactions of logs, and resizes that writers do not wait
for. Scheduled, carried out, taken back.

    schedule   the entries of its groups name the base files to come; the root names the plan
    writers    find them there, and put their logs on them; who planned before fails `SlicesCurrent`
    done       the entries begin with these base files, and have what came meanwhile on top

What is planned of a group stays as it was, however long it waits: logs that come are told from it.
So carrying it out loses no race against writers. It would against whoever writes the group anew,
and then leaves that group out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.metadata.commits.change import Draft, Race
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Planned
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.written import every_stats_column
from metatable.storage.errors import ConflictError, CorruptError
from metatable.storage.sinks import Caught

__all__ = [
    "Compacted",
    "PlannedUnchanged",
    "Schedule",
    "SetSlices",
    "SetUnscheduled",
    "Unschedule",
    "add_entries",
    "retire_files",
]


@dataclass(frozen=True, slots=True)
class PlannedUnchanged:
    """The plan is still scheduled, and what it plans of these slices is as it was."""

    instant: str
    slices: tuple[FileSlice, ...]

    def check(self, race: Race) -> None:
        if self.instant not in race.newest.compactions:
            raise race.lost("another one has carried it out, or taken it back", found=self.instant)
        paths, ids = _groups(self.slices)
        for ours, theirs in zip(self.slices, race.snapshot.current(paths, ids), strict=True):
            if theirs is None or theirs.awaits != self.instant:
                found = theirs and theirs.path
                raise race.lost("a commit has written the file group anew: retry", found=found)
            if theirs.planned.names != ours.planned.names:
                raise race.lost("what was planned is another slice: retry", found=theirs.path)


@dataclass(frozen=True, slots=True)
class Schedule:
    """This one waits from now on; `SetSlices` says so of its groups."""

    instant: str
    plan: Planned

    def apply(self, draft: Draft) -> None:
        if self.instant < draft.newest.border:
            raise ConflictError("the timeline begins, or a savepoint is, after the instant: retry")
        if self.instant in draft.newest.withdrawn:
            raise ConflictError("this writer was taken for dead and its instant withdrawn: retry")
        draft.compactions = {**draft.compactions, self.instant: self.plan}


@dataclass(frozen=True, slots=True)
class Unschedule:
    """This one does not wait any more; `SetSlices` says so of its groups."""

    instant: str

    def apply(self, draft: Draft) -> None:
        held = draft.compactions.items()
        draft.compactions = {time: one for time, one in held if time != self.instant}


@dataclass(frozen=True, slots=True)
class SetSlices:
    """These are the current slices of their groups."""

    slices: tuple[FileSlice, ...]
    owner: Owner

    def apply(self, draft: Draft) -> None:
        files = FilesPartition(draft.options)
        add_entries(draft, files, files.of_slices(self.slices), self.owner)


@dataclass(frozen=True, slots=True)
class SetUnscheduled:
    """These slices are as if nothing had been scheduled; logs that are copies go with it."""

    slices: tuple[FileSlice, ...]
    owner: Owner

    def apply(self, draft: Draft) -> None:
        SetSlices(tuple(one.unscheduled for one in self.slices), self.owner).apply(draft)
        retire_files(draft, [copy for one in self.slices for copy in one.copies], self.owner)


def retire_files(draft: Draft, files: Sequence[DataFile | LogFile], owner: Owner) -> None:
    """Statistics of files that no slice names any more."""
    table = Snapshot(draft.store, draft.content).table_schema
    columns = every_stats_column(table, draft.options)
    stats = ColumnStatsPartition(draft.options)
    add_entries(draft, stats, stats.retired_files(files, columns), owner)


def add_entries(
    draft: Draft, partition: MetadataPartition, entries: pa.Table, owner: Owner
) -> None:
    """Put these entries into one small HFile and add it to the draft of the next version."""
    sink = Caught(draft.store.counters)
    ref = partition.store(sink, 0, partition.space, entries, owner)
    if ref is not None:
        draft.files[ref.path] = sink.body
        AddFiles({partition.name: (ref,)}).apply(draft)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The groups of these slices begin with `bases`, and the logs that came since then are on top:
    those of the version that this is put on."""

    instant: str
    slices: tuple[FileSlice, ...]
    bases: tuple[DataFile, ...]
    owner: Owner

    def apply(self, draft: Draft) -> None:
        paths, ids = _groups(self.slices)
        current = Snapshot(draft.store, draft.content).current(paths, ids)
        pairs = zip(current, self.bases, strict=True)
        made = tuple(_there(one).compacted(base) for one, base in pairs)
        SetSlices(made, self.owner).apply(draft)
        Unschedule(self.instant).apply(draft)


def _there(one: FileSlice | None) -> FileSlice:
    if one is None:
        raise CorruptError("a group of a compaction is gone")
    return one


def _groups(slices: Sequence[FileSlice]) -> tuple[list[str], list[str]]:
    return [one.partition_path for one in slices], [one.file_id for one in slices]
