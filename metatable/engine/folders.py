"""Folders of this machine for what does not fit into memory, or passes between tasks.

All of them lie in one of this process, for its user alone, and are gone with what they are for, or
with the process. A forked child has one of its own, and leaves its parent's alone.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
import weakref

from metatable.storage.local_files import in_temporary_folder

__all__ = ["folder_of"]

_of_processes: dict[tuple[int, str], str] = {}


def folder_of(owner: object) -> str:
    """A name for a folder, which is not made yet, and goes with its owner. Raises StoreError."""
    folder = os.path.join(_of_this_process(), uuid.uuid4().hex)
    weakref.finalize(owner, _drop, os.getpid(), folder)
    return folder


def _of_this_process() -> str:
    with in_temporary_folder():
        process, within = os.getpid(), tempfile.gettempdir()
        if (process, within) not in _of_processes:
            folder = tempfile.mkdtemp(prefix="metatable-")
            _of_processes[process, within] = folder
            atexit.register(_drop, process, folder)
    return _of_processes[process, within]


def _drop(process: int, folder: str) -> None:
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
