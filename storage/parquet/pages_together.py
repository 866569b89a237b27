"""Pages together: rows of several columns, whose pages are decompressed at once where they are few.

Where they are many each thread has a column, and a block of it at a time (`column_pages.py`).

    memory    ROUND_BYTES, or what threads have of columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from metatable.storage.arrays import UInt8s
from metatable.storage.parquet.column_pages import (
    ColumnPages,
    Group,
    Unpacked,
)
from metatable.storage.parquet.page_runs import Runs
from metatable.storage.parquet.unpacked_pages import begun_each
from metatable.storage.threads import in_order

__all__ = ["found_with_columns", "rows_of_columns"]

ROUND_BYTES = 32 << 20
"""Decompressed bytes of pages of all columns that are held at once. Where they are more each thread
has a column, and a block of it at a time."""

BESIDE_KEYS = 0.5
"""So much of other columns' pages as another thread decompresses who looks for the keys meanwhile
decompresses itself."""


def rows_of_columns(columns: Iterable[ColumnPages]) -> Iterator[pa.Array]:
    """The rows that are asked for, of each column. Raises CorruptError."""
    some = [*columns]
    if not _are_few(some):
        yield from in_order(ColumnPages.rows_alone, some)
        return
    groups = [column.groups() for column in some]
    yield from _taken_or_decoded(some, groups, _begun(some, groups, 1.0)())


def found_with_columns(
    keys: ColumnPages,
    others: Sequence[ColumnPages],
    texts: Sequence[dict[int, list[bytes]]],
    begun: Callable[[], Unpacked] | None = None,
) -> tuple[Runs, pa.Array, list[pa.Array]]:
    """The rows that have one of the texts (`ColumnPages.found`), and what other columns, whose
    pages hold at least the same rows, have there: few are decompressed together, without those of
    keys where that has `begun`. Raises CorruptError."""
    every = [keys, *others]
    if not _are_few(every):
        runs, held = keys.found(texts, None if begun is None else begun())
        return runs, held, [*rows_of_columns(_asked_for(runs, others))]
    if begun is None:
        groups = [column.groups() for column in every]
        first, *raws = _begun(every, groups, 1.0)()
        runs, held = keys.found(texts, (groups.pop(0), first))
    else:
        groups = [column.groups() for column in others]
        ended = _begun(others, groups, BESIDE_KEYS)
        runs, held = keys.found(texts, begun())
        raws = ended()
    return runs, held, [*_taken_or_decoded(_asked_for(runs, others), groups, raws)]


def _asked_for(rows: Runs, columns: Sequence[ColumnPages]) -> list[ColumnPages]:
    """The columns, of which the rows of another one are asked for."""
    made: dict[int, Runs] = {}
    for column in columns:
        key = id(column.runs)
        made[key] = made.get(key) or column.runs.with_rows_of(rows)
    return [replace(column, runs=made[id(column.runs)]) for column in columns]


def _are_few(columns: Sequence[ColumnPages]) -> bool:
    """Whether the pages of all of them are decompressed at once."""
    plain = [one.headers.plain[one.own] for one in columns if one.headers is not None]
    return sum(int(one.sum()) for one in plain) <= ROUND_BYTES


def _begun(
    columns: Sequence[ColumnPages], groups: Sequence[Sequence[Group]], own: float
) -> Callable[[], list[list[UInt8s | None]]]:
    """What is in the groups of each column: decompression is begun (`begun_each`)."""
    parts = zip(columns, groups, strict=True)
    ended = begun_each([column.packed(group) for column, some in parts for group in some], own)

    def parted() -> list[list[UInt8s | None]]:
        raws = iter(ended())
        return [[*islice(raws, len(some))] for some in groups]

    return parted


def _taken_or_decoded(
    columns: Sequence[ColumnPages],
    groups: Sequence[Sequence[Group]],
    raws: Sequence[Sequence[UInt8s | None]],
) -> Iterator[pa.Array]:
    found = [*map(ColumnPages.taken, columns, groups, raws)]
    left = [column for column, rows in zip(columns, found, strict=True) if rows is None]
    decoded = in_order(ColumnPages.rows, left)
    for rows in found:
        yield next(decoded) if rows is None else rows
