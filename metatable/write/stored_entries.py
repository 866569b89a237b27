"""Entries of files that are there already: what a commit would have told of them.

A task reads slices one by one, piece by piece: the key column, and those columns of which
statistics are kept that the footer does not tell. What it has to tell goes to scratch in runs, as
in a commit, before it is much. In memory are the keys of a file and what has not been told yet.

Where another software wrote the files, all that our writers would go by is held against them
while they pass: columns of types that can be read as the table's; keys and partition paths that
are the texts that we make of those rows (or an upsert would not find them); the footers, if the
index believes them; the placement, if it has one; and no key twice in its scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.footer_statistics import of_footer
from metatable.data.base_files.parquet import open_parquet
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.bucket_functions import HASH_SPACE
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema_text import GREATEST_ID, TableSchema
from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH, identities
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.reading.slice_reader import read_slice, stream_slice
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.index.footer_bloom import denied_by_footer
from metatable.index.placement import Placement, placed
from metatable.index.protocol import Index
from metatable.metadata.hfiles.entry_files import (
    NONE_RIDES,
    Run,
    read_places,
    read_run,
    read_together,
    write_run,
)
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.metadata.written import PassingRows, WrittenSlice, entries_of
from metatable.storage.counters import Counters
from metatable.storage.errors import UpgradeError, UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.store import Store
from metatable.write.files_columns import check_calendar, check_columns

__all__ = ["StoredFiles", "passed_over", "refuse_duplicates", "runs_of"]

TASK_BYTES = 64 << 20
"""Fewer bytes of data files are not worth a task of their own."""

TOLD_BYTES = 32 << 20
"""Entries that a task holds before they go to scratch."""

CHECKED_BYTES = 64 << 20
"""Hashes of keys that are looked through together."""

FEW_HASHES = 1000
"""Of keys that are there twice so many are looked up by their texts; five are named."""

IDENTITIES = "identities"
"""The run with a hash of every key: no metadata partition, and gone with the scratch."""

PASSED_OVER = "passed over"
"""The run of fields that files have and the table has not, with their ids: no metadata partition
either."""

_IDENTITIES = pa.schema([pa.field("place", pa.int64()), pa.field("hash", pa.uint64())])
_META = pa.schema([pa.field(KEY, pa.string()), pa.field(PATH, pa.string())])


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """What is made of files, and what they are held against. Pickles.

    `table`: its columns. `columns`: those whose statistics are told, and what they are called
    there. `foreign`: another software wrote the files.
    """

    store: Store
    options: Options
    table: TableSchema
    partitions: tuple[MetadataPartition, ...]
    columns: Mapping[str, str]
    placement: Placement | None
    asks_footers: bool
    foreign: bool

    @classmethod
    def of(
        cls,
        view: TableView,
        index: Index,
        partitions: Sequence[MetadataPartition],
        columns: Mapping[str, str],
        *,
        foreign: bool,
    ) -> StoredFiles:
        if view.options.resizes:  # ids that a resize took away may not come again
            raise UsageError(
                "buckets that are resized come with the table: create it with them",
                bucket_engine=view.options.bucket_engine,
                expected="another index, or bucket_engine='simple'",
            )
        return cls(
            view.store,
            view.options,
            # what the table has no more, and is passed over, may have greater ids
            replace(view.table_schema, last_column_id=GREATEST_ID)
            if foreign
            else view.table_schema,
            tuple(partitions),
            dict(columns),
            index.placement(view),
            index.asks_footers,
            foreign,
        )

    @property
    def schema(self) -> pa.Schema:
        return self.table.arrow

    def counting(self, counters: Counters) -> StoredFiles:
        return replace(self, store=self.store.counting(counters))

    def asked(self, passing: Collection[str]) -> pa.Schema:
        """The columns to read: key text, partition path, those of which statistics are made as
        they pass, and those that keys are made of."""
        generator = KeyGenerator(self.options).columns if self.foreign else ()
        named = {*passing, *generator}
        return pa.schema([*_META, *(field for field in self.schema if field.name in named)])


@dataclass(frozen=True, slots=True)
class _Slice:
    """Job: a slice, as text."""

    slice: str


def runs_of(
    engine: Engine[Any], files: StoredFiles, scratch: Store, slices: Sequence[FileSlice]
) -> list[Run]:
    """The entries of these slices, and hashes of their keys where others have written them.

    Raises UpgradeError for files that are not as our writers would have written them.
    """
    tasks = _tasks(engine, slices)
    work = partial(_entry_runs, files, scratch, tasks)
    return run_jobs(engine, _jobs(slices), work, Run, tasks)


def passed_over(scratch: Store, runs: Sequence[Run]) -> tuple[dict[str, int], list[Run]]:
    """(paths of what other writers' files have beside the columns, each with the greatest column
    id that it has in one, 0 where files tell none; the other runs)."""
    told: dict[str, int] = {}
    for run in runs:
        for batch in read_run(scratch, run) if run.partition == PASSED_OVER else ():
            _greatest(told, dict(zip(*batch.to_pydict().values(), strict=True)))
    return told, [run for run in runs if run.partition != PASSED_OVER]


def _greatest(told: dict[str, int], more: Mapping[str, int]) -> None:
    for path, number in more.items():
        told[path] = max(number, told.get(path, 0))


def refuse_duplicates(
    engine: Engine[Any],
    files: StoredFiles,
    scratch: Store,
    slices: Sequence[FileSlice],
    runs: Sequence[Run],
) -> None:
    """Raises UsageError, naming five, where keys are there twice: an upsert would change one."""
    ours = tuple(run for run in runs if run.partition == IDENTITIES)
    pieces = 1 + sum(run.entry_bytes for run in ours) // CHECKED_BYTES
    borders = [HASH_SPACE * one // pieces for one in range(pieces + 1)]
    jobs = [_Range(lo, hi) for lo, hi in pairwise(borders)]
    twice = run_jobs(engine, jobs, partial(_twice, scratch, ours), _Hashes)
    hashes = np.frombuffer(b"".join(one.hashes for one in twice), np.uint64)[:FEW_HASHES]
    if not len(hashes):
        return
    work = partial(_held, files, hashes.tobytes())
    found = run_jobs(engine, _jobs(slices), work, _Held, _tasks(engine, slices))
    counts = Counter(one.identity for one in found)
    named = sorted(one.replace("\0", ": ") for one, count in counts.items() if count > 1)
    if named:  # else two keys have one hash
        scope = "the table" if files.options.is_global else "its partition"
        raise UsageError(
            f"keys are more than once in {scope}: an upsert would not know which row to replace",
            path=files.store.uri,
            keys=named[:5],
            found=f"{len(named)} keys" if len(hashes) < FEW_HASHES else "a thousand keys or more",
        )


def _jobs(slices: Sequence[FileSlice]) -> list[_Slice]:
    return [_Slice(one.encode()) for one in slices]


def _tasks(engine: Engine[Any], slices: Sequence[FileSlice]) -> int:
    size_bytes = sum(one.size_bytes for one in slices)
    return max(1, min(len(slices), max(engine.slots, size_bytes // TASK_BYTES)))


def _entry_runs(
    files: StoredFiles, scratch: Store, tasks: int, jobs: Iterator[_Slice], counters: Counters
) -> Iterator[Run]:
    """Task, one of so many: runs of the entries of some slices."""
    files, scratch = files.counting(counters), scratch.counting(counters)
    entries: dict[str, list[pa.Table]] = {}
    others: dict[str, int] = {}
    size = 0
    for job in jobs:
        written = _read(files, FileSlice.decode(job.slice), others)
        for name, told in entries_of([written], files.partitions):
            entries.setdefault(name, []).append(told)
            size += told.nbytes
        if files.foreign:
            hashed = _hashed(files, written)
            entries.setdefault(IDENTITIES, []).append(hashed)
            size += hashed.nbytes
        if size > TOLD_BYTES:  # of a task's runs those ride that are told last
            yield from _runs(scratch, NONE_RIDES, entries)
            entries, size = {}, 0
    if others:
        columns = [pa.array([*others], pa.string()), pa.array([*others.values()], pa.int64())]
        entries[PASSED_OVER] = [pa.table(columns, names=["path", "id"])]
    yield from _runs(scratch, tasks, entries)


def _runs(scratch: Store, tasks: int, entries: dict[str, list[pa.Table]]) -> Iterator[Run]:
    for name, parts in entries.items():
        told = pa.concat_tables(parts)
        if told.num_rows:
            yield write_run(scratch, name, told, tasks)


def _read(files: StoredFiles, made: FileSlice, others: dict[str, int]) -> WrittenSlice:
    """What there is to tell of a slice; what its file has beside the columns goes to `others`."""
    told = _footer_stats(files, made, others)
    known = {one.column for one in told}
    passing = {name: called for name, called in files.columns.items() if name not in known}
    asked = files.asked(passing)
    facts = PassingRows(passing)
    nothing = asked.empty_table()  # of a file without rows there are facts too
    read = ReadColumns(asked, files.table, files.options.ordering)
    for piece in facts.passing(chain([nothing], stream_slice(files.store, made, read))):
        _check_rows(files, made, piece)
    keys, stats = facts.facts()
    if files.asks_footers and (files.foreign or made.logs):
        _check_footer(files, made, keys)
    return WrittenSlice(FileSlice(made.base), None, keys, keys, keys.slice(0, 0), (*stats, *told))


def _footer_stats(files: StoredFiles, made: FileSlice, others: dict[str, int]) -> list[ColumnStats]:
    """What need not be read, of a file whose columns can be."""
    if not (files.columns or files.foreign):
        return []
    with open_parquet(files.store, made.base) as parquet:
        footer, held = parquet.metadata, parquet.schema_arrow
        if files.foreign:
            check_calendar(footer, made.path)
            check_columns(files.schema, held, made.path)
            stored = StoredColumns.of(parquet, made.path)
            _check_ids(files, made, stored)
            known = files.table.ids()
            _greatest(
                others, {path: one for path, one in stored.ids().items() if path not in known}
            )
        wanted = pa.schema([one for one in files.schema if one.name in files.columns])
        parquet.check_chunks()
        return of_footer(footer, held, wanted)


def _hashed(files: StoredFiles, written: WrittenSlice) -> pa.Table:
    paths = pa.repeat(pa.scalar(written.made.partition_path), len(written.keys))
    hashes = xxh64(identities(files.options.is_global, written.keys, paths), 0)
    places = (hashes >> np.uint64(32)).astype(np.int64)
    return pa.table([pa.array(places), pa.array(hashes)], schema=_IDENTITIES)


# What files are held against


def _check_ids(files: StoredFiles, made: FileSlice, stored: StoredColumns) -> None:
    """Files of a table of ours that has lost its versions carry column ids. Raises UpgradeError
    unless they are those that its columns, and the fields in them, would get now."""
    if not stored.by_id:
        return
    known = files.table.ids()
    called = {number: path for path, number in known.items()}
    for path, found in stored.ids().items():
        if known.get(path, found) != found or called.get(found, path) != path:
            raise UpgradeError(
                "a data file tells its columns by ids that are not the table's: create one from"
                " its rows",
                path=made.path,
                column=path,
                expected=known.get(path),
                found=found,
            )


def _check_rows(files: StoredFiles, made: FileSlice, piece: pa.Table) -> None:
    if files.foreign:
        _check_texts(files, made, piece)
    placement = files.placement
    if placement is None or not piece.num_rows:
        return
    keys, paths = (piece[name].combine_chunks() for name in (KEY, PATH))
    rows, ids = placed(placement, keys, paths)
    elsewhere = pc.invert(pc.equal(ids, made.file_id)).to_numpy(zero_copy_only=False)
    if elsewhere.any():
        place = int(np.flatnonzero(elsewhere)[0])
        raise UsageError(
            "the index would look for a key in another file group than the one that it is in:"
            " take another index or, where that has buckets, another bucket_count",
            index=files.options.index,
            path=made.path,
            key=keys[int(rows[place])].as_py(),
            expected=ids[place].as_py(),
        )


def _check_texts(files: StoredFiles, made: FileSlice, piece: pa.Table) -> None:
    """Whether keys and partition paths are the texts that our writers would make of these rows."""
    generator = KeyGenerator(files.options, files.schema)
    try:
        made_texts = {KEY: generator.record_keys(piece), PATH: generator.partition_paths(piece)}
    except UsageError as error:
        raise UpgradeError(
            "this table cannot be adopted, our writers do not take keys of rows that it has",
            path=made.path,
            found=str(error),
        ) from error
    for name, expected in made_texts.items():
        _check_equal(made, name, piece[name], expected)
    _check_equal(made, PATH, piece[PATH], pa.scalar(made.partition_path))


def _check_equal(made: FileSlice, name: str, found: pa.ChunkedArray, expected: Any) -> None:
    same = pc.fill_null(pc.equal(found, expected), False).to_numpy()
    if same.all():
        return
    place = int(np.flatnonzero(~same)[0])
    expected = expected[place] if isinstance(expected, pa.Array) else expected
    raise UpgradeError(
        "this table cannot be adopted, its keys or partition paths are not those that our writers"
        " make of the same rows: create one from its rows",
        path=made.path,
        column=name,
        expected=expected.as_py(),
        found=found[place].as_py(),
    )


def _check_footer(files: StoredFiles, made: FileSlice, keys: pa.Array) -> None:
    denied = denied_by_footer(files.store, made.base, keys)
    if denied and made.logs:
        raise UsageError(
            "keys that only logs hold are in no footer: compact the logs, or take another index,"
            " which does not believe footers",
            index=files.options.index,
            path=made.path,
            found=f"{denied} keys",
        )
    if denied:
        raise UpgradeError(
            "the footer of a data file leaves out keys that are in it: take another index, which"
            " does not believe footers",
            index=files.options.index,
            path=made.path,
            found=f"{denied} keys",
        )


# Keys that are there twice


@dataclass(frozen=True, slots=True)
class _Range:
    """Job: hashes whose place is in [lo, hi)."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class _Hashes:
    """Receipt: hashes that more than one row has, eight bytes each."""

    hashes: bytes


@dataclass(frozen=True, slots=True)
class _Held:
    """Receipt: the identity of a row with such a hash."""

    identity: str


def _twice(
    scratch: Store, runs: Sequence[Run], jobs: Iterator[_Range], counters: Counters
) -> Iterator[_Hashes]:
    """Task: hashes that are there twice, the first thousand of each range."""
    scratch = scratch.counting(counters)
    for job in jobs:
        held = (read_places(scratch, run, job.lo, job.hi) for run in runs)
        parts = [batch["hash"].to_numpy() for batch in read_together(scratch, held)]
        hashes = np.sort(np.concatenate([np.zeros(0, np.uint64), *parts]))
        again = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        yield _Hashes(again[:FEW_HASHES].tobytes())


def _held(
    files: StoredFiles, hashes: bytes, jobs: Iterator[_Slice], counters: Counters
) -> Iterator[_Held]:
    """Task: the rows of some slices with one of these hashes."""
    files = files.counting(counters)
    read = ReadColumns(_META, files.table, files.options.ordering)
    wanted = np.frombuffer(hashes, np.uint64)
    for job in jobs:
        rows = read_slice(files.store, FileSlice.decode(job.slice), read)
        texts = identities(files.options.is_global, rows[KEY], rows[PATH]).combine_chunks()
        here = np.flatnonzero(np.isin(xxh64(texts, 0), wanted))
        for text in texts.take(pa.array(here)).to_pylist():
            yield _Held(text)
