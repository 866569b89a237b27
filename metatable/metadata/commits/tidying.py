"""Tidying: what is done behind a put that counts, and is nobody's loss where it fails.

Markers, leases and runs that stay are found by the next writer, or by `clean`; a hint may be old.
Whoever may write and not delete, or whose store fails at these, is told that his rows are there.
What stays is as if he had died there: so nothing may be deleted that would lead the next one to
what was to go before it. Steps that a version names are not among this: nobody puts the next
version before they are done, so where they fail an error is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from metatable.storage.errors import MetatableError

__all__ = ["tidy"]

_log = logging.getLogger("metatable.metadata")


def tidy(what: str, call: Callable[[], object]) -> bool:
    """Whether `call` did its work; where it does not, for whatever reason, that is logged. `what`:
    what is left then."""
    try:
        call()
    except MetatableError as error:
        _log.warning("left to the next writer: %s: %s", what, error)
        return False
    return True
