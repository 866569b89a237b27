"""A world in which everything happens one step at a time, in an order that a seed decides.

Actors are threads of which only one runs at a time: every call to the store is a step, before
which any other actor may take its turn. The model, and so what the commit protocol is asked to live
with:

    store     puts, creates, deletes and listings are linearizable; a listing or a read never fails
              half-way; times of writing are the store's own, and its clock is steady (it may
              tell whole seconds only)
    calls     may fail before their effect, fail after it, or fail now and have their effect later,
              within EFFECT_LEASES leases of true time; may be answered late; a create may be told
              "exists" of its own effect, as a client is that repeats a put whose answer was lost;
              calls that change something go wrong more often than those that look
    cells     of a key-value store: the same, and of a request each may come or not, or later
    actors    may begin leases later than others, and pause for as long; may be killed at any
              step, or sleep for leases on end; renewals of a lease go on beside a slow call, and
              sleep when their actor sleeps
    clocks    every actor has one of its own, wrong by up to seconds; it may jump by an hour, both
              ways, or stand still; in some worlds all of them show one millisecond for ever, or
              tick in seconds, so that several actors are in one millisecond

One seed makes one world: times, faults, ids and turns are all drawn from it.
"""

from __future__ import annotations

import io
import random
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import IO, Any

import pyarrow as pa
import pytest

import metatable.write.attempts
from metatable.engine import local
from metatable.metadata.manifests import leases
from metatable.storage import cache, clock
from metatable.storage.backend import Backend
from metatable.storage.errors import StoreError
from metatable.storage.key_values import CELLS, client
from metatable.storage.listing import Listed
from metatable.storage.store import Store

LEASE_SECONDS = 6.0
EFFECT_LEASES = 1 / 3
"""An effect lands within this part of a lease, or never."""

FATES = {
    **dict.fromkeys(("size", "read", "list"), ("before", "slow")),
    **dict.fromkeys(("put", "delete"), ("before", "after", "later", "slow")),
    "create": ("before", "after", "later", "slow", "exists", "exists"),
}
"""What may become of a call that does not go well."""

CHANGES = ("put", "create", "delete")
CHANGES_WEIGH = 4
"""A call that changes something goes wrong, or ends its process, so much more often."""

TELLS = re.compile(r"\.hoodie/metatable/(manifest/\d+|pages/.+)\.json")

EPOCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOST_STEPS = 60_000


class Killed(BaseException):
    """The process is gone: nothing of it reaches the store any more."""


class Lost(OSError):  # noqa: N818  (what becomes of a call)
    """The call failed, as far as the caller can tell."""


def _closed() -> threading.Lock:
    """A lock that one thread takes and another one opens: a semaphore of one, but faster."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class Actor:
    """One logical process."""

    name: str
    work: Callable[[Actor], None]
    offset: float = 0.0
    frozen: datetime | None = None
    ready_at: float = 0.0
    asleep_until: float = 0.0
    killed: bool = False
    over: bool = False
    error: BaseException | None = None
    turn: threading.Lock = field(default_factory=_closed)
    thread: threading.Thread | None = None


@dataclass(eq=False)
class Renewal:
    """A lease's thread, as the world sees it."""

    actor: Actor | None
    renew: Callable[[], None]
    seconds: float
    due: float


class World:
    """A store, clocks and actors. `faults` is the share of calls that go wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.ids = random.Random(seed ^ 0x5EED)
        self.files: dict[str, tuple[bytes, float]] = {}
        self.told_files: dict[str, tuple[bytes, float]] = {}
        """Roots and pages that ever were, also those that were cleaned: what happened."""
        self.cells: dict[tuple[bytes, bytes], bytes] = {}
        """By key and name, those of a key-value store."""
        self.true_time = 0.0
        self.steps = 0
        self.running = False
        self.whole_seconds = self.random.random() < 0.3
        self.frozen = EPOCH + timedelta(seconds=20) if self.random.random() < 0.25 else None
        self.tick_seconds = self.random.choice([0.001, 0.5, 1.0, 3.0])
        self.faults = self.random.choice([0.0, 0.01, 0.03])
        self.jumps = self.random.choice([0.0, 0.005])
        self.kills = self.random.choice([0.0, 0.002, 0.006])
        self.sleeps = self.random.choice([0.0, 0.004, 0.01])
        self.late: list[tuple[float, Callable[[], None]]] = []
        self.actors: list[Actor] = []
        self.renewals: list[Renewal] = []
        self.log: list[str] = []
        self.told: dict[str, int] = {}
        self._here = threading.local()
        self._main = _closed()
        self.uri = f"/simulated/{seed}"

    # what actors see

    def store(self) -> Store:
        """This world's store, with counters of its own."""
        store = Store(self.uri)
        store.backend = Simulated(self)
        return store

    def past(self) -> Store:
        """A store of all roots and pages that ever were."""
        store = Store(self.uri)
        store.backend = Past(self)
        return store

    def now(self) -> datetime:
        """What the clock of whoever asks shows."""
        actor = self._actor()
        frozen = self.frozen or (actor and actor.frozen)
        if frozen:
            return frozen
        shown = self.true_time + (actor.offset if actor else 0)
        return EPOCH + timedelta(seconds=shown // self.tick_seconds * self.tick_seconds)

    def pause(self, seconds: float) -> None:
        actor = self._actor()
        if actor is not None:
            actor.ready_at = self.true_time + seconds
            self._yield(actor)

    def renewing(self, renew: Callable[[], None], seconds: float) -> Callable[[], None]:
        one = Renewal(self._actor(), renew, seconds, self.true_time + seconds)
        self.renewals.append(one)

        def stop() -> None:
            if one in self.renewals:
                self.renewals.remove(one)

        return stop

    def step(self, what: str) -> str:
        """Let others go first, then say what becomes of this call."""
        actor = self._actor()
        if actor is None or not self.running:
            return "well"
        self._yield(actor)
        self.log.append(f"{self.true_time:9.3f} {actor.name} {what}")
        draw, verb = self.random.random, what.partition(" ")[0]
        weight = CHANGES_WEIGH if verb in CHANGES else 1
        if draw() < self.kills * weight:
            actor.killed = True
            self._count("killed")
            raise Killed(actor.name)
        if draw() < self.jumps:
            self._jump(actor)
        if draw() < self.sleeps:
            actor.asleep_until = self.true_time + LEASE_SECONDS * self.random.uniform(0.3, 4)
            self._count("slept")
            self._yield(actor)
        if draw() >= self.faults * weight:
            return "well"
        fate = self.random.choice(FATES[verb])
        self._count(fate)
        self.log.append(f"{self.true_time:9.3f} {actor.name} {what}: {fate}")
        return fate

    def stamp(self) -> float:
        """The store's time."""
        moment = EPOCH.timestamp() + self.true_time
        return float(int(moment)) if self.whole_seconds else moment

    def answer_late(self) -> None:
        actor = self._actor()
        if actor is not None:
            actor.ready_at = self.true_time + LEASE_SECONDS * self.random.uniform(0.1, 1.5)
            self._yield(actor)

    def land_later(self, effect: Callable[[], None]) -> None:
        wait = LEASE_SECONDS * EFFECT_LEASES * self.random.random()
        self.late.append((self.true_time + wait, effect))

    # how it goes on

    def act(self, name: str, work: Callable[[Actor], None]) -> None:
        """Add an actor; it begins when the world runs, or some leases later."""
        actor = Actor(name, work, offset=self.random.choice([0.0, self.random.uniform(-3, 3)]))
        if self.random.random() < 0.3:
            actor.ready_at = LEASE_SECONDS * self.random.uniform(0.5, 3)
        actor.thread = threading.Thread(target=self._live, args=(actor,), daemon=True)
        self.actors.append(actor)

    def run(self) -> None:
        """Until every actor is through, or dead."""
        self.running = True
        for actor in self.actors:
            assert actor.thread is not None
            actor.thread.start()
        while living := [one for one in self.actors if not one.over]:
            self._one_turn(living)
        self.running = False
        self.renewals.clear()
        for actor in self.actors:
            if actor.error is not None:
                raise actor.error

    def be_silent(self, seconds: float) -> None:
        """Let true time pass, in which nobody acts; what was to land has landed."""
        self.true_time += seconds
        self._land()

    def _one_turn(self, living: Sequence[Actor]) -> None:
        self.steps += 1
        assert self.steps < MOST_STEPS, "the world does not come to an end"
        self.true_time += self.random.expovariate(1 / 0.02)
        ready = [one for one in living if max(one.ready_at, one.asleep_until) <= self.true_time]
        if not ready:
            waits = [max(one.ready_at, one.asleep_until) for one in living]
            self.true_time = min(waits) if not self.late else min(*waits, self.late[0][0])
        self._land()
        self._renew()
        if ready:
            actor = self.random.choice(ready)
            actor.turn.release()
            self._main.acquire()

    def _land(self) -> None:
        now = self.true_time
        due = sorted((one for one in self.late if one[0] <= now), key=lambda one: one[0])
        self.late = sorted((one for one in self.late if one[0] > now), key=lambda one: one[0])
        for moment, effect in due:
            self.true_time = moment
            effect()
        self.true_time = now

    def _renew(self) -> None:
        for one in list(self.renewals):
            if one.actor is None or one.actor.killed or one.actor.over:
                self.renewals.remove(one)
            elif one.due <= self.true_time and one.actor.asleep_until <= self.true_time:
                one.due = self.true_time + one.seconds
                self._renew_one(one)

    def _renew_one(self, one: Renewal) -> None:
        if self.random.random() < self.faults * 5:
            self._count("not renewed")
            return
        self._here.actor = one.actor
        self.running = False  # no turns are taken inside of it
        try:
            one.renew()
        finally:
            self.running = True
            self._here.actor = None

    def _live(self, actor: Actor) -> None:
        self._here.actor = actor
        actor.turn.acquire()
        try:
            actor.work(actor)
        except Killed:
            pass
        except BaseException as error:  # told by `run`
            actor.error = error
        finally:
            actor.over = True
            self._main.release()

    def _yield(self, actor: Actor) -> None:
        self._main.release()
        actor.turn.acquire()
        if actor.killed:
            raise Killed(actor.name)

    def _jump(self, actor: Actor) -> None:
        self._count("jumped")
        if self.random.random() < 0.3:
            actor.frozen = None if actor.frozen else self.now()
        else:
            actor.offset += self.random.choice([-3600, 3600])

    def _count(self, what: str) -> None:
        self.told[what] = self.told.get(what, 0) + 1

    def _actor(self) -> Actor | None:
        return getattr(self._here, "actor", None)


class Simulated(Backend):
    """The world's files as a backend (`metatable.storage.backend.Backend`)."""

    distant, settles = True, False

    def __init__(self, world: World) -> None:
        self._world = world

    def size(self, path: str) -> int | None:
        self._ask("size", path)
        return len(self._files[path][0]) if path in self._files else None

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        self._ask("read", path)
        if path not in self._files:
            return None
        body = self._files[path][0]
        return [body[start : start + size] for start, size in ranges]

    def read_whole(self, path: str) -> bytes | None:
        self._ask("read", path)
        return self._files[path][0] if path in self._files else None

    def put(self, path: str, body: bytes, *, lasting: bool) -> None:
        def effect() -> None:
            self._write(path, body)

        self._change("put", path, effect)

    def create(self, path: str, body: bytes | IO[bytes], *, soon: bool) -> bool:
        if not isinstance(body, bytes):
            body.seek(0)
            body = body.read()
        made: list[bool] = []

        def effect() -> None:
            made.append(path not in self._files)
            if made[-1]:
                self._write(path, body)

        fate = self._change("create", path, effect)
        return made[-1] and fate != "exists"

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        with io.BytesIO() as file:
            yield file
            self.put(path, file.getvalue(), lasting=True)

    def list(self, folder: str, recursive: bool) -> Iterator[Listed]:
        self._ask("list", folder)
        start = f"{folder}/" if folder else ""
        found = [
            Listed(path, len(body), modified)
            for path, (body, modified) in self._files.items()
            if path.startswith(start) and (recursive or "/" not in path[len(start) :])
        ]
        return iter(found)

    def delete(self, path: str) -> None:
        self._change("delete", path, lambda: self._files.pop(path, None))

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """In any order: of one who is killed in between, any part is done."""
        answers: list[Any] = [None] * len(calls)
        for place in self._world.random.sample(range(len(calls)), len(calls)):
            answers[place] = calls[place]()
        return answers

    def _write(self, path: str, body: bytes) -> None:
        self._files[path] = (body, self._world.stamp())
        if TELLS.match(path):
            self._world.told_files.setdefault(path, self._files[path])  # what comes later is void

    @property
    def _files(self) -> dict[str, tuple[bytes, float]]:
        return self._world.files

    def _ask(self, verb: str, path: str) -> None:
        fate = self._world.step(f"{verb} {path}")
        if fate == "before":
            raise _lost(self._world, verb, path)
        if fate == "slow":
            self._world.answer_late()

    def _change(self, verb: str, path: str, effect: Callable[[], Any]) -> str:
        fate = self._world.step(f"{verb} {path}")
        if fate == "later":
            self._world.land_later(effect)
        elif fate != "before":
            effect()
        if fate in ("before", "after", "later"):
            raise _lost(self._world, verb, path)
        if fate == "slow":
            self._world.answer_late()
        return fate


class SimulatedValues:
    """The world's cells (`metatable.storage.key_values.protocol.KeyValues`): of a request any part
    may have its effect, each at a time of its own."""

    def __init__(self, world: World) -> None:
        self._world, self._files = world, Simulated(world)

    def get_many(self, keys: pa.Array) -> pa.RecordBatch:
        self._files._ask("read", f"{len(keys)} rows of cells")
        return self._found(set(keys.to_pylist()))

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array) -> None:
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        cells, held = {(key, name): value for key, value in pairs}, self._world.cells
        assert all(held.get(one, value) == value for one, value in cells.items()), "changed"
        self._change("put", [partial(held.__setitem__, *cell) for cell in cells.items()])

    def delete_many(self, keys: pa.Array, names: pa.Array) -> None:
        cells = zip(keys.to_pylist(), names.to_pylist(), strict=True)
        self._change("delete", [partial(self._world.cells.pop, cell, None) for cell in cells])

    def scan(self, first: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        assert (first, end) == (b"", None) or first
        while True:
            self._files._ask("read", "a page of cells")
            keys = sorted({key for key, _ in self._world.cells if key >= first})[:5]
            if not keys:
                return
            yield self._found(set(keys))
            first = keys[-1] + b"\0"

    def regions(self) -> list[bytes]:
        return [b""]

    def close(self) -> None:
        return

    def _found(self, keys: set[bytes]) -> pa.RecordBatch:
        cells = sorted((*one, value) for one, value in self._world.cells.items() if one[0] in keys)
        columns = zip(*cells, strict=True) if cells else ((), (), ())
        arrays = [pa.array(column, pa.binary()) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=CELLS)

    def _change(self, verb: str, effects: Sequence[Callable[[], object]]) -> None:
        def some() -> None:
            for effect in effects:
                if self._world.random.random() < 0.7:
                    effect()
                else:
                    self._world.land_later(effect)

        fate = self._world.step(f"{verb} {len(effects)} cells")
        if fate in ("after", "later"):
            some()
        elif fate != "before":
            for effect in effects:
                effect()
        if fate in ("before", "after", "later"):
            raise _lost(self._world, verb, "cells")
        if fate == "slow":
            self._world.answer_late()


class Past(Simulated):
    """What was, for whoever looks back: nobody is asked to wait."""

    @property
    def _files(self) -> dict[str, tuple[bytes, float]]:
        return self._world.told_files

    def _ask(self, verb: str, path: str) -> None:
        return


def _lost(world: World, verb: str, path: str) -> Exception:
    """Backends tell by an error of ours, and those that are not ours must be lived with, too."""
    if world.random.random() < 0.5:
        return StoreError("no answer", path=path)
    return Lost(f"{verb} {path}")


@contextmanager
def world_of(seed: int) -> Iterator[World]:
    """A world, and the process's clocks, pauses, ids and chances made its own."""
    world = World(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", world.now)
        patch.setattr(clock, "pause", world.pause)
        patch.setattr(leases, "renewing", world.renewing)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=world.ids.getrandbits(128), version=4))
        patch.setattr(metatable.write.attempts, "random", world.random)
        patch.setattr(local, "_processors", lambda: 1)  # threads would only cost time
        patch.setattr(client, "connect", lambda *place: SimulatedValues(world))
        patch.setattr(client, "_clients", {})
        cache.clear()
        yield world
    cache.clear()
