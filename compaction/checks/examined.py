"""What a look at a version of a table comes to: what is wrong, and what mending it takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from metatable.compaction.checks.findings import Findings
from metatable.compaction.checks.hudi_ring_check import RingFile
from metatable.compaction.checks.kept_versions import IndexFiles, Versions
from metatable.compaction.checks.live_slices import LiveSlices
from metatable.compaction.checks.timeline_check import TimelineState
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.metadata.hfiles.entry_files import Run
from metatable.metadata.partitions.snapshot import Snapshot

__all__ = ["Anew", "Examined"]


@dataclass(frozen=True, slots=True)
class Anew:
    """A live slice that is to be written anew: files of it are lost or damaged, or none is, and one
    says of its rows what is not so."""

    file: FileSlice
    gone: frozenset[str]
    """Paths of the files that are lost or damaged."""
    rows: int
    """Rows that are gone with them; -1 where nobody knows how many."""

    @property
    def left(self) -> tuple[DataFile | LogFile, ...]:
        """Its files that can be read and have all rows that are left."""
        return self.file.left(self.gone)


@dataclass
class Examined:
    """What a look at a version came to."""

    snapshot: Snapshot
    state: TimelineState
    versions: Versions
    index_files: IndexFiles
    live: LiveSlices
    findings: Findings
    anew: list[Anew] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    """Entries that set right what is wrong in the version without its damaged index files."""
    rings: list[RingFile] = field(default_factory=list)
    """Rings in Hudi's own place that are wrong, or missing there."""
    plans: list[str] = field(default_factory=list)
    """Paths of stored plans that nobody can carry out."""
    floor: int = 0
    """The first version of which everything is there, if an older one is kept that lacks some."""
    files: int = 0
    rows: int = 0
