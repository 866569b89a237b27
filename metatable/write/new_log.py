"""Rows to log: what a commit puts on top of a file group of a merge-on-read table.

Rows that are put in stand whole in data blocks, keys that are taken out in a delete block, whatever
the group holds: nothing of it is read. A delete has no ordering value, so it takes what was there
before, as in a copy-on-write table.

Hudi's readers forget such a delete once a row of its key follows, and hold the row against the one
that the base still has (DECISIONS 79); and a null in place of an ordering value is nothing that
they can compare. Such rows are put into the group by writing it anew (`fits_log`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_file import with_file_name
from metatable.data.key_texts import KEY
from metatable.data.log_blocks import LogWriter
from metatable.data.schema import with_meta_columns
from metatable.data.slice_reader import log_deletes, log_rows
from metatable.data.slices import FileSlice, LogFile
from metatable.data.statistics import ColumnStats
from metatable.data.taking import whole
from metatable.metadata.view import TableView
from metatable.metadata.written import stats_columns, stats_of_rows
from metatable.storage.hudi_log import log_file
from metatable.storage.hudi_log.block import LogBlock
from metatable.write.new_slice import Entering

__all__ = ["NewLog", "fits_log", "new_log", "stored_log"]


@dataclass(frozen=True, slots=True)
class NewLog:
    """The bytes of a log, and what its rows tell."""

    body: bytes
    keys: pa.Array
    stats: tuple[ColumnStats, ...]


def fits_log(view: TableView, base: FileSlice, entering: Entering) -> bool:
    """Whether every reader finds these rows in a log on this slice as the table means them."""
    if view.options.ordering is None:
        return True
    rows = entering.deciding(view.options.ordering)
    if rows[view.options.ordering].null_count:
        return False
    asked = [partial(log_deletes, view.store, one) for one in base.logs if one.named.may_delete]
    gone = view.store.together(asked)
    return not any(pc.any(pc.is_in(rows[KEY], value_set=keys)).as_py() for keys in gone)


def new_log(view: TableView, entering: Entering, gone: pa.Array) -> NewLog:
    """Of the rows that enter, and the keys (texts) that go."""
    instant, file_id = entering.target.instant, entering.target.file_id
    writer = LogWriter(view.schema, view.options.name, view.table_schema)
    take = entering.taker(with_meta_columns(view.schema))
    rows = with_file_name(take(np.arange(len(entering.here))), file_id)
    blocks: list[LogBlock] = []
    if len(gone):
        blocks.append(writer.delete_block(gone, entering.target.partition_path, instant))
    if rows.num_rows and view.options.log_format == "parquet":
        codec = view.options.parquet_codec
        blocks.append(writer.parquet_block(rows, instant, codec))
    elif rows.num_rows:
        blocks += writer.avro_blocks(rows, instant)
    return NewLog(log_file.LogFile.encode(blocks), *_facts(view, rows))


def stored_log(view: TableView, log: LogFile) -> NewLog:
    """The same of one that another attempt has stored. Raises CorruptError."""
    rows = log_rows(view.store, log, with_meta_columns(view.schema), view.table_schema)
    return NewLog(b"", *_facts(view, rows))


def _facts(view: TableView, rows: pa.Table) -> tuple[pa.Array, tuple[ColumnStats, ...]]:
    columns = stats_columns(view.table_schema, view.options)
    return whole(rows[KEY]), tuple(stats_of_rows(rows, columns))
