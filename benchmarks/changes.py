"""Changes: the rows that differ between two versions, beside those who have only the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import metatable
from benchmarks.data import batch_rows, make_table
from benchmarks.harness import (
    FLOOR,
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    package,
    run_module,
    timed,
)
from metatable.storage import cache

QUESTION = (
    "One commit has changed some rows: how long until a puller has them, inserted, updated and "
    "deleted told apart?"
)

READING = "of groups with another slice the keys of both are read, and the rows that differ"
COLUMNS = ["id", "day", "amount"]


def cases(setup: Setup) -> Iterator[Case]:
    """Random keys, which touch every file, and time keys, which touch the newest ones."""
    held, changed = setup.tenth(10_000_000), setup.tenth(100_000)
    for kind in ("uuid", "time"):
        make = partial(_make, kind=kind, held=held, changed=changed)
        folder = setup.cupboard.made(f"changes-{held}-{kind}", make)
        table = metatable.open(folder / "table")
        expected = table.changes(2).to_arrow().num_rows
        yield Case(
            f"{changed:,} of {held:,} rows, {kind} keys",
            f"record index; an upsert of {changed:,} rows (7 of 10 of them stored ones), then a "
            f"delete of {changed // 10:,}; {len(COLUMNS)} columns; caches of the process empty",
            _ours(folder, expected),
            [_files(folder, expected), _incremental(folder)],
            READING,
        )


def _make(folder: Path, kind: str, held: int, changed: int) -> None:
    make_table(folder / "table", kind=kind, index="record", rows=held)
    table = metatable.open(folder / "table")
    batch = batch_rows(kind, held, changed)
    table.upsert(batch)
    table.delete(batch.select(["id", "day"]).slice(0, changed // 10))


def _ours(folder: Path, expected: int) -> Measure:
    def pull() -> pa.Table:
        return metatable.open(folder / "table").changes(2, columns=COLUMNS).to_arrow()

    return timed(pull, prepare=cache.clear, check=_checked(expected))


def _checked(expected: int) -> Callable[[Any], None]:
    def check(found: Any) -> None:
        assert len(found) == expected, (len(found), expected)

    return check


def _files(folder: Path, expected: int) -> Peer:
    """What one would do with the files of both versions, which he is given."""
    duckdb = package("duckdb")
    if duckdb is None:
        return absent("duckdb", "duckdb is not installed: make peers")
    table = metatable.open(folder / "table")
    named = {name: f"coalesce(a.{name}, b.{name})" for name in COLUMNS}
    told = ", ".join(f"{text} as {name}" for name, text in named.items())
    sides = [
        f"read_parquet({list(table.files(version=one).uris)}, hive_partitioning = false)"
        for one in (table.version, 2)
    ]
    query = (
        f"select {told}, case when b.id is null then 'insert' when a.id is null then 'delete'"
        f" else 'update' end as _change_type from {sides[0]} a full join {sides[1]} b"
        " on a.id = b.id where a._hoodie_commit_time is distinct from b._hoodie_commit_time"
    )
    run = timed(lambda: duckdb.connect().sql(query).to_arrow_table(), check=_checked(expected))
    return Peer(f"duckdb {duckdb.__version__}, a full join of both versions", run)


def _incremental(folder: Path) -> Peer:
    """Hudi's own answer: rows of later commits; deletes are not told, nor what was there before."""
    hudi = package("hudi")
    name = f"{FLOOR}hudi incremental read, without deletes, nothing told apart"
    if hudi is None:
        return absent(name, "hudi is not installed: make peers")
    uri = str(folder / "table")
    since = next(one.instant for one in metatable.open(uri).history() if one.version == 2)
    asked = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental)
    asked = asked.with_start_timestamp(since).with_projection(COLUMNS)

    def read() -> Any:
        return hudi.HudiTableBuilder.from_base_uri(uri).build().read(asked)

    return Peer(name, timed(read))


if __name__ == "__main__":
    run_module(globals())
