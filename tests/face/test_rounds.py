"""How often a commit and a tag wait for an object store, and what must wait for what.

`benchmarks/rounds.py` has the store that counts: calls that go together are of one round. On a
store of that kind requests that follow each other are what takes time, 30 ms each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from benchmarks.rounds import (
    COMMIT_SECONDS,
    LATENCY_SECONDS,
    TAG_SECONDS,
    Rounds,
    commit,
    made,
    tag,
)
from metatable.engine import local
from metatable.storage import cache

COMMIT_ROUNDS = {"metadata_bloom": 15, "bloom": 15, "record": 14}
TAG_ROUNDS = {"metadata_bloom": 6, "bloom": 6, "record": 5}
ROWS = 3000


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of rounds is for one; and a process that knows nothing."""
    monkeypatch.setattr(local, "_processors", lambda: 1)
    yield
    cache.clear()


def committed(index: str) -> Rounds:
    run, backend = commit(made(index, ROWS), Rounds)
    before = backend.now
    backend.log.clear()
    run()
    backend.log[:] = [(at - before, verb, path) for at, verb, path in backend.log]
    backend.now -= before
    assert isinstance(backend, Rounds)
    return backend


@pytest.mark.parametrize("index", COMMIT_ROUNDS)
def test_a_small_commit_is_few_rounds(index: str) -> None:
    backend = committed(index)
    assert backend.now == COMMIT_ROUNDS[index]
    assert backend.now * LATENCY_SECONDS <= COMMIT_SECONDS
    assert len(backend.log) <= 70, "requests did not become more for it"


@pytest.mark.parametrize("index", TAG_ROUNDS)
def test_a_cold_tag_is_few_rounds(index: str) -> None:
    run, backend = tag(made(index, ROWS), Rounds)
    run()
    assert backend.now == TAG_ROUNDS[index]
    assert backend.now * LATENCY_SECONDS <= TAG_SECONDS
    assert len(backend.log) <= 40, "requests did not become more for it"


STEPS = {
    "properties": r"get \.hoodie/hoodie.properties",
    "lease": r"create \S+/leases/\d+",
    "requested": r"create \S+\.commit\.requested",
    "inflight": r"create \S+\.inflight",
    "marker": r"put \.hoodie/\.temp/\S+\.marker\.MERGE",
    "data file": r"create day=\S+\.parquet",
    "HFile": r"put \S+\.hfile",
    "page": r"put \S+/pages/\S+",
    "staged commit": r"put \S+/commits/\d+\.json",
    "root": r"create \S+/manifest/0\d+\.json",
    "look": r"get \S+/commits/\d+\.json",
    "commit": r"create \S+/\d+\.commit",
    "hint": r"put \S+/manifest/latest",
    "marker goes": r"delete \.hoodie/\.temp/\S+",
    "lease goes": r"delete \S+/leases/\d+",
}

BEFORE = {
    "lease": ["properties"],
    "requested": ["lease"],
    "inflight": ["requested"],
    "marker": ["lease"],
    "data file": ["inflight", "marker"],
    "root": ["data file", "HFile", "page", "staged commit"],
    "look": ["root"],
    "commit": ["root", "look"],
    "hint": ["root", "look"],
    "marker goes": ["commit"],
    "lease goes": ["commit", "marker goes"],
}
"""Of each step: those that have been answered before it is asked. What a killed writer leaves is
found by its lease, hidden from Hudi by `inflight`, and undone by its markers; what a root names is
there; and nobody is told of a root before it is certain that it counts."""


@pytest.mark.parametrize("index", COMMIT_ROUNDS)
def test_what_must_wait_for_another_waits(index: str) -> None:
    log = committed(index).log
    rounds = {
        step: [at for at, verb, path in log if re.fullmatch(pattern, f"{verb} {path}")]
        for step, pattern in STEPS.items()
    }
    assert [step for step, when in rounds.items() if not when] == []
    wrong = [
        (earlier, step)
        for step, before in BEFORE.items()
        for earlier in before
        if max(rounds[earlier]) >= min(rounds[step])
    ]
    assert wrong == []
