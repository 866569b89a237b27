"""LocalEngine keeps the laws of an engine, and what it promises of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metatable.engine.local import LocalEngine
from metatable.storage.errors import UsageError
from tests.engine_contract import EngineContract

ENGINES = {
    "one thread": {"threads": 1},
    "threads": {"threads": 3},
    "every task twice, in random order": {"threads": 2, "twice": True, "shuffle_seed": 7},
}


class TestLocalEngine(EngineContract):
    @pytest.fixture(params=ENGINES)
    def engine(self, request: pytest.FixtureRequest) -> LocalEngine:
        return LocalEngine(**ENGINES[request.param])

    def spread(self, engine: LocalEngine, table: pa.Table, parts: int = 3) -> Any:
        to = pa.array([n % parts for n in range(table.num_rows)], pa.int32())
        sent = engine.exchange(engine.rows(table.append_column("_part", to)), "_part", parts)
        return engine.select(sent, table.schema.names)
