"""Keys that are there twice, in the table or in a partition: files with such are refused.

The tasks that read files of other writers put a hash of every key into runs in scratch (`hashed`).
Ranges of hashes are looked through, a job each; rows whose hash is there twice are then read from
the files for their texts, for two keys may have one hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.data.bucket_functions import HASH_SPACE
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH, identities
from metatable.data.reading.slice_reader import read_slice
from metatable.engine.jobs import run_jobs
from metatable.engine.protocol import Engine
from metatable.metadata.hfiles.entry_files import Run, read_places, read_together
from metatable.metadata.written import WrittenSlice
from metatable.storage.arrays import UInt64s
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.hashing import xxh64
from metatable.storage.portions import together_far
from metatable.storage.store import Store
from metatable.write.stored_files import (
    META,
    SliceJob,
    StoredFiles,
    size_of,
    slice_jobs,
    slices_of_jobs,
    task_count,
)

__all__ = ["IDENTITIES", "hashed", "refuse_duplicates"]

CHECKED_BYTES = 64 << 20
"""Hashes of keys that are looked through together."""

FEW_HASHES = 1000
"""Of keys that are there twice so many are looked up by their texts; five are named."""

IDENTITIES = "identities"
"""The run with a hash of every key: no metadata partition, and gone with the scratch."""

_IDENTITIES = pa.schema([pa.field("place", pa.int64()), pa.field("hash", pa.uint64())])


def refuse_duplicates(
    engine: Engine[Any],
    files: StoredFiles,
    scratch: Store,
    slices: Sequence[FileSlice],
    runs: Sequence[Run],
) -> None:
    """Raises UsageError, naming five, where keys are there twice: an upsert would change one."""
    ours = tuple(run for run in runs if run.partition == IDENTITIES)
    pieces = 1 + sum(run.entry_bytes for run in ours) // CHECKED_BYTES
    borders = [HASH_SPACE * one // pieces for one in range(pieces + 1)]
    jobs = [_Range(lo, hi) for lo, hi in pairwise(borders)]
    twice = run_jobs(engine, jobs, partial(_twice, scratch, ours), _Hashes)
    hashes = np.frombuffer(b"".join(one.hashes for one in twice), np.uint64)[:FEW_HASHES]
    if not len(hashes):
        return
    work = partial(_held, files, hashes.tobytes())
    found = run_jobs(engine, slice_jobs(slices), work, _Held, task_count(engine, slices))
    counts = Counter(one.identity for one in found)
    named = sorted(one.replace("\0", ": ") for one, count in counts.items() if count > 1)
    if named:  # else two keys have one hash
        scope = "the table" if files.options.is_global else "its partition"
        raise UsageError(
            f"keys are more than once in {scope}: an upsert would not know which row to replace",
            path=files.store.uri,
            keys=named[:5],
            found=f"{len(named)} keys" if len(hashes) < FEW_HASHES else "a thousand keys or more",
        )


def hashed(files: StoredFiles, written: WrittenSlice) -> pa.Table:
    """A hash of every key of a slice, as the runs `IDENTITIES` hold them."""
    paths = pa.repeat(pa.scalar(written.made.partition_path), len(written.keys))
    hashes = xxh64(identities(files.options.is_global, written.keys, paths), 0)
    places = (hashes >> np.uint64(32)).astype(np.int64)
    return pa.table([pa.array(places), pa.array(hashes)], schema=_IDENTITIES)


@dataclass(frozen=True, slots=True)
class _Range:
    """Job: hashes whose place is in [lo, hi)."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class _Hashes:
    """Receipt: hashes that more than one row has, eight bytes each."""

    hashes: bytes


@dataclass(frozen=True, slots=True)
class _Held:
    """Receipt: the identity of a row with such a hash."""

    identity: str


def _twice(
    scratch: Store, runs: Sequence[Run], jobs: Iterator[_Range], counters: Counters
) -> Iterator[_Hashes]:
    """Task: hashes that are there twice, the first thousand of each range."""
    scratch = scratch.counting(counters)
    for job in jobs:
        held = (read_places(scratch, run, job.lo, job.hi) for run in runs)
        parts = [batch["hash"].to_numpy() for batch in read_together(scratch, held)]
        hashes = np.sort(np.concatenate([np.zeros(0, np.uint64), *parts]))
        again = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        yield _Hashes(again[:FEW_HASHES].tobytes())


def _held(
    files: StoredFiles, hashes: bytes, jobs: Iterator[SliceJob], counters: Counters
) -> Iterator[_Held]:
    """Task: the rows of some slices with one of these hashes."""
    files = files.counting(counters)
    read = ReadColumns(META, files.table, files.options.ordering)
    look = partial(_texts_of, files, read, np.frombuffer(hashes, np.uint64))
    for texts in together_far(files.store, look, slices_of_jobs(jobs), size_of):
        yield from map(_Held, texts.to_pylist())


def _texts_of(files: StoredFiles, read: ReadColumns, wanted: UInt64s, made: FileSlice) -> pa.Array:
    """The identities of the rows of a slice with one of these hashes."""
    rows = read_slice(files.store, made, read)
    texts = identities(files.options.is_global, rows[KEY], rows[PATH]).combine_chunks()
    return texts.filter(pa.array(np.isin(xxh64(texts, 0), wanted)))
