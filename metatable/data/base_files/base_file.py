"""Reads base files: all of their rows or a stream of them, by the table's columns; or their record
keys, or the filter over these, alone.

How such a file is made, and what stands in it: `base_file_writer.py`. Files of other Hudi writers
are read as well. Where a file is damaged, and where pyarrow gives another number of rows than the
footer tells, that is a CorruptError which names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.base_files.key_footer import sound_filter
from metatable.data.base_files.parquet import OpenedFile, open_parquet
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import AskedColumns, StoredColumns
from metatable.data.file_groups.slices import DataFile
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.filters.hudi import HudiBloom
from metatable.storage.parquet.footer import ToldChunk
from metatable.storage.store import Store

__all__ = [
    "read_base_file",
    "read_filter",
    "read_groups",
    "read_record_keys",
    "read_with_filter",
    "stream_base_file",
    "stream_record_keys",
]

STEP_BYTES = 32 << 20
"""What a stream holds of a file at once; below it, another request costs more than the memory."""


def read_base_file(
    store: Store, data_file: DataFile, schema: pa.Schema, columns: TableSchema | None = None
) -> pa.Table:
    """All rows of a file, with exactly the columns of `schema`. Raises CorruptError.

    Texts that are asked for as a dictionary come as they are stored. A nullable column that the
    file lacks is null; a narrower type is widened. `columns` are the table's: what a file has of
    one its id tells; None: its name.
    """
    coded = [one.name for one in schema if pa.types.is_dictionary(one.type)]
    with open_parquet(store, data_file, coded) as parquet:
        return _read_all(store, data_file, parquet, schema, columns)


def read_with_filter(
    store: Store, data_file: DataFile, schema: pa.Schema, columns: TableSchema | None
) -> tuple[pa.Table, HudiBloom | None]:
    """The rows as of `read_base_file`, and the filter over the keys, if it is ours and sound."""
    with open_parquet(store, data_file) as parquet:
        table = _read_all(store, data_file, parquet, schema, columns)
        return table, sound_filter(parquet.metadata.metadata)


def _read_all(
    store: Store,
    data_file: DataFile,
    parquet: pq.ParquetFile,
    schema: pa.Schema,
    columns: TableSchema | None,
) -> pa.Table:
    asked = AskedColumns.of(StoredColumns.of(parquet, data_file.path), schema, columns)
    table = read_groups(store, data_file, parquet, range(parquet.num_row_groups), asked)
    _check_rows(data_file, parquet.metadata.num_rows, table.num_rows)
    return table


def read_filter(store: Store, data_file: DataFile) -> HudiBloom | None:
    """The filter over the keys of a file, if it is ours and sound. Raises CorruptError."""
    with open_parquet(store, data_file) as parquet:
        return sound_filter(parquet.metadata.metadata)


def stream_base_file(
    store: Store, data_file: DataFile, schema: pa.Schema, columns: TableSchema | None = None
) -> Iterator[pa.Table]:
    """As `read_base_file`, but row groups of some STEP_BYTES at a time, at least one."""
    with open_parquet(store, data_file) as parquet:
        given = 0
        asked = AskedColumns.of(StoredColumns.of(parquet, data_file.path), schema, columns)
        for groups in _steps(parquet, asked.names):
            table = read_groups(store, data_file, parquet, groups, asked)
            given += table.num_rows
            yield table
            del table  # not held while the next ones are read
        _check_rows(data_file, parquet.metadata.num_rows, given)


def read_groups(
    store: Store,
    data_file: DataFile,
    parquet: pq.ParquetFile,
    groups: Sequence[int],
    asked: AskedColumns,
) -> pa.Table:
    """What is asked of some row groups (by number) of an open file. Raises CorruptError."""
    table = parquet.read_row_groups(list(groups), asked.names)
    store.counters.add("data.row_groups", len(groups))
    expected = sum(parquet.metadata.row_group(group).num_rows for group in groups)
    _check_rows(data_file, expected, table.num_rows)
    return asked.of_table(table)


def _steps(
    parquet: OpenedFile, names: Iterable[str], groups: Iterable[int] | None = None
) -> Iterator[list[int]]:
    """Row groups (None: all), ascending; neighbours are joined up while these columns of them stay
    below STEP_BYTES. Raises CorruptError."""
    footer = parquet.metadata
    every = [*(range(footer.num_row_groups) if groups is None else groups)]
    sizes = [footer.row_group(group).total_byte_size for group in every]
    if sum(sizes) > STEP_BYTES:
        sizes = _bytes_of(parquet, every, names)
    step: list[int] = []
    held = 0
    for group, size in zip(every, sizes, strict=True):
        if step and (held + size > STEP_BYTES or group > step[-1] + 1):
            yield step
            step, held = [], 0
        step.append(group)
        held += size
    if step:
        yield step


def _bytes_of(parquet: OpenedFile, groups: Iterable[int], names: Iterable[str]) -> list[int]:
    """The bytes of these columns, before compression, in each of these row groups. Raises
    CorruptError."""
    footer = parquet.metadata
    paths = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)]
    asked = {*names}
    leaves = [leaf for leaf, path in enumerate(paths) if not asked.isdisjoint(_columns_of(path))]
    parquet.check_chunks(leaves)
    return [
        sum(footer.row_group(group).column(leaf).total_uncompressed_size for leaf in leaves)
        for group in groups
    ]


def _columns_of(path: str) -> Iterable[str]:
    """What the column of a leaf may be called: a dot of its path may be one of a name."""
    return accumulate(path.split("."), "{}.{}".format)


def read_record_keys(
    store: Store, data_file: DataFile, first: str | None = None, last: str | None = None
) -> tuple[pa.Array, Int64s]:
    """Key text (string array) and row position of the rows that may lie in [first, last].

    Row groups whose statistics cannot hold the range are not read; the others come whole.
    """
    found = [*stream_record_keys(store, data_file, first, last)]
    keys = pa.concat_arrays([pa.array([], pa.string()), *(one for one, _ in found)])
    rows = [np.arange(start, start + len(one)) for one, start in found]
    return keys, np.concatenate([np.empty(0, np.int64), *rows])


def stream_record_keys(
    store: Store, data_file: DataFile, first: str | None = None, last: str | None = None
) -> Iterator[tuple[pa.Array, int]]:
    """What `read_record_keys` gives, some STEP_BYTES at a time and not copied: the key texts of
    neighbouring rows, and the position of the first of them."""
    with open_parquet(store, data_file) as parquet:
        starts, groups = _row_groups(parquet, first, last)
        for step in _steps(parquet, [KEY_COLUMN], groups):
            column = parquet.read_row_groups(step, [KEY_COLUMN]).column(KEY_COLUMN)
            store.counters.add("data.row_groups", len(step))
            if column.null_count:
                raise CorruptError("a stored record key is null", path=data_file.path)
            at, end = int(starts[step[0]]), int(starts[step[-1] + 1])
            _check_rows(data_file, end - at, len(column))
            for keys in column.cast(pa.string()).chunks:
                yield keys, at
                at += len(keys)


def _check_rows(data_file: DataFile, expected: int, found: int) -> None:
    """Page headers have no checksum: where one is damaged, pyarrow may give fewer rows."""
    if found != expected:
        what = "data file holds another number of rows than its footer says"
        raise CorruptError(what, path=data_file.path, expected=expected, found=found)


def _row_groups(
    parquet: OpenedFile, first: str | None, last: str | None
) -> tuple[Int64s, list[int]]:
    """(the row at which each row group starts, and behind them the end; which row groups may hold
    keys of the range). Raises CorruptError."""
    footer = parquet.metadata
    counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    starts: Int64s = np.cumsum([0, *counts])
    leaf = _key_leaf(footer)
    parquet.check_chunks([leaf])
    low = None if first is None else first.encode()
    high = None if last is None else last.encode()
    groups = [
        group
        for group in range(footer.num_row_groups)
        if _may_hold(ToldChunk.of(footer, group, leaf).statistics, low, high)
    ]
    return starts, groups


def _key_leaf(footer: pq.FileMetaData) -> int:
    """The number of the key column among the leaf columns."""
    paths = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)]
    if KEY_COLUMN not in paths:
        raise pa.ArrowInvalid(f"no column {KEY_COLUMN}")
    return paths.index(KEY_COLUMN)


def _may_hold(statistics: pq.Statistics | None, low: bytes | None, high: bytes | None) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    least, most = statistics.min_raw, statistics.max_raw  # which may end within a character
    below = high is not None and least > high
    above = low is not None and most < low
    return not below and not above
