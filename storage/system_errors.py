"""What the system says of files, told by errors of our family: each is one thing to do about it."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError

__all__ = ["FULL", "in_temporary_folder", "ours"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No room: on the disk, for this user, or in this file."""

_ACCESS = "a folder and files that this user may read and write"
_NAMES = "a folder, and names that its file system takes"
_LINKS = "a file system with hard links, and folders of the table on one disk"

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_NAME = (
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP),
    errno.EILSEQ,
)
_NO_LINK = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTSUP)
_BUSY = (errno.EMFILE, errno.ENFILE)

_KINDS: Sequence[tuple[Sequence[int], type[MetatableError], str, str]] = (
    (_REFUSED, AccessError, "the system refuses us", _ACCESS),
    (_NO_NAME, UsageError, "there can be no such file", _NAMES),
    (_NO_LINK, UsageError, "files cannot be given this name", _LINKS),
    (FULL, StoreError, "the disk takes no more: make room and try again", ""),
    (_BUSY, StoreError, "too many files are open: raise the limit or try again", ""),
    ((errno.ENOMEM,), StoreError, "there is not enough memory: try again", ""),
)
"""(numbers, what is raised, what it says, what was expected)."""


def ours(error: OSError, path: str, root: str) -> MetatableError:
    """The error of our family that tells of this one: of a file in the store `root`."""
    facts = {"path": path, "store": root, "found": error.strerror or str(error)}
    for numbers, kind, what, expected in _KINDS:
        if error.errno in numbers:
            return kind(what, **facts, **({"expected": expected} if expected else {}))
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
