"""Lines of CSV: where a row begins, of which only the number is known.

Arrow numbers rows: one with line ends between quotes is several lines, and a line without any text
is no row. So who has to tell of a row reads the file again, up to there. What came through a pipe
is gone: of that the row's number is told.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

__all__ = ["Source"]

_ENDS = ("\n", "\r", "\r\n")


@dataclass(frozen=True, slots=True)
class Source:
    """A file of CSV, for those who tell what is wrong with it."""

    name: str
    delimiter: str
    again: Callable[[], Any] | None
    """Its bytes from the beginning, once more; None: there is no second time."""

    def of_row(self, row: int) -> dict[str, int]:
        """Facts of a row; the first one names the columns."""
        if self.again is not None:
            try:
                with self.again() as stream:
                    return {"line": _line_of(row, stream, self.delimiter)}
            except (OSError, EOFError, csv.Error, pa.ArrowException):  # not as it was
                pass
        return {"row": row - 1}

    def of_longer_row(self, most_bytes: int) -> dict[str, int]:
        """Facts of the first row that is longer; none of what came through a pipe."""
        if self.again is not None:
            with suppress(OSError, EOFError, csv.Error, pa.ArrowException), self.again() as stream:
                line = _line_of_longer(most_bytes, stream, self.delimiter)
                return {} if line is None else {"line": line}
        return {}


def _line_of(row: int, stream: Any, delimiter: str) -> int:
    """Python's reader takes quotes, line ends and empty lines as Arrow does."""
    text = io.TextIOWrapper(io.BufferedReader(stream), "utf-8-sig", "replace", newline="")
    rows = csv.reader(text, delimiter=delimiter)
    with _cells_of_any_size():
        deque(islice(filter(None, rows), row - 1), 0)
    line = rows.line_num + 1
    while text.readline(2) in _ENDS:
        line += 1
    return line


def _line_of_longer(most_bytes: int, stream: Any, delimiter: str) -> int | None:
    """Where it begins. Hardly more than `most_bytes` are held of it: a quote that is not closed
    makes one row of all that is left."""
    text = io.TextIOWrapper(io.BufferedReader(stream), "latin-1", newline="")
    line = size = 0

    def lines() -> Iterator[str]:
        nonlocal size
        while size <= most_bytes and (some := text.readline(most_bytes + 1)):
            size += len(some)
            yield some

    rows = csv.reader(lines(), delimiter=delimiter)
    with _cells_of_any_size():
        for _ in rows:
            if size > most_bytes:
                return line + 1
            line, size = rows.line_num, 0
    return None


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
