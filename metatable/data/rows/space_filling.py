"""Space-filling order: one number for several, such that near numbers come from near places.

Hilbert's curve, by J. Skilling's transform ("Programming the Hilbert curve", AIP Conf. Proc. 707,
2004), over whole columns. Beside Morton's order (bits interleaved and no more) it never jumps: of
rows that are cut into files by it, two conditions keep a third fewer files (`DECISIONS.md`, 99).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from metatable.storage.arrays import UInt64s

__all__ = ["hilbert_codes"]

_ONE = np.uint64(1)


def hilbert_codes(places: Sequence[UInt64s], bits: int) -> UInt64s:
    """How far along the curve each point lies. `places`: an array a dimension, of numbers below
    2^bits; all bits together at most 64."""
    axes = [one.copy() for one in places]
    first, last = axes[0], axes[-1]
    for bit in reversed(range(1, bits)):  # undo what the curve turns and mirrors, coarse to fine
        low = (_ONE << np.uint64(bit)) - _ONE
        for axis in axes:
            mirrored = ((axis >> np.uint64(bit)) & _ONE) * low
            swapped = (first ^ axis) & (low - mirrored)
            first ^= mirrored | swapped
            if axis is not first:
                axis ^= swapped
    for before, axis in pairwise(axes):  # Gray code
        axis ^= before
    turned = np.zeros_like(first)
    for bit in range(1, bits):
        turned ^= ((last >> np.uint64(bit)) & _ONE) * ((_ONE << np.uint64(bit)) - _ONE)
    return _interleaved([axis ^ turned for axis in axes], bits)


def _interleaved(axes: Sequence[UInt64s], bits: int) -> UInt64s:
    """The highest bits of all, the first axis first, then the next ones."""
    codes = np.zeros_like(axes[0])
    for bit in reversed(range(bits)):
        for axis in axes:
            codes = (codes << _ONE) | ((axis >> np.uint64(bit)) & _ONE)
    return codes
