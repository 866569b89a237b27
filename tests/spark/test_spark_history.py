"""The histories of tests/face/test_history.py with every write and compaction on Spark: fewer, for
each step is several jobs. Between two writes the same checks run in process: rows, tags, entries,
and what `hudi` reads."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

import metatable
from tests.face.test_history import LENGTH, SEED, History
from tests.long import LONG, one_in
from tests.model import Row

FEW = settings(LENGTH, max_examples=10 if LONG else 2, stateful_step_count=20 if LONG else 6)
"""Hypothesis draws the simplest history first: were there but one, it would be that."""


class OnSpark:
    """A table whose writes and compactions are given to Spark; all else is the table's own."""

    def __init__(self, table: metatable.Table, session: Any) -> None:
        self._table = table
        self._session = session

    def insert(self, rows: Any) -> Any:
        return self._table.insert(self._session.createDataFrame(rows))

    def upsert(self, rows: Any) -> Any:
        return self._table.upsert(self._session.createDataFrame(rows))

    def delete(self, keys: Any) -> Any:
        return self._table.delete(self._session.createDataFrame(keys))

    def compact(self, **chosen: Any) -> Any:
        return self._table.compact(engine=self._session, **chosen)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class OnSparkHistory(History):
    session: ClassVar[Any] = None

    @property
    def table(self) -> Any:
        return self._on_spark

    @table.setter
    def table(self, made: metatable.Table) -> None:
        self._on_spark = OnSpark(made, self.session)

    def acceptable(self, rows: list[Row]) -> list[Row]:
        """Rows of a DataFrame have no order, so a tie has no later row: each key once."""
        return list(self.model.distinct(rows).values())


class RecordOnSpark(OnSparkHistory):
    index, scope = "record", "global"


class MetadataBloomOnSpark(OnSparkHistory):
    index, scope = "metadata_bloom", "partition"


MACHINES = [RecordOnSpark, MetadataBloomOnSpark]


@pytest.mark.parametrize("machine", one_in(2, MACHINES), ids=lambda one: one.__name__)
def test_a_history_on_spark_leaves_table_index_and_hudi_agreeing(
    machine: type[OnSparkHistory], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnSparkHistory, "session", spark)
    run_state_machine_as_test(seed(SEED)(machine), settings=FEW)
