"""Samples: texts in order that stand for many, and where to cut so that parts are even.

A task gives every n-th of its texts, the least first, and says how many they stand for; all that
tasks give of one thing is one `Sample`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s
from metatable.storage.ordering import sort_order

__all__ = ["FILE_TEXTS", "Sample", "every"]

FILE_TEXTS = 64
"""Texts at least that stand for the rows of one file: so much finer are samples than files."""


@dataclass(slots=True)
class Sample:
    """Texts with weights: each stands for itself and those before the next one of its task.

    Between two of them there are at most `slack` rows more than their weights say.
    """

    rows: int = 0
    slack: int = 0
    texts: list[str] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    def add(self, rows: int, texts: Sequence[str]) -> None:
        """What one task has given (one text at least) of so many rows."""
        step = -(-rows // len(texts))
        self.rows += rows
        self.slack += 2 * (step - 1)
        self.texts += texts
        self.weights += [step] * (len(texts) - 1) + [rows - step * (len(texts) - 1)]

    def in_order(self) -> tuple[list[str], Int64s]:
        """(the texts, ascending; the rows before each of them, and behind that all rows)."""
        order = sorted(range(len(self.texts)), key=self.texts.__getitem__)
        before = np.cumsum([0, *(self.weights[place] for place in order)])
        return [self.texts[place] for place in order], before

    def cut(self, borders: Sequence[int]) -> tuple[tuple[str, ...], Int64s]:
        """Texts between parts that begin after about so many rows (ascending, the first 0), and
        which of the parts there are: those for which the sample is too coarse are left out."""
        texts, before = self.in_order()
        first = np.searchsorted(before[:-1], borders)
        firsts, kept = np.unique(first[first < len(texts)], return_index=True)
        return tuple(texts[place] for place in firsts[1:].tolist()), kept


def every(texts: pa.Array, step: int, first: int = 0) -> list[str]:
    """Every so many of the texts, in order, the least first, or so many behind it."""
    picked: list[str] = texts.take(pa.array(sort_order(texts)[first::step])).to_pylist()
    return picked
