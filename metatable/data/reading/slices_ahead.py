"""Slices that are read one behind the other: what comes next is begun beside the reading.

Near by that is the next slice, if it has logs: their rows, with those of its neighbours, and the
first of the base, for decoding logs and looking up keys leave a processor idle now and then; base
files alone are left to Arrow's own threads. Far away the first row groups of some slices are
fetched together, as each is a wait, and those of as many that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice

import pyarrow as pa

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.file_groups.slices import FileSlice
from metatable.data.logs.log_merge import ReadLogs
from metatable.data.reading.logs_together import logs_together
from metatable.data.reading.slice_reader import stream_slice
from metatable.storage.errors import MetatableError
from metatable.storage.portions import far_portions
from metatable.storage.store import Store
from metatable.storage.threads import beside, one_ahead

__all__ = ["Begin", "slices_ahead"]

Begin = Callable[[], Iterator[pa.Table]]
"""Gives the pieces of a slice, once; what is wrong with its first is raised here."""


def slices_ahead(
    store: Store, slices: Iterable[FileSlice], read: ReadColumns
) -> Iterator[tuple[FileSlice, Begin]]:
    """Each slice, in their order, with what begins to read its rows, which come in any order."""

    def begin(one: FileSlice, logs: ReadLogs | None) -> Begin:
        return partial(stream_slice, store, one, read, in_place=False, logs=logs)

    found = logs_together(store, slices, read)
    begins = ((one, begin(one, logs)) for one, logs in found)
    if store.is_distant:
        return _fetched(store, begins)
    return one_ahead((one, beside(pieces) if one.logs else pieces) for one, pieces in begins)


def _fetched(
    store: Store, slices: Iterable[tuple[FileSlice, Begin]]
) -> Iterator[tuple[FileSlice, Begin]]:
    """The slices of a distant store: a portion of them is begun, together, beside the reading of
    the portion before."""

    def begun(some: Sequence[tuple[FileSlice, Begin]]) -> Callable[[], Sequence[Begin]]:
        calls = [partial(_started, begin) for _, begin in some]
        return store.meanwhile(partial(store.together, calls))

    portions = far_portions(slices, lambda one: one[0].size_bytes)
    for some, pieces in one_ahead((some, begun(some)) for some in portions):
        for (one, _), read in zip(some, pieces(), strict=True):
            yield one, read


def _started(begin: Begin) -> Begin:
    """`begin`, whose first piece is read now; what went wrong with it is raised when its turn
    comes."""
    try:
        pieces = begin()
        first = [*islice(pieces, 1)]
    except MetatableError as error:
        return partial(_failed, error)
    return lambda: chain(first, pieces)


def _failed(error: MetatableError) -> Iterator[pa.Table]:
    raise error
