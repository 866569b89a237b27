"""Looking on: what a process and all that it starts hold of memory, and how long they work.

Memory is the proportional set size (PSS), sampled: of Pythons together, and of JVMs apart. The
system walks over all pages of a process for it, 10 to 50 ms a GiB, while who needs a page waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SAMPLE_SECONDS", "Peaks", "most_resident_bytes", "processor_seconds", "watched"]

SAMPLE_SECONDS = 0.2

Peaks = dict[str, int]
"""The greatest sum of PSS in bytes by kind of process: "python", "java"."""


@contextmanager
def watched(process: int, share: float = 1.0) -> Iterator[Peaks]:
    """The peaks of a process and its family until the end. `share`: the share of the time that
    looking may take; where it takes more it is done less often."""
    peaks, over = {"python": 0, "java": 0}, threading.Event()
    watching = threading.Thread(target=_watch, args=(process, share, peaks, over))
    watching.start()
    try:
        yield peaks
    finally:
        over.set()
        watching.join()


def processor_seconds(process: int) -> float:
    """What a process and its family have worked so far, children that have ended included."""
    stats = _stats()
    ticks = sum(sum(map(int, stats[one][11:15])) for one in _family(process, stats))
    return ticks / os.sysconf("SC_CLK_TCK")


def most_resident_bytes() -> int:
    """The most memory that this process has held until now. (`getrusage` tells also what its parent
    held when it began.)"""
    status = _read(os.getpid(), "status")
    [line] = [one for one in status.splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def _watch(root: int, share: float, peaks: Peaks, over: threading.Event) -> None:
    took = 0.0
    while not over.wait(max(SAMPLE_SECONDS, took / share)):
        began = time.perf_counter()
        held = {"python": 0, "java": 0}
        for process in _family(root, _stats()):
            kind = "java" if "java" in _read(process, "comm") else "python"
            held[kind] += _pss(process)
        for kind, size in held.items():
            peaks[kind] = max(peaks[kind], size)
        took = time.perf_counter() - began


def _stats() -> dict[int, list[str]]:
    """What the system tells of each process, from its state on."""
    numbers = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    told = {one: _read(one, "stat").rpartition(")")[2].split() for one in numbers}
    return {one: words for one, words in told.items() if words}


def _family(root: int, stats: dict[int, list[str]]) -> list[int]:
    """The process and all that it has started, directly or not, and that still run."""
    family = {root} & stats.keys()
    while grown := {one for one, words in stats.items() if int(words[1]) in family} - family:
        family |= grown
    return sorted(family)


def _pss(process: int) -> int:
    for line in _read(process, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text("utf-8", "replace")
    except OSError:  # it is gone
        return ""
