"""Page places: where the pages of a file lie, which rows they hold, and which may hold a key.

    offset index    of each column chunk: places and first rows of its pages
    column index    of a column of keys: the least and greatest one of each page; such a bound may
                    be cut off (the greatest raised then), so it may be wider than the page

Both are read once and kept in the process's cache. They have no checksum, so they are held against
the footer: pages lie in their chunk, in order, and hold all of its rows; bounds are as many.
Whether a page holds the rows that it should, `chosen_pages.py` sees.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage import cache
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.ordering import PrefixIndex, sort_order
from metatable.storage.parquet.fields import Bounds, Element
from metatable.storage.parquet.offset_index import (
    OFFSET,
    ROW,
    SIZE,
    decode_offset_indexes,
    list_head,
)
from metatable.storage.parquet.paged_file import (
    BOUNDS_AT,
    BOUNDS_SIZE,
    MOST_INDEX_BYTES,
    PLACES_AT,
    START,
    STORED,
    PagedFile,
)
from metatable.storage.parquet.parts import Span
from metatable.storage.parquet.thrift import BINARY, decode_struct
from metatable.storage.store import Store

__all__ = ["ODD", "GroupPages", "KeyPages", "Wanted", "group_pages", "key_pages"]

Chunk = tuple[PagedFile, int, int]
"""A file, a row group and a leaf."""

Wanted = dict[int, list[bytes]]
"""Texts that pages may hold, by the numbers of the pages, which ascend."""

ODD = -1
"""A leaf whose pages do not all begin where those of its column do."""

_BYTE_ARRAY = 6
"""Parquet's type of texts."""

_BOOLS, _TRUE = (1, 2), 1
"""Thrift's, as they stand in a list."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupPages:
    """Where the pages of a row group lie. `pages`: OFFSET, SIZE, ROW of each, a row each, those of
    leaf i from `borders[i]` on; `starts`: rows at which all leaves of a column begin a page, each
    once that columns have; `of_column`: which of them each column has, and `of_leaf` each leaf, but
    ODD where it begins pages elsewhere, too. `is_even`: all leaves begin theirs at the same ones.
    """

    pages: Int64s
    borders: Int64s
    starts: tuple[Int64s, ...]
    of_column: Int64s
    of_leaf: Int64s
    is_even: bool

    def of(self, leaf: int) -> Int64s:
        return self.pages[self.borders[leaf] : self.borders[leaf + 1]]


class _Texts(Sequence[bytes]):
    """An array of binary without nulls, of which single ones are wanted."""

    def __init__(self, values: pa.Array) -> None:
        _, ends, body = values.buffers()
        self._ends = np.frombuffer(ends, np.int32)[: len(values) + 1].tolist()
        self._body = bytes(body or b"")
        self._all: list[bytes] | None = None
        self._looked_at = 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: Any) -> Any:
        return self._body[self._ends[place] : self._ends[place + 1]]

    def bisected(self, times: int) -> Sequence[bytes]:
        """These texts, for so many bisections: as a list, which is kept, where these and those
        before look at more texts than there are."""
        self._looked_at += times * len(self).bit_length()
        if self._all is None and self._looked_at > len(self):
            self._all = [self._body[low:high] for low, high in pairwise(self._ends)]
        return self if self._all is None else self._all


@dataclass(frozen=True, slots=True, eq=False)
class KeyPages:
    """The pages of a column of texts in all row groups: bounds (binary, null: no value), and the
    first row of each in the file, and the end. No value lies outside of its page's bounds.
    `ascending`: bounds as texts, where both of them ascend."""

    least: pa.Array
    greatest: pa.Array
    starts: Int64s
    ascending: tuple[_Texts, _Texts] | None = None

    @classmethod
    def of(cls, least: pa.Array, greatest: pa.Array, starts: Int64s) -> KeyPages:
        both = least, greatest
        if all(_ascends(one) for one in both):
            return cls(*both, starts, (_Texts(least), _Texts(greatest)))
        return cls(*both, starts)

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        held = self.least.nbytes + self.greatest.nbytes + self.starts.nbytes
        return int(held if self.ascending is None else 3 * held + 160 * len(self.least))

    def wanted(self, texts: Sequence[bytes]) -> Wanted:
        """Which of these texts, which ascend, are admitted by the bounds of which pages."""
        if self.ascending is None or len(texts) > len(self.least):
            return self._wanted_of_any(texts)
        least, greatest = (one.bisected(len(texts)) for one in self.ascending)
        found: Wanted = {}
        for text in texts:
            for page in range(bisect_left(greatest, text), bisect_right(least, text)):
                found.setdefault(page, []).append(text)
        return found

    def _wanted_of_any(self, texts: Sequence[bytes]) -> Wanted:
        index = PrefixIndex(pa.array(texts, pa.binary()))
        first, end = index.place(self.least, "left"), index.place(self.greatest, "right")
        pages = np.flatnonzero(first < end)
        spans = zip(pages.tolist(), first[pages].tolist(), end[pages].tolist(), strict=True)
        return {page: [*texts[low:high]] for page, low, high in spans}

    def holding(self, keys: pa.Array) -> Int64s:
        """The pages, ascending, whose bounds admit one of these keys (texts or binaries, no null),
        which come in any order."""
        index = PrefixIndex(keys.take(pa.array(sort_order(keys))))
        first, end = index.place(self.least, "left"), index.place(self.greatest, "right")
        is_known = self.least.is_valid().to_numpy(zero_copy_only=False)
        return np.flatnonzero(is_known & (first < end))

    def rows_of(self, pages: Sequence[int] | Int64s) -> Int64s:
        """The rows of these pages, which ascend."""
        numbers = np.asarray(pages, np.int64)
        counts = self.starts[numbers + 1] - self.starts[numbers]
        before = np.cumsum(counts) - counts
        own = np.repeat(self.starts[numbers] - before, counts) + np.arange(counts.sum())
        return np.asarray(own)


def _ascends(bounds: pa.Array) -> bool:
    if bounds.null_count:
        return False
    return bool(pc.all(pc.less_equal(bounds[:-1], bounds[1:]), min_count=0).as_py())


def group_pages(store: Store, asked: Sequence[tuple[PagedFile, int]]) -> list[GroupPages]:
    """Where the pages of these row groups lie. Raises CorruptError."""
    keys = [("group-pages", store.uri, file.path, group) for file, group in asked]
    found: list[Any] = [cache.shared.get(key) for key in keys]
    missing = [place for place, known in enumerate(found) if known is None]
    if not missing:
        return found
    chunks = [(*asked[place], leaf) for place in missing for leaf in _leaves(asked[place][0])]
    [places] = _read(store, chunks, PLACES_AT)
    pages, borders = _located(chunks, places)
    first = 0
    for place in missing:
        file, _ = asked[place]
        here = borders[first : first + len(_leaves(file)) + 1]
        first += len(_leaves(file))
        one = _group_pages(file, pages[here[0] : here[-1]].copy(), here - here[0])
        found[place] = cache.shared.offer(keys[place], one, 2 * one.pages.nbytes + 2000)
    return found


def key_pages(store: Store, files: Sequence[PagedFile], name: str) -> list[KeyPages | None]:
    """The pages of a column of texts; None where it tells no bounds, or is another one. Raises
    CorruptError."""
    keys = [("key-pages", store.uri, file.path, name) for file in files]
    found: list[Any] = [cache.shared.get(key) for key in keys]
    missing = [place for place, known in enumerate(found) if known is None]
    if not missing:
        return [one for [one] in found]
    leaves = {place: _bounded(files[place], name) for place in missing}
    chunks = [
        (files[place], group, leaf)
        for place, leaf in leaves.items()
        if leaf is not None
        for group in range(len(files[place].rows))
    ]
    places, raws = _read(store, chunks, PLACES_AT, BOUNDS_AT)
    pages, borders = _located(chunks, places)
    parts: dict[str, list[tuple[pa.Array, pa.Array, Int64s]]] = {}
    for chunk, raw, (start, end) in zip(chunks, raws, pairwise(borders.tolist()), strict=True):
        file, group, _ = chunk
        rows = pages[start:end, ROW] + file.starts[group]
        parts.setdefault(file.path, []).append((*_bounds(chunk, raw, end - start), rows))
    for place in missing:
        one = _joined(files[place], parts.get(files[place].path, []))
        size = one.size_bytes if one else 100
        found[place] = cache.shared.offer(keys[place], (one,), size)
    return [one for [one] in found]


def _leaves(file: PagedFile) -> range:
    return range(len(file.shape.leaves))


def _read(store: Store, chunks: Sequence[Chunk], *fields: int) -> list[list[bytes]]:
    """For each field, which tells a place, what lies there for each chunk; of a file together."""
    wanted: dict[str, list[Span]] = {}
    for field in fields:
        for file, group, leaf in chunks:
            at, size = file.chunks[group, leaf, field : field + 2].tolist()
            wanted.setdefault(file.path, []).append((at, size))
    calls = [partial(store.read, path, spans) for path, spans in wanted.items()]
    found = dict(zip(wanted, map(iter, store.together(calls)), strict=True))
    return [[next(found[file.path]) for file, _, _ in chunks] for _ in fields]


def _located(chunks: Sequence[Chunk], raws: Sequence[bytes]) -> tuple[Int64s, Int64s]:
    """(OFFSET, SIZE, ROW of the pages of these chunks, behind each other; where those of each
    begin, and the end)."""
    counts, pages = decode_offset_indexes(raws)
    told = np.array([file.chunks[group, leaf, : STORED + 1] for file, group, leaf in chunks])
    rows = np.array([file.rows[group] for file, group, _ in chunks], np.int64)
    of = np.repeat(np.arange(len(chunks)), counts.clip(0))
    begins, ends = pages[:, OFFSET], pages[:, OFFSET] + pages[:, SIZE]
    is_first, is_last = (np.diff(of, **{side: -1}) != 0 for side in ("prepend", "append"))
    odd = (pages[:, SIZE] <= 0) | (begins < 0)
    odd |= is_first & ((pages[:, ROW] != 0) | (begins < told.reshape(-1, 2)[of, START]))
    odd |= is_last & (ends > told.reshape(-1, 2).sum(axis=1)[of])
    odd |= pages[:, ROW] > rows[of]  # pyarrow writes pages of no rows
    odd[1:] |= ~is_first[1:] & (begins[1:] < ends[:-1])
    odd[1:] |= ~is_first[1:] & (pages[1:, ROW] < pages[:-1, ROW])
    for wrong in (*np.flatnonzero(counts < 1).tolist(), *of[odd][:1].tolist()):
        file, group, leaf = chunks[wrong]
        raise file.wrong("offset index is damaged", group, leaf)
    return pages, np.cumsum(np.append(0, counts))


def _group_pages(file: PagedFile, pages: Int64s, borders: Int64s) -> GroupPages:
    if (np.diff(borders) == borders[1]).all():
        rows = pages[:, ROW].reshape(len(borders) - 1, -1)
        if (rows == rows[0]).all() and (np.diff(rows[0]) > 0).all():
            one = np.zeros(len(rows), np.int64)
            columns = one[: len(file.shape.columns)]
            return GroupPages(pages, borders, (rows[0].copy(),), columns, one, True)
    every, counts = pages[:, ROW].tobytes(), np.diff(borders).tolist()
    raws = [every[low * 8 : high * 8] for low, high in pairwise(borders.tolist())]
    firsts = {raw: np.unique(np.frombuffer(raw, np.int64)) for raw in {*raws}}  # few are told apart
    starts: dict[bytes, Int64s] = {}
    numbers: dict[bytes, int] = {}
    of_column, of_leaf = [], []
    for leaves in file.shape.columns:
        own = firsts[raws[leaves.start]]
        for leaf in leaves[1:]:
            own = np.intersect1d(own, firsts[raws[leaf]], assume_unique=True)
        key = own.tobytes()
        starts[key] = own
        number = numbers.setdefault(key, len(numbers))
        of_column.append(number)
        of_leaf += [number if counts[leaf] == len(own) else ODD for leaf in leaves]
    of = np.array(of_column), np.array(of_leaf)
    return GroupPages(pages, borders, (*starts.values(),), *of, False)


def _bounded(file: PagedFile, name: str) -> int | None:
    """The leaf of a column of texts whose pages all have bounds."""
    shape = file.shape
    if name not in shape.names:
        return None
    column = shape.columns[shape.names.index(name)]
    leaf = column.start
    element = shape.leaves[leaf].elements[0]
    if len(column) > 1 or element.get(Element.TYPE) != _BYTE_ARRAY:
        return None
    if shape.leaves[leaf].order is None or not file.chunks[:, leaf, BOUNDS_AT].all():
        return None
    return leaf if file.chunks[:, leaf, BOUNDS_SIZE].sum() <= MOST_INDEX_BYTES else None


def _bounds(chunk: Chunk, raw: bytes, count: int) -> tuple[pa.Array, pa.Array]:
    """Least and greatest value of each page (binary), null where it has none."""
    alike = _bounds_of_one_size(raw, count)
    if alike is not None:
        return alike
    file, group, leaf = chunk
    try:
        index, _ = decode_struct(raw, file.path)
        nulls, *bounds = (index[field] for field in (Bounds.IS_NULL, Bounds.LEAST, Bounds.GREATEST))
        least, greatest = (pa.array(one, pa.binary(), mask=np.array(nulls, bool)) for one in bounds)
    except MemoryError:  # of Arrow, too
        raise
    except (CorruptError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise file.wrong("column index is damaged", group, leaf, found=str(error)) from error
    if len(least) != count or len(greatest) != count:
        found = f"{len(least)} and {len(greatest)} bounds"
        raise file.wrong("column index is damaged", group, leaf, expected=count, found=found)
    return least, greatest


def _bounds_of_one_size(raw: bytes, count: int) -> tuple[pa.Array, pa.Array] | None:
    """The least and the greatest bounds of a column index, without decoding bound by bound: where
    each list's are of one size below 128 bytes, and no page is without values; None elsewhere."""
    at, found = 0, []
    for kinds in (_BOOLS, (BINARY,), (BINARY,)):
        heads = [list_head(count, kind) for kind in kinds]
        head = next((one for one in heads if raw.startswith(one, at)), None)
        if head is None or len(raw) < (at := at + len(head)) + count:
            return None
        size = 0 if kinds is _BOOLS else raw[at]
        end = at + count * (1 + size)
        if not count or size > 127 or end > len(raw):
            return None
        rows = np.frombuffer(raw, np.uint8, end - at, at).reshape(count, 1 + size)
        if kinds is _BOOLS:
            if (rows == _TRUE).any():
                return None
        elif (rows[:, 0] != size).any():
            return None
        else:
            ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
            body = pa.py_buffer(rows[:, 1:].tobytes())
            found.append(pa.Array.from_buffers(pa.binary(), count, [None, ends, body]))
        at = end
    return found[0], found[1]


def _joined(file: PagedFile, parts: Sequence[tuple[pa.Array, pa.Array, Int64s]]) -> KeyPages | None:
    if not parts:
        return None
    least, greatest, rows = zip(*parts, strict=True)
    starts = np.append(np.concatenate(rows), file.rows.sum())
    return KeyPages.of(pa.concat_arrays(least), pa.concat_arrays(greatest), starts)
