"""Rows of data blocks of logs, by the columns of their table: of one block, or of many.

A step of decoding Avro takes as long for one row as for a thousand, and a slice that many small
commits have touched has as many small blocks: those of one schema are decoded side by side.

Where a block tells the ids of columns, they are found by these. In blocks of others they are found
by name, unless some of the table's files hold columns under other names: such a block could not say
which one was meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.columns.schema import with_meta_columns
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import AskedColumns, StoredColumns
from metatable.data.logs.log_blocks import COLUMN_IDS, codec_of, unreadable
from metatable.storage.avro import RecordCodec
from metatable.storage.byte_columns import joined_runs
from metatable.storage.errors import CorruptError, MetatableError, UpgradeError, UsageError
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.hudi_log.records import decode_datums
from metatable.storage.portions import in_portions

__all__ = ["block_columns", "block_rows", "blocks_rows", "stored_columns"]

TOGETHER_BYTES = 1 << 20
"""Contents of blocks that are decoded together, which are copied for it."""


def blocks_rows(
    blocks: Sequence[LogBlock], schema: pa.Schema, columns: TableSchema | None
) -> list[pa.Table]:
    """`block_rows` of each of them; small ones of one schema are decoded together. Raises as it."""
    found: dict[int, pa.Table] = {}
    for places in _alike(blocks):
        with suppress(MetatableError, pa.ArrowException, ValueError):  # one by one tells which
            some = [blocks[place] for place in places]
            found.update(zip(places, _avro_rows(some, schema, columns), strict=True))
    return [
        found[place] if place in found else block_rows(block, schema, columns)
        for place, block in enumerate(blocks)
    ]


def _alike(blocks: Sequence[LogBlock]) -> Iterator[list[int]]:
    """Places of blocks that are decoded together: two at least, of `TOGETHER_BYTES` at most."""
    by_schema: dict[str, list[int]] = {}
    for place, block in enumerate(blocks):
        if block.kind is BlockKind.AVRO_DATA and not _is_partial(block):
            by_schema.setdefault(block.header.get(HeaderKey.SCHEMA, ""), []).append(place)
    for places in by_schema.values():
        portions = in_portions(places, lambda one: len(blocks[one].content), TOGETHER_BYTES)
        yield from (some for some in portions if len(some) > 1)


def block_rows(block: LogBlock, schema: pa.Schema, columns: TableSchema | None) -> pa.Table:
    """Exactly these columns (meta columns where named) of a data block's rows, in its order.

    `columns` are the table's; None where names are all there is. Raises CorruptError, and
    UpgradeError for rows of some columns only, for other kinds of blocks, and where names do not
    tell columns.
    """
    if _is_partial(block):
        raise UpgradeError(
            "log block holds rows of some columns only", path=block.path, offset=block.offset
        )
    try:
        if block.kind is BlockKind.PARQUET_DATA:
            file = pq.ParquetFile(pa.BufferReader(block.content), page_checksum_verification=True)
            asked = _asked(block, StoredColumns.of(file, block.path), schema, columns)
            return asked.of_table(_parquet_rows(file, asked.names, block))
        [rows] = _avro_rows([block], schema, columns)
        return rows
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(block, error) from error


def _is_partial(block: LogBlock) -> bool:
    return block.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"


def _avro_rows(
    blocks: Sequence[LogBlock], schema: pa.Schema, columns: TableSchema | None
) -> list[pa.Table]:
    """The rows of Avro blocks of one schema, each block's. Errors name the first."""
    codec = _codec(blocks[0])
    asked = _asked(blocks[0], _stored_as_avro(blocks[0], codec), schema, columns)
    datums = [decode_datums(one) for one in blocks]
    joined = datums[0] if len(datums) == 1 else joined_runs(datums)
    found = codec.decode(joined, asked.names, blocks[0].path)
    if not asked.names:  # a table without columns forgets how many rows it has
        found = pa.table({"": pa.nulls(len(joined))})
    rows = asked.of_table(found)
    ends = np.cumsum([0, *map(len, datums)]).tolist()
    return [rows.slice(lo, hi - lo) for lo, hi in pairwise(ends)]


def block_columns(block: LogBlock, columns: TableSchema) -> list[str]:
    """Names of the table's columns, and of Hudi's meta columns, that a block has as its header
    tells: whatever they are called there. Raises CorruptError."""
    stored = stored_columns(block)
    names = with_meta_columns(columns.arrow).names
    found = zip(names, stored.find_each(names, columns), strict=True)
    return [name for name, field in found if field is not None]


def stored_columns(block: LogBlock) -> StoredColumns:
    """The columns of a data block, as its header tells them. Raises CorruptError."""
    return _stored_as_avro(block, _codec_told(block))


def _asked(
    block: LogBlock, stored: StoredColumns, schema: pa.Schema, columns: TableSchema | None
) -> AskedColumns:
    if columns is not None and columns.by_id and not stored.by_id:
        raise UpgradeError(
            "log block tells no column ids, and columns of the table have changed their names",
            path=block.path,
            offset=block.offset,
        )
    return AskedColumns.of(stored, schema, columns)


def _stored_as_avro(block: LogBlock, codec: RecordCodec) -> StoredColumns:
    fields = tuple(codec.arrow_schema)
    ids = _ids_of(block.header.get(HeaderKey.SCHEMA, ""))
    if ids is None:
        return StoredColumns(fields, by_id=False, path=block.path)
    return StoredColumns.numbered(fields, ids, block.path)


@lru_cache(maxsize=16)
def _ids_of(text: str) -> tuple[Any, ...] | None:
    told = json.loads(text).get(COLUMN_IDS)
    return tuple(told) if isinstance(told, list) else None


def _codec(block: LogBlock) -> RecordCodec:
    if block.kind is not BlockKind.AVRO_DATA:
        raise UpgradeError(
            "log block is of a kind whose rows are not read",
            path=block.path,
            offset=block.offset,
            found=block.kind.name,
        )
    return _codec_told(block)


def _codec_told(block: LogBlock) -> RecordCodec:
    try:
        return codec_of(block.header.get(HeaderKey.SCHEMA, ""))
    except UsageError as error:
        raise unreadable(block, error) from error


def _parquet_rows(file: Any, names: list[str], block: LogBlock) -> pa.Table:
    found = file.read(names)
    expected = file.metadata.num_rows
    if found.num_rows != expected:
        raise CorruptError(
            "log block holds another number of rows than its footer says",
            path=block.path,
            offset=block.offset,
            expected=expected,
            found=found.num_rows,
        )
    return found
