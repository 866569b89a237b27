"""What Hudi keeps of a savepoint on its timeline: `HoodieSavepointMetadata`, an Avro container.

The schema is that of Hudi's own classes, 0.15 to 1.2. Its cleaner and archiver keep the files that
are named here; readers do not look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import fastavro

from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.timeline_records import (
    TEXT,
    TEXTS,
    VERSION,
    decoded,
    encoded,
    field,
    map_of,
    record,
)
from metatable.storage.errors import CorruptError, in_short

__all__ = [
    "HEAD_BYTES",
    "is_of_metatable",
    "is_of_others",
    "may_be_of_metatable",
    "of_another_life",
    "saved_files",
    "savepoint_metadata",
]

HEAD_BYTES = 4 << 10
"""So much of a savepoint tells whether it may be of ours, which have the maker's name within their
first 1,000 bytes."""

MAKER = "metatable"
FORMER = "an earlier life of this table"
"""Who has made what was ours when the table was adopted: no tool of Hudi's asks for a name."""

_PARTITION = record(
    "HoodieSavepointPartitionMetadata",
    field("partitionPath", TEXT),
    field("savepointDataFile", TEXTS),
)
_SCHEMA = fastavro.parse_schema(
    record(
        "HoodieSavepointMetadata",
        field("savepointedBy", TEXT),
        field("savepointedAt", "long"),
        field("comments", TEXT),
        field("partitionMetadata", map_of(_PARTITION)),
        VERSION,
    )
)


def is_of_metatable(body: bytes) -> bool:
    """Whether this completed file is of one of ours. Of one that cannot be read the answer may be
    wrong for a savepoint whose comments, or partitions, say so."""
    try:
        return bool(decoded(body)["savepointedBy"] == MAKER)
    except Exception:  # fastavro raises whatever comes
        return MAKER.encode() in body


def may_be_of_metatable(head: bytes) -> bool:
    """Whether a completed file that begins so may be one of ours, which are stored plainly."""
    return MAKER.encode() in head


def is_of_others(body: bytes) -> bool:
    """Whether Hudi's own tools have made this completed file. What cannot be read is nobody's."""
    if is_of_metatable(body):
        return False
    try:
        decoded(body)
    except Exception:  # fastavro raises whatever comes
        return False
    return True


def savepoint_metadata(slices: Sequence[FileSlice], time_ms: int, note: str) -> bytes:
    """The completed file of a savepoint of these slices, made at `time_ms` (epoch, UTC)."""
    held: dict[str, list[str]] = {}
    for one in slices:
        held.setdefault(one.partition_path, []).extend(one.names)
    told: dict[str, Any] = {
        "savepointedBy": MAKER,
        "savepointedAt": time_ms,
        "comments": note,
        "partitionMetadata": {
            path: {"partitionPath": path, "savepointDataFile": names}
            for path, names in held.items()
        },
        "version": 1,
    }
    return encoded(_SCHEMA, told)


def of_another_life(body: bytes, path: str) -> bytes:
    """The same savepoint, but not of ours: for a table of which nothing else of ours is left, so
    that no version of it has ever made one, or dropped it. Raises CorruptError."""
    try:
        return encoded(_SCHEMA, {**decoded(body), "savepointedBy": FORMER})
    except Exception as error:  # fastavro raises whatever comes
        raise CorruptError("savepoint is not readable", path=path, found=in_short(error)) from error


def saved_files(body: bytes, path: str) -> Iterator[str]:
    """Paths of the data files that a savepoint, whoever made it, keeps. `path`: its own.

    Raises CorruptError.
    """
    try:
        for folder, held in decoded(body)["partitionMetadata"].items():
            for name in held["savepointDataFile"]:
                yield f"{folder}/{name}" if folder else name
    except Exception as error:  # fastavro raises whatever comes
        raise CorruptError("savepoint is not readable", path=path, found=in_short(error)) from error
