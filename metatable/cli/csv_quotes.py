"""Quotes of CSV: text behind one that closes a cell, which Arrow takes for a part of the cell.

    "x"y      is xy to Arrow: some program has not doubled its quotes, and meant who knows what

A quote opens a cell where a delimiter or a line end is before it, closes it where one is behind it,
and within it is doubled; elsewhere, in a cell that no quote has opened, it is text. So that reading
is not slowed down, whole blocks are looked at by their bytes: as long as each quote opens, closes
or is doubled, every second one closes. Only blocks where one does not are gone through cell by
cell.
"""

from __future__ import annotations

import re

import numpy as np

__all__ = ["Quotes"]

_QUOTE = b'"'
_BOM = b"\xef\xbb\xbf"
_LONE_RETURN = re.compile(rb"\r(?=[^\n])")
_REST_OF_CELL = re.compile(rb'(?:[^"]++|"")*+"')
"""Of one that a quote has opened, its closing quote included."""


class Quotes:
    """What has been read of a file, block by block."""

    def __init__(self, delimiter: str) -> None:
        ends = delimiter.encode() + b"\r\n"
        self._ends = np.zeros(256, bool)
        self._ends[list(ends)] = True
        self._opening = re.compile(rb'[%b]"' % re.escape(ends))
        self._held = b""  # a byte that is no quote, and the quotes behind it, whose end is not seen
        self._is_open = False  # before these quotes
        self._lines = 1
        self.wrong_line: int | None = None
        """The line where text is behind a closing quote, once it was met."""

    def see(self, block: bytes) -> None:
        """The next bytes; none at the end."""
        if self.wrong_line is not None:
            return
        before = self._held
        if not before:
            before, block = b"\n", block.removeprefix(_BOM)
        block = before + (block or b"\n")
        cut = len(block.rstrip(_QUOTE))
        wrong = self._wrong(block, cut)
        self._lines += _line_ends(block, cut if wrong is None else wrong)
        self._held = block[cut - 1 :]
        if wrong is not None:
            self.wrong_line = self._lines

    def _wrong(self, block: bytes, cut: int) -> int | None:
        """Where the first text behind a closing quote is, of the bytes from 1 on before `cut`."""
        if block.find(_QUOTE, 1, cut) < 0:
            return None
        seen = np.frombuffer(block, np.uint8)
        quotes = np.flatnonzero(seen[:cut] == _QUOTE[0])
        opening, closing = quotes[self._is_open :: 2], quotes[not self._is_open :: 2]
        near = self._ends.copy()
        near[_QUOTE[0]] = True  # the other one of two that stand for one
        if near[seen[opening - 1]].all() and near[seen[closing + 1]].all():
            self._is_open ^= bool(len(quotes) % 2)
            return None
        return self._by_cell(block, cut)

    def _by_cell(self, block: bytes, cut: int) -> int | None:
        at = 1
        while True:
            if not self._is_open:
                opened = self._opening.search(block, at - 1, cut)
                if opened is None:
                    return None
                at = opened.end()
            closed = _REST_OF_CELL.match(block, at, cut)
            self._is_open = closed is None
            if closed is None:
                return None
            at = closed.end()
            if not self._ends[block[at]]:
                return at


def _line_ends(block: bytes, behind: int) -> int:
    """Of the bytes from 1 on. Of a "\r" the byte behind it tells, maybe with the next block."""
    count = block.count(b"\n", 1, behind)
    if block.find(b"\r", 0, behind) >= 0:
        count += len(_LONE_RETURN.findall(block[:behind]))
    return count
