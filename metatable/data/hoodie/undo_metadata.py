"""What Hudi keeps of a rollback, and of a restore, on its timeline: Avro containers.

    <instant>.rollback.requested    HoodieRollbackPlan       which commit, which files
    <instant>.rollback              HoodieRollbackMetadata   the same, done
    <instant>.restore.requested     HoodieRestorePlan        which commits
    <instant>.restore               HoodieRestoreMetadata    of each what a rollback of it tells

The schemas are those of Hudi's own classes, 0.15 to 1.2. Its readers do not look; its tools list
them, and its archive takes them along. Data files are told by their whole addresses, as Hudi does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from metatable.data.hoodie.timeline_records import (
    SPACE,
    TEXT,
    TEXTS,
    VERSION,
    decoded,
    encoded,
    field,
    map_of,
    maybe,
    record,
    some,
)
from metatable.storage.errors import CorruptError, in_short

__all__ = ["UNDOING", "Undone", "undo_metadata", "undo_plan"]

UNDOING = ("rollback", "restore")
"""Actions that are told so."""

_INSTANT = record("HoodieInstantInfo", field("commitTime", TEXT), field("action", TEXT))
_REQUEST = record(
    "HoodieRollbackRequest",
    field("partitionPath", TEXT),
    maybe("fileId", TEXT),
    maybe("latestBaseInstant", TEXT),
    some("filesToBeDeleted", TEXT),
    maybe("logBlocksToBeDeleted", map_of("long")),
)
_PARTITION = record(
    "HoodieRollbackPartitionMetadata",
    field("partitionPath", TEXT),
    field("successDeleteFiles", TEXTS),
    field("failedDeleteFiles", TEXTS),
    maybe("rollbackLogFiles", map_of("long")),
    maybe("logFilesFromFailedCommit", map_of("long")),
)
_ROLLBACK = record(
    "HoodieRollbackMetadata",
    field("startRollbackTime", TEXT),
    field("timeTakenInMillis", "long"),
    field("totalFilesDeleted", "int"),
    field("commitsRollback", TEXTS),
    field("partitionMetadata", map_of(_PARTITION)),
    VERSION,
    some("instantsRollback", _INSTANT),
)
_PLANS = {
    "rollback": fastavro.parse_schema(
        record(
            "HoodieRollbackPlan",
            maybe("instantToRollback", _INSTANT),
            maybe("RollbackRequests", {"type": "array", "items": _REQUEST}),
            VERSION,
        )
    ),
    "restore": fastavro.parse_schema(
        record(
            "HoodieRestorePlan",
            some("instantsToRollback", _INSTANT),
            {**VERSION, "default": 2},
            maybe("savepointToRestoreTimestamp", TEXT),
        )
    ),
}
_DONE = {
    "rollback": fastavro.parse_schema(_ROLLBACK),
    "restore": fastavro.parse_schema(
        record(
            "HoodieRestoreMetadata",
            field("startRestoreTime", TEXT),
            field("timeTakenInMillis", "long"),
            field("instantsToRollback", TEXTS),
            field("hoodieRestoreMetadata", map_of({"type": "array", "items": ["null", _ROLLBACK]})),
            VERSION,
            some("restoreInstantInfo", f"{SPACE}.HoodieInstantInfo"),
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Undone:
    """A commit that is undone: its instant, its action, and by partition path the addresses of the
    data files that go with it."""

    instant: str
    action: str
    files: Mapping[str, Sequence[str]]


def undo_metadata(action: str, instant: str, undone: Sequence[Undone]) -> bytes:
    """The completed file of a `rollback` (of one commit) or a `restore` that takes this instant.

    It is made before anything is undone: how long that takes nobody knows.
    """
    each = {one.instant: _rollback(instant, one) for one in undone}
    if action == "rollback":
        [record] = each.values()
        return encoded(_DONE[action], record)
    record = {
        "startRestoreTime": instant,
        "timeTakenInMillis": 0,
        "instantsToRollback": list(each),
        "hoodieRestoreMetadata": {time: [told] for time, told in each.items()},
        "restoreInstantInfo": [_instant(one) for one in undone],
    }
    return encoded(_DONE[action], record)


def undo_plan(action: str, body: bytes, path: str) -> bytes:
    """The requested file that goes with this completed one. Raises CorruptError."""
    try:
        told = decoded(body)
        plan = _restore_plan(told) if action == "restore" else _rollback_plan(told)
        return encoded(_PLANS[action], plan)
    except Exception as error:  # fastavro raises whatever comes
        raise CorruptError(f"{action} is not readable", path=path, found=in_short(error)) from error


def _rollback(instant: str, undone: Undone) -> dict[str, Any]:
    return {
        "startRollbackTime": instant,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, undone.files.values())),
        "commitsRollback": [undone.instant],
        "partitionMetadata": {
            path: {
                "partitionPath": path,
                "successDeleteFiles": list(files),
                "failedDeleteFiles": [],
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for path, files in undone.files.items()
        },
        "instantsRollback": [_instant(undone)],
    }


def _instant(undone: Undone) -> dict[str, str]:
    return {"commitTime": undone.instant, "action": undone.action}


def _rollback_plan(told: Any) -> dict[str, Any]:
    [undone] = told["instantsRollback"]
    requests = [
        {
            "partitionPath": path,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": [file],
            "logBlocksToBeDeleted": {},
        }
        for path, held in told["partitionMetadata"].items()
        for file in held["successDeleteFiles"]
    ]
    return {"instantToRollback": undone, "RollbackRequests": requests}


def _restore_plan(told: Any) -> dict[str, Any]:
    return {"instantsToRollback": told["restoreInstantInfo"]}
