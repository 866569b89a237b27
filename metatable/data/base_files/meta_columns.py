"""Hudi's meta columns, which stand before a table's own in every data file and data block.

    _hoodie_commit_time      the instant of the commit that last wrote the row
    _hoodie_commit_seqno     `<instant>_<task>_<row>`: a number that is given once in a commit
    _hoodie_record_key       the text of the row's key (`keygen.py`)
    _hoodie_partition_path   of the table partition
    _hoodie_file_name        the file that holds the row now; of a row in a log its file id

A row that is only copied into a new file keeps all of them but the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.schema import META_FIELDS, NAME_COLUMN
from metatable.data.file_groups.slices import DataFile
from metatable.storage.arrays import Int64s

__all__ = [
    "add_changing_columns",
    "add_meta_columns",
    "with_file_name",
    "with_meta_columns_of",
]


def add_meta_columns(
    table: pa.Table,
    keys: pa.Array,
    data_file: DataFile,
    task: int = 0,
    numbers: Int64s | None = None,
) -> pa.Table:
    """Rows of the table as rows of `data_file`, written by its instant.

    `keys` (string) is their key text; `task` tells apart the files of one commit, so that a
    sequence number is given once. `numbers` are the rows' own, from 0 on unless they are given.
    """
    told = (data_file.partition_path, data_file.name, str(task))
    words = [pa.repeat(word, table.num_rows) for word in told]
    own = np.arange(table.num_rows) if numbers is None else numbers
    return with_meta_columns_of(table, keys, data_file.instant, words, own)


def add_changing_columns(table: pa.Table, instant: str, task: int, numbers: Int64s) -> pa.Table:
    """Rows of the table with those two meta columns alone that a row of one key has anew in each
    commit that writes it: the instant, and the sequence number."""
    columns = [*_changing(instant, str(task), numbers), *table.columns]
    return pa.table(columns, schema=pa.schema([*META_FIELDS[:2], *table.schema]))


def with_meta_columns_of(
    table: pa.Table,
    keys: pa.Array,
    instant: str,
    words: Sequence[pa.Array],
    numbers: Int64s,
) -> pa.Table:
    """What `add_meta_columns` makes, of rows of several files. `words`: three string arrays, the
    partition path, the file name and the task of each row."""
    partition_paths, names, tasks = words
    changing = _changing(instant, tasks, numbers)
    columns = [*changing, keys, partition_paths, names, *table.columns]
    return pa.table(columns, schema=pa.schema([*META_FIELDS, *table.schema]))


def _changing(instant: str, tasks: pa.Array | str, numbers: Int64s) -> tuple[pa.Array, pa.Array]:
    """The instant and the sequence number of each row."""
    own = pc.cast(pa.array(numbers), pa.string())
    sequence = pc.binary_join_element_wise(instant, tasks, own, "_")
    return pa.repeat(instant, len(numbers)), sequence


def with_file_name(table: pa.Table, name: str) -> pa.Table:
    """Rows copied into a file: each names the file that holds it now; of a log its group."""
    place = table.schema.get_field_index(NAME_COLUMN)
    names = pa.repeat(name, table.num_rows)
    return table.set_column(place, META_FIELDS[-1], names)
