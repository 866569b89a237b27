"""Columns beside rows: a task's answers, row for row, in batches of whatever size they come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from metatable.storage.errors import UsageError

__all__ = ["Beside", "uneven"]


class Beside:
    """Rows that wait while a task works out the columns that go beside them."""

    def __init__(self, batches: Iterable[pa.RecordBatch], inputs: Sequence[str]) -> None:
        self._batches = batches
        self._inputs = list(inputs)
        self._waiting: deque[pa.RecordBatch] = deque()

    def asked(self) -> Iterator[pa.RecordBatch]:
        """What the task is given: the inputs of the rows, which wait from then on."""
        for batch in self._batches:
            if batch.num_rows:
                self._waiting.append(batch)
                yield batch.select(self._inputs)

    def answered(self, answers: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The next rows, as many as there are answers, with the answers beside them."""
        while answers.num_rows:
            if not self._waiting:
                raise uneven("more answers than rows")
            rows = self._waiting.popleft()
            count = min(rows.num_rows, answers.num_rows)
            columns = [*rows.slice(0, count).columns, *answers.slice(0, count).columns]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            answers = answers.slice(count)
            if count < rows.num_rows:
                self._waiting.appendleft(rows.slice(count))

    def finish(self) -> None:
        """Raises UsageError where rows still wait."""
        if self._waiting:
            raise uneven("fewer answers than rows")


def uneven(found: str) -> UsageError:
    """What a task is told whose answers are not as many as its rows."""
    what = "a task that extends rows must answer row for row"
    return UsageError(what, expected="one answer a row", found=found)
