"""A merge of few keys: they are looked for in those pages of the file that may hold them.

Which pages these are, bounds in the page index say, and a page index has no checksum. So it is
asked only where the index of the table has told which of the keys the slice holds, and what comes
of it counts only if just these were found. Else all keys are read, as where most pages may hold
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from metatable.data.base_files.spliced_file import StoredParts
from metatable.data.keys.key_texts import KEY
from metatable.data.rows.merge import Merge
from metatable.data.rows.taking import whole
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.chosen_pages import read_rows
from metatable.storage.parquet.page_places import key_pages
from metatable.storage.parquet.paged_file import PagedFile

__all__ = ["Known", "merge_of_few"]

MOST_ROWS = 1 / 2
"""Of a file that are looked through: with more of them, the others cost little more."""

KEY_ROWS = 32
"""Rows of a file for each key that is asked: random ones are in all pages long before, and others
are sorted, one by one, in the time that it takes to read them all."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a merge before it: how many of the rows put in the slice surely does not
    hold, whether it holds all others, and whether anybody will ask for all keys of the new file."""

    arriving: int
    is_proven: bool
    is_asked_for_keys: bool


def merge_of_few(
    held: StoredParts,
    file: PagedFile | None,
    deciding: pa.Table,
    deletes: pa.Array,
    ordering: str | None,
    known: Known,
) -> Merge | None:
    """The merge of a file with these rows (keys and ordering column) and deleted keys (texts).
    `file`: the same one, None where its pages are not told. None: it takes a look at all keys."""
    if file is None or not known.is_proven or known.is_asked_for_keys:
        return None
    if (deciding.num_rows + len(deletes)) * KEY_ROWS > int(file.rows.sum()):
        return None
    asked = pa.concat_arrays([whole(deciding[KEY]), deletes])
    try:
        rows = _rows(held, file, asked)
        names = [KEY, *filter(None, (ordering,))]
        if rows is None or not _are_alike(file, deciding.schema, names):
            return None
        stored = read_rows(held.store, [(file, rows)], names)
    except CorruptError:  # who reads all will find what is wrong
        return None
    if stored[KEY].null_count:
        return None
    merge = Merge.of(stored, deciding, deletes, ordering)
    is_as_told = len(merge.new) == known.arriving and merge.counts.deleted == len(deletes)
    return merge.within(rows, int(file.rows.sum())) if is_as_told else None


def _rows(held: StoredParts, file: PagedFile, keys: pa.Array) -> Int64s | None:
    """The rows among which all are that hold some of these keys; None: too many, or not told."""
    [pages] = key_pages(held.store, [file], KEY)
    if pages is None:
        return None
    rows = pages.rows_of(pages.holding(keys))
    return rows if len(rows) <= MOST_ROWS * int(file.rows.sum()) else None


def _are_alike(file: PagedFile, schema: pa.Schema, names: Sequence[str]) -> bool:
    """Whether pages of these columns come with the types of the table's."""
    kinds = dict(zip(file.shape.names, file.shape.schema.types, strict=True))
    return all(kinds.get(name) == schema.field(name).type for name in names)
