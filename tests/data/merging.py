"""A merge of tables that are in memory, rows and counts together."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from metatable.data.rows.merge import Merge
from metatable.data.rows.row_counts import RowCounts

__all__ = ["Merged", "merge_rows"]


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of a merged slice; else as `Merge`."""

    table: pa.Table
    counts: RowCounts
    deleted_keys: pa.Array


def merge_rows(
    base: pa.Table, upserts: pa.Table, deletes: pa.Array, ordering: str | None
) -> Merged:
    """As `Merge`, of stored rows that are in memory."""
    merge = Merge.of(base, upserts, deletes, ordering)
    upserts = upserts.select(base.column_names).cast(base.schema)
    rows = pa.concat_tables([base.slice(0, 0), *merge.rows([base], upserts.take, 1000)])
    return Merged(rows, merge.counts, merge.deleted_keys)
