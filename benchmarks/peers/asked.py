"""Peers as benchmarks ask them: warm, with answers that are checked, or named as missing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from benchmarks.harness import Peer, absent
from benchmarks.peers import rust
from benchmarks.peers.jars import HBASE, HUDI_IO, MissingError
from benchmarks.peers.program import WARM, Answer, PeerError, Program, java

__all__ = ["Asked", "Peers"]

WARM_UP_RUNS = 200
"""So often at most, however short a command is."""
AGAIN = 5
"""A kind of command that has been warmed up on another file gets this fraction of the time."""

Check = Callable[[Answer], object]


class Asked:
    """One peer. `program` is None where it cannot be asked, `why` says why."""

    def __init__(self, name: str, start: Callable[[], Program], warm_up_s: float) -> None:
        self.name = name
        self.program: Program | None = None
        self.why = ""
        self._warm_up_s = warm_up_s
        self._warmed: set[tuple[object, str]] = set()
        try:
            self.program = start()
        except MissingError as error:
            self.why = str(error)

    @property
    def title(self) -> str:
        return self.program.title if self.program else self.name

    def peer(
        self,
        label: str,
        *words: object,
        check: Check,
        times: int = 1,
        warm_up: tuple[object, ...] | None = None,
        target: float | None = None,
    ) -> Peer:
        """The command in `words`, measured by the peer; `label` ends its name.

        Before it is first measured it is repeated, or `warm_up` in its place, until the peer
        is warm. Of `times` runs that make one measurement the median counts.
        """
        if self.program is None:
            return absent(self.name, self.why)
        program, warm = self.program, [False]
        try:
            program.ask(*words)
        except PeerError as error:  # hudi-rs cannot read every file of hudi-io's, for one
            return absent(self.title, str(error).splitlines()[0])

        def measure() -> float:
            if not warm[0]:
                self._warm(program, warm_up or words, label)
                warm[0] = True
            answers = [program.ask(*words) for _ in range(times)]
            for answer in answers:
                check(answer)
            return statistics.median(answer.seconds for answer in answers)

        return Peer(f"{self.title}, {label}" if label else self.title, measure, target=target)

    def _warm(self, program: Program, words: tuple[object, ...], label: str) -> None:
        kind = words[0], label
        seconds = self._warm_up_s / AGAIN if kind in self._warmed else self._warm_up_s
        self._warmed.add(kind)
        began = time.perf_counter()
        for _ in range(WARM_UP_RUNS):
            program.ask(*words)
            if time.perf_counter() - began > seconds:
                break


class Peers:
    """All of them, running; a context manager that ends them."""

    def __init__(self, warm_up_s: float) -> None:
        self.hudi_io = Asked("hudi-io", lambda: java(HUDI_IO, WARM), warm_up_s)
        self.hbase = Asked("HBase", lambda: java(HBASE, WARM), warm_up_s)
        self.hudi_rs = Asked("hudi-rs", rust.program, warm_up_s)

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            for one in (self.hudi_io, self.hbase, self.hudi_rs):
                if one.program:
                    stack.enter_context(one.program)
