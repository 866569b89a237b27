"""Committing one file: what does it cost where many are listed already?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import metatable
from benchmarks.harness import FLOOR, Case, Peer, Setup, absent, package, run_module, timed
from benchmarks.synthetic import SCHEMA, add_files, delta_action, make_delta, make_ours
from metatable.storage.store import Store

if TYPE_CHECKING:
    from _typeshed import HasFileno

QUESTION = (
    "One more file is added to a table of very many: how long until everybody sees it, and how "
    "many requests and bytes does that take?"
)

READING = "ours puts its manifest, its HFiles and Hudi's timeline, a peer one line of JSON"
NO_FSYNC = {"durable": "false"}


def cases(setup: Setup) -> Iterator[Case]:
    """Each number of files; metadata alone, then a row from Arrow to a Parquet file and all."""
    for files in (setup.tenth(10_000), setup.tenth(100_000)):
        make = partial(make_ours, files=files)
        table = setup.cupboard.copy(setup.cupboard.made(f"files-{files}", make))
        delta = _delta_table(setup, files)
        numbers = count(files)
        yield from _metadata_cases(table, files, numbers, delta)
        yield from _row_cases(table, files, numbers, delta)


def _metadata_cases(
    table: Path, files: int, numbers: Iterator[int], delta: tuple[ModuleType, Path] | None
) -> Iterator[Case]:
    setting = f"table of {files:,} files, one file added, no Parquet is written; page cache warm"
    peer = _delta(delta, "transaction", _add_to_delta)
    durable = _adder(table, numbers, {})
    quick = _adder(table, numbers, NO_FSYNC)
    yield Case(
        f"one file into {files:,}, fsync",
        f"{setting}; we fsync, the peer does not",
        timed(durable),
        [peer, _settling(durable, table)],
        READING,
    )
    yield Case(
        f"one file into {files:,}, no fsync",
        f"{setting}; nobody calls fsync",
        timed(quick),
        [peer],
        READING,
    )
    nobody = absent("deltalake", "it does not tell what it asks of a store")
    for unit, name in (("requests", "store.requests"), ("bytes", "store.bytes_written")):
        yield Case(
            f"one file into {files:,}, {unit}",
            f"{setting}; as our store counts {'them' if unit == 'requests' else 'those written'}",
            partial(_counted, quick, name),
            [nobody],
            "it should not grow with the table",
            unit=unit,
        )


def _row_cases(
    table: Path, files: int, numbers: Iterator[int], delta: tuple[ModuleType, Path] | None
) -> Iterator[Case]:
    """We fsync, and, as the peer does, do not."""
    peer = _delta(delta, "append", _append_to_delta)
    for told, options in (("", {}), (", no fsync", NO_FSYNC)):
        held = metatable.open(table, storage_options=options)
        insert = partial(_insert, held, numbers)
        yield Case(
            f"one row into {files:,}{told}",
            f"table of {files:,} files with a record index, one row inserted, table opened before; "
            f"page cache warm; we look the key up{told or ' and fsync'}, the peer appends blindly "
            "and calls no fsync",
            timed(insert),
            [peer] if options else [peer, _settling(insert, table)],
            READING,
        )


def _insert(held: metatable.Table, numbers: Iterator[int]) -> None:
    held.insert(_row(next(numbers)))


def _settling(run: Callable[[], Any], table: Path) -> Peer:
    """As many fsyncs as `run` calls, each of a new kilobyte, one after the other."""
    calls = 0
    settle = os.fsync

    def counted(fd: int | HasFileno) -> None:
        nonlocal calls
        calls += 1
        settle(fd)

    os.fsync = counted
    try:
        run()
    finally:
        os.fsync = settle

    def floor() -> None:
        with tempfile.TemporaryFile(dir=table.parent) as file:
            for _ in range(calls):
                file.write(bytes(1024))
                file.flush()
                settle(file.fileno())

    return Peer(f"{FLOOR}{calls} fsyncs alone", timed(floor))


def _adder(table: Path, numbers: Iterator[int], options: dict[str, str]) -> Callable[[], Any]:
    store = Store(table, options)
    return lambda: add_files(store, [next(numbers)])


def _counted(add: Callable[[], dict[str, int]], name: str) -> float:
    return float(add()[name])


def _row(number: int) -> pa.Table:
    row = {"id": f"new {number}", "day": "d00", "place": number, "seen": number}
    return pa.Table.from_pylist([row], schema=SCHEMA)


def _delta_table(setup: Setup, files: int) -> tuple[ModuleType, Path] | None:
    deltalake = package("deltalake")
    if deltalake is None:
        return None
    make = partial(make_delta, files=files, deltalake=deltalake)
    return deltalake, setup.cupboard.copy(setup.cupboard.made(f"delta-files-{files}", make))


def _delta(
    delta: tuple[ModuleType, Path] | None, what: str, run: Callable[[ModuleType, Any, int], Any]
) -> Peer:
    if delta is None:
        return absent("deltalake", "deltalake is not installed: make peers")
    deltalake, place = delta
    numbers = count(10_000_000)
    held: list[Any] = []

    def prepare() -> None:  # opened anew, untimed: one that is held slows down with each commit
        held[:] = [deltalake.DeltaTable(place)]

    name = f"deltalake {deltalake.__version__} {what}"
    return Peer(name, timed(lambda: run(deltalake, held[0], next(numbers)), prepare=prepare))


def _add_to_delta(deltalake: ModuleType, held: Any, number: int) -> None:
    action = delta_action(number)
    add = package("deltalake.transaction").AddAction(  # type: ignore[union-attr]
        action["path"], action["size"], action["partitionValues"], 0, True, action["stats"]
    )
    held.create_write_transaction([add], "append", deltalake.Schema.from_arrow(SCHEMA), ["day"])


def _append_to_delta(deltalake: ModuleType, held: Any, number: int) -> None:
    deltalake.write_deltalake(held, _row(number), mode="append")


if __name__ == "__main__":
    run_module(globals())
