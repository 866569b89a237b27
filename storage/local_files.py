"""Files on a local disk, as the store needs them: durable, atomic, exclusive.

A body is written to a hidden file of its own folder under `temporary`, fsynced, and then
renamed (`put`) or hard-linked (`create`) into place; the folder is fsynced after it. A link
fails if the name is taken, so exactly one of many writers creates a file, and no reader
ever sees half of one, but of what is written in place (`jot`). What is to be there `soon` is
fsynced before the next file of this process is named, and not at once (unsettled.py).

What is created empty becomes another name of the last empty file that was, if that is young, and of
the same instant by its name: a new file costs a disk more than a name, and who writes into one, as
no reader and no other writer does, alters no other action.
"""

from __future__ import annotations

import io
import logging
import math
import mmap
import os
import re
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import IO, Any, TypeVar

import numpy as np

from metatable.storage.arrays import UInt8s
from metatable.storage.errors import UsageError
from metatable.storage.links import leads_nowhere, leads_out
from metatable.storage.listing import Listed
from metatable.storage.open_files import (
    begin_to_write,
    copy_into,
    fill_from,
    overwritten,
    read_at,
)
from metatable.storage.spelling import other_spelling
from metatable.storage.system_errors import ours
from metatable.storage.together import at_once, in_turn
from metatable.storage.unsettled import Unsettled, settle_path

__all__ = ["LocalFiles"]

_log = logging.getLogger("metatable.storage")

_LOST_AND_FOUND = "lost+found"
"""The file system's own folder, where the root is that of a file system: for its owner alone."""

R = TypeVar("R")

Made = TypeVar("Made")

_NAMES_ARE_UTF8 = sys.getfilesystemencoding().lower() in ("utf-8", "utf8")
"""Whether the system is given names as everybody else expects them: a locale may say otherwise."""

_ATTEMPTS = 100
"""To place a file in a folder that others remove whenever it is empty."""

_WRITTEN_BYTES = 256 << 10
"""What one call of the system writes: an HFile comes in pieces of a block and of its header."""

_YOUNG_SECONDS, _MOST_NAMES = 1.0, 1000
"""How old, in seconds, an empty file may be, and how many names it may have, to be given another
one: all its names tell the time at which it was written, which is then no further off than where
stores tell times in whole seconds; and file systems bound the names of a file (ext4: 65,000)."""

_NEW_NAMES = 128
"""How many names a new empty file is given that is made where the last one takes no more: some file
systems allow no more than 177 (AWS EFS)."""

_OPEN_FILES = 64
"""How many files are open at a time that are put together."""


class LocalFiles:
    """A folder. `durable=False` leaves out the fsyncs: for tests, not for tables.

    `kept`: folders in it that stay when their last file goes.
    """

    distant = False

    def __init__(
        self, root: str, temporary: str, durable: bool = True, kept: Sequence[str] = ()
    ) -> None:
        self._root = os.fspath(root)
        self._below = os.path.join(self._root, "")
        self._temporary = os.path.join(self._root, temporary)
        self._kept = {self._root, *map(self._at, kept)}
        self._unsettled = Unsettled.of(self._root)
        self._empty: tuple[str, float] | None = None
        """The last empty file that was made here, and when."""
        self.settles = durable

    def size(self, path: str) -> int | None:
        with self._asking(path):
            try:
                status = os.stat(self._at(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        return self._opened(
            path, lambda handle: [read_at(handle, offset, size) for offset, size in ranges]
        )

    def fill(
        self,
        path: str,
        ranges: Sequence[tuple[int, int]],
        memory: memoryview,
        begins: Sequence[int],
    ) -> list[int] | None:
        return self._opened(path, lambda handle: fill_from(handle, ranges, memory, begins))

    def _opened(self, path: str, read: Callable[[int], R]) -> R | None:
        try:
            # a file object would ask the system twice more
            handle = os.open(self._at(path), os.O_RDONLY)
            try:
                return read(handle)
            finally:
                os.close(handle)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise ours(error, path, self._root) from error

    def read_whole(self, path: str) -> bytes | None:
        with self._asking(path):
            try:
                with io.FileIO(self._at(path)) as file:
                    return file.readall()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def map(self, path: str, size_bytes: int) -> UInt8s | None:
        try:
            with open(self._at(path), "rb") as file:
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # no such file, an empty one, no mapping here
            return None
        return np.frombuffer(mapping, np.uint8) if len(mapping) == size_bytes else None

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
        with self._sunk(path, lasting) as file:
            file.write(body)

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """All are named, then they settle: the first commits the file system's journal for many,
        and a folder settles once."""
        left = iter(files.items())
        while some := list(islice(left, _OPEN_FILES)):
            self._put_some(some)

    def _put_some(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Each is settled by the handle that wrote it: a disk may tell it only there, and once."""
        settling: list[Callable[[], object]] = []
        if self.settles:
            self.settle(nobody_waits=False)
        with ExitStack() as stack:
            for path, body in files:
                target = self._at(path)
                file, staged = stack.enter_context(self._staged(path, moves=True))
                with self._asking(path):
                    file.write(body)
                    file.flush()
                    if self.settles:
                        begin_to_write(file)
                    name = partial(os.replace, staged, target)
                    _again(os.path.dirname(target), name, self._settle_folder)
                settling.append(partial(self._asked, path, partial(os.fsync, file.fileno())))
            if self.settles:
                for folder in dict.fromkeys(os.path.dirname(path) for path, _ in files):
                    settle = partial(self._settle_folder, self._at(folder))
                    settling.append(partial(self._asked, folder, settle))
                self._unsettled.settle_in_turn(settling)

    def jot(self, path: str, body: bytes) -> None:
        """In place: a new file would be an inode more, and one given back, and where one takes
        another's name, ext4 writes it to the disk at once."""
        with suppress(OSError):  # a new file tells what is wrong, if anything is
            if overwritten(self._at(path), body):
                return
        self.put(path, body, lasting=False)

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool:
        target = self._at(path)
        with self._asking(path):
            if _exists(target):
                return False
            if body == b"" and self._named(target):
                self._settles_soon(os.path.dirname(target))
                if not soon:
                    self.settle(nobody_waits=False)
                return True
        with self._staged(path) as (file, staged), self._asking(path):
            copy_into(body, file)
            try:
                place = self._place_soon if soon else self._place
                place(file, target, lambda: os.link(staged, target))
            except FileExistsError:
                if not os.path.isfile(target):
                    raise
                return False
        if body == b"":
            self._empty = target, time.monotonic()
        return True

    def _named(self, target: str) -> bool:
        """Whether `target` has become another name, which is to settle, of the last empty file.
        Else a new one is to be made, which tells what is wrong, if anything is."""
        empty, made = self._empty or ("", -math.inf)
        word, path = _first_word(empty), target.removeprefix(self._below)
        if time.monotonic() - made > _YOUNG_SECONDS or not word or word not in path:
            return False
        folder = os.path.dirname(target)
        for _ in range(2):
            try:
                held = os.lstat(empty)
                if not stat.S_ISREG(held.st_mode) or held.st_size or held.st_nlink > _MOST_NAMES:
                    return False
                os.link(empty, target)
            except FileNotFoundError:
                with suppress(OSError):
                    _make_folder(folder, self._settles_soon)
            except OSError:
                return False
            else:
                return True
        return False

    def marking(self, paths: Sequence[str]) -> Sequence[Callable[[], object]]:
        """One call, which gives some hundred names to an empty file."""
        return [partial(self._mark, paths)] if paths else []

    def _mark(self, paths: Sequence[str]) -> None:
        """Names that are taken stay as they are."""
        targets = [self._at(path) for path in paths]
        with self._asking(paths[0]):
            left = [target for target in targets if not self._named(target)]
        for start in range(0, len(left), _NEW_NAMES):
            self._mark_anew(left[start : start + _NEW_NAMES], paths[0])
        for folder in dict.fromkeys(os.path.dirname(target) for target in targets):
            self._settles_soon(folder)

    def _mark_anew(self, targets: Sequence[str], path: str) -> None:
        with self._staged(path) as (file, staged), self._asking(path):
            file.flush()
            for target in targets:
                try:
                    folder = os.path.dirname(target)
                    _again(folder, partial(os.link, staged, target), self._settles_soon)
                except FileExistsError:
                    if not os.path.isfile(target):
                        raise

    def sink(self, path: str) -> AbstractContextManager[IO[bytes]]:
        return self._sunk(path, lasting=True)

    @contextmanager
    def _sunk(self, path: str, lasting: bool) -> Iterator[IO[bytes]]:
        target = self._at(path)
        with self._staged(path, moves=True) as (file, staged):
            yield file
            with self._asking(path):
                if lasting:
                    self._place(file, target, lambda: os.replace(staged, target))
                else:
                    file.flush()
                    _again(os.path.dirname(target), lambda: os.replace(staged, target))

    def names(self, folder: str, sized: Callable[[str], bool]) -> Sequence[tuple[str, int]]:
        found: dict[str, os.DirEntry[str]] = {}
        with self._asking(folder), suppress(FileNotFoundError, NotADirectoryError):
            found = {entry.name: entry for entry in os.scandir(self._at(folder)) if entry.is_file()}
        told = []
        for name in sorted(found):
            if not sized(name):
                told.append((name, 0))
            elif (status := self._stat(found[name], f"{folder}/{name}")) is not None:
                told.append((name, status.st_size))
        return told

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        with self._asking(folder):
            try:
                found = sorted(os.scandir(self._at(folder)), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                return
            except PermissionError:
                if folder != _LOST_AND_FOUND:
                    raise
                return
        within = f"{folder}/" if folder else ""
        found = [entry for entry in found if _is_text(self._at(within + entry.name))]
        for entry in found:
            path = within + entry.name
            if entry.is_symlink():
                with self._asking(path):
                    if leads_nowhere(self._root, path):
                        continue
            if entry.is_file():
                status = self._stat(entry, path)
                if status is not None:
                    yield Listed(path, status.st_size, status.st_mtime)
            elif recursive:
                yield from self.list(path, recursive)

    def _stat(self, entry: os.DirEntry[str], path: str) -> os.stat_result | None:
        """None where the file went away after it was listed."""
        try:
            return entry.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ours(error, path, self._root) from error

    def delete(self, path: str) -> None:
        target = self._at(path)
        if self.spares(path):
            _log.warning("not deleted, as a link leads to it out of the table: path=%s", path)
            return
        with self._asking(path):
            try:
                os.unlink(target)
            except (FileNotFoundError, NotADirectoryError):
                return
        self._drop_empty_folders(os.path.dirname(target))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def dismiss(self) -> None:
        self._drop_empty_folders(self._temporary)
        with suppress(OSError):  # it is not empty, or not there
            os.rmdir(self._root)

    def spares(self, path: str) -> bool:
        with self._asking(path):
            return leads_out(self._root, path)

    def other_spelling(self, path: str) -> str | None:
        with self._asking(path):
            return other_spelling(self._root, path)

    def together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        return in_turn(calls)

    def write_together(self, calls: Sequence[Callable[[], R]]) -> Sequence[R]:
        waits = self.settles and not self._unsettled.is_quick
        return at_once(calls) if waits else in_turn(calls)

    def meanwhile(self, call: Callable[[], R]) -> Callable[[], R]:
        return call

    def _drop_empty_folders(self, folder: str) -> None:
        """Object stores have no empty folders, so ours go as well: fewer differences to test."""
        while folder not in self._kept:
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def _at(self, path: str) -> str:
        if not (_NAMES_ARE_UTF8 or path.isascii()):
            raise UsageError(
                "names of files are not UTF-8 in this process, so others would not find this one",
                path=path,
                store=self._root,
                expected="a locale of UTF-8, or PYTHONUTF8=1",
                found=sys.getfilesystemencoding(),
            )
        return self._below + path if path else self._root

    @contextmanager
    def _staged(self, path: str, moves: bool = False) -> Iterator[tuple[IO[bytes], str]]:
        """A new file of a name nobody else has, gone after the block; `moves`: who leaves it
        without an error has renamed it."""
        staged = os.path.join(self._temporary, f"{uuid.uuid4().hex}.tmp")
        with self._asking(path):
            make = partial(_StagedFile, staged, lambda: self._asking(path))
            raw = _again(self._temporary, make, self._settle_folder)
        with io.BufferedWriter(raw, _WRITTEN_BYTES) as file:
            left = True
            try:
                yield file, staged
                left = not moves
            finally:
                if left:
                    with suppress(OSError):  # what stays is a hidden file in a private folder
                        os.unlink(staged)

    def settle(self, *, nobody_waits: bool) -> None:
        try:
            self._unsettled.settle(nobody_waits=nobody_waits)
        except OSError as error:
            path = str(error.filename).removeprefix(self._below)
            raise ours(error, path, self._root) from error

    def _place(self, file: IO[bytes], target: str, step: Callable[[], None]) -> None:
        """Make a staged file durable, and what was to be before it, give it its name by `step`,
        make the name durable."""
        folder = os.path.dirname(target)
        file.flush()
        if self.settles:
            os.fsync(file.fileno())
            self.settle(nobody_waits=False)
        _again(folder, step, self._settle_folder)
        self._settle_folder(folder)

    def _place_soon(self, file: IO[bytes], target: str, step: Callable[[], None]) -> None:
        """Give a staged file its name, and have both made durable later."""
        if os.name == "nt":  # there a file settles by the handle that wrote it
            self._place(file, target, step)
            return
        folder = os.path.dirname(target)
        file.flush()
        _again(folder, step, self._settles_soon)
        self._settles_soon(*([target] if file.tell() else []), folder)

    def _settle_folder(self, folder: str) -> None:
        """Where the disk refuses, the next who waits asks it again: a name may be given by then."""
        if self.settles:
            try:
                settle_path(folder)
            except OSError:
                self._unsettled.add(folder)
                raise

    def _settles_soon(self, *paths: str) -> None:
        if self.settles:
            self._unsettled.add(*paths)

    def _asked(self, path: str, step: Callable[[], object]) -> None:
        with self._asking(path):
            step()

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """The one place where errors of the system become ours."""
        try:
            yield
        except OSError as error:
            raise ours(error, path, self._root) from error


class _StagedFile(io.FileIO):
    """A file that is being written: what the system says to a write is told like the rest, and so
    is what it says at the end, where some servers tell first that they are full."""

    def __init__(self, path: str, asking: Callable[[], Any]) -> None:
        super().__init__(path, "xb")
        self._asking = asking

    def write(self, data: Any) -> int:
        with self._asking():
            return super().write(data)

    def close(self) -> None:
        with self._asking():
            super().close()


def _again(
    folder: str, step: Callable[[], Made], settle: Callable[[str], None] | None = None
) -> Made:
    """What `step` gives; where `folder` is not there it is made, and again if it vanishes.

    `settle` is called with each folder that was given a new one.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return step()
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                _make_folder(folder, settle)
    return step()


def _make_folder(folder: str, settle: Callable[[str], None] | None) -> None:
    missing: list[str] = []
    place = folder
    while not _exists(place):
        missing.append(place)
        place = os.path.dirname(place)
    for one in reversed(missing):
        try:
            os.mkdir(one)
        except FileExistsError:
            if os.path.islink(one) and not _exists(one):
                what, expected = "a link leads nowhere", "a folder that is there"
                raise UsageError(
                    what, path=one, expected=expected, found=os.readlink(one)
                ) from None
            continue  # another writer was first, or it is no folder, which the next step will tell
        if settle is not None:
            settle(os.path.dirname(one))


def _first_word(path: str) -> str:
    """What a file's name begins with: on the timeline its instant, which names of markers have."""
    return os.path.basename(path).partition(".")[0]


def _is_text(name: str) -> bool:
    """Names of other bytes than UTF-8 nobody gives here, and no column of texts can hold one."""
    return name.isascii() or not _NO_TEXT.search(name)


def _exists(path: str) -> bool:
    """Errors other than that there is nothing are told."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


_NO_TEXT = re.compile("[\ud800-\udfff]")
"""What the interpreter makes of bytes that are no UTF-8."""
