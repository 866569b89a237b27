"""Who wrote files that nobody names: of a large log without its rows.

Each block of a log tells its commit at its beginning, and its size, which leads to the next one. So
a few bytes of each tell what all of them do. Where they do not, or the blocks do not fill the file,
the whole log is read: what is torn or damaged is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.data.reading.slice_reader import FIRST_BYTES, writer_of
from metatable.storage.errors import CorruptError
from metatable.storage.hudi_log.block import first_instant, told_size
from metatable.storage.portions import in_order_far
from metatable.storage.store import COALESCE_GAP_BYTES, Store

__all__ = ["writers_of"]

WHOLE_BYTES = COALESCE_GAP_BYTES
"""A log up to this size is read whole: a second request would cost more."""

MOST_HEADS = 16
"""Blocks of a log that are looked at one by one; of ours a log has a few."""


def writers_of(store: Store, files: Sequence[DataFile | LogFile]) -> list[str]:
    """`writer_of` each of these files, of which the sizes are known; a log whose heads are sound
    tells its commit though a content is damaged."""
    told = [*in_order_far(store, partial(_told, store), files)]
    untold = [one for one, writer in zip(files, told, strict=True) if writer is None]
    rest = in_order_far(store, partial(writer_of, store), untold, lambda one: one.size_bytes)
    return [next(rest) if writer is None else writer for writer in told]


def _told(store: Store, file: DataFile | LogFile) -> str | None:
    """What the name tells, or the heads of a large log. None: these do not tell it."""
    if isinstance(file, DataFile):
        return file.instant
    if file.size_bytes <= WHOLE_BYTES:
        return None
    try:
        return _by_heads(store, file)
    except CorruptError:
        return None


def _by_heads(store: Store, log: LogFile) -> str | None:
    """Raises CorruptError where a block does not begin behind the one before."""
    told, at = set[str](), 0
    for _ in range(MOST_HEADS):
        size = min(FIRST_BYTES, log.size_bytes - at)
        head = memoryview(store.read_one(log.path, at, size))
        instant, size_told = first_instant(head, log.path), told_size(head, 0, log.path)
        if instant is None or size_told is None:
            return None
        told.add(instant)
        at += size_told
        if at >= log.size_bytes:
            break
    return min(told) if at == log.size_bytes and len(told) == 1 else None
