"""What the verbs return: counts, files, bytes, seconds, in a form that people can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["CommitInfo", "Description", "ServiceResult", "WriteResult"]


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
        return f"{text}; {_size(self.bytes_written)} written, {self.seconds:.2f} s"


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
