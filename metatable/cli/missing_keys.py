"""Rows without a key, told by the file and the place in it.

The table refuses them, too, but counts rows over all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.schema import KEY_COLUMN
from metatable.storage.errors import UsageError

__all__ = ["refuse_missing_keys"]

_t = pa.types
_MAY_BE_EMPTY = (_t.is_string, _t.is_large_string, _t.is_binary, _t.is_large_binary)


def refuse_missing_keys(
    batch: pa.RecordBatch, key: Iterable[str], file: str, place: Callable[[int], dict[str, Any]]
) -> None:
    """Raise UsageError for the first row in which one of these columns is null or empty. `place`:
    facts of a row of the batch. Rows that tell their key in Hudi's own column need no other."""
    names = batch.schema.names
    for name in () if KEY_COLUMN in names else key:
        row = _first_missing(batch[name]) if name in names else None
        if row is not None:
            raise UsageError("key is null or empty", column=name, file=file, **place(row))


def _first_missing(column: pa.Array) -> int | None:
    if column.null_count:
        return int(pc.index(column.is_null(), True).as_py())
    if len(column) and any(is_kind(column.type) for is_kind in _MAY_BE_EMPTY):
        row = pc.index(pc.equal(pc.binary_length(column), 0), True).as_py()
        return None if row < 0 else int(row)
    return None
