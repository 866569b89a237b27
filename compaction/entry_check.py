"""Entry check: the entries of live slices held against the slices, and made anew where they differ.

A slice is read whole, a column at a time, and everything that the table's partitions should say of
it is asked of a version (or of what remains of one):

    column_stats   of each file: bounds of the record key are exact, others no narrower than the
                   data; counts
    bloom_filter   that of the base file is there and passes all keys of the slice
    record_index   each key leads to the slice's group
    of an index    an entry of each of its keys is there (what it says, only the index knows)

What is missing or wrong is told, and, where there is a scratch to put it in, the right entries are
made of the slice by `entries_of` and kept as runs. That entries are left of what is gone,
`surplus_keys` finds: keys of the partition that no live slice stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data import statistics
from metatable.data.key_texts import identities
from metatable.data.parquet import open_parquet
from metatable.data.schema import META_COLUMNS
from metatable.data.slice_reader import read_log, stream_left
from metatable.data.slices import DataFile, FileSlice, LogFile
from metatable.data.statistics import ColumnStats
from metatable.data.stored_columns import StoredColumns
from metatable.data.taking import whole
from metatable.engine.batches import filled, gathered
from metatable.index.footer_bloom import denied_by_footer
from metatable.index.hbase import live_entries
from metatable.index.protocol import Index
from metatable.index.record import KeyedIndex
from metatable.metadata.bloom_filter import BloomFilterPartition, hashes_of
from metatable.metadata.column_stats import RECORD_KEY, ColumnStatsPartition
from metatable.metadata.entry_files import Run, write_run
from metatable.metadata.files import FilesPartition
from metatable.metadata.keys import decode_keys, file_keys, stats_keys
from metatable.metadata.outside import OutsidePartition
from metatable.metadata.partition import MetadataPartition
from metatable.metadata.payload import decode_stats
from metatable.metadata.record_index import RecordIndexPartition, index_keys
from metatable.metadata.snapshot import Snapshot
from metatable.metadata.stored import partitions_of
from metatable.metadata.view import Located
from metatable.metadata.written import WrittenSlice, entries_of, stats_columns, stats_of_rows
from metatable.results import Fault
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hashing import xxh64
from metatable.storage.store import Store

__all__ = [
    "Held",
    "check_alone",
    "check_together",
    "damage_of",
    "hashes_of_keys",
    "read_held",
    "surplus_keys",
    "texts_left",
]

PATH = META_COLUMNS[3]
NO_KEYS = pa.array([], pa.string())
_TEXTS = pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PATH, pa.string())])
BATCH_ROWS = 1 << 16
"""Entries looked at, and tombstones kept, at once."""

SMALL_BYTES = 1 << 20
"""Files up to it are read at once: a request for each column would cost more."""

OF_FILE = slice(8, 32)
"""Where a key of `column_stats` has the hashes of a file's partition and name."""

Told = tuple[Fault, str, str]
"""A fault, where it is, and in words."""


@dataclass(frozen=True, slots=True)
class Held:
    """A live slice that could be read: the keys and partition paths of its rows, logs merged in;
    the keys of its base file; statistics of each of its files."""

    file: FileSlice
    keys: pa.Array
    paths: pa.Array
    base_keys: pa.Array
    stats: tuple[tuple[ColumnStats, ...], ...]

    @property
    def every_key(self) -> pa.Array:
        """Keys that must be found here: those of the base file, and others that logs brought."""
        if not self.file.logs:
            return self.keys
        more = pc.invert(pc.is_in(self.keys, value_set=self.base_keys))
        return pa.concat_arrays([self.base_keys, self.keys.filter(more)])

    def written(self, arrived: pa.Array, place: int = 0) -> WrittenSlice:
        """As if one of its files, the base if not told, had been written just now; `arrived` are
        keys that shall be indexed."""
        file, stats = self.file.files[place], self.stats[place]
        logs = ((file, stats),) if isinstance(file, LogFile) else ()
        made = FileSlice(self.file.base)
        return WrittenSlice(made, None, self.every_key, arrived, NO_KEYS, stats, (), logs)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What one file tells."""

    keys: pa.Array
    paths: pa.Array
    stats: tuple[ColumnStats, ...]


def read_held(view: Snapshot, file: FileSlice, writers: Mapping[str, str]) -> Held:
    """All of a slice; in memory a column at a time, or all of a small one, and the logs.

    `writers`: instants of the commits that wrote logs, by path, where they are known. Raises
    CorruptError where it is damaged.
    """
    base = _read_base(view, file.base) if file.has_base else _Facts(NO_KEYS, NO_KEYS, ())
    if not file.logs:
        return Held(file, base.keys, base.paths, base.keys, (base.stats,))
    logs = [one for one in file.files if isinstance(one, LogFile)]
    stats = [_read_log(view, one, writers.get(one.path, "")) for one in logs]
    told = (base.stats, *stats) if file.has_base else (*stats,)
    return Held(file, *texts_left(view, file.merged), base.keys, told)


def texts_left(view: Snapshot, files: Sequence[DataFile | LogFile]) -> tuple[pa.Array, pa.Array]:
    """(key texts, partition paths) of the rows that these files of a slice come to.

    Where a base holds a key twice nobody can merge logs with it: then all that is in it.
    """
    read = partial(
        stream_left,
        view.store,
        schema=_TEXTS,
        columns=view.table_schema,
        ordering=view.options.ordering,
    )
    try:
        rows = pa.concat_tables([_TEXTS.empty_table(), *read(files)])
    except CorruptError:
        rows = pa.concat_tables(piece for one in files for piece in read([one]))
    return whole(rows[RECORD_KEY]), whole(rows[PATH])


def damage_of(view: Snapshot, file: DataFile | LogFile, writer: str = "") -> str:
    """What keeps a file from being read, itself; "": nothing. `writer` as of `read_held`."""
    try:
        if isinstance(file, DataFile):
            _read_base(view, file)
        else:
            _read_log(view, file, writer)
    except (CorruptError, UpgradeError) as error:
        return str(error)
    return ""


def _read_base(view: Snapshot, file: DataFile) -> _Facts:
    stats = dict[str, ColumnStats]()
    texts: dict[str, pa.Array] = {}
    with open_parquet(view.store, file) as parquet:
        rows, names = parquet.metadata.num_rows, parquet.schema_arrow.names
        wanted = _called(view, StoredColumns.of(parquet, file.path))
        at_once = [names] if file.size_bytes <= SMALL_BYTES else [[name] for name in names]
        for columns in map(parquet.read, at_once):
            if columns.num_rows != rows:
                raise CorruptError(
                    "columns lack rows", path=file.path, columns=columns.column_names
                )
            for one in statistics.of_table(
                columns, [*filter(wanted.__contains__, columns.column_names)]
            ):
                stats[one.column] = replace(one, column=wanted[one.column])
            for name in {RECORD_KEY, PATH}.intersection(columns.column_names):
                texts[name] = columns[name].combine_chunks().cast(pa.string())
    if texts.keys() != {RECORD_KEY, PATH} or any(one.null_count for one in texts.values()):
        raise CorruptError("data file lacks Hudi's meta columns", path=file.path)
    told = tuple(stats[name] for name in wanted if name in stats)
    return _Facts(texts[RECORD_KEY], texts[PATH], told)


def _read_log(view: Snapshot, log: LogFile, writer: str) -> tuple[ColumnStats, ...]:
    """The statistics of its rows; its deletes are read, too."""
    held = read_log(view.store, log, view.table_schema, view.options.ordering)
    if writer and held.instants != {writer}:
        found = sorted(held.instants)
        raise CorruptError("log is of another commit", path=log.path, expected=writer, found=found)
    wanted = {name: called for name, called in _kept(view).items() if name in held.columns}
    return tuple(stats_of_rows(held.rows, wanted))


def _called(view: Snapshot, stored: StoredColumns) -> dict[str, str]:
    """Columns of a file of which there surely are statistics, and what they are called there."""
    found = ((stored.find(name, view.table_schema), to) for name, to in _kept(view).items())
    return {field.name: called for field, called in found if field is not None}


def _kept(view: Snapshot) -> dict[str, str]:
    """The same of the table: where columns are gone, the last of those left had none before."""
    table, options = view.table_schema, view.options
    count = max(options.stats_columns - len(table.past_stats), 0)
    return stats_columns(table, replace(options, stats_columns=count))


def hashes_of_keys(
    view: Snapshot, index: Index, partition_path: str, keys: pa.Array, paths: pa.Array
) -> npt.NDArray[np.uint64]:
    """Eight bytes of hash for each row of a slice: of its entry in the record index, where there is
    one, else of its identity."""
    if _has(index, RecordIndexPartition):
        keys = index_keys(view.options, keys, pa.scalar(partition_path, pa.string()))
        return xxh64(keys.cast(pa.binary()), 0)
    return xxh64(identities(view.options.is_global, keys, paths), 0)


def check_alone(view: Snapshot, index: Index, held: Held) -> Iterator[Told]:
    """What is wrong with a slice's own rows and footer: no entry can mend that."""
    path = held.file.path
    if len(held.keys) and not pc.all(pc.equal(held.paths, held.file.partition_path)).as_py():
        yield Fault.PARTITION_PATH, path, "a row names another partition path"
    if index.asks_footers:
        try:
            denied = denied_by_footer(view.store, held.file.base, held.keys)
        except CorruptError as error:
            yield Fault.FOOTER, path, str(error)
        else:
            if denied:
                yield Fault.FOOTER, path, f"{denied} keys of the file are denied"
    placement = index.placement(view)
    if placement is not None:
        try:
            rows, file_ids = placement.place(held.keys, held.paths)
        except CorruptError as error:  # of a ring
            yield Fault.HASHING_METADATA, path, str(error)
            return
        here = pc.equal(file_ids, held.file.file_id).to_numpy(zero_copy_only=False)
        wrong = np.setdiff1d(np.arange(len(held.keys)), rows[here])
        if len(wrong):
            key = held.keys[int(wrong[0])].as_py()
            what = f"{len(wrong)} keys belong to another group, such as {key!r}"
            yield Fault.PLACEMENT, path, what


def check_together(
    view: Snapshot, index: Index, held: Sequence[Held], scratch: Store | None
) -> Iterator[Told | Run]:
    """What the entries of several slices say wrongly; and, in runs, what they should say."""
    if not held:
        return
    for partition in partitions_of(view.options, index):
        if isinstance(index, KeyedIndex) and isinstance(partition, RecordIndexPartition):
            check: _Check = partial(_check_locations, index.locate)
        else:
            check = _CHECKS.get(partition.name, _check_presence)
        told = list(check(view, partition, held))
        yield from (one for one, _ in told)
        written = [one for _, one in told if one is not None]
        if written and scratch is not None:
            for name, entries in entries_of(written, [partition]):
                yield write_run(scratch, name, entries)


_Checked = tuple[Told, WrittenSlice | None]
"""A fault, and the slice of which the partition's entries are to be made anew (once each)."""


def _check_nothing(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    """`files` is held against a listing (`live_slices.py`)."""
    return iter(())


def _check_stats(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    asked = [
        (_OfFile(one, place), stat)
        for one in held
        for place, stats in enumerate(one.stats)
        for stat in stats
    ]
    asked.sort(key=_column_of)
    keys = stats_keys(
        pa.array([stat.column for _, stat in asked], pa.string()),
        pa.array([one.file.partition_path for one, _ in asked], pa.string()),
        pa.array([one.file.name for one, _ in asked], pa.string()),
    )
    values = view.lookup(partition, keys).values
    wrong: set[str] = set()
    begin = 0
    for _, pairs in groupby(asked, key=_column_of):
        group = list(pairs)
        stored = _decoded(values.slice(begin, len(group)), group[0][1].type)
        begin += len(group)
        for (one, stat), found in zip(group, stored, strict=True):
            told = found if isinstance(found, str) else _stats_fault(one.file.name, stat, found)
            if told:
                path = one.file.path
                finding = Fault.COLUMN_STATS, path, f"{stat.column}: {told}"
                yield finding, None if path in wrong else one.held.written(NO_KEYS, one.place)
                wrong.add(path)


@dataclass(frozen=True, slots=True)
class _OfFile:
    """One file of a slice."""

    held: Held
    place: int

    @property
    def file(self) -> DataFile | LogFile:
        return self.held.file.files[self.place]


def _column_of(pair: tuple[_OfFile, ColumnStats]) -> tuple[str, str]:
    return pair[1].column, str(pair[1].type)


def _decoded(values: pa.Array, kind: pa.DataType) -> list[dict[str, Any] | str]:
    """Stored statistics of one column, or what is wrong with them."""
    told: list[dict[str, Any] | str] = ["expected an entry, found none"] * len(values)
    there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist()
    type = None if pa.types.is_nested(kind) else kind
    try:
        for place, row in zip(
            there, decode_stats(values.drop_null(), type).to_pylist(), strict=True
        ):
            told[place] = row
    except CorruptError:
        for place in there:
            try:
                [told[place]] = decode_stats(values.slice(place, 1), type).to_pylist()
            except CorruptError as error:
                told[place] = str(error)
    return told


def _stats_fault(file_name: str, expected: ColumnStats, found: dict[str, Any]) -> str:
    """What is wrong with the stored statistics of a column; "": nothing."""
    if found["file_name"] != file_name or found["column"] != expected.column:
        return f"1 entry names another file than its key: {found['column']} of {found['file_name']}"
    for name in ("null_count", "value_count"):
        if found[name] != getattr(expected, name):
            return f"expected {name} {getattr(expected, name)}, found {found[name]}"
    bounds = found["minimum"], found["maximum"]
    if pa.types.is_nested(expected.type) or _covers(expected, *bounds):
        return ""
    ours = expected.minimum, expected.maximum
    return "expected {!r} to {!r}, found {!r} to {!r}".format(*ours, *bounds)


def _covers(expected: ColumnStats, minimum: Any, maximum: Any) -> bool:
    """Whether bounds leave out no row: a missing one says nothing, but for record keys."""
    if expected.column == RECORD_KEY:
        return bool((minimum, maximum) == (expected.minimum, expected.maximum))
    if expected.null_count == expected.value_count:
        return True
    try:
        low = minimum is None or expected.minimum is None or minimum <= expected.minimum
        open_ended = expected.maximum is None and _is_number(maximum)
        high = maximum is None or (
            not open_ended if expected.maximum is None else maximum >= expected.maximum
        )
    except TypeError:
        return False
    return bool(low and high)


def _is_number(maximum: Any) -> bool:
    """A NaN is the greatest: where the data has one, a number is no upper bound."""
    return maximum is not None and maximum == maximum  # noqa: PLR0124  (NaN is not itself)


def _check_filter(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    for one, told in zip(held, _filter_faults(view, held), strict=True):
        if told:
            yield (Fault.BLOOM_FILTER, one.file.path, told), one.written(NO_KEYS)


def _filter_faults(view: Snapshot, held: Sequence[Held]) -> list[str]:
    """What is wrong with the filter of each; "": nothing. One that cannot be read stops a lookup of
    several."""
    told = [""] * len(held)
    try:
        for place, body in view.filters([one.file for one in held]):
            denied = int((~body.might_contain(hashes_of(held[place].keys))).sum())
            told[place] = f"{denied} keys of the file are denied" if denied else ""
    except CorruptError as error:
        if len(held) == 1:
            return [str(error)]
        return [fault for one in held for fault in _filter_faults(view, [one])]
    return told


def _check_locations(
    locate: Callable[..., Located],
    view: Snapshot,
    partition: MetadataPartition,
    held: Sequence[Held],
) -> Iterator[_Checked]:
    """Whether an index by key finds the keys of these slices where they are: one lookup."""
    fault = Fault.RECORD_INDEX if partition.name == RecordIndexPartition.name else Fault.ENTRIES
    keys = pa.concat_arrays([one.keys for one in held])
    of_row = np.repeat(np.arange(len(held)), [len(one.keys) for one in held])
    folders = pa.array([one.file.partition_path for one in held], pa.string())
    try:
        found = locate(view, keys, folders.take(pa.array(of_row)))
    except CorruptError as error:
        for one in held:
            yield (fault, one.file.path, str(error)), one.written(one.keys)
        return
    groups = {group: place for place, group in reversed([*enumerate(found.groups)])}
    first = np.array([*(groups[group] for group in found.groups), -1])  # -1: nowhere
    begin = 0
    for one in held:
        here = found.group[begin : begin + len(one.keys)]
        begin += len(one.keys)
        ours = groups.get((one.file.partition_path, one.file.file_id), -2)
        wrong = np.flatnonzero(first[here] != ours)
        if len(wrong):
            key, group = one.keys[int(wrong[0])].as_py(), int(here[wrong[0]])
            named = "nowhere" if group < 0 else str(found.groups[group])
            detail = f"{len(wrong)} keys elsewhere, such as {key!r}: {named}"
            finding = fault, one.file.path, detail
            yield finding, one.written(one.keys.take(pa.array(wrong)))


def _check_presence(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    """A partition of an index from outside: whether there is an entry of each key it is to have."""
    for one in held:
        written = one.written(one.keys)
        keys = partition.entries([written])["key"].combine_chunks()
        missing = view.lookup(partition, keys).values.null_count
        if missing:
            what = f"{partition.name}: {missing} entries are missing"
            yield (Fault.ENTRIES, one.file.path, what), written


_Check = Callable[[Snapshot, MetadataPartition, Sequence[Held]], Iterator[_Checked]]

_CHECKS: dict[str, _Check] = {
    FilesPartition.name: _check_nothing,
    ColumnStatsPartition.name: _check_stats,
    BloomFilterPartition.name: _check_filter,
}


# What is left of what is gone


def surplus_keys(
    view: Snapshot,
    partition: MetadataPartition,
    files: Sequence[DataFile | LogFile],
    rows: npt.NDArray[np.uint64],
) -> Iterator[tuple[int, pa.Array]]:
    """(live entries looked at, keys of those that no live file stands for), batch by batch.

    `rows`: of `hashes_of_keys`, ascending. Nothing of a partition that only its index knows.
    """
    if partition.name == BloomFilterPartition.name:
        files = [one for one in files if isinstance(one, DataFile)]
    folders = pa.array([one.partition_path for one in files], pa.string())
    names = pa.array([one.name for one in files], pa.string())
    if partition.name == BloomFilterPartition.name:
        expected = np.sort(xxh64(file_keys(folders, names), 0))
        strange = _strange_of(expected, lambda keys: xxh64(keys, 0))
    elif partition.name == ColumnStatsPartition.name:
        expected = np.sort(_of_files(stats_keys("", folders, names)))
        strange = _strange_of(expected, _of_files)
    elif isinstance(partition, RecordIndexPartition):
        strange = _strange_of(rows, lambda keys: xxh64(keys, 0))
    else:
        return
    outside = isinstance(partition, OutsidePartition)
    scanned = live_entries(view) if outside else view.scan(partition)
    for batch in filled(gathered(scanned, BATCH_ROWS)) or ():
        keys = batch["key"]
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        yield len(keys), keys.filter(pa.array(strange(keys)))


def _strange_of(
    expected: npt.NDArray[np.uint64], hashes: Callable[[pa.Array], npt.NDArray[np.uint64]]
) -> Callable[[pa.Array], npt.NDArray[np.bool_]]:
    def strange(keys: pa.Array) -> npt.NDArray[np.bool_]:
        asked = hashes(keys)
        at = np.minimum(np.searchsorted(expected, asked), max(len(expected) - 1, 0))
        return expected[at] != asked if len(expected) else np.ones(len(asked), bool)

    return strange


def _of_files(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of the part of each key of `column_stats` that names a file; 0 of what is no key."""
    try:
        return _hashed(decode_keys(keys))
    except CorruptError:
        return np.array([_of_file(keys.slice(row, 1)) for row in range(len(keys))], np.uint64)


def _of_file(key: pa.Array) -> int:
    try:
        return int(_hashed(decode_keys(key))[0])
    except (CorruptError, IndexError):
        return 0


def _hashed(parts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    if not len(parts):
        return np.zeros(0, np.uint64)
    files = pa.py_buffer(np.ascontiguousarray(parts[:, OF_FILE]))
    return xxh64(pa.Array.from_buffers(pa.binary(24), len(parts), [None, files]), 0)


def _has(index: Index, kind: type[MetadataPartition]) -> bool:
    return any(isinstance(one, kind) for one in index.partitions)
