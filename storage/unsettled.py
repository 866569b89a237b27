"""What a disk has yet to settle: files that were written, and names that were given.

Some files mean nothing but what follows them: a lease, an action's first files, a marker say that
something will be written. Each of them would wait for the disk (`fsync`) twice, one after the
other. They are there at once for everybody; and they settle, that which was made first before the
others, before the next file of this process gets its name in the same folder of a table. So
whatever a crash of the machine leaves, nothing is there without what was to be there before it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import ClassVar
from weakref import WeakValueDictionary

from metatable.storage.together import at_once

__all__ = ["Unsettled", "settle_path"]

_NO_SUCH_CALL = (errno.EINVAL, errno.EBADF)
"""What file systems say of folders that settle no folder by itself: of some servers, or in the
user's own programs. Nothing is to be had of them, and names are as safe there as they can be."""

_QUICK_SECONDS = 0.001
"""What a disk that does not take its time needs for one: less than threads for the others."""


class _NotAskedError(OSError):
    """The disk has not been asked, as the system did not open what is to settle. So it has told
    nothing, and is asked by the next who waits."""


class Unsettled:
    """What is not durable yet of one root folder, whoever in this process works on it."""

    _known: ClassVar[WeakValueDictionary[str, Unsettled]] = WeakValueDictionary()
    _knowing: ClassVar = Lock()

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._paths: dict[str, None] = {}
        self._adding, self._settling = Lock(), Lock()
        self._failed: OSError | None = None
        """What the disk said while nobody waited: it may say so once only."""
        self.is_quick = False
        """Whether the disk took no time when it last settled something, as `settle_in_turn` told:
        then who writes two files loses more by a thread than by waiting for one after the other."""

    @classmethod
    def of(cls, root: str) -> Unsettled:
        """The one of this folder."""
        with cls._knowing:
            return cls._known.setdefault(root, cls())

    def add(self, *paths: str) -> None:
        """Files and folders that are to settle, these in this order, behind those of before."""
        with self._adding:
            for path in paths:
                self._paths[path] = self._paths.pop(path, None)

    def settle(self, *, nobody_waits: bool = False) -> None:
        """Returns when all that was added before is durable. Raises OSError, whose `filename` is
        the path; `nobody_waits`: the next who does is told."""
        with self._settling:
            failed, self._failed = self._failed, None
            with self._adding:
                paths, self._paths = self._paths, {}
            try:
                if failed is not None:
                    raise failed
                self.settle_in_turn([partial(settle_path, path) for path in paths])
            except BaseException as error:  # an interrupt settles nothing either
                with self._adding:
                    self._paths = paths | self._paths
                if not (nobody_waits and isinstance(error, OSError)):
                    raise
                self._failed = None if isinstance(error, _NotAskedError) else error

    def settle_in_turn(self, calls: Sequence[Callable[[], object]]) -> None:
        """Calls that each wait for the disk, one after the other; from one on that took long the
        others at once, for such a disk settles many in the time of one."""
        for place, call in enumerate(calls):
            began = time.perf_counter()
            call()
            self.is_quick = time.perf_counter() - began <= _QUICK_SECONDS
            if not self.is_quick:
                at_once(calls[place + 1 :])
                return

    @classmethod
    def _forget(cls) -> None:
        """A forked child settles nothing of its parent's, whose threads may hold the locks."""
        cls._knowing = Lock()
        for one in list(cls._known.values()):
            one._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Unsettled._forget)


def settle_path(path: str) -> None:
    """Make the names in a folder durable, or what is in a file; one that went has none."""
    if os.name == "nt":
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _NotAskedError(error.errno, error.strerror, path) from error
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in _NO_SUCH_CALL and stat.S_ISDIR(os.fstat(handle).st_mode):
            return
        error.filename = path
        raise
    finally:
        os.close(handle)
