"""Rows and deletes of a table as blocks of log files, and deletes back.

A data block holds whole rows, Hudi's meta columns included, as Avro datums or as a Parquet file;
in both the header tells their Avro schema. A delete block holds keys. With each goes an ordering
value, in one of Java's types, or none: as in Hudi an int 0 and a null are none, and such a delete
takes whatever was before it (`Deletes.unordered`). `_hoodie_file_name` of a row in a log is its
file id: readers go by the base file.

Our blocks tell the ids of columns as our data files do: Parquet in its field ids, Avro in an
attribute of the schema in its header (`COLUMN_IDS`), which other readers pass over.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.columns.avro_schema import to_avro
from metatable.data.columns.schema import META_COLUMNS
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import IDS_ARE_OURS, schema_with_ids
from metatable.data.rows.taking import rows_of, whole
from metatable.storage.avro import RecordCodec
from metatable.storage.errors import CorruptError, MetatableError
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.hudi_log.deletes import (
    DELETES,
    decode_deletes,
    decode_many_deletes,
    encode_deletes,
)
from metatable.storage.hudi_log.records import encode_datums

__all__ = [
    "COLUMN_IDS",
    "Deletes",
    "LogWriter",
    "block_deletes",
    "blocks_deletes",
    "codec_of",
    "unreadable",
]

BLOCK_BYTES = 128 << 20
"""Rows of one Avro block, as Arrow holds them; far from the 2 GiB that a block can be."""

COLUMN_IDS = "metatable.column_ids"
"""Attribute of an Avro schema: the ids of all columns, and parts of columns, in pre-order."""

ROLLBACK = "0"

_INT = "IntWrapper"
_WRAPPERS: pa.StructType = DELETES.field("orderingVal").type
"""Java's types for ordering values, of which each value has one."""


@dataclass(frozen=True, slots=True)
class Deletes:
    """Keys (string) that a block takes out, in its order; all three columns are of one length.

    `ordering`: of the ordering column's type, null where there is none; None for tables without.
    `unordered` (bool): whether there is none.
    """

    keys: pa.Array
    ordering: pa.Array | None
    unordered: pa.Array

    def slice(self, start: int, count: int) -> Deletes:
        ordering = None if self.ordering is None else self.ordering.slice(start, count)
        return Deletes(self.keys.slice(start, count), ordering, self.unordered.slice(start, count))


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows, so many at a time as fill a block: by what they take on average, and by halves
    where some take far more."""
    step = rows_of(rows, BLOCK_BYTES)
    parts = deque(rows.slice(start, step) for start in range(0, rows.num_rows, step))
    while parts:
        some = parts.popleft()
        half = some.num_rows // 2
        if half and some.nbytes > 2 * BLOCK_BYTES:
            parts.extendleft([some.slice(half), some.slice(0, half)])
        else:
            yield some


class LogWriter:
    """Makes blocks of a table's rows. `schema` is the table's, without meta columns; `columns` the
    same with ids, which blocks tell then."""

    def __init__(
        self, schema: pa.Schema, table_name: str, columns: TableSchema | None = None
    ) -> None:
        record = to_avro(schema, table_name)
        self._columns = columns
        if columns is not None:
            record[COLUMN_IDS] = list(columns.ids().values())
        meta = {"type": ["null", "string"], "doc": "", "default": None}
        record["fields"] = [{"name": name, **meta} for name in META_COLUMNS] + record["fields"]
        self.schema_text = json.dumps(record, separators=(",", ":"))
        self._codec = codec_of(self.schema_text)

    def avro_blocks(self, rows: pa.Table, instant: str) -> Iterator[LogBlock]:
        """The rows, meta columns included: mostly one block. Raises UsageError."""
        for some in _cut(rows):
            [content] = encode_datums(self._codec.encode(some))
            yield self._block(BlockKind.AVRO_DATA, instant, content)

    def avro_parts(self, rows: pa.Table, cuts: Sequence[int], instant: str) -> list[list[LogBlock]]:
        """`avro_blocks` of the rows between each two of `cuts` (ascending), part by part: small
        parts cost little more than one of all their rows."""
        if rows.nbytes > BLOCK_BYTES:
            parts = (rows.slice(lo, hi - lo) for lo, hi in pairwise(cuts))
            return [[*self.avro_blocks(part, instant)] for part in parts]
        contents = encode_datums(self._codec.encode(rows), cuts)
        return self._blocks(BlockKind.AVRO_DATA, instant, contents, cuts)

    def parquet_block(self, rows: pa.Table, instant: str, compression: str) -> LogBlock:
        """The rows, meta columns included, as one block whose content is a Parquet file."""
        sink = pa.BufferOutputStream()
        schema = rows.schema if self._columns is None else schema_with_ids(self._columns)
        with pq.ParquetWriter(
            sink, schema, compression=compression, store_schema=False, write_page_checksum=True
        ) as writer:
            writer.write_table(rows)
            if self._columns is not None:
                writer.add_key_value_metadata({IDS_ARE_OURS: "1"})
        return self._block(BlockKind.PARQUET_DATA, instant, memoryview(sink.getvalue()))

    def delete_parts(
        self, keys: pa.Array, partition_paths: pa.Array, cuts: Sequence[int], instant: str
    ) -> list[list[LogBlock]]:
        """Deletes without ordering values of the keys between each two of `cuts` (ascending), each
        with its partition path (string): a block for each part that has some."""
        if not len(keys):
            return [[] for _ in pairwise(cuts)]
        columns = [keys, partition_paths, _unordered(len(keys))]
        contents = encode_deletes(pa.table(columns, schema=DELETES), cuts)
        return self._blocks(BlockKind.DELETE, instant, contents, cuts)

    def _blocks(
        self, kind: BlockKind, instant: str, contents: Sequence[bytes], cuts: Sequence[int]
    ) -> list[list[LogBlock]]:
        """One for each part that is not empty."""
        return [
            [self._block(kind, instant, content)] if hi > lo else []
            for content, (lo, hi) in zip(contents, pairwise(cuts), strict=True)
        ]

    def _block(self, kind: BlockKind, instant: str, content: bytes | memoryview) -> LogBlock:
        header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: self.schema_text}
        return LogBlock(kind, header, content)


def block_deletes(block: LogBlock, ordering: pa.DataType | None) -> Deletes:
    """What a delete block takes out. `ordering`: the type of the table's ordering column.

    Raises CorruptError for a delete without a key, or by values of another type.
    """
    return _deletes(block, decode_deletes(block), ordering)


def blocks_deletes(blocks: Sequence[LogBlock], ordering: pa.DataType | None) -> list[Deletes]:
    """`block_deletes` of each of them, which are decoded together. Raises as it."""
    if len(blocks) > 1:
        with suppress(MetatableError):  # one by one tells which
            found, counts = decode_many_deletes(blocks)
            told, ends = _deletes(blocks[0], found, ordering), accumulate(counts)
            return [told.slice(end - count, count) for end, count in zip(ends, counts, strict=True)]
    return [block_deletes(one, ordering) for one in blocks]


def _deletes(block: LogBlock, found: pa.Table, ordering: pa.DataType | None) -> Deletes:
    keys, values = whole(found.column("recordKey")), whole(found.column("orderingVal"))
    if keys.null_count:
        raise CorruptError("a delete has no key", path=block.path, offset=block.offset)
    ints = pc.struct_field(values, [_INT, "value"])
    zero = pc.fill_null(pc.equal(ints, pa.scalar(0, pa.int32())), False)
    unordered = pc.or_(values.is_null(), zero)
    if ordering is None:
        return Deletes(keys, None, unordered)
    try:
        return Deletes(keys, _unwrapped(values, unordered, ordering), unordered)
    except MemoryError:  # of Arrow, too
        raise
    except pa.ArrowException as error:
        raise unreadable(block, error) from error


@lru_cache(maxsize=16)
def codec_of(text: str) -> RecordCodec:
    """Blocks of one table mostly have one schema."""
    return RecordCodec(text, logical=True)


def unreadable(block: LogBlock, error: Exception) -> CorruptError:
    return CorruptError(
        "log block is not readable", path=block.path, offset=block.offset, found=str(error)
    )


# Ordering values in Java's types


def _unordered(count: int) -> pa.Array:
    """A column of ordering values of which there is none: int 0, as Spark writes it."""
    zeros = pa.repeat(pa.scalar(0, pa.int32()), count)
    columns = [
        pa.StructArray.from_arrays([zeros], fields=list(one.type))
        if one.name == _INT
        else pa.nulls(count, one.type)
        for one in _WRAPPERS
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_WRAPPERS))


def _unwrapped(values: pa.StructArray, absent: pa.Array, kind: pa.DataType) -> pa.Array:
    """The ordering values of a union of them, null where absent. Raises ArrowException."""
    found = pa.nulls(len(values), kind)
    for wrapper in values.type:
        column = pc.struct_field(values, [wrapper.name, "value"])
        column = pc.if_else(absent, pa.scalar(None, column.type), column)
        if column.null_count < len(column):
            found = pc.coalesce(found, _as_ordering(column, kind))
    return found


def _as_ordering(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers stand for times as they are stored: days, milliseconds, microseconds."""
    if pa.types.is_temporal(kind) and pa.types.is_integer(column.type):
        stored = pa.int32() if kind == pa.date32() else pa.int64()
        return column.cast(stored).view(kind)
    if pa.types.is_string(kind) != pa.types.is_string(column.type):
        raise pa.ArrowInvalid(f"{column.type} orders no {kind}")
    if pa.types.is_decimal(kind) and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(19, 0))
    return column.cast(kind)
