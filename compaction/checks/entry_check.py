"""Entry check: the entries of live slices held against the slices, and made anew where they differ.

Everything that the table's partitions should say of a slice (`held_slices.py`) is asked of a
version (or of what remains of one):

    column_stats   of each file: bounds of the record key are exact, others no narrower than the
                   data; counts
    bloom_filter   that of the base file is there and passes all keys of the slice
    record_index   each key leads to the slice's group
    of an index    an entry of each of its keys is there (what it says, only the index knows)

What is missing or wrong is told, and, where there is a scratch to put it in, the right entries are
made of the slice by `entries_of` and kept as runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.compaction.checks.held_slices import Held
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.index.footer_bloom import denied_by_footer
from metatable.index.placement import placed
from metatable.index.protocol import Index
from metatable.index.record import keyed_index
from metatable.metadata.hfiles.entry_files import Run, write_run
from metatable.metadata.hfiles.keys import stats_keys
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.hfiles.payload import decode_stats
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition, hashes_of
from metatable.metadata.partitions.column_stats import RECORD_KEY, ColumnStatsPartition
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.view import Located
from metatable.metadata.written import NO_KEYS, WrittenSlice, entries_of, sure_of_stats
from metatable.results import Fault
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

__all__ = ["Told", "check_alone", "check_together"]

Told = tuple[Fault, str, str]
"""A fault, where it is, and in words."""


def check_alone(view: Snapshot, index: Index, held: Held) -> Iterator[Told]:
    """What is wrong with a slice's own rows and footer: no entry can mend that."""
    path = held.file.path
    if len(held.keys) and not pc.all(pc.equal(held.paths, held.file.partition_path)).as_py():
        yield Fault.PARTITION_PATH, path, "a row names another partition path"
    if held.misfit:
        what = f"{held.misfit}: where that is a wider one, `alter` the column to it"
        yield Fault.COLUMN_TYPE, path, what
    footer = held.footer_fault or (_denial(view, held) if index.asks_footers else "")
    if footer:
        yield Fault.FOOTER, path, footer
    placement = index.placement(view)
    if placement is not None:
        try:
            rows, file_ids = placed(placement, held.keys, held.paths)
        except CorruptError as error:  # of a ring
            yield Fault.HASHING_METADATA, path, str(error)
            return
        here = pc.equal(file_ids, held.file.file_id).to_numpy(zero_copy_only=False)
        wrong = np.setdiff1d(np.arange(len(held.keys)), rows[here])
        if len(wrong):
            key = held.keys[int(wrong[0])].as_py()
            what = f"{len(wrong)} keys belong to another group, such as {key!r}"
            yield Fault.PLACEMENT, path, what


def _denial(view: Snapshot, held: Held) -> str:
    try:
        denied = denied_by_footer(view.store, held.file.base, held.keys)
    except CorruptError as error:
        return str(error)
    return f"{denied} keys of the file are denied" if denied else ""


def check_together(
    view: Snapshot, index: Index, held: Sequence[Held], scratch: Store | None
) -> Iterator[Told | Run]:
    """What the entries of several slices say wrongly; and, in runs, what they should say."""
    if not held:
        return
    keyed = keyed_index(index)
    for partition in partitions_of(view.options, index):
        if keyed is not None and isinstance(partition, RecordIndexPartition):
            check: _Check = partial(_check_locations, keyed.locate)
        else:
            check = _CHECKS.get(partition.name, _check_presence)
        told = list(check(view, partition, held))
        yield from (one for one, _ in told)
        written = [one for _, one in told if one is not None]
        if written and scratch is not None:
            for name, entries in entries_of(written, [partition]):
                yield write_run(scratch, name, entries)


_Checked = tuple[Told, WrittenSlice | None]
"""A fault, and the slice of which the partition's entries are to be made anew (once each)."""


def _check_nothing(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    """`files` is held against a listing (`live_slices.py`)."""
    return iter(())


def _check_stats(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    """`column_stats` is held against the values: all files of the slices by one lookup."""
    sure = sure_of_stats(view.table_schema, view.options)
    asked = [
        (_OfFile(one, place), stat)
        for one in held
        for place, stats in enumerate(one.stats)
        for stat in stats
    ]
    asked.sort(key=_column_of)
    keys = stats_keys(
        pa.array([stat.column for _, stat in asked], pa.string()),
        pa.array([one.file.partition_path for one, _ in asked], pa.string()),
        pa.array([one.file.name for one, _ in asked], pa.string()),
    )
    values = view.lookup(partition, keys).values
    wrong: set[str] = set()
    begin = 0
    for _, pairs in groupby(asked, key=_column_of):
        group = list(pairs)
        stored = _decoded(values.slice(begin, len(group)), group[0][1].type)
        begin += len(group)
        for (one, stat), found in zip(group, stored, strict=True):
            if found == _NO_ENTRY and stat.column not in sure:
                continue
            told = found if isinstance(found, str) else _stats_fault(one.file.name, stat, found)
            if told:
                path = one.file.path
                finding = Fault.COLUMN_STATS, path, f"{stat.column}: {told}"
                yield finding, None if path in wrong else one.held.written(NO_KEYS, one.place)
                wrong.add(path)


@dataclass(frozen=True, slots=True)
class _OfFile:
    """One file of a slice."""

    held: Held
    place: int

    @property
    def file(self) -> DataFile | LogFile:
        return self.held.file.files[self.place]


def _column_of(pair: tuple[_OfFile, ColumnStats]) -> tuple[str, str]:
    return pair[1].column, str(pair[1].type)


_NO_ENTRY = "expected an entry, found none"

_NO_VALUES = (CorruptError, ValueError, OverflowError)
"""Also days and times that no value of the interpreter's holds: none of ours is a bound."""


def _decoded(values: pa.Array, kind: pa.DataType) -> list[dict[str, Any] | str]:
    """Stored statistics of one column, or what is wrong with them."""
    told: list[dict[str, Any] | str] = [_NO_ENTRY] * len(values)
    there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist()
    type = None if pa.types.is_nested(kind) else kind
    try:
        for place, row in zip(
            there, decode_stats(values.drop_null(), type).to_pylist(), strict=True
        ):
            told[place] = row
    except _NO_VALUES:
        for place in there:
            try:
                [told[place]] = decode_stats(values.slice(place, 1), type).to_pylist()
            except _NO_VALUES as error:
                told[place] = str(error)
    return told


def _stats_fault(file_name: str, expected: ColumnStats, found: dict[str, Any]) -> str:
    """What is wrong with the stored statistics of a column; "": nothing."""
    if found["file_name"] != file_name or found["column"] != expected.column:
        return f"1 entry names another file than its key: {found['column']} of {found['file_name']}"
    for name in ("null_count", "value_count"):
        if found[name] != getattr(expected, name):
            return f"expected {name} {getattr(expected, name)}, found {found[name]}"
    bounds = found["minimum"], found["maximum"]
    if pa.types.is_nested(expected.type) or _covers(expected, *bounds):
        return ""
    ours = expected.minimum, expected.maximum
    return "expected {!r} to {!r}, found {!r} to {!r}".format(*ours, *bounds)


def _covers(expected: ColumnStats, minimum: Any, maximum: Any) -> bool:
    """Whether bounds leave out no row: a missing one says nothing, but for record keys."""
    if expected.column == RECORD_KEY:
        return bool((minimum, maximum) == (expected.minimum, expected.maximum))
    if expected.null_count == expected.value_count:
        return True
    try:
        low = minimum is None or expected.minimum is None or minimum <= expected.minimum
        open_ended = expected.maximum is None and _is_number(maximum)
        high = maximum is None or (
            not open_ended if expected.maximum is None else maximum >= expected.maximum
        )
    except TypeError:
        return False
    return bool(low and high)


def _is_number(maximum: Any) -> bool:
    """A NaN is the greatest: where the data has one, a number is no upper bound."""
    return maximum is not None and maximum == maximum  # noqa: PLR0124  (NaN is not itself)


def _check_filter(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    for one, told in zip(held, _filter_faults(view, held), strict=True):
        if told:
            yield (Fault.BLOOM_FILTER, one.file.path, told), one.written(NO_KEYS)


def _filter_faults(view: Snapshot, held: Sequence[Held]) -> list[str]:
    """What is wrong with the filter of each; "": nothing. One that cannot be read stops a lookup of
    several."""
    told = [""] * len(held)
    try:
        for place, body in view.filters([one.file for one in held]):
            denied = int((~body.might_contain(hashes_of(held[place].keys))).sum())
            told[place] = f"{denied} keys of the file are denied" if denied else ""
    except CorruptError as error:
        if len(held) == 1:
            return [str(error)]
        return [fault for one in held for fault in _filter_faults(view, [one])]
    return told


def _check_locations(
    locate: Callable[..., Located],
    view: Snapshot,
    partition: MetadataPartition,
    held: Sequence[Held],
) -> Iterator[_Checked]:
    """Whether an index by key finds the keys of these slices where they are: one lookup."""
    fault = Fault.RECORD_INDEX if partition.name == RecordIndexPartition.name else Fault.ENTRIES
    keys = pa.concat_arrays([one.keys for one in held])
    of_row = np.repeat(np.arange(len(held)), [len(one.keys) for one in held])
    folders = pa.array([one.file.partition_path for one in held], pa.string())
    try:
        found = locate(view, keys, folders.take(pa.array(of_row)))
    except CorruptError as error:
        for one in held:
            yield (fault, one.file.path, str(error)), one.written(one.keys)
        return
    groups = {group: place for place, group in reversed([*enumerate(found.groups)])}
    first = np.array([*(groups[group] for group in found.groups), -1])  # -1: nowhere
    begin = 0
    for one in held:
        here = found.group[begin : begin + len(one.keys)]
        begin += len(one.keys)
        ours = groups.get((one.file.partition_path, one.file.file_id), -2)
        wrong = np.flatnonzero(first[here] != ours)
        if len(wrong):
            key, group = one.keys[int(wrong[0])].as_py(), int(here[wrong[0]])
            named = "nowhere" if group < 0 else str(found.groups[group])
            detail = f"{len(wrong)} keys elsewhere, such as {key!r}: {named}"
            finding = fault, one.file.path, detail
            yield finding, one.written(one.keys.take(pa.array(wrong)))


def _check_presence(
    view: Snapshot, partition: MetadataPartition, held: Sequence[Held]
) -> Iterator[_Checked]:
    """A partition of an index from outside: whether there is an entry of each key it is to have."""
    for one in held:
        written = one.written(one.keys)
        keys = partition.entries([written])["key"].combine_chunks()
        missing = view.lookup(partition, keys).values.null_count
        if missing:
            what = f"{partition.name}: {missing} entries are missing"
            yield (Fault.ENTRIES, one.file.path, what), written


_Check = Callable[[Snapshot, MetadataPartition, Sequence[Held]], Iterator[_Checked]]

_CHECKS: dict[str, _Check] = {
    FilesPartition.name: _check_nothing,
    ColumnStatsPartition.name: _check_stats,
    BloomFilterPartition.name: _check_filter,
}
