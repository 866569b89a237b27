"""Adopt: make an index for a table of another Hudi writer, or another index for one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metatable.data.config.option_checks import check_mapping
from metatable.engine_choice import engine_for
from metatable.metadata.commits.refusals import check_properties
from metatable.metadata.manifests.versions import load_newest
from metatable.opening import Uri
from metatable.storage.store import Store
from metatable.table import Table
from metatable.write.adopt import adopt_table
from metatable.write.change_index import change_index

__all__ = ["adopt"]


def adopt(
    uri: Uri,
    *,
    index: str = "metadata_bloom",
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
    engine: Any = None,
) -> Table:
    """Make an index for a Hudi table that is there, and open it. No data file is read twice, and
    none is written.

    A table of another writer (version 6, copy-on-write, without a metadata table of Hudi's) keeps
    its key, partitions, ordering column and schema; `options` are those of `create`. A table of
    ours gets this index in place of the one it has, in a new version: then `options` may only be
    those of the index, and where nothing differs nothing is done.

    `engine`: a Spark session to work on, else this process does. Raises UpgradeError for a table
    that our writers could not go on with, and names the way out; UsageError for options that do not
    fit, and for keys that are there twice; ConflictError where another writer is at work.
    """
    given = {} if options is None else options
    check_mapping(given)
    store = Store(uri, storage_options)
    properties = check_properties(store)
    chosen = engine_for(engine)
    try:
        counting = store.counting(chosen.counters)
        newest = load_newest(store)
        if newest is None:
            adopt_table(counting, chosen, properties, index, given)
        else:
            properties.check(newest.options)
            change_index(counting, chosen, index, given)
    finally:
        store.counters.merge(chosen.counters)
    return Table(store)
