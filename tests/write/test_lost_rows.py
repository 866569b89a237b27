"""Rows that a cluster has lost and works out again: whenever it is, what comes of other rows is not
published. Here nothing is kept, so each step that asks for the rows may get others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.data.hoodie.operations import INSERT_OVERWRITE, UPSERT
from metatable.engine.local import LocalEngine, LocalRows
from metatable.storage.errors import UsageError
from metatable.storage.store import TEMPORARY, Store
from metatable.write import few_rows
from metatable.write.commit_pass import write
from tests.index.rows import SCHEMA, SMALL, rows

NEW, STORED = rows(100, 120, value=1), rows(20, 40, value=2)


class Forgetful(LocalEngine):
    """As an engine elsewhere, on more machines than this one has processors; and all that they
    keep is lost at once."""

    in_process = False

    def scratch(self, store: Store, owner: str = "") -> Store:
        return Store(f"{store.uri}/{TEMPORARY}/{owner}", store.options, store.counters)

    @contextmanager
    def keep(self, rows: Any) -> Iterator[Any]:
        yield rows

    def find(self, *_: Any) -> Any:
        return None

    def held(self, rows: Any) -> None:
        return None

    def estimate(self, rows: Any) -> None:
        return None

    def few(self, *_: Any) -> None:
        return None


class Drawn:
    """Rows that are the first ones so many times, and then the others."""

    def __init__(self, first: pa.Table, then: pa.Table, times: int) -> None:
        self.first, self.then, self.times, self.asked = first, then, times, 0

    def rows(self) -> LocalRows:
        return LocalRows(self.first.schema, self._partitions)

    def _partitions(self) -> list[Any]:
        self.asked += 1
        table = self.first if self.asked <= self.times else self.then
        return [partial(table.slice(0, 9).to_batches), partial(table.slice(9).to_batches)]


@pytest.mark.parametrize(
    ("index", "scope", "operation", "first", "then", "repeats"),
    [
        ("metadata_bloom", "partition", UPSERT, NEW, STORED, False),
        ("metadata_bloom", "partition", UPSERT, NEW, STORED, True),
        ("bloom", "global", UPSERT, NEW, STORED, False),
        ("record", "global", INSERT_OVERWRITE, NEW, STORED, False),
        ("record", "global", INSERT_OVERWRITE, STORED, NEW, False),
    ],
    ids=["filters", "filters-repeats", "footers", "overwrite-new", "overwrite-stored"],
)
def test_rows_that_are_lost_at_any_step_are_refused_or_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    index: str,
    scope: str,
    operation: str,
    first: pa.Table,
    then: pa.Table,
    repeats: bool,
) -> None:
    """With other keys that are stored already, or were, while those of before were new."""
    given = [pa.concat_tables([one, one.slice(0, 5)]) if repeats else one for one in (first, then)]
    monkeypatch.setattr(few_rows, "ROWS", 0)
    times, refused = 0, 0
    while True:
        table = metatable.create(
            str(tmp_path / str(times)),
            SCHEMA,
            key="id",
            partition_by="city",
            ordering="value" if repeats else None,
            index=index,
            options={**SMALL, "key_scope": scope},
            storage_options={"durable": "false"},
        )
        table.insert(rows(0, 60))
        drawn, store = Drawn(*given, times), Store(table.uri, {"durable": "false"})
        told = _told(store, drawn.rows(), operation)
        assert told in ("written", "refused"), times
        refused += told == "refused"
        assert table.verify().findings == (), times
        assert told == "written" or table.scan().count() == 60, times
        if drawn.asked <= times:
            break
        times += 1
    assert refused


def _told(store: Store, given: LocalRows, operation: str) -> str:
    try:
        write(store, Forgetful(2), given, operation)
    except UsageError as error:
        return "refused" if "came out otherwise" in str(error) else str(error)
    return "written"
