"""Profile: how many rows go from where to where, counted before anything is written.

`CountGroups` tells it for each partition of the engine's rows, with a sample of the keys that
have no place yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.keys.row_order import BY_KEY, RowOrder
from metatable.data.rows.samples import FILE_TEXTS, every
from metatable.data.rows.taking import grouped, whole
from metatable.engine.adding_up import Sums, folded
from metatable.engine.partitions import pieces
from metatable.index.locations import LOCATION_COLUMN
from metatable.index.placement import Placement, placed
from metatable.storage.arrays import Int64s
from metatable.storage.counters import Counters
from metatable.write.same_rows import key_sums

__all__ = ["NAMED_KEYS", "PROFILE", "PROFILE_SUMS", "CountGroups", "are_open", "row_count"]

SAMPLE_KEYS = 2048
"""Keys a partition of rows gives as a sample of a table partition: all of a small batch, enough of
a large one."""

MOST_KEYS = 16 * SAMPLE_KEYS
"""Keys it gives of all table partitions, about, however many these are: of each the least, and no
fewer than files are cut by. All that partitions give meets in one process."""

ALL_KEYS = 1 << 21
"""Keys that all partitions of rows together give, about: some hundred MiB where they meet."""

NAMED_KEYS = 5
"""The most keys that an error names."""

PROFILE = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("located_path", pa.string()),
        pa.field("file_id", pa.string()),
        pa.field("target_id", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("key_sum", pa.int64()),
    ]
)

_KIND = "partition_path", "located_path", "file_id", "target_id"


@dataclass(frozen=True, slots=True)
class CountGroups:
    """Task: rows of each (partition path, location, placed group), in `PROFILE`.

    A task may be given any number of rows, and holds some of them at a time. Each kind of them is
    told once, but where samples go with it. Of rows that a plan must find a place for, these are
    the texts of `order`: all of them, or every n-th, beginning with the least. Of others that are
    refused it gives a few keys, to be named.
    """

    options: Options
    placement: Placement | None
    replaces: bool = False
    """Where rows are now leaves the table, and so is no location."""
    order: RowOrder = BY_KEY
    refuses: bool = False
    """Rows that are located are refused."""
    sums: bool = False
    """Keys are added up (`same_rows.py`)."""
    given: int = 0
    """Rows of all tasks together, about."""

    def __call__(
        self, batches: Iterator[pa.RecordBatch], counters: Counters
    ) -> Iterator[pa.RecordBatch]:
        told = map(self._counted, pieces(batches))
        yield from folded(told, PROFILE_SUMS)

    def _named(self, keys: pa.Array, some: Int64s) -> list[str]:
        """A few keys of rows that are refused; of others nobody names any, and where there are many
        groups all tasks together would send the driver as much as rows are."""
        named: list[str] = keys.take(pa.array(some)).to_pylist() if self.refuses else []
        return named

    def _counted(self, table: pa.Table) -> pa.Table:
        """`PROFILE` of these rows."""
        places, row_of = _places(table, self.placement)
        if self.replaces:
            nowhere = pa.nulls(len(row_of), pa.string())
            places |= {"located_path": nowhere, "file_id": nowhere}
        groups, rows = grouped(places)  # by their texts, or by numbers of these
        width = table.nbytes / max(table.num_rows, 1)
        keys = table[KEY].combine_chunks()
        texts = self.order.texts(table)
        counts = np.array([len(here) for here in rows], dtype=np.int64)
        finest = max(1, self.options.most_rows(width) // FILE_TEXTS)
        opened = are_open(groups).to_pylist()
        open_rows = sum(len(here) for is_open, here in zip(opened, rows, strict=True) if is_open)
        steps = max(-(-open_rows // MOST_KEYS), -(-self.given // ALL_KEYS)), finest
        samples = [
            _sample(keys if self.refuses and file_id else texts, row_of[here], *steps)
            if is_open
            else self._named(keys, row_of[here[:NAMED_KEYS]])
            for is_open, file_id, here in zip(
                opened, groups["file_id"].to_pylist(), rows, strict=True
            )
        ]
        return pa.Table.from_arrays(
            [
                *(groups[name].combine_chunks() for name in places),
                pa.array(counts),
                pa.array((counts * width).astype(np.int64)),
                pa.array(samples, pa.list_(pa.string())),
                key_sums(keys, row_of, rows) if self.sums else pa.nulls(len(rows), pa.int64()),
            ],
            schema=PROFILE,
        )


def _added(told: pa.Table) -> pa.Table:
    """Rows of `PROFILE`, each kind once. Of keys that are named those of one row are enough."""
    numbered = told.append_column("place", pa.array(np.arange(len(told))))
    sums = [("rows", "sum"), ("bytes", "sum"), ("key_sum", "sum"), ("place", "min")]
    found = numbered.group_by(_KIND, use_threads=False).aggregate(sums)
    keys = told["keys"].combine_chunks().take(found["place_min"].combine_chunks())
    columns = [found[name] for name in (*_KIND, "rows_sum", "bytes_sum", "key_sum_sum")]
    return pa.table([*columns[:6], keys, columns[6]], schema=PROFILE)


def are_open(groups: pa.Table) -> pa.Array:
    """Whether rows of each of these kinds may go to any file group of their partition."""
    stays = pc.equal(groups["located_path"], groups["partition_path"]).fill_null(False)
    return pc.and_not(groups["target_id"].is_null(), stays)


PROFILE_SUMS = Sums(PROFILE, _KIND, _added, are_open)
"""How profiles are added up: each sample stays with the rows that it is of."""


def _places(table: pa.Table, placement: Placement | None) -> tuple[dict[str, pa.Array], Int64s]:
    """Where rows come from and, where that is decided, go to; and which rows these are."""
    location = whole(table[LOCATION_COLUMN])
    paths, located_path = whole(table[PATH]), pc.struct_field(location, "partition_path")
    if placement is None and pa.types.is_dictionary(located_path.type):
        paths = paths.dictionary_encode()
    columns = {
        "partition_path": paths,
        "located_path": located_path,
        "file_id": pc.struct_field(location, "file_id"),
    }
    if placement is None:
        rows, file_ids = np.arange(table.num_rows), pa.nulls(table.num_rows, pa.string())
    else:
        rows, file_ids = placed(placement, whole(table[KEY]), columns["partition_path"])
        columns = {name: one.take(pa.array(rows)) for name, one in columns.items()}
    return columns | {"target_id": file_ids}, rows


def _sample(keys: pa.Array, rows: Int64s, least: int, most: int) -> list[str]:
    """Every so many of the keys of these rows: `least`, or more, but no more than `most`."""
    step = min(most, max(least, -(-len(rows) // SAMPLE_KEYS)))
    return every(keys.take(pa.array(rows)), step)


def row_count(profile: pa.Table) -> int:
    """How many rows a profile, or part of one, tells of."""
    return int(pc.sum(profile["rows"]).as_py() or 0)
