"""`python -m tests.mutants`: put small faults in, run the tests, tell which nobody noticed.

Exit code 1 where less than `--share` of those that are faults were noticed. The same seed and
tree pick the same mutants; `--only PATH` all of one module. A mutant that the tests near to its
module let live meets all others too (`--near` leaves that out).
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant, mutants_of, sample
from tests.mutants.rooms import ROOMS, WIDE, Room, modules
from tests.mutants.running import Copy, Outcome

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
LIMIT_FACTOR, LIMIT_LEAST_S = 3, 60
"""A mutant gets so many times what its tests take without it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    room: Room
    mutant: Mutant
    source: bytes

    @property
    def where(self) -> str:
        inside = f" in {self.mutant.inside}" if self.mutant.inside else ""
        return f"{self.mutant.path}:{self.mutant.line}{inside}"

    def told(self, outcome: str, more: str) -> str:
        changed = (f"    {line}" for line in self.mutant.diff(self.source))
        return "\n".join((f"{outcome:9} {self.where}  {more}", *changed))


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    chosen = _chosen(args.only, args.count, args.seed)
    known = equivalents()
    fit = [one for one in chosen if one.mutant.name(one.source) not in known]
    print(
        f"{len(chosen)} mutants, seed {args.seed}; {len(chosen) - len(fit)} known to be no faults"
    )
    if args.list:
        print("\n".join(one.told("mutant", "") for one in fit))
        return 0
    survivors = []
    for done, (one, outcome) in enumerate(_run(fit, args.jobs, args.near), 1):
        counted = f"[{done}/{len(fit)}] {outcome.seconds:.0f} s {outcome.by}"
        print(one.told(outcome.end, counted), flush=True)
        if outcome.end == "survived":
            survivors.append(one)
    return _report(fit, survivors, args.share)


def equivalents() -> dict[str, str]:
    """Names of mutants that alter nothing that could be noticed, and why."""
    listed = tomllib.loads(EQUIVALENTS.read_text("utf-8")).get("mutant", [])
    return {
        "\n".join((one["path"], one["inside"], *one["diff"].strip().splitlines())): one["because"]
        for one in listed
    }


def _chosen(only: str | None, count: int, seed: int) -> list[Chosen]:
    held = {path: room for room in ROOMS for path in modules(ROOT, room)}
    if only is None:
        rooms = [[path for path in held if held[path] is room] for room in ROOMS]
        picked = sample(ROOT, rooms, count, seed)
    elif only in held:
        picked = mutants_of(only, (ROOT / only).read_bytes())
    else:
        raise SystemExit(f"no such module: {only} (as storage/store.py or metatable/write.py)")
    return [Chosen(held[one.path], one, (ROOT / one.path).read_bytes()) for one in picked]


def _run(chosen: Sequence[Chosen], jobs: int, near_only: bool) -> Iterator[tuple[Chosen, Outcome]]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(jobs):
            copies.put(Copy(ROOT, Path(work, f"{number}")))
        wide = () if near_only else WIDE
        with ThreadPoolExecutor(jobs) as pool:
            sets = sorted({tests for one in chosen for tests in one.room.tests} | ({wide} - {()}))
            fits = dict(zip(sets, pool.map(lambda one: _fit(copies, one), sets), strict=True))
            outcomes = pool.map(lambda one: _meet(copies, one, wide, fits), chosen)
            yield from zip(chosen, outcomes, strict=True)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Tests that pass without a mutant, and the time that they get with one."""

    tests: tuple[str, ...]
    limit_s: float


def _fit(copies: queue.Queue[Copy], tests: tuple[str, ...]) -> _Fit:
    copy = copies.get()
    try:
        failing, seconds = copy.failing(tests)
    finally:
        copies.put(copy)
    left_out = tuple(f"--deselect={one}" for one in failing)
    print(f"{seconds:.0f} s without a mutant: {' '.join((*tests, *left_out))}", flush=True)
    return _Fit((*tests, *left_out), max(LIMIT_LEAST_S, LIMIT_FACTOR * seconds))


def _meet(
    copies: queue.Queue[Copy],
    one: Chosen,
    wide: tuple[str, ...],
    fits: dict[tuple[str, ...], _Fit],
) -> Outcome:
    copy = copies.get()
    try:
        for tests in filter(None, (*one.room.tests, wide)):
            outcome = copy.meet(one.mutant, fits[tests].tests, fits[tests].limit_s)
            if outcome.end != "survived":
                break
    finally:
        copies.put(copy)
    return outcome


def _report(fit: Sequence[Chosen], survivors: Sequence[Chosen], least: float) -> int:
    noticed = len(fit) - len(survivors)
    share = noticed / len(fit) if fit else 1.0
    print(f"\n{noticed} of {len(fit)} noticed, {share:.1%}; {len(survivors)} survivors:")
    print("\n".join(one.told("survived", "") for one in survivors))
    return int(share < least)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", metavar="PATH", help="all mutants of this module")
    parser.add_argument("--near", action="store_true", help="only the tests near to the module")
    parser.add_argument("--share", type=float, default=0.95, help="to be noticed at least")
    parser.add_argument("--list", action="store_true", help="print them, run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
