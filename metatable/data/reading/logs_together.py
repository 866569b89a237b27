"""Logs of several slices, fetched and decoded together.

A slice that small commits have touched has few rows in its logs, and what it takes to decode a few
is what it takes to decode a thousand; far away each slice's logs are a wait of their own. So those
of neighbours are read when the first of them is asked for, as long as they are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Lock

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.file_groups.slices import FileSlice, LogFile
from metatable.data.logs.log_merge import ReadLogs, SliceLogs
from metatable.data.reading.slice_reader import logs_of_each
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.portions import in_portions
from metatable.storage.store import Store

__all__ = ["logs_together"]

LOG_BYTES, MOST_SLICES = 1 << 20, 64
"""Of logs, and how many slices, that are read together."""


def logs_together(
    store: Store, slices: Iterable[FileSlice], read: ReadColumns
) -> Iterator[tuple[FileSlice, ReadLogs | None]]:
    """The slices, read some ahead, each with what gives its logs when it is called, on any thread,
    and raises as if they had been read alone; None: it has none."""

    def read_logs(logs: Sequence[Sequence[LogFile]]) -> list[SliceLogs]:
        return logs_of_each(store, logs, read)

    for some in in_portions(slices, _log_bytes, LOG_BYTES, MOST_SLICES):
        shared, places = _Shared([one.logs for one in some if one.logs], read_logs), count()
        for one in some:
            yield one, partial(shared.of, next(places)) if one.logs else None


def _log_bytes(one: FileSlice) -> int:
    """What nobody knows the size of is read alone."""
    return sum(log.size_bytes or LOG_BYTES for log in one.logs)


@dataclass(slots=True)
class _Shared:
    """Slices whose logs are read when the first of them is asked for. Where one is damaged, each
    is read by itself: the error is that of the slice that has it.

    Threads that ask meanwhile wait. Whoever reads needs none of them: it is a worker itself, whose
    work is not shared, or there are none (`threads.py`)."""

    slices: Sequence[Sequence[LogFile]]
    read: Callable[[Sequence[Sequence[LogFile]]], list[SliceLogs]]
    _lock: Lock = field(default_factory=Lock)
    _logs: list[SliceLogs | None] | None = None

    def of(self, place: int) -> SliceLogs:
        """Those of one slice, once: who has asked keeps them."""
        with self._lock:
            if self._logs is None:
                self._logs = self._read()
            logs, self._logs[place] = self._logs[place], None
        return self.read([self.slices[place]])[0] if logs is None else logs

    def _read(self) -> list[SliceLogs | None]:
        if len(self.slices) > 1:
            with suppress(CorruptError, UpgradeError):
                return [*self.read(self.slices)]
        return [None] * len(self.slices)
