"""Layout: what share of a table a range of some columns reads, once rows are cut by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.data import SCHEMA, rows_of
from benchmarks.harness import Case, Measure, Peer, Setup, absent, package, run_module, timed
from metatable.storage.arrays import Int64s

QUESTION = (
    "Rows with random keys are cut anew by other columns: what share of the bytes does a query of "
    "a range of these columns have to read, and what does the cutting cost?"
)

READING = "all have cut by the same columns, into some 64 files"

FILES = 64
SHARE = 32
"""A query asks for so small a part of a column's range."""
QUERIES = 24
COMMITS = 4
ICEBERG = ("bench", "rows")

Query = Sequence[tuple[str, Any, Any]]
"""Ranges that a query asks for at once: (column, from, to below)."""


@dataclass
class _Side:
    """Who cuts: a table as it was written, how it is cut, and what of it may hold a range."""

    setup: Setup
    source: Path
    cut: Callable[[str, Sequence[str]], object]
    kept: Callable[[str, Query], tuple[int, int]]

    def share(self, by: Sequence[str], asked: Sequence[Query]) -> Measure:
        """Percent of the bytes that are left, on average over the ranges asked for."""

        def left() -> float:
            place = str(self.setup.cupboard.copy(self.source))
            self.cut(place, by)
            pairs = [self.kept(place, one) for one in asked]
            return float(np.mean([100 * bytes_left / whole for bytes_left, whole in pairs]))

        return _Once(left)

    def cost(self, by: Sequence[str]) -> Measure:
        place: list[str] = []

        def prepare() -> None:
            place[:] = [str(self.setup.cupboard.copy(self.source))]

        return timed(lambda: self.cut(place[0], by), prepare=prepare)


@dataclass
class _Once:
    """A measure that is made once, and told as often as it is asked for."""

    make: Callable[[], float]

    @cached_property
    def number(self) -> float:
        return self.make()

    def __call__(self) -> float:
        return self.number


def cases(setup: Setup) -> Iterator[Case]:
    count = setup.tenth(4_000_000)
    sides = {"metatable": _ours(setup, count), **_peers(setup, count)}
    ours = sides.pop("metatable")
    assert isinstance(ours, _Side)
    rows = f"{count:,} rows, {FILES} files, in {COMMITS} commits in no order"
    for by, named in (
        (("seen",), ("seen",)),
        (("seen", "customer"), ("seen",)),
        (("seen", "customer"), ("customer",)),
        (("seen", "customer"), ("seen", "customer")),
    ):
        asked = _ranges(count, named)
        peers = [
            Peer(name, one.share(by, asked)) if isinstance(one, _Side) else one
            for name, one in sides.items()
        ]
        yield Case(
            f"cut by {' and '.join(by)}, asked for {' and '.join(named)}",
            f"{rows}; 1/{SHARE} of the range of each column that is asked for, mean of"
            f" {len(asked)} queries; share of the bytes of all files that are left",
            ours.share(by, asked),
            peers,
            READING,
            unit="%",
        )
    for by in (("seen",), ("seen", "customer")):
        peers = [
            Peer(name, one.cost(by)) if isinstance(one, _Side) else one
            for name, one in sides.items()
        ]
        setting = f"{rows}; a copy each time, page cache warm"
        yield Case(f"cutting by {' and '.join(by)}", setting, ours.cost(by), peers, READING)


def _ranges(count: int, columns: Sequence[str]) -> Sequence[Query]:
    """Queries of ranges of these columns, the same every time."""
    held = _rows(count, np.arange(0, count, 97))
    draw = np.random.default_rng(5)
    found = []
    for _ in range(QUERIES):
        asked = []
        for name in columns:
            values = np.sort(held[name].to_numpy())
            at = int(draw.integers(0, len(values) - len(values) // SHARE))
            asked.append((name, int(values[at]), int(values[at + len(values) // SHARE])))
        found.append(asked)
    return found


def _rows(count: int, numbers: Int64s) -> pa.Table:
    return rows_of("uuid", numbers, count).cast(_schema())


def _parts(count: int, parts: int) -> Iterator[pa.Table]:
    order = np.random.default_rng(7).permutation(count)
    return (_rows(count, part) for part in np.array_split(order, parts))


def _schema() -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index("seen"), pa.field("seen", pa.int64()))


def _ours(setup: Setup, count: int) -> _Side:
    def make(place: Path) -> None:
        options = {"file_rows": count // FILES, "small_file_bytes": 0}
        table = metatable.create(place, _schema(), key="id", options=options)
        for rows in _parts(count, COMMITS):
            table.insert(rows)

    def cut(place: str, by: Sequence[str]) -> object:
        return metatable.open(place).cluster(by=list(by))

    def kept(place: str, asked: Query) -> tuple[int, int]:
        table = metatable.open(place)
        where = [one for name, low, high in asked for one in ((name, ">=", low), (name, "<", high))]
        return table.files(where).size_bytes, table.files().size_bytes

    return _Side(setup, setup.cupboard.made(f"layout-{count}", make), cut, kept)


def _peers(setup: Setup, count: int) -> dict[str, _Side | Peer]:
    found: dict[str, _Side | Peer] = {}
    deltalake, iceberg = package("deltalake"), package("pyiceberg")
    if deltalake is None:
        found["deltalake"] = absent("deltalake", "deltalake is not installed: make peers")
    else:
        found[f"deltalake {deltalake.__version__} z_order"] = _delta(setup, count, deltalake)
    if iceberg is None or package("sqlalchemy") is None:
        found["pyiceberg"] = absent("pyiceberg", "pyiceberg is not installed: make peers")
    else:
        found[f"pyiceberg {iceberg.__version__}, rows sorted"] = _iceberg(setup, count)
    return found


def _delta(setup: Setup, count: int, deltalake: ModuleType) -> _Side:
    def make(place: Path) -> None:
        for rows in _parts(count, FILES):
            deltalake.write_deltalake(place, rows, mode="append")

    def cut(place: str, by: Sequence[str]) -> object:
        table = deltalake.DeltaTable(place)
        target = sum(_sizes(table).values()) // FILES
        return table.optimize.z_order(list(by), target_size=target)

    def kept(place: str, asked: Query) -> tuple[int, int]:
        table = deltalake.DeltaTable(place)
        where = " and ".join(f"{name} >= {low} and {name} < {high}" for name, low, high in asked)
        sizes = _sizes(table)
        left = table.file_uris(file_pruning_predicate=where)
        return sum(sizes[Path(one).name] for one in left), sum(sizes.values())

    return _Side(setup, setup.cupboard.made(f"layout-delta-{count}", make), cut, kept)


def _iceberg(setup: Setup, count: int) -> _Side:
    """Rows sorted by the first column, then the next, as Iceberg's rewrite by `sort` leaves them.

    That is a procedure of Spark's; pyiceberg has none, so that its table is written from sorted
    rows, and cutting is reading, sorting and writing them.
    """

    def make(place: Path) -> None:
        for number, rows in enumerate(_parts(count, COMMITS)):
            pq.write_table(rows, place / f"{number}.parquet", compression="zstd")

    def cut(place: str, by: Sequence[str]) -> object:
        rows = pq.read_table(place).sort_by([(name, "ascending") for name in by])
        table = _catalog(place).create_table(ICEBERG, rows.schema)
        each = -(-count // FILES)
        with table.transaction() as transaction:
            for first in range(0, count, each):
                transaction.append(rows.slice(first, each))
        return table

    def kept(place: str, asked: Query) -> tuple[int, int]:
        table = _catalog(place).load_table(ICEBERG)
        where = " and ".join(f"{name} >= {low} and {name} < {high}" for name, low, high in asked)
        left, every = (
            sum(one.file.file_size_in_bytes for one in scan.plan_files())
            for scan in (table.scan(row_filter=where), table.scan())
        )
        return left, every

    return _Side(setup, setup.cupboard.made(f"layout-rows-{count}", make), cut, kept)


def _catalog(place: str) -> Any:
    catalogs = import_module("pyiceberg.catalog.sql")
    told = {"uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}
    catalog = catalogs.SqlCatalog("bench", **told)
    catalog.create_namespace_if_not_exists(ICEBERG[0])
    return catalog


def _sizes(table: Any) -> dict[str, int]:
    """Bytes of each file of a Delta table, by name."""
    told = pa.table(table.get_add_actions(flatten=True))
    names = (Path(one).name for one in told["path"].to_pylist())
    return dict(zip(names, told["size_bytes"].to_pylist(), strict=True))


if __name__ == "__main__":
    run_module(globals())
