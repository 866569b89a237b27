"""Pairing: which rows of two slices of a file group have the same key.

A commit leaves the rows that stay in their order, takes some out, and puts new ones behind them. So
both are walked side by side, run by run, which costs one comparison per row, and a step for each
that was taken out. What is left then, slices that have lost many rows, and those in another order
are paired by a hash table, which costs fifty times as much per row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s

__all__ = ["places_in"]

RUN = 2048
"""Rows compared at once."""

STEP_ROWS = 50
"""A step of the walk takes as long as so many rows in the hash table."""

PATIENCE = 64
"""Steps that may be taken in vain: with more, rows taken out are no longer a matter of walking."""


def places_in(was: pa.Array, now: pa.Array) -> Int64s:
    """For each of `now` its place in `was`, -1 for none; texts, each once in `was`."""
    places = np.full(len(now), -1, np.int64)
    walked = _walk(was, now, places)
    left = np.ones(len(was), bool)
    left[places[:walked]] = False
    rest = np.flatnonzero(left)
    if walked < len(now) and len(rest):
        found = pc.index_in(now[walked:], value_set=was.take(pa.array(rest)))
        here = found.is_valid().to_numpy(zero_copy_only=False)
        places[walked:][here] = rest[found.drop_null().to_numpy()]
    return places


def _walk(was: pa.Array, now: pa.Array, places: Int64s) -> int:
    """Fill in `places`, up to the first of `now` that is not among the next of `was`: which one."""
    here = there = steps = 0
    while here < len(now) and there < len(was) and steps < PATIENCE + here // STEP_ROWS:
        count = min(RUN, len(now) - here, len(was) - there)
        equal = pc.equal(now[here : here + count], was[there : there + count])
        differs = np.flatnonzero(~equal.to_numpy(zero_copy_only=False))
        run = int(differs[0]) if len(differs) else count
        places[here : here + run] = np.arange(there, there + run)
        here, there = here + run, there + run
        there += run < count  # a row that was taken out
        steps += 1
    return here
