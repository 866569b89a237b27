"""A process that writes a table at random until it is killed, and tells a log what it does.

A line of JSON each, on the disk's side of a SIGKILL before anything happens that it tells of:

    begin    what it sets out to do, and with which rows
    instant  taken by an attempt of it, before anything can be published under it
    done     acknowledged: version, and instant and counts, or the rows that were read
    refused  an error that a caller has to reckon with: another writer was first, nothing to undo
    failed   any other error: nobody has to reckon with that

So an instant in the table's history tells which operation it was, whether its process has
lived to hear of it or not.
"""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import obstore  # noqa: F401  (what a writer needs is there before the fork)
import pyarrow.parquet  # noqa: F401

import metatable
from metatable import ConflictError, StaleError, UsageError
from metatable.metadata.commits.transaction import Transaction
from tests.model import Row, arrow, scanned

KEYS, CITIES, BATCH = 60, ("ny", "sf", "la"), 8

SHARES = {"upsert": 10, "move": 4, "delete": 4, "minor": 3, "major": 2, "rollback": 2, "read": 3}
"""How often each is done; in a run a third of it, so often, or three times as often."""


@dataclass(frozen=True, slots=True)
class Job:
    """A process: `number` is its own among all of a run."""

    uri: str
    storage_options: Mapping[str, str]
    folder: Path
    number: int
    seed: int

    @property
    def log(self) -> Path:
        return self.folder / f"{self.number:04}.jsonl"


def write_on(job: Job) -> None:
    """Until somebody kills it."""
    tempfile.tempdir = str(job.folder)  # what a killed one leaves there goes with the test
    random = Random(f"{job.seed}/{job.number}")
    shares = shares_of(job.seed)
    with open(job.log, "a") as log:

        def tell(kind: str, **facts: Any) -> None:
            log.write(json.dumps({"kind": kind, **facts}) + "\n")
            log.flush()

        _tell_instants(tell)
        table = metatable.open(job.uri, storage_options=dict(job.storage_options))
        step = 0
        while True:
            step += 1
            verb = random.choices(list(shares), list(shares.values()))[0]
            given = _rows(random, verb, job.number * 10_000 + step)
            tell("begin", verb=verb, rows=given)
            try:
                tell("done", **_done(table, verb, given))
            except (ConflictError, StaleError, UsageError) as error:
                tell("refused", error=f"{type(error).__name__}: {error}")
            except BaseException:
                tell("failed", error=traceback.format_exc())


def shares_of(seed: int) -> dict[str, float]:
    """The same for all processes of a run."""
    random = Random(seed)
    return {verb: share * random.choice((1 / 3, 1, 3)) for verb, share in SHARES.items()}


def _tell_instants(tell: Callable[..., None]) -> None:
    start = Transaction.start

    def telling(transaction: Transaction, action: str = "commit") -> str:
        instant = start(transaction, action)
        tell("instant", instant=instant)
        return instant

    Transaction.start = telling  # type: ignore[method-assign]


def _rows(random: Random, verb: str, v: int) -> list[Row]:
    if verb not in ("upsert", "move", "delete"):
        return []
    numbers = random.sample(range(KEYS), random.randint(1, BATCH))
    home = random.randrange(1, len(CITIES)) if verb == "move" else 0
    return [
        {
            "id": f"k{number:03}",
            "city": CITIES[(number + home) % len(CITIES)],
            "v": v,
            "ts": random.randrange(5),
        }
        for number in numbers
    ]


def _done(table: metatable.Table, verb: str, given: list[Row]) -> dict[str, Any]:
    if verb in ("upsert", "move"):
        return _facts(table.upsert(arrow(given)))
    if verb == "delete":
        return _facts(table.delete(arrow(given)))
    if verb == "read":
        version = table.version
        return {"version": version, "found": scanned(table, version)}
    if verb == "rollback":
        return {"version": table.rollback().version}
    return {"version": table.compact(major=verb == "major").version}


def _facts(result: Any) -> dict[str, Any]:
    counts = ("inserted", "updated", "moved", "stale", "deleted", "absent")
    told = {name: getattr(result, name) for name in counts}
    return {"version": result.version, "instant": result.instant, "counts": told}
