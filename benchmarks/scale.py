"""Scale: what does ten times the rows cost, when few of them are asked for, and when many are?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import metatable
from benchmarks.data import KEY_BYTES, batch_rows, make_table, rows_of
from benchmarks.harness import Case, Measure, Peer, Setup, run_module, timed
from benchmarks.points import filtered, same
from benchmarks.tag import joined
from metatable.storage import cache

QUESTION = (
    "A table has a hundred million rows: what do finding some keys, and reading their rows, cost "
    "beside the same of a table of a tenth of it?"
)

TIMES = 10
INDEX = "record"
ROWS = 100
KEYS = (1_000, 1_000_000)
STATES = {"cold": True, "warm": False}
"""Cold: the table is opened, and nothing of it is known."""

Tables = tuple[metatable.Table, metatable.Table]
"""The large one, and the one of a tenth of its rows."""


def cases(setup: Setup) -> Iterator[Case]:
    """Rows of a few keys, and lookups of more."""
    held = 100_000_000 if setup.full else 1_000_000
    tables = _table(setup, held), _table(setup, held // TIMES)
    for state in STATES:
        yield _points(tables, held, state)
        for count in KEYS:
            if count < held // TIMES:
                yield _tag(tables, held, count, state)
    if max(KEYS) < held // TIMES:
        tables = _compacted(setup, held), _compacted(setup, held // TIMES)
        for state in STATES:
            yield _tag(tables, held, max(KEYS), state, ", compacted")


def _table(setup: Setup, held: int) -> metatable.Table:
    make = partial(make_table, kind="uuid", index=INDEX, rows=held, commits=TIMES)
    return metatable.open(setup.cupboard.made(f"table-{held}-uuid-{INDEX}-{TIMES}", make))


def _compacted(setup: Setup, held: int) -> metatable.Table:
    """The table of `_table` with its index files merged: they are a layer a commit."""
    source = Path(_table(setup, held).uri)

    def make(place: Path) -> None:
        shutil.copytree(source, place, copy_function=os.link, dirs_exist_ok=True)
        metatable.open(place).compact(major=True)

    name = f"table-{held}-uuid-{INDEX}-{TIMES}-compacted"
    return metatable.open(setup.cupboard.made(name, make))


def _points(tables: Tables, held: int, state: str) -> Case:
    cold = STATES[state]
    rows, fewer = (_some(count) for count in (held, held // TIMES))
    target = 3.0 if cold else 8.0
    files = [str(Path(tables[0].uri, file.path)) for file in tables[0].files()]
    peer = filtered(files, rows["id"].combine_chunks(), cold, partial(same, rows), target)
    return Case(
        f"{ROWS} rows of {held:,}, {state}",
        f"{ROWS} random keys of {KEY_BYTES} bytes, whole rows; {_told(tables[0], state)}",
        _reading(tables[0], rows, cold),
        [peer, _tenth(_reading(tables[1], fewer, cold))],
    )


def _tag(tables: Tables, held: int, count: int, state: str, how: str = "") -> Case:
    cold, found = STATES[state], list[int]()
    batch, fewer = (batch_rows("uuid", one, count) for one in (held, held // TIMES))
    target = 3.0 if count == max(KEYS) else None
    return Case(
        f"{count:,} keys of {held:,}{how}, {state}",
        f"{count:,} rows of {batch.num_columns} columns, 70 % updates; "
        f"{_told(tables[0], state + how)}",
        _tagging(tables[0], batch, cold, found.append),
        [
            joined(tables[0], batch, cold, found, target),
            _tenth(_tagging(tables[1], fewer, cold, lambda _: None)),
        ],
    )


def _some(held: int) -> pa.Table:
    numbers = np.random.default_rng(5).choice(held, ROWS, replace=False)
    return rows_of("uuid", np.sort(numbers), held)


def _reading(table: metatable.Table, rows: pa.Table, cold: bool) -> Measure:
    keys = rows.select(["id", "day"])
    return _asked(table, cold, lambda one: one.read_keys(keys), partial(same, rows))


def _tagging(
    table: metatable.Table, batch: pa.Table, cold: bool, keep: Callable[[int], None]
) -> Measure:
    def check(answer: pa.Table) -> None:
        keep(len(answer) - answer["_location"].null_count)

    return _asked(table, cold, lambda one: one.tag_locations(batch), check)


def _asked(
    table: metatable.Table,
    cold: bool,
    ask: Callable[[metatable.Table], Any],
    check: Callable[[Any], None],
) -> Measure:
    uri = table.uri
    prepare = cache.clear if cold else None
    return timed(lambda: ask(metatable.open(uri) if cold else table), prepare=prepare, check=check)


def _tenth(measure: Measure) -> Peer:
    return Peer("ours, of a tenth of the rows", measure)


def _told(table: metatable.Table, state: str) -> str:
    facts = table.describe()
    return (
        f"table of {facts.rows:,} rows in {facts.file_groups} files, "
        f"{facts.data_bytes / 1e6:,.0f} MB, made by {TIMES} commits, in the page cache as far as "
        f"it has room; {state}"
    )


if __name__ == "__main__":
    run_module(globals())
