"""The three levels of a bloom index, as two tasks over batches.

    1  ranges    a key can only be in a file whose [min, max] record key holds it
    2  filters   ask the filters of the files that are left, in batches
    3  validate  read the key column of the few candidate files, row groups first

`candidates` does the first two and yields one row a file and chunk of candidates, so that a
hot file spreads over tasks and nothing has to be counted first; `validate` does the third.
Where ranges and filters come from is a `LookupSource`'s business: metadata or footers.

Counted: `tag.keys`, `tag.files` (in the partitions met), `tag.files_after_ranges`,
`tag.files_after_filters`, `tag.candidates`, `tag.false_positives`, `tag.files_opened`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_file import read_record_keys
from metatable.data.key_texts import texts_of
from metatable.data.slices import DataFile
from metatable.engine.batches import gathered
from metatable.index.protocol import LOCATION_FIELD, locations
from metatable.metadata.snapshot import Snapshot
from metatable.storage.counters import Counters
from metatable.storage.filters import Filter
from metatable.storage.hashing import xxh64
from metatable.storage.ordering import PrefixIndex, same_as_previous, sort_order

__all__ = [
    "LookupSource",
    "candidate_schema",
    "candidates",
    "chunks",
    "match_schema",
    "validate",
]

CHUNK_KEYS = 128 << 10
"""Most candidates of one file in one task."""

BATCH_KEYS = 1 << 20
"""Keys looked up together: enough to sort once, bounded for memory."""


class LookupSource(Protocol):
    """Where ranges and filters come from. Pickles."""

    def ranges(self, snapshot: Snapshot, partition_paths: Sequence[str] | None) -> Ranges: ...

    def filters(self, snapshot: Snapshot, files: Sequence[DataFile]) -> list[Filter]: ...


@dataclass(frozen=True, slots=True)
class Ranges:
    """Files and the least and greatest record key of each (string arrays, null: not known)."""

    files: Sequence[DataFile]
    minimum: pa.Array
    maximum: pa.Array


def candidate_schema(identity: pa.Schema) -> pa.Schema:
    """Rows between the tasks: a file, and the identity columns of its candidates."""
    return pa.schema(
        [
            pa.field("_path", pa.string()),
            pa.field("_size", pa.int64()),
            pa.field("_task", pa.int32()),
            pa.field("_keys", pa.list_(pa.struct(list(identity)))),
        ]
    )


def match_schema(identity: pa.Schema) -> pa.Schema:
    """What `validate` yields: identity columns and the location."""
    return pa.schema([*identity, *LOCATION_FIELD])


def candidates(
    source: LookupSource,
    snapshot: Snapshot,
    tasks: int,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[pa.RecordBatch]:
    """Task, levels 1 and 2: identity columns in, `candidate_schema` out."""
    snapshot = snapshot.counting(counters)
    for batch in gathered(batches, BATCH_KEYS):
        keys, paths = texts_of(snapshot.options, snapshot.schema, batch)
        counters.add("tag.keys", len(keys))
        for path, rows in _by_partition(snapshot, paths):
            probe = _Probe.of(keys, rows, batch)
            where = None if path is None else [path]
            yield from _candidates_in(source, snapshot, tasks, batch, probe, where)


def validate(
    snapshot: Snapshot, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task, level 3: `candidate_schema` in, `match_schema` out."""
    snapshot = snapshot.counting(counters)
    for batch in batches:
        for number in range(batch.num_rows):
            path, size = batch["_path"][number].as_py(), batch["_size"][number].as_py()
            asked = pa.RecordBatch.from_struct_array(batch["_keys"][number].values)
            matches = _validate(snapshot, DataFile.decode(path, size), asked)
            counters.add("tag.false_positives", asked.num_rows - matches.num_rows)
            yield matches


@dataclass(frozen=True, slots=True)
class _Probe:
    """Keys in byte order, the row each came from, and their hashes.

    Rows that agree in all identity columns are asked for once. Rows that only agree in the text
    of their key (a null and an empty text name one partition) are all asked for, because answers
    find their rows by value.
    """

    keys: pa.Array
    rows: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(
        cls, keys: pa.Array, rows: npt.NDArray[np.int64] | None, batch: pa.RecordBatch
    ) -> _Probe:
        if rows is not None:
            keys = keys.take(pa.array(rows))
        order = sort_order(keys)
        keys = keys.take(pa.array(order))
        rows = order if rows is None else rows[order]
        again = same_as_previous(keys)
        if again.any():
            again &= _same_as_before(batch, rows)
            keys, rows = keys.filter(pa.array(~again)), rows[~again]
        return cls(keys, rows, xxh64(keys, 42))


def _same_as_before(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Of the rows in this order: True where one equals the one before it in every column."""
    same = np.arange(len(rows)) > 0
    for column in batch.columns:
        values = column.take(pa.array(rows))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        codes = values.dictionary_encode("encode").indices.to_numpy()
        same[1:] &= codes[1:] == codes[:-1]
    return same


def _by_partition(
    snapshot: Snapshot, paths: pa.Array
) -> Iterator[tuple[str | None, npt.NDArray[np.int64] | None]]:
    """(partition path, its rows); in global scope all rows, in any partition."""
    if snapshot.options.is_global:
        yield None, None
        return
    encoded = paths.dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    borders = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    for number, path in enumerate(encoded.dictionary.to_pylist()):
        yield path, order[borders[number] : borders[number + 1]]


def _candidates_in(
    source: LookupSource,
    snapshot: Snapshot,
    tasks: int,
    batch: pa.RecordBatch,
    probe: _Probe,
    partition_paths: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    counters = snapshot.store.counters
    ranges = source.ranges(snapshot, partition_paths)
    counters.add("tag.files", len(ranges.files))
    first, last = key_slices(probe.keys, ranges.minimum, ranges.maximum)
    left = np.flatnonzero(first < last)
    counters.add("tag.files_after_ranges", len(left))
    files = [ranges.files[place] for place in left.tolist()]
    for file, body, lo, hi in zip(
        files, source.filters(snapshot, files), first[left], last[left], strict=True
    ):
        passed = lo + np.flatnonzero(body.might_contain(probe.hashes[lo:hi]))
        counters.add("tag.candidates", len(passed))
        counters.add("tag.files_after_filters", int(len(passed) > 0))
        yield from chunks(file, tasks, batch, probe.rows[passed])


def chunks(
    file: DataFile, tasks: int, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """These rows of `batch` as candidates of a file, in `candidate_schema`."""
    for start in range(0, len(rows), CHUNK_KEYS):
        yield _chunk(file, start // CHUNK_KEYS, tasks, batch, rows[start : start + CHUNK_KEYS])


def _chunk(
    file: DataFile, number: int, tasks: int, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    asked = batch.take(pa.array(rows))
    keys = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), asked.to_struct_array())
    task = zlib.crc32(f"{file.path}/{number}".encode()) % tasks
    return pa.RecordBatch.from_arrays(
        [
            pa.array([file.path]),
            pa.array([file.size_bytes], pa.int64()),
            pa.array([task], pa.int32()),
            keys,
        ],
        names=["_path", "_size", "_task", "_keys"],
    )


def _validate(snapshot: Snapshot, file: DataFile, asked: pa.RecordBatch) -> pa.RecordBatch:
    keys, _ = texts_of(snapshot.options, snapshot.schema, asked)
    ends = pc.min_max(keys).as_py()
    snapshot.store.counters.add("tag.files_opened")
    held, positions = read_record_keys(snapshot.store, file, ends["min"], ends["max"])
    distinct = keys.dictionary_encode()
    places = pc.index_in(held, value_set=distinct.dictionary)  # the asked are the smaller side
    here = places.is_valid().to_numpy(zero_copy_only=False)
    position = np.full(len(distinct.dictionary), -1, dtype=np.int64)
    position[places.drop_null().to_numpy()] = positions[here]
    found = position[distinct.indices.to_numpy()]
    rows = np.flatnonzero(found >= 0)
    located = locations(
        np.zeros(len(rows), dtype=np.int64),
        [file.partition_path],
        [file.file_id],
        [file.instant],
        pa.array(found[rows]),
    )
    matched = asked.take(pa.array(rows))
    return pa.RecordBatch.from_arrays(
        [*matched.columns, located], schema=match_schema(matched.schema)
    )


def key_slices(
    keys: pa.Array, minimum: pa.Array, maximum: pa.Array
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each file the half-open range of the sorted `keys` that lie within its bounds.

    A file without bounds admits all keys.
    """
    index = PrefixIndex(keys)
    first = index.place(minimum, "left")
    last = index.place(maximum, "right")
    unknown = pc.or_(minimum.is_null(), maximum.is_null()).to_numpy(zero_copy_only=False)
    first[unknown], last[unknown] = 0, len(keys)
    return first, last
