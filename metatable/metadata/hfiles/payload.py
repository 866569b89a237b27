"""Hudi's metadata records in columns: the values of `files`, `bloom_filter`, `column_stats`.

A value is a bare Avro datum of `HoodieMetadataRecord`, the schema that Hudi 1.1 and later
ship (metadata_record.avsc, `schema_text`). As Hudi does, `key` is left empty, because the entry's
own key is the only copy, and the meta fields are null.

    partition      type   field                  content
    files             2   filesystemMetadata     an item for each file of the current slice:
                                                 its path -> size
    column_stats      3   ColumnStatsMetadata    one column of one file
    bloom_filter      4   BloomFilterMetadata    one file's filter; `type` is the filter's kind

A tombstone is a record whose `isDeleted` is true and whose other content is empty. There
is one for each partition, so that it is known by its bytes alone.

Bounds are wrapped as Hudi's version 2 of column statistics does: the wrapper tells the
physical type, `valueType` the logical one; `bounds.py` has the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.statistics import ColumnStats
from metatable.data.file_groups.file_system_view import FILE
from metatable.data.rows.taking import whole
from metatable.metadata.hfiles.bounds import (
    NO_BOUNDS,
    Form,
    by_value_type,
    form_of,
    physical,
    unwrap,
    wrap,
    wrappers_of,
)
from metatable.metadata.manifests.home import HOME
from metatable.storage.arrays import Int32s, Int64s
from metatable.storage.avro import RecordCodec
from metatable.storage.errors import CorruptError

__all__ = [
    "BLOOM_TOMBSTONE",
    "FILES_TOMBSTONE",
    "STATS_TOMBSTONE",
    "decode_blooms",
    "decode_files",
    "decode_stats",
    "encode_blooms",
    "encode_files",
    "encode_stats",
    "schema_text",
]

_SCHEMA = Path(__file__).with_name("metadata_record.avsc").read_text("utf-8")
_CODEC = RecordCodec(_SCHEMA)
_FILES, _STATS, _BLOOM = 2, 3, 4
"""Types of records."""
_FOLDERS = {
    _FILES: f"{HOME}/files",
    _STATS: f"{HOME}/column_stats",
    _BLOOM: f"{HOME}/bloom_filter",
}
"""Where the HFiles of each type lie: values that are decoded together come from several of them."""


def schema_text() -> str:
    """The schema of all values, byte for byte as Hudi stores it in its HFiles' file info."""
    return _SCHEMA


# files


def encode_files(paths: pa.Array, sizes: Int64s, offsets: Int32s | None = None) -> pa.Array:
    """Values of `files`: value i is of the files from offsets[i] to offsets[i + 1], if not told
    one each."""
    if offsets is None:
        offsets = np.arange(len(paths) + 1, dtype=np.int32)
    return _encode_files(paths, sizes, offsets, deleted=False)


def decode_files(values: pa.Array) -> pa.ListArray:
    """The files of each value, a list of `FILE`; null for tombstones. Raises CorruptError."""
    column = _decode(values, _FILES, "filesystemMetadata")
    offsets = column.offsets.to_numpy()
    counts = np.diff(offsets)
    if (counts < 1).any():
        raise CorruptError("file record is of no file", path=_FOLDERS[_FILES], found=len(column))
    files = column.keys, pc.struct_field(column.items, "size")
    listed = pa.StructArray.from_arrays(files, fields=list(FILE))
    deleted = pc.struct_field(column.items, "isDeleted").to_numpy(zero_copy_only=False)
    gone = np.logical_or.reduceat(deleted, offsets[:-1]) if len(counts) else deleted
    return pa.ListArray.from_arrays(column.offsets, listed, mask=pa.array(gone, pa.bool_()))


def _encode_files(paths: pa.Array, sizes: Int64s, offsets: Int32s, deleted: bool) -> pa.Array:
    files = _struct(size=pa.array(sizes, pa.int64()), isDeleted=_repeat(deleted, len(paths)))
    listed = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), paths, files)
    return _encode(_FILES, filesystemMetadata=listed)


# bloom_filter


def encode_blooms(kinds: pa.Array | str, instants: pa.Array | str, filters: pa.Array) -> pa.Array:
    """Values of `bloom_filter`: a kind, an instant and the bytes of each filter."""
    return _encode_blooms(kinds, instants, filters, deleted=False)


def decode_blooms(values: pa.Array) -> pa.Table:
    """Columns `kind`, `instant` (strings) and `filter` (binary); null for tombstones.

    Raises CorruptError.
    """
    column = _decode(values, _BLOOM, "BloomFilterMetadata")
    deleted = pc.struct_field(column, "isDeleted")
    names = {"kind": "type", "instant": "timestamp", "filter": "bloomFilter"}
    found = {name: pc.struct_field(column, field) for name, field in names.items()}
    if pc.any(deleted).as_py():
        found = {
            name: pc.if_else(deleted, pa.scalar(None, values.type), values)
            for name, values in found.items()
        }
    return pa.table(found)


def _encode_blooms(
    kinds: pa.Array | str, instants: pa.Array | str, filters: pa.Array, deleted: bool
) -> pa.Array:
    rows = len(filters)
    return _encode(
        _BLOOM,
        BloomFilterMetadata=_struct(
            type=_repeat(kinds, rows),
            timestamp=_repeat(instants, rows),
            bloomFilter=filters,
            isDeleted=_repeat(deleted, rows),
        ),
    )


# column_stats


def encode_stats(file_names: Sequence[str], stats: Sequence[ColumnStats]) -> pa.Array:
    """Values of `column_stats`: statistics `stats[i]` of the file called `file_names[i]`.

    Raises UsageError for bounds of a type that Hudi has no wrapper for.
    """
    groups = _by_type(stats)
    return _encode_stats(
        len(stats),
        fileName=pa.array(file_names, pa.string()),
        columnName=pa.array([one.column for one in stats], pa.string()),
        minValue=_wrapped([one.minimum for one in stats], groups),
        maxValue=_wrapped([one.maximum for one in stats], groups),
        valueCount=pa.array([one.value_count for one in stats], pa.int64()),
        nullCount=pa.array([one.null_count for one in stats], pa.int64()),
        totalSize=pa.array([one.size_bytes for one in stats], pa.int64()),
        totalUncompressedSize=pa.array([one.uncompressed_bytes for one in stats], pa.int64()),
        valueType=_value_types(len(stats), groups),
    )


def decode_stats(
    values: pa.Array, type: pa.DataType | None, names: Sequence[str] | None = None
) -> pa.Table:
    """Statistics of one column, whose type is `type` now, over many files.

    Columns `file_name`, `column` (strings), `minimum`, `maximum` (of `type`), `null_count`,
    `value_count`, `size_bytes`, `uncompressed_bytes` (int64); those of these `names`, if they are
    told. A bound that was stored for a type that `type` does not widen is null, like one that is
    missing; so is all of a tombstone. Where `type` is None the bounds are Hudi's own unions, a
    struct of wrappers. Raises CorruptError.
    """
    stored = {name: _STATS_FIELDS[name] for name in names or _STATS_FIELDS}
    asked = [one for name in stored for one in _fields_for(name, type)]
    column = _decode(values, _STATS, "ColumnStatsMetadata", list(dict.fromkeys(asked)))
    found = {}
    for name, field in stored.items():
        if name not in _BOUNDS or type is None:
            found[name] = pc.struct_field(column, field)
        elif wrappers_of(type):
            kinds = pc.struct_field(column, "valueType") if by_value_type(type) else None
            found[name] = unwrap(pc.struct_field(column, field), kinds, type, _FOLDERS[_STATS])
        else:
            found[name] = pa.nulls(len(column), type)
    return pa.table(found)


def _fields_for(name: str, type: pa.DataType | None) -> list[str]:
    """What is stored of it: of the many branches of a bound those that can be one of `type`."""
    field = _STATS_FIELDS[name]
    if name not in _BOUNDS or type is None:
        return [field]
    told = ["valueType"] if by_value_type(type) else []
    return [*(f"{field}.{wrapper}" for wrapper in wrappers_of(type)), *told]


_BOUNDS = ("minimum", "maximum")
_STATS_FIELDS = {
    "file_name": "fileName",
    "column": "columnName",
    "minimum": "minValue",
    "maximum": "maxValue",
    "null_count": "nullCount",
    "value_count": "valueCount",
    "size_bytes": "totalSize",
    "uncompressed_bytes": "totalUncompressedSize",
}

_Groups = list[tuple[pa.DataType, Form, Int64s]]


def _by_type(stats: Sequence[ColumnStats]) -> _Groups:
    """(type, form, rows) of all rows that have a bound."""
    rows: dict[pa.DataType, list[int]] = {}
    for row, one in enumerate(stats):
        if one.minimum is not None or one.maximum is not None:
            rows.setdefault(one.type, []).append(row)
    return [(kind, form_of(kind), np.array(found)) for kind, found in rows.items()]


def _wrapped(bounds: list[Any], groups: _Groups) -> pa.Array:
    parts = [
        (form.wrapper, physical([bounds[row] for row in rows.tolist()], kind), rows)
        for kind, form, rows in groups
    ]
    return wrap(parts, len(bounds))


def _value_types(count: int, groups: _Groups) -> pa.Array:
    ordinals = np.full(count, NO_BOUNDS.ordinal, np.int32)
    infos = np.full(count, None, object)
    for _, form, rows in groups:
        ordinals[rows], infos[rows] = form.ordinal, form.info
    return _struct(typeOrdinal=pa.array(ordinals), additionalInfo=pa.array(infos, pa.string()))


def _encode_stats(rows: int, deleted: bool = False, **columns: pa.Array) -> pa.Array:
    flags = {"isDeleted": _repeat(deleted, rows), "isTightBound": _repeat(False, rows)}
    return _encode(_STATS, ColumnStatsMetadata=_struct(**columns, **flags))


# Records


def _encode(record_type: int, **content: pa.Array) -> pa.Array:
    """Records with one of the content fields; the meta fields and the others are null."""
    ((name, column),) = content.items()
    rows = len(column)
    columns = {"key": _repeat("", rows), "type": _repeat(record_type, rows), name: column}
    return _CODEC.encode(pa.table(columns))


def _decode(values: pa.Array, record_type: int, name: str, fields: Sequence[str] = ()) -> pa.Array:
    """The content field `name` of records that must be of `record_type`; these `fields` of it,
    if any are told."""
    content, path = [f"{name}.{field}" for field in fields] or [name], _FOLDERS[record_type]
    table = _CODEC.decode(values, ["type", *content], path)
    types = table.column("type").to_numpy()
    if (types != record_type).any():
        row = int(np.argmax(types != record_type))
        raise CorruptError(
            "metadata record of another type",
            path=path,
            row=row,
            expected=record_type,
            found=int(types[row]),
        )
    column = whole(table.column(name))
    if column.null_count:
        raise CorruptError("metadata record without content", path=path, expected=name)
    return column


def _struct(**columns: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def _repeat(value: Any, rows: int) -> pa.Array:
    """A column that holds `value` throughout, unless it is a column already."""
    return value if isinstance(value, pa.Array) else pa.repeat(value, rows)


FILES_TOMBSTONE: bytes = _encode_files(
    pa.array([""]), np.zeros(1, np.int64), np.array([0, 1], np.int32), deleted=True
)[0].as_py()
BLOOM_TOMBSTONE: bytes = _encode_blooms("", "", pa.array([b""]), deleted=True)[0].as_py()
STATS_TOMBSTONE: bytes = _encode_stats(1, deleted=True)[0].as_py()
