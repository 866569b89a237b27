"""Stores: every kind of storage keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.s3_server import serving
from tests.storage.store_contract import Place, StoreContract


class TestFolder(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return str(tmp_path / "root"), {}


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return f"memory://{tmp_path.name}", {}


class TestObjectsOverHttp(StoreContract):
    @pytest.fixture
    def place(self) -> Iterator[Place]:
        with serving() as server:
            yield f"{server.uri}/some/table", server.options
