"""Text for terminals and pipes: numbers, sizes and aligned columns. No boxes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from metatable.cli import terminal
from metatable.storage.sizes import size_text

__all__ = ["columns", "count", "heading", "pairs", "printable", "size", "when"]

GAP = "  "

LEAST_WRAPPED = 16
"""A last column that is narrower than this is not broken: the terminal does as well."""


def count(number: int | None) -> str:
    """`336,776`; nothing to count is "-"."""
    return "-" if number is None else f"{number:,}"


def size(bytes_: int | None) -> str:
    """`1.2 MB`; a dash where it is not known."""
    return "-" if bytes_ is None else size_text(bytes_)


def printable(text: str) -> str:
    """What somebody else has written, on one line and without what moves a terminal."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def when(time_ms: int) -> str:
    """Epoch milliseconds as `2026-11-21 13:02:38Z`; a time of no calendar is "-"."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return "-"


def pairs(facts: Iterable[tuple[str, str]]) -> str:
    """A name and a value a line, values below each other."""
    rows = list(facts)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}{GAP}{value}".rstrip() for name, value in rows)


def columns(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[str] = (),
    most: int | None = None,
) -> str:
    """Lines of cells below their heads; to the right, but for the columns named in `left`.

    `most`: columns of the terminal; words of the last column, to the left, go on below it.
    """
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(terminal.width_of(line[place]) for line in lines) for place in range(len(heads))]
    to_left = set(left)
    before = sum(widths[:-1]) + len(GAP) * (len(heads) - 1)
    room = (most or 0) - before
    breaks = heads[-1] in to_left and LEAST_WRAPPED <= room < widths[-1]
    told = []
    for line in lines:
        *cells, last = line
        first, *more = _broken(last, room) if breaks else [last]
        told.append(_line(heads, [*cells, first], widths, to_left))
        told += [" " * before + part for part in more]
    return "\n".join(told)


def _line(heads: Sequence[str], cells: Sequence[str], widths: Sequence[int], left: set[str]) -> str:
    parts = []
    for head, cell, width in zip(heads, cells, widths, strict=True):
        gap = " " * (width - terminal.width_of(cell))
        parts.append(cell + gap if head in left else gap + cell)
    return GAP.join(parts).rstrip()


def _broken(text: str, room: int) -> list[str]:
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return parts or [""]


def heading(text: str, out: TextIO | None = None) -> str:
    """`text`, bold where `out` is a terminal that may be coloured."""
    return terminal.bold(text, out)
