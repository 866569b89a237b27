"""Partition `column_stats`: bounds and counts of each column of every live slice.

    key    base64(hash64(column) ‖ hash64(partition path) ‖ hash128(file name))   (RFC-37)
    value  MetadataRecord, ColumnStatsMetadata

Keys put a column's statistics together, a partition's within it, so both are read by one
prefix. Bounds of `_hoodie_record_key` are exact; those of other columns may be wider than
the data, never narrower; an absent bound says nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.schema import META_COLUMNS
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.paths import names_of
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.rows.taking import whole as whole_column
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.hfiles.keys import (
    column_partition_prefix,
    column_prefix,
    partition_words,
    stats_keys,
)
from metatable.metadata.hfiles.partition import ENTRIES, MetadataPartition
from metatable.metadata.hfiles.payload import (
    STATS_TOMBSTONE,
    decode_stats,
    encode_stats,
    schema_text,
)
from metatable.metadata.partitions.files import (
    hold_partitions,
    keep_listing,
    view_of_partition,
    view_of_table,
)
from metatable.metadata.view import FEW_PARTITIONS, StatsColumn
from metatable.metadata.written import WrittenSlice
from metatable.storage.arrays import Bools, Int64s, UInt64s
from metatable.storage.byte_columns import byte_layout
from metatable.storage.cache import cached, shared
from metatable.storage.quick_hash import quick_hash
from metatable.storage.threads import beside
from metatable.storage.word_places import WordPlaces

__all__ = [
    "RECORD_KEY",
    "ColumnStatsPartition",
    "hold_stats",
    "maxima",
    "null_counts",
    "row_counts",
    "rows_in",
    "stats_column",
    "stats_of",
]

RECORD_KEY = META_COLUMNS[2]

_TOLD = ["minimum", "maximum", "null_count", "value_count"]

_NAME = "column_stats"


class ColumnStatsPartition(MetadataPartition):
    """`column_stats`: for each column of each file its bounds and counts, under the hashes of the
    column, the file's partition and its name."""

    name: ClassVar[str] = _NAME
    tombstone: ClassVar[bytes] = STATS_TOMBSTONE

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        told = [(one, file) for each in written for file, stats in each.files for one in stats]
        stats, made = [one for one, _ in told], [(one.column, file) for one, file in told]
        replaced = [
            (column, old)
            for each in written
            for old in each.superseded
            for column in dict.fromkeys((*(one.column for one in each.stats), *each.past_stats))
        ]
        keys = _keys([*made, *replaced])
        values = encode_stats([file.name for _, file in made], stats)
        values = pa.concat_arrays([values, pa.nulls(len(replaced), pa.binary())])
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        return self.retired_files([file for one in slices for file in one.files], columns)

    def retired_files(
        self, files: Sequence[DataFile | LogFile], columns: Sequence[str]
    ) -> pa.Table:
        """What it loses with these files, which leave alone; `columns` as in `retired`."""
        return self.tombstones_of(_keys([(name, one) for one in files for name in columns]))

    def file_info(self) -> Mapping[str, bytes]:
        return {"schema": schema_text().encode()}


def _keys(named: Sequence[tuple[str, DataFile | LogFile]]) -> pa.Array:
    return stats_keys(
        pa.array([column for column, _ in named], pa.string()),
        pa.array([one.partition_path for _, one in named], pa.string()),
        pa.array([one.name for _, one in named], pa.string()),
    )


def stats_column(
    entries: Entries, column: str, type: pa.DataType, partition_paths: Iterable[str] | None
) -> StatsColumn:
    """A column's statistics in the named table partitions (None: in all), live slices only."""
    paths = None if partition_paths is None else sorted(set(partition_paths))
    _warm(entries, [column])
    if paths is None or len(paths) > FEW_PARTITIONS or entries.is_small(_NAME):
        whole = _kept(entries, column, type, None)
        return whole if paths is None else whole.take(whole.files.within(paths))
    parts = [_kept(entries, column, type, path) for path in paths]
    return parts[0] if len(parts) == 1 else _joined(parts, type)


def _kept(
    entries: Entries, column: str, type: pa.DataType, partition_path: str | None
) -> StatsColumn:
    """A column's statistics in one table partition (None: in all), from the process's cache."""
    kept = cached(
        _key(entries, column, partition_path),
        lambda: _load(entries, column, type, partition_path),
        lambda _: 200,
        lambda stats: (stats.files, *stats.columns),
    )
    keep_listing(entries, partition_path)
    return kept


def _key(entries: Entries, column: str, partition_path: str | None) -> Hashable:
    return "stats", entries.identity, column, partition_path


def _warm(entries: Entries, columns: Sequence[str]) -> None:
    """A key's bounds are asked for by whoever asks for its filters next."""
    entries.warm("files", _NAME, *(["bloom_filter"] if RECORD_KEY in columns else []))


def hold_stats(entries: Entries, columns: Sequence[str], partition_paths: Sequence[str]) -> None:
    """Fetch together, from afar, what `stats_column` of these columns in so few table partitions
    would fetch one by one: their files and their statistics."""
    if not entries.store.is_distant or len(partition_paths) > FEW_PARTITIONS:
        return
    missing = [
        (column, path)
        for column in columns
        for path in partition_paths
        if shared.get(_key(entries, column, path)) is None
    ]
    if not missing:
        return
    _warm(entries, columns)
    if entries.is_small(_NAME):
        return
    prefixes = [column_partition_prefix(*one) for one in missing]
    paths = list(dict.fromkeys(path for _, path in missing))
    stats = partial(entries.hold, ColumnStatsPartition(entries.options), prefixes)
    entries.store.together([stats, partial(hold_partitions, entries, paths)])


def _joined(parts: Sequence[StatsColumn], type: pa.DataType) -> StatsColumn:
    """The statistics of several table partitions, which come in byte order, so that the files are
    in order as they are joined."""
    none = [pa.array([], kind) for kind in (type, type, pa.int64(), pa.int64())]
    arrays = zip(none, *(part.columns for part in parts), strict=True)
    files = FileSystemView.joined([part.files for part in parts])
    return StatsColumn(files, *map(pa.concat_arrays, arrays))


def stats_of(
    entries: Entries, column: str, type: pa.DataType, files: Sequence[FileSlice]
) -> pa.Table:
    """`minimum`, `maximum`, `null_count`, `value_count` of the column, one row per slice, by one
    lookup. Null: nothing is known."""
    if not len(files):
        return decode_stats(pa.array([], pa.binary()), type).select(_TOLD)
    if entries.is_small(_NAME):
        whole = _kept(entries, column, type, None)
        bases = pc.index_in(_first_paths(files), value_set=whole.files.paths)
        held = np.flatnonzero(bases.is_valid().to_numpy(zero_copy_only=False))
        told = whole.files.has_logs[bases.drop_null().to_numpy()]
        if not (told & ~_with_logs(files)[held]).any():  # else bases without their logs are asked
            columns = [getattr(whole, one).take(bases) for one in _TOLD]
            return pa.table(columns, names=_TOLD)
    folders, names, slices = _places(files)
    keys = stats_keys(pa.repeat(column, len(names)), folders, names)
    found = entries.lookup(ColumnStatsPartition(entries.options), keys)
    known = found.values.is_valid()
    held = decode_stats(found.values.drop_null(), type).combine_chunks()
    numbers = np.cumsum(known.to_numpy(zero_copy_only=False)) - 1
    places = pa.array(numbers, mask=pc.invert(known).to_numpy(zero_copy_only=False))
    told = _of_slices([whole_column(held[one]).take(places) for one in _TOLD], slices, len(files))
    return pa.table(told, names=_TOLD)


def maxima(
    entries: Entries, column: str, type: pa.DataType, files: Sequence[FileSlice]
) -> pa.Array:
    """The column's maximum in each file, of its type: one lookup. Null: nothing is known."""
    return stats_of(entries, column, type, files)["maximum"].combine_chunks()


def null_counts(
    entries: Entries, column: str, type: pa.DataType, files: Sequence[FileSlice]
) -> pa.Array:
    """How many nulls the column has in each slice, at most: one lookup. Null: nothing is known."""
    return stats_of(entries, column, type, files)["null_count"].combine_chunks()


def row_counts(entries: Entries, files: Sequence[FileSlice], at_most: bool = False) -> Int64s:
    """Rows of each slice, from the statistics of its record keys; -1 where they are missing, and
    where there are logs, unless it may be `at_most` so many."""
    counts, asked = np.full(len(files), -1), np.arange(len(files))
    if not at_most:
        asked = np.flatnonzero(~_with_logs(files))  # keys of a log may be in its base, too
    told = stats_of(entries, RECORD_KEY, pa.string(), _some(files, asked))["value_count"]
    counts[asked] = told.fill_null(-1).to_numpy()
    return counts


def rows_in(entries: Entries, files: Sequence[DataFile | LogFile]) -> list[int]:
    """Rows of single files: one lookup; -1 where statistics are missing."""
    keys = _keys([(RECORD_KEY, one) for one in files])
    values = entries.lookup(ColumnStatsPartition(entries.options), keys).values
    counts = iter(decode_stats(values.drop_null(), pa.string())["value_count"].to_pylist())
    return [next(counts) if there else -1 for there in values.is_valid().to_pylist()]


def _places(files: Sequence[FileSlice]) -> tuple[pa.Array, pa.Array, Int64s]:
    """(partition path, name, ordinal of the slice) of all files, the first of each slice before
    the others; a view gives them without an object per file."""
    if isinstance(files, FileSystemView):
        paths, _, slices = files.all_files()
        folders = files.folders.take(pa.array(files.folder_of)).take(pa.array(slices))
        return folders, names_of(paths), slices
    logs = [(place, log) for place, one in enumerate(files) for log in one.files[1:]]
    each = [*enumerate(one.files[0] for one in files), *logs]
    folders = pa.array([one.partition_path for _, one in each], pa.string())
    names = pa.array([one.name for _, one in each], pa.string())
    return folders, names, np.array([place for place, _ in each], np.int64)


def _first_paths(files: Sequence[FileSlice]) -> pa.Array:
    """The path of the first file of each slice; a view has them as a column."""
    if isinstance(files, FileSystemView):
        return files.paths
    return pa.array([one.path for one in files], pa.string())


def _some(files: Sequence[FileSlice], places: Int64s) -> Sequence[FileSlice]:
    """Those at these places, which ascend; a view gives them without an object per file."""
    if len(places) == len(files):
        return files
    if isinstance(files, FileSystemView):
        return files.take(places)
    return [files[place] for place in places.tolist()]


def _with_logs(files: Sequence[FileSlice]) -> Bools:
    """Which slices have logs; a view tells it of all at once."""
    if isinstance(files, FileSystemView):
        return files.has_logs
    return np.array([bool(one.logs) for one in files], np.bool_)


def _of_slices(columns: Sequence[pa.Array], slices: Int64s, count: int) -> list[pa.Array]:
    """`_TOLD` of slices, from those of their files: what may be in any of them.

    A bound that one file does not tell nobody knows, unless the file has nothing but nulls;
    counts are sums, and so too great where a key is in several files.
    """
    if len(slices) == count:
        return list(columns)
    minimum, maximum, nulls, values = columns
    empty = pc.fill_null(pc.equal(nulls, values), False)
    by_slice = {
        "slice": slices,
        "nulls": nulls,
        "values": values,
        "untold": pc.invert(pc.or_(empty, pc.and_(minimum.is_valid(), maximum.is_valid()))),
        "unknown": values.is_null(),
    }
    asked = [("nulls", "sum"), ("values", "sum"), ("untold", "any"), ("unknown", "any")]
    has_bounds = not pa.types.is_nested(minimum.type)  # others Arrow does not compare
    if has_bounds:
        by_slice |= {"minimum": minimum, "maximum": maximum}
        asked += [("minimum", "min"), ("maximum", "max")]
    found = pa.table(by_slice).group_by("slice").aggregate(asked).sort_by("slice")

    def told(name: str, hidden: str) -> pa.Array:
        return whole_column(pc.if_else(found[hidden], None, found[name]))

    ends = [pa.nulls(count, minimum.type)] * 2
    if has_bounds:
        ends = [told("minimum_min", "untold_any"), told("maximum_max", "untold_any")]
    return [*ends, told("nulls_sum", "unknown_any"), told("values_sum", "unknown_any")]


def _load(
    entries: Entries, column: str, type: pa.DataType, partition_path: str | None
) -> StatsColumn:
    """A column's statistics as they are stored, put in the order of the files that are listed."""
    if partition_path is None:
        listed, prefix = partial(view_of_table, entries), column_prefix(column)
    else:
        listed = partial(view_of_partition, entries, partition_path)
        prefix = column_partition_prefix(column, partition_path)

    def with_words() -> tuple[FileSystemView, WordPlaces | None]:
        return _with_words(listed())

    if not entries.is_small(_NAME):
        with_words = beside(with_words)
    partition = ColumnStatsPartition(entries.options)
    read = partial(_numbers, column=column, type=type)
    pieces = entries.pieces(partition, read, prefix, _in_one)
    columns = pa.concat_tables([_numbers_of_none(type), *pieces]).columns
    files, words = with_words()
    places = _places_among(words, columns.pop(0).to_numpy())
    del words
    if places is None:  # two words are equal, by chance: keys are not
        folders, names, _ = _places(files)
        keys = stats_keys(pa.repeat(column, len(names)), folders, names)
        held = [*entries.pieces(partition, partial(_keys_of, column=column), prefix)]
        found = pc.index_in(keys, value_set=pa.chunked_array(held, pa.binary()))
        places = found.fill_null(-1).to_numpy().astype(np.int64)
    told = [_taken(columns.pop(0).combine_chunks(), places) for _ in _TOLD]  # and each goes
    return StatsColumn(files, *_of_slices(told, files.all_sizes()[1], len(files)))


def _in_one(tables: list[pa.Table]) -> pa.Table:
    """In a chunk of memory of its own, which is given back when it goes."""
    return pa.concat_tables(tables).combine_chunks()


def _taken(column: pa.Array, places: Int64s) -> pa.Array:
    """The values at these places, null where they are -1. Numbers alone are moved by numpy, which
    takes a fifth of the time."""
    absent = places < 0
    if absent.any() or column.null_count or not pa.types.is_integer(column.type):
        return column.take(pa.array(places, mask=absent))
    numbers = column.to_numpy()
    room = pa.allocate_buffer(numbers.itemsize * len(places), resizable=False)
    numbers.take(places, out=np.frombuffer(room, numbers.dtype), mode="clip")  # else it is buffered
    return pa.Array.from_buffers(column.type, len(places), [None, room])


def _numbers_of_none(type: pa.DataType) -> pa.Table:
    counts = {"null_count": pa.int64(), "value_count": pa.int64()}
    kinds = {"word": pa.uint64(), "minimum": type, "maximum": type} | counts
    return pa.schema(list(kinds.items())).empty_table()


def _numbers(batch: pa.RecordBatch, column: str, type: pa.DataType) -> pa.Table:
    """What is told of a column, and a `word`, 64 bits that tell its file from others by its name
    and its partition: it is found by that, and names are hashed while they are at hand."""
    rows = decode_stats(batch["value"], type, names=("file_name", "column", *_TOLD))
    layout, data = byte_layout(pc.fill_null(whole_column(rows["file_name"]), ""))
    offsets = layout.astype(np.int64)
    words = quick_hash(data, offsets[:-1], np.diff(offsets))
    words ^= partition_words(batch["key"])
    rows = rows.add_column(0, "word", pa.array(words))
    ours, rows = pc.equal(rows["column"], column), rows.select(["word", *_TOLD])
    # a prefix may be shared with another column
    return rows if pc.all(ours).as_py() else rows.filter(ours)


def _keys_of(batch: pa.RecordBatch, column: str) -> pa.Array:
    names = decode_stats(batch["value"], None, names=["column"])["column"]
    return batch["key"].filter(pc.equal(names, column).combine_chunks())


def _with_words(files: FileSystemView) -> tuple[FileSystemView, WordPlaces | None]:
    """The slices, and the words of `all_files`; None: two are equal."""
    of_folder = partition_words(stats_keys("", files.folders, pa.repeat("", len(files.folders))))
    words = files.name_hashes()
    folders = files.folder_of
    words ^= of_folder.take(folders if files.logs is None else folders[files.all_sizes()[1]])
    return files, WordPlaces.of(words)


def _places_among(asked: WordPlaces | None, held: UInt64s) -> Int64s | None:
    """Where the words asked are among those that are held, -1: nowhere. None: some are equal."""
    if asked is None:
        return None
    files = asked.find(held)
    rows = np.flatnonzero(files >= 0)
    places = np.full(len(asked.words), -1)
    places[files[rows]] = rows
    return None if np.count_nonzero(places >= 0) < len(rows) else places
