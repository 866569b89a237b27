"""The floor of an upsert: what nobody can spare whose files hold rows by columns.

pyarrow gathers, decodes and encodes what must change, and as many bytes as the new files have are
written. Which row is where, everybody must find out, too, each in another way: that is not counted,
but in a second floor, of who asks a record index.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import metatable
from benchmarks.data import Cupboard
from benchmarks.harness import FLOOR, Measure, Peer, timed
from benchmarks.index_floor import IndexFloor
from metatable.data.base_files.base_file_writer import (
    PAGE_ROWS,
    FileForm,
    encoded_base_file,
    encoded_columns,
)
from metatable.data.base_files.encoding import Encoding
from metatable.data.base_files.meta_columns import add_meta_columns
from metatable.data.columns.schema import KEY_COLUMN, META_COLUMNS
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile
from metatable.storage.arrays import Int64s
from metatable.storage.parquet.chosen_pages import read_rows
from metatable.storage.parquet.paged_file import paged
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["indexed_upsert_floor", "upsert_floor"]

CHANGED = (META_COLUMNS[0], META_COLUMNS[1], "customer", "amount", "quantity", "city", "note")
"""Columns in which other rows of the same keys differ, but for the name of the file, which is one
value. Those of REPEATED are dictionaries."""
REPEATED = (META_COLUMNS[0], "quantity", "city")
GROUP_ROWS = 131_072

_Hit = tuple[int, Int64s, Int64s]
"""A row group, places in it, and the rows of a batch that come there."""


def upsert_floor(cupboard: Cupboard, source: Path, batch: pa.Table) -> Peer:
    """The floor of an upsert of this batch into the table at `source`."""
    what = (
        "pyarrow gathers, decodes and encodes what must change, files of that size, fsync; no "
        "index, no tag"
    )
    return Peer(f"{FLOOR}{what}", _timed(cupboard, source, batch, None))


def indexed_upsert_floor(cupboard: Cupboard, source: Path, batch: pa.Table) -> Peer:
    """The same of who asks a record index before, and puts nothing into it."""
    index = IndexFloor.of(metatable.open(source), batch["id"].combine_chunks())
    what = (
        "the same, and before it hashes put in order, index blocks that may hold one read, checked "
        "and unpacked"
    )
    return Peer(f"{FLOOR}{what}", _timed(cupboard, source, batch, index))


def _timed(cupboard: Cupboard, source: Path, batch: pa.Table, index: IndexFloor | None) -> Measure:
    known: list[_Must] = []
    folders: list[Path] = []

    def prepare() -> None:
        known[:] = known or [_Must.of(source, batch)]
        for old in folders:
            cupboard.drop(old)
        folders[:] = [cupboard.scratch()]

    def run() -> None:
        if index is not None:
            index.unpack()
        known[0].work(folders[0])

    return timed(run, prepare=prepare)


@dataclass(frozen=True, slots=True)
class _Must:
    """What has to be done for a batch."""

    batch: pa.Table
    files: list[tuple[Path, list[_Hit]]]
    """Files of which rows are replaced, with the row groups that hold a key of the batch."""
    new: Int64s
    """The rows of the batch whose keys no file holds."""

    @classmethod
    def of(cls, source: Path, batch: pa.Table) -> _Must:
        """Look for the keys of a batch in the table at `source`."""
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
    """Decode and encode what changes in a file, and write as many bytes to `target`."""
    texts = [name for name in REPEATED if name != "quantity"]
    form = FileForm(Options("t", ("id",)), None)
    file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts)
    store = Store(path.parent)
    [pages_of] = paged(store, [(path.name, path.stat().st_size)])
    own = batch.select([name for name in CHANGED if name in batch.column_names])
    stored = [file.metadata.row_group(0).column(leaf) for leaf in range(file.metadata.num_columns)]
    plain = [one.path_in_schema for one in stored if one.compression == "UNCOMPRESSED"]
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
            encoded_columns(held.select(names), form, Encoding((), plain))
        table = file.read_row_group(group, whole, use_threads=False)
        changed = [name for name in CHANGED if name in whole]
        encoded_columns(table.select(changed), form, Encoding(REPEATED, plain))
    shutil.copyfile(path, target)
    with target.open("rb") as made:
        os.fsync(made.fileno())


def _encoded(batch: pa.Table, numbers: Int64s) -> None:
    """Encode these rows of the batch as a new file."""
    rows = batch.take(pa.array(numbers))
    place = DataFile("day=2026-01-01", "some-0", "0-0-0", "20260101000000000", 0)
    made = add_meta_columns(rows, rows["id"], place).combine_chunks()
    encoded_base_file(made, Options("t", ("id",), row_group_rows=GROUP_ROWS), None)
