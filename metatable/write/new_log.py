"""Rows to log: what a commit puts on top of a file group of a merge-on-read table.

Rows that are put in stand whole in data blocks, keys that are taken out in a delete block, whatever
the group holds: nothing of it is read. A delete has no ordering value, so it takes what was there
before, as in a copy-on-write table.

Hudi's readers forget such a delete once a row of its key follows, and hold the row against the one
that the base still has (DECISIONS 79); and a null in place of an ordering value is nothing that
they can compare. Such rows are put into the group by writing it anew (`fits_log`).

Where the group is being resized each child gets a log of what is in its hashes, and so does the
group one, of the same blocks, unless its reader merges those of the children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_file import with_file_name
from metatable.data.children import node_of
from metatable.data.key_texts import KEY
from metatable.data.log_blocks import LogWriter
from metatable.data.schema import with_meta_columns
from metatable.data.slice_reader import log_deletes, log_rows
from metatable.data.slices import DataFile, FileSlice, LogFile
from metatable.data.statistics import ColumnStats, of_all
from metatable.index.bucket.ring import hashes_of, part_of
from metatable.metadata.view import TableView
from metatable.metadata.written import stats_columns, stats_of_rows
from metatable.storage.hudi_log import log_file
from metatable.storage.hudi_log.block import LogBlock
from metatable.write.new_slice import Entering

__all__ = ["NewLog", "fits_log", "logs_of_children", "new_log", "stats_of_log"]


@dataclass(frozen=True, slots=True)
class NewLog:
    """The bytes of a log, and what its rows tell."""

    body: bytes
    stats: tuple[ColumnStats, ...]

    @classmethod
    def together(cls, parts: Sequence[NewLog]) -> NewLog:
        """One log of all that these say."""
        body = b"".join(one.body for one in parts)
        return cls(body, tuple(of_all([one.stats for one in parts])))


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
    every = np.arange(len(entering.here))
    return _new_log(view, entering, every, gone, entering.target.file_id)


def logs_of_children(
    view: TableView, entering: Entering, gone: pa.Array, children: Sequence[DataFile]
) -> list[NewLog | None]:
    """The same, parted by the hashes of the children; None for one that gets nothing."""
    nodes, columns = [node_of(one) for one in children], view.options.key
    rows = part_of(nodes, hashes_of(entering.keys.take(pa.array(entering.here)), columns))
    keys = part_of(nodes, hashes_of(gone, columns))
    found: list[NewLog | None] = []
    for number, child in enumerate(children):
        ours, going = np.flatnonzero(rows == number), gone.filter(pa.array(keys == number))
        is_empty = not len(ours) and not len(going)
        told = entering, ours, going, child.file_id
        found.append(None if is_empty else _new_log(view, *told))
    return found


def _new_log(
    view: TableView,
    entering: Entering,
    ours: npt.NDArray[np.int64],
    gone: pa.Array,
    file_id: str,
) -> NewLog:
    """`ours`: which of the rows that enter."""
    instant = entering.target.instant
    writer = LogWriter(view.schema, view.options.name, view.table_schema)
    take = entering.taker(with_meta_columns(view.schema))
    rows = with_file_name(take(ours), file_id)
    blocks: list[LogBlock] = []
    if len(gone):
        blocks.append(writer.delete_block(gone, entering.target.partition_path, instant))
    if rows.num_rows and view.options.log_format == "parquet":
        codec = view.options.parquet_codec
        blocks.append(writer.parquet_block(rows, instant, codec))
    elif rows.num_rows:
        blocks += writer.avro_blocks(rows, instant)
    return NewLog(log_file.LogFile.encode(blocks), _facts(view, rows))


def stats_of_log(view: TableView, log: LogFile) -> tuple[ColumnStats, ...]:
    """What the rows of one tell that another attempt has stored. Raises CorruptError."""
    rows = log_rows(view.store, log, with_meta_columns(view.schema), view.table_schema)
    return _facts(view, rows)


def _facts(view: TableView, rows: pa.Table) -> tuple[ColumnStats, ...]:
    return tuple(stats_of_rows(rows, stats_columns(view.table_schema, view.options)))
