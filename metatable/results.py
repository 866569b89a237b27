"""What the verbs return: counts, files, bytes, seconds, in a form that people can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["CommitInfo", "Description", "Explain", "ServiceResult", "WriteResult"]


@dataclass(frozen=True, slots=True, repr=False)
class WriteResult:
    """What an insert, upsert or delete did. `version` is the table's after it.

    `index_misses` counts keys that the index knew and their file did not hold: zero, unless
    two keys share a hash.
    """

    operation: str
    version: int
    instant: str | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    moved: int = 0
    stale: int = 0
    absent: int = 0
    index_misses: int = 0
    files: int = 0
    bytes: int = 0
    attempts: int = 1
    seconds: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        counts = {
            name: getattr(self, name)
            for name in ("inserted", "updated", "deleted", "moved", "stale", "absent")
            if getattr(self, name)
        }
        did = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing to do"
        return (
            f"{self.operation} -> version {self.version}: {did}; {self.files} files,"
            f" {_size(self.bytes)}, {self.seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True, repr=False)
class ServiceResult:
    """What a table service did. `findings` are faults as text (of `verify`)."""

    service: str
    version: int
    files_before: int = 0
    files_after: int = 0
    entries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    reason: str = ""
    findings: tuple[str, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        text = f"{self.service} -> version {self.version}: {self.reason or 'done'}"
        if self.files_before or self.files_after:
            text += f"; {self.files_before} -> {self.files_after} files"
        if self.findings:
            text += f"; {len(self.findings)} findings"
        if self.bytes_written:
            text += f"; {_size(self.bytes_written)} written"
        return f"{text}; {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True, repr=False)
class Explain:
    """What an operation looked at, level by level, and what that cost.

    `files`: how many are left after each level, by the level's name, in order; the first is all
    there are. `file_bytes`: the size of those left at the end. `keys` and `found`: keys asked,
    keys that have a location. None: not of this operation.
    """

    keys: int | None
    found: int | None
    seconds: float
    counters: Mapping[str, int] = field(default_factory=dict)
    operation: str = "tag_locations"
    files: Mapping[str, int] = field(default_factory=dict)
    file_bytes: int | None = None

    @property
    def requests(self) -> int:
        """Calls to the disk or service."""
        return self.counters.get("store.requests", 0)

    @property
    def bytes(self) -> int:
        """Bytes read to find out."""
        return self.counters.get("store.bytes_read", 0)

    @property
    def blocks(self) -> int:
        """HFile blocks decoded; those that were in memory already are not counted."""
        return self.counters.get("hfile.blocks", 0)

    def to_dict(self) -> dict[str, Any]:
        cost = {"requests": self.requests, "bytes": self.bytes, "blocks": self.blocks}
        return asdict(self) | cost

    def __repr__(self) -> str:
        rows = [("keys", self.keys, ""), ("keys found", self.found, "")]
        rows += [(f"files, {level}", count, "") for level, count in self.files.items()]
        if self.files and self.file_bytes is not None:
            rows[-1] = (*rows[-1][:2], _size(self.file_bytes))
        rows += [("HFile blocks", self.blocks, ""), ("requests", self.requests, _size(self.bytes))]
        cells = [(name, f"{count:,}", note) for name, count, note in rows if count is not None]
        cells.append(("seconds", f"{self.seconds:.3f}", ""))
        width, digits = (max(len(row[place]) for row in cells) for place in (0, 1))
        lines = [f"  {name:<{width}}  {count:>{digits}}  {note}" for name, count, note in cells]
        return "\n".join([self.operation, *(line.rstrip() for line in lines)])


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One version: what was done, when (epoch milliseconds, UTC), and its counts."""

    version: int
    operation: str
    instant: str
    time_ms: int
    summary: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Description:
    """What a table is: where, how it is keyed, how much there is of it."""

    uri: str
    name: str
    version: int
    instant: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: str | None
    index: str
    key_scope: str
    columns: Mapping[str, str]
    file_groups: int
    partitions: int
    rows: int
    data_bytes: int
    metadata: Mapping[str, Mapping[str, int]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
