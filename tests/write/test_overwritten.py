"""What tasks tell of partitions that are overwritten follows how many these are, not the rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from metatable.data.keys.key_texts import KEY, PATH
from metatable.index.locations import LOCATION, LOCATION_COLUMN
from metatable.storage.counters import Counters
from metatable.write import overwrite


def _batches(count: int) -> Iterator[pa.RecordBatch]:
    """Rows of two partitions: one new in each, one at home, and one that lives elsewhere."""
    lives = [None, None, "a", "b", "c", "c"]
    for number in range(count):
        keys = [f"k{number:03}{row}" for row in range(len(lives))]
        places = [one and {"partition_path": one, "file_id": "f"} for one in lives]
        columns = [pa.array(keys), pa.array(["a", "b"] * 3), pa.array(places, LOCATION)]
        yield pa.RecordBatch.from_arrays(columns, names=[KEY, PATH, LOCATION_COLUMN])


def test_a_task_tells_of_a_partition_once_and_few_keys_that_would_move() -> None:
    [told] = overwrite._where(_batches(50), Counters())
    found = {(one["path"], one["located"]): one["keys"] for one in told.to_pylist()}
    assert len(told) == len(found) == 6
    assert found.pop(("a", "c")) == ["k0004", "k0014", "k0024", "k0034", "k0044"]
    assert found.pop(("b", "c")) == ["k0005", "k0015", "k0025", "k0035", "k0045"]
    assert set(map(tuple, found.values())) == {()}
