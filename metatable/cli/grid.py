"""A grid: rows below their heads, as wide as the terminal is.

Widths are those of the first page. Where a terminal is too narrow the widest columns give way,
down to a few letters; where that is not enough the columns behind are left out, and named below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from metatable.cli import terminal
from metatable.cli.render import GAP, printable

__all__ = ["Grid"]

PAGE_ROWS = 1000
LEAST_WIDTH = 8
NULL = "null"

Row = Sequence[str | None]


class Grid:
    """Lines of a grid, as rows come; None is a null."""

    def __init__(
        self, names: Sequence[str], right: Sequence[bool], columns: int | None = None
    ) -> None:
        self._names = [printable(name) for name in names]
        self._right = right
        self._columns = terminal.width() if columns is None else columns
        self._page: list[list[str | None]] = []
        self._widths: list[int] | None = None

    def add(self, rows: Iterable[Row]) -> Iterator[str]:
        """Lines that can be told by now."""
        for row in rows:
            self._page.append([None if one is None else printable(one) for one in row])
            if self._widths is not None or len(self._page) >= PAGE_ROWS:
                yield from self._lines()

    def end(self) -> Iterator[str]:
        """The lines that are left."""
        yield from self._lines()
        left_out = self._names[len(self._widths or ()) :]
        if left_out:
            told = f"left out: {', '.join(left_out)}; choose with --columns, or --json has all"
            yield terminal.dim(terminal.filled(told))

    def _lines(self) -> Iterator[str]:
        if self._widths is None:
            self._widths = self._fitting()
            heads = terminal.bold(self._line(self._names))
            yield heads
        for row in self._page:
            yield self._line(row)
        self._page = []

    def _line(self, row: Row) -> str:
        assert self._widths is not None
        cells = []
        for text, width, right in zip(row, self._widths, self._right, strict=False):
            cell = terminal.cut(NULL if text is None else text, width)
            gap = " " * (width - terminal.width_of(cell))
            cell = terminal.dim(cell) if text is None else cell
            cells.append(gap + cell if right else cell + gap)
        return GAP.join(cells).rstrip()

    def _fitting(self) -> list[int]:
        """Widths of as many columns, from the first, as there is room for."""
        cells: list[Row] = [self._names, *self._page]
        widths = [
            max(
                terminal.width_of(NULL if row[place] is None else row[place] or "") for row in cells
            )
            for place in range(len(self._names))
        ]
        if self._columns is None:
            return widths
        least = [min(width, LEAST_WIDTH) for width in widths]
        while len(widths) > 1 and _room(least) > self._columns:
            widths.pop()
            least.pop()
        return _narrowed(widths, self._columns)


def _room(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(widths: list[int], columns: int) -> list[int]:
    """The widest give way to the next widest until all fit."""
    while _room(widths) > columns and max(widths) > 1:
        widest = max(widths)
        place = widths.index(widest)
        below = max((one for one in widths if one < widest), default=1)
        widths[place] = max(widest - (_room(widths) - columns), min(below, widest - 1), 1)
    return widths
