"""Tables of twelve rows, and something that happens between two steps."""

from __future__ import annotations

import pytest

from metatable import Table
from tests.face.protocol.making import made, rows
from tests.model import arrow


@pytest.fixture(params=["record", "metadata_bloom"])
def table(request: pytest.FixtureRequest, table_uri: str) -> Table:
    """Twelve rows in two cities."""
    table = made(table_uri, request.param)
    table.insert(arrow(rows(0, 12, 1)))
    return table


@pytest.fixture
def one(table_uri: str) -> Table:
    table = made(table_uri)
    table.insert(arrow(rows(0, 12, 1)))
    return table
