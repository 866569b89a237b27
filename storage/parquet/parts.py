"""Parts: a Parquet file as the column chunks that can be put into another one.

A chunk starts at the lower of its two offsets, first data page and dictionary. An offset of 0
says that there is none: of a dictionary in files of some writers, of data pages in row groups
without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from metatable.storage.errors import CorruptError
from metatable.storage.made_once import made_once
from metatable.storage.parquet.fields import Column, Element, Footer, Group, Meta, Word
from metatable.storage.parquet.footer import MAGIC, footer_bytes
from metatable.storage.parquet.sound_chunks import WRONG_SIZES, sizes_fit
from metatable.storage.parquet.thrift import Elements, Struct, decode_struct
from metatable.storage.store import Store

__all__ = ["MOST_FOOTER_BYTES", "Chunk", "Leaf", "ParquetParts", "Raw", "ReadRaw", "Span", "number"]

Span = tuple[int, int]
"""Offset and size in a file."""

Raw = bytes | memoryview
"""Bytes of a file, which may lie in memory of the file itself."""

ReadRaw = Callable[[Sequence[Span]], Sequence[Raw]]
"""The bytes of each of these spans of one file."""

MOST_MAPPED_BYTES = 256 << 20
"""What has been read of a mapped file counts as held by the process, until it is done with it."""

MOST_FOOTER_BYTES = 16 << 20
"""Footers are taken apart in Python, at 0.1 µs and, of forged ones, 200 bytes of memory a byte.
Long are those with a filter under a key: Hudi's of a million keys takes 2.3 MB."""

_MOST_DEPTH = 64
"""Levels of a schema."""
_OPTIONAL, _REPEATED = 1, 2
_BINARY = 6
"""The type of values of any length."""

_ENCRYPTED_FOOTER = {Footer.ENCRYPTION, Footer.SIGNATURE}
_ENCRYPTED_COLUMN = {Column.CRYPTO, Column.ENCRYPTED_META}
_MOVABLE_FOOTER = {*range(1, Footer.ENCRYPTION)}
_MOVABLE_COLUMN = {*range(Column.OFFSET, Column.CRYPTO)}
_MOVABLE_META = {*range(1, Meta.LAST + 1)} - {Meta.INDEX_PAGE}
"""Fields of chunks that may be moved. Not among them: the name of another file that holds the
bytes, index pages, what encryption needs, and what a later version of Parquet may bring, for
that might be a place in the file."""


@dataclass(frozen=True)
class Leaf:
    """A column as Parquet has them: the elements of the schema from below its root down to it.

    `order` says how its bounds are ordered; None: the file does not, so nobody believes them.
    """

    elements: tuple[Struct, ...]
    order: Struct | None

    @made_once
    def path(self) -> tuple[bytes, ...]:
        return tuple(element[Element.NAME] for element in self.elements)

    @property
    def name(self) -> str:
        """For messages."""
        return b".".join(self.path).decode(errors="replace")

    @made_once
    def is_repeated(self) -> bool:
        """Whether a row may have another number of values than one."""
        return any(element.get(Element.REPETITION) == _REPEATED for element in self.elements)

    @made_once
    def levels(self) -> tuple[int, int]:
        """The greatest repetition and definition level of its values."""
        told = [element.get(Element.REPETITION) for element in self.elements]
        repeated = told.count(_REPEATED)
        return repeated, repeated + told.count(_OPTIONAL)

    def stands_for(self, other: Leaf) -> bool:
        """Whether chunks of this leaf mean the same among those of the other's file."""
        return self.elements == other.elements and other.order in (None, self.order)


@dataclass(frozen=True, eq=False)
class Chunk:
    """The values of one leaf in one row group, as they are stored. `stored`: ColumnChunk."""

    parts: ParquetParts
    group: int
    leaf: Leaf
    rows: int
    stored: Struct
    offset: int
    size: int

    @property
    def path(self) -> str:
        """The path of its file, for errors."""
        return self.parts.path

    @property
    def meta(self) -> Struct:
        """ColumnMetaData."""
        meta: Struct = self.stored[Column.META]
        return meta

    @property
    def values(self) -> int:
        """How many there are, nulls and empty lists included."""
        return number(self.meta, Meta.VALUES, self.parts.path)

    @property
    def uncompressed(self) -> int:
        """Bytes of its pages before they were compressed, headers included."""
        return number(self.meta, Meta.UNCOMPRESSED, self.parts.path)

    @property
    def has_dictionary(self) -> bool:
        """Whether its footer says that a dictionary stands first."""
        return bool(number(self.meta, Meta.DICTIONARY, self.parts.path))

    @property
    def has_codec(self) -> bool:
        """Whether its footer says that pages are compressed."""
        return bool(number(self.meta, Meta.CODEC, self.parts.path))

    @made_once
    def page_index(self) -> list[Span]:
        """Where column index and offset index lie; the first is (0, 0) where the column tells no
        bounds. Empty where there is no offset index, without which the other is of no use.
        Raises CorruptError."""
        bounds, places = (
            self._index_span(field) for field in (Column.COLUMN_INDEX, Column.OFFSET_INDEX)
        )
        return [bounds, places] if places[1] else []

    def _index_span(self, field: int) -> Span:
        path = self.parts.path
        start, size = number(self.stored, field, path), number(self.stored, field + 1, path)
        if not start or not size:
            return 0, 0
        if not len(MAGIC) <= start <= self.parts.data_end - size:
            what, expected = "page index lies outside of its file", f"within {self.parts.data_end}"
            raise self.wrong(what, start, expected=expected, found=f"{size} bytes")
        return start, size

    def wrong(self, what: str, offset: int, **facts: object) -> CorruptError:
        """What is raised for damage of it, `offset` bytes from the start of the file."""
        return CorruptError(
            what,
            path=self.parts.path,
            column=self.leaf.name,
            row_group=self.group,
            offset=offset,
            **facts,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ParquetParts:
    """A file as parts for another one. `stored`: FileMetaData.

    `is_fresh`: written just now, by the pyarrow that is here. `bound`: why its chunks cannot be
    moved; None: they can.
    """

    path: str
    is_fresh: bool
    read: ReadRaw
    data_end: int
    stored: Struct
    leaves: tuple[Leaf, ...]
    groups: list[Struct]
    bound: str | None

    @classmethod
    def open(cls, store: Store, path: str, size_bytes: int) -> ParquetParts | None:
        """The parts of a stored file of this size: its footer is read. None where that is longer
        than is looked at.

        Raises CorruptError.
        """
        raw = footer_bytes(partial(store.read, path), path, size_bytes)
        return cls.of_footer(store, path, size_bytes, raw)

    @classmethod
    def of_footer(cls, store: Store, path: str, size_bytes: int, raw: bytes) -> ParquetParts | None:
        """The parts of a stored file whose footer was read (`footer_bytes`); None where that is
        longer than is looked at. Raises CorruptError."""
        if len(raw) > MOST_FOOTER_BYTES:
            return None
        return cls._of(path, False, _mapped(store, path, size_bytes), raw, size_bytes)

    @classmethod
    def of_bytes(cls, raw: bytes | pa.Buffer) -> ParquetParts:
        """The parts of a whole file in memory that was written just now."""
        read = partial(_sliced, memoryview(raw).cast("B"))  # Arrow's bytes are signed
        tail = footer_bytes(lambda spans: [bytes(one) for one in read(spans)], "", len(raw))
        return cls._of("", True, read, tail, len(raw))

    @classmethod
    def _of(cls, path: str, is_fresh: bool, read: ReadRaw, tail: bytes, size: int) -> ParquetParts:
        footer, _ = decode_struct(tail, path)
        groups = _structs(footer, Footer.GROUPS, path)
        leaves, bound = tuple(_leaves(footer, path)), _bound(footer, groups, path)
        return cls(path, is_fresh, read, size - len(tail), footer, leaves, groups, bound)

    @property
    def created_by(self) -> bytes:
        """The writer's name, by which readers know its faults."""
        return _text(self.stored, Footer.CREATED_BY, self.path)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """What the footer tells under keys."""
        words = _structs(self.stored, Footer.WORDS, self.path)
        return {
            _text(word, Word.KEY, self.path): _text(word, Word.VALUE, self.path) for word in words
        }

    def chunks(self, group: int) -> tuple[Chunk, ...]:
        """The chunks of a row group, one a leaf, in the order of `leaves`. Raises CorruptError."""
        stored = self.groups[group]
        rows = number(stored, Group.ROWS, self.path)
        columns = _structs(stored, Group.COLUMNS, self.path)
        if len(columns) != len(self.leaves):
            what = "row group has another number of columns than its file"
            facts = {"row_group": group, "expected": len(self.leaves), "found": len(columns)}
            raise CorruptError(what, path=self.path, **facts)
        pairs = zip(self.leaves, columns, strict=True)
        return tuple(self._chunk(group, leaf, rows, column) for leaf, column in pairs)

    def _chunk(self, group: int, leaf: Leaf, rows: int, stored: Struct) -> Chunk:
        meta = stored.get(Column.META)
        if not isinstance(meta, Struct):
            raise CorruptError("column chunk without metadata", path=self.path, row_group=group)
        starts = [number(meta, one, self.path) for one in (Meta.DATA_PAGE, Meta.DICTIONARY)]
        offset, size = min(filter(None, starts), default=0), number(meta, Meta.STORED, self.path)
        chunk = Chunk(self, group, leaf, rows, stored, offset, size)
        path, encodings = meta.get(Meta.PATH), meta.get(Meta.ENCODINGS)
        if not isinstance(path, Elements) or tuple(path) != leaf.path:
            raise chunk.wrong("column chunk of another column", offset, found=path)
        kind = leaf.elements[-1].get(Element.TYPE)
        if type(kind) is not int or meta.get(Meta.TYPE) != kind:
            what, found = "column chunk of another type", meta.get(Meta.TYPE)
            raise chunk.wrong(what, offset, expected=kind, found=found)
        if not sizes_fit(meta.get(Meta.SIZES), *leaf.levels, kind == _BINARY):
            raise chunk.wrong(WRONG_SIZES, offset)
        if not isinstance(encodings, Elements):
            raise chunk.wrong("column chunk without encodings", offset, found=encodings)
        if size and not len(MAGIC) <= offset <= self.data_end - size:
            what, expected = "column chunk lies outside of its file", f"within {self.data_end}"
            raise chunk.wrong(what, offset, expected=expected, found=f"{size} bytes")
        if chunk.values != rows and not leaf.is_repeated:
            what = "column chunk holds another number of values than its row group"
            raise chunk.wrong(what, offset, expected=rows, found=chunk.values)
        return chunk


def _mapped(store: Store, path: str, size_bytes: int) -> ReadRaw:
    """The bytes of a stored file, near by without a copy of them."""
    held = store.map(path, size_bytes) if size_bytes <= MOST_MAPPED_BYTES else None
    if held is None:
        return partial(store.read, path)
    view = held.data

    def read(spans: Sequence[Span]) -> list[memoryview]:
        store.count_mapped(sum(size for _, size in spans))
        return _sliced(view, spans)

    return read


def _sliced(view: memoryview, spans: Sequence[Span]) -> list[memoryview]:
    return [view[offset : offset + size] for offset, size in spans]


def _leaves(footer: Struct, path: str) -> Iterator[Leaf]:
    """The schema is stored depth first: each element tells how many there are right below it."""
    elements = _structs(footer, Footer.SCHEMA, path)
    orders = iter(_structs(footer, Footer.ORDERS, path))
    above: list[Struct] = []
    to_come: list[int] = []  # below each of them
    for place, element in enumerate(elements):
        above.append(element)
        to_come.append(number(element, Element.CHILDREN, path))
        if place and not to_come[-1]:
            yield Leaf(tuple(above[1:]), next(orders, None))
        while to_come and not to_come[-1]:
            del above[-1], to_come[-1]
            to_come[-1:] = [count - 1 for count in to_come[-1:]]
        is_whole = bool(to_come) == (place + 1 < len(elements))
        if not is_whole or len(above) > _MOST_DEPTH or not _text(element, Element.NAME, path):
            raise CorruptError("schema is damaged", path=path, element=place)
    if not elements:
        raise CorruptError("schema is damaged", path=path, found="no elements")


def _bound(footer: Struct, groups: list[Struct], path: str) -> str | None:
    columns = [column for group in groups for column in _structs(group, Group.COLUMNS, path)]
    metas = [meta for column in columns if isinstance(meta := column.get(Column.META), Struct)]
    of_columns: set[int] = set().union(*columns)
    if _ENCRYPTED_FOOTER & footer.keys() or _ENCRYPTED_COLUMN & of_columns:
        return "columns are encrypted"
    unknown = (footer.keys() - _MOVABLE_FOOTER) | (of_columns - _MOVABLE_COLUMN)
    unknown |= set().union(*metas) - _MOVABLE_META
    return (
        f"footer has fields that may be places in the file: {sorted(unknown)}" if unknown else None
    )


def _structs(fields: Struct, field: int, path: str) -> list[Struct]:
    """A field that is a list of structs; empty where there is none."""
    found = fields.get(field, [])
    if not isinstance(found, list) or not all(isinstance(one, Struct) for one in found):
        raise _damaged(path, field, "a list of structs", type(found).__name__)
    return found


def number(fields: Struct, field: int, path: str) -> int:
    """A field that is a count or a place; 0 where there is none. Raises CorruptError."""
    found = fields.get(field, 0)
    if type(found) is not int or found < 0:
        raise _damaged(path, field, "a number", found)
    return found


def _text(fields: Struct, field: int, path: str) -> bytes:
    found = fields.get(field, b"")
    if not isinstance(found, bytes):
        raise _damaged(path, field, "a text", found)
    return found


def _damaged(path: str, field: int, expected: str, found: object) -> CorruptError:
    return CorruptError("footer is damaged", path=path, field=field, expected=expected, found=found)
