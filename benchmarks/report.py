"""Lines of benchmarks as Markdown: what `BENCHMARKS.md` holds, from what `--json` printed.

    make bench SIZE=full JSON=lines.jsonl
    python -m benchmarks.report lines.jsonl

One table a benchmark, one row a case and peer, in the order in which they were measured. Where a
case is in the file twice, the later one counts: so a line may be measured again. Exits with 2
where a line is not one of `harness.FIELDS`.
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

_HEAD = ("what", "ours", "least, most (runs)", "beside", "theirs", "ratio", "asked")
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
        yield _table(row for peers in cases.values() for row in _rows(list(peers.values())))


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


def _rows(lines: Sequence[Line]) -> Iterator[Sequence[str]]:
    """Of one case. Peers that could not be asked are left to the JSON, where another could."""
    asked = [line for line in lines if line["peer"]] or lines[:1]
    floors = [line["peer_median"] for line in asked if str(line["peer"]).startswith(FLOOR)]
    for place, line in enumerate(asked):
        targets = [_Target(text) for text in _TARGET.findall(line["setting"])]
        told = [one.held(line, floors) for one in targets if place == 0 or one.beside_a_peer]
        yield (*(_ours(line) if place == 0 else ("", "", "")), *_theirs(line), "; ".join(told))


def _ours(line: Line) -> tuple[str, str, str]:
    if not line["runs"]:
        return line["case"], "not run", ""
    low, middle, high = (amount(line[name], line["unit"]) for name in ("min", "median", "max"))
    return line["case"], middle, f"{low}, {high} ({line['runs']})"


def _theirs(line: Line) -> tuple[str, str, str]:
    if line["ratio"] is None:
        return "", "", ""
    peer, ratio = str(line["peer"]), line["ratio"]
    times = f"{1 / ratio:.3g} times as long" if peer.startswith(FLOOR) else f"**{ratio:.3g}**"
    return peer, amount(line["peer_median"], line["unit"]), times


class _Target:
    """What was asked, as the harness words it in a setting."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.number = float(_NUMBER.findall(text)[0].replace(",", ""))
        self.beside_a_peer = " times " in text

    def held(self, line: Line, floors: Sequence[float]) -> str:
        """Whether it was met; and if not, whether who does no more than a floor would meet it."""
        if not self.beside_a_peer:
            most = self.number / 1000 if self.text.endswith(" ms") else self.number
            ran = bool(line["runs"])
            return _word(f"at most {self.text}", ran, ran and line["median"] <= most)
        asked, ratio = self.text.partition(" times ")[0] + " times", line["ratio"]
        if self.text.startswith("at most"):
            return _word(asked, ratio is not None, ratio and 1 / ratio <= self.number)
        told = _word(asked, ratio is not None, ratio and ratio >= self.number)
        allowed = [line["peer_median"] / floor for floor in floors if ratio and floor]
        if ratio and ratio < self.number and allowed and min(allowed) < self.number:
            told += f", forbidden by the floor: {min(allowed):.3g}"
        return told


def _word(asked: str, measured: bool, met: bool | float | None) -> str:
    return f"{asked}: {'met' if met else '**not met**'}" if measured else asked


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
