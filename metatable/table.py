"""Table: the face. Every method says what it does and hands it to the module that does it.

The engine is picked by the data: a Spark DataFrame brings its own session, everything else is
Arrow and runs in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import islice
from numbers import Integral
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from metatable.arguments import noted, one_of, some
from metatable.compaction.bucket_sizes import MERGE_BELOW, SPLIT_ABOVE, BucketSizes
from metatable.compaction.clean import Clean
from metatable.compaction.cluster import MOST_BYTES, Cluster
from metatable.compaction.compact import Compact
from metatable.compaction.log_compaction import CompactLogs, ScheduleLogs
from metatable.compaction.log_sizes import LOG_COUNT, LOG_RATIO, LogSizes
from metatable.compaction.repair import repair
from metatable.compaction.resize import Resize
from metatable.compaction.restore import Restore
from metatable.compaction.rollback import Rollback
from metatable.compaction.savepoint import DropSavepoint, Savepoint
from metatable.compaction.scheduled import TakeBack, carry_out_all, waiting
from metatable.compaction.service import Schedulable, Scheduled, due, execute
from metatable.compaction.service import schedule as scheduled
from metatable.compaction.set_options import SetOptions
from metatable.compaction.upkeep import keep_up, looks_after
from metatable.compaction.usage import usage
from metatable.compaction.verify import verify
from metatable.compaction.waiting_resize import CarryOutResize, ScheduleResize
from metatable.data.file_system_view import FileSystemView
from metatable.data.key_texts import identity_columns
from metatable.data.operations import (
    BULK_INSERT,
    DELETE,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    MERGE,
    UPSERT,
)
from metatable.data.options import Options
from metatable.data.schema_changes import ColumnChange
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.engines import engine_for, engine_of, is_spark
from metatable.index import create_index
from metatable.index.bucket.index import BucketIndex
from metatable.index.presence import present
from metatable.index.protocol import FOUND, LOCATION_COLUMN, count_found
from metatable.kept_version import newest_of, snapshot_at
from metatable.metadata.manifest import Manifest
from metatable.metadata.snapshot import Snapshot
from metatable.query.bucket_spread import PLACED, bucket_spread, count_placed
from metatable.query.buckets import buckets_of
from metatable.query.changes import Changes
from metatable.query.description import describe, savepoints, versions
from metatable.query.expressions import Expression, parse_where
from metatable.query.point_reads import read_keys
from metatable.query.predicates import bind
from metatable.query.scan import Scan
from metatable.query.skipping import keep_files
from metatable.results import (
    CommitInfo,
    DataFiles,
    Description,
    Explain,
    SavepointInfo,
    ServiceResult,
    WriteResult,
)
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write.alter import alter
from metatable.write.commit_pass import delete_partitions, write

__all__ = ["Table"]

OVERWRITES = {"partition": INSERT_OVERWRITE, "table": INSERT_OVERWRITE_TABLE}

AnyEngine = TypeVar("AnyEngine", bound=Engine[Any])


class Table:
    """A table at a place. Writers always work on the newest version; a reader pins one a call."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            expected = "metatable.open(uri), or metatable.create(uri, schema, key=…)"
            raise UsageError("a table is opened, not made", found=store, expected=expected)
        self._store = store
        self._newest()

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def counters(self) -> Counters:
        """All that this object has cost so far; the cost of a step is `counters.since(before)`.

        What a lazy Spark plan does later is not in it: `explain` runs such a plan and counts.
        """
        return self._store.counters

    @property
    def version(self) -> int:
        """The newest version."""
        return self._newest().version

    @property
    def instant(self) -> str | None:
        """Of the last data commit, the one that a rollback undoes; None: there is none."""
        last = self._newest().last_commit
        return None if last is None else last[1]

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns."""
        return self._snapshot(None).schema

    @property
    def options(self) -> Options:
        return self._newest().options

    def insert(
        self, rows: Any, *, note: Mapping[str, Any] | None = None, evolve: bool = False
    ) -> WriteResult:
        """Add rows. Raises UsageError where a key exists, ConflictError after lost races.

        `note`: a few names and values, such as `{"job": "nightly"}`, for `history` to tell; they
        stand beside the commit on Hudi's timeline, too.
        `evolve`: columns of the rows, and fields of their structs, that the table lacks become its
        own, in the same version: last, and null in all other rows.
        """
        return self._write(rows, INSERT, note, evolve)

    def bulk_insert(
        self,
        rows: Any,
        *,
        sort_by: str | Sequence[str] | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Add many rows, in new files of which each holds a range of the columns `sort_by`.

        Files, and rows in them, are in the order of these columns over the whole batch, then of
        the key (and without any, of the key): so `files(where=…)` on the first of them leaves few.
        Nulls come first. Small files are not filled up. Otherwise an insert: it refuses keys that
        exist. Raises UsageError for columns without an order, and where the index tells which file
        a row goes to.
        """
        texts, columns = noted(note), some("sort_by", sort_by, str) or ()
        return self._written(
            engine_of(rows),
            lambda on: write(self._store, on, rows, BULK_INSERT, texts, sort_by=columns),
        )

    def upsert(
        self, rows: Any, *, note: Mapping[str, Any] | None = None, evolve: bool = False
    ) -> WriteResult:
        """Add rows, or replace those of the same keys. Where nothing is new, no version is made."""
        return self._write(rows, UPSERT, note, evolve)

    def merge(
        self, rows: Any, *, note: Mapping[str, Any] | None = None, evolve: bool = False
    ) -> WriteResult:
        """Change some columns: rows of the key columns and those to be set, as they are, null too.

        Columns left out keep what is stored, or become null of a key that is new. In global scope
        the partition may be left out as well. Otherwise an upsert: by the ordering column, where
        it is given, older rows change nothing. Raises UsageError as upsert, and for new keys that
        lack their partition or a column that may not be null.
        """
        return self._write(rows, MERGE, note, evolve)

    def alter(
        self, *changes: ColumnChange, note: Mapping[str, Any] | None = None, engine: Any = None
    ) -> WriteResult:
        """Change columns, all at once, in one version: `AddColumn("tip", pyarrow.float64())`,
        `RenameColumn("fare", "price")`, `WidenColumn`, `DropColumn`, `MoveColumn`, `MakeNullable`;
        a field of a struct by its path, `"driver.name"`.

        Files stay as they are, and older versions keep their columns. Only a new name, or a name
        that was another column's, lets Hudi's readers, which go by names, not find a column in the
        files of before: then all files are written anew (with a Spark session as the `engine` on
        its cluster), unless the table was created with `hudi_readable=False`. Raises UsageError for
        what would lose values, and for key, partition and ordering columns; ConflictError after
        lost races.
        """
        texts = noted(note)
        return self._written(engine_for(engine), lambda on: alter(self._store, on, changes, texts))

    def set_options(self, options: Mapping[str, Any], *, dry_run: bool = False) -> ServiceResult:
        """Set options that say how new files are made and when services are due, such as
        `{"file_rows": 1_000_000, "cluster_by": ["at"]}`; files that are there stay as they are.

        Rollback and restore leave them as they are. `hfile_codecs` and `cluster_by` are given
        whole. Raises UsageError for other options, which what is stored goes by, and values out of
        range; ConflictError after lost races.
        """
        return self._serve(execute, SetOptions(options), dry_run=dry_run)

    def delete(self, keys: Any, *, note: Mapping[str, Any] | None = None) -> WriteResult:
        """Delete by key columns (in partition scope with the partition's); others are ignored."""
        return self._write(keys, DELETE, note)

    def insert_overwrite(
        self, rows: Any, *, by: str = "partition", note: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Replace whole partitions: those that occur among the rows, or, `by="table"`, all of them.

        Afterwards they hold these rows and no others. What was there is gone whatever the ordering
        column says: counted are keys that are new, that have come back, and that have not. No rows
        overwrite no partition, but empty the table. Raises UsageError as upsert, and for keys that
        live in a partition that stays.
        """
        operation = OVERWRITES.get(by) if isinstance(by, str) else None
        if operation is None:
            raise UsageError("overwritten by what?", found=by, expected=list(OVERWRITES))
        return self._write(rows, operation, note)

    def delete_partition(
        self, partitions: Any, *, note: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Delete all rows of partitions: `"city=Ulm"`, `{"city": "Ulm"}`, or several of either.

        Those that are not there are passed over, as absent keys are in `delete`: it may be
        repeated. Raises UsageError for what names no partition, and without partitions.
        """
        texts = noted(note)
        return self._written(
            LocalEngine(), lambda on: delete_partitions(self._store, on, partitions, texts)
        )

    def tag_locations(self, rows: Any, version: int | None = None) -> Any:
        """`rows` with the column `_location`: which file group holds each key, null for none.

        An index that follows from the key alone (`bucket`) names the one that would hold it;
        `filter_exists` says which keys are there.

        An Arrow table in the given order, or, of a Spark DataFrame, a lazy DataFrame that stays
        on the version it was made on.
        """
        return self._located(rows, version)

    def explain(self, rows: Any, version: int | None = None) -> Explain:
        """Run `tag_locations` for what it finds and costs, and keep nothing else of it.

        Counted is the work that was done: a file that two tasks look at (two partitions of a
        DataFrame with keys of one range) counts twice. Of a DataFrame only the key columns are
        read; what the steps make of them lies in Spark's cache until the end, for their
        counters are read from it (`spark/counting.py`).
        """
        began = time.perf_counter()
        snapshot = self._snapshot(version)
        with self._counted(engine_of(rows, counting=True)) as engine, snapshot.reading():
            tagged = self._tagged(engine, rows, snapshot, keys_only=True)
            index = create_index(snapshot.options)
            if isinstance(index, BucketIndex):
                counts = engine.run(tagged, partial(count_placed, index, snapshot), PLACED)
                spread = bucket_spread(snapshot, counts)
            else:
                found = engine.select(tagged, [LOCATION_COLUMN])
                counts, spread = engine.run(found, count_found, FOUND), None
        keys, hits = (pc.sum(counts[name]).as_py() or 0 for name in FOUND.names)
        told, seconds = dict(engine.counters), time.perf_counter() - began
        return Explain(keys, hits, seconds, told, files=_levels(told), buckets=spread)

    def filter_exists(self, rows: Any) -> Any:
        """The rows whose key is in the table: an Arrow table, or, of a DataFrame, a lazy one."""
        found = self._located(rows, None, proven=True)
        if isinstance(found, pa.Table):
            return found.filter(found[LOCATION_COLUMN].is_valid()).drop_columns([LOCATION_COLUMN])
        return found.where(f"{LOCATION_COLUMN} is not null").drop(LOCATION_COLUMN)

    def read_keys(
        self, keys: Any, columns: Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """The rows of these keys; reads only the files that hold them.

        Raises UsageError for keys without their columns, unknown columns, and for a Spark
        DataFrame: the rows come back to this process, and so do not grow with a cluster.
        """
        if is_spark(keys):
            raise UsageError(
                "read_keys reads in this process",
                expected="keys.toArrow() for a few of them; for many, scan().to_spark(session)",
                found="a Spark DataFrame",
            )
        snapshot = self._snapshot(version)
        with self._counted(LocalEngine()) as engine, snapshot.reading():
            return read_keys(engine, snapshot.counting(engine.counters), keys, columns)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        version: int | None = None,
        limit: int | None = None,
        as_of: str | date | None = None,
        read_optimized: bool = False,
    ) -> Scan:
        """The rows of a version (the newest by default) for which `where` is true.

        `as_of` names the version by a moment, as Hudi does: all commits with an instant up to it.
        An instant (`yyyyMMddHHmmssSSS`), a datetime, or ISO text; UTC unless it says another zone.
        `where`: `metatable.col("a") > 5`, or DNF tuples as pyarrow has them: `[("a", ">", 5)]`.
        `limit`: so many rows at most. `read_optimized`: of a merge-on-read table the base files
        alone, as the last compaction left them. Nothing is read yet; the `Scan` goes wherever
        Arrow goes: `pyarrow.table(scan)`, `polars.DataFrame(scan)`,
        `duckdb.sql("select … from scan")`. Raises UsageError for what the table does not have.
        """
        view = self._snapshot(version, as_of)
        return Scan(view, columns, where, limit, read_optimized)

    def changes(
        self,
        since: int | str | date,
        until: int | str | date | None = None,
        columns: Sequence[str] | None = None,
    ) -> Changes:
        """What has come to be between two versions: rows with the column `_change_type`.

        `insert` and `update` rows are those of `until` (the newest version by default), `delete`
        rows those of `since`. Either is named by its number or, as in `scan`, by a moment; 0 is
        before the first row. Net: of a row that changed twice the last state. Where to go on from
        is the answer's `until`. Nothing is read yet; the rows go wherever those of a `Scan` go.
        Raises StaleError where one of them is not kept any more or was undone, UsageError where
        `since` is the later one.
        """
        if since is None:
            raise UsageError("begin after which version?", expected="its number, a moment, or 0")
        after = self._at(until)
        before = None if _is_zero(since) else self._at(since)
        if before is not None and before.version > after.version:
            raise UsageError("changes go forward", since=before.version, until=after.version)
        return Changes(before, after, columns)

    def files(
        self,
        where: Any = None,
        version: int | None = None,
        as_of: str | date | None = None,
        read_optimized: bool = False,
    ) -> DataFiles:
        """The data files that may hold a row for which `where` is true, with their rows.

        A sequence; its `uris` go to any Parquet reader:
        `duckdb.read_parquet(files.uris, hive_partitioning=False)`; of a merge-on-read table they
        are given where no logs lie on them, or with `read_optimized`. Raises as `scan`.
        """
        scan = self.scan(where=where, version=version, as_of=as_of, read_optimized=read_optimized)
        return scan.files()

    def compact(
        self,
        *,
        major: bool = False,
        partitions: str | Sequence[str] | None = None,
        buckets: int | Sequence[int] | None = None,
        engine: Any = None,
        dry_run: bool = False,
        schedule: bool = False,
        plan: str | None = None,
    ) -> ServiceResult:
        """Merge the HFiles of the metadata partitions, bucket by bucket; changes no answer.

        `engine`: a Spark session, to run a task a bucket range on its cluster. `dry_run`: only
        say what is due; nothing is written. `schedule`: only store what is due, as a plan whose
        name is the result's `plan`; `plan`: carry out the one of this name, now, here or
        elsewhere. Raises StaleError where others have merged meanwhile what it would merge, and
        NotFoundError where it is carried out.
        """
        chosen = some("partitions", partitions, str), some("buckets", buckets, int)
        return self._planned(
            Compact(major, *chosen),
            engine,
            dry_run=dry_run,
            schedule=schedule,
            plan=plan,
            major=major,
            partitions=partitions,
            buckets=buckets,
        )

    def resize_buckets(
        self,
        *,
        split_above: int = SPLIT_ABOVE,
        merge_below: int = MERGE_BELOW,
        cut: str = "middle",
        partitions: str | Sequence[str] | None = None,
        most_partitions: int | None = None,
        most_bytes: int | None = None,
        engine: Any = None,
        dry_run: bool = False,
        writers: str | None = None,
        schedule: bool = False,
        plan: str | None = None,
        take_back: bool = False,
    ) -> ServiceResult:
        """Split buckets above a size (bytes of their files), and merge neighbours that are both
        below another one, of a table whose `bucket_engine` has rings; no row changes.

        `cut`: in the `middle` of a bucket's range, or at the `median` of its keys' hashes.
        `partitions` (paths), `most_partitions`, `most_bytes`: how much at once; what is left is due
        again. Buckets and rings change by one commit, a `replacecommit` on Hudi's timeline; whoever
        writes to them meanwhile tries again, and so does this. `engine`, `dry_run`, `schedule`,
        `plan`: as in `compact`.

        `writers` (`table_type="mor"`): they go on meanwhile, and neither side waits for the other,
        by `dual_write`, twice, or by `virtual_log`, once, where only this library's readers see
        it until the resize is done (splits alone). What waits is carried out, then what is due;
        `schedule`, `plan` (an instant), `take_back`: as in `compact_logs`. Raises UsageError,
        ConflictError after lost races, NotFoundError for an instant that is carried out, and
        StaleError for a plan whose partitions were resized since.
        """
        chosen = some("partitions", partitions, str)
        sizes = BucketSizes(split_above, merge_below, cut, chosen, most_partitions, most_bytes)
        set_sizes = sizes != BucketSizes()
        # what goes on beside writers is named by its instant, other plans by service and number
        if writers is not None or take_back or (isinstance(plan, str) and plan.isdecimal()):
            return self._beside_writers(
                ScheduleResize(sizes, writers or ""),
                CarryOutResize,
                engine,
                dry_run=dry_run,
                schedule=schedule,
                plan=plan,
                take_back=take_back,
                sizes=set_sizes,
                writers=writers,
            )
        return self._planned(
            Resize(sizes), engine, dry_run=dry_run, schedule=schedule, plan=plan, sizes=set_sizes
        )

    def cluster(
        self,
        where: Any = None,
        by: str | Sequence[str] | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        engine: Any = None,
        dry_run: bool = False,
    ) -> ServiceResult:
        """Cut the file groups anew whose rows overlap most, so that a value is in few files; no row
        changes.

        `by`: columns, in the order of one or along a space-filling curve through several; by
        default those that the table was created with (`cluster_by`), else its key. `where`: only
        of files that may hold such rows. `most_bytes`: how much at once; what is left is due again.
        Logs are merged in. The result's `depth_before` and `depth_after` say in how many files a
        value of each column is, on average. `engine`, `dry_run`: as in `compact`. Raises UsageError
        for columns without order or statistics, and where the index tells which file a row goes to;
        ConflictError after lost races.
        """
        chosen = partial(_may_hold, parse_where(where))
        service = Cluster(some("by", by, str) or (), chosen, most_bytes)
        return self._serve(execute, service, engine, dry_run=dry_run)

    def compact_logs(
        self,
        *,
        ratio: float = LOG_RATIO,
        count: int = LOG_COUNT,
        hours: float | None = None,
        partitions: str | Sequence[str] | None = None,
        most_bytes: int | None = None,
        engine: Any = None,
        dry_run: bool = False,
        schedule: bool = False,
        plan: str | None = None,
        take_back: bool = False,
    ) -> ServiceResult:
        """Make one new base file of the base and the logs of file groups (`table_type="mor"`); no
        row changes.

        Due is a group whose logs come to `ratio` of the bytes of its base file (any, where it has
        none), are `count` or more, or began `hours` ago. `partitions` (paths), `most_bytes`: how
        much at once, those first whose bytes are logs for the most part. `schedule`: only plan it,
        on Hudi's timeline too: the result's `plan`, an instant. Writers go on, on top, and neither
        side waits for the other. `plan`: carry that one out, here or elsewhere, as often as it
        takes; without one all that waits is carried out, then what is due. `take_back`: of a plan,
        forget it instead, while no log lies on top. `engine`: a Spark session; `dry_run`: only say
        what is due. Raises UsageError; NotFoundError for a plan that is carried out; ConflictError
        after lost races.
        """
        sizes = LogSizes(ratio, count, hours, some("partitions", partitions, str), most_bytes)
        return self._beside_writers(
            ScheduleLogs(sizes),
            CompactLogs,
            engine,
            dry_run=dry_run,
            schedule=schedule,
            plan=plan,
            take_back=take_back,
            sizes=sizes != LogSizes(),
        )

    def due(self) -> list[ServiceResult]:
        """What services have to do now; nothing of it is done. Empty: nothing.

        Plans that `schedule=True` has stored and nobody has carried out, a minor compaction, a
        `clean` as it is by default, and so a resize of buckets, a compaction of logs and a
        clustering by the table's own columns, where it has such. Lists all files once.
        """
        resizes = [Resize()] if self.options.resizes else []
        logs = [ScheduleLogs()] if self.options.has_logs else []
        cuts = [Cluster()] if self.options.cluster_by else []
        found = due(self._store, [Compact(), Clean(dry=True), *resizes, *logs, *cuts])
        return [*waiting(self._store), *found]

    def clean(
        self, *, versions: int = 10, hours: float = 24.0, dry_run: bool = False
    ) -> ServiceResult:
        """Delete what only versions need that are not kept, and what lost races have left; archive
        Hudi's timeline.

        Kept are the newest `versions` that commits have made (and those of services between them),
        and those that were the newest within the last `hours`, for whoever reads one now may have
        begun then; the others raise StaleError from now on.
        `dry_run`: say what would go; nothing is written. Raises UsageError, and ConflictError after
        lost races; killed anywhere, the next one goes on.
        """
        return self._serve(execute, Clean(versions, hours, dry_run), dry_run=dry_run)

    def rollback(self, instant: str | None = None, *, dry_run: bool = False) -> ServiceResult:
        """Undo the last data commit, and the services that came after it.

        `instant`: undo this one and no other. It may then be repeated when an answer was lost:
        what is undone already stays so. `dry_run`: prove that it can be done, and write nothing.
        Raises UsageError where it is not the last one, and ConflictError or StaleError where
        somebody else has published meanwhile, a clean too: then nothing was undone.
        """
        return self._serve(execute, Rollback(instant), dry_run=dry_run)

    def restore(
        self,
        version: int | None = None,
        *,
        as_of: str | date | None = None,
        savepoint: str | None = None,
        dry_run: bool = False,
    ) -> ServiceResult:
        """Go back to a version that is kept, named by its number, a moment, or a savepoint.

        Every commit since then is undone, at once, with the services that came after. Raises
        UsageError where a savepoint is newer (drop it first), where a compaction of logs that the
        version holds was undone, or where no commit of it is left on Hudi's timeline; StaleError
        where it is not kept, or was undone itself; and as `rollback` where somebody else has
        published meanwhile.
        """
        if version is None and as_of is None and savepoint is None:
            raise UsageError("go back where to?", expected="version=, as_of= or savepoint=")
        one_of(version=version, as_of=as_of, savepoint=savepoint)
        newest = self._newest()
        if savepoint is not None:
            pin = newest.pins.get(savepoint)
            if pin is None:
                raise UsageError("no such savepoint", found=savepoint, expected=sorted(newest.pins))
            version = pin.version
        target = self._snapshot(version, as_of)
        return self._serve(execute, Restore(target.version), dry_run=dry_run)

    def savepoint(
        self, name: str, version: int | None = None, *, note: str = "", dry_run: bool = False
    ) -> ServiceResult:
        """Keep a version (the newest by default) under a name until `drop_savepoint`: `clean` does
        not touch it, no commit of it is undone, and Hudi's timeline goes back to it at least.

        It is the version of the last commit that `version` holds. Raises UsageError for names that
        are taken or none, and for versions without commits or out of order.
        """
        if not isinstance(note, str):
            raise UsageError("a note is a text", found=note)
        if version is not None:
            version = self._snapshot(version).version
        return self._serve(execute, Savepoint(name, version, note), dry_run=dry_run)

    def drop_savepoint(self, name: str, *, dry_run: bool = False) -> ServiceResult:
        """Keep it no longer. Raises UsageError where there is none of this name."""
        return self._serve(execute, DropSavepoint(name), dry_run=dry_run)

    def savepoints(self) -> list[SavepointInfo]:
        """Those that there are, by version."""
        return savepoints(self._newest())

    def verify(self) -> ServiceResult:
        """Read the data and hold the index against it, both ways; Hudi's timeline, and whether all
        versions that are kept can be read.

        `findings` are faults, each of a `kind`, with the `remedy` that `repair` has for it. Raises
        StaleError where a commit of this version was undone, or its index changed, meanwhile.
        """
        snapshot = self._snapshot(None)
        with self._counted(LocalEngine()) as engine, snapshot.reading():
            return verify(engine, snapshot.counting(engine.counters))

    def repair(self, *, dry_run: bool = True) -> ServiceResult:
        """Mend what `verify` finds; unless `dry_run` is False only say what would be done, in the
        `remedy` of each finding. `unmended` are those that have none.

        One version that others see whole or not at all. Of data files that are lost or damaged
        the rows are gone: `rows_lost`. Raises ConflictError where others always publish meanwhile;
        killed anywhere, the next one goes on.
        """
        with self._counted(LocalEngine()) as engine:
            return repair(self._store, engine, dry_run=dry_run)

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """Every version that is kept, newest first; the newest `limit` of them cost as many small
        requests."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise UsageError("a limit is a number", found=limit, expected="an int, or None")
        if limit is not None and limit < 0:
            raise UsageError("a limit is not negative", found=limit)
        newest = self._newest()
        most = newest.version if limit is None else min(limit, newest.version)
        return list(islice(versions(self._store, newest), most))

    def describe(self, *, listing: bool = False) -> Description:
        """What the table is, and how much there is of it.

        `listing`: list all files, too, and say in `usage` how many bytes are live, kept for older
        versions, and reclaimable by `clean`.
        """
        snapshot = self._snapshot(None)
        told = describe(snapshot)
        return replace(told, usage=usage(self._store, snapshot.manifest)) if listing else told

    def buckets(
        self, partitions: str | Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """The buckets of a table that has rings of them, one a row: `partition_path`, the range of
        hashes (`after`, `upto`], `file_id`, `bytes`, `rows` (null: no file yet), and how often the
        partition was `resized`. `partitions`: of these alone (paths). Raises UsageError where there
        are no rings."""
        return buckets_of(self._snapshot(version), some("partitions", partitions, str))

    def _write(
        self, rows: Any, operation: str, note: Mapping[str, Any] | None, evolve: bool = False
    ) -> WriteResult:
        texts = noted(note)
        return self._written(
            engine_of(rows),
            lambda on: write(self._store, on, rows, operation, texts, evolve=evolve),
        )

    def _written(
        self, chosen: Engine[Any], work: Callable[[Engine[Any]], WriteResult]
    ) -> WriteResult:
        """A commit, and what falls to its writer behind it."""
        with self._counted(chosen) as engine:
            done = work(engine)
        if looks_after(done.version):
            with self._counted(LocalEngine()) as engine:
                keep_up(self._store, engine)
        return done

    def _serve(
        self, run: Callable[..., ServiceResult], service: Any, session: Any = None, **how: Any
    ) -> ServiceResult:
        with self._counted(engine_for(session)) as engine:
            return run(self._store, engine, service, **how)

    def _planned(
        self,
        service: Schedulable[Any],
        engine: Any,
        *,
        dry_run: bool,
        schedule: bool,
        plan: str | None,
        **asked: Any,
    ) -> ServiceResult:
        """Store the plan of what is due, carry out a stored one, or plan and work at once.
        `asked`: what a stored plan says itself, so that both are refused."""
        if schedule:
            one_of(schedule=True, dry_run=dry_run, plan=plan)
            return self._serve(scheduled, service)
        if plan is None:
            return self._serve(execute, service, engine, dry_run=dry_run)
        one_of(plan=plan, **asked)
        return self._serve(execute, Scheduled(service, plan), engine, dry_run=dry_run)

    def _beside_writers(
        self,
        service: ScheduleLogs | ScheduleResize,
        carry_out: type[CompactLogs | CarryOutResize],
        engine: Any,
        *,
        dry_run: bool,
        schedule: bool,
        plan: str | None,
        take_back: bool,
        **asked: Any,
    ) -> ServiceResult:
        """Schedule what is due, carry out or take back what waits (`plan`), or carry out all that
        waits and what is due. `asked`: as in `_planned`."""
        if schedule:
            one_of(schedule=True, dry_run=dry_run, plan=plan, take_back=take_back)
            return self._serve(execute, service)
        if plan is None:
            if take_back:
                raise UsageError("take back of which plan?", expected="plan=")
            every = partial(carry_out_all, carry_out=carry_out)
            return self._serve(every, service, engine, dry_run=dry_run)
        if not isinstance(plan, str):
            expected = "an instant, as schedule=True names it"
            raise UsageError("not the name of a plan", found=plan, expected=expected)
        one_of(plan=plan, **asked)
        chosen = TakeBack(plan, service.reserves) if take_back else carry_out(plan)
        return self._serve(execute, chosen, engine, dry_run=dry_run)

    def _located(self, rows: Any, version: int | None, proven: bool = False) -> Any:
        """With `_location`, in this process as a table; `proven`: null where no file holds it."""
        snapshot = self._snapshot(version)
        with self._counted(engine_of(rows)) as engine, snapshot.reading():
            tagged = self._tagged(engine, rows, snapshot, proven=proven)
            return engine.to_table(tagged) if isinstance(engine, LocalEngine) else tagged

    def _tagged(
        self,
        engine: Engine[Any],
        rows: Any,
        snapshot: Snapshot,
        keys_only: bool = False,
        proven: bool = False,
    ) -> Any:
        snapshot = snapshot.holding().counting(engine.counters)
        adopted = engine.rows(rows)
        needed = identity_columns(snapshot.options, engine.schema(adopted).names)
        if keys_only:
            adopted = engine.select(adopted, needed)
        index = create_index(snapshot.options)
        tag = partial(present, index) if proven else index.tag
        return tag(engine, adopted, snapshot)

    @contextmanager
    def _counted(self, engine: AnyEngine) -> Iterator[AnyEngine]:
        """What the engine counts in this block is the table's cost too."""
        try:
            yield engine
        finally:
            self._store.counters.merge(engine.counters)

    def _newest(self) -> Manifest:
        return newest_of(self._store)

    def _at(self, moment: int | str | date | None) -> Snapshot:
        """A version by its number or by a moment; the newest of None."""
        if isinstance(moment, str | date):
            return self._snapshot(None, moment)
        return self._snapshot(moment)

    def _snapshot(self, version: int | None, as_of: str | date | None = None) -> Snapshot:
        return snapshot_at(self._store, version, as_of)

    def __repr__(self) -> str:
        newest = self._newest()
        return f"Table({self.uri!r}, version={newest.version}, index={newest.options.index!r})"


def _may_hold(where: Expression | None, view: Snapshot) -> FileSystemView:
    """The slices of this version that may hold such rows."""
    bound = None if where is None else bind(where, view.schema)
    return keep_files(bound, view).files()


def _is_zero(version: Any) -> bool:
    """Whether it is the version before the first one."""
    return isinstance(version, Integral) and not isinstance(version, bool) and version == 0


_LEVELS = {
    "in the partitions": "tag.files",
    "after key ranges": "tag.files_after_ranges",
    "after filters": "tag.files_after_filters",
    "opened": "tag.files_opened",
}


def _levels(counters: Mapping[str, int]) -> dict[str, int]:
    """Files after each level of a lookup; nothing for an index that looks at no files."""
    if "tag.files" not in counters:
        return {}
    return {level: counters.get(name, 0) for level, name in _LEVELS.items()}
