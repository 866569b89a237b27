"""Table: what users call. Each method says what it does, and the module that does it is called.

The engine is picked by the data: a Spark DataFrame brings its own session, everything else is
Arrow and runs in this process. (The module is long because it is the manual: most of it is what
users read of the methods.)
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

from metatable.arguments import in_order, noted, noted_text, one_of, some
from metatable.compaction.checks.repair import repair
from metatable.compaction.checks.verify import verify
from metatable.compaction.cleaning.clean import Clean
from metatable.compaction.cleaning.usage import usage
from metatable.compaction.merging.compact import Compact
from metatable.compaction.merging.upkeep import keep_up, looks_after
from metatable.compaction.reshaping.bucket_sizes import MERGE_BELOW, SPLIT_ABOVE, BucketSizes
from metatable.compaction.reshaping.cluster import MOST_BYTES, Cluster, may_cut
from metatable.compaction.reshaping.log_compaction import (
    CompactLogs,
    ScheduleLogs,
    carry_out,
)
from metatable.compaction.reshaping.log_sizes import LOG_COUNT, LOG_RATIO, LogSizes
from metatable.compaction.reshaping.resize import Resize
from metatable.compaction.reshaping.waiting_plans import waiting
from metatable.compaction.reshaping.waiting_resize import CarryOutResize, ScheduleResize
from metatable.compaction.service import due, execute, looking
from metatable.compaction.set_options import SetOptions
from metatable.compaction.ways_back.restore import Restore
from metatable.compaction.ways_back.rollback import Rollback
from metatable.compaction.ways_back.savepoint import DropSavepoint, Savepoint, pin_of
from metatable.data.columns.schema_changes import ColumnChange
from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.hoodie.operations import (
    BULK_INSERT,
    DELETE,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    MERGE,
    UPSERT,
)
from metatable.due_work import Asked, beside_writers, planned
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.engine_choice import engine_for, engine_of, is_spark
from metatable.index.locations import LOCATION_COLUMN
from metatable.kept_version import snapshot_at
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import last_met, newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query.buckets import buckets_of
from metatable.query.changes import Changes
from metatable.query.description import describe, savepoints, versions
from metatable.query.expressions import Expression, parse_where
from metatable.query.locations import explain_lookup, tagged
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
    """A table, made by `metatable.create` and `metatable.open`.

    Each read uses one version; writes always start from the newest.
    """

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            expected = "metatable.open(uri), or metatable.create(uri, schema, key=…)"
            raise UsageError("a table is opened, not made", found=store, expected=expected)
        self._store = store
        self._opened = self._newest()

    @property
    def uri(self) -> str:
        """Where the table is: the path of a folder, or an address such as `s3://bucket/rides`."""
        return self._store.uri

    @property
    def counters(self) -> Counters:
        """What this object has asked of the store so far, by name.

        The cost of a step is `counters.since(before)`, with `before = dict(counters)` taken before
        the step. What a lazy Spark plan does later is not counted here: `explain` runs such a plan
        and counts.
        """
        return self._store.counters

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self._newest().version

    @property
    def instant(self) -> str | None:
        """The instant of the last data commit, which `rollback` would undo; None before the
        first."""
        last = self._newest().last_commit
        return None if last is None else last[1]

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns."""
        return self._snapshot(None).schema

    @property
    def options(self) -> Options:
        """The table's options, as they are in the newest version."""
        return self._newest().options

    def insert(
        self, rows: Any, *, note: Mapping[str, Any] | None = None, evolve: bool = False
    ) -> WriteResult:
        """Add rows. Raises UsageError where a key exists, ConflictError after lost races.

        `rows`: a Spark DataFrame, anything Arrow (a pyarrow table, pandas, Polars, …) or a dict of
        columns. A level of a pandas index is a column where the table has one of that name, or with
        `evolve` where it has a name.
        `note`: a few names and values, such as `{"job": "nightly"}`, which `history` shows; they
        are stored with the commit on Hudi's timeline, too.
        `evolve`: columns of the rows, and fields of their structs, that the table lacks are added
        to it in the same version, at the end; all other rows have null there.
        """
        return self._write(rows, INSERT, note, evolve)

    def bulk_insert(
        self,
        rows: Any,
        *,
        sort_by: str | Sequence[str] | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Add many rows in new files, each of which holds a range of the columns `sort_by`.

        Files, and the rows in them, are in the order of these columns over the whole batch, then of
        the key; without `sort_by` in that of the table's `cluster_by`, or of the key. So
        `files(where=…)` on the first of these columns leaves few files. Nulls come first. Small
        files are not filled up.
        Otherwise it is an insert, and refuses keys that exist. Raises UsageError for columns
        without an order, and where the index tells which file a row goes to.
        """
        return self._write(rows, BULK_INSERT, note, sort_by=in_order("sort_by", sort_by))

    def upsert(
        self, rows: Any, *, note: Mapping[str, Any] | None = None, evolve: bool = False
    ) -> WriteResult:
        """Add rows, or replace those with the same keys. Where nothing is new, no version is made.

        With an ordering column the row with the greater value wins, be it the stored one. `note`,
        `evolve`: as in `insert`. Raises UsageError for rows that the table cannot hold, and
        ConflictError after lost races.
        """
        return self._write(rows, UPSERT, note, evolve)

    def merge(
        self, rows: Any, *, note: Mapping[str, Any] | None = None, evolve: bool = False
    ) -> WriteResult:
        """Set some columns of the rows with these keys.

        Rows hold the key columns and the columns to set. A null is written as null. Columns left
        out keep what is stored, and are null where the key is new. In global scope the partition
        may be left out as well. Otherwise it is an upsert: older rows change nothing, where the
        ordering column is given. Raises as `upsert`, and UsageError for new keys that lack their
        partition or a column that may not be null.
        """
        return self._write(rows, MERGE, note, evolve)

    def alter(
        self, *changes: ColumnChange, note: Mapping[str, Any] | None = None, engine: Any = None
    ) -> WriteResult:
        """Change the table's columns, all of `changes` in one version or none.

        A change is one of `AddColumn("tip", pyarrow.float64())`, `RenameColumn("fare", "price")`,
        `WidenColumn`, `DropColumn`, `MoveColumn`, `MakeNullable`. A field of a struct is named by
        its path, `"driver.name"`.

        Files stay as they are, and older versions keep their columns. There is an exception: Hudi's
        readers go by names, and would go wrong in older files where a column is renamed, a name was
        another column's before, or a float becomes a double. Then all files are written anew (with
        a Spark session as the `engine` on its cluster), unless the table was created with
        `hudi_readable=False`; and file groups with logs are, where a type changes. Raises
        UsageError for what would lose values, and for key, partition and ordering columns;
        ConflictError after lost races.
        """
        texts = noted(note)
        store = self._store
        return self._written(
            engine_for(engine),
            lambda on: alter(store, on, changes, texts, partial(carry_out, store, on)),
        )

    def set_options(self, options: Mapping[str, Any], *, dry_run: bool = False) -> ServiceResult:
        """Set options that say how new files are made and when services are due, such as
        `{"file_rows": 1_000_000, "cluster_by": ["at"]}`. Files that are there stay as they are.

        A rollback or restore does not set them back. `hfile_codecs` and `cluster_by` replace their
        old value whole. `dry_run`: check them, and write nothing. Raises UsageError for all other
        options, because what is stored goes by them, and for values out of range; ConflictError
        after lost races.
        """
        return self._serve(execute, SetOptions(options), dry_run=dry_run)

    def delete(self, keys: Any, *, note: Mapping[str, Any] | None = None) -> WriteResult:
        """Delete the rows with these keys; keys that are not there are counted as `absent`.

        `keys` hold the key columns, in partition scope the partition columns as well; all other
        columns are ignored. Where that is one column, a list or array of its values will do. Where
        none of the keys is there, no version is made. `note`: as in `insert`. Raises UsageError for
        keys without their columns or with a null in them, and ConflictError after lost races.
        """
        return self._write(keys, DELETE, note)

    def insert_overwrite(
        self, rows: Any, *, by: str = "partition", note: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Replace whole partitions: those that occur among the rows, or, with `by="table"`, all.

        Afterwards they hold these rows and no others, whatever the ordering column says. In the
        result new keys are `inserted`, those that were there before `updated`, and those that are
        gone `deleted`. Without rows no partition is overwritten, but with `by="table"` the table is
        emptied. Raises as `upsert`, and UsageError for keys that live in a partition that stays.
        """
        operation = OVERWRITES.get(by) if isinstance(by, str) else None
        if operation is None:
            raise UsageError("overwritten by what?", found=by, expected=list(OVERWRITES))
        return self._write(rows, operation, note)

    def delete_partition(
        self, partitions: Any, *, note: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Delete all rows of partitions: `"city=Ulm"`, `{"city": "Ulm"}`, or several of either.

        Partitions that are not there are passed over, as absent keys are in `delete`, so it may be
        repeated. Raises UsageError for what cannot be a partition of the table, and for a table
        without partitions.
        """
        texts = noted(note)
        return self._written(
            LocalEngine(), lambda on: delete_partitions(self._store, on, partitions, texts)
        )

    def tag_locations(self, rows: Any, version: int | None = None) -> Any:
        """`rows` with the column `_location`: which file group holds the row's key, null for none.

        `rows` hold the key columns, or are plain keys, as in `read_keys`.
        A location is a struct of `partition_path`, `file_id` and `instant`, which are strings (the
        instant is that of the group's current slice), and `position`, an int64: the row's place in
        the base file, null where the index does not tell it, and where the row may be in a log.
        With the index `bucket`, where the file group follows from the key alone, it names the group
        that would hold the key, and is null only where that has no files yet; `filter_exists` says
        which keys are there. `version`: an older one.

        The answer is an Arrow table in the given order, or, for a Spark DataFrame, a lazy DataFrame
        that stays on the version it was made on. Raises UsageError for rows without the columns of
        the key or with a null in them, and for rows that have a `_location`; of `version`
        NotFoundError where it never was, StaleError where it is not kept any more or was undone.
        """
        return self._located(rows, version)

    def explain(self, rows: Any, version: int | None = None) -> Explain:
        """Run `tag_locations` and report what it found and what it cost; the rows are discarded.

        The work that was done is counted: a file that two tasks look at (two partitions of a
        DataFrame with keys of one range) counts twice. Of a DataFrame only the key columns are
        read; what the steps make of them stays in Spark's cache until the end, because their
        counters are read from it (`spark/counting.py`). Raises UsageError for rows without the
        columns of the key or with a null in them; `version`, and what it raises: as in
        `tag_locations`.
        """
        began = time.perf_counter()
        snapshot = self._snapshot(version)
        with self._counted(engine_of(rows, counting=True)) as engine, snapshot.reading():
            told = explain_lookup(engine, rows, snapshot)
        return replace(told, seconds=time.perf_counter() - began)

    def filter_exists(self, rows: Any) -> Any:
        """The rows (or plain keys, as in `read_keys`) whose key is in the table: as an Arrow table
        in the given order, or, for a Spark DataFrame, as a lazy DataFrame. A row is kept as often
        as it is given.

        Raises UsageError for rows without the columns of the key or with a null in them, and for
        rows that have a column `_location`.
        """
        found = self._located(rows, None, proven=True)
        if isinstance(found, pa.Table):
            return found.filter(found[LOCATION_COLUMN].is_valid()).drop_columns([LOCATION_COLUMN])
        return found.where(f"{LOCATION_COLUMN} is not null").drop(LOCATION_COLUMN)

    def read_keys(
        self, keys: Any, columns: Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """The table's rows with these keys; only the files that hold them are read.

        `keys` hold the key columns, in partition scope the partition columns as well; where that is
        one column, a list or array of its values will do: `read_keys(["a", "b"])`. Rows come in no
        particular order, each once, however often its key is given; keys that are not there are
        left out. `columns`: only these, in this order; Hudi's meta columns may be among them.
        `version`: an older one, and what it raises, as in `tag_locations`. Raises UsageError for
        keys without their columns, unknown columns, and for a Spark DataFrame, because the rows
        come back to this process, however large the cluster is.
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

        Nothing is read yet: the `Scan` reads when it is asked for rows, and goes wherever Arrow
        goes: `pyarrow.table(scan)`, `polars.DataFrame(scan)`, `duckdb.sql("select … from scan")`.

        `columns`: only these, in this order. `where`: `metatable.col("a") > 5`, or lists of tuples
        as pyarrow has them: `[("a", ">", 5)]`. `limit`: the most rows to return. Rows come in any
        order; of a merge-on-read table it depends on the columns, too, so columns that belong
        together are asked for together.
        `as_of` names the version by a moment, as Hudi does: it has all commits with an instant up
        to it. A moment is an instant (`yyyyMMddHHmmssSSS`), a datetime, or ISO text, in UTC unless
        it says another zone. `read_optimized`: of a merge-on-read table the base files alone, as
        the last compaction left them. Raises UsageError for what the table does not have.
        """
        view = self._snapshot(version, as_of)
        return Scan(view, columns, where, limit, read_optimized)

    def changes(
        self,
        since: int | str | date,
        until: int | str | date | None = None,
        columns: Sequence[str] | None = None,
    ) -> Changes:
        """The rows that differ between two versions, with the column `_change_type`, a string, as
        the last one. They come in no particular order.

        Rows of the types `insert` and `update` are as they are in `until` (the newest version by
        default), those of the type `delete` as they were in `since`. Either version is named by its
        number or, as in `scan`, by a moment; 0 is before the first row. Changes are net: of a row
        that changed twice only the last state is told. The next pull begins at the answer's
        `until`. Nothing is read yet; the rows go wherever those of a `Scan` go. Raises StaleError
        where one of the versions is not kept any more or was undone, NotFoundError where it never
        was, UsageError where `since` is the later one, and for columns that are not there.
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
        """The data files that may hold a row for which `where` is true, with their row counts.

        The answer is a sequence of files. Its `uris` go to any Parquet reader:
        `duckdb.read_parquet(files.uris, hive_partitioning=False)`. Of a merge-on-read table they
        are given only where no file has logs, or with `read_optimized`. The arguments mean what
        they mean in `scan`. Raises as `scan`.
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
        take_back: bool = False,
    ) -> ServiceResult:
        """Merge the HFiles of the metadata partitions, bucket by bucket; no answer changes.

        `major`: merge all of them and drop tombstones, not only where it is worth it.
        `partitions` (names), `buckets` (numbers): only these. `engine`: a Spark session; the
        compaction then runs one task per bucket range on its cluster. `dry_run`: only say what is
        due, and write nothing. `schedule`: only store what is due, as a plan whose name is the
        result's `plan`. `plan`: carry out the plan of this name, now, here or elsewhere.
        `take_back`: forget it instead. Raises StaleError where others have meanwhile merged what
        the plan would merge, NotFoundError where the plan was carried out already, ConflictError
        after lost races, and UsageError for metadata partitions that the table has not, for what
        names no plan, and for arguments that do not go together.
        """
        chosen = some("partitions", partitions, str), some("buckets", buckets, int)
        service, asked = Compact(major, *chosen), Asked(dry_run, schedule, plan, take_back)
        told = {"major": major, "partitions": partitions, "buckets": buckets}
        return planned(self._serve, service, engine, asked, **told)

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
        """Split large buckets and merge small neighbours; no row changes.

        For tables whose `bucket_engine` has rings. A bucket is split where its file has more than
        `split_above` bytes; neighbours are merged where both have less than `merge_below`. `cut`: a
        bucket is cut in the `middle` of its range, or at the `median` of its keys' hashes.
        `partitions` (paths), `most_partitions`, `most_bytes`: how much at once; what is left is due
        again. Buckets and rings change by one commit, a `replacecommit` on Hudi's timeline; whoever
        writes to them meanwhile tries again, and so does this. `engine`, `dry_run`, `schedule`,
        `plan`, `take_back`: as in `compact`; while a plan waits, its partitions are left out.

        `writers`, for tables with `table_type="mor"`: writers go on meanwhile, and neither side
        waits for the other. With `dual_write` they write each row of such a bucket twice. With
        `virtual_log`, for splits alone, they write it once, where only this library's readers see
        it until the resize is done. What waits is carried out, then what is due. `schedule`, `plan`
        (an instant), `take_back`: as in `compact_logs`.

        Raises UsageError, ConflictError after lost races, NotFoundError for an instant that was
        carried out already, and StaleError for a plan whose partitions were resized since.
        """
        chosen = some("partitions", partitions, str)
        sizes = BucketSizes(split_above, merge_below, cut, chosen, most_partitions, most_bytes)
        set_sizes = sizes != BucketSizes()
        asked = Asked(dry_run, schedule, plan, take_back)
        # what goes on beside writers is named by its instant, other plans by service and number
        if writers is not None or (isinstance(plan, str) and plan.isdecimal()):
            service, told = ScheduleResize(sizes, writers or ""), {"writers": writers}
            return beside_writers(
                self._serve, service, CarryOutResize, engine, asked, sizes=set_sizes, **told
            )
        return planned(self._serve, Resize(sizes), engine, asked, sizes=set_sizes)

    def cluster(
        self,
        where: Any = None,
        by: str | Sequence[str] | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        engine: Any = None,
        dry_run: bool = False,
    ) -> ServiceResult:
        """Rewrite the file groups that overlap most, so that each value lies in few files. Rows do
        not change.

        `by`: the columns to cut by, in the order of one or along a space-filling curve through
        several; by default the table's option `cluster_by`, else its key. `where`: only files that
        may hold such rows. `most_bytes`: how much at once; what is left is due again. Logs are
        merged in. The result's `depth_before` and `depth_after` say, by column, how many files hold
        a value, on average. `engine`: a Spark session, for one task per new file on its cluster;
        `dry_run`: as in `compact`. Raises UsageError for columns without order or statistics, and
        where the index tells which file a row goes to; ConflictError after lost races.
        """
        chosen = partial(_may_hold, parse_where(where))
        service = Cluster(in_order("by", by), chosen, most_bytes)
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
        """Merge the base file and the logs of file groups into one new base file; no row changes.

        For tables with `table_type="mor"`. A group is due where its logs have `ratio` times the
        bytes of its base file (or it has no base file), where they are `count` or more, or where
        the first one began `hours` ago. `partitions` (paths), `most_bytes`: how much at once; those
        groups go first whose bytes are logs for the most part.

        `schedule`: only plan it, on Hudi's timeline too; the result's `plan` is an instant. Writers
        go on, on top of what is planned, and neither side waits for the other. `plan`: carry that
        one out, here or elsewhere, as often as it takes; without it all plans that wait are carried
        out, then what is due. `take_back`: forget the plan instead, which is possible while no log
        lies on top. `engine`: a Spark session; `dry_run`: only say what is due.

        Raises UsageError; NotFoundError for a plan that was carried out already; ConflictError
        after lost races.
        """
        sizes = LogSizes(ratio, count, hours, some("partitions", partitions, str), most_bytes)
        asked = Asked(dry_run, schedule, plan, take_back)
        service, set_sizes = ScheduleLogs(sizes), sizes != LogSizes()
        return beside_writers(self._serve, service, CompactLogs, engine, asked, sizes=set_sizes)

    def due(self) -> list[ServiceResult]:
        """What services have to do now, one result for each; nothing is done.

        These are plans that `schedule=True` has stored and nobody has carried out, a minor
        compaction, a `clean`, a resize of buckets, a compaction of logs, and a clustering by the
        option `cluster_by`, each with its defaults and where the table has such. Lists all files
        once.
        """
        resizes = [Resize()] if self.options.resizes else []
        logs = [ScheduleLogs()] if self.options.has_logs else []
        cuts = [Cluster()] if self.options.cluster_by and may_cut(self._snapshot(None)) else []
        found = due(self._store, [Compact(), Clean(dry=True), *resizes, *logs, *cuts])
        return [*waiting(self._store), *found]

    def clean(
        self, *, versions: int = 10, hours: float = 24.0, dry_run: bool = False
    ) -> ServiceResult:
        """Delete files that only expired versions need, and files left by failed writers; archive
        Hudi's timeline.

        The newest `versions` that commits have made are kept (and those of services between them),
        and so are those that were the newest within the last `hours`, because whoever reads one now
        may have begun then. All others are expired: they raise StaleError from now on. Versions
        with a savepoint are kept.
        `dry_run`: say what would go, and write nothing. Raises UsageError, and ConflictError after
        lost races. If it is killed anywhere, the next one goes on.
        """
        return self._serve(execute, Clean(versions, hours, dry_run), dry_run=dry_run)

    def rollback(self, instant: str | None = None, *, dry_run: bool = False) -> ServiceResult:
        """Undo the last data commit, and the services that came after it. A `cluster` and a resize
        of buckets are data commits, too: `reason` says what it was that was undone.

        `instant`: undo this commit and no other. The call may then be repeated when its answer was
        lost: what is undone already stays so. `dry_run`: prove that it can be done, and write
        nothing. Raises UsageError where `instant` is not the last commit, CorruptError where a file
        of the version before it is gone, and ConflictError or StaleError where somebody else has
        published meanwhile, a clean too: then nothing was undone.
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

        All commits since then are undone at once, with the services that came after. `as_of`: as in
        `scan`; `dry_run`: as in `rollback`. Raises UsageError where a savepoint is newer (drop it
        first), where a compaction of logs that the version holds was undone, or where no commit of
        it is left on Hudi's timeline; StaleError where the version is not kept, or was undone
        itself; and as `rollback` where a file is gone, or somebody else has published meanwhile.
        """
        if version is None and as_of is None and savepoint is None:
            raise UsageError("go back where to?", expected="version=, as_of= or savepoint=")
        one_of(version=version, as_of=as_of, savepoint=savepoint)
        if savepoint is not None:
            version = pin_of(self._newest(), savepoint).version
        target = self._snapshot(version, as_of)
        return self._serve(execute, Restore(target.version), dry_run=dry_run)

    def savepoint(
        self, name: str, version: int | None = None, *, note: str = "", dry_run: bool = False
    ) -> ServiceResult:
        """Keep a version (the newest by default) under a name until `drop_savepoint`.

        Until then `clean` does not touch it, no commit of it is undone, and Hudi's timeline goes
        back to it at least. What is kept is the version that the last commit in `version` has made,
        or, where that is gone, a later one of the same commits. `note`: a text to keep with it.
        Raises UsageError for names that are taken or not allowed, and for versions without commits
        or out of order.
        """
        if version is not None:
            version = self._snapshot(version).version
        return self._serve(execute, Savepoint(name, version, noted_text(note)), dry_run=dry_run)

    def drop_savepoint(self, name: str, *, dry_run: bool = False) -> ServiceResult:
        """Keep this savepoint no longer. Raises UsageError where there is none of this name."""
        return self._serve(execute, DropSavepoint(name), dry_run=dry_run)

    def savepoints(self) -> list[SavepointInfo]:
        """All savepoints, ordered by version."""
        return savepoints(self._newest())

    def verify(self) -> ServiceResult:
        """Read all data and check the index against it, in both directions; check Hudi's timeline,
        and that all versions that are kept can be read.

        The result's `findings` are faults, each of a `kind`, with the `remedy` that `repair` has
        for it. Raises StaleError where a commit of this version was undone, its index changed, or a
        version is not kept any more, meanwhile.
        """
        snapshot = self._snapshot(None)
        with self._counted(LocalEngine()) as engine, snapshot.reading():
            return verify(engine, snapshot.counting(engine.counters))

    def repair(self, *, dry_run: bool = True) -> ServiceResult:
        """Mend what `verify` finds. Unless `dry_run` is False, only say what would be done: in the
        `remedy` of each finding. Findings without a remedy are the result's `unmended`.

        It publishes one version, which others see whole or not at all. Rows of data files that are
        lost or damaged are gone, and counted as `rows_lost`. Raises ConflictError where others
        publish meanwhile again and again. If it is killed anywhere, the next one goes on.
        """
        with self._counted(LocalEngine()) as engine:
            return repair(self._store, engine, dry_run=dry_run)

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """All versions that are kept, newest first, or the newest `limit` of them; those that only
        savepoints keep come last. Each costs a small request. Raises UsageError for a `limit` that
        is no number, or negative."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Integral)):
            raise UsageError("a limit is a number", found=limit, expected="an int, or None")
        if limit is not None and limit < 0:
            raise UsageError("a limit is not negative", found=limit)
        newest = self._newest()
        most = newest.version if limit is None else min(int(limit), newest.version)
        return list(islice(versions(self._store, newest), most))

    def describe(self, *, listing: bool = False) -> Description:
        """What the table is, and how much it holds.

        `listing`: list all files as well, and say in `usage` how many bytes are live, kept for
        older versions, and reclaimable by `clean`.
        """
        snapshot = self._snapshot(None)
        with looking(snapshot):
            told = describe(snapshot)
            return replace(told, usage=usage(self._store, snapshot.manifest)) if listing else told

    def buckets(
        self, partitions: str | Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """The buckets of a table that has rings of them, one per row.

        Columns are `partition_path` and `file_id`, which are strings, and, as int64, the range of
        hashes from `after` (without it) to `upto`, `bytes` and `rows` (null where there is no file
        yet, `rows` also where only merged logs could tell), and how often the partition was
        `resized`. Where `after` is not below `upto` the range goes around the end: hashes above
        `after`, and those from 0 to `upto`. `partitions`: only these (paths) of those that have
        files. `version`: an older one, and what it raises, as in `tag_locations`. Raises UsageError
        where there are no rings.
        """
        snapshot = self._snapshot(version)
        with snapshot.reading():
            return buckets_of(snapshot, some("partitions", partitions, str))

    def _write(
        self,
        rows: Any,
        operation: str,
        note: Mapping[str, Any] | None,
        evolve: bool = False,
        sort_by: tuple[str, ...] = (),
    ) -> WriteResult:
        texts = noted(note)
        return self._written(
            engine_of(rows),
            lambda on: write(
                self._store,
                on,
                rows,
                operation,
                texts,
                evolve=evolve,
                sort_by=sort_by,
                carry_out=partial(carry_out, self._store, on),
            ),
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

    def _located(self, rows: Any, version: int | None, proven: bool = False) -> Any:
        """With `_location`, in this process as a table; `proven`: null where no file holds it."""
        snapshot = self._snapshot(version)
        with self._counted(engine_of(rows)) as engine, snapshot.reading():
            found = tagged(engine, rows, snapshot, proven=proven)
            return engine.to_table(found) if engine.in_process else found

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
        """As of the version that was met last: debuggers and logs call it, and nothing is asked."""
        met = last_met(self._store) or self._opened
        return f"Table({self.uri!r}, version={met.version}, index={met.options.index!r})"


def _may_hold(where: Expression | None, view: Snapshot) -> FileSystemView:
    """The slices of this version that may hold such rows."""
    bound = None if where is None else bind(where, view.schema)
    return keep_files(bound, view).files()


def _is_zero(version: Any) -> bool:
    """Whether it is the version before the first one."""
    return isinstance(version, Integral) and not isinstance(version, bool) and version == 0
