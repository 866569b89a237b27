"""What becomes of compactions of logs where the table goes back to an older version.

scheduled since, waits   taken back: its plan leaves Hudi's timeline, with what was made of it
scheduled since, done    undone, as a commit
waits there and now      goes on waiting
waits there, done since  stays done: its base files are there, with them and the entries that
                         its version added the older one begins. Logs of commits that stay
                         may lie on them: on Hudi's timeline it must be there
waits there, taken back  does not wait
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metatable.compaction.undoing import completion, undoing
from metatable.data.commit_metadata import COMPACT_LOGS
from metatable.data.slices import DataFile, FileSlice
from metatable.data.timeline import COMPACTION
from metatable.metadata.change import AddFiles, GoBack, Update, Withdraw
from metatable.metadata.files import FilesPartition
from metatable.metadata.known_commits import back_from
from metatable.metadata.log_compactions import Compacted, SetSlices, Unschedule
from metatable.metadata.log_plans import waiting_slices
from metatable.metadata.manifest import Manifest, Step
from metatable.metadata.owner import Owner
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import UsageError
from metatable.storage.store import Store

__all__ = ["LogCompactionsBack"]


@dataclass(frozen=True, slots=True)
class LogCompactionsBack:
    """On the way back to `content`."""

    content: Manifest
    taken_back: tuple[Step, ...]
    undone: tuple[Step, ...]
    """What completed them, newest first."""
    stay: tuple[_Stays, ...]
    """Oldest first."""
    never: tuple[str, ...]
    """Instants of those that wait in the content, and were taken back since."""
    first: int
    """The oldest version that carried out one of those that are undone; else the newest."""

    @classmethod
    def of(cls, snapshot: Snapshot, content: Manifest) -> LogCompactionsBack:
        """Raises UsageError where the version that carried out one that stays is not kept."""
        store, newest = snapshot.store, snapshot.manifest
        since = [*back_from(store, newest, content.version)]
        _check_not_undone(since, content)
        done = [*_carried_out(since, newest)]
        stay = [one for one in done if one.instant in content.compactions]
        undone = [one for one in done if one.instant not in content.compactions]
        never = content.compactions.keys() & set(newest.withdrawn)
        for time in content.compactions.keys() - newest.compactions.keys() - never:
            if time not in {one.instant for one in stay}:
                raise UsageError(
                    "a compaction of logs waits in that version, and what carried it out is not"
                    " kept any more: the table cannot go back to it",
                    version=content.version,
                    instant=time,
                )
        waits = sorted(newest.compactions.items(), key=lambda each: each[0], reverse=True)
        steps = (
            Step("unrequest", time, one.plan, one.checksum, COMPACTION)
            for time, one in waits
            if time not in content.compactions
        )
        again = tuple(_Stays.of(store, one, content) for one in reversed(stay))
        first = min((one.version for one in undone), default=newest.version)
        return cls(content, (*steps,), (*map(completion, undone),), again, (*sorted(never),), first)

    def updates(self, store: Store, instants: tuple[str, ...], owner: Owner) -> tuple[Update, ...]:
        """Back to the content, which lacks these data commits."""
        undone = tuple(dict.fromkeys((*instants, *(one.instant for one in self.undone))))
        never = (*undone, *(one.instant for one in self.taken_back))
        again = (update for one in self.stay for update in one.updates(store, owner))
        forgotten = (
            update for time in self.never for update in self._forgotten(store, time, owner)
        )
        return (GoBack(self.content.version, undone), Withdraw(never), *again, *forgotten)

    def _forgotten(self, store: Store, instant: str, owner: Owner) -> Iterator[Update]:
        held = waiting_slices(Snapshot(store, self.content), instant)  # nothing lies on any of them
        yield Unschedule(instant)
        yield SetSlices(tuple(one.planned for one in held), owner)

    def steps(
        self, snapshot: Snapshot, action: str, completions: Sequence[Step]
    ) -> tuple[Step, ...]:
        """What undoes these commits, and compactions that go with them, first. `action`: what Hudi
        calls it."""
        known = {one.instant for one in completions}
        more = [one for one in self.undone if one.instant not in known]
        action = "restore" if len(more) + len(completions) > 1 else action
        return (*self.taken_back, *undoing(snapshot, action, [*more, *completions]))


@dataclass(frozen=True, slots=True)
class _Stays:
    """One that waits in the content, and was carried out since: by the version `done`.

    `slices` wait in the content, and have got `bases`; `left` wait there, and were left out.
    """

    done: Manifest
    slices: tuple[FileSlice, ...]
    bases: tuple[DataFile, ...]
    left: tuple[FileSlice, ...]

    @classmethod
    def of(cls, store: Store, done: Manifest, content: Manifest) -> _Stays:
        """Raises UsageError where logs lie on a file that was not made."""
        made, before = Snapshot(store, done), Snapshot(store, content)
        slices = waiting_slices(before, done.instant)
        paths, ids = [one.partition_path for one in slices], [one.file_id for one in slices]
        now = made.current(paths, ids)
        bases = [one.base if one and one.instant == done.instant else None for one in now]
        left = tuple(one for one, base in zip(slices, bases, strict=True) if base is None)
        late = [log.path for one in left for log in one.late]
        if late:
            raise UsageError(
                "a compaction of logs waits in that version, and has left out groups that were"
                " written anew since: the table cannot go back to it",
                version=content.version,
                found=late[:5],
            )
        held = tuple(one for one, base in zip(slices, bases, strict=True) if base is not None)
        return cls(done, held, tuple(base for base in bases if base is not None), left)

    def updates(self, store: Store, owner: Owner) -> Iterator[Update]:
        """Its entries, and its slices, once more."""
        version, made = self.done.version, Snapshot(store, self.done)
        refs = {
            name: tuple(ref for ref in made.refs(name) if ref.sequence == version)
            for name in self.done.pages
            if name != FilesPartition.name
        }
        yield AddFiles({name: held for name, held in refs.items() if held})
        yield Compacted(self.done.instant, self.slices, self.bases, owner)
        yield SetSlices(tuple(one.planned for one in self.left), owner)


def _carried_out(since: Sequence[Manifest], newest: Manifest) -> Iterator[Manifest]:
    """Of these versions those that carried out compactions which still count."""
    for one in since:
        if one.operation == COMPACT_LOGS and one.instant and one.instant not in newest.withdrawn:
            yield one


def _check_not_undone(since: Sequence[Manifest], content: Manifest) -> None:
    """A compaction that it holds may have been undone, where no commit of rows was."""
    for one in since:
        undone = one.summary.get("undone_version", one.version)
        if one.restored_at == one.version and undone <= content.version:
            raise UsageError(
                "that version was undone: the table cannot go back to it", found=content.version
            )
