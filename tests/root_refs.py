"""How many references to HFiles a root holds itself: tables of tests have few, so that none of
their pages would be a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["SOME_REFS", "root_refs"]

SOME_REFS = 2
"""So that of each version some pages lie in the root, and some are files."""


@contextmanager
def root_refs(most: int) -> Iterator[None]:
    """Versions that are made meanwhile have no more of them in their roots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metatable.metadata.manifests.pages.ROOT_REFS", most)
        yield
