"""Upsert, whole: from a batch of rows to a published commit, beside merges of Delta and Lance."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.data import KEY_BYTES, Cupboard, batch_rows, make_lance, make_table, table_rows
from benchmarks.harness import (
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    left_out,
    package,
    run_module,
    timed_on_copies,
)
from benchmarks.upsert_floor import indexed_upsert_floor, upsert_floor
from benchmarks.watching import most_resident_bytes

QUESTION = (
    "Rows are inserted or replaced by key: how long from the batch to a commit that everybody can "
    "read?"
)

LANCE_ROWS = 100_000
"""Its merge of a million rows ends where its memory pool does, at 300 MB as it is, and at 4 GiB."""

INDEXES = ("metadata_bloom", "record")

ASKED = {
    ("uuid", 1_000_000): 1.0,
    ("uuid", 1_000): 1.4,
    ("time", 1_000_000): 4.0,
    ("time", 1_000): 10.0,
}
"""How many times as fast as Delta we mean to be, with a record index, by (kind of keys, rows of a
batch) into ten million."""

ASKED_UNCOMPRESSED = 1.2
"""How many times as fast, with a million random keys, where the metadata table's HFiles are not
compressed."""

FLOORS = (upsert_floor, indexed_upsert_floor)

READING = (
    "ours and Delta rewrite every file that holds a key, Lance marks rows and adds a file; ours "
    "also writes index, bounds and fsyncs"
)


def cases(setup: Setup) -> Iterator[Case]:
    """Each index and size of batch, on a fresh copy of the same table for every run."""
    held = setup.tenth(10_000_000)
    counts = (setup.tenth(1_000_000), 1_000)
    for index in INDEXES:
        if index == "record" and not setup.full:
            yield left_out("record", "left to --size full: 45 s are not enough for both indexes")
            continue
        make = partial(make_table, kind="uuid", index=index, rows=held)
        for count in counts:
            if not setup.asks(f"{count:,} rows, {index}"):
                continue
            table = setup.cupboard.made(f"table-{held}-uuid-{index}", make)
            batch = batch_rows("uuid", held, count)
            asked = ASKED.get(("uuid", count)) if setup.full and index == "record" else None
            floor = [upsert_floor(setup.cupboard, table, batch)] if asked else []
            upsert = _ours(setup.cupboard, table, batch)
            yield Case(
                f"{count:,} rows, {index}",
                _setting("uuid", held, batch),
                upsert,
                [*_peers(setup, held, batch, asked), *floor],
                READING,
            )
    if setup.full:
        yield from _uncompressed(setup, held, counts[0])
        yield from _time_keys(setup, held, counts)
        yield from _memory(setup, held, counts)
        yield from _on_read(setup, held, counts)
        return
    for name in ("time keys", "memory", "merge-on-read"):
        yield left_out(name, "left to --size full: 45 s are not enough for it")


def _uncompressed(setup: Setup, held: int, count: int) -> Iterator[Case]:
    """Random keys, many of them, beside an index that no codec makes slower, or smaller."""
    name = f"{count:,} rows, record of HFiles without compression"
    if setup.asks(name):
        make = partial(make_table, kind="uuid", index="record", rows=held, hfile_codec="none")
        table = setup.cupboard.made(f"table-{held}-uuid-record-none", make)
        batch = batch_rows("uuid", held, count)
        upsert = _ours(setup.cupboard, table, batch)
        peers = [_delta(setup, held, batch, "uuid", ASKED_UNCOMPRESSED)]
        yield Case(name, _setting("uuid", held, batch), upsert, peers, READING)


def _time_keys(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """Keys that begin with their time: what is updated is in the newest files."""
    for count in counts:
        name = f"{count:,} rows, record, time keys"
        if setup.asks(name):
            table = _table(setup, "time", held)
            batch = batch_rows("time", held, count)
            upsert = _ours(setup.cupboard, table, batch)
            delta = _delta(setup, held, batch, "time", ASKED["time", count])
            floors = [one(setup.cupboard, table, batch) for one in FLOORS]
            yield Case(name, _setting("time", held, batch), upsert, [delta, *floors], READING)


def _memory(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """What a process holds at most that does nothing but one upsert."""
    for kind in ("uuid", "time"):
        for count in counts:
            name = f"{count:,} rows, record, {kind} keys, memory"
            if setup.asks(name):
                batch = batch_rows(kind, held, count)
                rows = setup.cupboard.scratch() / "rows.parquet"
                pq.write_table(batch, rows)
                ours = _resident(setup.cupboard, "ours", _table(setup, kind, held), rows)
                peers = []
                if package("deltalake"):
                    table = _delta_table(setup, kind, held)
                    delta = _resident(setup.cupboard, "delta", table, rows)
                    peers = [Peer("deltalake merge", delta)]
                setting = f"{_setting(kind, held, batch)}; most resident memory of a process"
                yield Case(name, setting, ours, peers, unit="MiB")


def _table(setup: Setup, kind: str, held: int) -> Path:
    make = partial(make_table, kind=kind, index="record", rows=held)
    return setup.cupboard.made(f"table-{held}-{kind}-record", make)


def _resident(cupboard: Cupboard, work: str, source: Path, rows: Path) -> Measure:
    def measure() -> float:
        folder = cupboard.copy(source)
        told = ["--work", work, str(folder), str(rows)]
        command = [sys.executable, "-m", "benchmarks.upsert", *told]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        cupboard.drop(folder)
        return int(done.stdout) / (1 << 20)

    return measure


def _work(work: str, folder: str, rows: str) -> None:
    """One upsert, in a process of its own, which then tells its most resident bytes."""
    {"ours": _upsert, "delta": _delta_merge}[work](pq.read_table(rows), Path(folder))
    print(most_resident_bytes())


def _on_read(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """Upserts into a merge-on-read table."""
    make = partial(make_table, kind="uuid", index="record", rows=held, table_type="mor")
    for count in counts:
        name = f"{count:,} rows, record, merge-on-read"
        if not setup.asks(name):
            continue
        table = setup.cupboard.made(f"table-{held}-uuid-record-mor", make)
        batch = batch_rows("uuid", held, count)
        upsert = _ours(setup.cupboard, table, batch)
        yield Case(
            name,
            _setting("uuid", held, batch),
            upsert,
            _peers(setup, held, batch),
            "ours puts logs on file groups, which readers merge; Delta rewrites files, Lance marks "
            "rows and adds a file",
        )


def _setting(kind: str, held: int, batch: pa.Table) -> str:
    keys = "random keys" if kind == "uuid" else "keys of the newest fifth, and new ones,"
    return (
        f"{batch.num_rows:,} rows of {batch.num_columns} columns, 70 % updates, {keys} of "
        f"{KEY_BYTES} bytes, into {held:,} rows in 10 partitions; a fresh copy for each run, "
        "page cache warm, caches of the process empty"
    )


def _ours(cupboard: Cupboard, source: Path, batch: pa.Table) -> Measure:
    """An upsert of ours into this table."""

    def check(result: Any) -> None:
        assert result.inserted + result.updated == batch.num_rows, result

    return timed_on_copies(cupboard, source, partial(_upsert, batch), check)


def _upsert(batch: pa.Table, folder: Path) -> Any:
    return metatable.open(folder).upsert(batch)


def _peers(setup: Setup, held: int, batch: pa.Table, asked: float | None = None) -> list[Peer]:
    return [_delta(setup, held, batch, "uuid", asked), _lance(setup, held, batch)]


def _delta_merge(batch: pa.Table, folder: Path) -> Any:
    merger = (
        import_module("deltalake")
        .DeltaTable(folder)
        .merge(batch, "t.id = s.id and t.day = s.day", source_alias="s", target_alias="t")
    )
    return merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _delta_table(setup: Setup, kind: str, held: int) -> Path:
    def make(folder: Path) -> None:
        rows = table_rows(kind, held)
        import_module("deltalake").write_deltalake(folder, rows, partition_by=["day"])

    return setup.cupboard.made(f"delta-{held}-{kind}", make)


def _delta(setup: Setup, held: int, batch: pa.Table, kind: str, asked: float | None = None) -> Peer:
    deltalake = package("deltalake")
    if deltalake is None:
        return absent("deltalake", "deltalake is not installed: make peers")

    def check(told: Any) -> None:
        done = told["num_target_rows_inserted"] + told["num_target_rows_updated"]
        assert done == batch.num_rows, told

    table = _delta_table(setup, kind, held)
    name = f"deltalake {deltalake.__version__} merge"
    run = timed_on_copies(setup.cupboard, table, partial(_delta_merge, batch), check)
    return Peer(name, run, target=asked)


def _lance(setup: Setup, held: int, batch: pa.Table) -> Peer:
    """Its own file format, an index of the key beside it (made before): no partitions."""
    lance = package("lance")
    if lance is None:
        return absent("Lance", "pylance is not installed: make peers")
    if batch.num_rows > LANCE_ROWS:
        return absent("Lance", "so many rows take more than 4 GiB of memory there")

    def merge(folder: Path) -> Any:
        merger = lance.dataset(str(folder / "rows")).merge_insert("id")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute(batch)

    def check(told: Any) -> None:
        done = told["num_inserted_rows"] + told["num_updated_rows"]
        assert done == batch.num_rows, told

    table = setup.cupboard.made(f"lance-{held}-uuid", partial(make_lance, held))
    name = f"Lance {lance.__version__} merge_insert, BTREE"
    return Peer(name, timed_on_copies(setup.cupboard, table, merge, check))


if __name__ == "__main__":
    if "--work" in sys.argv:
        _work(*sys.argv[2:])
    else:
        run_module(globals())
