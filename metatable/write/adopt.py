"""Adopt: an index for a table that another Hudi writer has made. No data file is touched.

    timeline    nothing may be under way on it; which files live (`data/hoodie/other_writers.py`)
    entries     one task per few files, which are held against what our writers go by
    duplicates  no key may be twice in its scope
    HFiles      as of a commit
    timeline    once more: what came meanwhile would be lost to the index
    savepoints  those of ours, from an earlier life of the table, become another writer's
    version 1   one put; with it the table is ours, and before it nothing was

Killed anywhere before the put the table is as it was, but for index files that nobody names
and `clean` finds. Of two who adopt it at once one is first. A commit of another writer that comes
between the last look and the put is noticed by a look after it, and by every writer of ours: the
root has the sum of the commits that it knows.

Version 1 holds the content of all commits before it. What was before cannot be had by us, so nobody
goes back behind it; old slices are garbage once `clean` comes, savepoints of Hudi's excepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from metatable.data.base_files.hadoop_checksum import put_over
from metatable.data.bucket_functions import HASH_SPACE
from metatable.data.columns.schema import normal
from metatable.data.columns.schema_on_read import refuse_renamed
from metatable.data.columns.schema_past import begun_anew, having_passed
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import COPY_ON_WRITE, MOST_BUCKETS, Options
from metatable.data.hoodie.other_writers import (
    LiveSlices,
    OtherTimeline,
    Written,
    columns_of_ours,
    live_slices,
    schema_of,
    written_as,
)
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.hoodie.savepoint_metadata import is_of_metatable, of_another_life
from metatable.data.hoodie.timeline import Timeline, completed_path, later_of
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.rows.merge import check_ordering
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.build import build_hfiles
from metatable.metadata.commits.known_commits import CommitSum
from metatable.metadata.commits.recovery import sweep_index_files
from metatable.metadata.commits.tidying import tidy
from metatable.metadata.hfiles.entry_files import Run, drop_runs
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Manifest, least_reader
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import PageRef, made_pages
from metatable.metadata.manifests.versions import put_hint
from metatable.metadata.partitions.overlap import check_clustered
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.written import stats_columns
from metatable.storage import clock
from metatable.storage.errors import ConflictError, CorruptError, UpgradeError, UsageError
from metatable.storage.store import Store
from metatable.write.keys_twice import refuse_duplicates
from metatable.write.stored_entries import passed_over, runs_of
from metatable.write.stored_files import StoredFiles

__all__ = ["OPERATION", "adopt_table", "enough_buckets"]

OPERATION = "adopt"

METADATA_TABLE = ".hoodie/metadata/.hoodie/hoodie.properties"

BUCKET_BYTES = 64 << 20
"""Entries of a bucket, in memory: an HFile is made of no less than one."""


def adopt_table(
    store: Store,
    engine: Engine[Any],
    properties: TableProperties,
    index: str,
    options: Mapping[str, Any],
) -> Manifest:
    """Version 1 of another writer's table.

    Raises UpgradeError for a table that our writers could not go on with, UsageError for options,
    for keys that are there twice, and for a store that knows no put-if-absent, ConflictError where
    somebody else is at work.
    """
    if store.size(METADATA_TABLE) is not None:
        raise UpgradeError(
            "Hudi keeps a metadata table of its own here, which our commits would leave behind."
            " One Spark write with hoodie.metadata.enable=false removes it, or hudi-cli's"
            " `metadata delete`",
            path=METADATA_TABLE,
        )
    written = written_as(properties)
    timeline = OtherTimeline.load(store)
    refuse_renamed(store)
    first = _first_version(written, _columns(store, timeline, properties), index, options)
    store.check_refusals()
    owner = Owner.new(OPERATION)
    try:
        live = live_slices(store, timeline)
        first = _with_entries(store, engine, first, live, owner, options.get("buckets", {}))
        first = _knowing(first, timeline, live)
        _check_unchanged(store, timeline)
        _keep_savepoints(store, timeline)
        if not store.create(first.path, first.encode()):
            raise ConflictError(
                "somebody else has just adopted this table: open it", path=store.uri
            )
    except (ConflictError, CorruptError, UpgradeError, UsageError):  # all calls are answered
        sweep_index_files(store, owner, first.options.buckets)
        raise
    tidy("the hint", partial(put_hint, store, first))
    _check_still_unchanged(store, timeline)
    return first


def _columns(store: Store, timeline: OtherTimeline, properties: TableProperties) -> TableSchema:
    """The columns, in the form of a table of ours, and with the ids of one that it was. Raises
    UpgradeError where they have none."""
    told = schema_of(store, timeline, properties)
    ours = columns_of_ours(store, timeline, told)
    if ours is not None:
        return begun_anew(ours)
    try:
        return TableSchema.of(normal(told))
    except UsageError as error:
        raise UpgradeError(
            "this table cannot be adopted, our writers do not take a column of it: create one from"
            " its rows",
            path=store.uri,
            found=str(error),
        ) from error


def _first_version(
    written: Written, columns: TableSchema, index: str, options: Mapping[str, Any]
) -> Manifest:
    """Version 1, without entries. Raises UsageError for options that cannot be, UpgradeError for
    what cannot be one whatever the options are."""
    schema = columns.arrow
    _check_named(written, schema)
    given = {"hive_style": written.hive_style, **options}
    if written.buckets is not None:
        given.setdefault("bucket_count", written.buckets)
    if given["hive_style"] != written.hive_style:
        raise UsageError(
            "the style of the partition paths is what it is",
            option="hive_style",
            expected=written.hive_style,
            found=given["hive_style"],
        )
    if given.get("table_type", COPY_ON_WRITE) != COPY_ON_WRITE:
        raise UsageError(
            "the type of the table is what it is",
            option="table_type",
            expected=COPY_ON_WRITE,
            found=given["table_type"],
        )
    made = Options.create(
        written.name,
        schema.names,
        key=written.key,
        partition_by=written.partition_by,
        ordering=written.ordering,
        index=index,
        options=given,
    )
    kept = partitions_of(made, create_index(made))
    made = made.keeping({one.name: one.bucket_count for one in kept})
    check_clustered(columns, made, made.cluster_by)
    return Manifest(1, OPERATION, columns.encode(), made, time_ms=clock.now_ms(), oldest=1)


def _check_named(written: Written, schema: pa.Schema) -> None:
    """Raises UpgradeError where the columns of the key, the partitions or the order are no columns
    of the table's own, or of types that ours cannot be of."""
    named = (*written.key, *written.partition_by, *filter(None, [written.ordering]))
    try:
        for name in named:
            if name not in schema.names:
                raise UsageError("no such column", column=name, expected=schema.names)
        KeyGenerator(Options(written.name, written.key, written.partition_by), schema)
        check_ordering(schema, written.ordering)
    except UsageError as error:
        raise UpgradeError(
            "this table cannot be adopted, our writers do not take a column of its key, partitions"
            " or order: create one from its rows",
            path=PROPERTIES_PATH,
            found=str(error),
        ) from error


def _with_entries(
    store: Store,
    engine: Engine[Any],
    first: Manifest,
    live: LiveSlices,
    owner: Owner,
    buckets: Collection[str],
) -> Manifest:
    """The version with entries of all live slices. `buckets`: partitions whose number of buckets
    was given."""
    view = Snapshot(store, first)
    index = create_index(first.options)
    partitions = partitions_of(first.options, index)
    columns = stats_columns(view.table_schema, first.options)
    files = StoredFiles.of(view, index, partitions, columns, foreign=True)
    scratch = engine.scratch(store, owner.name)
    told = runs_of(engine, files, scratch, live.slices)
    try:
        others, runs = passed_over(scratch, told)
        refuse_duplicates(engine, files, scratch, live.slices, runs)
        made = enough_buckets(first.options, partitions, runs, buckets)
        partitions = partitions_of(made, create_index(made))
        refs, unput = build_hfiles(engine, store, scratch, partitions, runs, owner)
    finally:
        drop_runs(scratch, told)
    rows = sum(run.entry_count for run in runs if run.partition not in made.buckets)
    pages: dict[str, tuple[PageRef, ...]] = {}
    for name, some in refs.items():
        ours = [replace(ref, sequence=1) for ref in some]
        pages[name], bodies = made_pages(name, ours, owner.prefix, chain(*pages.values()))
        unput |= bodies
    store.put_all(unput)
    schema = having_passed(view.table_schema, others)
    reader = least_reader(made, schema.misleads, pages=pages)
    return replace(
        first,
        schema=schema.encode(),
        options=made,
        pages=pages,
        format={**first.format, "reader": reader},
        summary={"files": len(live.slices), "rows": rows},
    )


def enough_buckets(
    options: Options,
    partitions: Sequence[MetadataPartition],
    runs: Sequence[Run],
    given: Collection[str],
) -> Options:
    """The options with enough buckets of each partition that one of them fits into memory, where
    the number was not given and does not decide where keys are."""
    wanted = dict(options.buckets)
    for one in partitions:
        held = sum(run.entry_bytes for run in runs if run.partition == one.name)
        if one.name not in given and one.space == HASH_SPACE:
            needed = min(-(-held // BUCKET_BYTES), MOST_BUCKETS)
            wanted[one.name] = max(one.bucket_count, needed)
    return replace(options, buckets=wanted)


def _knowing(first: Manifest, timeline: OtherTimeline, live: LiveSlices) -> Manifest:
    """The first version with what is told of the commits that it holds."""
    return replace(
        first,
        time_ms=clock.now_ms(),
        latest_instant=later_of(timeline.latest, live.left),
        withdrawn=live.left,
        last_commit=(1, max(timeline.instants)) if timeline.instants else None,
        commits=CommitSum.of(timeline.instants).encode(),
        archived=timeline.first,
        adopted=timeline.instants,
    )


def _check_unchanged(store: Store, timeline: OtherTimeline) -> None:
    if OtherTimeline.load(store) != timeline:
        raise ConflictError("another writer has been at work meanwhile: retry", path=store.uri)


def _keep_savepoints(store: Store, timeline: OtherTimeline) -> None:
    """Savepoints of ours, from before all else of ours was deleted, become another writer's. No
    version of the table names them: the next writer would take them off the timeline, as what a
    late hand has put there, and the next clean would delete their files."""
    for one in timeline.actions:
        path = completed_path(one.time, one.action)
        if one.action == "savepoint" and is_of_metatable(body := store.get(path) or b""):
            put_over(store, path, of_another_life(body, path))


def _check_still_unchanged(store: Store, timeline: OtherTimeline) -> None:
    """After the put: whoever came between the last look and that."""
    came = [one for one in Timeline(store).load() if one not in timeline.actions]
    if came:
        raise UpgradeError(
            "another writer has begun while the table was adopted, and the index will not hold its"
            " rows. Let it finish, delete the folder .hoodie/metatable, and adopt the table again",
            path=store.uri,
            found=[f"{one.time}.{one.action}" for one in came[:5]],
        )
