"""Splicing: what does a new Parquet file cost most of which is as it was?"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import make_table, numbers_of, rows_of, table_rows
from benchmarks.harness import FLOOR, Case, Measure, Peer, Setup, run_module
from metatable.data.base_files.base_file_writer import encoded_base_file
from metatable.data.base_files.meta_columns import add_meta_columns, with_file_name
from metatable.data.columns.schema import META_FIELDS
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.splice import replaced, splice
from metatable.storage.store import Store
from metatable.write.few_keys import Known
from metatable.write.new_slice import Entering, Filed, merged_slice
from metatable.write.spliced_slice import spliced_file

QUESTION = (
    "A Parquet file is written anew, and of its columns only the constant one that names the file "
    "is another, or of its rows some of one row group: what does it cost in time of processors?"
)

READING = "a chunk that stays is read, checked and written, not decoded"

ASKED = 5.0
"""Times as fast as the plain rewrite, where rows of one row group of each file are updated."""

GROUP, EACH = 1, 24
"""The row group of each file of which rows are updated, and one in how many."""

CHANGING = ["_hoodie_commit_time", "_hoodie_commit_seqno", "customer", "amount", "quantity"]
CHANGING += ["city", "note"]
"""The columns in which such a row is another."""

_WRITER = {"compression": "zstd", "store_schema": False, "write_page_checksum": True}


@dataclass(frozen=True, slots=True)
class _File:
    store: Store
    path: str
    size_bytes: int

    def copy(self) -> None:
        """The bytes, unread."""
        with self.store.sink("copy") as sink:
            sink.write(self.store.fetch(self.path))

    def splice(self, chunks_of: Callable[[ParquetParts, int], Sequence[Chunk]]) -> None:
        parts = ParquetParts.open(self.store, self.path, self.size_bytes)
        assert parts is not None
        groups = (chunks_of(parts, group) for group in range(len(parts.groups)))
        with self.store.sink("spliced") as sink:
            splice(sink, parts, groups, parts.metadata)

    def rewrite(self) -> None:
        """A row group at a time, as a stream of rows is written."""
        file = pq.ParquetFile(self.store.open(self.path, self.size_bytes))
        groups = range(file.num_row_groups)
        with (
            self.store.sink("written") as sink,
            pq.ParquetWriter(sink, file.schema_arrow, **_WRITER) as writer,
        ):
            for rows in map(file.read_row_group, groups):
                writer.write_table(with_file_name(rows, "another"), rows.num_rows)


def cases(setup: Setup) -> Iterator[Case]:
    rows = setup.tenth(1_000_000)
    for group_rows in (rows // 10, rows // 100):
        file = _made(setup, rows, group_rows)
        setting = (
            f"{rows:,} rows, {file.size_bytes:,} bytes, 13 columns, row groups of {group_rows:,}; "
            "page checksums are verified"
        )
        peers = [Peer("pyarrow reads and writes", _processors(file.rewrite))]
        floor = Peer(f"{FLOOR}the file copied", _processors(file.copy))
        for what, chunks_of in (("all chunks copied", _as_they_are), ("one column new", _renamed)):
            run = _processors(partial(file.splice, chunks_of))
            name = f"{what}, row groups of {group_rows:,}"
            yield Case(name, setting, run, [*peers, floor], READING)
    name = "updates in one row group of each file"
    if setup.asks(name):
        yield _updates(setup, name)


def _updates(setup: Setup, name: str) -> Case:
    """The files of a table as an upsert writes them; the plain way is the one that it takes where
    nothing can be copied."""
    rows, group_rows = setup.tenth(2_000_000), setup.tenth(50_000)
    make = partial(make_table, kind="uuid", index="record", rows=rows, row_group_rows=group_rows)
    table = setup.cupboard.made(f"table-{rows}-uuid-record-{group_rows}", make)
    held = _Updated.of(table, setup.cupboard.scratch())
    measured = partial(_processors, behind=held.clear)
    setting = (
        f"{rows:,} rows, {len(held.files)} files of row groups of {group_rows:,}; of one of each "
        f"file one row in {EACH} is another, {sum(len(one.here) for one in held.entering):,} in "
        "all; made and stored, without tag, entries and fsync"
    )
    peers = [
        Peer("the plain rewrite", measured(partial(held.write, _plain)), target=ASKED),
        Peer(f"{FLOOR}the files copied", measured(held.copy)),
        Peer(
            f"{FLOOR}the files copied, and what changes decoded and encoded by pyarrow",
            measured(held.copy_and_encode),
        ),
    ]
    return Case(name, setting, measured(partial(held.write, _spliced)), peers, READING)


@dataclass(frozen=True, slots=True)
class _Updated:
    """Files of a table, and rows that take the places of some of theirs."""

    view: Snapshot
    files: list[FileSlice]
    entering: list[Entering]
    target: Store

    @classmethod
    def of(cls, folder: Path, target: Path) -> _Updated:
        store = Store(folder)
        view = Snapshot(store, newest_of(store))
        files = list(view.slices())
        entering = [_entering(folder / one.base.path, one) for one in files]
        return cls(view, files, entering, Store(target, {"durable": "false"}))

    def write(self, filed: Callable[[Snapshot, FileSlice, Entering], Filed]) -> None:
        for number, (one, entering) in enumerate(zip(self.files, self.entering, strict=True)):
            made = filed(self.view, one, entering)
            assert made.counts.updated == len(entering.here)
            assert made.body is not None
            self.target.create(str(number), made.body)

    def clear(self) -> None:
        """What was stored: to give room back is no part of a rewrite."""
        self.target.delete([str(number) for number in range(len(self.files))])

    def copy(self) -> None:
        for number, one in enumerate(self.files):
            self.target.create(str(number), self.view.store.fetch(one.base.path))

    def copy_and_encode(self) -> None:
        """Of the row group the columns in which a row is another; nothing is put into them."""
        self.copy()
        for one in self.files:
            file = pq.ParquetFile(self.view.store.open(one.base.path, one.base.size_bytes))
            rows = file.read_row_group(GROUP, CHANGING)
            with pq.ParquetWriter(io.BytesIO(), rows.schema, **_WRITER) as writer:
                writer.write_table(rows, rows.num_rows)


def _entering(path: Path, one: FileSlice) -> Entering:
    """Some rows of the row group, with other values."""
    seen = pq.ParquetFile(path).read_row_group(GROUP, ["seen"])["seen"]
    rows = rows_of("uuid", numbers_of(seen)[::EACH], 0, generation=1)
    target = DataFile(one.partition_path, one.file_id, "1-1-1", "20990101000000000", 0)
    return Entering(rows, rows["id"].combine_chunks(), np.arange(rows.num_rows), target, 0)


def _spliced(view: Snapshot, one: FileSlice, entering: Entering) -> Filed:
    known = Known(arriving=0, is_proven=True, is_asked_for_keys=False)
    made = spliced_file(view, one, entering, pa.array([], pa.string()), entering.target, known)
    assert made is not None
    return made


def _plain(view: Snapshot, one: FileSlice, entering: Entering) -> Filed:
    made = merged_slice(view, one, entering, pa.array([], pa.string()))
    return made.filed(view, entering.target)


def _made(setup: Setup, rows: int, group_rows: int) -> _File:
    """Rows as one base file of ours."""
    made = table_rows("uuid", rows)
    data_file = DataFile("day=2026-01-01", "some-0", "0-0-0", "20260101000000000", 0)
    made = add_meta_columns(made, made["id"], data_file).combine_chunks()
    body = encoded_base_file(made, Options("t", ("id",), row_group_rows=group_rows), None)
    store = Store(setup.cupboard.scratch(), {"durable": "false"})
    store.put("stored", body)
    return _File(store, "stored", len(body))


def _as_they_are(parts: ParquetParts, group: int) -> Sequence[Chunk]:
    return parts.chunks(group)


def _renamed(parts: ParquetParts, group: int) -> Sequence[Chunk]:
    chunks = parts.chunks(group)
    sink = io.BytesIO()
    names = pa.table([pa.repeat("another", chunks[0].rows)], schema=pa.schema([META_FIELDS[-1]]))
    pq.write_table(names, sink, row_group_size=chunks[0].rows, **_WRITER)
    return replaced(chunks, ParquetParts.of_bytes(sink.getvalue()).chunks(0))


def _processors(run: Callable[[], None], behind: Callable[[], None] | None = None) -> Measure:
    """Seconds of all threads; those of what is done behind it are not measured."""

    def measure() -> float:
        before = time.process_time()
        run()
        took = time.process_time() - before
        if behind:
            behind()
        return took

    return measure


if __name__ == "__main__":
    run_module(globals())
