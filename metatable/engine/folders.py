"""Folders of this machine for what does not fit into memory, or passes between tasks.

All of them lie in one of this process, for its user alone, and are gone with what they are for, or
with the process. A process that is killed leaves its folder, and lets go of the lock on a file in
it: the next one that needs a folder removes it. A forked child has one of its own, and leaves its
parent's alone. One that a cleaner of old files has taken is not used again: whoever made it anew by
its name would make it for everybody to read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
import uuid
import weakref
from contextlib import suppress

from metatable.storage.system_errors import in_temporary_folder

if sys.platform != "win32":
    import fcntl

__all__ = ["folder_of"]

PREFIX = "metatable-"

HELD = "held"
"""The file of a process's folder that is locked while the process lives."""

YOUNG_SECONDS = 60
"""A file that is no older may be one that its process is about to lock."""

Rights = tuple[int, int]
"""Whose a folder is, and its mode, which tells it from a link, too."""

_of_processes: dict[tuple[int, str], tuple[str, Rights | None]] = {}
"""Of a process, and a temporary folder: the folder in there, as it was made."""


def folder_of(owner: object) -> str:
    """A name for a folder, which is not made yet, and goes with its owner. Raises StoreError."""
    folder = os.path.join(_of_this_process(), uuid.uuid4().hex)
    weakref.finalize(owner, _drop, os.getpid(), folder)
    return folder


def _of_this_process() -> str:
    with in_temporary_folder():
        process, within = os.getpid(), tempfile.gettempdir()
        folder, made = _of_processes.get((process, within), ("", None))
        if made is None or _rights(folder) != made:
            _remove_left(within)
            folder = tempfile.mkdtemp(prefix=PREFIX)
            _hold(folder)
            _of_processes[process, within] = folder, _rights(folder)
            _drop_at_end(process, folder)
    return folder


def _rights(folder: str) -> Rights | None:
    """None where it is not there. Whether it is private is not asked: on some file systems no
    folder is."""
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return None
    return status.st_uid, status.st_mode


def _drop_at_end(process: int, folder: str) -> None:
    """A worker that `multiprocessing` has forked ends without what `atexit` was told."""
    atexit.register(_drop, process, folder)
    workers = sys.modules.get("multiprocessing.util")
    if workers is not None:
        workers.Finalize(None, _drop, (process, folder), exitpriority=0)


def _drop(process: int, folder: str) -> None:
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def _hold(folder: str) -> None:
    """Lock the folder's file until this process ends, whichever way."""
    if sys.platform == "win32":
        return
    path = os.path.join(folder, HELD)
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # a file system without locks: nobody can tell, so nobody shall remove it
        os.close(handle)
        os.remove(path)


def _remove_left(within: str) -> None:
    """Remove the folders of this user's processes that were killed."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(within) as entries:
        for one in entries:
            if (
                one.name.startswith(PREFIX)
                and one.stat(follow_symlinks=False).st_uid == os.getuid()
            ):
                _remove_if_left(one.path)


def _remove_if_left(folder: str) -> None:
    with suppress(OSError):
        handle = os.open(os.path.join(folder, HELD), os.O_RDWR | os.O_NOFOLLOW)
        try:
            if time.time() - os.fstat(handle).st_mtime >= YOUNG_SECONDS:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while it is held
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
