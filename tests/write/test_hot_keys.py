"""Rows most of which have one key: they all go to one task, which holds no more than it must."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from metatable.data.keys.key_texts import KEY, PATH
from metatable.engine import partitions
from metatable.storage.counters import Counters
from metatable.write import prepare

BATCHES, ROWS = 60, 1000


@pytest.mark.each_once
@pytest.mark.parametrize("identity", [[KEY], [KEY, PATH]], ids=len)
@pytest.mark.parametrize("ordering", ["at", None])
def test_a_task_holds_a_row_a_key_of_each_piece(
    identity: list[str], ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PARTITION_ROWS", ROWS)
    before, most = pa.total_allocated_bytes(), 0

    def given() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(BATCHES):
            most = max(most, pa.total_allocated_bytes() - before)
            columns = {
                KEY: ["hot" * 100] * (ROWS - 1) + [f"key {number % 7}"],
                PATH: [""] * ROWS,
                "at": [number // 2] * ROWS,
                "row": range(number * ROWS, (number + 1) * ROWS),
            }
            yield pa.record_batch(columns)

    [repeated] = prepare._repeated(identity, given(), Counters())
    assert repeated["keys"].to_pylist() == [["hot" * 100, *(f"key {one}" for one in range(4))]]
    batches = [*prepare._deduplicated(identity, ordering, given(), Counters())]
    found = {row[KEY]: row.get("row") for batch in batches for row in batch.to_pylist()}
    last = {f"key {number % 7}": (number + 1) * ROWS - 1 for number in range(BATCHES)}
    hot = {"hot" * 100: BATCHES * ROWS - 2}
    assert found == ({**last, **hot} if ordering else dict.fromkeys([*last, *hot]))
    assert most < BATCHES * ROWS * 300 / 4
