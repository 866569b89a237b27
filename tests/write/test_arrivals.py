"""Keys that were inserted, where another writer was first, in scratch far away."""

from __future__ import annotations

import pyarrow as pa
import pytest

import metatable
from benchmarks.rounds import Rounds
from metatable.index import create_index
from metatable.metadata.commits.change import Race
from metatable.metadata.hfiles import entry_files
from metatable.metadata.hfiles.entry_files import Run, write_run
from metatable.metadata.manifests.versions import newest_of
from metatable.storage.errors import ConflictError
from metatable.storage.store import Store
from metatable.write.new_keys import KeysAbsent
from metatable.write.receipts import ARRIVALS, ARRIVALS_SCHEMA
from tests.far import in_memory, made, rows

KEYS = 20


def run_of(scratch: Store, number: int) -> Run:
    names = [f"new-{number}-{n}" for n in range(KEYS - 1)] + [f"k{number:04}"]
    keys = pa.table([names, ["day=d00"] * KEYS], schema=ARRIVALS_SCHEMA)
    return write_run(scratch, ARRIVALS, keys)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of three keys, none in receipts."""
    monkeypatch.setattr(entry_files, "BATCH_ROWS", 3)
    monkeypatch.setattr(entry_files, "INLINE_BYTES", 0)


def lost(uri: str) -> tuple[Race, KeysAbsent]:
    """Of a writer of twelve runs, the last of which has a key that another one inserts before."""
    store, scratch = Store(uri), Store(in_memory())
    base = newest_of(store)
    metatable.open(uri).insert(rows(1000, 1400, 1).slice(8, 1))
    runs = tuple(run_of(scratch, 997 + n) for n in range(12))
    scratch.backend = Rounds(scratch.backend)
    absent = KeysAbsent(create_index(base.options), scratch, runs)
    return Race(store, base, newest_of(store)), absent


def test_runs_of_keys_are_read_together() -> None:
    """As many rounds as one run takes: its footer in two, and each batch in one."""
    race, absent = lost(made(in_memory(), "cow"))
    backend = absent.scratch.backend
    assert isinstance(backend, Rounds)
    absent = KeysAbsent(absent.index, absent.scratch, absent.arrivals[:11])
    absent.check(race)
    assert {verb for _, verb, _ in backend.log} == {"read"}
    assert len({at for at, _, _ in backend.log}) <= 2 + -(-KEYS // 3)


def test_a_key_of_any_run_is_found() -> None:
    race, absent = lost(made(in_memory(), "cow"))
    with pytest.raises(ConflictError, match=r"another commit inserted the same keys.*k1008"):
        absent.check(race)
