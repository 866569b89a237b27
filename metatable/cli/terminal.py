"""Terminals: whether there is one, how wide it is, what may be coloured.

NO_COLOR (https://no-color.org), whatever its value, and TERM=dumb ask for plain text.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from typing import TextIO

__all__ = ["bold", "cut", "dim", "filled", "is_coloured", "is_terminal", "width", "width_of"]


def is_terminal(out: TextIO | None = None) -> bool:
    """Whether somebody reads `out` (standard output), who is shown lines that fit."""
    out = sys.stdout if out is None else out
    return out is not None and out.isatty()


def is_coloured(out: TextIO | None = None) -> bool:
    """Whether `out` is a terminal that may be coloured."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return not plain and is_terminal(out)


def width(out: TextIO | None = None) -> int | None:
    """Columns of the terminal; None where there is none, and lines may be of any length."""
    return shutil.get_terminal_size().columns if is_terminal(out) else None


def bold(text: str, out: TextIO | None = None) -> str:
    return f"\x1b[1m{text}\x1b[0m" if is_coloured(out) else text


def dim(text: str, out: TextIO | None = None) -> str:
    return f"\x1b[2m{text}\x1b[0m" if is_coloured(out) else text


def filled(text: str, indent: str = "  ") -> str:
    """`text`, its lines broken between words where a terminal is narrower."""
    columns = width()
    if columns is None:
        return text
    return "\n".join(
        _words(line, columns, indent) if width_of(line) > columns else line
        for line in text.split("\n")
    )


def _words(line: str, columns: int, indent: str) -> str:
    """Broken between words: names and ids stay whole, for they are there to be copied."""
    return textwrap.fill(
        line,
        columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def width_of(text: str) -> int:
    """Columns that a terminal needs for a line of printable characters."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """`text` within so many columns, with an ellipsis where it is longer."""
    if width_of(text) <= columns:
        return text
    kept, left = [], columns - 1
    for one in text:
        left -= _columns(one)
        if left < 0:
            break
        kept.append(one)
    return "".join(kept) + "…"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
