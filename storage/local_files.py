"""Files on a local disk, as the store needs them: durable, atomic, exclusive.

A body is written to a hidden file of its own folder under `temporary`, fsynced, and then
renamed (`put`) or hard-linked (`create`) into place; the folder is fsynced after it. A link
fails if the name is taken, so exactly one of many writers creates a file, and no reader
ever sees half of one.
"""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from metatable.storage.listing import Listed

__all__ = ["LocalFiles"]


class LocalFiles:
    """A folder. `durable=False` leaves out the fsyncs: for tests, not for tables."""

    def __init__(self, root: str, temporary: str, durable: bool = True) -> None:
        self._root = Path(root)
        self._temporary = self._root / temporary
        self._durable = durable

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(self._root / path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        try:
            handle = os.open(self._root / path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except (FileNotFoundError, NotADirectoryError):
            return None
        with os.fdopen(handle, "rb", buffering=0) as file:
            return [_read_at(file, offset, size) for offset, size in ranges]

    def read_whole(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def map(self, path: str, size_bytes: int) -> npt.NDArray[np.uint8] | None:
        try:
            with open(self._root / path, "rb") as file:
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # no such file, an empty one, no mapping here
            return None
        return np.frombuffer(mapping, np.uint8) if len(mapping) == size_bytes else None

    def put(self, path: str, body: bytes) -> None:
        with self.sink(path) as file:
            file.write(body)

    def create(self, path: str, body: bytes) -> bool:
        target = self._root / path
        if target.exists():
            return False
        with self._staged() as (file, staged):
            file.write(body)
            self._settle(file)
            self._make_folder(target.parent)
            try:
                os.link(staged, target)
            except FileExistsError:
                return False
            self._settle_folder(target.parent)
        return True

    @contextmanager
    def sink(self, path: str) -> Iterator[BinaryIO]:
        target = self._root / path
        with self._staged() as (file, staged):
            yield file
            self._settle(file)
            self._make_folder(target.parent)
            os.replace(staged, target)
            self._settle_folder(target.parent)

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        try:
            found = sorted(os.scandir(self._root / folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_file():
                status = _stat(entry)
                if status is not None:
                    yield Listed(path, status.st_size, status.st_mtime)
            elif recursive:
                yield from self.list(path, recursive)

    def delete(self, path: str) -> None:
        target = self._root / path
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._drop_empty_folders(target.parent)

    def _drop_empty_folders(self, folder: Path) -> None:
        """Object stores have no empty folders, so ours go as well: fewer differences to test."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    @contextmanager
    def _staged(self) -> Iterator[tuple[BinaryIO, Path]]:
        """A new file of a name nobody else has, gone after the block if it was not renamed."""
        staged = self._temporary / f"{uuid.uuid4().hex}.tmp"
        with _open_exclusively(staged) as file:
            try:
                yield file, staged
            finally:
                staged.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        missing = [folder] if not folder.exists() else []
        while missing and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        folder.mkdir(parents=True, exist_ok=True)
        for made in reversed(missing):
            self._settle_folder(made.parent)

    def _settle(self, file: BinaryIO) -> None:
        file.flush()
        if self._durable:
            os.fsync(file.fileno())

    def _settle_folder(self, folder: Path) -> None:
        if not self._durable or os.name == "nt":
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_exclusively(path: Path) -> BinaryIO:
    """Create `path`; its folder may be missing, or be tidied away by another thread meanwhile."""
    for _ in range(100):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return open(path, "xb")
        except FileNotFoundError:
            continue
    return open(path, "xb")


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """`size` bytes from `offset`; fewer only where the file ends."""
    file.seek(offset)
    parts: list[bytes] = []
    while size > 0:
        part = file.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None where the file went away after it was listed."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None
