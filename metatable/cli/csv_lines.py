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
from contextlib import contextmanager
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


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
