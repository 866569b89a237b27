"""Guessed columns of CSV whose cells look like numbers and are texts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence

__all__ = ["columns_of_texts"]

_LED_BY_ZERO = re.compile(r"[+-]?0\d[\d.]*")
_LONG = re.compile(r"[+-]?\d{19,}")
_FEWEST, _MOST = -(1 << 63), (1 << 63) - 1


def columns_of_texts(
    head: str, delimiter: str, nulls: Collection[str], known: Collection[str]
) -> Sequence[str]:
    """Of the columns, but for `known` ones, those with a cell in `head` that Arrow would take for a
    number from which nobody makes the same text again: codes such as 007, and numbers of which
    a float has the first sixteen digits.

    `head`: the line of names and what is read behind it before anything is guessed; its last line
    may be cut.
    """
    lines = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    texts: set[str] = set()
    try:
        names = next(filter(None, lines), [])
        asked = [(place, name) for place, name in enumerate(names) if name not in known]
        for cells in lines if asked else ():
            texts.update(
                name
                for place, name in asked
                if place < len(cells) and _is_text(cells[place]) and cells[place] not in nulls
            )
    except csv.Error:  # Arrow tells what is wrong, and where
        return []
    return sorted(texts)


def _is_text(cell: str) -> bool:
    if _LED_BY_ZERO.fullmatch(cell):
        return True
    return bool(_LONG.fullmatch(cell)) and not (len(cell) <= 20 and _FEWEST <= int(cell) <= _MOST)
