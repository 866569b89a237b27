"""Rows and where their keys are: all levels of a lookup in one process, answers by row number.

Where nothing has to be sent to other workers, candidates stay arrays of places, and what is found
goes to its row without a join. Files are looked into beside each other, each once for all the keys
of a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.data.file_groups.slices import FileSlice
from metatable.data.reading.keyed_rows import Asked, places_of_keys
from metatable.engine.by_row import ROW_FIELD
from metatable.index.locations import LOCATION_FIELD, locations
from metatable.metadata.view import TableView
from metatable.storage.arrays import Int64s
from metatable.storage.counters import Counters

__all__ = ["ANSWERS", "Candidates", "found_rows"]

ANSWERS = pa.schema([ROW_FIELD, *LOCATION_FIELD])
"""Rows by their numbers, and where their keys are; a row whose key is in two slices comes twice."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Distinct keys (texts) that a slice may hold, and their `rows`: those of key i are
    `rows[ends[i - 1]:ends[i]]`; without `ends` each has one."""

    of: FileSlice
    keys: pa.Array
    rows: Int64s
    ends: Int64s | None = None

    def rows_of(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """The rows of these keys, and which of the `places` each is of."""
        if self.ends is None:
            return self.rows[places], np.arange(len(places))
        counts = np.diff(self.ends, prepend=0)[places]
        own = np.repeat(np.arange(len(places)), counts)
        within = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.rows[np.repeat(self.ends[places] - counts, counts) + within], own


def found_rows(
    view: TableView, asked: Iterator[Candidates], count: int, counters: Counters
) -> pa.RecordBatch:
    """For each of `count` rows, as `ANSWERS`, where the slices that are asked hold its key. Raises
    CorruptError."""
    given: list[Candidates] = []

    def noted() -> Iterator[Asked]:
        for one in asked:
            given.append(one)
            view.store.counters.add("tag.files_opened")
            yield Asked(one.of, one.keys)

    rows, positions, slices = [], [], []
    ordering = view.options.ordering
    for number, (one, places, at) in enumerate(
        places_of_keys(view.store, noted(), view.table_schema, ordering)
    ):
        counters.add("tag.false_positives", len(one.keys) - len(places))
        own, of = given[number].rows_of(places)
        rows.append(own)
        positions.append(np.full(len(own), -1) if one.of.logs else at[of])
        slices.append(one.of)
    return _answers(rows, positions, slices, count)


def _answers(
    rows: Sequence[Int64s], positions: Sequence[Int64s], slices: Sequence[FileSlice], count: int
) -> pa.RecordBatch:
    """`rows[i]`, at `positions[i]`, are in `slices[i]`; others are nowhere."""
    slice_of = np.full(count, -1, np.int64)
    position = np.full(count, -1, np.int64)
    for number, (own, at) in enumerate(zip(rows, positions, strict=True)):
        slice_of[own], position[own] = number, at
    named = np.arange(count)
    if (slice_of >= 0).sum() < sum(map(len, rows)):  # some are in two slices
        nowhere = np.flatnonzero(slice_of < 0)
        none = np.full(len(nowhere), -1, np.int64)
        numbers = [np.full(len(own), number) for number, own in enumerate(rows)]
        named = np.concatenate([*rows, nowhere])
        order = np.argsort(named, kind="stable")
        named = named[order]
        slice_of = np.concatenate([*numbers, none])[order]
        position = np.concatenate([*positions, none])[order]
    located = locations(
        slice_of,
        [one.partition_path for one in slices],
        [one.file_id for one in slices],
        [one.instant for one in slices],
        pa.array(position, mask=position < 0),
    )
    return pa.RecordBatch.from_arrays([pa.array(named), located], schema=ANSWERS)
