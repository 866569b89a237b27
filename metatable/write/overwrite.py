"""Overwriting: whole table partitions are replaced, or go.

What is in the partitions when the commit is made leaves the table, file group by file group, and
only what the commit brings is in them afterwards:

    insert_overwrite         the partitions that occur among the rows
    insert_overwrite_table   all
    delete_partition         those that are named; there are no rows

File groups go for good: Hudi's readers pass over a replaced one whatever its instant is, so its id
is never used again. Where an index tells the ids, the groups of a partition are therefore all
written anew instead, those that get no rows without any.

Of what goes the index is told by tombstones. Of a file these follow from its name; of the keys that
do not come back, where they have entries of their own, from the files' key columns, which are read
a file at a time and held against the keys that come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FILE, FileSystemView, slices_of
from metatable.data.hoodie.commit_metadata import ids_by_path
from metatable.data.hoodie.operations import (
    DELETE_PARTITION,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
)
from metatable.data.keys.key_texts import KEY, PATH, identity_columns
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.reading.slice_reader import stream_slice
from metatable.data.rows.taking import grouped, whole
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.index import create_index
from metatable.index.locations import LOCATION_COLUMN
from metatable.metadata.commits.change import Race
from metatable.metadata.hfiles.entry_files import RUN_SCHEMA, Run, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import FEW_PARTITIONS, TableView, read_columns
from metatable.metadata.written import every_stats_column
from metatable.storage.arrays import Int64s
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.portions import in_portions
from metatable.storage.store import Store
from metatable.write.plan import WritePlan
from metatable.write.profile import NAMED_KEYS

__all__ = ["Overwritten", "PartitionsUnchanged", "entries_gone", "named_paths", "overwritten"]

FILES_TOGETHER = 1024
"""Slices of which one task makes the tombstones."""

KEYS_BYTES = 8 << 20
"""Keys that wait to become tombstones together."""

TASK_BYTES = 128 << 20
"""Data files whose keys one task reads."""

_SLICE = pa.schema([("files", pa.list_(FILE)), (TASK_COLUMN, pa.int32())])
_KEYS = pa.schema([(KEY, pa.string())])
_OLD_KEYS = pa.schema([(KEY, pa.string()), (PATH, pa.string())])
_COMES = pa.schema([("_metatable_comes", pa.bool_())])
_WHERE = pa.schema(
    [("path", pa.string()), ("located", pa.string()), ("keys", pa.list_(pa.string()))]
)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The table partitions that a commit overwrites (None: all), and the slices in them."""

    paths: tuple[str, ...] | None
    files: FileSystemView
    rows: Int64s
    """The rows of each slice; -1 where the number is not known."""

    @property
    def row_count(self) -> int | None:
        """How many rows they have; None where they would have to be read for that."""
        return None if (self.rows < 0).any() else int(self.rows.sum())

    def deleted(self, updated: int | None) -> int | None:
        """How many rows leave of which so many come back."""
        if self.row_count is None or updated is None:
            return None
        return max(self.row_count - updated, 0)

    @property
    def filled(self) -> FileSystemView:
        """Slices that have rows, or may have."""
        return self.files.take(np.flatnonzero(self.rows))

    def leaving(self, plan: WritePlan) -> FileSystemView:
        """Those whose file groups leave with them: all, or, where the index tells ids, none."""
        return self.files if plan.placement is None else self.files.take(np.zeros(0, np.int64))

    def told(self, plan: WritePlan) -> dict[str, tuple[str, ...]]:
        """File ids that leave the table, by partition path: as Hudi is told of them."""
        files = self.leaving(plan)
        paths = files.folders.to_pylist() if self.paths is None else self.paths
        folders = files.folders.take(pa.array(files.folder_of)).to_pylist()
        return ids_by_path(zip(folders, files.file_ids().to_pylist(), strict=True), paths)


@dataclass(frozen=True, slots=True)
class PartitionsUnchanged:
    """Nobody else has written to these table partitions (None: to any)."""

    paths: tuple[str, ...] | None

    def check(self, race: Race) -> None:
        before, now = (
            pc.struct_field(_files_in(one, self.paths).lists().flatten(), "path")
            for one in (Snapshot(race.store, race.base), race.snapshot)
        )
        if before.equals(now):
            return
        strange = pc.is_in(now, value_set=before)
        raise race.lost(
            "another commit wrote to a partition that is overwritten: retry",
            found=now.filter(pc.invert(strange))[:NAMED_KEYS].to_pylist(),
        )


def named_paths(options: Options, schema: pa.Schema, named: Any) -> tuple[str, ...]:
    """The partition paths that a user has named, one or several: as paths (`city=Ulm`), or by the
    values of all partition columns (`{"city": "Ulm"}`). Raises UsageError."""
    expected = "paths, or values such as " + str(dict.fromkeys(options.partition_by, "…"))
    if not options.partition_by:
        raise UsageError("the table has no partitions", expected="insert_overwrite(…, by='table')")
    several = [named] if isinstance(named, str | Mapping) else named
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        raise UsageError("not what names partitions", found=named, expected=expected)
    return tuple(dict.fromkeys(_path(options, schema, one, expected) for one in several))


def _path(options: Options, schema: pa.Schema, named: Any, expected: str) -> str:
    if isinstance(named, str):
        return _checked(options, named.strip("/"))
    if not isinstance(named, Mapping) or set(named) != set(options.partition_by):
        raise UsageError("not what names a partition", found=named, expected=expected)
    columns = pa.schema([schema.field(name) for name in options.partition_by])
    try:
        row = pa.Table.from_pylist([dict(named)], columns)
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = {field.name: str(field.type) for field in columns}
        raise UsageError("not a partition's values", found=dict(named), expected=kinds) from error
    for name, made in row.to_pylist()[0].items():
        kind = columns.field(name).type
        if named[name] is not None and not _is_same(named[name], made, kind):
            what = "not a partition's value: it would be rounded, or taken for another one"
            raise UsageError(what, column=name, found=named[name], expected=str(kind))
    path: str = KeyGenerator(options).partition_paths(row)[0].as_py()
    return path


def _is_same(given: Any, made: Any, kind: pa.DataType) -> bool:
    """Whether Arrow has made of a value what it is: it cuts numbers, and drops times and zones."""
    if isinstance(given, np.generic):
        given = given.item()
    if pa.types.is_float32(kind) and isinstance(given, float):
        given = float(np.float32(given))
    alike = isinstance(given, type(made)) or isinstance(made, int | float | Decimal)
    for one in (bool, datetime, date):  # truth values are numbers, too, and moments are days
        alike = alike and isinstance(given, one) == isinstance(made, one)
    if isinstance(made, datetime):
        alike = alike and (given.tzinfo is None) == (made.tzinfo is None)
    return bool(alike and given == made)


def _checked(options: Options, path: str) -> str:
    """A path that may be one of the table's partitions. Raises UsageError."""
    begins = [f"{name}=" if options.hive_style else "" for name in options.partition_by]
    folders = path.split("/")
    fits = len(folders) == len(begins) and not {"", ".", ".."}.intersection(folders)
    named = zip(folders, begins, strict=False)
    if not fits or any(one == begin or not one.startswith(begin) for one, begin in named):
        expected = "/".join(f"{begin}…" for begin in begins)
        raise UsageError("not what names a partition", found=path, expected=expected)
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError("not what names a partition", found=path, expected="UTF-8") from error
    return path


def overwritten(
    engine: Engine[Any],
    located: Any,
    view: TableView,
    operation: str,
    named: tuple[str, ...],
) -> Overwritten:
    """What a commit of these rows overwrites; `named`: what it deletes.

    Raises UsageError for rows whose key lives in a partition that stays: they would have to move.
    """
    if operation == DELETE_PARTITION:
        return _overwritten(view, _there(view, named))
    if operation == INSERT_OVERWRITE_TABLE:
        return _overwritten(view, None)
    assert operation == INSERT_OVERWRITE
    where = engine.run(engine.select(located, [KEY, PATH, LOCATION_COLUMN]), _where, _WHERE)
    paths = pc.unique(where["path"])
    stays = pc.invert(pc.is_in(where["located"], value_set=paths))
    elsewhere = where.filter(pc.and_(stays, where["located"].is_valid()))
    if elsewhere.num_rows:
        keys = sorted(key for few in elsewhere["keys"].to_pylist() for key in few)
        raise UsageError(
            "insert_overwrite of keys that live in other partitions: they would have to move",
            keys=keys[:NAMED_KEYS],
            found=sorted(set(elsewhere["located"].to_pylist()))[:NAMED_KEYS],
            expected="keys that are new, or live in the partitions that are overwritten",
        )
    return _overwritten(view, tuple(sorted(paths.to_pylist())))


def _overwritten(view: TableView, paths: tuple[str, ...] | None) -> Overwritten:
    files = _files_in(view, paths)
    if files.is_pending.any() and create_index(view.options).placement(view) is not None:
        # logs since the schedule tell an instant that is not complete yet, and Hudi 1.x reads such
        # ones on top of a group's newest base, also of one that was written anew
        waits = np.flatnonzero(files.is_pending)[:NAMED_KEYS].tolist()
        raise UsageError(
            "file groups that would be written anew wait for something scheduled: carry it out"
            " first",
            found=[files[place].path for place in waits],
        )
    return Overwritten(paths, files, view.row_counts(files))


def _there(view: TableView, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these partitions that have files."""
    if len(paths) > FEW_PARTITIONS:
        there = set(view.slices().folders.to_pylist())
        return tuple(path for path in paths if path in there)
    return tuple(path for path in paths if len(view.slices(path)))


def _files_in(view: TableView, paths: Sequence[str] | None) -> FileSystemView:
    if paths is None:
        return view.slices()
    if len(paths) > FEW_PARTITIONS:
        files = view.slices()
        wanted = pc.is_in(files.folders, value_set=pa.array(list(paths), pa.string()))
        inside = wanted.to_numpy(zero_copy_only=False)[files.folder_of]
        return files.take(np.flatnonzero(inside))
    parts = [view.slices(path) for path in paths]
    return FileSystemView.joined(parts)


def _where(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Task: where rows go, and where their keys are now; with a few of the keys that might have to
    move."""
    found = dict[tuple[str, str | None], list[str]]()
    for batch in batches:
        located = pc.struct_field(batch[LOCATION_COLUMN], "partition_path")
        groups, rows = grouped({"path": whole(batch[PATH]), "located": located})
        places = zip(groups["path"].to_pylist(), groups["located"].to_pylist(), strict=True)
        for place, here in zip(places, rows, strict=True):
            keys = found.setdefault(place, [])
            if place[1] not in (None, place[0]) and len(keys) < NAMED_KEYS:
                some = pa.array(here[: NAMED_KEYS - len(keys)])
                keys += batch[KEY].take(some).to_pylist()
    told = [dict(zip(_WHERE.names, (*place, keys), strict=True)) for place, keys in found.items()]
    yield pa.RecordBatch.from_pylist(told, schema=_WHERE)


def entries_gone(
    engine: Engine[Any],
    located: Any,
    gone: Overwritten,
    view: TableView,
    plan: WritePlan,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
) -> list[Run]:
    """Runs of tombstones: of the files that leave, and of the keys that do not come back."""
    leaving, runs = gone.leaving(plan), []
    if len(leaving):
        columns = every_stats_column(view.table_schema, view.options)
        files = _dealt(engine, leaving, -(-len(leaving) // FILES_TOGETHER))
        work = partial(_retired, tuple(partitions), columns, scratch)
        runs += engine.run(files, work, RUN_SCHEMA).to_pylist()
    keyed = tuple(one for one in partitions if one.has_keys)
    if keyed and len(gone.files):
        old = _without(engine, _old_keys(engine, view, gone.files), located, view.options)
        work = partial(_departed, keyed, scratch)
        runs += engine.run(old, work, RUN_SCHEMA).to_pylist()
    return [Run(**one) for one in runs]


def _dealt(engine: Engine[Any], files: FileSystemView, tasks: int) -> Any:
    """The files of slices, dealt to so many tasks."""
    tasks = max(1, min(tasks, len(files)))
    places = pa.array(np.arange(len(files)) % tasks, pa.int32())
    table = pa.table([files.lists(), places], schema=_SLICE)
    return engine.exchange(engine.rows(table), TASK_COLUMN, tasks)


def _retired(
    partitions: Sequence[MetadataPartition],
    columns: Sequence[str],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: slices that leave with their groups in, runs of tombstones out."""
    scratch = scratch.counting(counters)
    for batch in batches:
        slices = slices_of(batch["files"])
        for one in partitions:
            yield from _run(scratch, one, one.retired(slices, columns))


def _old_keys(engine: Engine[Any], view: TableView, files: FileSystemView) -> Any:
    size_bytes = files.total_bytes
    spread = _dealt(engine, files, max(engine.slots, -(-size_bytes // TASK_BYTES)))
    return engine.map(spread, _SLICE.names[:1], partial(_keys_of, view), _OLD_KEYS)


def _keys_of(
    view: TableView, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the key texts of all rows of some slices."""
    view = view.counting(counters)
    read = read_columns(view, _KEYS)
    for batch in batches:
        for one in slices_of(batch["files"]):
            for piece in stream_slice(view.store, one, read):
                for keys in piece[KEY].chunks:
                    paths = pa.repeat(pa.scalar(one.partition_path, pa.string()), len(keys))
                    yield pa.RecordBatch.from_arrays([keys, paths], schema=_OLD_KEYS)


def _without(engine: Engine[Any], old: Any, located: Any, options: Options) -> Any:
    """Old keys that do not come back."""
    on = identity_columns(options, [KEY, PATH])
    comes = engine.extend(engine.select(located, on), on[:1], _mark, _COMES)
    return engine.attach(old, comes, on)


def _mark(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.repeat(True, batch.num_rows)], schema=_COMES)


def _departed(
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: old keys in, runs of tombstones of those that do not come back out."""
    scratch = scratch.counting(counters)
    gone = (batch.filter(batch[_COMES.names[0]].is_null()).select([KEY, PATH]) for batch in batches)
    for held in in_portions(gone, lambda one: one.nbytes, KEYS_BYTES):
        yield from _departed_runs(scratch, partitions, held)


def _departed_runs(
    scratch: Store, partitions: Sequence[MetadataPartition], held: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    gone = pa.Table.from_batches(held, _OLD_KEYS)
    for one in partitions:
        yield from _run(scratch, one, one.departed(whole(gone[KEY]), whole(gone[PATH])))


def _run(
    scratch: Store, partition: MetadataPartition, entries: pa.Table
) -> Iterator[pa.RecordBatch]:
    if entries.num_rows:
        run = asdict(write_run(scratch, partition.name, entries))
        yield pa.RecordBatch.from_pylist([run], schema=RUN_SCHEMA)
