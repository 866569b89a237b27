"""Told bounds: what a file tells of the values of its columns, held against the values.

Readers leave out row groups and pages by it, and none of it has a checksum: where a bit of it got
lost they find fewer rows than there are, and nobody notices.

    row groups   least and greatest value, and how many nulls
    pages        the same, where they begin and lie, whether bounds ascend, and which have no values

Nor have the headers of pages one. Where a bit of how many values a page has got lost, those behind
it are read as values of other rows (`check_pages`).

A bound may be wider than the values, and one that is no number says nothing. Nested columns, times
of 96 bits, floats of 16, bounds without an order and page indexes longer than any writer makes them
are not looked at: few go by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.made_once import made_once
from metatable.storage.parquet.fields import Bounds, Element, Meta, Statistics
from metatable.storage.parquet.offset_index import OFFSET, ROW, SIZE, decode_offset_indexes
from metatable.storage.parquet.paged_file import MOST_INDEX_BYTES
from metatable.storage.parquet.pages import check_values
from metatable.storage.parquet.parts import Chunk, ParquetParts, ReadRaw, Span, number
from metatable.storage.parquet.thrift import Struct, decode_struct
from metatable.storage.store import Store

__all__ = ["ToldBounds"]

_T = TypeVar("_T")


_NUMBERS = {0: "?", 1: "<i4", 2: "<i8", 4: "<f4", 5: "<f8"}
"""How bounds of Parquet's types of numbers are stored; those of others are bytes."""
_INT96 = 3
_STORED_BITS = 32
"""Bits that the smallest whole numbers take as they are stored."""

_ORDERS = _UNORDERED, _ASCENDING, _DESCENDING = range(3)
"""In which order the bounds of pages are."""

_SHORT = 40
"""Bytes of a bound that are told in words."""


@dataclass(frozen=True, eq=False)
class ToldBounds:
    """The bounds that a file tells of its columns, in its footer and in its page indexes.

    `bounds`: its column indexes, by their places; `rows`: the rows at which pages begin, by the
    places of their offset indexes.
    """

    parts: ParquetParts
    groups: Sequence[Sequence[Chunk]]
    bounds: Mapping[Span, bytes]
    rows: Mapping[Span, Int64s]

    @classmethod
    def read(cls, store: Store, path: str, size_bytes: int) -> ToldBounds | None:
        """Reads the footer and the page indexes; None: the former is longer than is looked at.
        Raises CorruptError where they are damaged."""
        parts = ParquetParts.open(store, path, size_bytes)
        if parts is None:
            return None
        groups = [parts.chunks(group) for group in range(len(parts.groups))]
        indexed = [chunk for group in groups for chunk in group if chunk.page_index]
        indexes = [chunk.page_index for chunk in indexed]
        if sum(size for spans in indexes for _, size in spans) > MOST_INDEX_BYTES:
            indexed, indexes = [], []
        bounds, places = [one for one, _ in indexes if one[1]], [one for _, one in indexes]
        raws = store.read(path, [*bounds, *places])
        counts, pages = decode_offset_indexes(raws[len(bounds) :])
        found = np.split(pages, np.cumsum(counts.clip(0))[:-1])
        for chunk, own in zip(indexed, found if indexed else [], strict=True):
            _check_places(chunk, own)
        rows = [own[:, ROW] for own in found]
        told = dict(zip(bounds, raws[: len(bounds)], strict=True))
        return cls(parts, groups, told, dict(zip(places, rows, strict=True)) if places else {})

    @made_once
    def _leaves(self) -> dict[str, int]:
        """Columns of which bounds are believed, by name."""
        return {
            leaf.name: place
            for place, leaf in enumerate(self.parts.leaves)
            if len(leaf.elements) == 1 and not leaf.is_repeated and leaf.order is not None
            if leaf.elements[0].get(Element.TYPE) != _INT96
        }

    def fault_of(self, name: str, column: pa.ChunkedArray) -> str:
        """What is wrong with what is told of a column, of which these are all values in the file;
        "": nothing. Raises CorruptError where a page index is damaged."""
        leaf, start = self._leaves.get(name), 0
        if leaf is None or not _is_known(column.type):
            return ""
        for group, chunks in enumerate(self.groups):
            chunk = chunks[leaf]
            values = column.slice(start, chunk.rows)
            start += chunk.rows
            whole = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
            fault = self._told(chunk).fault_of(whole)
            if fault:
                return f"column {name} in row group {group}: {fault}"
        return ""

    def check_pages(self, names: Iterable[str], read: ReadRaw) -> None:
        """Hold how many values the pages of these top-level columns say to have, in all of their
        leaves, against what the footer tells; `read` gives bytes of the file. Raises CorruptError:
        rows would be given the values of others."""
        asked = {name.encode() for name in names}
        every = (chunk for group in self.groups for chunk in group if chunk.size)
        chunks = [chunk for chunk in every if chunk.leaf.path[0] in asked]
        raws = read([(one.offset, one.size) for one in chunks])
        for chunk, raw in zip(chunks, raws, strict=True):
            check_values(chunk, raw)

    def _told(self, chunk: Chunk) -> _Told:
        """Raises CorruptError."""
        whole = [_of_statistics(chunk)]
        bounds, places = chunk.page_index or [(0, 0), (0, 0)]
        if bounds not in self.bounds:
            return _Told(chunk, whole)
        index, _ = decode_struct(self.bounds[bounds], chunk.path)
        pages, order = _of_pages(chunk, index, self.rows[places]), index.get(Bounds.ORDER)
        return _Told(chunk, whole if pages == whole else whole + pages, order or _UNORDERED)


def _is_known(kind: pa.DataType) -> bool:
    if pa.types.is_primitive(kind):
        return not pa.types.is_float16(kind)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    binaries = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    binaries = binaries or pa.types.is_fixed_size_binary(kind)
    return bool(texts or binaries or pa.types.is_decimal(kind))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is told of the rows `low` to `high` of a chunk: bounds as they are stored (None: there
    are none), whether they are null all of them, and how many are (None: nobody says)."""

    low: int
    high: int
    least: bytes | None
    greatest: bytes | None
    no_values: bool = False
    nulls: int | None = None

    def of(self, values: pa.Array) -> pa.Array:
        return values.slice(self.low, self.high - self.low)

    def wrong(self, told: str, found: str) -> str:
        return f"rows {self.low} to {self.high} are told to have {told}, and {found}"


def _of_statistics(chunk: Chunk) -> _Part:
    told = chunk.meta.get(Meta.STATISTICS)
    if not isinstance(told, Struct):
        return _Part(0, chunk.rows, None, None)
    nulls = number(told, Statistics.NULLS, chunk.path) if Statistics.NULLS in told else None
    least, greatest = told.get(Statistics.LEAST), told.get(Statistics.GREATEST)
    if not isinstance(least, bytes | None) or not isinstance(greatest, bytes | None):
        raise chunk.wrong("statistics are damaged", chunk.offset, found=[least, greatest])
    return _Part(0, chunk.rows, least, greatest, nulls=nulls)


def _of_pages(chunk: Chunk, index: Struct, rows: Int64s) -> list[_Part]:
    """The parts that a column index tells of, with the rows at which pages begin. Raises
    CorruptError."""
    no_values = _listed(chunk, index, Bounds.IS_NULL, bool)
    least, greatest = (_listed(chunk, index, one, bytes) for one in (Bounds.LEAST, Bounds.GREATEST))
    nulls: list[int | None] = [*_listed(chunk, index, Bounds.NULLS, int)] or [None] * len(rows)
    counts = {len(rows), len(no_values), len(least), len(greatest), len(nulls)}
    if len(counts) > 1 or not len(rows):
        raise _damaged(chunk, "page indexes do not fit together", sorted(counts))
    starts = [*rows.tolist(), chunk.rows]
    if starts[0] or starts != sorted(starts):
        raise _damaged(chunk, "pages begin at rows that do not ascend", starts[:5])
    told = zip(pairwise(starts), no_values, least, greatest, nulls, strict=True)
    return [
        _Part(*span, None if none else low, None if none else high, none, count)
        for span, none, low, high, count in told
    ]


def _check_places(chunk: Chunk, pages: Int64s) -> None:
    """Raises CorruptError unless the pages of a chunk with rows lie one behind the other, up to its
    end."""
    begins, ends = pages[:, OFFSET], pages[:, OFFSET] + pages[:, SIZE]
    behind = np.append(begins[1:], chunk.offset + chunk.size)
    is_sound = len(pages) and begins[0] >= chunk.offset and np.array_equal(ends, behind)
    if chunk.rows and not is_sound:
        what, expected = "offset index tells other pages", f"up to {chunk.offset + chunk.size}"
        found = pages[-1:].tolist()
        raise chunk.wrong(what, chunk.page_index[1][0], expected=expected, found=found)


def _listed(chunk: Chunk, index: Struct, field: int, kind: type[_T]) -> list[_T]:
    """A field of a column index; empty where there is none."""
    found = index.get(field, [])
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        raise _damaged(chunk, "column index is damaged", f"field {field}")
    return found


def _damaged(chunk: Chunk, what: str, found: object) -> CorruptError:
    return chunk.wrong(what, chunk.page_index[0][0], found=found)


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """What is told of a chunk: of all of it, and then of its pages, whose bounds are in `order`."""

    chunk: Chunk
    parts: Sequence[_Part]
    order: int = _UNORDERED

    def fault_of(self, values: pa.Array) -> str:
        """In words; "": none."""
        return self._fault_of_nulls(values) or self._fault_of_bounds(_comparable(values))

    def _fault_of_nulls(self, values: pa.Array) -> str:
        for part in self.parts:
            nulls = part.of(values).null_count if values.null_count else 0
            if part.nulls not in (None, nulls):
                return part.wrong(f"{part.nulls} nulls", f"have {nulls}")
            if part.no_values and nulls < part.high - part.low:
                return part.wrong("no values", f"have {part.high - part.low - nulls}")
        return ""

    def _fault_of_bounds(self, values: pa.Array) -> str:
        stored = [one.least for one in self.parts], [one.greatest for one in self.parts]
        least, greatest = (self._decoded(one, values.type) for one in stored)
        if least is None or greatest is None:
            return "a bound is of another type than values"
        pages = least[1:], greatest[1:]
        first = int(_are_inside(*pages, least[0], greatest[0]))  # then pages tell of the values
        wrong = _first_outside(values, self.parts[first:], least[first:], greatest[first:])
        if wrong is not None:
            return wrong.wrong(f"{_short(wrong.least)} to {_short(wrong.greatest)}", "have others")
        if self.order not in _ORDERS or not all(_keeps(self.order, one) for one in pages):
            return f"bounds of pages are not in the order that is told, {self.order}"
        return ""

    def _decoded(self, stored: Sequence[bytes | None], kind: pa.DataType) -> pa.Array | None:
        """Bounds as values are; None where one is none of them."""
        type_ = number(self.chunk.leaf.elements[0], Element.TYPE, self.chunk.path)
        if pa.types.is_decimal(kind):
            return _decimals(stored, "little" if type_ in _NUMBERS else "big", kind)
        form = np.dtype(_NUMBERS.get(type_, "V0"))
        if type_ in _NUMBERS and any(len(one or b"") not in (0, form.itemsize) for one in stored):
            return None
        try:
            if type_ not in _NUMBERS:
                return pa.array(stored, kind)
            raw = b"".join(one or bytes(form.itemsize) for one in stored)
            mask = np.array([not one for one in stored], bool)
            return pa.array(np.frombuffer(raw, form), mask=mask).view(kind)
        except pa.ArrowException:  # the footer tells of another type
            return None


def _comparable(values: pa.Array) -> pa.Array:
    """As their bounds are stored: small numbers as they are widened, texts as bytes."""
    kind = values.type
    if pa.types.is_integer(kind) and kind.bit_width < _STORED_BITS:
        return values.cast(pa.int32())
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return values
    return values.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())


def _decimals(
    stored: Sequence[bytes | None], order: Literal["little", "big"], kind: pa.DataType
) -> pa.Array | None:
    """Stored unscaled numbers as decimals of this type; None where one has more digits than any
    value."""
    size = kind.bit_width // 8
    unscaled = (int.from_bytes(one or b"", order, signed=True) for one in stored)
    try:
        body = b"".join(one.to_bytes(size, "little", signed=True) for one in unscaled)
    except OverflowError:
        return None
    made = pa.Array.from_buffers(kind, len(stored), [None, pa.py_buffer(body)])
    return pc.if_else(pa.array([one is not None for one in stored], pa.bool_()), made, None)


def _first_outside(
    values: pa.Array, parts: Sequence[_Part], least: pa.Array, greatest: pa.Array
) -> _Part | None:
    """The first part with a value outside of its bounds; None: there is none."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        told = zip(parts, least, greatest, strict=True)  # comparing texts beats finding their ends
        wrong = (one for one, *ends in told if _any_outside(*[one.of(values)] * 2, *ends))
        return next(wrong, None)
    ends = pa.array([pc.min_max(one.of(values)) for one in parts])
    outside = _outside(ends.field("min"), ends.field("max"), least, greatest)
    place = pc.index(outside, True).as_py()
    return None if place < 0 else parts[place]


def _any_outside(low: pa.Array, high: pa.Array, least: pa.Scalar, greatest: pa.Scalar) -> bool:
    return bool(pc.any(_outside(low, high, least, greatest)).as_py())


def _outside(low: pa.Array, high: pa.Array, least: pa.Array, greatest: pa.Array) -> pa.Array:
    """Which are below or above these bounds; null where there are none."""
    return pc.or_kleene(pc.less(low, least), pc.greater(high, greatest))


def _are_inside(low: pa.Array, high: pa.Array, least: pa.Scalar, greatest: pa.Scalar) -> bool:
    """Whether there are such, and all are surely within these bounds: one that is missing, or no
    number, is not."""
    inside = pc.and_(pc.greater_equal(low, least), pc.less_equal(high, greatest))
    return len(low) > 0 and pc.all(inside, skip_nulls=False).as_py() is True


def _keeps(order: int, bounds: pa.Array) -> bool:
    """Whether bounds are in the order that is told."""
    sides = bounds.drop_null()
    if order == _UNORDERED or len(sides) < 2:
        return True
    first, second = (sides[:-1], sides[1:]) if order == _ASCENDING else (sides[1:], sides[:-1])
    return not pc.any(pc.greater(first, second)).as_py()


def _short(bound: bytes | None) -> str:
    return repr(bound and bound[:_SHORT])
