"""Row order: what rows are in order by when they are cut into files.

    no column        the record key's text
    one or several   sort texts: by the first, then by the next one (`sort_texts.py`)
    with `cuts`      along a space-filling curve through the ranks of several columns, so that a
                     file holds a range of each: 16 digits of how far along it is, then the key

A rank is how many of a column's cuts are not greater than a value; cuts are quantiles of what rows
have, the same one as often as a value makes it so. So numbers and dates are in order as such, and
each column is given its share of the curve however its values are spread, and however few they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.keys.key_texts import KEY
from metatable.data.keys.sort_texts import column_texts, hexadecimal, sort_texts
from metatable.data.rows.samples import every
from metatable.data.rows.space_filling import hilbert_codes
from metatable.data.rows.taking import whole
from metatable.storage.arrays import UInt64s
from metatable.storage.counters import Counters
from metatable.storage.hashing import xxh64_one
from metatable.storage.ordering import PrefixIndex

__all__ = ["BY_KEY", "COLUMN_SAMPLES", "RowOrder", "sample_columns"]

RANK_BITS = 10
"""A column has up to so many bits of the curve: a thousand ranks are enough for many files."""

CURVE_BITS = 64

BATCH_TEXTS = 256
"""Texts of a column that a batch of rows gives as a sample."""

ALL_TEXTS = 1 << 19
"""Texts that all tasks together give, about, of all columns: they meet in one process. Ranks of two
columns have hundreds of them each."""

GRID = 4
"""Places a column at which a range of several is looked at, for the part of the curve in it."""

MOST_POINTS = 256

COLUMN_SAMPLES = pa.schema([("column", pa.string()), ("texts", pa.list_(pa.string()))])


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order by these columns; without any, by the key. `cuts`: of each column the texts between
    its ranks, ascending; without any, rows are in order by the columns one after the other."""

    columns: tuple[str, ...] = ()
    cuts: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def fitted(cls, columns: tuple[str, ...], samples: pa.Table) -> RowOrder:
        """The order along a curve whose ranks are those of what tasks have sampled
        (`COLUMN_SAMPLES`)."""
        cuts = []
        for name in columns:
            told = samples.filter(pc.equal(samples["column"], name))["texts"]
            texts = sorted(text for some in told.to_pylist() for text in some)
            ranks = 1 << min(RANK_BITS, CURVE_BITS // len(columns))
            places = np.arange(1, ranks) * len(texts) // ranks
            cuts.append(tuple(texts[place] for place in places) if texts else ())
        return cls(columns, tuple(cuts))

    def texts(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """A text a row (with its key text), no two alike, whose byte order is this order."""
        if not self.columns:
            return whole(rows[KEY])
        if not self.cuts:
            return sort_texts(rows, self.columns)
        ranks = [self._ranks(place, whole(rows[name])) for place, name in enumerate(self.columns)]
        return pc.binary_join_element_wise(hexadecimal(self._codes(ranks)), whole(rows[KEY]), "")

    def ranges(self, bounds: Mapping[str, tuple[pa.Array, pa.Array]]) -> tuple[pa.Array, pa.Array]:
        """Between which texts those of the rows of each file are, about where a curve is cut.

        `bounds`: by column, the least and the greatest value of each file (arrays of a value a
        file). Where one is null, nobody knows, and any texts are given.
        """
        low, high = zip(*(bounds[name] for name in self.columns), strict=True)
        if not self.cuts:
            first, last = low[0], high[0]
            return column_texts(first, self.columns[0]), column_texts(last, self.columns[0])
        lows, highs = (
            [self._ranks(place, one) for place, one in enumerate(side)] for side in (low, high)
        )
        highs = [*map(np.maximum, lows, highs)]  # null, which nobody knows, ranks below all values
        points = _grid(len(lows))
        codes = [
            self._codes(
                [
                    (a + np.rint((b - a) * share).astype(np.uint64)).astype(np.uint64)
                    for a, b, share in zip(lows, highs, point, strict=True)
                ]
            )
            for point in points
        ]
        return hexadecimal(np.min(codes, axis=0)), hexadecimal(np.max(codes, axis=0))

    def _ranks(self, place: int, column: pa.Array) -> UInt64s:
        """How many cuts of the column at this place are not greater than each value of `column`."""
        cuts = PrefixIndex(pa.array(self.cuts[place], pa.string()))
        texts = column_texts(column, self.columns[place])
        return cuts.place(texts, "right").astype(np.uint64)

    def _codes(self, ranks: Sequence[UInt64s]) -> UInt64s:
        """How far along the curve rows of these ranks, an array a column, are."""
        return hilbert_codes(ranks, min(RANK_BITS, CURVE_BITS // len(ranks)))


def _grid(dimensions: int) -> Iterator[tuple[float, ...]]:
    """Places in a range of so many columns, as shares of it: its corners at least, or, where these
    are too many, its diagonal."""
    steps = next((one for one in (GRID, 2) if one**dimensions <= MOST_POINTS), None)
    if steps is None:
        return ((share,) * dimensions for share in np.linspace(0, 1, GRID).tolist())
    return product(np.linspace(0, 1, steps).tolist(), repeat=dimensions)


BY_KEY = RowOrder()


def _somewhere(columns: Sequence[str], batch: pa.RecordBatch, step: int) -> int:
    """One of the first rows, up to `step`: the same one when the task is tried again."""
    first = batch.slice(0, 1)
    texts = [column_texts(whole(first[name]), name)[0].as_py() for name in columns]
    most: int = min(step, batch.num_rows)
    return xxh64_one("\0".join(texts).encode()) % most


def sample_columns(
    columns: Sequence[str],
    given: int,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: some values of each column, as texts, in `COLUMN_SAMPLES`: one at least. `given`: the
    rows of all tasks together, about.

    Every n-th row of each batch in order, counted on from one batch to the next: were each batch
    begun anew, small ones would all give their least. Each task begins somewhere else: its rows are
    often a sample of all as they are, and the same places would be the same quantiles in each.
    """
    coarsest = -(-given * len(columns) // ALL_TEXTS)
    due = None
    for batch in batches:
        step = max(-(-batch.num_rows // BATCH_TEXTS), coarsest)
        first = _somewhere(columns, batch, step) if due is None else due
        due = first + step * len(range(first, batch.num_rows, step)) - batch.num_rows
        if first >= batch.num_rows:
            continue
        texts = [every(column_texts(whole(batch[name]), name), step, first) for name in columns]
        yield pa.RecordBatch.from_arrays(
            [pa.array(columns, pa.string()), pa.array(texts, COLUMN_SAMPLES.types[1])],
            schema=COLUMN_SAMPLES,
        )
