"""File systems that take names for the same that are not: of other letter case, or of other code
points for the same signs. macOS and Windows have such, and so what they share with others.

Every path is found there, but a listing tells the name that was first: a folder that another one's
name leads to would hold files that nobody lists by their own paths.
"""

from __future__ import annotations

import os
import unicodedata

__all__ = ["other_spelling"]

_HOODIE = ".hoodie"
"""A folder that each table has."""


def other_spelling(root: str, path: str) -> str | None:
    """What the folder of a file is called, if that is not what its path says; None: it is. Raises
    OSError."""
    if not os.path.lexists(os.path.join(root, _HOODIE.upper())):
        return None
    within: list[str] = []
    for name in path.split("/")[:-1]:
        names = os.listdir(os.path.join(root, *within))
        if name not in names:
            alike = (one for one in names if _folded(one) == _folded(name))
            return "/".join([*within, next(alike, "?")])
        within.append(name)
    return None


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
