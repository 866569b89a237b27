"""What Hudi keeps of a rollback, and of a restore, on its timeline: Avro containers.

    <instant>.rollback.requested    HoodieRollbackPlan       which commit, which files
    <instant>.rollback              HoodieRollbackMetadata   the same, done
    <instant>.restore.requested     HoodieRestorePlan        which commits
    <instant>.restore               HoodieRestoreMetadata    of each what a rollback of it tells

The schemas are those of Hudi's own classes, 0.15 to 1.2. Its readers do not look; its tools list
them, and its archive takes them along. Data files are told by their whole addresses, as Hudi does.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from metatable.storage.errors import CorruptError

__all__ = ["UNDOING", "Undone", "undo_metadata", "undo_plan"]

UNDOING = ("rollback", "restore")
"""Actions that are told so."""

_SPACE = "org.apache.hudi.avro.model"
_TEXT = {"type": "string", "avro.java.string": "String"}
_TEXTS = {"type": "array", "items": _TEXT}
_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": _SPACE, "fields": list(fields)}


def _field(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": type_}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _maybe(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type_], "default": None}


def _some(name: str, items: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": "array", "items": items}, "default": []}


_INSTANT = _record("HoodieInstantInfo", _field("commitTime", _TEXT), _field("action", _TEXT))
_REQUEST = _record(
    "HoodieRollbackRequest",
    _field("partitionPath", _TEXT),
    _maybe("fileId", _TEXT),
    _maybe("latestBaseInstant", _TEXT),
    _some("filesToBeDeleted", _TEXT),
    _maybe("logBlocksToBeDeleted", _map("long")),
)
_PARTITION = _record(
    "HoodieRollbackPartitionMetadata",
    _field("partitionPath", _TEXT),
    _field("successDeleteFiles", _TEXTS),
    _field("failedDeleteFiles", _TEXTS),
    _maybe("rollbackLogFiles", _map("long")),
    _maybe("logFilesFromFailedCommit", _map("long")),
)
_ROLLBACK = _record(
    "HoodieRollbackMetadata",
    _field("startRollbackTime", _TEXT),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("commitsRollback", _TEXTS),
    _field("partitionMetadata", _map(_PARTITION)),
    _VERSION,
    _some("instantsRollback", _INSTANT),
)
_PLANS = {
    "rollback": fastavro.parse_schema(
        _record(
            "HoodieRollbackPlan",
            _maybe("instantToRollback", _INSTANT),
            _maybe("RollbackRequests", {"type": "array", "items": _REQUEST}),
            _VERSION,
        )
    ),
    "restore": fastavro.parse_schema(
        _record(
            "HoodieRestorePlan",
            _some("instantsToRollback", _INSTANT),
            {**_VERSION, "default": 2},
            _maybe("savepointToRestoreTimestamp", _TEXT),
        )
    ),
}
_DONE = {
    "rollback": fastavro.parse_schema(_ROLLBACK),
    "restore": fastavro.parse_schema(
        _record(
            "HoodieRestoreMetadata",
            _field("startRestoreTime", _TEXT),
            _field("timeTakenInMillis", "long"),
            _field("instantsToRollback", _TEXTS),
            _field("hoodieRestoreMetadata", _map({"type": "array", "items": ["null", _ROLLBACK]})),
            _VERSION,
            _some("restoreInstantInfo", f"{_SPACE}.HoodieInstantInfo"),
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
        return _encoded(_DONE[action], record)
    record = {
        "startRestoreTime": instant,
        "timeTakenInMillis": 0,
        "instantsToRollback": list(each),
        "hoodieRestoreMetadata": {time: [told] for time, told in each.items()},
        "restoreInstantInfo": [_instant(one) for one in undone],
    }
    return _encoded(_DONE[action], record)


def undo_plan(action: str, body: bytes, path: str) -> bytes:
    """The requested file that goes with this completed one. Raises CorruptError."""
    try:
        [told] = fastavro.reader(io.BytesIO(body))
        plan = _restore_plan(told) if action == "restore" else _rollback_plan(told)
        return _encoded(_PLANS[action], plan)
    except Exception as error:  # fastavro raises whatever comes
        raise CorruptError(f"{action} is not readable", path=path, found=repr(error)) from error


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


def _encoded(schema: Any, record: dict[str, Any]) -> bytes:
    with io.BytesIO() as file:
        fastavro.writer(file, schema, [record])
        return file.getvalue()
