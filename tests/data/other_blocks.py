"""Blocks of logs as Hudi's writers make them, and ours do not: deletes with ordering values, and
rollbacks."""

from __future__ import annotations

import pyarrow as pa

from metatable.data.logs.log_blocks import LogWriter
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.hudi_log.deletes import DELETES, encode_deletes

__all__ = ["delete_block", "rollback_block"]

_WRAPPERS: dict[pa.DataType, str] = {
    pa.bool_(): "BooleanWrapper",
    pa.int32(): "IntWrapper",
    pa.int64(): "LongWrapper",
    pa.float32(): "FloatWrapper",
    pa.float64(): "DoubleWrapper",
    pa.binary(): "BytesWrapper",
    pa.string(): "StringWrapper",
    pa.date32(): "DateWrapper",
}


def delete_block(
    writer: LogWriter,
    keys: pa.Array,
    partition_path: str,
    instant: str,
    ordering: pa.Array | None = None,
) -> LogBlock:
    """Deletes of `keys` (string), each with its ordering value; None: without."""
    columns = [keys, pa.repeat(partition_path, len(keys)), _wrapped(ordering, len(keys))]
    [content] = encode_deletes(pa.table(columns, schema=DELETES))
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: writer.schema_text}
    return LogBlock(BlockKind.DELETE, header, content)


def rollback_block(instant: str, target: str) -> LogBlock:
    """The command of `instant` that takes away the blocks of `target`."""
    header = {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return LogBlock(BlockKind.COMMAND, header, b"")


def _wrapped(ordering: pa.Array | None, count: int) -> pa.Array:
    """The union for a column of ordering values; int 0, as Spark writes it, for None."""
    if ordering is None:
        ordering = pa.repeat(pa.scalar(0, pa.int32()), count)
    wrapper, values = _in_wrapper(ordering)
    union = DELETES.field("orderingVal").type
    columns = [
        pa.StructArray.from_arrays([values], fields=list(one.type))
        if one.name == wrapper
        else pa.nulls(count, one.type)
        for one in union
    ]
    return pa.StructArray.from_arrays(columns, fields=list(union))


def _in_wrapper(ordering: pa.Array) -> tuple[str, pa.Array]:
    """Java's type for a column of ordering values, and they in it."""
    kind = ordering.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return "LongWrapper", ordering.view(pa.int64())
    if pa.types.is_decimal(kind):
        return "DecimalWrapper", ordering.cast(pa.decimal128(30, 15))
    return _WRAPPERS[kind], ordering
