"""Batches: what every engine does with Arrow batches before, between and after its tasks.

    adopted    anything Arrow-like becomes a table, or a reader that is read once
    conform    a batch in exactly the columns that were promised, or a UsageError
    filled     batches with rows; a task never sees an empty one
    gathered   small batches joined up to a size worth a call of numpy
    deal       a batch cut by the task number that each row carries

Types are compared without metadata; what comes in another type is cast where no value is
lost, because Spark takes columns by position and trusts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int32s
from metatable.storage.errors import UsageError

__all__ = [
    "Partition",
    "adopted",
    "conform",
    "deal",
    "filled",
    "gathered",
    "joined",
    "one_piece",
    "together",
    "viewless",
]

Partition = Callable[[], Iterable[pa.RecordBatch]]
"""Batches that are made when they are asked for, as often as they are asked for."""

LEAST_INDEX_BITS = 32
"""Numbers of a dictionary's values: pandas has as few bits as one of its own needs."""

_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}

ARROW_LIKE = "a Table, RecordBatch or reader, a dict of columns, or pandas, Polars, … rows"


def adopted(data: Any) -> pa.Table | pa.RecordBatchReader:
    """`data` as Arrow, without reading a stream. Raises UsageError for what is not rows.

    A pandas index is left out (but for what `data/keys/as_given.py` has taken of it), and so is
    metadata of the schema.
    """
    try:
        found = _as_arrow(data)
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        what = "rows cannot be taken over as Arrow"
        raise UsageError(what, found=type(data).__name__, reason=str(error)) from error
    if found is None:
        what = "these are no rows"
        raise UsageError(what, expected=ARROW_LIKE, found=type(data).__qualname__)
    twice = sorted(name for name, times in Counter(found.schema.names).items() if times > 1)
    if twice:
        raise UsageError("a column is there twice", found=twice)
    return found


def _as_arrow(data: Any) -> pa.Table | pa.RecordBatchReader | None:
    if isinstance(data, type):
        return None
    if isinstance(data, pa.RecordBatchReader):
        return data
    if _is_pandas(data):
        data = pa.Table.from_pandas(data, preserve_index=False)
    if isinstance(data, pa.Table):
        return data.replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    return _one_batch(data) if hasattr(data, "__arrow_c_array__") else None


def _is_pandas(data: Any) -> bool:
    modules = {one.__module__.partition(".")[0] for one in type(data).__mro__}
    return "pandas" in modules and hasattr(data, "columns")


def _one_batch(data: Any) -> pa.Table:
    return pa.Table.from_batches([pa.record_batch(data)]).replace_schema_metadata(None)


def viewless(schema: pa.Schema) -> pa.Schema:
    """`schema` without metadata and without what Arrow lacks kernels for: views, runs, and
    dictionaries whose numbers have no room for the values of several that are put together."""
    return pa.schema([_viewless(field) for field in schema])


def _viewless(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _plain(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_list(kind) or t.is_large_list(kind):
        made = pa.list_ if t.is_list(kind) else pa.large_list
        return made(_viewless(kind.value_field))
    if t.is_fixed_size_list(kind):
        return pa.list_(_viewless(kind.value_field), kind.list_size)
    if t.is_struct(kind):
        return pa.struct([_viewless(inner) for inner in kind])
    if t.is_map(kind):
        key, item = _viewless(kind.key_field), _viewless(kind.item_field)
        return pa.map_(key, item, kind.keys_sorted)
    if t.is_dictionary(kind):
        index = kind.index_type if kind.index_type.bit_width >= LEAST_INDEX_BITS else pa.int32()
        return pa.dictionary(index, _plain(kind.value_type), kind.ordered)
    return _plain(kind.value_type) if t.is_run_end_encoded(kind) else _PLAIN.get(kind, kind)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`, by name. Raises UsageError."""
    if batch.schema.equals(schema):
        return batch
    found = batch.schema.names
    if sorted(found) != sorted(schema.names):
        raise UsageError("columns are not those promised", expected=schema.names, found=found)
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    column = batch.column(field.name)
    if pa.types.is_run_end_encoded(column.type):  # which cannot be cast
        column = pc.run_end_decode(column)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(
            "column is not of the type promised",
            column=field.name,
            expected=str(field.type),
            found=str(column.type),
        ) from error


def filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """The batches that have rows, or None where there is none at all."""
    rest = (batch for batch in batches if batch.num_rows)
    first = next(rest, None)
    return None if first is None else _preceded(first, rest)


def _preceded(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    del first  # not held while the rest goes by
    yield from rest


def together(
    batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int | None = None
) -> Iterator[list[pa.RecordBatch]]:
    """The same batches, so many at a time that they have at least `rows` rows, or `size_bytes` if
    that comes first, except for the last. None of them is held once the next are asked for."""
    held: list[pa.RecordBatch] = []
    count = bytes_held = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        bytes_held += batch.nbytes if size_bytes else 0
        del batch
        if count >= rows or (size_bytes and bytes_held >= size_bytes):
            yield held
            held, count, bytes_held = [], 0, 0
    if held:
        yield held


def gathered(
    batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of `together`, each time as one batch."""
    return chain.from_iterable(map(joined, together(batches, rows, size_bytes)))


def joined(pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows as one batch (more only where a column would pass 2 GiB)."""
    if len(pieces) < 2:
        return pieces
    return cast("list[pa.RecordBatch]", pa.Table.from_batches(pieces).combine_chunks().to_batches())


def one_piece(pieces: Sequence[pa.RecordBatch], most_bytes: int) -> pa.Table | None:
    """The same rows, each column in one piece. What was cut out of one piece side by side is that
    again, without a copy; None where more than `most_bytes` would have to be copied."""
    columns, copied = [], 0
    for parts in zip(*(piece.columns for piece in pieces), strict=True):
        one = _uncut(parts)
        if one is None:
            copied += sum(part.nbytes for part in parts)
            if copied > most_bytes:
                return None
            one = pa.concat_arrays(parts)
        columns.append(one)
    return pa.table(columns, schema=pieces[0].schema)


def _uncut(parts: Sequence[pa.Array]) -> pa.Array | None:
    """What these were cut out of, from the first to the last; None where they were not."""
    first = parts[0]
    if len(parts) == 1:
        return first
    kind, t = first.type, pa.types
    is_plain = t.is_string(kind) or t.is_binary(kind) or t.is_primitive(kind)
    at, places = first.offset, _memory(first)
    for part in parts:
        if not is_plain or part.offset != at or _memory(part) != places:
            return None
        at += len(part)
    return pa.Array.from_buffers(kind, at - first.offset, first.buffers(), offset=first.offset)


def _memory(column: pa.Array) -> list[tuple[int, int] | None]:
    return [None if one is None else (one.address, one.size) for one in column.buffers()]


def deal(batch: pa.RecordBatch, by: str, count: int) -> list[tuple[int, pa.RecordBatch]]:
    """(p, rows of partition p) for every p met, rows in the order in which they came.

    Column `by` (int32, or a list of int32: one copy of the row for each) leaves as int32.
    Raises UsageError where it is null or outside of 0 … count - 1.
    """
    column, parents = batch.column(by), None
    if _is_list(column.type):
        parents, column = pc.list_parent_indices(column).to_numpy(), column.flatten()
        if len(parents) == len(batch) and (np.diff(parents) == 1).all():
            parents = None  # each row goes to one
    places = _places(column, by, count)
    if parents is None and len(places) and (places == places[0]).all():
        at = batch.schema.get_field_index(by)
        return [(int(places[0]), batch.set_column(at, pa.field(by, pa.int32()), pa.array(places)))]
    order = np.argsort(places.astype(np.uint16) if count <= 1 << 16 else places, kind="stable")
    places = places[order]
    at = batch.schema.get_field_index(by)
    rows = order if parents is None else parents[order]
    dealt = _taken(batch.remove_column(at), pa.array(rows))
    dealt = dealt.add_column(at, pa.field(by, pa.int32()), pa.array(places))
    met, starts = np.unique(places, return_index=True)
    sizes = np.diff(starts, append=len(places))
    cuts = zip(met.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    return [(place, dealt.slice(start, size)) for place, start, size in cuts]


def _taken(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """These rows. What is there as two columns, as a text is that is a key, is taken once."""
    made: dict[tuple[Any, ...], pa.Array] = {}
    columns = []
    for place, column in enumerate(batch.columns):
        name: tuple[Any, ...] = (place,)
        if pa.types.is_string(column.type):
            buffers = (None if one is None else one.address for one in column.buffers())
            name = (*buffers, column.offset, len(column))
        if name not in made:
            made[name] = column.take(rows)
        columns.append(made[name])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _places(column: pa.Array, by: str, count: int) -> Int32s:
    if column.null_count:
        raise UsageError("a row has no partition to go to", column=by, found=None)
    places = column.cast(pa.int32()).to_numpy(zero_copy_only=False)
    if len(places) and not (places.min() >= 0 and places.max() < count):
        strange = int(places[(places < 0) | (places >= count)][0])
        expected = f"0 to {count - 1}"
        raise UsageError("no such partition", column=by, expected=expected, found=strange)
    return cast("Int32s", places)
