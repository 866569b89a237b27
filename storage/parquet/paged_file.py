"""Paged files: what is kept of a footer so that single pages of its file can be read.

Some numbers of each column chunk, in an array, and the schema, which files share. All of it stays
in the process's cache: a file that is asked again is asked for pages alone.

A file is not paged (None) where a column has no offset index, where the footer tells Arrow's own
schema, which says more than a file of some pages could, where it is encrypted, damaged or longer
than `parts.py` takes, and where the same bytes are told to be of many chunks, or page indexes are
longer than any writer makes them. It is read the ordinary way then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.storage import cache
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet import known_footers
from metatable.storage.parquet.fields import Footer, Meta
from metatable.storage.parquet.footer import footer_ends, understood, whole_footer
from metatable.storage.parquet.known_footers import FooterForm, FooterNumbers
from metatable.storage.parquet.parts import MOST_FOOTER_BYTES, Chunk, Leaf, ParquetParts, number
from metatable.storage.parquet.thrift import (
    I64,
    LIST,
    STRUCT,
    Elements,
    encode_struct,
)
from metatable.storage.store import Store

__all__ = ["PagedFile", "Shape", "paged"]


(START, STORED, UNCOMPRESSED, CODEC, ENCODINGS) = range(5)
BOUNDS_AT, BOUNDS_SIZE, PLACES_AT, PLACES_SIZE = range(5, 9)
"""What is kept of a column chunk; of its encodings a bit each."""

_TOLD = [known_footers.STORED, known_footers.UNCOMPRESSED, known_footers.CODEC]
_TOLD_INDEXES = [known_footers.BOUNDS_AT, known_footers.BOUNDS_SIZE]
_TOLD_INDEXES += [known_footers.PLACES_AT, known_footers.PLACES_SIZE]
"""Where what is kept of a chunk stands among the numbers that are read by a form."""

_ARROW_SCHEMA = b"ARROW:schema"

MOST_FORMS = 8
"""How many forms are kept of the footers of a table: as many as it had schemas lately."""

_MORE_BYTES = 4 << 10
"""Read of a long footer besides twice what its form takes."""

MOST_INDEX_BYTES = 16 << 20
"""Bytes of a file's offset indexes, and of a column's bounds, that are read: a million pages.
Decoding takes some 100 bytes of memory a byte, and a forged footer tells as many places as it
likes."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What files of one schema and writer share: `columns[i]` are the leaves of top-level column i,
    by number, in the order of the schema."""

    schema: pa.Schema
    names: tuple[str, ...]
    columns: tuple[range, ...]
    leaves: tuple[Leaf, ...]
    created_by: bytes


@dataclass(frozen=True, slots=True, eq=False)
class PagedFile:
    """A file of which single pages can be read."""

    path: str
    shape: Shape
    rows: Int64s
    """Rows of each row group."""
    chunks: Int64s
    """(row group, leaf, number): those from START to PLACES_SIZE."""
    words: frozenset[bytes]
    """The keys under which its footer tells things."""
    starts: Int64s = field(init=False)
    """The first row of each row group, and how many rows there are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum(np.append(0, self.rows)))

    @classmethod
    def of(
        cls,
        parts: ParquetParts,
        size_bytes: int,
        chunks_of: Callable[[int], Sequence[Chunk]] | None = None,
    ) -> PagedFile | None:
        """A file that is open, of this size; None where single pages of it cannot be read.
        `chunks_of`: gives the chunks of a row group, where they are made already. Raises
        CorruptError."""
        if parts.bound or not parts.groups:
            return None
        groups = [*map(chunks_of or parts.chunks, range(len(parts.groups)))]
        chunks = np.array([[_numbers_of(one) for one in group] for group in groups], np.int64)
        rows = np.array([chunks[0].rows for chunks in groups], np.int64)
        words = frozenset(parts.metadata)
        return cls(parts.path, _shape(parts), rows, chunks, words)._if_paged(size_bytes)

    @classmethod
    def of_numbers(
        cls, path: str, shape: Shape, told: FooterNumbers, size_bytes: int
    ) -> PagedFile | None:
        """A file whose footer was read by its form; None where single pages cannot be read."""
        chunks = np.concatenate(
            [
                known_footers.starts_of(told.chunks)[:, :, None],
                told.chunks[:, :, _TOLD],
                told.encodings[:, :, None],
                told.chunks[:, :, _TOLD_INDEXES],
            ],
            axis=2,
        )
        return cls(path, shape, told.rows, chunks, told.words)._if_paged(size_bytes)

    def _if_paged(self, size_bytes: int) -> PagedFile | None:
        if _ARROW_SCHEMA in self.words or not self.rows.all():
            return None
        places, stored = (self.chunks[:, :, one] for one in (PLACES_SIZE, STORED))
        if not places.all() or places.sum() > MOST_INDEX_BYTES or stored.sum() > size_bytes:
            return None
        return self

    def wrong(self, what: str, group: int, leaf: int, **facts: object) -> CorruptError:
        """What is raised for damage of a column chunk."""
        column = self.shape.leaves[leaf].name
        return CorruptError(what, path=self.path, column=column, row_group=group, **facts)

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        return int(self.chunks.nbytes) + 1000


def paged(store: Store, files: Sequence[tuple[str, int]]) -> list[PagedFile | None]:
    """These files (path, bytes), from the cache or their footers. Raises CorruptError."""
    found: list[Any] = [cache.shared.get(("paged", store.uri, path)) for path, _ in files]
    missing = [place for place, one in enumerate(found) if one is None]
    read = _read_each(store, [files[place] for place in missing])
    for place, one in zip(missing, read, strict=True):
        key = ("paged", store.uri, files[place][0])
        found[place] = cache.shared.offer(key, (one,), one.size_bytes if one else 100)
    return [one for [one] in found]


_Forms = tuple[tuple[FooterForm, Shape], ...]


def _read_each(store: Store, files: Sequence[tuple[str, int]]) -> list[PagedFile | None]:
    """The first one by itself where no form is known: of the others less is read then."""
    alone = 0 if _forms(store) else 1
    first = [_read(store, *one) for one in files[:alone]]
    return [*first, *store.together([partial(_read, store, *one) for one in files[alone:]])]


def _read(store: Store, path: str, size_bytes: int) -> PagedFile | None:
    read, forms = partial(store.read, path), _forms(store)
    most = max((2 * form.size_bytes + _MORE_BYTES for form, _ in forms), default=size_bytes)
    start, head, tail = footer_ends(read, path, size_bytes, most)
    if size_bytes - start > MOST_FOOTER_BYTES:
        return None
    for form, shape in forms:
        told = form.numbers(head, tail, size_bytes - len(tail) - start, start)
        if told is not None:
            return PagedFile.of_numbers(path, shape, told, size_bytes)
    if tail:
        gap = start + len(head), size_bytes - len(tail) - start - len(head)
        head = b"".join([head, *read([gap]), tail])
    try:
        parts = ParquetParts.of_footer(store, path, size_bytes, head)
        found = None if parts is None else PagedFile.of(parts, size_bytes)
    except CorruptError:  # in what pyarrow, who reads it then and is the judge, may not need
        return None
    if parts is not None and found is not None:
        _learn(store, FooterForm.of(parts), found.shape)
    return found


def _forms(store: Store) -> _Forms:
    return cache.shared.get(("footer-forms", store.uri)) or ()


def _learn(store: Store, form: FooterForm | None, shape: Shape) -> None:
    if form is not None:
        forms = ((form, shape), *_forms(store))[:MOST_FORMS]
        size = sum(20 * (len(one.before) + len(one.behind)) for one, _ in forms)
        cache.shared.replace(("footer-forms", store.uri), forms, size)


def _numbers_of(chunk: Chunk) -> tuple[int, ...]:
    codec = number(chunk.meta, Meta.CODEC, chunk.path)
    known = {one for one in chunk.meta[Meta.ENCODINGS] if type(one) is int and 0 <= one < 32}
    encodings = sum(1 << one for one in known)
    bounds, places = chunk.page_index or [(0, 0), (0, 0)]
    return chunk.offset, chunk.size, chunk.uncompressed, codec, encodings, *bounds, *places


def _shape(parts: ParquetParts) -> Shape:
    footer = parts.stored.changed(
        (Footer.ROWS, I64, 0), (Footer.GROUPS, LIST, Elements(STRUCT)), (Footer.WORDS, LIST, None)
    )
    raw = whole_footer(encode_struct(footer))

    def made() -> Shape:
        schema = understood(raw, parts.path).schema.to_arrow_schema()
        first = [leaf for leaf, one in enumerate(parts.leaves) if _opens(parts.leaves, leaf)]
        columns = tuple(map(range, first, [*first[1:], len(parts.leaves)]))
        if len(columns) != len(schema):
            raise CorruptError("schema is damaged", path=parts.path, found=schema.names)
        return Shape(schema, tuple(schema.names), columns, parts.leaves, parts.created_by)

    return cache.cached(("shape", raw), made, lambda _: 20 * len(raw))


def _opens(leaves: Sequence[Leaf], leaf: int) -> bool:
    """Whether this leaf is the first one of its column."""
    return not leaf or leaves[leaf - 1].elements[0] is not leaves[leaf].elements[0]
