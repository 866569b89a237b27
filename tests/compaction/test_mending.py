"""The HFiles of what a repair puts into the index: entries may be there twice."""

from __future__ import annotations

import pyarrow as pa
import pytest

from metatable.compaction.checks import mending
from metatable.data.bucket_functions import HASH_SPACE
from metatable.metadata.hfiles import entry_files
from metatable.metadata.hfiles.entry_files import Run, write_run
from metatable.metadata.manifests.owner import Owner
from metatable.storage.store import Store
from tests.metadata.test_entry_files import PARTITION, entries_of, held

COUNT = 400
STEP = HASH_SPACE // COUNT
PLACES = sorted({place for n in range(1, COUNT) for place in (n * STEP - 1, n * STEP)})
"""On both sides of wherever a file's pieces may meet, if there are so many or a part of that."""


def repeating(store: Store) -> list[Run]:
    """Three runs: each key is in two of them, in one of them twice."""
    shares = [PLACES[0::2], PLACES[1::2], [*PLACES, *PLACES[::3]]]
    return [
        write_run(store, PARTITION.name, entries_of(share, [number] * len(share)))
        for number, share in enumerate(shares)
    ]


@pytest.mark.parametrize("step_bytes", [100, 1000, 16 << 20])
def test_keys_that_repeat_are_once_in_files_of_any_pieces(
    step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_files, "STEP_BYTES", step_bytes)
    store = Store("memory://repeating")
    built = mending._built(store, store, [PARTITION], repeating(store), Owner("repair", "a"))
    found = held(store, [*built[PARTITION.name]])
    assert [key for key, _ in found] == [place.to_bytes(4) + bytes(12) for place in PLACES]


def test_what_is_in_memory_of_a_file_does_not_grow_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the file is the same, byte by byte."""
    store, sizes, bodies = Store("memory://growing"), list[list[int]](), list[bytes | None]()
    distinct = mending._distinct

    def noted(entries: pa.Table) -> pa.Table:
        sizes[-1].append(entries.num_rows)
        return distinct(entries)

    monkeypatch.setattr(mending, "_distinct", noted)
    runs = repeating(store)
    for step_bytes in (16 << 20, 1000):
        sizes.append([])
        monkeypatch.setattr(entry_files, "STEP_BYTES", step_bytes)
        built = mending._built(store, store, [PARTITION], runs, Owner("repair", "a"))
        bodies.append(store.get(built[PARTITION.name][0].path))
    whole, pieces = sizes
    assert len(whole) == 1
    assert len(pieces) > 20
    assert sum(pieces) == sum(whole)
    assert max(pieces) <= 3 * sum(whole) / len(pieces)
    assert bodies[0] is not None
    assert bodies[0] == bodies[1]
