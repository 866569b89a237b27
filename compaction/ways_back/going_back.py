"""Going back: what becomes of scheduled compactions and resizes when a table goes back to an older
version.

scheduled since, waits   taken back: its plan leaves Hudi's timeline, with what was made of it
scheduled since, done    undone, as a commit
waits there and now      goes on waiting
waits there and now,     taken back: files of it may be there without these columns, or come, for
columns dropped or       who is about to carry it out may have seen no other ones. Where logs lie
widened since            on them it goes on waiting if it is not begun, and what comes so is put
                         over (`made_before.py`); else there is no way back
waits there, done since  stays done: its base files are there, with them and the entries that
                         its version added the older one begins. Logs of commits that stay
                         may lie on them: on Hudi's timeline it must be there. Where it left out
                         a group an earlier attempt may have made a file of it, which goes
waits there, done with   undone, as a commit, and does not wait: its base files lack what the older
columns of since         version reads. Where logs lie on them there is no way back. Copies for what
                         a resize was to make go, too
waits there, taken back  does not wait. Where logs lie on what it was to make there is no way
                         back
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from metatable.compaction.reshaping.resized import Resized
from metatable.compaction.ways_back.undoing import completion, undoing
from metatable.data.columns.schema_past import holds_all
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.timeline import CLUSTERING, inflight_path
from metatable.metadata.commits.change import Update
from metatable.metadata.commits.known_commits import back_from
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.scheduled import Compacted, SetUnscheduled, Unschedule
from metatable.metadata.commits.scheduled_plans import logs_left, waiting_slices
from metatable.metadata.commits.steps import lying_ready
from metatable.metadata.commits.updates import GoBack, Withdraw
from metatable.metadata.manifests.manifest import Manifest, Planned, Step
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.rings import RingsPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import UsageError
from metatable.storage.store import Store

__all__ = ["LogCompactionsBack"]

_OTHERWISE = "was carried out, or begun, when columns had been dropped or widened"


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
    """Instants of those that wait in the content, and were taken back since, or are undone."""
    first: int
    """The oldest version that carried out one of those that are undone; else the newest."""

    @property
    def made(self) -> tuple[DataFile, ...]:
        """What those that stay have made, and the table is to begin with."""
        return tuple(base for stays in self.stay for base in stays.bases)

    def passed(self, store: Store) -> frozenset[str]:
        """Paths of data files that the content names, and the table is not to: those merged in what
        those that stay have made, and copies for what a resize was to make that was taken back."""
        merged = (
            file
            for stays in self.stay
            for one in stays.slices
            for file in one.files
            if file not in one.forwarded
        )
        content = Snapshot(store, self.content)
        left = (one for time in self.never for one in waiting_slices(content, time))
        copies = (file for one in left for file in one.forwarded)
        return frozenset(file.path for file in chain(merged, copies))

    @classmethod
    def of(cls, snapshot: Snapshot, content: Manifest) -> LogCompactionsBack:
        """Raises UsageError where the version that carried out one that stays is not kept, and
        where nothing but what must stay would do."""
        store, newest = snapshot.store, snapshot.manifest
        since = [*back_from(store, newest, content.version)]
        _check_not_undone(since, content)
        done = [*_carried_out(since, newest)]
        narrowed = {*_narrowed(snapshot, content)}
        unfit = narrowed | {one.instant for one in done if not _fits(store, one, content)}
        kept = content.compactions.keys() - unfit
        stay = [one for one in done if one.instant in kept]
        undone = [one for one in done if one.instant not in kept]
        never = unfit | {*_taken_back(snapshot, content, done)}
        waits = sorted(newest.compactions.items(), key=lambda each: each[0], reverse=True)
        steps = (
            _unrequesting(time, one)
            for time, one in waits
            if time not in content.compactions or time in narrowed
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
        held = waiting_slices(Snapshot(store, self.content), instant)  # no log is on one of them
        yield Unschedule(instant)
        yield SetUnscheduled(tuple(held), owner)

    def steps(
        self, snapshot: Snapshot, action: str, completions: Sequence[Step]
    ) -> tuple[Step, ...]:
        """What undoes these commits, and compactions that go with them, first. `action`: what Hudi
        calls it. Files that no version has ever named, and that a step would bring to light, go."""
        snapshot.store.delete_all([one.path for stays in self.stay for one in stays.unnamed])
        known = {one.instant for one in completions}
        more = [one for one in self.undone if one.instant not in known]
        action = "restore" if len(more) + len(completions) > 1 else action
        *steps, told = undoing(snapshot, action, [*more, *completions])
        before, behind = (
            [lying_ready(snapshot.store, one) for one in each]
            for each in (self.taken_back, self._without_copies())
        )
        return (*before, *steps, *behind, told)

    def _without_copies(self) -> Iterator[Step]:
        """Copies that writers have made for resizes that waited, and are undone, go: commits that
        stay name them, and Hudi takes them for rows once its timeline is past these instants."""
        undone = {one.instant for one in self.undone}
        for time in self.never:
            planned = self.content.compactions[time]
            if time in undone and planned.action == CLUSTERING:
                yield _unrequesting(time, planned)


@dataclass(frozen=True, slots=True)
class _Stays:
    """One that waits in the content, and was carried out since: by the version `done`.

    `slices` wait in the content, and have got `bases`, or children have; `left` wait there, and
    were left out.
    """

    done: Manifest
    action: str
    slices: tuple[FileSlice, ...]
    bases: tuple[DataFile, ...]
    left: tuple[FileSlice, ...]

    @property
    def unnamed(self) -> Iterator[DataFile]:
        """What may have been made of those that were left out, in vain: Hudi's readers would take
        it for a slice once their groups are back, as its instant is complete."""
        named = {one.path for one in self.bases}
        return (file for one in self.left for file in one.to_come if file.path not in named)

    @classmethod
    def of(cls, store: Store, done: Manifest, content: Manifest) -> _Stays:
        """Raises UsageError where logs lie on a file that was not made."""
        made, before = Snapshot(store, done), Snapshot(store, content)
        slices = waiting_slices(before, done.instant)
        come = list(dict.fromkeys(file for one in slices for file in one.to_come))
        now = made.current([one.partition_path for one in come], [one.file_id for one in come])
        bases = {
            file: one.base
            for file, one in zip(come, now, strict=True)
            if one and one.instant == done.instant
        }
        left = tuple(one for one in slices if not bases.keys() >= set(one.to_come))
        late = [log.path for one in left for log in one.ahead]
        if late:
            raise UsageError(
                "something waits in that version, and has left out groups that were written anew"
                " since it was carried out: the table cannot go back to it",
                version=content.version,
                found=late[:5],
            )
        held = tuple(one for one in slices if one not in left)
        return cls(done, content.compactions[done.instant].action, held, (*bases.values(),), left)

    def updates(self, store: Store, owner: Owner) -> Iterator[Update]:
        """Its entries, and its slices, once more."""
        version, made = self.done.version, Snapshot(store, self.done)
        refs = {
            name: tuple(ref for ref in made.refs(name) if ref.sequence == version)
            for name in self.done.pages
            if name not in (FilesPartition.name, RingsPartition.name)
        }
        yield AddFiles({name: held for name, held in refs.items() if held})
        if self.action == CLUSTERING:
            yield Resized(self.done.instant, self.bases, owner)
            return
        yield Compacted(self.done.instant, self.slices, self.bases, owner)
        yield SetUnscheduled(self.left, owner)


def _taken_back(snapshot: Snapshot, content: Manifest, done: Sequence[Manifest]) -> Iterator[str]:
    """Those that wait in the content, and wait no more, though none of those `done` carried them
    out: they were taken back, or undone. Of one that was archived the newest version does not tell
    that it is withdrawn, but all those since the content do, if they are kept. Raises UsageError
    where they are not, and where logs of the content lie on what was to be made."""
    newest, before = snapshot.manifest, Snapshot(snapshot.store, content)
    gone = content.compactions.keys() - newest.compactions.keys() - {one.instant for one in done}
    for time in sorted(gone):
        if time not in newest.withdrawn and content.version < newest.oldest:
            raise UsageError(
                "something waits in that version, and what carried it out is not kept any"
                " more: the table cannot go back to it",
                version=content.version,
                instant=time,
            )
        _check_bare(before, time, "was taken back since, or undone")
        yield time


def _unrequesting(instant: str, planned: Planned) -> Step:
    return Step("unrequest", instant, planned.plan, planned.checksum, planned.action)


def _carried_out(since: Sequence[Manifest], newest: Manifest) -> Iterator[Manifest]:
    """Those of these versions that carried out what was scheduled, and still count."""
    for one in since:
        if one.instant and not one.is_commit and one.instant not in newest.withdrawn:
            yield one


def _fits(store: Store, done: Manifest, content: Manifest) -> bool:
    """Whether base files that this version made have all columns of the content, if it waits there.
    Raises UsageError where they have not, and logs of the content lie on them."""
    if done.instant not in content.compactions:
        return True
    made, before = Snapshot(store, done), Snapshot(store, content)
    if holds_all(made.table_schema, before.table_schema):
        return True
    _check_bare(before, done.instant, _OTHERWISE)
    return False


def _narrowed(snapshot: Snapshot, content: Manifest) -> Iterator[str]:
    """Those that wait in the content, and now, when columns of the content are gone, or wider, and
    that wait no more behind the way back. Whether one is begun tells nothing of who begins before
    the way back is published. Raises UsageError where logs of the content lie on what is begun."""
    store, before = snapshot.store, Snapshot(snapshot.store, content)
    waits = content.compactions.keys() & snapshot.manifest.compactions.keys()
    if not waits or holds_all(snapshot.table_schema, before.table_schema):
        return
    for time in sorted(waits):
        if store.size(inflight_path(time, content.compactions[time].action)) is not None:
            _check_bare(before, time, _OTHERWISE)
        elif _late(before, time):
            continue
        yield time


def _late(before: Snapshot, instant: str) -> list[str]:
    """Paths of logs on what this one is to make. Logs for a resize go with it, also those that none
    but older versions name."""
    waits = waiting_slices(before, instant)
    late = [log.path for one in waits for log in one.ahead]
    if before.manifest.compactions[instant].action == CLUSTERING:
        late += logs_left(before, instant, waits)
    return late


def _check_bare(before: Snapshot, instant: str, became: str) -> None:
    """No log lies on what this one is to make, which cannot be kept. `became`: what of it."""
    late = _late(before, instant)
    if late:
        raise UsageError(
            f"something waits in that version, with logs on what it is to make, and {became}: the"
            " table cannot go back to it",
            version=before.version,
            instant=instant,
            found=late[:5],
        )


def _check_not_undone(since: Sequence[Manifest], content: Manifest) -> None:
    """A compaction that it holds may have been undone, where no commit of rows was."""
    for one in since:
        undone = one.summary.get("undone_version", one.version)
        if one.restored_at == one.version and undone <= content.version:
            raise UsageError(
                "that version was undone: the table cannot go back to it", found=content.version
            )
