"""Links in a folder: there may be another table behind one, or no end of folders."""

from __future__ import annotations

import errno
import os

__all__ = ["leads_nowhere", "leads_out"]

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def leads_nowhere(root: str, path: str) -> bool:
    """Whether the link at a path is to nothing, to itself, or to a folder that it lies in: then
    there is no end of what lies in it. Raises OSError."""
    try:
        own = os.stat(os.path.join(root, path))
    except OSError as error:
        if error.errno in _NOTHING:
            return True
        raise
    folders = (root, *_folders(root, path))
    return any(os.path.samestat(own, os.stat(folder)) for folder in folders)


def leads_out(root: str, path: str) -> bool:
    """Whether a folder on the way to a path is a link, and what it leads to lies elsewhere: there
    may be another table's files, which look like nobody's here."""
    folders = _folders(root, path)
    if not any(map(os.path.islink, folders)):
        return False
    real = os.path.join(os.path.realpath(root), "")
    return not os.path.join(os.path.realpath(folders[-1]), "").startswith(real)


def _folders(root: str, path: str) -> list[str]:
    """Those in the root that a path lies in, the outermost first."""
    names = path.split("/")[:-1]
    return [os.path.join(root, *names[: count + 1]) for count in range(len(names))]
