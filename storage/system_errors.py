"""What the system says of files, told by errors of our family: each is one thing to do about it."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError

__all__ = ["FULL", "in_temporary_folder", "ours"]

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No room: on the disk, for this user, or in this file."""

_BUSY = (errno.EMFILE, errno.ENFILE)
_NO_NAME = (
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP),
    errno.EILSEQ,
)


def ours(error: OSError, path: str, root: str) -> MetatableError:
    """The error of our family that tells of this one: of a file in the store `root`."""
    facts = {"path": path, "store": root, "found": error.strerror or str(error)}
    if error.errno in _REFUSED:
        expected = "a folder and files that this user may read and write"
        return AccessError("the system refuses us", **facts, expected=expected)
    if error.errno in _NO_NAME:
        expected = "a folder, and names that its file system takes"
        return UsageError("there can be no such file", **facts, expected=expected)
    if error.errno in FULL:
        return StoreError("the disk takes no more: make room and try again", **facts)
    if error.errno in _BUSY:
        return StoreError("too many files are open: raise the limit or try again", **facts)
    if error.errno == errno.ENOMEM:
        return StoreError("there is not enough memory: try again", **facts)
    return StoreError("the disk did not do it: try again", **facts)


@contextmanager
def in_temporary_folder() -> Iterator[None]:
    """Errors of what is put aside in the temporary folder of this machine are ours."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            "the temporary folder of this machine takes no more",
            path=tempfile.tempdir,
            expected="room in it, or TMPDIR that names another",
            found=error.strerror or str(error),
        ) from error
