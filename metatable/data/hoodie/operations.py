"""Operations: what a commit is called in our history, to Hudi's readers, and on Hudi's timeline."""

from __future__ import annotations

from typing import Final

from metatable.data.hoodie.timeline import COMPACTION

__all__ = [
    "ALTER",
    "BULK_INSERT",
    "CLUSTER",
    "COMPACT_LOGS",
    "DELETE",
    "DELETE_PARTITION",
    "INSERT",
    "INSERT_OVERWRITE",
    "INSERT_OVERWRITE_TABLE",
    "MERGE",
    "OVERWRITING",
    "REPAIR",
    "RESIZE",
    "SERVING",
    "UPSERT",
    "action_of",
    "hudi_word",
]

INSERT: Final = "insert"
BULK_INSERT: Final = "bulk_insert"
UPSERT: Final = "upsert"
MERGE: Final = "merge"
DELETE: Final = "delete"
INSERT_OVERWRITE: Final = "insert_overwrite"
INSERT_OVERWRITE_TABLE: Final = "insert_overwrite_table"
DELETE_PARTITION: Final = "delete_partition"
ALTER: Final = "alter"
REPAIR: Final = "repair"
RESIZE: Final = "resize_buckets"
CLUSTER: Final = "cluster"
COMPACT_LOGS: Final = "compact_logs"

OVERWRITING = (INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE, DELETE_PARTITION)
"""Writes that take whole file groups away. Each is a `replacecommit` on Hudi's timeline, as are a
resize of buckets and a clustering, which take no row."""

_WORDS = {
    MERGE: "UPSERT",
    REPAIR: "DELETE",
    ALTER: "ALTER_SCHEMA",
    RESIZE: "CLUSTER",
    CLUSTER: "CLUSTER",
    COMPACT_LOGS: "COMPACT",
}

SERVING: Final = ("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT")
"""Hudi's words for services. Their commits tell the columns with which they began; a writer may
have added some since, and Hudi's readers pass over what they tell."""


def hudi_word(operation: str) -> str:
    """Hudi's word for an operation (`WriteOperationType`): its readers know no others."""
    return _WORDS.get(operation, operation.upper())


def action_of(operation: str, has_logs: bool) -> str:
    """What a data commit of this operation is on Hudi's timeline. `has_logs`: of a merge-on-read
    table."""
    if operation in (*OVERWRITING, RESIZE, CLUSTER):
        return "replacecommit"
    if operation == COMPACT_LOGS:
        return COMPACTION
    return "deltacommit" if has_logs else "commit"
