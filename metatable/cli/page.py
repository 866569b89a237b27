"""A page that a person reads while a job runs: a line per step, what it cost, notes below it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import metatable
from metatable.cli.render import count, heading, size

__all__ = ["Page", "Step"]

_COSTS = {
    "requests": "store.requests",
    "read": "store.bytes_read",
    "written": "store.bytes_written",
}
_WIDTHS = {"rows": 8, "files": 6, "requests": 9, "read": 9, "written": 9, "seconds": 8}
_TITLE_WIDTH = 44


@dataclass(slots=True)
class Step:
    """What a step has to say for itself; costs are counted around it."""

    rows: int | None = None
    files: int | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(slots=True)
class Page:
    """The page that is read: a line per step, notes below it, and what was not as expected."""

    out: TextIO
    steps: int = 0
    wrong: list[str] = field(default_factory=list)

    def tell(self, text: str = "") -> None:
        print(text, file=self.out, flush=True)

    def heads(self) -> None:
        heads = "".join(f"{head:>{width}}" for head, width in _WIDTHS.items())
        self.tell(f"{'step':<{_TITLE_WIDTH}}{heads}")

    @contextmanager
    def step(self, title: str, table: metatable.Table | None = None) -> Iterator[Step]:
        """A step; of `table`, its cost is what the table counts meanwhile."""
        self.steps += 1
        head = f"{self.steps:>2}. {title}"
        print(heading(f"{head:<{_TITLE_WIDTH}}", self.out), end="", file=self.out, flush=True)
        step = Step()
        before = dict(table.counters) if table is not None else {}
        began = time.perf_counter()
        try:
            yield step
        except BaseException:
            self.tell()
            raise
        seconds = time.perf_counter() - began
        counters = table.counters.since(before) if table is not None else None
        self.tell(_line(step, seconds, counters))
        for note in step.notes:
            self.tell(f"    {note}")

    def skip(self, title: str, why: str) -> None:
        self.steps += 1
        self.tell(heading(f"{self.steps:>2}. {title}", self.out))
        self.tell(f"    left out: {why}")

    def expect(self, what: str, found: Any, expected: Any) -> None:
        """Remember, and say, that something is not as expected."""
        if found != expected:
            told = [f"{one:,}" if isinstance(one, int) else str(one) for one in (expected, found)]
            self.wrong.append(f"NOT AS EXPECTED: {what}: expected {told[0]}, found {told[1]}")
            self.tell(f"    {self.wrong[-1]}")


def _line(step: Step, seconds: float, counters: Mapping[str, int] | None) -> str:
    cells = {"rows": count(step.rows), "files": count(step.files), "seconds": f"{seconds:.2f}"}
    for head, name in _COSTS.items():
        amount = None if counters is None else counters.get(name, 0)
        cells[head] = count(amount) if head == "requests" else size(amount)
    return "".join(f"{cells[head]:>{width}}" for head, width in _WIDTHS.items())
