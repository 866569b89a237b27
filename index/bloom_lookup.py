"""The three levels of a bloom index, and the index made of them.

    1  ranges    a key can only be in a file whose [min, max] record key holds it
    2  filters   ask the filters of the files that are left, in batches
    3  validate  read pages of the key column of the few candidate files, or all of it

`suspects` does the first two. Where tasks are few (`Engine.find`) the third follows at once, and
answers go to rows by their number (`found_rows.py`); else candidates are sent to tasks, as those of
any index are (`presence.py`). Where ranges and filters come from is a `LookupSource`'s business:
metadata or footers. All else is `BloomIndex`, the same for each of them.

Where the third follows at once, filters are asked for all of many keys only if they deny most of
some (`key_filters.admitted`): a file of which many keys are asked is looked through anyway, which
tells it sooner than a filter.

Counted: `tag.keys`, `tag.files` (in the partitions met), `tag.files_after_ranges`,
`tag.files_after_filters`, `tag.candidates`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH, coded_texts_of, identity_columns
from metatable.engine.batches import gathered
from metatable.engine.by_row import ROW
from metatable.engine.protocol import Engine
from metatable.index.found_rows import ANSWERS, Candidates, found_rows
from metatable.index.key_filters import AskedKeys, KeyFilter, admitted
from metatable.index.locations import LOCATION_FIELD
from metatable.index.presence import BATCH_KEYS, chunks, confirmed, hold, validate
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.storage import cache
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.counters import Counters
from metatable.storage.ordering import PrefixIndex, same_as_previous, sort_order
from metatable.storage.portions import in_portions
from metatable.storage.threads import in_order

__all__ = [
    "BloomIndex",
    "LookupSource",
    "Ranges",
    "candidates",
    "keep_apart",
    "kept_ranges",
    "key_slices",
]

APART = 4096
"""So many keys of a table partition, on average, are put in order by themselves."""

TOGETHER = 4096
"""So many keys are taken and hashed together, whatever table partitions they are in: steps cost
more than keys, and a thread more than steps."""

FILES_TOGETHER = 4096
"""Files, of whatever table partitions, that are left by their ranges and asked for their filters
together; those of one partition in any case."""

RANGES_BYTES = 200
"""What `Ranges` take in memory by themselves, about."""

HELD_TOGETHER = 16
"""Files that passed their filters and wait to be looked into."""


class LookupSource(Protocol):
    """Gives the ranges and filters that a bloom index asks. It must pickle: on Spark it goes along
    with tasks."""

    def fetch(self, view: TableView, partition_paths: Sequence[str | None]) -> None:
        """Fetch together, from afar, what `ranges` of these partitions begin with."""
        ...

    def ranges(self, view: TableView, partition_path: str | None) -> Ranges:
        """The live slices of a table partition (None: of all) and their bounds."""
        ...

    def filters(
        self, view: TableView, slices: Sequence[FileSlice]
    ) -> Iterator[tuple[int, KeyFilter]]:
        """The filter of each of these slices with the slice's place, in any order."""
        ...


class BloomIndex:
    """Tags by the three levels. Subclasses name themselves, their partitions and their source.

    `_late` is the source for a view of what was published after a version. It names the slices
    that came after it and no others: a key that was absent then is in none of the older ones,
    and of those that a compaction has lifted into the view not all that is asked for may be there.
    """

    name: str
    partitions: tuple[MetadataPartition, ...] = ()
    proves_presence = True
    asks_footers = False
    indexes_logs = False
    _source: LookupSource
    _late: LookupSource

    def __init__(self, options: Options) -> None:
        self._options = options

    def tag(self, engine: Engine[Any], rows: Any, view: TableView) -> Any:
        inputs = identity_columns(self._options, engine.columns(rows))
        at_once = partial(locate, self._source, view)
        found = engine.find(rows, inputs, at_once, LOCATION_FIELD)
        if found is not None:
            return found
        find = partial(candidates, self._source, view)
        return confirmed(engine, rows, rows, inputs, find, view)

    def placement(self, view: TableView) -> None:
        return None

    def holds(self, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
        batch = pa.RecordBatch.from_arrays([keys, partition_paths], names=[KEY, PATH])
        counters = Counters()
        asked = batch.select(identity_columns(self._options, batch.schema.names))
        found = candidates(self._late, view, iter([asked]), counters)
        held = np.zeros(len(keys), dtype=bool)
        for match in validate(view, found, counters):
            held |= _contained(batch, match)
        return held


def _contained(batch: pa.RecordBatch, match: pa.RecordBatch) -> Bools:
    """Rows of `batch` whose identity is in `match` (one file's, so of one partition)."""
    here = pc.is_in(batch[KEY], value_set=match[KEY])
    if PATH in match.schema.names and match.num_rows:
        here = pc.and_(here, pc.equal(batch[PATH], match[PATH][0]))
    return np.asarray(here.to_numpy(zero_copy_only=False), dtype=bool)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Files and the least and greatest record key of each (string arrays, null: not known)."""

    files: FileSystemView
    minimum: pa.Array
    maximum: pa.Array

    @property
    def parts(self) -> Sequence[cache.Part]:
        """What is held in memory: by the process's listing of files, and by statistics, too."""
        return self.files, self.minimum, self.maximum

    def take(self, rows: Int64s) -> Ranges:
        """The ranges of some of the files (`rows` ascending)."""
        places = pa.array(rows)
        return Ranges(self.files.take(rows), self.minimum.take(places), self.maximum.take(places))


def kept_ranges(key: Hashable, make: Callable[[], Ranges]) -> Ranges:
    """The ranges that the process's cache keeps under `key`, made if they are not there."""
    return cache.cached(key, make, lambda _: RANGES_BYTES, lambda ranges: ranges.parts)


def keep_apart(whole: Ranges, keys: Mapping[str | None, Hashable]) -> None:
    """Put the ranges of these table partitions (None: of all) into the process's cache, each under
    its key."""
    rows, nothing = dict(whole.files.by_folder()), np.zeros(0, np.int64)
    for path, key in keys.items():
        ranges = whole if path is None else whole.take(rows.get(path, nothing))
        cache.shared.offer(key, ranges, RANGES_BYTES, ranges.parts)


def locate(
    source: LookupSource, view: TableView, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task that sees all the rows of a call: identity columns in, `ANSWERS` out; all levels."""
    view = view.counting(counters)
    start = 0
    for batch in gathered(batches, BATCH_KEYS):
        asked = _held(view, suspects(source, view, batch, counters, at_once=True))
        found = found_rows(view, asked, len(batch), counters)
        rows = pa.array(found[ROW].to_numpy() + start)
        yield pa.RecordBatch.from_arrays([rows, *found.columns[1:]], schema=ANSWERS)
        start += len(batch)


def candidates(
    source: LookupSource,
    view: TableView,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
    tasks: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Task, levels 1 and 2: identity columns in, candidates by file out (`presence.chunks`).

    Rows that agree in all identity columns are asked for once. Rows that only agree in the text
    of their key (a null and an empty text name one partition) are all asked for, because answers
    find their rows by value.
    """
    view = view.counting(counters)
    for batch in gathered(batches, BATCH_KEYS):
        for one in _held(view, suspects(source, view, batch, counters)):
            rows = one.rows_of(np.arange(len(one.keys)))[0]
            if one.ends is not None:
                rows = rows[~_same_as_before(batch, rows)]
            yield from chunks(one.of, tasks, batch, rows)


def _held(view: TableView, found: Iterator[Candidates]) -> Iterator[Candidates]:
    """The candidates, a few of whose files are fetched together before the first is looked into."""
    while some := list(islice(found, HELD_TOGETHER)):
        hold(view, [one.of for one in some])
        yield from some


def suspects(
    source: LookupSource,
    view: TableView,
    batch: pa.RecordBatch,
    counters: Counters,
    *,
    at_once: bool = False,
) -> Iterator[Candidates]:
    """Levels 1 and 2: the slices that may hold keys of these identity columns, file by file.
    `at_once`: level 3 follows here, so that keys which are supposed for nothing cost little."""
    keys, paths = coded_texts_of(view.options, view.schema, batch)
    counters.add("tag.keys", len(keys))
    probes = list(_probes(view, keys, paths))
    source.fetch(view, [path for path, _ in probes])
    reached = (_reached(source, view, probe, path) for path, probe in probes)
    for some in in_portions(reached, lambda one: len(one.slices), FILES_TOGETHER):
        yield from _passed(source, view, some, at_once)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Distinct keys of a table partition, in byte order, and their rows (`Candidates`)."""

    keys: AskedKeys
    rows: Int64s
    ends: Int64s | None

    @classmethod
    def of(cls, keys: pa.Array, rows: Int64s) -> _Probe:
        """From the keys of `rows`, one a row, in byte order."""
        again = same_as_previous(keys)
        if not again.any():
            return cls(AskedKeys(keys), rows, None)
        first = np.flatnonzero(~again)
        return cls(AskedKeys(keys.take(pa.array(first))), rows, np.append(first[1:], len(keys)))

    @classmethod
    def of_part(cls, every: AskedKeys, rows: Int64s, first: int, last: int) -> _Probe:
        """From those of `every` key in [first, last), which are hashed together with the others:
        these are asked for in other table partitions."""
        own = every.part(first, last)
        if same_as_previous(own.texts).any():
            return cls.of(own.texts, rows[first:last])
        return cls(own, rows[first:last], None)

    def passed(self, held: FileSlice, places: Int64s) -> Candidates:
        """The keys at these places, with all of their rows, as candidates of a slice."""
        keys = self.keys.texts.take(pa.array(places))
        if self.ends is None:
            return Candidates(held, keys, self.rows[places])
        every = Candidates(held, self.keys.texts, self.rows, self.ends)
        rows, own = every.rows_of(places)
        return Candidates(held, keys, rows, np.searchsorted(own, np.arange(len(places)), "right"))


def _probes(
    view: TableView, keys: pa.Array, paths: pa.DictionaryArray
) -> Iterator[tuple[str | None, _Probe]]:
    """(partition path, its keys); in global scope all keys, in any partition.

    Keys of each partition are put in order beside those of another; where partitions have few,
    which cost calls, all are put in order at once.
    """
    if view.options.is_global:
        order = sort_order(keys)
        yield None, _Probe.of(keys.take(pa.array(order)), order)
        return
    count = len(paths.dictionary)
    codes = paths.indices.to_numpy().astype(np.uint16 if count <= 1 << 16 else np.int32)
    few = len(keys) < count * APART
    order = sort_order(keys) if few else np.arange(len(keys))
    codes = codes[order]
    by_path = np.argsort(codes, kind="stable")  # by radix, where the numbers are short
    order, codes = order[by_path], codes[by_path]
    borders = np.searchsorted(codes, np.arange(count + 1)).tolist()
    named = paths.dictionary.to_pylist()
    if few and len(keys) <= TOGETHER:
        together = AskedKeys(keys.take(pa.array(order)))
        parts = zip(named, pairwise(borders), strict=True)
        yield from ((path, _Probe.of_part(together, order, *span)) for path, span in parts)
        return

    def probe(number: int) -> _Probe:
        rows = order[borders[number] : borders[number + 1]]
        own = keys.take(pa.array(rows))
        if not few:
            ascending = sort_order(own)
            own, rows = own.take(pa.array(ascending)), rows[ascending]
        return _Probe.of(own, rows)

    yield from zip(named, in_order(probe, range(count)), strict=True)


def _same_as_before(batch: pa.RecordBatch, rows: Int64s) -> Bools:
    """For each of the `rows` of a batch, in this order, whether it equals the one before it in
    every column."""
    same = np.arange(len(rows)) > 0
    for column in batch.columns:
        values = column.take(pa.array(rows))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        codes = values.dictionary_encode("encode").indices.to_numpy()
        same[1:] &= codes[1:] == codes[:-1]
    return same


@dataclass(frozen=True, slots=True)
class _Reached:
    """Slices of a table partition whose ranges admit some of its keys: those of slice i are the
    keys [lows[i], highs[i]) of the probe."""

    probe: _Probe
    slices: list[FileSlice]
    lows: list[int]
    highs: list[int]


def _reached(
    source: LookupSource, view: TableView, probe: _Probe, partition_path: str | None
) -> _Reached:
    """Level 1."""
    counters = view.store.counters
    ranges = source.ranges(view, partition_path)
    counters.add("tag.files", len(ranges.files))
    first, last = key_slices(probe.keys.texts, ranges.minimum, ranges.maximum)
    left = np.flatnonzero(first < last)
    counters.add("tag.files_after_ranges", len(left))
    slices = [ranges.files[place] for place in left.tolist()]
    return _Reached(probe, slices, first[left].tolist(), last[left].tolist())


def _passed(
    source: LookupSource, view: TableView, reached: Sequence[_Reached], at_once: bool
) -> Iterator[Candidates]:
    """Level 2, of some table partitions together: far away each would be rounds of its own."""
    counters = view.store.counters
    asked = [
        (one.probe, *of_slice)
        for one in reached
        for of_slice in zip(one.slices, one.lows, one.highs, strict=True)
    ]
    for place, body in source.filters(view, [held for _, held, _, _ in asked]):
        probe, held, low, high = asked[place]
        keys = probe.keys, low, high
        told = admitted(body, *keys) if at_once else body.might_contain(*keys)
        passed = low + np.flatnonzero(told)
        counters.add("tag.candidates", len(passed))
        counters.add("tag.files_after_filters", int(len(passed) > 0))
        if len(passed):
            yield probe.passed(held, passed)


def key_slices(keys: pa.Array, minimum: pa.Array, maximum: pa.Array) -> tuple[Int64s, Int64s]:
    """For each file the half-open range of the sorted `keys` that lie within its bounds.

    A file without bounds admits all keys.
    """
    index = PrefixIndex(keys)
    first = index.place(minimum, "left")
    last = index.place(maximum, "right")
    unknown = pc.or_(minimum.is_null(), maximum.is_null()).to_numpy(zero_copy_only=False)
    first[unknown], last[unknown] = 0, len(keys)
    return first, last
