"""What table partitions hold: told before they are overwritten, or go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.align import align
from metatable.data.keys.keygen import KeyGenerator
from metatable.table import Table
from metatable.write.named_partitions import named_paths

__all__ = ["held", "named", "paths_of"]


def named(words: Sequence[str], table: Table) -> frozenset[str]:
    """The partition paths that were named. Raises UsageError."""
    return frozenset(named_paths(table.options, table.schema, words))


def paths_of(rows: Iterable[pa.RecordBatch], table: Table) -> frozenset[str]:
    """The partition paths that occur among rows, whose columns need not be of the table's types.

    Raises UsageError for values that make no path, and for columns that are missing.
    """
    keygen, schema = KeyGenerator(table.options), table.schema
    found = set[str]()
    for batch in rows:
        own = [schema.field(name) for name in keygen.partition_by if name in batch.schema.names]
        columns = align(batch.select([one.name for one in own]), pa.schema(own)) if own else batch
        found.update(keygen.partition_paths(columns).unique().to_pylist())
    return frozenset(found)


def held(table: Table, paths: Collection[str] | None) -> dict[str, Any]:
    """How many of these partitions (None: of all) there are, and their files and rows; of rows None
    where logs would have to be merged to tell."""
    version = table.version
    files = table.files(version=version)
    folders = pc.replace_substring_regex(files.paths, "/?[^/]*$", "")
    kept = np.ones(len(folders), bool)
    if paths is not None:
        wanted = pa.array(list(paths), pa.string())
        kept = pc.is_in(folders, value_set=wanted).to_numpy(zero_copy_only=False)
    counts = files.row_counts[kept]
    return {
        "version": version,
        "partitions": pc.count_distinct(folders.filter(pa.array(kept))).as_py(),
        "files": int(kept.sum()),
        "rows": None if (counts < 0).any() else int(counts.sum()),
    }
