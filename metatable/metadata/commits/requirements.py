"""Requirements: what must still be true of the newest version, so that a change may go on from it.

They are asked only where somebody else was first (`change.py`). Each is lost with a ConflictError
that names both versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.commits.change import Race
from metatable.metadata.partitions.snapshot import Snapshot

__all__ = [
    "GroupsAbsent",
    "NewestIsBase",
    "NoneLater",
    "OptionsAreBase",
    "RingsAreBase",
    "RowsUnchanged",
    "SchemaIsBase",
    "SlicesCurrent",
]


@dataclass(frozen=True, slots=True)
class SlicesCurrent:
    """The slices that are replaced are still those of their file groups."""

    slices: tuple[FileSlice, ...]

    def check(self, race: Race) -> None:
        paths = [one.partition_path for one in self.slices]
        current = race.snapshot.current(paths, [one.file_id for one in self.slices])
        for ours, theirs in zip(self.slices, current, strict=True):
            if theirs is None or theirs.names != ours.names:
                raise race.lost(
                    "another commit rewrote the same file group: retry",
                    expected=ours.path,
                    found=theirs and theirs.path,
                )


@dataclass(frozen=True, slots=True)
class GroupsAbsent:
    """Nobody else has opened these file groups, named by (partition path, file id)."""

    groups: tuple[tuple[str, str], ...]

    def check(self, race: Race) -> None:
        paths = [path for path, _ in self.groups]
        for found in race.snapshot.current(paths, [name for _, name in self.groups]):
            if found is not None:
                raise race.lost(
                    "another commit opened the same file group: retry", found=found.path
                )


@dataclass(frozen=True, slots=True)
class SchemaIsBase:
    """Nobody has changed the columns that files were written for."""

    def check(self, race: Race) -> None:
        ours, theirs = (
            TableSchema.decode(one.schema, one.path) for one in (race.base, race.newest)
        )
        if ours != theirs:
            raise race.lost("another commit changed the columns of the table: retry")


@dataclass(frozen=True, slots=True)
class RingsAreBase:
    """Nobody has resized the buckets of these table partitions, by whose rings rows were placed."""

    paths: tuple[str, ...]

    def check(self, race: Race) -> None:
        ours = Snapshot(race.store, race.base).rings(self.paths)
        theirs = race.snapshot.rings(self.paths)
        resized = [
            path for path, *pair in zip(self.paths, ours, theirs, strict=True) if pair[0] != pair[1]
        ]
        if resized:
            raise race.lost(
                "another commit resized the buckets of a partition: retry", found=resized[:5]
            )


@dataclass(frozen=True, slots=True)
class NoneLater:
    """No other commit has a later instant. Asked of a commit that changes the columns, because
    Hudi's readers take those of the latest instant."""

    instant: str

    def check(self, race: Race) -> None:
        if race.newest.latest_instant >= self.instant:
            raise race.lost(
                "another commit with a later instant was first: retry",
                expected=f"less than {self.instant}",
                found=race.newest.latest_instant,
            )


@dataclass(frozen=True, slots=True)
class NewestIsBase:
    """Nobody else has published anything. Asked by rollbacks and the like, which are right on the
    very version they were made on."""

    def check(self, race: Race) -> None:
        raise race.lost("another commit was first: retry")


@dataclass(frozen=True, slots=True)
class RowsUnchanged:
    """Nobody has committed rows, or changed the index; HFiles may have been merged."""

    def check(self, race: Race) -> None:
        base, newest = race.base, race.newest
        if newest.data != base.data or newest.options != base.options:
            raise race.lost("rows were committed meanwhile: retry")


@dataclass(frozen=True, slots=True)
class OptionsAreBase:
    """Nobody has set other options, nor changed the index."""

    def check(self, race: Race) -> None:
        if race.newest.options != race.base.options:
            raise race.lost("other options were set meanwhile: retry")
