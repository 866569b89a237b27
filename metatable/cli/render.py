"""Text for terminals: numbers, sizes and aligned columns. No colour, no boxes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

__all__ = ["columns", "count", "heading", "pairs", "printable", "size", "when"]

GAP = "  "


def count(number: int | None) -> str:
    """`336,776`; nothing to count is "-"."""
    return "-" if number is None else f"{number:,}"


def size(bytes_: int | None) -> str:
    """`1.2 MB`, in units of 1000."""
    if bytes_ is None:
        return "-"
    number = float(bytes_)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


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


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[str] = ()) -> str:
    """Lines of cells below their heads; to the right, but for the columns named in `left`."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    to_left = set(left)
    return "\n".join(
        GAP.join(
            f"{cell:<{width}}" if head in to_left else f"{cell:>{width}}"
            for head, cell, width in zip(heads, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def heading(text: str, out: TextIO | None = None) -> str:
    """`text`, bold where `out` is a terminal that may be coloured."""
    out = sys.stdout if out is None else out
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not out.isatty()
    return text if plain else f"\x1b[1m{text}\x1b[0m"
