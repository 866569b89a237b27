"""Upsert, whole: from a batch of rows to a published commit, beside merges of Delta and Lance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

import metatable
from benchmarks.data import KEY_BYTES, Cupboard, batch_rows, make_table, table_rows
from benchmarks.harness import (
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    left_out,
    package,
    run_module,
    timed,
)
from metatable.storage import cache

QUESTION = (
    "Rows are inserted or replaced by key: how long from the batch to a commit that everybody can "
    "read?"
)

LANCE_ROWS = 100_000
"""Its merge of a million rows ends where its memory pool does, at 300 MB as it is, and at 4 GiB."""

INDEXES = ("metadata_bloom", "record")
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
        table = setup.cupboard.made(f"table-{held}-uuid-{index}", make)
        for count in counts:
            batch = batch_rows("uuid", held, count)
            upsert = _on_copies(
                setup.cupboard, table, partial(_upsert, batch), partial(_ours, batch)
            )
            yield Case(
                f"{count:,} rows, {index}",
                _setting(held, batch),
                upsert,
                _peers(setup, held, batch),
                READING,
            )
    if setup.full:
        yield from _on_read(setup, held, counts)
    else:
        yield left_out("merge-on-read", "left to --size full: 45 s are not enough for it")


def _on_read(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """The same into a merge-on-read table."""
    make = partial(make_table, kind="uuid", index="record", rows=held, table_type="mor")
    table = setup.cupboard.made(f"table-{held}-uuid-record-mor", make)
    for count in counts:
        batch = batch_rows("uuid", held, count)
        upsert = _on_copies(setup.cupboard, table, partial(_upsert, batch), partial(_ours, batch))
        yield Case(
            f"{count:,} rows, record, merge-on-read",
            _setting(held, batch),
            upsert,
            _peers(setup, held, batch),
            "ours puts logs on file groups, which readers merge; Delta rewrites files, Lance marks "
            "rows and adds a file",
        )


def _setting(held: int, batch: pa.Table) -> str:
    return (
        f"{batch.num_rows:,} rows of {batch.num_columns} columns, 70 % updates, random keys of "
        f"{KEY_BYTES} bytes, into {held:,} rows in 10 partitions; a fresh copy for each run, "
        "page cache warm, caches of the process empty"
    )


def _on_copies(
    cupboard: Cupboard, source: Path, run: Callable[[Path], Any], check: Callable[[Any], Any]
) -> Measure:
    """`run` on a copy of `source` of its own, each time."""
    place: list[Path] = []

    def prepare() -> None:
        cache.clear()
        for old in place:
            cupboard.drop(old)
        place[:] = [cupboard.copy(source)]

    return timed(lambda: run(place[0]), prepare=prepare, check=check)


def _upsert(batch: pa.Table, folder: Path) -> Any:
    return metatable.open(folder).upsert(batch)


def _ours(batch: pa.Table, result: Any) -> None:
    assert result.inserted + result.updated == batch.num_rows, result


def _peers(setup: Setup, held: int, batch: pa.Table) -> list[Peer]:
    return [_delta(setup, held, batch), _lance(setup, held, batch)]


def _delta(setup: Setup, held: int, batch: pa.Table) -> Peer:
    deltalake = package("deltalake")
    if deltalake is None:
        return absent("deltalake", "deltalake is not installed: make peers")

    def make(folder: Path) -> None:
        deltalake.write_deltalake(folder, table_rows("uuid", held), partition_by=["day"])

    def merge(folder: Path) -> Any:
        merger = deltalake.DeltaTable(folder).merge(
            batch, "t.id = s.id and t.day = s.day", source_alias="s", target_alias="t"
        )
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def check(told: Any) -> None:
        done = told["num_target_rows_inserted"] + told["num_target_rows_updated"]
        assert done == batch.num_rows, told

    table = setup.cupboard.made(f"delta-{held}-uuid", make)
    name = f"deltalake {deltalake.__version__} merge"
    return Peer(name, _on_copies(setup.cupboard, table, merge, check))


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
    return Peer(name, _on_copies(setup.cupboard, table, merge, check))


def make_lance(held: int, folder: Path) -> None:
    """The same rows, and its index of their key."""
    lance = import_module("lance")
    made = lance.write_dataset(table_rows("uuid", held), str(folder / "rows"))
    made.create_scalar_index("id", "BTREE")


if __name__ == "__main__":
    run_module(globals())
