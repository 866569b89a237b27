"""Open files of the system: what is asked of one, whatever stands around it.

Errors are the system's: `local_files.py` makes them ours.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from metatable.storage.pieces import Pieces

__all__ = ["begin_to_write", "copy_into", "fill_from", "overwritten", "read_at"]

_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""No link is followed, and no pipe waited for."""

_COPIED_BYTES = 1 << 20
"""What is held of a file that becomes another's content."""


def read_at(handle: int, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` of an open file; fewer only where it ends."""
    part = os.pread(handle, size, offset)
    if len(part) == size:
        return part
    parts: list[bytes] = []
    while part:
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
        part = os.pread(handle, size, offset)
    return b"".join(parts)


def fill_from(
    handle: int,
    ranges: Sequence[tuple[int, int]],
    memory: memoryview,
    begins: Sequence[int],
) -> list[int]:
    """The bytes of ranges of an open file, each where it begins; how many of each there are."""
    found = []
    for (offset, size), begin in zip(ranges, begins, strict=True):
        at = os.preadv(handle, [memory[begin : begin + size]], offset)
        while 0 < at < size:
            count = os.preadv(handle, [memory[begin + at : begin + size]], offset + at)
            if not count:
                break
            at += count
        found.append(at)
    return found


def copy_into(body: bytes | IO[bytes], file: IO[bytes]) -> None:
    """All of `body` is written, of an open file from its beginning."""
    if isinstance(body, bytes):
        file.write(body)
    elif isinstance(body, Pieces):
        body.copy_to(file)
    else:
        body.seek(0)
        shutil.copyfileobj(body, file, _COPIED_BYTES)


def overwritten(target: str, body: bytes) -> bool:
    """Whether a file was written where it lies: one without other names, which would be copies."""
    handle = os.open(target, os.O_WRONLY | _AS_IT_IS)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return False
        os.write(handle, body)
        os.ftruncate(handle, len(body))
    finally:
        os.close(handle)
    return True


def begin_to_write(file: IO[bytes]) -> None:
    """Have the disk begin to write what is in this file: of several that settle together, the first
    then commits the file system's journal for all."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # what is not written yet stays in memory all the same
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
