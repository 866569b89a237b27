"""Where the keys of rows are: the column `_location`, and what it costs to find out.

The index of the table answers. What is asked of it is the same on every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.keys.as_given import given_keys
from metatable.data.keys.key_texts import identity_columns
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.bucket.index import bucket_index
from metatable.index.locations import LOCATION_COLUMN
from metatable.index.presence import present
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query.bucket_spread import PLACED, bucket_spread, count_placed
from metatable.query.later import later
from metatable.results import Explain
from metatable.storage.counters import Counters

__all__ = ["explain_lookup", "tagged"]

FOUND = pa.schema([pa.field("keys", pa.int64()), pa.field("found", pa.int64())])
"""How many keys were asked for, and how many of them have a location."""

_LEVELS = {
    "in the partitions": "tag.files",
    "after key ranges": "tag.files_after_ranges",
    "after filters": "tag.files_after_filters",
    "opened": "tag.files_opened",
}
"""The levels of a lookup, and the counters that tell how many files are left after each."""


def tagged(engine: Engine[Any], rows: Any, snapshot: Snapshot, *, proven: bool = False) -> Any:
    """`rows`, whatever the engine adopts as such, with `_location`; lazy.

    Not `proven`: where the file group follows from the key, the one that would hold it. Raises
    UsageError for rows without the columns of the key.
    """
    view = snapshot.holding().counting(engine.counters)
    adopted = engine.rows(given_keys(rows, view.options, view.schema))
    identity_columns(view.options, engine.columns(adopted))
    index = create_index(view.options)
    tag = partial(present, index) if proven else index.tag
    return tag(later(engine, view), adopted, view)


def explain_lookup(engine: Engine[Any], rows: Any, snapshot: Snapshot) -> Explain:
    """Look the keys of some rows up, and say what that found and cost, but for the seconds. Other
    columns of the rows are not read; what was found is let go."""
    adopted = engine.rows(given_keys(rows, snapshot.options, snapshot.schema))
    keys = identity_columns(snapshot.options, engine.columns(adopted))
    found = tagged(engine, engine.select(adopted, keys), snapshot)
    buckets = bucket_index(create_index(snapshot.options))
    if buckets is None:
        counts = engine.run(engine.select(found, [LOCATION_COLUMN]), _count_found, FOUND)
        spread = None
    else:
        counts = engine.run(found, partial(count_placed, buckets, snapshot), PLACED)
        spread = bucket_spread(snapshot, counts)
    asked, hits = (pc.sum(counts[name]).as_py() or 0 for name in FOUND.names)
    told = dict(engine.counters)
    return Explain(asked, hits, 0.0, told, files=_levels(told), buckets=spread)


def _count_found(batches: Iterator[pa.RecordBatch], counters: Counters) -> Iterator[pa.RecordBatch]:
    """Task: how many rows there are, and how many have a location, in `FOUND`."""
    for batch in batches:
        found = len(batch) - batch[LOCATION_COLUMN].null_count
        yield pa.RecordBatch.from_pylist([{"keys": len(batch), "found": found}], schema=FOUND)


def _levels(counters: Mapping[str, int]) -> dict[str, int]:
    """Files after each level; nothing for an index that looks at no files."""
    if "tag.files" not in counters:
        return {}
    return {level: counters.get(name, 0) for level, name in _LEVELS.items()}
