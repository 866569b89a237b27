"""The one way rows of a file slice are read, whole or as a stream.

They are those of the base file, with its logs merged in. Base rows come row groups at a time; what
the logs of one slice hold is in memory. Which columns are read, and what decides between rows of
one key, a `ReadColumns` says (`read_columns.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, filterfalse, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.base_file import read_base_file, read_record_keys, stream_base_file
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import KEY_COLUMN, PATH_COLUMN, with_meta_columns
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.logs.block_rows import block_columns, blocks_rows, stored_columns
from metatable.data.logs.log_blocks import blocks_deletes
from metatable.data.logs.log_merge import ReadLogs, SliceLogs, live_blocks
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log import log_file
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock, first_instant
from metatable.storage.store import Store
from metatable.storage.threads import beside

__all__ = [
    "HeldLog",
    "columns_of_log",
    "first_writer_of",
    "keys_of_log",
    "log_deletes",
    "log_rows",
    "logs_of_each",
    "merge_logs",
    "read_logs",
    "read_slice",
    "read_slice_keys",
    "stream_left",
    "stream_slice",
    "writer_of",
]

FIRST_BYTES = 4 << 10
"""Of a log are read at first, of which only the instant is asked: ours begin with it."""


def read_slice(
    store: Store, file_slice: FileSlice, read: ReadColumns, logs: ReadLogs | None = None
) -> pa.Table:
    """The rows of a slice, with exactly the columns that are asked for.

    `logs`: what gives its logs, if they are not to be read here (`logs_together`). Raises
    CorruptError, and UpgradeError for logs of other kinds.
    """
    if not file_slice.logs:
        return read_base_file(store, file_slice.base, read.schema, read.table)
    pieces = stream_slice(store, file_slice, read, logs=logs)
    return pa.concat_tables([read.schema.empty_table(), *pieces])


def stream_slice(
    store: Store,
    file_slice: FileSlice,
    read: ReadColumns,
    *,
    in_place: bool = True,
    logs: ReadLogs | None = None,
) -> Iterator[pa.Table]:
    """The rows of `read_slice`, in the same order, a few row groups at a time. Not `in_place`: in
    another order, which is less work where there are logs."""
    if not file_slice.logs:
        return stream_base_file(store, file_slice.base, read.schema, read.table)
    bases = [file_slice.base] if file_slice.has_base else []
    logs = logs or partial(_logs_of, store, file_slice.logs, read)
    return _merged(store, _bases(store, bases, read), logs, read.schema, in_place)


def read_slice_keys(
    store: Store,
    file_slice: FileSlice,
    columns: TableSchema | None,
    ordering: str | None,
    first: str | None = None,
    last: str | None = None,
    logs: ReadLogs | None = None,
) -> tuple[pa.Array, Int64s]:
    """Key text (string array) and row position of the rows that may lie in [first, last]. `logs` as
    of `read_slice`."""
    if not file_slice.logs:
        return read_record_keys(store, file_slice.base, first, last)
    rows = read_slice(store, file_slice, ReadColumns.of_keys(columns, ordering), logs)
    keys = whole(rows[KEY_COLUMN])
    inside = np.ones(len(keys), np.bool_)
    for bound, holds in ((first, pc.greater_equal), (last, pc.less_equal)):
        if bound is not None:
            inside &= holds(keys, bound).to_numpy(zero_copy_only=False)
    return keys.filter(pa.array(inside)), np.flatnonzero(inside)


def merge_logs(
    store: Store,
    file_slice: FileSlice,
    base: pa.Table,
    read: ReadColumns,
    logs: ReadLogs | None = None,
) -> pa.Table:
    """Some rows of the base file of a slice, read with `read.deciding`, as its logs have them; and
    the rows that the logs have besides. `logs` as of `read_slice`."""
    logs = logs or partial(_logs_of, store, file_slice.logs, read)
    pieces = _merged(store, iter([base]), logs, read.schema)
    return pa.concat_tables([read.schema.empty_table(), *pieces])


def log_rows(
    store: Store, log: LogFile, schema: pa.Schema, columns: TableSchema | None
) -> pa.Table:
    """The rows of the data blocks of one log, deletes and other logs aside. Raises as above."""
    [rows] = _rows([_blocks(store, log)], schema, columns)
    return rows


@dataclass(frozen=True, slots=True)
class HeldLog:
    """A log of which nothing is damaged: its rows, with all columns of the table, the names of
    those that it has, and the instants that its blocks tell."""

    rows: pa.Table
    columns: frozenset[str]
    instants: frozenset[str]


def read_logs(
    store: Store, logs: Sequence[LogFile], columns: TableSchema, ordering: str | None
) -> list[HeldLog]:
    """All of some logs, their deletes too. Raises as above."""
    kind = None if ordering is None else columns.arrow.field(ordering).type
    found = store.together([partial(_blocks, store, one) for one in logs])
    blocks_deletes([*filter(_is_delete, chain.from_iterable(found))], kind)
    told = zip(logs, found, _rows(found, with_meta_columns(columns.arrow), columns), strict=True)
    return [_held(columns, *one) for one in told]


def _held(
    columns: TableSchema, log: LogFile, blocks: Sequence[LogBlock], rows: pa.Table
) -> HeldLog:
    for name in (KEY_COLUMN, PATH_COLUMN):
        if rows[name].null_count:
            raise CorruptError("a row in a log file has no key", path=log.path, column=name)
    names = frozenset[str]().union(*(block_columns(one, columns) for one in blocks))
    return HeldLog(rows, names, _instants(blocks))


def stream_left(
    store: Store, files: Sequence[DataFile | LogFile], read: ReadColumns
) -> Iterator[pa.Table]:
    """The rows of some files of a slice, in their order, as if there were no others."""
    bases = [one for one in files if isinstance(one, DataFile)]
    logs = [one for one in files if isinstance(one, LogFile)]
    if logs:
        read_logs = partial(_logs_of, store, logs, read)
        yield from _merged(store, _bases(store, bases, read), read_logs, read.schema)
    for base in () if logs else bases:
        yield from stream_base_file(store, base, read.schema, read.table)


def _rows(
    logs: Sequence[Sequence[LogBlock]], schema: pa.Schema, columns: TableSchema | None
) -> list[pa.Table]:
    """The rows of the blocks of each log."""
    live = [live_blocks(filterfalse(_is_delete, blocks), _is_published) for blocks in logs]
    rows = iter(blocks_rows([*chain.from_iterable(live)], schema, columns))
    none = schema.empty_table()
    return [pa.concat_tables([none, *islice(rows, len(blocks))]) for blocks in live]


def columns_of_log(store: Store, log: LogFile) -> list[StoredColumns]:
    """The columns of each of its data blocks, as their headers tell. Raises CorruptError."""
    return [*map(stored_columns, filterfalse(_is_delete, _blocks(store, log)))]


def log_deletes(store: Store, log: LogFile) -> pa.Array:
    """The keys of the deletes of one log that have no ordering value, as ours have none. Raises
    CorruptError."""
    blocks = live_blocks(filter(_is_delete, _blocks(store, log)), _is_published)
    found = blocks_deletes(blocks, None)
    keys = [one.keys.filter(one.unordered) for one in found]
    return pa.concat_arrays([pa.array([], pa.string()), *keys])


def keys_of_log(body: bytes, path: str) -> tuple[pa.Array, pa.Array]:
    """The keys (texts) of the rows in a log of these bytes, and those of its deletes. Raises as
    above."""
    blocks = _decoded(body, path)
    [rows] = _rows([blocks], pa.schema([pa.field(KEY_COLUMN, pa.string())]), None)
    gone = blocks_deletes([*filter(_is_delete, blocks)], None)
    none = pa.array([], pa.string())
    return whole(rows[KEY_COLUMN]), pa.concat_arrays([none, *(one.keys for one in gone)])


def writer_of(store: Store, file: DataFile | LogFile) -> str:
    """The instant of the commit which wrote a file: its name tells, of a log all of its blocks do.
    Empty where these tell none, or several, for that is nobody's commit."""
    if isinstance(file, DataFile):
        return file.instant
    try:
        blocks = _blocks(store, file)
    except (CorruptError, UpgradeError):
        return ""
    told = _instants(blocks)
    return min(told) if len(told) == 1 else ""


def first_writer_of(store: Store, log: LogFile) -> str:
    """The same, of a log of published commits, by its first block alone: of its first bytes, unless
    these do not tell it."""
    try:
        begin = store.read_one(log.path, 0, min(log.size_bytes, FIRST_BYTES))
        told = first_instant(memoryview(begin), log.path)
    except CorruptError:
        return ""
    return writer_of(store, log) if told is None else told


def _instants(blocks: Iterable[LogBlock]) -> frozenset[str]:
    return frozenset(one.header.get(HeaderKey.INSTANT_TIME, "") for one in blocks)


def logs_of_each(
    store: Store, slices: Sequence[Sequence[LogFile]], read: ReadColumns
) -> list[SliceLogs]:
    """What the logs of each slice come to, for who reads these columns of it: fetched and decoded
    together. Raises CorruptError, UpgradeError."""
    files = chain.from_iterable(slices)
    found = iter(store.together([partial(_blocks, store, one) for one in files]))
    live = [_live(logs, islice(found, len(logs))) for logs in slices]
    return SliceLogs.of_each(live, read)


def _live(logs: Sequence[LogFile], blocks: Iterable[Iterable[LogBlock]]) -> list[LogBlock]:
    """The blocks that count of one slice, which `logs` hold. Of a bucket that is being split these
    are its own, and behind them those of its children, each in an order of its own: a commit stands
    first in the one and last in the other, and no key is in both."""
    own: dict[str, list[LogBlock]] = {}
    for log, some in zip(logs, blocks, strict=True):
        own.setdefault(log.file_id, []).extend(some)
    return [one for some in own.values() for one in live_blocks(some, _is_published)]


def _logs_of(store: Store, logs: Sequence[LogFile], read: ReadColumns) -> SliceLogs:
    [found] = logs_of_each(store, [logs], read)
    return found


def _merged(
    store: Store,
    base: Iterator[pa.Table],
    read_logs: ReadLogs,
    schema: pa.Schema,
    in_place: bool = True,
) -> Iterator[pa.Table]:
    # far away more slices wait for their logs than there are processors
    logs = store.meanwhile(read_logs) if store.is_distant else beside(read_logs)
    first = [*islice(base, 1)]
    return logs().merged(chain(first, base), in_place, schema.names)


def _bases(store: Store, bases: Sequence[DataFile], read: ReadColumns) -> Iterator[pa.Table]:
    """The rows of base files on which logs lie, with all that decides."""
    deciding = read.deciding
    return chain.from_iterable(stream_base_file(store, one, deciding, read.table) for one in bases)


def _blocks(store: Store, log: LogFile) -> tuple[LogBlock, ...]:
    body = store.get(log.path)
    if body is None:
        raise CorruptError("log file is missing", path=log.path)
    if log.size_bytes and len(body) != log.size_bytes:
        what = "log file has another size than told"
        raise CorruptError(what, path=log.path, expected=log.size_bytes, found=len(body))
    return _decoded(body, log.path)


def _decoded(body: bytes, path: str) -> tuple[LogBlock, ...]:
    held = log_file.LogFile.decode(body, path)
    if held.torn_at is not None:
        raise CorruptError("log file ends within a block", path=path, offset=held.torn_at)
    return held.blocks


def _is_delete(block: LogBlock) -> bool:
    return block.kind is BlockKind.DELETE


def _is_published(instant: str) -> bool:
    """A slice names the logs of published commits only: each is one commit's."""
    return True
