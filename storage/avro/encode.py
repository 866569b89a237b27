"""Columns to Avro datums: a datum is a row of pieces, joined by Arrow in one pass.

Each field yields pieces: columns of bytes with a value per row, or bytes that all rows share
(a union's branch number, a type code, an absent field). Neighbouring shared bytes are one
piece, so a record of many absent fields costs hardly more than what is in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Bools, Int64s, UInt8s
from metatable.storage.avro.encode_few import encode_few
from metatable.storage.avro.logical import to_stored
from metatable.storage.avro.schema import (
    Enum,
    Fixed,
    Items,
    Logical,
    Node,
    Pairs,
    Primitive,
    Record,
    Union,
)
from metatable.storage.byte_columns import (
    byte_layout,
    from_layout,
    offsets_of,
    spread,
)
from metatable.storage.errors import UsageError

__all__ = ["encode_records"]


def encode_records(record: Record, table: pa.Table | pa.RecordBatch) -> pa.Array:
    """One datum a row, as `pa.binary()`. Raises UsageError for columns that do not fit."""
    few = encode_few(record, table)
    return encode_columns(record, table) if few is None else few


def encode_columns(record: Record, table: pa.Table | pa.RecordBatch) -> pa.Array:
    """`encode_records` column by column, for any number of rows."""
    pieces = _Pieces(table.num_rows)
    for name, node in record.fields:
        if name in table.schema.names:
            _write(node, _plain(table.column(name)), pieces, name)
        else:
            _write_absent(node, pieces, name)
    return pieces.join()


class _Pieces:
    """What a column of datums is joined from, left to right."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._parts: list[bytes | pa.Array] = []

    def add(self, part: bytes | pa.Array) -> None:
        """Bytes of every row, or a binary column with each row's own."""
        if isinstance(part, bytes) and self._parts and isinstance(self._parts[-1], bytes):
            self._parts[-1] += part
        else:
            self._parts.append(part)

    def add_longs(self, values: Int64s) -> None:
        """Avro's variable-length, zig-zag coded integers."""
        if len(values) and (values == values[0]).all():
            self.add(_longs(values[:1])[0].as_py())
        else:
            self.add(_longs(values))

    def add_bytes(self, column: pa.Array) -> None:
        """Each value with its length before it."""
        offsets, _ = byte_layout(column)
        lengths = np.diff(offsets).astype(np.int64)
        self.add_longs(lengths)
        if lengths.any():
            self.add(column)

    def join(self) -> pa.Array:
        """The datums, as `pa.binary()`."""
        if all(isinstance(part, bytes) for part in self._parts):
            body = b"".join(self._parts)
            offsets = len(body) * np.arange(self.rows + 1, dtype=np.int64)
            return from_layout(offsets, np.frombuffer(body * self.rows, np.uint8))
        if len(self._parts) == 1:
            return self._parts[0]
        parts = [
            pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part
            for part in self._parts
        ]
        return _plain(pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary())))


def _write(node: Node, column: pa.Array, pieces: _Pieces, where: str) -> None:
    """Add the bytes of a node for each row. `where`: the field's name, for errors. Raises
    UsageError for values that do not fit."""
    if column.null_count and not isinstance(node, Union) and node.name != "null":
        raise UsageError("null in a field that has no null", field=where, nulls=column.null_count)
    match node:
        case Union(only=only) if only is not None:
            _write_nullable(node, column, pieces, where)
        case Union():
            _write_union(node, column, pieces, where)
        case Record():
            _write_record(node, column, pieces, where)
        case Items(item=item):
            _write_blocks(column, [(item, _range(column, column.values))], pieces, where)
        case Pairs(value=value):
            parts = [
                (Primitive("string"), _range(column, column.keys)),
                (value, _range(column, column.items)),
            ]
            _write_blocks(column, parts, pieces, where)
        case Enum(symbols=symbols):
            numbers = pc.index_in(column, value_set=pa.array(symbols, pa.string()))
            if numbers.null_count:
                raise UsageError("not a symbol of the Avro enum", field=where, expected=symbols)
            pieces.add_longs(numbers.to_numpy().astype(np.int64))
        case Logical(stored=stored, type=kind):
            _write_leaf(stored, to_stored(_cast(column, kind, where), stored.type, where), pieces)
        case Fixed() | Primitive():
            _write_leaf(node, _cast(column, node.type, where), pieces)


def _write_absent(node: Node, pieces: _Pieces, where: str) -> None:
    """Add null for each row, of a column that is not there."""
    if not isinstance(node, Union) or node.null is None:
        raise UsageError("missing column", column=where)
    pieces.add(_longs(np.array([node.null]))[0].as_py())


def _write_leaf(node: Fixed | Primitive, column: pa.Array, pieces: _Pieces) -> None:
    match node.name:
        case "null":
            return
        case "int" | "long":
            pieces.add_longs(column.to_numpy(zero_copy_only=False).astype(np.int64))
        case "boolean":
            pieces.add(_words(column.to_numpy(zero_copy_only=False).astype(np.uint8)))
        case "float":
            pieces.add(_words(column.to_numpy(zero_copy_only=False).astype("<f4")))
        case "double":
            pieces.add(_words(column.to_numpy(zero_copy_only=False).astype("<f8")))
        case "string" | "bytes":
            pieces.add_bytes(column.cast(pa.binary()))
        case _:
            pieces.add(from_layout(*byte_layout(column)))


def _write_record(node: Record, column: pa.Array, pieces: _Pieces, where: str) -> None:
    if not pa.types.is_struct(column.type):
        raise UsageError(
            "field has another type", field=where, expected="struct", found=column.type
        )
    for name, field in node.fields:
        at = column.type.get_field_index(name)
        if at < 0:
            _write_absent(field, pieces, f"{where}.{name}")
        else:
            _write(field, column.field(at), pieces, f"{where}.{name}")


def _write_nullable(node: Union, column: pa.Array, pieces: _Pieces, where: str) -> None:
    only = node.only or 0
    valid = _valid(column)
    numbers = np.where(valid, only, 1 - only)
    pieces.add_longs(numbers)
    _write_some(node.branches[only], column, np.flatnonzero(valid), pieces, where)


def _write_union(node: Union, column: pa.Array, pieces: _Pieces, where: str) -> None:
    """The children are the branches; which one is valid says which branch it is."""
    if not pa.types.is_struct(column.type):
        raise UsageError(
            "field has another type", field=where, expected="struct", found=column.type
        )
    present = _valid(column)
    numbers = np.full(len(column), -1 if node.null is None else node.null)
    chosen: list[tuple[Node, pa.Array, Int64s]] = []
    branches = np.zeros(len(column), np.int64)
    for number, (name, branch) in enumerate(zip(node.names, node.branches, strict=True)):
        at = -1 if name is None else column.type.get_field_index(name)
        if at >= 0:
            child = column.field(at)
            rows = np.flatnonzero(_valid(child) & present)
            numbers[rows] = number
            branches[rows] += 1
            chosen.append((branch, child, rows))
    if (branches > 1).any() or (numbers < 0).any():
        raise UsageError("a union needs one branch", field=where, found=int(branches.max()))
    pieces.add_longs(numbers)
    for branch, child, rows in chosen:
        _write_some(branch, child, rows, pieces, where)


def _write_some(node: Node, column: pa.Array, rows: Int64s, pieces: _Pieces, where: str) -> None:
    """The values at `rows`; the other rows add nothing."""
    if len(rows) == pieces.rows:
        _write(node, column, pieces, where)
    elif len(rows):
        some = _Pieces(len(rows))
        _write(node, column.take(pa.array(rows)), some, where)
        pieces.add(spread(some.join(), rows, pieces.rows))


def _write_blocks(
    column: pa.Array, parts: list[tuple[Node, pa.Array]], pieces: _Pieces, where: str
) -> None:
    """One block of items a row, then the 0 that ends them."""
    bounds = column.offsets.to_numpy().astype(np.int64)
    counts = np.diff(bounds)
    items = _Pieces(int(bounds[-1] - bounds[0]) if len(bounds) else 0)
    for node, values in parts:
        _write(node, values, items, where)
    rows = np.flatnonzero(counts)
    pieces.add(spread(_longs(counts[rows]), rows, len(column)))
    offsets, data = byte_layout(items.join())
    pieces.add(from_layout(offsets[bounds - bounds[0]], data))
    pieces.add(b"\x00")


# Columns


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _cast(column: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(
            "field has another type", field=where, expected=str(kind), found=str(column.type)
        ) from error


def _valid(column: pa.Array) -> Bools:
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _range(column: pa.Array, values: pa.Array) -> pa.Array:
    """The items of the rows of `column`, which may be a slice of what they are items of."""
    bounds = column.offsets
    return values.slice(bounds[0].as_py(), bounds[len(column)].as_py() - bounds[0].as_py())


# Numbers as bytes


def _words(values: npt.NDArray[Any]) -> pa.Array:
    width = values.dtype.itemsize
    offsets = width * np.arange(len(values) + 1, dtype=np.int64)
    return from_layout(offsets, np.ascontiguousarray(values).view(np.uint8))


def _longs(values: Int64s) -> pa.Array:
    values = np.asarray(values, np.int64)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = int(zigzag.max()) if len(zigzag) else 0
    groups = max(1, -(-largest.bit_length() // 7))
    if groups == 1:
        return _words(zigzag.astype(np.uint8))
    shifted = zigzag[:, None] >> np.arange(0, 7 * groups, 7, dtype=np.uint64)
    used = shifted > 0
    used[:, 0] = True
    data: UInt8s = (shifted & np.uint64(0x7F)).astype(np.uint8)
    data[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    return from_layout(offsets_of(used.sum(axis=1)), data[used])
