"""Own commits: what becomes of commits of ours whose version is lost, as the newest root has no
twin.

    waits      its plan waits again, as the version before has it; whoever carries it out next finds
               its files made
    undone     a resize, of which buckets its files are stood in its root alone, or an `alter` that
               does not tell its columns, as earlier releases wrote: no row is lost with it
    left       one of these that cannot be undone: slices from before are gone, or later commits of
               ours are as lost, which may be of the new buckets or columns
    published  any other, again, with all of its rows, and with its columns
"""

from __future__ import annotations

from enum import Enum

from metatable.compaction.checks.commit_bodies import Action, body_of
from metatable.compaction.checks.kept_versions import Versions
from metatable.compaction.checks.live_slices import LiveSlices
from metatable.compaction.checks.timeline_check import TimelineState
from metatable.data.columns.avro_schema import from_avro
from metatable.data.columns.schema_changes import with_new_columns
from metatable.data.columns.schema_text import TableSchema, parsed_schema
from metatable.data.hoodie.commit_metadata import COLUMNS, SCHEMA, CommitMetadata
from metatable.data.hoodie.operations import ALTER, RESIZE, hudi_word
from metatable.data.hoodie.timeline import completed_path
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.partitions.snapshot import Snapshot

__all__ = ["Way", "columns_with", "ways_of"]


class Way(Enum):
    """What becomes of one; the values are remedies, in words."""

    WAITS = "taken off the timeline: its plan waits, and can be carried out again"
    UNDONE = "undone, with its files: no row was changed by it"
    LEFT = ""
    PUBLISHED = "published again, with all of its rows"


def ways_of(
    snapshot: Snapshot, versions: Versions, state: TimelineState, live: LiveSlices | None
) -> dict[Action, Way]:
    """What becomes of each. `snapshot`: of the newest version that is left, with what is `live` in
    it."""
    lost = {(one.slice.partition_path, one.slice.file_id) for one in live.lost} if live else set()
    ways: dict[Action, Way] = {}
    for one in state.ours:
        body = body_of(snapshot.store, versions, *one)
        told = None if body is None else CommitMetadata.decode(body, completed_path(*one))
        if one[0] in snapshot.manifest.compactions:
            ways[one] = Way.WAITS
        elif told is None or not _says_more(snapshot, told):
            ways[one] = Way.PUBLISHED
        else:
            is_free = one == state.ours[-1] and _groups(told).isdisjoint(lost)
            ways[one] = Way.UNDONE if is_free else Way.LEFT
    return ways


def _says_more(snapshot: Snapshot, told: CommitMetadata) -> bool:
    """Whether a commit that changed no row has said in its root what nothing else tells. Nobody
    clusters a table with buckets: to Hudi that is what a resize is called."""
    is_resize = snapshot.options.resizes and told.operation == hudi_word(RESIZE)
    return is_resize or (told.operation == hudi_word(ALTER) and COLUMNS not in told.extra)


def _groups(told: CommitMetadata) -> set[tuple[str, str]]:
    """(partition path, file id) of what a commit has replaced, or written."""
    replaced = told.replaced or {}
    gone = {(path, file_id) for path, ids in replaced.items() for file_id in ids}
    return gone | {(one.partition_path, one.file_id) for one in told.stats}


def columns_with(newest: Manifest, body: bytes, path: str) -> TableSchema:
    """The columns that a commit tells. Where it does not, as those of earlier releases, the table's
    and those that came with its rows, which get the ids that its files have: such are given in
    order. Raises CorruptError."""
    extra = CommitMetadata.decode(body, path).extra
    if COLUMNS in extra:
        return TableSchema.decode(extra[COLUMNS], path)
    schema, told = parsed_schema(newest.schema, newest.path), extra.get(SCHEMA)
    return with_new_columns(schema, from_avro(told, path), newest.options) if told else schema
