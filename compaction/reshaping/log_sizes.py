"""Which slices are due to be compacted: by their logs.

A slice is due where its logs have come to a share of the bytes of its base file, or where they are
many, for each is opened by whoever reads the slice, or old. One of logs alone has no bytes in a
base: it is due, whatever the share, unless that is infinite. Those come first of which most bytes
are logs, until a bound is met: what every reader merges, for each byte that is written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import numpy as np

from metatable.compaction.given_numbers import is_number
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import FileSlice
from metatable.data.hoodie.timeline import next_instant
from metatable.data.reading.slice_reader import first_writer_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import clock
from metatable.storage.arrays import Bools
from metatable.storage.errors import UsageError
from metatable.storage.portions import in_order_far

__all__ = ["LOG_COUNT", "LOG_RATIO", "LogSizes"]

LOG_RATIO = 0.3
"""Then a read of the slice costs about twice that of its base."""
LOG_COUNT = 10
"""A slice of so many logs is compacted, however small they are."""


@dataclass(frozen=True, slots=True)
class LogSizes:
    """Any one of the bounds is enough. `hours`: since the first log; tells it by that log's first
    block, of slices that are not due otherwise. `partitions`: these alone (paths)."""

    ratio: float = LOG_RATIO
    """Bytes of logs for each byte of the base file."""
    count: int = LOG_COUNT
    hours: float | None = None
    partitions: tuple[str, ...] | None = None
    most_bytes: int | None = None
    """One plan reads no more, but a slice at least."""

    def check(self) -> None:
        """Raises UsageError for what cannot be."""
        if not is_number(self.ratio, 0):
            raise UsageError("a share of the base's bytes", found=self.ratio, expected="0 or more")
        bounds = self.count, 1 if self.most_bytes is None else self.most_bytes
        if not all(is_number(one, 1) for one in bounds):
            raise UsageError("a bound is 1 or more", found=(self.count, self.most_bytes))
        if self.hours is not None and not is_number(self.hours, 0):
            raise UsageError("hours since the first log", expected="0 or more", found=self.hours)

    def slices(self, snapshot: Snapshot) -> list[FileSlice]:
        """What is due, those with the most to gain first."""
        files = snapshot.slices()
        if self.partitions is not None:
            files = files.take(files.within(self.partitions))
        files = files.take(np.flatnonzero(files.has_logs & ~files.is_pending))
        logs, counts = files.logs_of_each()
        bases = np.where(files.alone, 0, files.sizes)
        # a byte for none, so that no ratio is met where it is infinite
        due = (logs >= self.ratio * np.maximum(bases, 1)) | (counts >= self.count)
        due |= self._old(snapshot, files, due)
        share = logs / np.maximum(logs + bases, 1)
        rows = np.flatnonzero(due)
        rows = rows[np.argsort(-share[rows], kind="stable")]
        read = np.cumsum((logs + bases)[rows])
        if self.most_bytes is not None:
            rows = rows[: max(1, int(np.searchsorted(read, self.most_bytes, "right")))]
        return [files[row] for row in rows.tolist()]

    def _old(self, snapshot: Snapshot, files: FileSystemView, due: Bools) -> Bools:
        found = np.zeros(len(files), np.bool_)
        border = None if self.hours is None else _hours_ago(self.hours)
        if border is not None:
            firsts = [(row, files[row].logs[0]) for row in np.flatnonzero(~due).tolist()]
            # no log is older than the base file that its name tells
            asked = [(row, log) for row, log in firsts if log.instant <= border]
            work, logs = partial(first_writer_of, snapshot.store), [log for _, log in asked]
            told = in_order_far(snapshot.store, work, logs)
            for (row, _), instant in zip(asked, told, strict=True):
                found[row] = instant <= border
        return found


def _hours_ago(hours: float) -> str | None:
    """The instant of then; None: before there were any."""
    try:
        return next_instant(clock.now() - timedelta(hours=float(hours)))
    except OverflowError:
        return None
