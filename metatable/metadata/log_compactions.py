"""Compactions of logs, as versions know them: scheduled, carried out, taken back.

    schedule   the entries of its groups name the base file that is to come; the root names the plan
    writers    find it there, and put their logs on it; who planned before fails `SlicesCurrent`
    done       the entries begin with that base file, and have what came meanwhile on top

What is planned of a group stays as it was, however long it waits: nobody puts a log on the base
file below any more. So its compaction loses no race against writers; it would against whoever
writes the group anew, and then leaves that group out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metatable.data.slices import DataFile, FileSlice
from metatable.metadata.change import AddFiles, Draft, Race
from metatable.metadata.files import FilesPartition
from metatable.metadata.manifest import LogCompaction
from metatable.metadata.owner import Owner
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import ConflictError, CorruptError
from metatable.storage.sinks import Caught

__all__ = ["Compacted", "PlannedUnchanged", "Schedule", "SetSlices", "Unschedule"]


@dataclass(frozen=True, slots=True)
class PlannedUnchanged:
    """The compaction is scheduled still, and of these slices what is planned is as it was."""

    instant: str
    slices: tuple[FileSlice, ...]

    def check(self, race: Race) -> None:
        if self.instant not in race.newest.compactions:
            raise race.lost("another one has carried it out, or taken it back", found=self.instant)
        paths, ids = _groups(self.slices)
        for ours, theirs in zip(self.slices, race.snapshot.current(paths, ids), strict=True):
            pending = theirs and theirs.pending
            if theirs is None or not pending or pending.instant != self.instant:
                found = theirs and theirs.path
                raise race.lost("a commit has written the file group anew: retry", found=found)
            if theirs.planned.names != ours.planned.names:
                raise race.lost("what was planned is another slice: retry", found=theirs.path)


@dataclass(frozen=True, slots=True)
class Schedule:
    """This compaction waits from now on; `SetSlices` says so of its groups."""

    instant: str
    plan: LogCompaction

    def apply(self, draft: Draft) -> None:
        if self.instant < draft.archived:
            raise ConflictError("Hudi's timeline begins after the instant: retry")
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
        if not self.slices:
            return
        files, sink = FilesPartition(draft.options), Caught(draft.store.counters)
        entries = files.of_slices(self.slices)
        ref = files.store(sink, 0, files.space, entries, self.owner)
        assert ref is not None
        draft.files[ref.path] = sink.body
        AddFiles({files.name: (ref,)}).apply(draft)


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
