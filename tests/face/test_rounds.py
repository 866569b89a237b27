"""How often a commit and a tag wait for an object store, and what must wait for what.

`benchmarks/rounds.py` has the store that counts: calls that go together are of one round. On a
store of that kind requests that follow each other are what takes time, 30 ms each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from benchmarks.rounds import (
    COMMIT_SECONDS,
    LATENCY_SECONDS,
    TAG_SECONDS,
    Rounds,
    commit,
    made,
    reached,
    rows_of,
    tag,
)
from metatable.data.timeline import inflight_path
from metatable.engine import local
from metatable.storage import cache

COMMIT_ROUNDS = {"metadata_bloom": 16, "bloom": 16, "record": 15}
TAG_ROUNDS = {"metadata_bloom": 6, "bloom": 6, "record": 5}
ROWS = 3000


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of rounds is for one; and a process that knows nothing."""
    monkeypatch.setattr(local, "_processors", lambda: 1)
    yield
    cache.clear()


def committed(index: str) -> Rounds:
    return measured(*commit(made(index, ROWS), Rounds))


def overwritten(index: str) -> Rounds:
    uri = made(index, ROWS)
    cache.clear()
    table, backend = reached(uri, Rounds)
    return measured(lambda: table.insert_overwrite(rows_of(range(99))), backend)


def measured(run: Callable[[], object], backend: Rounds) -> Rounds:
    """The backend when this was done by it; its rounds are counted from here."""
    before = backend.now
    backend.log.clear()
    run()
    backend.log[:] = [(at - before, verb, path) for at, verb, path in backend.log]
    backend.now -= before
    return backend


@pytest.mark.parametrize("index", COMMIT_ROUNDS)
def test_a_small_commit_is_few_rounds(index: str) -> None:
    backend = committed(index)
    assert backend.now == COMMIT_ROUNDS[index]
    assert backend.now * LATENCY_SECONDS <= COMMIT_SECONDS
    assert len(backend.log) <= 70, "requests did not become more for it"


def test_an_overwrite_asks_for_little_more_than_a_commit() -> None:
    assert overwritten("record").now == 24


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
    "look for another action": r"size \S+/\d+\.OTHER",
    "requested": r"create \S+/\d+\.ACTION\.requested",
    "inflight": r"create INFLIGHT",
    "marker": r"put \.hoodie/\.temp/\S+\.marker\.(MERGE|CREATE)",
    "data file": r"create day=\S+\.parquet",
    "HFile": r"put \S+\.hfile",
    "page": r"put \S+/pages/\S+",
    "staged commit": r"put \S+/commits/\d+\.json",
    "root": r"create \S+/manifest/0\d+\.json",
    "look": r"get \S+/commits/\d+\.json",
    "commit": r"create \S+/\d+\.ACTION",
    "hint": r"put \S+/manifest/latest",
    "marker goes": r"delete \.hoodie/\.temp/\S+",
    "lease goes": r"delete \S+/leases/\d+",
}

BEFORE = {
    "lease": ["properties"],
    "look for another action": ["lease"],
    "requested": ["lease", "look for another action"],
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


@pytest.mark.parametrize(
    ("done", "action", "other"),
    [(committed, "commit", "replacecommit"), (overwritten, "replacecommit", "commit")],
)
@pytest.mark.parametrize("index", COMMIT_ROUNDS)
def test_what_must_wait_for_another_waits(
    index: str, done: Callable[[str], Rounds], action: str, other: str
) -> None:
    log = done(index).log
    inflight = inflight_path(r"\d+", action)
    told = {
        step: pattern.replace("INFLIGHT", inflight)
        .replace("ACTION", action)
        .replace("OTHER", other)
        for step, pattern in STEPS.items()
    }
    rounds = {
        step: [at for at, verb, path in log if re.fullmatch(pattern, f"{verb} {path}")]
        for step, pattern in told.items()
    }
    assert [step for step, when in rounds.items() if not when] == []
    wrong = [
        (earlier, step)
        for step, before in BEFORE.items()
        for earlier in before
        if max(rounds[earlier]) >= min(rounds[step])
    ]
    assert wrong == []
