"""Rows as a commit needs them: columns checked and widened, key texts in front, each key once.

A delete keeps nothing but the texts, a merge the columns that it gives. Duplicates are looked for
among the texts alone; only where there are some, and an ordering decides between them, do whole
rows go to their key's task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.align import align
from metatable.data.config.options import Options
from metatable.data.hoodie.operations import DELETE, MERGE
from metatable.data.keys.key_texts import (
    KEY,
    PATH,
    identity_columns,
    own_identity_columns,
    texts_of,
)
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.rows.merge import deduplicate
from metatable.engine.partitions import pieces, task_numbers
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import has_repeats
from metatable.storage.threads import in_order
from metatable.write.profile import NAMED_KEYS
from metatable.write.same_rows import (
    IDENTITY_SUM,
    add_identities,
    hash_sum,
    identity_hashes,
    identity_sum,
    other_rows,
    sum_of,
)

__all__ = ["Distinct", "distinct", "keys_alone", "prepared", "refuse_others"]

LONGEST_KEY = 32_767
"""Bytes of an HFile's key."""

HASHES_HERE = 1 << 20
"""Of so many rows in this process hashes are compared where they are, all at once: eight bytes a
row, several times. To deal them to tasks takes longer."""
HASH_TASKS_PER_SLOT = 4

ROWS_TOGETHER = 1 << 18
"""Rows among which a task looks for those of one key."""

_HASH = "_metatable_hash"
_EQUAL_HASHES = pa.schema(
    [pa.field("rows", pa.int64()), pa.field("again", pa.bool_()), pa.field("sum", pa.int64())]
)
_TASK = pa.schema([pa.field(TASK_COLUMN, pa.int32())])
_REPEATED = pa.schema([pa.field("keys", pa.list_(pa.string())), pa.field("sum", pa.int64())])


def prepared(
    engine: Engine[Any], rows: Any, options: Options, schema: pa.Schema, operation: str
) -> Any:
    """Rows with their key texts first; a delete (of `keys_alone`) keeps nothing else, a merge what
    is given.

    Raises UsageError where a column is missing that says which row this is, or which is newer, and
    for columns that are not the table's, or of types that do not become the table's.
    """
    texts = [pa.field(KEY, pa.string()), pa.field(PATH, pa.string())]
    given = engine.schema(rows)
    names = given.names
    if operation == DELETE:
        return engine.map(rows, names, partial(_key_rows, options, schema), pa.schema(texts))
    if operation == MERGE:
        own_identity_columns(options, names)
        schema = _given(schema, names)
    else:
        _refuse_nameless(options, names)
    _refuse_types(given, schema)
    prepared = pa.schema([*texts, *schema])
    return engine.map(rows, names, partial(_texts_and_rows, options, schema), prepared)


def keys_alone(engine: Engine[Any], rows: Any, options: Options) -> Any:
    """The columns of rows to be deleted that say which they are. Raises UsageError."""
    return engine.select(rows, own_identity_columns(options, engine.columns(rows)))


def _given(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The columns of the table that are named, in its order."""
    for name in names:
        if name not in schema.names:
            raise UsageError("column is not in the table", column=name, expected=schema.names)
    return pa.schema([field for field in schema if field.name in names])


def _refuse_nameless(options: Options, names: Sequence[str]) -> None:
    """Other columns may be left out and become null; these never, for null is a value of theirs:
    a row without its partition would be another row."""
    parts = (
        ("key", options.key),
        ("partition", options.partition_by),
        ("ordering", (options.ordering,) if options.ordering else ()),
    )
    for part, columns in parts:
        for name in columns:
            if name not in names:
                what = f"the {part} column is missing"
                raise UsageError(what, column=name, found=list(names))


def _refuse_types(given: pa.Schema, schema: pa.Schema) -> None:
    """Types alone decide what becomes the table's: so no task need begin to find out."""
    columns = [pa.nulls(0, field.type) for field in given]
    align(pa.RecordBatch.from_arrays(columns, names=given.names), schema)


def _key_rows(
    options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays(list(texts_of(options, schema, batch)), names=[KEY, PATH])


def _texts_and_rows(
    options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: a row whose partition is not given has no path yet."""
    generator = KeyGenerator(options)
    placed = all(name in schema.names for name in options.partition_by)
    for batch in batches:
        batch = align(batch, schema)
        paths = generator.partition_paths(batch) if placed else _nowhere(batch.num_rows)
        texts = [generator.record_keys(batch), paths]
        _refuse_long(options, *texts)
        yield pa.RecordBatch.from_arrays([*texts, *batch.columns], names=[KEY, PATH, *schema.names])


def _refuse_long(options: Options, keys: pa.Array, paths: pa.Array) -> None:
    """Keys that a record index stores as they are, behind their partition's path and a zero."""
    if options.record_key_form != "plain":
        return
    sizes = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    if not options.is_global:
        sizes += pc.binary_length(paths).to_numpy(zero_copy_only=False) + 1
    long = np.flatnonzero(sizes > LONGEST_KEY)
    if len(long):
        row = int(long[0])
        raise UsageError(
            "key is too long for the record index",
            row=row,
            expected=f"{LONGEST_KEY} bytes, partition path included, or record_key_form='hash'",
            found=len(keys[row].as_py().encode()),
        )


@dataclass(frozen=True, slots=True)
class Distinct:
    """Rows with one row a key; the count of those that were given; and the sum of the hashes of
    what tells them apart (`same_rows.py`), None where nobody looks at it: rows in this process stay
    what they are."""

    rows: Any
    count: int
    sum: int | None


def distinct(engine: Engine[Any], rows: Any, options: Options, operation: str) -> Distinct:
    """One row a key. Raises UsageError for repeated keys without an ordering.

    Hashes are compared first, eight bytes per row; texts only where two are equal.
    """
    identity = identity_columns(options, [KEY, PATH])
    once, is_doubtful = _repeats(engine, rows, identity)
    if not is_doubtful:
        return once
    tasks = _tasks(engine, once)
    found = _by_keys(engine, rows, identity, tasks)
    repeated = [key for some in found["keys"].to_pylist() for key in some]
    if not repeated:
        return once
    names = engine.columns(rows)
    ordering = options.ordering if options.ordering in names else None
    if ordering is None and operation != DELETE:
        raise UsageError(
            "keys repeat in the rows given",
            keys=sorted(repeated)[:NAMED_KEYS],
            expected="each key once, or rows with an ordering column",
        )
    extended = engine.extend(rows, [KEY], partial(_by_key, tasks), _TASK)
    together = engine.exchange(extended, TASK_COLUMN, tasks)
    schema = engine.schema(rows)
    made = engine.map(together, names, partial(_deduplicated, identity, ordering), schema)
    return Distinct(made, once.count, None if once.sum is None else sum_of(found["sum"]))


def refuse_others(
    engine: Engine[Any],
    rows: Any,
    options: Options,
    given: Distinct,
    profile: pa.Table | None = None,
) -> None:
    """Raises UsageError where `rows`, which come of those that were given, are others by now. A
    `profile` of them spares the first look; a row whose key is stored twice is there twice."""
    if given.sum is None:
        return
    identity = identity_columns(options, [KEY, PATH])
    if profile is not None:
        total = identity_sum(identity, profile)
    else:
        texts = engine.select(rows, identity)
        told = engine.run(texts, partial(add_identities, identity), IDENTITY_SUM)
        total = sum_of(told["sum"])
    if total != given.sum:
        found = _by_keys(engine, rows, identity, _tasks(engine, given))
        if sum_of(found["sum"]) != given.sum:
            raise other_rows()


def _tasks(engine: Engine[Any], given: Distinct) -> int:
    """How many tasks look for rows of one key."""
    return max(engine.slots, -(-given.count // ROWS_TOGETHER))


def _by_keys(engine: Engine[Any], rows: Any, identity: Sequence[str], tasks: int) -> pa.Table:
    """In `_REPEATED`, what so many tasks tell that are given all rows of some keys."""
    texts = engine.select(rows, identity)
    keys = engine.extend(texts, [KEY], partial(_by_key, tasks), _TASK)
    dealt = engine.exchange(keys, TASK_COLUMN, tasks)
    return engine.run(dealt, partial(_repeated, identity), _REPEATED)


def _repeats(engine: Engine[Any], rows: Any, identity: Sequence[str]) -> tuple[Distinct, bool]:
    """The rows as they are, and whether two of them have the same hash."""
    here = engine.held(rows)
    if here is not None and sum(map(len, here)) <= HASHES_HERE:
        hashes = in_order(partial(identity_hashes, identity), here)
        if not has_repeats(np.concatenate([np.zeros(0, np.uint64), *hashes])):
            return Distinct(rows, sum(map(len, here)), None), False
    tasks = engine.slots * HASH_TASKS_PER_SLOT
    fields = pa.schema([pa.field(_HASH, pa.int64()), pa.field(TASK_COLUMN, pa.int32())])
    hashes = engine.map(rows, identity, partial(_hashes, identity, tasks), fields)
    spread = engine.exchange(hashes, TASK_COLUMN, tasks)
    found = engine.run(engine.select(spread, [_HASH]), _equal_hashes, _EQUAL_HASHES)
    total = None if engine.in_process else sum_of(found["sum"])
    given = int(pc.sum(found["rows"]).as_py() or 0)
    return Distinct(rows, given, total), bool(pc.any(found["again"]).as_py())


def _hashes(
    identity: Sequence[str],
    tasks: int,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        hashes = identity_hashes(identity, batch)
        columns = [pa.array(hashes.view(np.int64)), pa.array(task_numbers(hashes, tasks))]
        yield pa.RecordBatch.from_arrays(columns, names=[_HASH, TASK_COLUMN])


def _equal_hashes(
    batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    parts = [batch[_HASH].to_numpy() for batch in batches]
    hashes = np.concatenate(parts).view(np.uint64)
    again = has_repeats(hashes)
    told = {"rows": len(hashes), "again": again, "sum": hash_sum(hashes)}
    yield pa.RecordBatch.from_pylist([told], schema=_EQUAL_HASHES)


def _by_key(
    count: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places = task_numbers(xxh64(batch[KEY], 0), count)
        yield pa.RecordBatch.from_arrays([pa.array(places)], names=[TASK_COLUMN])


def _repeated(
    identity: Sequence[str], batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: some keys that repeat, and the sum of hashes of all rows but for repeats."""
    counted = [
        piece.group_by(list(identity)).aggregate([([], "count_all")]) for piece in pieces(batches)
    ]
    counts = pa.concat_tables(counted).group_by(list(identity)).aggregate([("count_all", "sum")])
    again = counts.filter(pc.greater(counts["count_all_sum"], 1))[KEY].combine_chunks()
    named = again.take(pc.array_sort_indices(again)[:NAMED_KEYS]).to_pylist()
    total = hash_sum(identity_hashes(identity, counts.select(list(identity))))
    yield pa.RecordBatch.from_pylist([{"keys": named, "sum": total}], schema=_REPEATED)


def _deduplicated(
    identity: Sequence[str],
    ordering: str | None,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task: one row a key. All rows of a key are here, and one key may be most of what there is:
    of each piece of the rows no more is held than one row a key."""
    parts = [_once(identity, ordering, piece) for piece in pieces(batches)]
    table = parts[0] if len(parts) == 1 else _once(identity, ordering, pa.concat_tables(parts))
    if PATH not in table.column_names:
        table = table.append_column(PATH, _nowhere(table.num_rows))
    yield from table.to_batches()


def _once(identity: Sequence[str], ordering: str | None, table: pa.Table) -> pa.Table:
    if ordering is None:  # a delete: any row of a key will do
        return table.group_by(list(identity)).aggregate([]).select(list(identity))
    return deduplicate(table, identity, ordering)


def _nowhere(count: int) -> pa.Array:
    return pa.repeat(pa.scalar("", pa.string()), count)
