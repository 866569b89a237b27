"""Columns as dictionaries: each value once, and a number per row.

Texts that repeat are stored so, and need be neither spelled out nor gathered to be stored so again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from metatable.data.rows.taking import whole

__all__ = ["constant", "trimmed"]


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """A column of one text."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [value])


def trimmed(table: pa.Table) -> pa.Table:
    """The same rows; no dictionary has a value that no row has, as where rows were replaced: it
    would pass on from file to file."""
    columns = [
        _trimmed(whole(one)) if pa.types.is_dictionary(one.type) else one for one in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def _trimmed(column: pa.DictionaryArray) -> pa.DictionaryArray:
    numbers = column.indices.fill_null(0).to_numpy()
    is_used = np.bincount(numbers, minlength=len(column.dictionary)) > 0
    if is_used.all():
        return column
    places = (np.cumsum(is_used) - 1).astype(np.int32)[numbers]
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    kept = column.dictionary.filter(pa.array(is_used))
    return pa.DictionaryArray.from_arrays(pa.array(places, mask=nulls), kept)
