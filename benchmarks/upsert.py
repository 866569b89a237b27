"""Upsert, whole: from a batch of rows to a published commit, beside merges of Delta and Lance."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import metatable
from benchmarks.data import KEY_BYTES, Cupboard, batch_rows, make_table, table_rows
from benchmarks.harness import (
    FLOOR,
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
from metatable.data.base_file import PAGE_ROWS, add_meta_columns, encoded_base_file, encoded_columns
from metatable.data.options import Options
from metatable.data.schema import KEY_COLUMN, META_COLUMNS
from metatable.data.slices import DataFile
from metatable.storage import cache
from metatable.storage.arrays import Int64s
from metatable.storage.parquet.chosen_pages import read_rows
from metatable.storage.parquet.paged_file import paged
from metatable.storage.store import Store
from metatable.storage.threads import in_order

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
"""Of kinds of keys and rows into ten million, with a record index: times as fast as Delta."""

ASKED_UNCOMPRESSED = 1.2
"""The same of a million random keys, where the metadata table's HFiles are not compressed."""

CHANGED = (META_COLUMNS[0], META_COLUMNS[1], "customer", "amount", "quantity", "city", "note")
"""Columns in which other rows of the same keys differ, but for the name of the file, which is one
value. Those of REPEATED are dictionaries."""
REPEATED = (META_COLUMNS[0], "quantity", "city")
GROUP_ROWS = 131_072

_Hit = tuple[int, Int64s, Int64s]
"""A row group, places in it, and the rows of a batch that come there."""

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
            floor = [_floor(setup.cupboard, table, batch)] if asked else []
            upsert = _on_copies(
                setup.cupboard, table, partial(_upsert, batch), partial(_ours, batch)
            )
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
        upsert = _on_copies(setup.cupboard, table, partial(_upsert, batch), partial(_ours, batch))
        peers = [_delta(setup, held, batch, "uuid", ASKED_UNCOMPRESSED)]
        yield Case(name, _setting("uuid", held, batch), upsert, peers, READING)


def _time_keys(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """Keys that begin with their time: what is updated is in the newest files."""
    for count in counts:
        name = f"{count:,} rows, record, time keys"
        if setup.asks(name):
            table = _table(setup, "time", held)
            batch = batch_rows("time", held, count)
            run, check = partial(_upsert, batch), partial(_ours, batch)
            upsert = _on_copies(setup.cupboard, table, run, check)
            delta = _delta(setup, held, batch, "time", ASKED["time", count])
            peers = [delta, _floor(setup.cupboard, table, batch)]
            yield Case(name, _setting("time", held, batch), upsert, peers, READING)


def _memory(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """The same upserts, and what a process holds at most that does nothing else."""
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
        return int(done.stdout) / 1024

    return measure


def _work(work: str, folder: str, rows: str) -> None:
    """One upsert, in a process of its own, which then tells its most resident KiB."""
    {"ours": _upsert, "delta": _delta_merge}[work](pq.read_table(rows), Path(folder))
    status = Path("/proc/self/status").read_text("utf-8")
    print(*(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def _on_read(setup: Setup, held: int, counts: tuple[int, int]) -> Iterator[Case]:
    """The same into a merge-on-read table."""
    make = partial(make_table, kind="uuid", index="record", rows=held, table_type="mor")
    for count in counts:
        name = f"{count:,} rows, record, merge-on-read"
        if not setup.asks(name):
            continue
        table = setup.cupboard.made(f"table-{held}-uuid-record-mor", make)
        batch = batch_rows("uuid", held, count)
        upsert = _on_copies(setup.cupboard, table, partial(_upsert, batch), partial(_ours, batch))
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
    run = _on_copies(setup.cupboard, table, partial(_delta_merge, batch), check)
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
    return Peer(name, _on_copies(setup.cupboard, table, merge, check))


@dataclass(frozen=True, slots=True)
class _Must:
    """What nobody can spare whose files hold rows by columns: of each file the row groups that hold
    a key, with the places of these in them and in the batch, and the rows that are new. Which row
    is where, everybody must find out, too, each in another way: that is not counted."""

    batch: pa.Table
    files: list[tuple[Path, list[_Hit]]]
    new: Int64s

    @classmethod
    def of(cls, source: Path, batch: pa.Table) -> _Must:
        table, keys = metatable.open(source), batch["id"].combine_chunks()
        files, left = [], np.ones(len(keys), np.bool_)
        for path in (Path(table.uri, one.path) for one in table.files()):
            file, hit = pq.ParquetFile(path), []
            for group in range(file.num_row_groups):
                held = file.read_row_group(group, ["id"])["id"]
                found = pc.index_in(held, value_set=keys).fill_null(-1).to_numpy()
                rows = np.flatnonzero(found >= 0)
                left[found[rows]] = False
                hit += [(group, rows, found[rows])] if len(rows) else []
            files += [(path, hit)] if hit else []
        return cls(batch.combine_chunks(), files, np.flatnonzero(left))

    def work(self, folder: Path) -> None:
        """Keys and what changes are decoded, rows that replace others and new ones are gathered out
        of the batch, which is in no order, what changes and the new rows are encoded, the new keys
        are put into a filter, and as many bytes as the files have are written, with fsync. Of
        columns without a dictionary it is pages that hold a row, where these are few."""
        jobs = [
            partial(_rewritten, self.batch, *one, folder / str(n))
            for n, one in enumerate(self.files)
        ]
        step = max(len(self.new) // max(len(jobs), 1), 1)
        pieces = [self.new[at : at + step] for at in range(0, len(self.new), step)]
        jobs += [partial(_encoded, self.batch, piece) for piece in pieces]
        for _ in in_order(lambda job: job(), jobs):
            pass


def _rewritten(batch: pa.Table, path: Path, groups: list[_Hit], target: Path) -> None:
    texts = [name for name in REPEATED if name != "quantity"]
    file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts)
    store = Store(path.parent)
    [pages_of] = paged(store, [(path.name, path.stat().st_size)])
    own = batch.select([name for name in CHANGED if name in batch.column_names])
    for group, rows, coming in groups:
        own.take(pa.array(coming))
        pages, count = np.unique(rows // PAGE_ROWS), file.metadata.row_group(group).num_rows
        every = (pages[:, None] * PAGE_ROWS + np.arange(PAGE_ROWS)).reshape(-1)
        whole = [KEY_COLUMN, *CHANGED]
        if pages_of is not None and len(every) * 3 <= count:
            whole = [*REPEATED]
            here = every[every < count] + pages_of.starts[group]
            names = [name for name in CHANGED if name not in REPEATED]
            held = read_rows(store, [(pages_of, here)], [KEY_COLUMN, *names])
            encoded_columns(held.select(names), Options("t", ("id",)), None, (), ())
        table = file.read_row_group(group, whole, use_threads=False)
        changed = [name for name in CHANGED if name in whole]
        encoded_columns(table.select(changed), Options("t", ("id",)), None, (), REPEATED)
    shutil.copyfile(path, target)
    with target.open("rb") as made:
        os.fsync(made.fileno())


def _encoded(batch: pa.Table, numbers: Int64s) -> None:
    rows = batch.take(pa.array(numbers))
    place = DataFile("day=2026-01-01", "some-0", "0-0-0", "20260101000000000", 0)
    made = add_meta_columns(rows, rows["id"], place).combine_chunks()
    encoded_base_file(made, Options("t", ("id",), row_group_rows=GROUP_ROWS), None)


def _floor(cupboard: Cupboard, source: Path, batch: pa.Table) -> Peer:
    known: list[_Must] = []
    folders: list[Path] = []

    def prepare() -> None:
        known[:] = known or [_Must.of(source, batch)]
        for old in folders:
            cupboard.drop(old)
        folders[:] = [cupboard.scratch()]

    work = timed(lambda: known[0].work(folders[0]), prepare=prepare)
    what = (
        "pyarrow gathers, decodes and encodes what must change, files of that size, fsync; no "
        "index, no tag"
    )
    return Peer(f"{FLOOR}{what}", work)


def make_lance(held: int, folder: Path) -> None:
    """The same rows, and its index of their key."""
    lance = import_module("lance")
    made = lance.write_dataset(table_rows("uuid", held), str(folder / "rows"))
    made.create_scalar_index("id", "BTREE")


if __name__ == "__main__":
    if "--work" in sys.argv:
        _work(*sys.argv[2:])
    else:
        run_module(globals())
