"""Work that is the engine's, and not the driver's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metatable.metadata.hfiles import entry_files

__all__ = ["index_built_elsewhere"]


@contextmanager
def index_built_elsewhere() -> Iterator[None]:
    """Raises where this process builds an index file of runs of entries."""

    def here(*_: Any) -> None:
        raise AssertionError("an index file is built by the driver")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_files, "_InOrder", here)
        yield
