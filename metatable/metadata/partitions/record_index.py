"""Partition `record_index`: where each record key lives (RFC-08).

    key    16 bytes, the 128-bit hash of the record key (`hash`, the default),
           or the key's own text (`plain`); in partition scope the table partition's path
           and a zero byte stand before the record key
    value  4 bytes, big-endian: 0 = deleted, else n: the n-th location of the meta block
    meta   `locations`: JSON list of [partition path, file id], n = 1, 2, …

The value is not Avro: a file has few locations and many keys. A bucket is a range of the
hash, so files of the `hash` form are in bucket order as well as in key order. An entry names
a file GROUP, and stays right when the group is rewritten.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.bucket_functions import HASH_SPACE, bucket_function, place_by_hash
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.hfiles.asking import Answers
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.hfiles.keys import record_key_hash
from metatable.metadata.hfiles.partition import MetadataPartition, Rewriter, Storer
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.view import Located
from metatable.metadata.written import WrittenSlice
from metatable.storage.arrays import Bools, Int32s, Int64s
from metatable.storage.byte_columns import from_voids, of_one_size, voids
from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError, in_short
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.threads import in_order

__all__ = ["RecordIndexPartition", "index_keys", "locate"]

LOCATIONS = "locations"
"""The meta block of an HFile that lists its locations, (partition path, file id), as JSON."""

_NOWHERE = ("", "")
"""Stands before the locations of a file, whose numbers begin with 1."""

SEPARATOR = "\0"
"""Between the partition path and the record key, where keys are unique in their partition alone."""


class RecordIndexPartition(MetadataPartition):
    """`record_index`: for each record key the file group that it lives in.

    A file names each group once, in a meta block, and entries hold its number there, from 1 on.
    """

    name: ClassVar[str] = "record_index"
    tombstone: ClassVar[bytes] = bytes(4)
    has_keys: ClassVar[bool] = True
    schema = pa.schema(
        [
            pa.field("place", pa.int64(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.dictionary(pa.int32(), pa.string())),
        ]
    )

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._function = bucket_function(options.record_bucket_function)

    @property
    def keys_are_hashes(self) -> bool:
        return self.options.record_key_form == "hash"

    @property
    def filter_fpp(self) -> float:
        return self.options.record_filter_fpp

    @property
    def space(self) -> int:
        return self._function.space(self.bucket_count)

    def places(self, keys: pa.Array) -> Int64s:
        if self.keys_are_hashes:
            return place_by_hash(keys)
        return self._function.places(keys.cast(pa.string()), self.space)

    def key_range(self, lo: int, hi: int) -> tuple[bytes | None, bytes | None] | None:
        """A hash begins with its place."""
        if not self.keys_are_hashes:
            return None
        return (lo.to_bytes(4) if lo else None, hi.to_bytes(4) if hi < HASH_SPACE else None)

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        texts = [part for one in written for part in (one.arrived, one.departed)]
        sizes = [len(part) for part in texts]
        paths = pa.array([one.made.partition_path for one in written for _ in range(2)])
        of_part = pa.array(np.repeat(np.arange(len(texts)), sizes))
        keys = index_keys(self.options, pa.concat_arrays(texts), paths.take(of_part))
        here = np.repeat(np.arange(len(texts), dtype=np.int32) // 2, sizes)
        gone = np.repeat(np.arange(len(texts)) % 2 == 1, sizes)
        groups = [(one.made.partition_path, one.made.file_id) for one in written]
        locations = [json.dumps(group, ensure_ascii=False) for group in groups]
        values = pa.DictionaryArray.from_arrays(pa.array(here, mask=gone), pa.array(locations))
        places = pa.array(self.places(keys))
        return pa.table([places, keys.cast(pa.binary()), values], schema=self.schema)

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        return self.schema.empty_table()

    def departed(self, keys: pa.Array, partition_paths: pa.Array) -> pa.Table:
        stored = index_keys(self.options, keys, partition_paths)
        nowhere = pa.nulls(len(keys), pa.int32())
        values = pa.DictionaryArray.from_arrays(nowhere, pa.array([], pa.string()))
        places = pa.array(self.places(stored))
        return pa.table([places, stored.cast(pa.binary()), values], schema=self.schema)

    def storer(self) -> Storer:
        return _Numbering()

    def rewriter(self, readers: Sequence[HFileReader]) -> Rewriter:
        return _Renumber(readers)


def index_keys(
    options: Options, texts: pa.Array, partition_paths: pa.Array | pa.Scalar
) -> pa.Array:
    """The stored keys of record keys: 16 raw bytes or text, with the path in partition scope."""
    if not options.is_global:
        texts = pc.binary_join_element_wise(partition_paths, texts, SEPARATOR)
    if options.record_key_form == "hash":
        return record_key_hash(texts, options.key_salts)
    return texts.cast(pa.binary())


def locate(entries: Entries, texts: pa.Array, partition_paths: pa.Array | pa.Scalar) -> Located:
    """The file group of each record key, by one lookup in the key's bucket."""
    partition = RecordIndexPartition(entries.options)
    entries.warm(partition.name, "files")
    keys = index_keys(entries.options, texts, partition_paths)
    refs, parts = entries.ask(partition, keys, _told)
    told = np.zeros(len(refs), bool)
    for part in parts:
        told |= part.sources_with_hits(len(refs))
    names = _Names(entries, refs, np.flatnonzero(told).tolist())
    slots = np.zeros(len(texts), np.int64)
    seen = np.zeros(names.count, bool)

    def place(part: _Told) -> None:
        found = names.slots(part)
        slots[part.rows] = found
        seen[found] = True

    deque(in_order(place, parts, None if len(parts) > 1 else 1), maxlen=0)
    return names.located(slots, seen)


@dataclass(frozen=True, slots=True)
class _Told:
    """Numbers of locations, 0 where there is none, of some `rows` of the keys asked; `sources`:
    the number of the file that says so."""

    rows: Int64s
    numbers: Int64s
    sources: Int32s

    def sources_with_hits(self, count: int) -> Bools:
        """Which of `count` files have answered for any key."""
        found = np.zeros(count + 1, bool)
        found[np.where(self.numbers > 0, self.sources, -1)] = True
        return found[:count]


def _told(answers: Answers) -> _Told:
    return _Told(answers.rows, _values_to_numbers(answers.values), answers.sources)


class _Names:
    """The locations of some files one behind the other, each file's behind a slot for none."""

    def __init__(self, entries: Entries, refs: Sequence[HFileRef], sources: Sequence[int]) -> None:
        readers = [entries.reader(refs[source]) for source in sources]
        told = entries.store.together([partial(_locations, reader) for reader in readers])
        self._refs = refs
        self._names = [one for held in told for one in (_NOWHERE, *held)]
        self.count = len(self._names) + 1
        self._starts = np.full(len(refs) + 1, len(self._names))
        """The slot before each file's first location. It is the last slot of all for files without
        hits and for none (-1), of which number 0 alone is looked up."""
        self._counts = np.zeros(len(refs) + 1, np.int64)
        sizes = np.array([len(held) for held in told], np.int64)
        self._starts[sources] = np.cumsum(sizes + 1) - sizes - 1
        self._counts[sources] = sizes

    def slots(self, part: _Told) -> Int64s:
        """The slot of each row's location. Raises CorruptError for a number that means none."""
        wrong = part.numbers > self._counts.take(part.sources)
        if wrong.any():
            source = int(part.sources[np.argmax(wrong)])
            raise CorruptError(
                "record index entry names no location",
                path=self._refs[source].path,
                expected=f"at most {self._counts[source]}",
                found=int(part.numbers[part.sources == source].max()),
            )
        return self._starts.take(part.sources) + part.numbers

    def located(self, slots: Int64s, seen: Bools) -> Located:
        """The groups that were found, each once though many files may name it, and for each row
        its place among them, -1 for none."""
        order: dict[tuple[str, str], int] = {}
        places = np.full(self.count, -1, dtype=np.int64)
        for slot in np.flatnonzero(seen).tolist():
            if slot + 1 < self.count and self._names[slot] != _NOWHERE:
                places[slot] = order.setdefault(self._names[slot], len(order))
        return Located(tuple(order), places.take(slots))


class _Numbering:
    """Gives the locations of entries the numbers of one file, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def values(self, entries: pa.Table) -> pa.Array:
        told = entries["value"].unify_dictionaries().combine_chunks()
        values = told.chunk(0) if isinstance(told, pa.ChunkedArray) else told
        numbers = [
            self._numbers.setdefault(one, len(self._numbers) + 1)
            for one in values.dictionary.to_pylist()
        ]
        of_index = np.array([*numbers, 0])  # null is -1, the last
        return _numbers_to_values(of_index[pc.fill_null(values.indices, -1).to_numpy()])

    def metas(self) -> Mapping[str, bytes]:
        return {LOCATIONS: _encode_locations([json.loads(one) for one in self._numbers])}


class _Renumber:
    """Gives the locations of several files the numbers of one, in the order of first use: so
    a file's bytes do not depend on how its entries come in batches."""

    def __init__(self, readers: Sequence[HFileReader]) -> None:
        self._paths = [reader.path for reader in readers]
        told = [_locations(reader) for reader in readers]
        self._counts = np.array([len(one) for one in told], dtype=np.int64)
        self._starts = np.cumsum(self._counts + 1) - self._counts - 1
        self._locations = [one for held in told for one in (_NOWHERE, *held)]
        self._new = np.zeros(len(self._locations), dtype=np.int64)
        """New numbers: that of the number n of source s is at `starts[s] + n`, 0 while it has
        none."""
        self._numbers: dict[tuple[str, str], int] = {}

    def values(self, values: pa.Array, sources: Int32s) -> tuple[pa.Array, Bools]:
        numbers = _values_to_numbers(values)
        self._check(numbers, sources)
        places = self._starts.take(sources) + numbers
        renumbered, dead = self._new.take(places), numbers == 0
        if np.count_nonzero(renumbered) + np.count_nonzero(dead) < len(numbers):
            self._learn(places[(renumbered == 0) & ~dead])
            renumbered = self._new.take(places)
        return _numbers_to_values(renumbered), dead

    def metas(self) -> Mapping[str, bytes]:
        return {LOCATIONS: _encode_locations(list(self._numbers))}

    def _check(self, numbers: Int64s, sources: Int32s) -> None:
        """Raises CorruptError where a number names none of its source's locations."""
        if numbers.max(initial=0) <= self._counts.min():
            return
        wrong = np.flatnonzero(numbers > self._counts.take(sources))
        if len(wrong):
            source = int(sources[wrong[0]])
            raise CorruptError(
                "record index entry names no location",
                path=self._paths[source],
                expected=f"at most {self._counts[source]}",
                found=int(numbers[wrong[0]]),
            )

    def _learn(self, places: Int64s) -> None:
        """Give new numbers to the locations at these places, in the order in which they come."""
        first = np.full(len(self._new), len(places))
        first[places[::-1]] = np.arange(len(places))[::-1]  # the last to be assigned stays
        for place in np.argsort(first)[: np.count_nonzero(first < len(places))].tolist():
            location = self._locations[place]
            self._new[place] = self._numbers.setdefault(location, len(self._numbers) + 1)


def _locations(reader: HFileReader) -> list[tuple[str, str]]:
    """The locations that a file lists, from the process's cache."""
    return cached(
        ("locations", reader.identity),
        lambda: _decode_locations(reader),
        lambda locations: 200 * len(locations) + 100,
    )


def _decode_locations(reader: HFileReader) -> list[tuple[str, str]]:
    raw = reader.meta(LOCATIONS)
    try:
        found = [(str(path), str(file_id)) for path, file_id in json.loads(raw or b"[]")]
        pa.array([text for pair in found for text in pair])  # a lone surrogate is no text
        return found
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptError("damaged meta block", path=reader.path, found=in_short(error)) from error


def _encode_locations(locations: Sequence[Sequence[str]]) -> bytes:
    return json.dumps(locations, ensure_ascii=False, separators=(",", ":")).encode()


def _numbers_to_values(numbers: Int64s) -> pa.Array:
    """Numbers as they are stored: four bytes each, big-endian."""
    return from_voids(numbers.astype(">u4").view("V4"))


def _values_to_numbers(values: pa.Array) -> Int64s:
    """Stored values as numbers; 0 for null and for tombstones. Raises CorruptError."""
    if values.null_count == len(values):
        return np.zeros(len(values), np.int64)
    filled = of_one_size(pc.fill_null(values, bytes(4)) if values.null_count else values)
    if filled.type != pa.binary(4):
        folder = f"{HOME}/{RecordIndexPartition.name}"
        raise CorruptError("record index value has a wrong length", path=folder, expected=4)
    return voids(filled).view(">u4").astype(np.int64)
