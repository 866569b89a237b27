"""Placement: which file group a row goes to, where the index decides it.

Most indexes leave that open (`Index.placement` is None): a row whose key is stored stays in its
group, and the write's plan fills small files and opens new ones. Where a key's group follows
from the key, as in buckets, rows are placed by this instead, stored or not.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.slices import is_file_id
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Int64s
from metatable.storage.errors import UsageError

__all__ = ["Placement", "placed"]


class Placement(Protocol):
    """Names the file group of each row. It must pickle, and say the same to everyone who asks at
    one version."""

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> tuple[Int64s, pa.Array]:
        """Pairs of a row's number (ascending) and the id of a file group in its partition.

        Every row comes at least once. One that goes to two groups comes twice. A group that
        is not there yet is opened under this id: of two writers that open it one is first.
        """
        ...


def placed(
    placement: Placement, keys: pa.Array, partition_paths: pa.Array
) -> tuple[Int64s, pa.Array]:
    """What a placement says of these rows. Others write placements, too: no row may be lost, no id
    make a name of no file. Raises UsageError."""
    rows, told = placement.place(keys, partition_paths)
    file_ids = _texts(told)
    if not _are_all(rows := np.asarray(rows), len(keys)) or len(file_ids) != rows.size:
        raise UsageError(
            "the index has not placed all rows, in ascending order",
            expected=f"numbers of all {len(keys)} rows, each with a file id",
            found=f"{rows.size} numbers, {len(file_ids)} file ids",
        )
    for file_id in pc.unique(file_ids).to_pylist():
        if file_id is None or not is_file_id(file_id):
            raise UsageError(
                "the index has placed rows under an id that makes no file name",
                expected="up to 100 letters, digits and hyphens",
                found=file_id,
            )
    return rows.astype(np.int64, copy=False), file_ids


def _are_all(rows: np.ndarray[Any, Any], count: int) -> bool:
    """Whether these are the numbers of so many rows, ascending, each there once or more."""
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        return count == 0
    steps = np.diff(rows)
    goes_on = steps.min(initial=0) >= 0 and steps.max(initial=0) <= 1
    return bool(goes_on and rows[0] == 0 and rows[-1] == count - 1)


def _texts(told: Any) -> pa.Array:
    """Ids in whatever form they were given."""
    try:
        ids = told if isinstance(told, pa.Array | pa.ChunkedArray) else pa.array(told)
        return (whole(ids) if isinstance(ids, pa.ChunkedArray) else ids).cast(pa.string())
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            "the index has placed rows under ids that are no texts",
            expected="an array of texts",
            found=str(getattr(told, "type", type(told).__name__)),
        ) from error
