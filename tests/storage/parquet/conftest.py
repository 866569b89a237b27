"""A store on a disk, behind caches that know nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metatable.storage import cache
from metatable.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    cache.clear()
    yield Store(tmp_path, {"durable": "false"})
    cache.clear()
