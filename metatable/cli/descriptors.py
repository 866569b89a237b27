"""Names of what this process has open already: `/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/3`.

Opened by its name such a file would be emptied, or written from its beginning on; through the
descriptor rows go where the shell has put it, behind what is there with `>>`.
"""

from __future__ import annotations

import os

__all__ = ["descriptor_of"]

_FOLDER = "/dev/fd"  # on Linux a link to /proc/self/fd
_LINKS = 40  # as many as Linux follows
_DIGITS = 10  # of a number that no process has


def descriptor_of(path: str) -> int | None:
    """The descriptor that a path leads to; None where it leads to a file of its own."""
    own = os.path.realpath(_FOLDER)
    for _ in range(_LINKS):
        folder, name = os.path.split(path)
        if os.path.realpath(folder) == own and name.isdecimal() and len(name) < _DIGITS:
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None
