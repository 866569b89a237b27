"""What Hudi keeps of a planned compaction of slices: HoodieCompactionPlan, an Avro container.

    <instant>.compaction.requested       slices whose logs become a new base file of that instant
    <instant>.logcompaction.requested    slices whose logs become one log

Files are told by name; their folder is the partition's. A plan stays as it was written: writers
that come after it name their logs by its instant (table version 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

from metatable.data.hoodie.timeline_records import (
    TEXT,
    VERSION,
    decoded,
    encoded,
    map_of,
    maybe,
    record,
)
from metatable.data.hoodie.timeline_records import field as stored
from metatable.storage.errors import CorruptError, UpgradeError, in_short

__all__ = ["SliceCompaction", "SliceCompactionPlan"]

PLAN_VERSION = 2
"""Since Hudi 0.6; before it, files were told by whole paths."""

_OPERATION = record(
    "HoodieCompactionOperation",
    stored("baseInstantTime", ["null", TEXT]),
    maybe("deltaFilePaths", {"type": "array", "items": TEXT}),
    maybe("dataFilePath", TEXT),
    stored("fileId", ["null", TEXT]),
    maybe("partitionPath", TEXT),
    maybe("metrics", map_of("double")),
    maybe("bootstrapFilePath", TEXT),
)
_STRATEGY = record(
    "HoodieCompactionStrategy",
    maybe("compactorClassName", TEXT),
    maybe("strategyParams", map_of(TEXT)),
    VERSION,
)
_SCHEMA = fastavro.parse_schema(
    record(
        "HoodieCompactionPlan",
        maybe("operations", {"type": "array", "items": _OPERATION}),
        maybe("extraMetadata", map_of(TEXT)),
        VERSION,
        maybe("strategy", _STRATEGY),
        {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
        maybe("missingSchedulePartitions", {"type": "array", "items": TEXT}),
    )
)


@dataclass(frozen=True, slots=True)
class SliceCompaction:
    """One slice: its logs in the order in which they are merged, and its base if there is one.

    `metrics`: what the strategy went by (TOTAL_LOG_FILES, TOTAL_LOG_FILES_SIZE, …).
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_name: str | None
    log_names: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceCompactionPlan:
    """All slices that one instant compacts. `compactor`: Hudi's class that carries out a log
    compaction; None for one into base files."""

    slices: tuple[SliceCompaction, ...]
    extra: Mapping[str, str] = field(default_factory=dict)
    compactor: str | None = None
    preserves_meta_columns: bool = False

    def encode(self) -> bytes:
        """The bytes of the requested file."""
        named: dict[str, Any] = {
            "compactorClassName": self.compactor,
            "strategyParams": {},
            "version": 1,
        }
        return encoded(
            _SCHEMA,
            {
                "operations": [_operation(one) for one in self.slices],
                "extraMetadata": dict(self.extra),
                "version": PLAN_VERSION,
                "strategy": None if self.compactor is None else named,
                "preserveHoodieMetadata": self.preserves_meta_columns,
                "missingSchedulePartitions": [],
            },
        )

    @classmethod
    def decode(cls, body: bytes, path: str) -> SliceCompactionPlan:
        """Raises CorruptError, and UpgradeError for what later or very old plans have."""
        try:
            told = decoded(body)
            version = told["version"]
            bootstraps = any(one["bootstrapFilePath"] for one in told["operations"] or ())
            slices = tuple(_slice(one) for one in told["operations"] or ())
            compactor = (told["strategy"] or {}).get("compactorClassName")
            keeps = bool(told["preserveHoodieMetadata"])
            plan = cls(slices, told["extraMetadata"] or {}, compactor, keeps)
        except Exception as error:  # fastavro raises whatever comes
            what = "compaction plan is not readable"
            raise CorruptError(what, path=path, found=in_short(error)) from error
        if version != PLAN_VERSION or bootstraps:
            found = "bootstrap files" if bootstraps else version
            what = "compaction plan of a form that is not read"
            raise UpgradeError(what, path=path, expected=PLAN_VERSION, found=found)
        for one in slices:
            _check_places(one, path)
        return plan


def _operation(one: SliceCompaction) -> dict[str, Any]:
    return {
        "baseInstantTime": one.base_instant,
        "deltaFilePaths": list(one.log_names),
        "dataFilePath": one.base_name,
        "fileId": one.file_id,
        "partitionPath": one.partition_path,
        "metrics": dict(one.metrics),
        "bootstrapFilePath": None,
    }


def _slice(told: Mapping[str, Any]) -> SliceCompaction:
    partition_path, file_id, base_instant = (
        told[name] for name in ("partitionPath", "fileId", "baseInstantTime")
    )
    base_name, log_names = told["dataFilePath"] or None, tuple(told["deltaFilePaths"] or ())
    named = (partition_path, file_id, base_instant, *log_names, base_name or "")
    if not all(isinstance(one, str) for one in named):  # a file tells its own types
        raise ValueError(f"a slice without its place: {told}")
    metrics = told["metrics"] or {}
    return SliceCompaction(partition_path, file_id, base_instant, base_name, log_names, metrics)


def _check_places(one: SliceCompaction, path: str) -> None:
    """Names are joined to paths: none may lead elsewhere."""
    names = [one.file_id, *one.log_names, *([one.base_name] if one.base_name else [])]
    folders = one.partition_path.split("/") if one.partition_path else []
    for name in (*names, *folders):
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            what = "compaction plan names a file or folder elsewhere"
            raise CorruptError(what, path=path, expected="a bare name", found=name)
