"""Lines of benchmarks as Markdown: what `BENCHMARKS.md` holds, from what `--json` printed.

    make bench SIZE=full JSON=lines.jsonl
    python -m benchmarks.report lines.jsonl

One table a benchmark, one row a case, in the order in which they were measured. Behind a peer's
median stands our ratio, behind a floor's how many times as long we take. Where a case is in the
file twice, the later one counts: so a line may be measured again. Exits with 2 where a line is
not one of `harness.FIELDS`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import FIELDS, FLOOR, Line, amount

__all__ = ["main", "tables"]

_HEAD = ("what", "ours", "least, most (runs)", "beside", "asked")
_TARGET = re.compile(r"(?<=; target: )[^;]+")
_NUMBER = re.compile(r"\d[\d,.]*")


class NotALineError(ValueError):
    """A line that no benchmark printed."""


def tables(told: Iterable[str]) -> Iterator[str]:
    """A heading and a table for each benchmark whose lines (JSON) are told."""
    benches: dict[str, dict[str, dict[str | None, Line]]] = {}
    for number, text in enumerate(told, 1):
        line = _line(text, number)
        cases = benches.setdefault(line["bench"], {})
        peers = cases.setdefault(line["case"], {})
        if line["peer"] is not None and line["peer"] in peers:
            peers.clear()
        peers[line["peer"]] = line
    for bench, cases in benches.items():
        yield f"## {bench}: {_question(bench)}"
        yield _table(_row(list(peers.values())) for peers in cases.values())


def _line(text: str, number: int) -> Line:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict) or tuple(line) != FIELDS:
        raise NotALineError(f"line {number} is none of a benchmark's --json: {text[:60].strip()}")
    return line


def _question(bench: str) -> str:
    question = str(importlib.import_module(f"benchmarks.{bench}").QUESTION)
    return question[:1].lower() + question[1:]


def _table(rows: Iterable[Sequence[str]]) -> str:
    made = [_HEAD, ["---"] * len(_HEAD), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in made) + "\n"


def _row(lines: Sequence[Line]) -> Sequence[str]:
    """The row of one case. Peers that could not be asked are left to the JSON."""
    asked = [line for line in lines if line["ratio"] is not None]
    floors = [line["peer_median"] for line in asked if _is_floor(line)]
    told = [one for place, line in enumerate(lines) for one in _held(line, floors, place == 0)]
    return (*_ours(lines[0]), "; ".join(map(_theirs, asked)), "; ".join(told))


def _held(line: Line, floors: Sequence[float], is_first: bool) -> Iterator[str]:
    """What was asked beside this peer, and, where it is the first, of ours alone."""
    for text in _TARGET.findall(line["setting"]):
        target = _Target(text)
        if is_first or target.beside_a_peer:
            yield target.held(line, floors)


def _is_floor(line: Line) -> bool:
    return str(line["peer"]).startswith(FLOOR)


def _ours(line: Line) -> tuple[str, str, str]:
    if not line["runs"]:
        return line["case"], "not run", ""
    low, middle, high = (amount(line[name], line["unit"]) for name in ("min", "median", "max"))
    return line["case"], middle, f"{low}, {high} ({line['runs']})"


def _theirs(line: Line) -> str:
    ratio, theirs = line["ratio"], amount(line["peer_median"], line["unit"])
    times = f"x{1 / ratio:.3g}" if _is_floor(line) else f"**{ratio:.3g}**"
    return f"{line['peer']} {theirs} ({times})"


class _Target:
    """What was asked, as the harness words it in a setting."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.number = float(_NUMBER.findall(text)[0].replace(",", ""))
        self.beside_a_peer = " times " in text

    def held(self, line: Line, floors: Sequence[float]) -> str:
        """Whether it was met; if not, by how much one would who does no more than the floors."""
        if not self.beside_a_peer:
            most = self.number / 1000 if self.text.endswith(" ms") else self.number
            return _word(f"≤ {self.text}", line["median"], line["median"] or 0, at_most=most)
        peer, ratio = str(line["peer"]), line["ratio"]
        if self.text.startswith("at most"):
            return _word(f"floor ≤ {self.number:g}", ratio, 1 / (ratio or 1), at_most=self.number)
        told = _word(f"{peer} ≥ {self.number:g}", ratio, self.number, at_most=ratio or 0)
        allowed = [line["peer_median"] / floor for floor in floors if ratio and floor]
        if not ratio or ratio >= self.number or not allowed:
            return told
        word = "allows" if min(allowed) >= self.number else "forbids it: allows"
        return f"{told}, the floor {word} {min(allowed):.3g}"


def _word(asked: str, measured: float | None, told: float, *, at_most: float) -> str:
    if measured is None:
        return asked
    return f"{asked}: {'met' if told <= at_most else '**not met**'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=_summary())
    parser.add_argument("files", nargs="+", type=Path, help="what --json printed")
    given = parser.parse_args(arguments)
    try:
        told = [line for file in given.files for line in file.read_text("utf-8").splitlines()]
        print(*tables(told), sep="\n\n")
    except (OSError, NotALineError) as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 2
    return 0


def _summary() -> str:
    return str(__doc__).partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
