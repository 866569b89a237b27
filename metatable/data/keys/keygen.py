"""Record keys and partition paths: what a row's key columns are as text.

The text of a value is told by its type (`value_texts.py`); bytes make no folder.

One key column: its text. Several: `a:x,b:y`, as Hudi's ComplexKeyGenerator writes it. No part
of a key is null or empty, and no value may look like the start of the next part.

A partition path is the texts joined by "/", each as `column=text` where the table is in Hive
style; null and empty become `__HIVE_DEFAULT_PARTITION__`. The texts go into paths as they are,
so those that would break one are refused, and without Hive style those with a "=", of which Hudi
on Spark takes what is before it for the column's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.keys.value_texts import text
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Int64s
from metatable.storage.errors import UsageError

__all__ = ["DEFAULT_PARTITION", "KeyGenerator"]

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_NAMED = 5
"""So many rows or values an error names."""

_UNSAFE = '"#%*/:?\\{}[]^'
"""What Hudi escapes where it is told to (ours is not), but for ', which does no harm, and =, which
does none in Hive style: Hadoop takes ":" for a scheme and "*?{[" for a pattern, Spark unescapes
"%", object stores escape some. Control characters, too."""

_UNSAFE_PATTERN = rf"[\x00-\x1f\x7f{re.escape(_UNSAFE)}]"

_LONGEST = 255
"""Bytes of a folder's name that every file system takes."""

_RESERVED = ("metadata", "_delta_log", ".hoodie", ".hoodie_partition_metadata")
"""Folders that readers pass over without a word; in Hive style no folder is called so."""

_FEW_VALUES = 1 << 10
"""Numbers below this, or below how many there are, are counted in a table, else sorted."""

_FEW_ROWS = 8
"""Rows whose paths are made value by value: an array's every step costs as much as some of them."""


class KeyGenerator:
    """Key and partition columns of a table, applied to batches. Without state; pickles.

    `schema`, where it is known, is checked at once: UsageError for types that make no key.
    """

    def __init__(self, options: Options, schema: pa.Schema | None = None) -> None:
        self.key = options.key
        self.partition_by = options.partition_by
        self.hive_style = options.hive_style
        if schema is not None:
            for name in self.key:
                _check_type(name, schema.field(name).type, False)
            for name in self.partition_by:
                _check_type(name, schema.field(name).type, True)

    @property
    def columns(self) -> tuple[str, ...]:
        """Key columns, then partition columns, each once."""
        return tuple(dict.fromkeys((*self.key, *self.partition_by)))

    def record_keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Key text of every row, as a string array without nulls. Raises UsageError."""
        parts = [text(_column(batch, name), name) for name in self.key]
        for name, part in zip(self.key, parts, strict=True):
            _refuse_missing(name, part, batch, self.key)
        if len(parts) == 1:
            return parts[0]
        for name, part, following in zip(self.key, parts, self.key[1:], strict=False):
            _refuse_ambiguous(name, part, f",{following}:")
        labels = [f",{name}:"[not place :] for place, name in enumerate(self.key)]
        named = [word for pair in zip(labels, parts, strict=True) for word in pair]
        return pc.binary_join_element_wise(*named, "")

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Partition path of every row, as a string array: "" for all of an unpartitioned table.

        Raises UsageError for values that no path can hold.
        """
        return self.coded_paths(batch).dictionary_decode()

    def coded_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.DictionaryArray:
        """`partition_paths` as numbers of texts, none of which is there twice."""
        if not self.partition_by:
            return pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int32), [""])
        values = [_column(batch, name) for name in self.partition_by]
        few = self._few_paths(values)
        if few is not None:
            return few
        codes, distinct = _distinct(values)
        paths = self._coded_paths([column.take(distinct) for column in values])
        return pa.DictionaryArray.from_arrays(paths.indices.take(codes), paths.dictionary)

    def _coded_paths(self, columns: Sequence[pa.Array]) -> pa.DictionaryArray:
        """`coded_paths` of distinct values, a row each."""
        few = self._few_paths(columns)
        if few is not None:
            return few
        folders = [
            self._folders(name, column, top=not place)
            for place, (name, column) in enumerate(zip(self.partition_by, columns, strict=True))
        ]
        return pc.binary_join_element_wise(*folders, "/").dictionary_encode()

    def _few_paths(self, columns: Sequence[pa.Array]) -> pa.DictionaryArray | None:
        """`coded_paths` of a handful of texts, most of which were met before (`_folder`).

        None where there are more rows, where a column is no text, and where a text cannot stand in
        a path: the ordinary way then says which.
        """
        if len(columns[0]) > _FEW_ROWS:
            return None
        folders = []
        for place, (name, column) in enumerate(zip(self.partition_by, columns, strict=True)):
            if column.type != pa.string():
                return None
            try:
                words = column.to_pylist()
            except UnicodeDecodeError:
                return None
            folders.append([_folder(name, self.hive_style, not place, word) for word in words])
        paths = ["/".join(row) if all(row) else None for row in zip(*folders, strict=True)]
        if None in paths:
            return None
        numbers = {path: number for number, path in enumerate(dict.fromkeys(paths))}
        codes = pa.array([numbers[path] for path in paths], pa.int32())
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(numbers), pa.string()))

    def _folders(self, name: str, column: pa.Array, top: bool) -> pa.Array:
        _refuse_bytes(name, column.type)
        return _folders_of(name, text(column, name), self.hive_style, top)


def _folders_of(name: str, words: pa.Array, hive_style: bool, top: bool) -> pa.Array:
    """What folders these texts name. Raises UsageError."""
    _refuse_unsafe(name, words, () if hive_style or not top else _RESERVED)
    if not hive_style:
        _refuse(name, words, pc.match_substring(words, "="), "no = without hive_style")
    words = pc.if_else(pc.equal(words, ""), None, words).fill_null(DEFAULT_PARTITION)
    if hive_style:
        words = pc.binary_join_element_wise(f"{name}=", words, "")
    _refuse_long(name, words)
    return words


@lru_cache(1 << 8)
def _check_type(name: str, type: pa.DataType, makes_folders: bool) -> None:
    """Raises UsageError where values of this type make no key, or no folders."""
    if makes_folders:
        _refuse_bytes(name, type)
    text(pa.nulls(0, type), name)


def _refuse_bytes(name: str, type: pa.DataType) -> None:
    if _is_binary(type):  # hudi-rs takes the hex for the bytes, and loses the rows
        what = "type makes no partition"
        raise UsageError(what, column=name, expected="a readable text", found=str(type))


@lru_cache(1 << 10)
def _folder(name: str, hive_style: bool, top: bool, word: str | None) -> str | None:
    """The name of the folder for one text, kept for the next time. None: it cannot stand in a
    path."""
    try:
        [folder] = _folders_of(name, pa.array([word], pa.string()), hive_style, top).to_pylist()
    except UsageError:
        return None
    return str(folder)


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    if batch.schema.get_field_index(name) < 0:
        raise UsageError("key column is missing", column=name, found=batch.schema.names)
    return whole(batch.column(name))


def _refuse_missing(name: str, part: pa.Array, batch: Any, key: Sequence[str]) -> None:
    missing = pc.or_kleene(pc.is_null(part), pc.equal(part, ""))
    rows = pc.indices_nonzero(missing.fill_null(True))
    if len(rows):
        examples = [dict(zip(key, row, strict=True)) for row in _rows(batch, key, rows)]
        raise UsageError(
            "key is null or empty", column=name, rows=rows[:_NAMED].to_pylist(), found=examples
        )


def _rows(batch: Any, columns: Sequence[str], rows: pa.Array) -> list[tuple[Any, ...]]:
    taken = batch.select(list(columns)).take(rows[:_NAMED]).to_pylist()
    return [tuple(row.values()) for row in taken]


def _refuse_ambiguous(name: str, part: pa.Array, following: str) -> None:
    unclear = part.filter(pc.match_substring(part, following))
    if len(unclear):
        what = "key value could be taken for the next part of the key"
        raise UsageError(what, column=name, expected=f"no {following!r} in it", found=_few(unclear))


def _refuse_unsafe(name: str, words: pa.Array, reserved: Sequence[str]) -> None:
    signs = f"no control characters, and none of {' '.join(_UNSAFE)}"
    _refuse(name, words, pc.match_substring_regex(words, _UNSAFE_PATTERN), signs)
    names = [".", "..", DEFAULT_PARTITION, *reserved]
    _refuse(name, words, pc.is_in(words, pa.array(names)), f"none of {', '.join(names)}")


def _refuse(name: str, words: pa.Array, unsafe: pa.Array, expected: str) -> None:
    found = words.filter(unsafe)
    if len(found):
        raise UsageError("not a partition value", column=name, expected=expected, found=_few(found))


def _refuse_long(name: str, words: pa.Array) -> None:
    found = words.filter(pc.greater(pc.binary_length(words), _LONGEST))
    if len(found):
        what, expected = "partition value is too long", f"{_LONGEST} bytes"
        raise UsageError(what, column=name, expected=expected, found=_few(found))


def _is_binary(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind))


def _few(values: pa.Array) -> list[Any]:
    found: list[Any] = values.unique()[:_NAMED].to_pylist()
    return found


def _distinct(columns: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """For each row a number of its combination of values, and a row of each number.

    Few combinations stand for many rows, so texts are made of those alone.
    """
    codes = first = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = (
            column if pa.types.is_dictionary(column.type) else column.dictionary_encode("encode")
        )
        width = len(encoded.dictionary) + 1
        indices = encoded.indices.fill_null(width - 1).to_numpy(zero_copy_only=False)
        codes, first = _numbered(codes * width + indices)
    return pa.array(codes), pa.array(first)


def _numbered(values: Int64s) -> tuple[Int64s, Int64s]:
    """Each value's rank among the distinct ones, and the first row of each of these."""
    most = int(values.max(initial=0))
    if most > max(len(values), _FEW_VALUES):
        _, first, ranks = np.unique(values, return_index=True, return_inverse=True)
        return ranks, first
    first_row = np.full(most + 1, -1, np.int64)
    first_row[values[::-1]] = np.arange(len(values))[::-1]  # the last that is written stays
    held = first_row >= 0
    return (np.cumsum(held) - 1)[values], first_row[held]
