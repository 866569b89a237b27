"""The texts of a batch's keys, made once or taken as they are.

A user's rows have the key's own columns. Rows on their way into a table have had the texts
made already (`_hoodie_record_key`, `_hoodie_partition_path`); they are used as they stand, before
the key's own columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.align import align
from metatable.data.columns.schema import KEY_COLUMN, PATH_COLUMN
from metatable.data.config.options import Options
from metatable.data.keys.keygen import KeyGenerator
from metatable.storage.errors import UsageError

__all__ = [
    "KEY",
    "PATH",
    "coded_texts_of",
    "identities",
    "identity_columns",
    "key_column",
    "own_identity_columns",
    "parts_of",
    "texts_of",
]

Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray)

KEY, PATH = KEY_COLUMN, PATH_COLUMN
"""The columns of rows on their way into a table that hold these texts: Hudi's own."""


def identity_columns(options: Options, columns: Sequence[str]) -> list[str]:
    """The columns that say which key a row has: in partition scope with its partition's; Hudi's own
    where they are there. Raises UsageError where one is missing."""
    if _has_texts(options, columns):
        return [KEY] if options.is_global or PATH not in columns else [KEY, PATH]
    wanted = list(options.key)
    if not options.is_global:
        wanted += [name for name in options.partition_by if name not in wanted]
    for name in wanted:
        if name not in columns:
            part = "key" if name in options.key else "partition"
            if KEY in columns:  # the key is told, but not by what goes with it
                part, name = "partition", PATH
            raise UsageError(f"the {part} column is missing", column=name, found=list(columns))
    return wanted


def own_identity_columns(options: Options, columns: Sequence[str]) -> list[str]:
    """`identity_columns`, the table's own, be Hudi's there or not: a delete goes by them."""
    return identity_columns(options, [name for name in columns if name not in (KEY, PATH)])


def _has_texts(options: Options, columns: Sequence[str]) -> bool:
    """Whether Hudi's own columns are there; a table without partitions has one path, "", which
    need not be."""
    return KEY in columns and (options.is_global or not options.partition_by or PATH in columns)


def key_column(options: Options, schema: pa.Schema) -> str:
    """The column of `schema` that has the keys' texts as they are, or else Hudi's own: the key of
    a table, where it is one column of text, is stored twice in each row."""
    name = options.key[0]
    if len(options.key) == 1 and name in schema.names and schema.field(name).type == pa.string():
        return name
    return KEY


def texts_of(
    options: Options, schema: pa.Schema, batch: pa.RecordBatch
) -> tuple[pa.Array, pa.Array]:
    """(record keys, partition paths) as string arrays; in global scope the paths are empty."""
    names = batch.schema.names
    if _has_texts(options, names) and PATH in names and not options.is_global:
        return _meta_column(batch, KEY), _meta_column(batch, PATH)
    keys, paths = coded_texts_of(options, schema, batch)
    return keys, paths.dictionary_decode()


def coded_texts_of(
    options: Options, schema: pa.Schema, batch: pa.RecordBatch
) -> tuple[pa.Array, pa.DictionaryArray]:
    """`texts_of`, with numbers for the partition paths, few of which stand for many rows: none of
    the dictionary's texts is there twice."""
    nowhere = pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int32), [""])
    if _has_texts(options, batch.schema.names):
        is_nowhere = options.is_global or PATH not in batch.schema.names
        paths = nowhere if is_nowhere else _meta_column(batch, PATH).dictionary_encode()
        return _meta_column(batch, KEY), paths
    columns = identity_columns(options, batch.schema.names)
    batch = align(batch.select(columns), pa.schema([schema.field(name) for name in columns]))
    generator = KeyGenerator(options, schema)
    paths = nowhere if options.is_global else generator.coded_paths(batch)
    return generator.record_keys(batch), paths


def _meta_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A meta column as it stands, but where a user's rows have it in another layout. Raises
    UsageError for other types, and nulls."""
    column = batch[name]
    if column.type == pa.string() and not column.null_count:
        return column
    wanted = pa.schema([pa.field(name, pa.string(), nullable=False)])
    return align(batch.select([name]), wanted)[name]


def identities(is_global: bool, keys: Texts, paths: Texts) -> Texts:
    """Texts that are equal for rows which are one and the same, in a table of this scope: the key,
    in partition scope with the partition path before it."""
    return keys if is_global else pc.binary_join_element_wise(paths, keys, "\0")


def parts_of(keys: pa.Array, columns: Sequence[str]) -> list[pa.Array]:
    """The texts of the key's columns, from the record keys that `KeyGenerator` makes of them.

    No text holds the beginning of the part that follows it, so each is cut at the first one. Parts
    that a text lacks, which is no such key, are empty: it is in some bucket, as any other.
    """
    if len(columns) == 1:
        return [keys]
    parts, rest = [], pc.utf8_slice_codeunits(keys, len(f"{columns[0]}:"))
    for following in columns[1:]:
        halves = pc.split_pattern(rest, f",{following}:", max_splits=1)
        parts.append(pc.list_element(halves, 0))
        counts = pc.list_value_length(halves).to_numpy()
        seconds = pa.array(np.cumsum(counts) - 1, mask=counts < 2)
        rest = halves.flatten().take(seconds).fill_null("")
    return [*parts, rest]
