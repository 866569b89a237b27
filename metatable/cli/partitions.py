"""What table partitions hold: told before they are overwritten, or go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.keygen import KeyGenerator
from metatable.table import Table
from metatable.write.overwrite import named_paths

__all__ = ["held", "named", "paths_of"]


def named(words: Sequence[str], table: Table) -> frozenset[str]:
    """The partition paths that were named. Raises UsageError."""
    return frozenset(named_paths(table.options, table.schema, words))


def paths_of(rows: Iterable[pa.RecordBatch], table: Table) -> frozenset[str]:
    """The partition paths that occur among rows."""
    keygen = KeyGenerator(table.options)
    found = (keygen.partition_paths(batch).unique().to_pylist() for batch in rows)
    return frozenset(path for paths in found for path in paths)


def held(table: Table, paths: Collection[str] | None) -> dict[str, Any]:
    """How many of these partitions (None: of all) there are, and their files and rows."""
    version = table.version
    files = table.files(version=version)
    folders = pc.replace_substring_regex(files.paths, "/?[^/]*$", "")
    kept = np.ones(len(folders), bool)
    if paths is not None:
        wanted = pa.array(list(paths), pa.string())
        kept = pc.is_in(folders, value_set=wanted).to_numpy(zero_copy_only=False)
    return {
        "version": version,
        "partitions": pc.count_distinct(folders.filter(pa.array(kept))).as_py(),
        "files": int(kept.sum()),
        "rows": int(files.row_counts[kept].clip(0).sum()),
    }
