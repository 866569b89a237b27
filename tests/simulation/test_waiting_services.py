"""Resizes and compactions of logs that wait, beside writers, readers and cleans, and all may die.

The worlds are those of `history.py` that are of merge-on-read tables in rings of buckets; who
schedules, carries out and takes back draws from the world's own seed. In the end all that waits is
carried out, and every version that is kept is what the dict says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from metatable import NotFoundError
from metatable.compaction.reshaping.bucket_sizes import BucketSizes
from metatable.compaction.reshaping.log_compaction import CompactLogs, ScheduleLogs
from metatable.compaction.reshaping.log_sizes import LogSizes
from metatable.compaction.reshaping.waiting_plans import TakeBack
from metatable.compaction.reshaping.waiting_resize import CarryOutResize, ScheduleResize
from metatable.compaction.service import execute
from metatable.data.file_groups.children import WAYS
from metatable.data.hoodie.timeline import CLUSTERING
from metatable.engine.local import LocalEngine
from metatable.metadata.manifests.leases import GRAIN_SECONDS
from metatable.metadata.manifests.manifest import Manifest, Planned
from metatable.metadata.manifests.versions import load_newest
from metatable.storage import cache
from tests.long import LONG
from tests.model import Identity, Row
from tests.simulation.history import Game, Operation, refs_of, written_file
from tests.simulation.world import (
    EFFECT_LEASES,
    LEASE_SECONDS,
    Actor,
    world_of,
)

WORLDS = 2_000 if LONG else 12
FIRST, EVERY = 26, 30
"""Of these seeds a world's table has logs, and rings."""

FOUND_SOMETHING = (206, 476, 3626)
"""The timeline was archived beyond a resize that was older than commits to its buckets; who had
scheduled something, and was taken for dead, published it; an instant that waits was given out once
more, to a writer with an older base."""

SIZES = (BucketSizes(1, 0), BucketSizes(1, 0), BucketSizes(1 << 30, 1 << 20))


class WaitingGame(Game):
    """Services that plan and carry out apart."""

    def populate(self) -> None:
        self.draw = random.Random(self.world.seed)
        for number in range(3):
            self.world.act(f"writer{number}", self.writing(self.draw.choice([1, 2, 2])))
        for number in range(2):
            self.world.act(f"scheduler{number}", self.serving(self.schedule, 2))
            self.world.act(f"worker{number}", self.serving(self.carry_out, 2))
        if self.draw.random() < 0.3:
            self.world.act("taker", self.serving(self.take_back, 1))
        if self.draw.random() < 0.5:
            self.world.act("cleaner", self.cleaning(1))
        if self.draw.random() < 0.5:
            self.world.act("recoverer", self.recovering(1))
        self.world.act("reader", self.reading(2))

    def serving(self, serve: Callable[[], None], count: int) -> Callable[[Actor], None]:
        return lambda actor: [self.tolerant(self.named, serve) for _ in range(count)] and None

    def named(self, serve: Callable[[], None]) -> None:
        self.here.operation = Operation("service")
        with suppress(NotFoundError):  # another one was first
            serve()

    def schedule(self) -> None:
        store, engine = self.world.store(), LocalEngine(1)
        if self.draw.random() < 0.3:
            execute(store, engine, ScheduleLogs(LogSizes(ratio=0)))
        else:
            sizes, way = self.draw.choice(SIZES), self.draw.choice(WAYS)
            execute(store, engine, ScheduleResize(sizes, way))

    def carry_out(self) -> None:
        for instant, plan in self.waiting().items():
            service = CarryOutResize if plan.action == CLUSTERING else CompactLogs
            execute(self.world.store(), LocalEngine(1), service(instant))
            self.world.told["carried out"] = self.world.told.get("carried out", 0) + 1

    def take_back(self) -> None:
        for instant, plan in self.waiting().items():
            execute(self.world.store(), LocalEngine(1), TakeBack(instant, plan.action))

    def waiting(self) -> dict[str, Planned]:
        newest = load_newest(self.world.store())
        assert newest is not None
        return dict(sorted(newest.compactions.items()))

    def replay(self, history: list[Manifest]) -> dict[int, dict[Identity, Row]]:
        """What was scheduled changes no row."""
        states: dict[int, dict[Identity, Row]] = {}
        for manifest in history:
            before = states.get(manifest.version - 1, {})
            made = manifest.last_commit == (manifest.version, manifest.instant)
            if made:
                operation, base = self.taken(manifest)
                before = self.applied(operation, before, states[base])
            states[manifest.version] = before
        return states

    def taken(self, manifest: Manifest) -> tuple[Operation, int]:
        return self.takers[written_file(self.world.past(), manifest)]

    def check(self) -> None:
        for _ in range(2):
            self.world.be_silent(LEASE_SECONDS * (1 + EFFECT_LEASES) + 2 * GRAIN_SECONDS)
            for _ in range(3):
                self.recover()
        cache.clear()
        before = self.history()
        self.named(self.carry_out)
        assert not self.waiting()
        history = self.history()
        states = self.replay(history)
        assert states[history[-1].version] == states[before[-1].version]
        self.check_acknowledged(history)
        self.check_versions(history, states)
        self.check_hudi(states[history[-1].version])
        self.check_cleaned(states[history[-1].version])


def play(seed: int) -> int:
    """One world; how much was carried out in it."""
    with world_of(seed) as world, refs_of(seed), pytest.MonkeyPatch.context() as patch:
        game = WaitingGame(world, patch)
        game.populate()
        world.run()
        game.check()
    return world.told.get("carried out", 0)


@pytest.mark.parametrize("seed", FOUND_SOMETHING)
def test_a_world_that_once_found_a_fault_ends_well(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("portion", range(4))
def test_what_waits_loses_no_row_whoever_dies(portion: int) -> None:
    done = 0
    for number in range(portion, WORLDS, 4):
        seed = FIRST + EVERY * number
        try:
            done += play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert done
