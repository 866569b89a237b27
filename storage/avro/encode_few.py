"""Avro encoder for a handful of rows: a datum after the other, from Python's own values.

Steps over columns (`encode.py`) cost their calls, some twenty microseconds a field, however few
rows there are. What is not exactly of the type that the schema stores is left to them, who cast
it or say what is wrong; they are the judge of this in tests.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from metatable.storage.avro.one_long import write_long
from metatable.storage.avro.schema import Enum, Fixed, Items, Node, Pairs, Primitive, Record, Union

__all__ = ["FEW_ROWS", "encode_few"]

FEW_ROWS, FEW_BYTES = 16, 64 << 10

_INTEGERS = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_ITEM = Primitive("string")


class _UnfitError(ValueError):
    """A value is not of its field's very type."""


def encode_few(record: Record, table: pa.Table | pa.RecordBatch) -> pa.Array | None:
    """One datum a row, as `pa.binary()`; None: columns must say what becomes of them."""
    if table.num_rows > FEW_ROWS or table.nbytes > FEW_BYTES:
        return None
    try:
        return pa.array([_datum(record, row) for row in table.to_pylist()], pa.binary())
    except (ValueError, OverflowError):  # also texts that are none, and times beyond Python's
        return None


def _datum(record: Record, row: dict[str, Any]) -> bytes:
    out = bytearray()
    _write_record(record, row, out)
    return bytes(out)


def _write(node: Node, value: Any, out: bytearray) -> None:
    match node:
        case Primitive(name=name):
            _write_primitive(name, value, out)
        case Union(only=only, null=null) if only is not None:
            write_long((null or 0) if value is None else only, out)
            if value is not None:
                _write(node.branches[only], value, out)
        case Union():
            _write_union(node, value, out)
        case Record():
            _write_record(node, _exactly(dict, value), out)
        case Pairs(value=held):
            _write_pairs(held, _exactly(list, value), out)
        case Items(item=item):
            _write_items(item, _exactly(list, value), out)
        case Enum(symbols=symbols) if value in symbols:
            write_long(symbols.index(value), out)
        case Fixed(size=size) if type(value) is bytes and len(value) == size:
            out += value
        case _:
            raise _UnfitError


def _write_primitive(name: str, value: Any, out: bytearray) -> None:
    if name == "string":
        _write_bytes(_exactly(str, value).encode(), out)
    elif name == "bytes":
        _write_bytes(_exactly(bytes, value), out)
    elif name in _INTEGERS:
        if _exactly(int, value) not in _INTEGERS[name]:
            raise _UnfitError
        write_long(value, out)
    elif name == "boolean":
        out.append(_exactly(bool, value))
    elif name in _FLOATS:
        out += _FLOATS[name].pack(_exactly(float, value))
    elif value is not None:
        raise _UnfitError


def _write_record(node: Record, held: dict[str, Any], out: bytearray) -> None:
    for name, field in node.fields:
        if name in held:
            _write(field, held[name], out)
        elif isinstance(field, Union) and field.null is not None:
            write_long(field.null, out)
        else:
            raise _UnfitError


def _write_union(node: Union, value: Any, out: bytearray) -> None:
    """The children are the branches; the one that is no null is the branch."""
    held = {} if value is None else _exactly(dict, value)
    numbers = [at for at, name in enumerate(node.names) if name and held.get(name) is not None]
    if not numbers and node.null is not None:
        write_long(node.null, out)
    elif len(numbers) == 1:
        [number] = numbers
        write_long(number, out)
        _write(node.branches[number], held[node.names[number] or ""], out)
    else:
        raise _UnfitError


def _write_pairs(node: Node, held: list[tuple[str, Any]], out: bytearray) -> None:
    if held:
        write_long(len(held), out)
    for name, value in held:
        _write(_ITEM, name, out)
        _write(node, value, out)
    out.append(0)


def _write_items(node: Node, held: list[Any], out: bytearray) -> None:
    if held:
        write_long(len(held), out)
    for value in held:
        _write(node, value, out)
    out.append(0)


def _write_bytes(value: bytes, out: bytearray) -> None:
    write_long(len(value), out)
    out += value


def _exactly(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise _UnfitError
    return value
