"""Asking the HFiles of a partition for keys: each from the newest file to the oldest.

Keys are cut into shares. Where keys are in the order of their places, and HFiles have no places in
common, a share is a range of keys with the files of that range: shares are sorted, asked and
answered beside each other, and no file is met in two of them. Else all keys are one share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from metatable.data.bucket_functions import HASH_SPACE
from metatable.metadata.hfiles.kept_blocks import KeptBlocks
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.pages import HFileRef
from metatable.storage.arrays import Bools, Int32s, Int64s, UInt64s
from metatable.storage.byte_columns import from_voids, joined, voids, words_of
from metatable.storage.cache import blocks as block_cache
from metatable.storage.cache import cached
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.ordering import as_binary, sort_order
from metatable.storage.threads import WORKERS, in_order

__all__ = ["Answers", "apart", "ask", "asked_of"]

R = TypeVar("R")

Files = list[tuple[int, slice | Int64s]]
"""(number of an HFile, the places among a share's keys of those that it may hold), newest first."""

_NOWHERE = (1 << 31) - 1
"""The source of a key that is answered: no file has it."""

_HASH = pa.binary(16)
"""The type of keys that can be cut into shares; keys of any other are one share."""

SPREAD_KEYS = 512
"""So many keys are cut into shares: fewer are found before a thread has begun."""

SHARES = 4 * WORKERS
"""How many there are at most, of about as many files each: where one is slow, others are left for
whoever is through."""

ABOUT_BLOCK_BYTES = 32 << 10
"""What a block takes in the cache as it is stored, about."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the files say of some of the keys asked, which are those of `rows`, sorted by key.

    `values`: as they are stored, tombstones too; null where no file has the key.
    `sources`: int32, which file has answered, -1 where none has.
    """

    rows: Int64s
    values: pa.Array
    sources: Int32s


@dataclass(frozen=True, slots=True)
class _Share:
    """The keys of `rows`, ascending, and the HFiles that are to be asked for them."""

    rows: Int64s
    keys: pa.Array
    files: Files


def ask(
    partition: MetadataPartition,
    refs: Sequence[HFileRef],
    keys: pa.Array,
    reader: Callable[[HFileRef], HFileReader],
    work: Callable[[Answers], R],
) -> Iterator[R]:
    """What `work` makes of the answers to `keys` (any order, duplicates allowed), share by share on
    a few threads; a file's number is its place in `refs`, which go from the newest to the oldest.
    """
    keep = _fits(partition, refs, len(keys))

    def asked(make: Callable[[], _Share]) -> R:
        return work(_answered(make(), refs, reader, keep=keep))

    return in_order(asked, _shares(partition, refs, keys))


def asked_of(
    partition: MetadataPartition, refs: Sequence[HFileRef], keys: pa.Array
) -> list[HFileRef]:
    """The HFiles that have places of the keys, and may hold one by their first and their last."""
    places, ends = np.unique(partition.places(keys)), _ends(keys, sort_order(keys))
    return [ref for ref in refs if _has_any(places, ref) and _may_hold(ref, ends)]


def _fits(partition: MetadataPartition, refs: Sequence[HFileRef], count: int) -> bool:
    """Whether what so many keys touch of the files has room in the cache of blocks: what has not
    would be gone before it is asked for again, and what was there with it."""
    room = block_cache.budget_bytes
    if sum(ref.size_bytes for ref in refs) <= room:
        return True
    each = count * ABOUT_BLOCK_BYTES / partition.space
    return sum(min(ref.size_bytes, (ref.hi - ref.lo) * each) for ref in refs) <= room


def apart(refs: Sequence[HFileRef]) -> list[list[HFileRef]]:
    """The HFiles in groups, each newest first, that have no places in common with each other."""
    groups: list[list[HFileRef]] = []
    end = 0
    for ref in sorted(refs, key=lambda one: one.lo):
        if groups and ref.lo < end:
            groups[-1].append(ref)
        else:
            groups.append([ref])
        end = max(end, ref.hi)
    return [sorted(few, key=lambda one: -one.sequence) for few in groups]


def _shares(
    partition: MetadataPartition, refs: Sequence[HFileRef], keys: pa.Array
) -> list[Callable[[], _Share]]:
    """What makes each share, when its turn comes."""
    if partition.keys_are_hashes and len(refs) > 1 and keys.type == _HASH:
        return _by_range(refs, keys)
    return [lambda: _whole(partition, refs, keys)]


def _whole(partition: MetadataPartition, refs: Sequence[HFileRef], keys: pa.Array) -> _Share:
    """All keys as one share."""
    order = sort_order(keys)
    taken = keys.take(pa.array(order))
    every = slice(0, len(keys))
    if all(ref.lo == 0 and ref.hi == partition.space for ref in refs):
        return _Share(order, taken, [(number, every) for number in range(len(refs))])
    places = partition.places(taken)
    files = [np.flatnonzero((places >= ref.lo) & (places < ref.hi)) for ref in refs]
    return _Share(order, taken, list(enumerate(files)))


def _by_range(refs: Sequence[HFileRef], keys: pa.Array) -> list[Callable[[], _Share]]:
    """Shares of keys that are hashes, by ranges of places: a hash begins with its 32-bit place."""
    words, groups = words_of(voids(keys)), apart(refs)
    numbers = {ref.path: number for number, ref in enumerate(refs)}
    each = -(-len(groups) // (SHARES if len(keys) >= SPREAD_KEYS else 1))
    firsts = range(0, len(groups), each)
    inner = (min(ref.lo for ref in groups[first]) for first in firsts[1:])
    borders = [0, *inner, HASH_SPACE]

    def share(first: int, lo: int, hi: int) -> _Share:
        rows = np.flatnonzero(_between(words, lo, hi))
        mine = voids(keys)[rows]
        order = sort_order(from_voids(mine))
        rows, mine = rows[order], mine[order]
        ascending = words_of(mine)
        files: Files = []
        for ref in (ref for group in groups[first : first + each] for ref in group):
            ends = (_place_of(ascending, ref.lo), _place_of(ascending, ref.hi))
            files.append((numbers[ref.path], slice(*ends)))
        return _Share(rows, from_voids(mine), files)

    ranges = zip(firsts, borders, borders[1:], strict=False)
    return [partial(share, *one) for one in ranges]


def _between(words: UInt64s, lo: int, hi: int) -> Bools:
    """Which keys, told by their first eight bytes, are of places [lo, hi)."""
    inside = words >= np.uint64(lo << 32)
    if hi < HASH_SPACE:
        inside &= words < np.uint64(hi << 32)
    return inside


def _place_of(ascending: UInt64s, border: int) -> int:
    """Where among ascending keys those of the place `border` begin."""
    if border >= HASH_SPACE:
        return len(ascending)
    return int(np.searchsorted(ascending, np.uint64(border << 32)))


def _has_any(places: Int64s, ref: HFileRef) -> bool:
    """Whether any of these places, ascending, is one of the HFile's live ones."""
    lo, hi = np.searchsorted(places, [ref.lo, ref.hi])
    return bool(lo < hi)


def _ends(keys: pa.Array, order: Sequence[int] | Int64s) -> tuple[bytes, bytes]:
    """The least and the greatest key; `order` has their places first and last."""
    if not len(keys):
        return b"", b""
    first, last = (as_binary(keys[int(place) :][:1])[0].as_py() for place in (order[0], order[-1]))
    return first, last


def _may_hold(ref: HFileRef, ends: tuple[bytes, bytes]) -> bool:
    """Whether keys between `ends` may be in an HFile. A file of one row's commit holds a key or
    two, and is opened for hardly any other."""
    return ref.first_key <= ends[1] and ends[0] <= ref.last_key


def _answered(
    share: _Share,
    refs: Sequence[HFileRef],
    reader: Callable[[HFileRef], HFileReader],
    *,
    keep: bool,
) -> Answers:
    """Ask the files of a share, each for the keys that no newer one has answered.

    `keep`: blocks that are read stay in the process's cache.
    """
    count = len(share.rows)
    ends = _ends(share.keys, range(count))
    sources = np.full(count, -1, dtype=np.int32)
    places = np.full(count, -1, dtype=np.int64)
    parts: list[pa.Array] = []
    held = 0
    kept = _from_kept(share, refs, reader) if keep else None
    if kept is not None:
        sources[kept.is_answered] = _NOWHERE
        hit, held = kept.hit, len(kept.hit)
        sources[hit], places[hit] = kept.sources[hit], np.arange(held)
        parts.append(kept.values)
    for number, which in share.files:
        if not _may_hold(refs[number], ends):
            continue
        left = np.flatnonzero(sources[which] < 0)
        if not len(left):
            continue
        asked, keys = _left_of(share.keys, which, left)
        hit, values = _told(reader(refs[number]), keys, keep=keep)
        sources[asked[hit]] = number
        places[asked[hit]] = np.arange(held, held + len(hit))
        parts.append(values)
        held += len(hit)
    sources[sources == _NOWHERE] = -1
    if not parts:
        return Answers(share.rows, pa.nulls(count, pa.binary()), sources)
    told = joined(parts)
    return Answers(share.rows, told.take(pa.array(places, mask=places < 0)), sources)


def _left_of(keys: pa.Array, which: slice | Int64s, left: Int64s) -> tuple[Int64s, pa.Array]:
    """The places, and the keys there, of those of `which` that are not answered: number `left`."""
    if not isinstance(which, slice):
        asked = which[left]
        return asked, _taken(keys, asked)
    asked = left + which.start
    is_every = len(left) == which.stop - which.start
    return asked, keys[which] if is_every else _taken(keys, asked)


class _FromKept(NamedTuple):
    """What blocks that are in the process's cache say of the keys of a share."""

    sources: Int64s
    """For each key, the number of the one file that it could be in."""
    is_answered: Bools
    """For each key, whether the block that it could be in was there."""
    hit: Int64s
    """The places of the keys that are in these blocks."""
    values: pa.Array
    """The values of those."""


def _from_kept(
    share: _Share, refs: Sequence[HFileRef], reader: Callable[[HFileRef], HFileReader]
) -> _FromKept | None:
    """Ask for few keys the blocks that are kept. None where it is of no use: keys are many, or
    files have keys in common, or one of them has none to answer."""
    spans = [which for _, which in share.files if isinstance(which, slice)]
    starts, stops = ([getattr(one, end) for one in spans] for end in ("start", "stop"))
    if not len(spans) == len(share.files) > 1 or len(share.rows) >= SPREAD_KEYS:
        return None
    if starts != [0, *stops[:-1]] or stops[-1] != len(share.rows):
        return None  # files have places in common, or a key's place is in none
    if any(start == stop for start, stop in zip(starts, stops, strict=True)):
        return None
    readers = [reader(refs[number]) for number, _ in share.files]
    name = ("kept-blocks", *(one.identity for one in readers))
    [blocks] = cached(name, lambda: (KeptBlocks.of(readers),), _size_of)
    if blocks is None or blocks.sizes[0] != share.keys.type.byte_width:
        return None
    of = np.repeat(np.arange(len(spans)), np.subtract(stops, starts))
    is_answered, found, values = blocks.find(voids(share.keys), of)
    hit = np.flatnonzero(found)
    readers[0].counters.add("hfile.lookups", int(np.count_nonzero(is_answered)))
    sources = np.array([number for number, _ in share.files])[of]
    return _FromKept(sources, is_answered, hit, from_voids(values[hit]))


def _size_of(held: tuple[KeptBlocks | None]) -> int:
    return 1000 if held[0] is None else held[0].size_bytes


def _taken(keys: pa.Array, rows: Int64s) -> pa.Array:
    """The keys of these rows; those of one size are moved by numpy."""
    if pa.types.is_fixed_size_binary(keys.type):
        return from_voids(voids(keys)[rows])
    return keys.take(pa.array(rows))


def _told(reader: HFileReader, keys: pa.Array, *, keep: bool) -> tuple[Int64s, pa.Array]:
    """Which of ascending keys are there, and their values, of fixed size where the file's are."""
    if pa.types.is_fixed_size_binary(keys.type):
        hits = reader.find_alike(voids(keys), keep=keep)
        if hits is not None:
            rows = np.flatnonzero(hits[0])
            return rows, from_voids(hits[1][rows])
    answer = reader.get_sorted(as_binary(keys))
    return np.flatnonzero(answer.is_valid().to_numpy(zero_copy_only=False)), answer.drop_null()
