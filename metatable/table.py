"""Table: the face. Every method says what it does and hands it to the module that does it.

The engine is picked by the data: a Spark DataFrame brings its own session, everything else is
Arrow and runs in this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import islice
from numbers import Integral
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from metatable.compaction.clean import Clean
from metatable.compaction.compact import Compact
from metatable.compaction.restore import Restore
from metatable.compaction.rollback import Rollback
from metatable.compaction.savepoint import DropSavepoint, Savepoint
from metatable.compaction.service import Scheduled, execute
from metatable.compaction.service import schedule as scheduled
from metatable.compaction.upkeep import keep_up, looks_after
from metatable.compaction.usage import usage
from metatable.compaction.verify import verify
from metatable.data.key_texts import identity_columns
from metatable.data.keygen import KeyGenerator
from metatable.data.merge import check_ordering
from metatable.data.options import Options
from metatable.data.properties import TableProperties
from metatable.data.schema import decode_schema, encode_schema, normal
from metatable.data.schema_text import TableSchema
from metatable.data.timeline import instant_of
from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.presence import present
from metatable.index.protocol import FOUND, LOCATION_COLUMN, count_found
from metatable.metadata.manifest import Manifest, load_newest, load_version
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.metadata.transaction import PROPERTIES, check_properties
from metatable.query.description import describe, savepoints, version_as_of, versions
from metatable.query.point_reads import read_keys
from metatable.query.scan import Scan
from metatable.results import (
    CommitInfo,
    DataFiles,
    Description,
    Explain,
    SavepointInfo,
    ServiceResult,
    WriteResult,
)
from metatable.storage import clock
from metatable.storage.counters import Counters
from metatable.storage.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    StaleError,
    UpgradeError,
    UsageError,
)
from metatable.storage.store import Store
from metatable.write.commit_pass import INSERT, UPSERT, write
from metatable.write.plan import DELETE

__all__ = ["Table", "create", "open_table"]

Uri = str | os.PathLike[str]
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

    def insert(self, rows: Any) -> WriteResult:
        """Add rows. Raises UsageError where a key exists, ConflictError after lost races."""
        return self._write(rows, INSERT)

    def upsert(self, rows: Any) -> WriteResult:
        """Add rows, or replace those of the same keys."""
        return self._write(rows, UPSERT)

    def delete(self, keys: Any) -> WriteResult:
        """Delete by key columns (in partition scope with the partition's); others are ignored."""
        return self._write(keys, DELETE)

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
        with self._counted(_engine(rows, counting=True)) as engine, snapshot.reading():
            tagged = self._tagged(engine, rows, snapshot, keys_only=True)
            found = engine.select(tagged, [LOCATION_COLUMN])
            counts = engine.run(found, count_found, FOUND)
        keys, hits = (pc.sum(counts[name]).as_py() or 0 for name in FOUND.names)
        told, seconds = dict(engine.counters), time.perf_counter() - began
        return Explain(keys, hits, seconds, told, files=_levels(told))

    def filter_exists(self, rows: Any) -> Any:
        """The rows whose key is in the table: an Arrow table, or, of a DataFrame, a lazy one."""
        found = self._located(rows, None, proven=True)
        if isinstance(found, pa.Table):
            return found.filter(found[LOCATION_COLUMN].is_valid()).drop_columns([LOCATION_COLUMN])
        return found.where(f"{LOCATION_COLUMN} is not null").drop(LOCATION_COLUMN)

    def read_keys(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys; reads only the files that hold them.

        Raises UsageError for keys without their columns, unknown columns, and for a Spark
        DataFrame: the rows come back to this process, and so do not grow with a cluster.
        """
        if _is_spark(keys):
            raise UsageError(
                "read_keys reads in this process",
                expected="keys.toArrow() for a few of them; for many, scan().to_spark(session)",
                found="a Spark DataFrame",
            )
        snapshot = self._snapshot(None)
        with self._counted(LocalEngine()) as engine, snapshot.reading():
            return read_keys(engine, snapshot.counting(engine.counters), keys, columns)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        version: int | None = None,
        limit: int | None = None,
        as_of: str | date | None = None,
    ) -> Scan:
        """The rows of a version (the newest by default) for which `where` is true.

        `as_of` names the version by a moment, as Hudi does: all commits with an instant up to it.
        An instant (`yyyyMMddHHmmssSSS`), a datetime, or ISO text; UTC unless it says another zone.
        `where`: `metatable.col("a") > 5`, or DNF tuples as pyarrow has them: `[("a", ">", 5)]`.
        `limit`: so many rows at most. Nothing is read yet; the `Scan` goes wherever Arrow goes:
        `pyarrow.table(scan)`, `polars.DataFrame(scan)`, `duckdb.sql("select … from scan")`.
        Raises UsageError for what the table does not have.
        """
        return Scan(self._snapshot(version, as_of), columns, where, limit)

    def files(
        self, where: Any = None, version: int | None = None, as_of: str | date | None = None
    ) -> DataFiles:
        """The data files that may hold a row for which `where` is true, with their rows.

        A sequence; its `uris` go to any Parquet reader:
        `duckdb.read_parquet(files.uris, hive_partitioning=False)`. Raises as `scan`.
        """
        return self.scan(where=where, version=version, as_of=as_of).files()

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
        chosen = _some("partitions", partitions, str), _some("buckets", buckets, int)
        service = Compact(major, *chosen)
        if schedule:
            _one_of(schedule=True, dry_run=dry_run, plan=plan)
            return self._serve(scheduled, service)
        if plan is None:
            return self._serve(execute, service, engine, dry_run=dry_run)
        _one_of(plan=plan, major=major, partitions=partitions, buckets=buckets)
        return self._serve(execute, Scheduled(service, plan), engine, dry_run=dry_run)

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
        Raises UsageError where it is not the last one.
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
        UsageError where a savepoint is newer (drop it first), where the version was undone itself,
        or where no commit of it is left on Hudi's timeline; StaleError where it is not kept.
        """
        if version is None and as_of is None and savepoint is None:
            raise UsageError("go back where to?", expected="version=, as_of= or savepoint=")
        _one_of(version=version, as_of=as_of, savepoint=savepoint)
        newest = self._newest()
        if savepoint is not None:
            pin = newest.pins.get(savepoint)
            if pin is None:
                raise UsageError("no such savepoint", found=savepoint, expected=sorted(newest.pins))
            version = pin.version
        target = self._snapshot(version, as_of)
        return self._serve(execute, Restore(target.version), dry_run=dry_run)

    def savepoint(self, name: str, version: int | None = None, *, note: str = "") -> ServiceResult:
        """Keep a version (the newest by default) under a name until `drop_savepoint`: `clean` does
        not touch it, no commit of it is undone, and Hudi's timeline goes back to it at least.

        It is the version of the last commit that `version` holds. Raises UsageError for names that
        are taken or none, and for versions without commits or out of order.
        """
        if not isinstance(note, str):
            raise UsageError("a note is a text", found=note)
        if version is not None:
            version = self._snapshot(version).version
        return self._serve(execute, Savepoint(name, version, note))

    def drop_savepoint(self, name: str) -> ServiceResult:
        """Keep it no longer. Raises UsageError where there is none of this name."""
        return self._serve(execute, DropSavepoint(name))

    def savepoints(self) -> list[SavepointInfo]:
        """Those that there are, by version."""
        return savepoints(self._newest())

    def verify(self) -> ServiceResult:
        """Read the data and hold the index against it, both ways. Findings are data.

        Raises StaleError where a commit of this version was undone meanwhile.
        """
        snapshot = self._snapshot(None)
        with self._counted(LocalEngine()) as engine, snapshot.reading():
            return verify(engine, snapshot.counting(engine.counters))

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """Every version that is kept, newest first; the newest `limit` of them cost as many small
        requests."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise UsageError("a limit is a number", found=limit, expected="an int, or None")
        if limit is not None and limit < 0:
            raise UsageError("a limit is not negative", found=limit)
        return list(islice(versions(self._store, self._newest()), limit))

    def describe(self, *, listing: bool = False) -> Description:
        """What the table is, and how much there is of it.

        `listing`: list all files, too, and say in `usage` how many bytes are live, kept for older
        versions, and reclaimable by `clean`.
        """
        snapshot = self._snapshot(None)
        told = describe(snapshot)
        return replace(told, usage=usage(self._store, snapshot.manifest)) if listing else told

    def _write(self, rows: Any, operation: str) -> WriteResult:
        with self._counted(_engine(rows)) as engine:
            done = write(self._store, engine, rows, operation)
        if looks_after(done.version):
            with self._counted(LocalEngine()) as engine:
                keep_up(self._store, engine)
        return done

    def _serve(
        self, run: Callable[..., ServiceResult], service: Any, session: Any = None, **how: Any
    ) -> ServiceResult:
        chosen = LocalEngine() if session is None else _engine(session)
        if session is not None and isinstance(chosen, LocalEngine):
            raise UsageError("no such engine", found=session, expected="a Spark session, or none")
        with self._counted(chosen) as engine:
            return run(self._store, engine, service, **how)

    def _located(self, rows: Any, version: int | None, proven: bool = False) -> Any:
        """With `_location`, in this process as a table; `proven`: null where no file holds it."""
        snapshot = self._snapshot(version)
        with self._counted(_engine(rows)) as engine, snapshot.reading():
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
        snapshot = snapshot.counting(engine.counters)
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
        newest = load_newest(self._store)
        if newest is None:
            raise StaleError("the table is gone", path=self.uri)
        return newest

    def _snapshot(self, version: int | None, as_of: str | date | None = None) -> Snapshot:
        newest = self._newest()
        if as_of is not None:
            _one_of(version=version, as_of=as_of)
            version = version_as_of(self._store, newest, instant_of(as_of))
        if version is None:
            return Snapshot(self._store, newest)
        if isinstance(version, bool) or not isinstance(version, Integral):
            raise UsageError("a version is a number", found=version, expected="an int, or None")
        version = int(version)
        if not 0 < version <= newest.version:
            raise NotFoundError(
                "no such version", found=version, expected=f"1 to {newest.version}", path=self.uri
            )
        if version == newest.version:
            return Snapshot(self._store, newest)
        if not newest.keeps(version):
            raise StaleError(
                "this version is not kept any more",
                found=version,
                expected=f"{newest.oldest} to {newest.version}",
                path=self.uri,
            )
        return Snapshot(self._store, load_version(self._store, version))

    def __repr__(self) -> str:
        newest = self._newest()
        return f"Table({self.uri!r}, version={newest.version}, index={newest.options.index!r})"


def create(
    uri: Uri,
    schema: pa.Schema,
    *,
    key: str | Sequence[str],
    partition_by: str | Sequence[str] = (),
    ordering: str | None = None,
    index: str = "metadata_bloom",
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make an empty table. Raises UsageError for what cannot be one, and where one is already.

    `options`: fields of `metatable.Options`, such as `key_scope`, `buckets`, `hfile_codec`.
    """
    if not isinstance(schema, pa.Schema):
        found, expected = type(schema).__name__, "a pyarrow.Schema, such as that of its rows"
        raise UsageError("a table is created from a schema", found=found, expected=expected)
    store = Store(uri, storage_options)
    schema = normal(schema)
    if not isinstance(options, Mapping | None):
        found, expected = type(options).__name__, "names and values"
        raise UsageError("options are no mapping", found=found, expected=expected)
    given = {
        "key": _some("key", key, str) or (),
        "partition_by": _some("partition_by", partition_by, str) or (),
        "ordering": ordering,
        "index": index,
    }
    name = store.uri.rpartition("/")[2] or "table"
    made = Options.create(name, schema.names, options=options, **given)  # type: ignore[arg-type]
    kept = partitions_of(made, create_index(made))
    made = made.keeping({one.name: one.bucket_count for one in kept})
    KeyGenerator(made, schema)
    check_ordering(schema, ordering)
    if store.size(PROPERTIES) is not None:
        raise UsageError("there is a table here already: open it", path=store.uri)
    manifest = Manifest(1, "create", encode_schema(schema), made, time_ms=clock.now_ms())
    if not store.create(manifest.path, manifest.encode()):
        manifest = _begun(store, manifest)
    schema = decode_schema(manifest.schema, manifest.path)
    properties = TableProperties.of(manifest.options, schema).encode()
    if not store.create(PROPERTIES, properties):  # last: with it, the table is there
        raise ConflictError("somebody else has just created this table: open it", path=store.uri)
    return Table(store)


def open_table(uri: Uri, storage_options: Mapping[str, str] | None = None) -> Table:
    """Open a table. Raises NotFoundError where there is none, UpgradeError for one of others."""
    store = Store(uri, storage_options)
    properties = check_properties(store)
    newest = load_newest(store)
    if newest is None:
        raise UpgradeError(
            "a Hudi table that metatable did not create: create one from its rows", path=store.uri
        )
    properties.check(newest.options)
    return Table(store)


def _begun(store: Store, manifest: Manifest) -> Manifest:
    """Version 1 as it lies there: of a creation that died, or of one that is under way.

    It is finished, by whoever comes first, if it is the table that was asked for.
    """
    newest = load_newest(store)
    if newest is None or newest.version > 1:
        raise CorruptError(
            "a table without its properties: restore the file", path=f"{store.uri}/{PROPERTIES}"
        )
    salts = replace(manifest.options, key_salts=newest.options.key_salts)
    columns = [TableSchema.decode(one.schema, one.path) for one in (manifest, newest)]
    if salts != newest.options or columns[0] != columns[1]:
        raise ConflictError(
            "somebody else creates, or began to create, another table here: open it, or,"
            " where nobody does, delete the folder .hoodie",
            path=store.uri,
            expected=_definition(manifest),
            found=_definition(newest),
        )
    return newest


def _definition(manifest: Manifest) -> dict[str, Any]:
    options = manifest.options
    named = {name: getattr(options, name) for name in ("key", "partition_by", "ordering", "index")}
    return named | {"schema": manifest.schema}


def _engine(data: Any, counting: bool = False) -> Engine[Any]:
    """The engine that the data asks for; Spark is loaded only when a DataFrame comes.

    `counting`: on Spark too, lazy steps tell their counters.
    """
    if not _is_spark(data):
        return LocalEngine()
    from metatable.spark.counting import CountingEngine  # noqa: PLC0415  (first use of Spark)
    from metatable.spark.engine import SparkEngine  # noqa: PLC0415

    return CountingEngine(data) if counting else SparkEngine(data)


def _is_spark(data: Any) -> bool:
    """Whether it is Spark's; asked without loading Spark."""
    return type(data).__module__.startswith("pyspark.")


def _some(word: str, found: Any, kind: type) -> tuple[Any, ...] | None:
    """What was named, one or several; None for all. Raises UsageError."""
    named = (found,) if isinstance(found, kind) else found
    if named is None:
        return None
    right = isinstance(named, Iterable) and not isinstance(named, str | bytes)
    named = tuple(named) if right else ()
    if not right or not all(type(one) is kind for one in named):
        found = list(named) or type(found).__name__
        raise UsageError(
            "not what can be named",
            option=word,
            expected=f"{kind.__name__}, or several",
            found=found,
        )
    return named


def _one_of(**given: Any) -> None:
    """Refuse the first word together with any of the others. Raises UsageError."""
    word, *others = (
        name for name, value in given.items() if value is not None and value is not False
    )
    if others:
        raise UsageError(f"{word} stands alone", leave_out=others)


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
