"""Planning: which of very many files can hold a row that a query asks for?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import metatable
from benchmarks.harness import Case, Measure, Peer, Setup, absent, package, run_module, timed
from benchmarks.synthetic import DAYS, FILE_SPAN, make_delta, make_iceberg, make_ours
from metatable.storage import cache

QUESTION = (
    "A query names a range of one column, and one file in a hundred holds such rows: how long "
    "until we know which files to read?"
)

READING = "everybody knows the least and greatest value of every file, and nobody opens one"

MOST_OF_ICEBERG = 100_000


@dataclass(frozen=True, slots=True)
class _Planner:
    """Somebody who plans: how a table is opened, and how it is asked for the files of a range."""

    name: str
    open: Callable[[], Any]
    plan: Callable[[Any], Sized]
    script: str
    """Code that opens the table and plans once, for a process that does nothing else."""

    def measure(self, cold: bool, expected: int) -> Measure:
        def check(found: Sized) -> None:
            assert len(found) == expected, (self.name, len(found), expected)

        if cold:
            return timed(lambda: self.plan(self.open()), prepare=cache.clear, check=check)
        held = self.open()
        return timed(lambda: self.plan(held), check=check)

    def memory_mib(self) -> float:
        code = _FRESH.format(script=self.script)
        told = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
        return int(told.stdout) / 1024


_FRESH = """
import sys
class NoPandas:
    def find_spec(self, name, *_):
        if name == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
{script}
[told] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(told.split()[1])
"""


def cases(setup: Setup) -> Iterator[Case]:
    """Cold: the table is opened, too. Warm: one that has been asked before is asked again. And
    what a process takes that does the first."""
    files = 1_000_000 if setup.full else 10_000
    low, high = files // 2 * FILE_SPAN, (files // 2 + files // 100) * FILE_SPAN
    ours = _ours(setup, files, low, high)
    peers = [_delta(setup, files, low, high), _iceberg(setup, files, low, high)]
    told = (
        f"{files:,} files in {DAYS} partitions, statistics of 4 columns, a range of an int64 "
        "column that keeps 1 %"
    )
    for cold, target in ((True, 3.0), (False, 10.0)):
        asked = [
            one
            if isinstance(one, Peer)
            else Peer(one.name, one.measure(cold, files // 100), target=target)
            for one in peers
        ]
        state = "page cache warm, caches of the process empty" if cold else "warm"
        yield Case(
            f"plan over {files:,} files, {'open included' if cold else 'asked again'}",
            f"{told}; {state}",
            ours.measure(cold, files // 100),
            asked,
            READING,
        )
    yield Case(
        f"plan over {files:,} files, memory",
        f"{told}; the most that a new process holds which opens the table and plans once, without "
        "pandas, which pyarrow loads where it is there",
        ours.memory_mib,
        [
            one if isinstance(one, Peer) else Peer(one.name, one.memory_mib, target=2.0)
            for one in peers
        ],
        READING,
        unit="MiB",
    )


def _ours(setup: Setup, files: int, low: int, high: int) -> _Planner:
    place = setup.cupboard.made(f"files-{files}", partial(make_ours, files=files))
    where = [("place", ">=", low), ("place", "<", high)]
    return _Planner(
        "metatable",
        partial(metatable.open, place),
        lambda table: table.files(where),
        f"import metatable\nheld = metatable.open({str(place)!r}).files({where!r})",
    )


def _delta(setup: Setup, files: int, low: int, high: int) -> _Planner | Peer:
    deltalake = package("deltalake")
    if deltalake is None:
        return absent("deltalake", "deltalake is not installed: make peers")
    make = partial(make_delta, files=files, deltalake=deltalake)
    place = setup.cupboard.made(f"delta-files-{files}", make)
    where = f"place >= {low} and place < {high}"
    return _Planner(
        f"deltalake {deltalake.__version__} file_uris",
        partial(deltalake.DeltaTable, place),
        lambda table: table.file_uris(file_pruning_predicate=where),
        f"import deltalake\nheld = deltalake.DeltaTable({str(place)!r}).file_uris("
        f"file_pruning_predicate={where!r})",
    )


def _iceberg(setup: Setup, files: int, low: int, high: int) -> _Planner | Peer:
    iceberg, tables = package("pyiceberg"), package("pyiceberg.table")
    if iceberg is None or tables is None or package("sqlalchemy") is None:
        return absent("pyiceberg", "pyiceberg[pyarrow,sql-sqlite] is not installed: make peers")
    if files > MOST_OF_ICEBERG:
        return absent("pyiceberg", "it makes an object a file, most of a minute of them")
    place = setup.cupboard.made(f"iceberg-files-{files}", partial(make_iceberg, files=files))
    location = Path(place, "location").read_text()
    where = f"place >= {low} and place < {high}"
    return _Planner(
        f"pyiceberg {iceberg.__version__} plan_files",
        partial(tables.StaticTable.from_metadata, location),
        lambda table: list(table.scan(where).plan_files()),
        "from pyiceberg.table import StaticTable\n"
        f"held = list(StaticTable.from_metadata({location!r}).scan({where!r}).plan_files())",
    )


if __name__ == "__main__":
    run_module(globals())
