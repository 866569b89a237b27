"""Base files: the Parquet files that hold a table's rows, with the footer that Hudi's writers read.

Columns: the five meta columns, then the table's. The footer tells bounds of the record keys and a
filter over them (`key_footer.py`): without the filter Hudi's bloom index dies of a null pointer,
so there always is one. The Arrow schema is not stored: readers see plain Parquet types, and, as
Parquet's field ids, the ids of the table's columns (`stored_columns.py`). A file's name is planned
before it is written and the write is put-if-absent: a second attempt finds the file of the first
and adopts it, because two files of one slice would make every read of the table fail.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.key_footer import (
    GrownFilter,
    footer_of,
    grown_footer,
    kept_footer,
    sound_filter,
)
from metatable.data.options import Options
from metatable.data.parquet import open_parquet
from metatable.data.schema import KEY_COLUMN, META_COLUMNS, META_FIELDS
from metatable.data.schema_text import TableSchema
from metatable.data.slices import DataFile
from metatable.data.stored_columns import (
    IDS_ARE_OURS,
    AskedColumns,
    StoredColumns,
    schema_with_ids,
)
from metatable.data.taking import taken
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.filters.hudi import HudiBloom
from metatable.storage.local_files import in_temporary_folder
from metatable.storage.store import Store

__all__ = [
    "add_changing_columns",
    "add_meta_columns",
    "columns_with_nan",
    "encoded_base_file",
    "encoded_columns",
    "footer_words",
    "grown_words",
    "kept_words",
    "read_base_file",
    "read_filter",
    "read_groups",
    "read_record_keys",
    "read_with_filter",
    "store_base_file",
    "stream_base_file",
    "stream_record_keys",
    "stream_to_base_file",
    "with_file_name",
    "write_base_file",
]

_COMMIT_TIME, _, _, _PARTITION_PATH, _FILE_NAME = META_COLUMNS
_SAMPLE = 8192
"""Rows looked at to decide whether a column is worth a dictionary."""

PAGE_ROWS = 2048
"""Rows of a page at most: who looks for one row decodes so many. Files are 1 to 2 % larger than
with pages of a megabyte, and encoding takes 7 % more; with half as many rows it takes 20 % more."""

PAGE_BYTES = 36 << 10
"""Values of a page before they are compressed, from which on it ends with half as many rows: of a
number and of what is short nothing changes, of texts as long as most keys are half is decoded."""

BATCH_ROWS = PAGE_ROWS // 2
"""Rows that pyarrow hands on at once to whoever encodes them, and behind which it looks whether a
page is full. Twice or four times as many would take a fiftieth less of all encoding."""

STEP_BYTES = 32 << 20
"""What a stream holds of a file at once; below it, another request costs more than the memory."""


def add_meta_columns(
    table: pa.Table,
    keys: pa.Array,
    data_file: DataFile,
    task: int = 0,
    numbers: Int64s | None = None,
) -> pa.Table:
    """Rows of the table as rows of `data_file`, written by its instant.

    `keys` (string) is their key text; `task` tells apart the files of one commit, so that a
    sequence number, `<instant>_<task>_<row>`, is given once. `numbers` are the rows' own, from 0
    on unless they are given.
    """
    told = (data_file.partition_path, data_file.name, str(task))
    words = [pa.repeat(word, table.num_rows) for word in told]
    own = np.arange(table.num_rows) if numbers is None else numbers
    return with_meta_columns_of(table, keys, data_file.instant, words, own)


def add_changing_columns(table: pa.Table, instant: str, task: int, numbers: Int64s) -> pa.Table:
    """The same with those meta columns alone that a row of one key has anew in each file."""
    columns = [*_changing(instant, str(task), numbers), *table.columns]
    return pa.table(columns, schema=pa.schema([*META_FIELDS[:2], *table.schema]))


def with_meta_columns_of(
    table: pa.Table,
    keys: pa.Array,
    instant: str,
    words: Sequence[pa.Array],
    numbers: Int64s,
) -> pa.Table:
    """The same for rows of several files. `words` (strings): partition path, file name and task of
    each row."""
    partition_paths, names, tasks = words
    changing = _changing(instant, tasks, numbers)
    columns = [*changing, keys, partition_paths, names, *table.columns]
    return pa.table(columns, schema=pa.schema([*META_FIELDS, *table.schema]))


def _changing(instant: str, tasks: pa.Array | str, numbers: Int64s) -> tuple[pa.Array, pa.Array]:
    """The instant and the sequence number of each row."""
    own = pc.cast(pa.array(numbers), pa.string())
    sequence = pc.binary_join_element_wise(instant, tasks, own, "_")
    return pa.repeat(instant, len(numbers)), sequence


def with_file_name(table: pa.Table, name: str) -> pa.Table:
    """Rows copied into a file: each names the file that holds it now; of a log its group."""
    place = table.schema.get_field_index(_FILE_NAME)
    names = pa.repeat(name, table.num_rows)
    return table.set_column(place, META_FIELDS[-1], names)


def write_base_file(
    store: Store,
    data_file: DataFile,
    table: pa.Table,
    *,
    options: Options,
    columns: TableSchema | None = None,
) -> tuple[int, bool]:
    """Write the rows, meta columns included, under the file's name, unless it is there.

    `columns` are the table's, with their ids; None: the file tells none.

    Returns its size in bytes, and whether what is stored is what was given. False: another
    attempt wrote other bytes first; they are the file, and entries must be made from them.
    """
    return store_base_file(store, data_file, encoded_base_file(table, options, columns))


def encoded_base_file(
    table: pa.Table,
    options: Options,
    columns: TableSchema | None,
    grown: GrownFilter | None = None,
) -> bytes:
    """The bytes of a file with these rows, meta columns included.

    `grown`: the filter of the file that it follows, which spares hashing the keys of that one.
    """
    sink = pa.BufferOutputStream()
    _encode_pieces(sink, iter([table]), options, columns, columns_with_nan(table), grown)
    return bytes(sink.getvalue())


def store_base_file(store: Store, data_file: DataFile, body: bytes | IO[bytes]) -> tuple[int, bool]:
    """Write these bytes, or those of an open file, under the file's name, unless it is there; as
    `write_base_file`."""
    size_bytes = len(body) if isinstance(body, bytes) else body.seek(0, os.SEEK_END)
    if store.create(data_file.path, body):
        return size_bytes, True
    return _stored_size(store, data_file), False


def stream_to_base_file(
    store: Store,
    data_file: DataFile,
    pieces: Iterable[pa.Table],
    *,
    options: Options,
    columns: TableSchema | None,
    with_nan: Collection[str],
    grown: GrownFilter | None = None,
) -> tuple[int, bool]:
    """The same, of rows that come piece by piece, of which one is in memory at a time.

    `with_nan`: columns of numbers of which one is not a number: what comes last is not known when
    the first ones are written. The bytes wait in a temporary file.
    """
    with in_temporary_folder(), tempfile.TemporaryFile() as body:
        _encode_pieces(body, iter(pieces), options, columns, with_nan, grown)
        return store_base_file(store, data_file, body)


def _stored_size(store: Store, data_file: DataFile) -> int:
    size = store.size(data_file.path)
    if size is None:
        raise CorruptError("data file vanished while it was written", path=data_file.path)
    return size


def read_base_file(
    store: Store, data_file: DataFile, schema: pa.Schema, columns: TableSchema | None = None
) -> pa.Table:
    """Exactly these columns, in this order. Raises CorruptError.

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
    """The same, and the filter over its keys, if it is ours and sound."""
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
        for groups in _steps(parquet.metadata, asked.names):
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
    """What is asked, of some row groups of an open file. Raises CorruptError."""
    table = parquet.read_row_groups(list(groups), asked.names)
    store.counters.add("data.row_groups", len(groups))
    expected = sum(parquet.metadata.row_group(group).num_rows for group in groups)
    _check_rows(data_file, expected, table.num_rows)
    return asked.of_table(table)


def _steps(
    footer: pq.FileMetaData, names: Iterable[str], groups: Iterable[int] | None = None
) -> Iterator[list[int]]:
    """Row groups (None: all), ascending; neighbours are joined up while these columns of them stay
    below STEP_BYTES."""
    paths = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)]
    starts = tuple(f"{name}." for name in names)
    leaves = [leaf for leaf, path in enumerate(paths) if f"{path}.".startswith(starts)]
    step: list[int] = []
    held = 0
    for group in range(footer.num_row_groups) if groups is None else groups:
        chunks = map(footer.row_group(group).column, leaves)
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        if step and (held + size > STEP_BYTES or group > step[-1] + 1):
            yield step
            step, held = [], 0
        step.append(group)
        held += size
    if step:
        yield step


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
    """The same, some STEP_BYTES at a time, not copied: key texts of neighbouring rows, and the
    position of the first of them."""
    with open_parquet(store, data_file) as parquet:
        starts, groups = _row_groups(parquet.metadata, first, last)
        for step in _steps(parquet.metadata, [KEY_COLUMN], groups):
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


def _encode_pieces(
    sink: Any,
    pieces: Iterator[pa.Table],
    options: Options,
    columns: TableSchema | None,
    with_nan: Collection[str],
    grown: GrownFilter | None,
) -> None:
    """The first piece tells which columns are worth a dictionary."""
    first = next(pieces)
    with _writer(sink, first, options, columns, with_nan) as writer:
        keys: list[pa.Array] = []
        for piece in chain([first], pieces):
            if piece.num_rows or not keys:
                writer.write_table(piece, row_group_size=options.row_group_rows)
            keys += piece.column(KEY_COLUMN).chunks
        every = pa.chunked_array(keys, first.schema.field(KEY_COLUMN).type)
        writer.add_key_value_metadata(footer_words(every, options, columns, grown))


def footer_words(
    keys: pa.ChunkedArray,
    options: Options,
    columns: TableSchema | None,
    grown: GrownFilter | None,
) -> dict[str, str]:
    """All that the footer of a file with these keys tells under names."""
    return _words(footer_of(keys, options.footer_bloom_fpp, grown), columns)


def grown_words(
    grown: GrownFilter, count: int, options: Options, columns: TableSchema | None
) -> dict[str, str] | None:
    """The same of a file of so many keys that follows another; None: its keys must be looked at."""
    words = grown_footer(grown, count, options.footer_bloom_fpp)
    return None if words is None else _words(words, columns)


def kept_words(
    footer: pq.FileMetaData, options: Options, columns: TableSchema | None
) -> dict[str, str] | None:
    """The same of a file that has the keys of another, whose footer this is."""
    words = kept_footer(footer, options.footer_bloom_fpp)
    return None if words is None else _words(words, columns)


def _words(words: dict[str, str], columns: TableSchema | None) -> dict[str, str]:
    return words | ({IDS_ARE_OURS: "1"} if columns else {})


def encoded_columns(
    table: pa.Table,
    options: Options,
    columns: TableSchema | None,
    with_nan: Collection[str],
    dictionaries: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> pa.Buffer:
    """Some columns of a base file, meta columns among them, as they stand in one: a Parquet file of
    one row group, or of some of so many rows. `dictionaries`: leaves that get one; None: those
    whose values repeat."""
    sink = pa.BufferOutputStream()
    with _writer(sink, table, options, columns, with_nan, dictionaries) as writer:
        start = 0
        for size in [table.num_rows] if sizes is None else sizes:
            if size:
                writer.write_table(table.slice(start, size), row_group_size=size)
            start += size
    return sink.getvalue()


def _writer(
    sink: Any,
    rows: pa.Table,
    options: Options,
    columns: TableSchema | None,
    with_nan: Collection[str],
    dictionaries: Sequence[str] | None = None,
) -> pq.ParquetWriter:
    """Of files with the columns of these rows, which tell what is worth a dictionary."""
    schema = rows.schema if columns is None else schema_with_ids(columns)
    worth = _worth_a_dictionary(rows) if dictionaries is None else list(dictionaries)
    return pq.ParquetWriter(
        sink,
        pa.schema([_as_held(schema.field(one.name), one.type) for one in rows.schema]),
        compression=_codecs(rows.schema, options),
        use_dictionary=worth,
        write_statistics=_worth_statistics(rows.schema, with_nan),
        store_schema=False,
        write_page_checksum=True,
        write_page_index=True,
        max_rows_per_page=PAGE_ROWS,
        data_page_size=PAGE_BYTES,
        write_batch_size=BATCH_ROWS,
        version="2.6",
    )


def _codecs(schema: pa.Schema, options: Options) -> dict[str, str]:
    """Of each leaf column. What has one value in a file, or some in long runs, is a few bytes a
    page: no codec makes fewer of them, and each call of one costs more than those bytes do."""
    plain = {_COMMIT_TIME, _PARTITION_PATH, _FILE_NAME, *options.partition_by}
    return {
        leaf: "none" if field.name in plain else options.parquet_codec
        for field in schema
        for leaf in _leaves(field)
    }


def _as_held(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """The field of a column of this type, which may be a dictionary: Parquet's is the same."""
    return field.with_type(kind) if pa.types.is_dictionary(kind) else field


def _worth_a_dictionary(table: pa.Table) -> list[str]:
    """Leaf columns whose values repeat in a sample; nested ones are not looked at, but get one, nor
    Hudi's own, of which three repeat and two never do."""
    if not table.num_rows:
        return []
    rows = pa.array(
        np.linspace(0, table.num_rows - 1, min(_SAMPLE, table.num_rows)).astype(np.int64)
    )
    worth = [_COMMIT_TIME, _PARTITION_PATH, _FILE_NAME]
    for field in table.schema:
        if field.name in META_COLUMNS:
            continue
        if pa.types.is_nested(field.type):
            worth += _leaves(field)
        elif pa.types.is_boolean(field.type) or len(rows) == 1:
            continue
        elif pc.count_distinct(taken(table.select([field.name]), rows)[0]).as_py() * 2 <= len(rows):
            worth.append(field.name)
    return worth


def columns_with_nan(table: pa.Table) -> list[str]:
    """Columns of numbers of which one is not a number."""
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    return [name for name in floats if pc.any(pc.is_nan(table.column(name))).as_py()]


def _worth_statistics(schema: pa.Schema, with_nan: Collection[str]) -> list[str]:
    """Columns whose footer bounds tell the truth.

    Bounds leave NaN out, but readers for which NaN is the greatest number (Spark) would skip
    row groups that hold it. So a column with a NaN gets none, and nested ones get none.
    """
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    return [name for name in flat if name not in with_nan]


def _leaves(field: pa.Field) -> list[str]:
    """Parquet's paths of the leaves below a field."""
    kind = field.type
    if pa.types.is_struct(kind):
        below = [leaf for inner in kind for leaf in _leaves(inner)]
    elif pa.types.is_list(kind):
        below = [f"list.{leaf}" for leaf in _leaves(kind.value_field.with_name("element"))]
    elif pa.types.is_map(kind):
        key = ["key_value.key"]
        below = key + [f"key_value.{leaf}" for leaf in _leaves(kind.item_field.with_name("value"))]
    else:
        return [field.name]
    return [f"{field.name}.{leaf}" for leaf in below]


def _row_groups(
    footer: pq.FileMetaData, first: str | None, last: str | None
) -> tuple[Int64s, list[int]]:
    """Where each row group starts (and the end), and which ones may hold keys of the range."""
    counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    starts: Int64s = np.cumsum([0, *counts])
    leaf = _leaf(footer)
    low = None if first is None else first.encode()
    high = None if last is None else last.encode()
    groups = [
        group
        for group in range(footer.num_row_groups)
        if _may_hold(footer.row_group(group).column(leaf).statistics, low, high)
    ]
    return starts, groups


def _leaf(footer: pq.FileMetaData) -> int:
    paths = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)]
    if KEY_COLUMN not in paths:
        raise pa.ArrowInvalid(f"no column {KEY_COLUMN}")
    return paths.index(KEY_COLUMN)


def _may_hold(statistics: pq.Statistics | None, low: bytes | None, high: bytes | None) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    below = high is not None and _bytes(statistics.min) > high
    above = low is not None and _bytes(statistics.max) < low
    return not below and not above


def _bytes(bound: str | bytes) -> bytes:
    return bound.encode() if isinstance(bound, str) else bound
