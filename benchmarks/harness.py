"""How a benchmark measures and reports.

A module has a `QUESTION` and a function `cases(setup)`, which makes its data and yields cases.
A case is one thing that we do, and peers that do the same. Everything is run once to warm up,
unless each run is a process of its own; then ours and the peers' in turn, so that a busy machine
is as unkind to all of them. What is reported is the median, least and greatest of the runs,
ratios are of medians:

    ratio = peer_median / median      above 1: we are ahead

A case may have to take at most so much, and to be so many times as fast as a peer: such a
target stands in the setting, and the reading says whether it was met.

A peer that cannot be asked is reported as null, with the reason; so is a case that is left
out. `--json` prints one object a line, with exactly the keys of `FIELDS`, and nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.data import Cupboard
from metatable.storage import cache

__all__ = [
    "FIELDS",
    "FLOOR",
    "Case",
    "Measure",
    "Peer",
    "Setup",
    "absent",
    "amount",
    "left_out",
    "lines",
    "machine",
    "main",
    "our_spark",
    "package",
    "run_module",
    "timed",
    "timed_on_copies",
]

FIELDS = (
    "bench",
    "case",
    "unit",
    "median",
    "min",
    "max",
    "runs",
    "peer",
    "peer_median",
    "ratio",
    "setting",
)

RUNS = 5

FLOOR = "floor: "
"""Begins the name of a peer that does only a part of the work, the part that nobody can spare."""

PACKAGES = ("metatable", "numpy", "pyarrow", "isal")
"""Versions that every line tells; a peer's is in its name."""

Measure = Callable[[], float]
"""Does the thing once, and returns what it took, in the case's unit."""

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a module is given: how large, where its data is kept, and what alone is asked for.

    A module need not make data for cases whose name does not hold `only`.
    """

    full: bool
    cupboard: Cupboard
    only: str = ""

    def asks(self, *names: str) -> bool:
        """Whether a case of one of these names is to be measured."""
        return any(self.only in name for name in names)

    def tenth(self, count: int) -> int:
        """`count`, or a tenth of it when the size is small."""
        return count if self.full else count // 10


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who does the same. `measure` is None where he cannot be asked, `why` says why.

    `target` is the ratio that we mean to reach.
    """

    name: str
    measure: Measure | None
    why: str = ""
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that we do. `reading` ends the sentence that reads the ratio.

    `target` is the median that we mean not to pass. `warm_up` is False where each run is a
    process of its own, to which a run before it means nothing.
    """

    name: str
    setting: str
    measure: Measure | None
    peers: Sequence[Peer] = ()
    reading: str = ""
    unit: str = "s"
    target: float | None = None
    warm_up: bool = True


def absent(name: str, why: str) -> Peer:
    """A peer that is named, and cannot be asked."""
    return Peer(name, None, why)


def left_out(name: str, why: str) -> Case:
    """A case that is not run at this size."""
    return Case(name, why, None)


def package(name: str) -> ModuleType | None:
    """A package of a peer, None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def our_spark() -> tuple[ModuleType | None, str]:
    """Our module of Spark sessions; None, and why, where Spark cannot run here."""
    session = package("metatable.spark.session")
    if session is None:
        return None, "pyspark is not installed: make venv"
    if session.find_java() is None:
        return None, "no Java 17 or newer here"
    return session, ""


@dataclass(slots=True)
class Timed:
    """A measure in seconds, that remembers the processor's: on a busy machine those say more."""

    run: Callable[[], Any]
    prepare: Callable[[], Any] | None
    check: Callable[[Any], Any] | None
    processor: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        if self.prepare is not None:
            self.prepare()
        began, worked = time.perf_counter(), time.process_time()
        answer = self.run()
        seconds = time.perf_counter() - began
        self.processor.append(time.process_time() - worked)
        if self.check is not None:
            self.check(answer)
        return seconds


def timed(
    run: Callable[[], Any],
    *,
    prepare: Callable[[], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
) -> Timed:
    """`run` in seconds, between an untimed `prepare` and a `check` of what it returned."""
    return Timed(run, prepare, check)


def timed_on_copies(
    cupboard: Cupboard,
    source: Path,
    run: Callable[[Path], Any],
    check: Callable[[Any], Any] | None = None,
) -> Timed:
    """`run` in seconds, each time on a copy of `source` of its own, caches of the process empty."""
    copies: list[Path] = []

    def prepare() -> None:
        for old in copies:
            cupboard.drop(old)
        copies[:] = [cupboard.copy(source)]
        cache.clear()

    return timed(lambda: run(copies[0]), prepare=prepare, check=check)


def lines(bench: str, case: Case, runs: int) -> list[Line]:
    """Measure a case: one line a peer that was measured or is missing, one without any."""
    asked = [peer for peer in case.peers if peer.measure and case.measure]
    measures = [one for one in (case.measure, *(peer.measure for peer in asked)) if one]
    found: list[list[float]] = [[] for _ in measures]
    for run in range(runs + case.warm_up):
        for place, measure in enumerate(measures):
            value = measure()
            if run >= case.warm_up:
                found[place].append(value)
    ours, theirs = (found[0], found[1:]) if found else ([], [])
    made = [
        _line(bench, case, ours, peer.name, values, _target(peer.name, peer.target))
        for peer, values in zip(asked, theirs, strict=True)
    ]
    for peer in case.peers:
        if peer.measure is None:
            made.append(_line(bench, case, ours, None, [], f"no {peer.name}: {peer.why}"))
    return made or [_line(bench, case, ours, None, [])]


def _line(
    bench: str,
    case: Case,
    ours: Sequence[float],
    peer: str | None,
    theirs: Sequence[float],
    why: str = "",
) -> Line:
    median, peer_median = _median(ours), _median(theirs)
    ratio = peer_median / median if median and peer_median is not None else None
    at_most = f"target: {amount(case.target, case.unit)}" if case.target else ""
    setting = "; ".join(filter(None, (case.setting, at_most, why, machine())))
    values = (
        bench,
        case.name,
        case.unit,
        median,
        min(ours, default=None),
        max(ours, default=None),
        len(ours),
        peer,
        peer_median,
        ratio,
        setting,
    )
    return dict(zip(FIELDS, values, strict=True))


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def machine() -> str:
    """This machine and what runs on it, in a few words."""
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB; "
        f"Python {platform.python_version()}, {', '.join(versions)}"
    )


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    facts = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
    stripped = {name.strip(): value.strip() for name, value in facts.items()}
    return stripped.get("model name") or platform.machine()


WIDEST = 40
"""Characters of the words before what is told, at most."""


def block(case: Case, made: Sequence[Line]) -> str:
    """The lines of a case as people read them."""
    first = made[0]
    rows = [("setting", f"{case.setting}; {machine()}"), ("ours", "not run")]
    if first["runs"]:
        low, middle, high = (amount(first[name], case.unit) for name in ("min", "median", "max"))
        told = f"{middle} (least {low}, most {high}, {first['runs']} runs)"
        rows[1] = ("ours", told + _processor_seconds(case, case.measure))
        if case.target:
            rows.append(("target", _at_most(first["median"], case)))
    peers = {peer.name: peer for peer in case.peers}
    for line in made:
        if line["peer"]:
            peer = peers[line["peer"]]
            told = amount(line["peer_median"], case.unit)
            rows.append((peer.name, told + _processor_seconds(case, peer.measure)))
            rows.append(("reading", reading(line, case.reading, peer.target)))
    rows += [("floor", told) for told in _allowed(made, peers)]
    rows += [("peer", f"no {peer.name}: {peer.why}") for peer in case.peers if not peer.measure]
    if case.reading and not any(line["peer"] for line in made):
        rows.append(("reading", f"{case.reading[:1].upper()}{case.reading[1:]}."))
    width = min(max(len(name) for name, _ in rows), WIDEST) + 2
    body = [f"  {_label(name, width)}" + _wrapped(text, width + 2) for name, text in rows]
    return "\n".join([case.name, *body, ""])


def _allowed(made: Sequence[Line], peers: Mapping[str, Peer]) -> Iterator[str]:
    """For each target beside a peer, whether it would be reached by whoever does no more than a
    floor does."""
    medians = {str(line["peer"]): line["peer_median"] for line in made if line["peer"]}
    floors = {name: median for name, median in medians.items() if name.startswith(FLOOR)}
    for name in (one for one in medians if one not in floors):
        target = peers[name].target
        for median in floors.values():
            if target and median:
                ratio = medians[name] / median
                word = "allows" if ratio >= target else "forbids"
                yield f"It is {ratio:.2f} times as fast as {name}: {word} the target of {target:g}."


def _processor_seconds(case: Case, measure: Measure | None) -> str:
    """What this process worked, the threads of all its libraries together; or those that the
    measure looked on at."""
    worked = getattr(measure, "processor", [])[case.warm_up :]
    return f", {amount(statistics.median(worked), 's')} of processor" if any(worked) else ""


def _at_most(median: float, case: Case) -> str:
    assert case.target is not None
    met = "met" if median <= case.target else "not met"
    return f"at most {amount(case.target, case.unit)}: {met}"


def _target(peer: str, ratio: float | None) -> str:
    if ratio is None:
        return ""
    if peer.startswith(FLOOR):
        return f"target: at most {1 / ratio:.3g} times as long as the floor"
    return f"target: at least {ratio:.3g} times as fast"


def reading(line: Mapping[str, Any], why: str, target: float | None = None) -> str:
    """The sentence that reads a ratio, and another that holds it against the target."""
    ratio, peer = line["ratio"], str(line["peer"])
    if ratio is None:
        standing = "There is nothing to divide"
    elif peer.startswith(FLOOR):
        standing = f"We take {1 / ratio:.2f} times as long as the floor"
    elif line["unit"] != "s":
        standing = f"{peer} takes {ratio:.2f} times as much as we do"
    elif ratio >= 1:
        standing = f"We are {ratio:.2f} times as fast as {peer}"
    else:
        standing = f"We take {1 / ratio:.2f} times as long as {peer}"
    told = f"{standing}{': ' + why if why else ''}."
    if target is None or ratio is None:
        return told
    aim = _target(peer, target)
    return f"{told} {aim[:1].upper()}{aim[1:]}, {'met' if ratio >= target else 'not met'}."


def amount(value: float, unit: str) -> str:
    """A measured value as people read it."""
    if unit != "s":
        return f"{value:,.0f} {unit}"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.2f} s"


def _label(name: str, width: int) -> str:
    """One that is longer than the others has a line of its own."""
    return f"{name:<{width}}" if len(name) < width else f"{name}\n  {'':<{width}}"


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, 100 - indent).replace("\n", "\n" + " " * indent)


def main(
    bench: str,
    question: str,
    cases: Callable[[Setup], Iterator[Case]],
    arguments: Sequence[str] | None = None,
    runs: int = RUNS,
) -> int:
    """A benchmark's command line; `runs`, where it names none."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{bench}", description=question)
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--json", action="store_true", help="one object a line, nothing else")
    parser.add_argument("--runs", type=int, default=runs, help="after one to warm up")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--data", type=Path, help="folder for data that is kept between calls")
    given = parser.parse_args(arguments)
    setup = Setup(given.size == "full", Cupboard(given.data), given.only)
    if not given.json:
        print(textwrap.fill(f"{bench}: {question}", 100), end="\n\n", flush=True)
    with setup.cupboard:
        for case in cases(setup):
            if given.only not in case.name:
                continue
            made = lines(bench, case, max(given.runs, 1))
            told = [json.dumps(line) for line in made] if given.json else [block(case, made)]
            print(*told, sep="\n", flush=True)
    return 0


def run_module(module: Mapping[str, Any]) -> None:
    """What a benchmark's `if __name__ == "__main__"` calls, with its `globals()`. Where a run
    takes minutes, the module says by `RUNS` how many are enough."""
    name = Path(str(module["__file__"])).stem
    runs = int(module.get("RUNS", RUNS))
    sys.exit(main(name, str(module["QUESTION"]), module["cases"], runs=runs))
