"""Splicing: a new Parquet file of column chunks, most of them copied byte for byte.

pyarrow decodes and encodes whole columns. Where rows of a file change, most of its chunks do
not: those are copied as they are stored, and only the others come encoded anew, out of small
files in memory. Which row group has which chunks is the caller's plan.

Any reader may read the result, so what its readers rely on is seen to:

    places         offsets of pages move with their chunk
    page index     is copied behind the row groups, and its locations of pages moved
    bloom filters  of Parquet, which need not be, are left out; and so is by which columns
                   rows are sorted, as other chunks may have come beside them
    bounds         a chunk keeps those that it has. Which ones readers believe depends on the
                   writer's name, so files of another writer are refused
    definition     levels mean what the schema says: no two schemas are mixed, not even
                   `required` and `optional`; nested columns come whole out of one row group
    damage         checksums are copied, too, so what is copied is checked (`known_pages.py`)

Held in memory are some READ_BYTES, or one chunk where that is larger, and page indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import IO

import pyarrow.parquet as pq

from metatable.storage.errors import UsageError
from metatable.storage.parquet.fields import Column, Footer, Group, Meta, Word
from metatable.storage.parquet.footer import MAGIC, understood, whole_footer
from metatable.storage.parquet.known_pages import checked_chunks
from metatable.storage.parquet.parts import Chunk, ParquetParts, Raw, Span, number
from metatable.storage.parquet.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    Elements,
    Struct,
    encode_struct,
)

__all__ = ["obstacle", "read_chunks", "replaced", "splice"]

READ_BYTES = 8 << 20
"""Chunks are read together up to this: by fewer requests, and soon written and forgotten."""

_OFFSET_INDEX = Column.OFFSET_INDEX, Column.OFFSET_INDEX_SIZE
_COLUMN_INDEX = Column.COLUMN_INDEX, Column.COLUMN_INDEX_SIZE


def obstacle(like: ParquetParts, other: ParquetParts) -> str | None:
    """Why chunks of the other file cannot stand in one with the schema of `like`; None: they can.

    The other one may have some of the columns only. What has an obstacle goes the ordinary
    way: decoded, and encoded anew.
    """
    if bound := like.bound or other.bound:
        return bound
    if not other.is_fresh and other.created_by != like.created_by:
        return f"another writer: {other.created_by!r} beside {like.created_by!r}"
    if other.leaves is like.leaves:  # as of a chunk of it with other pages
        return None
    ours = {leaf.path: leaf for leaf in like.leaves}
    for leaf in other.leaves:
        if leaf.path not in ours or not leaf.stands_for(ours[leaf.path]):
            return f"another schema: column {leaf.name}"
    return None


def replaced(chunks: Sequence[Chunk], by: Iterable[Chunk]) -> list[Chunk]:
    """The chunks of a row group, but for the columns of which there are others."""
    others = {chunk.leaf.path: chunk for chunk in by}
    return [others.get(chunk.leaf.path, chunk) for chunk in chunks]


def splice(
    sink: IO[bytes],
    like: ParquetParts,
    groups: Iterable[Sequence[Chunk]],
    metadata: Mapping[bytes, bytes],
) -> pq.FileMetaData:
    """Write a file with the schema of `like`: of each row group the chunks, in the schema's order.

    `groups` is asked for one after the other, as chunks are written. `metadata` is all that the
    footer tells under keys. Returns the footer.

    Raises CorruptError for damage in what is copied, and UsageError for chunks that cannot
    stand together; what is in the sink then is no file.
    """
    spliced = _Spliced(sink, like)
    for batch in _batches(_checked(like, groups)):
        spliced.add(batch, list(_read(batch)))
    return spliced.finish(metadata)


class _Spliced:
    """The file that is written: chunk by chunk, then page indexes and the footer."""

    def __init__(self, sink: IO[bytes], like: ParquetParts) -> None:
        self._sink = sink
        self._like = like
        self._at = 0
        self._rows = 0
        self._groups = Elements(STRUCT)
        self._group: list[tuple[Chunk, Struct]] = []
        self._page_indexes: list[tuple[Struct, list[bytes]]] = []
        self._write(MAGIC)

    def add(self, chunks: Sequence[Chunk], parts: Sequence[list[Raw]]) -> None:
        """The next chunks: of each its bytes and its page index, column index and offset index, if
        it has one."""
        raws = [one[0] for one in parts]
        starts = accumulate(map(len, raws[:-1]), initial=self._at)
        shifts = [start - chunk.offset for start, chunk in zip(starts, chunks, strict=True)]
        offsets = checked_chunks(
            chunks, raws, [one[2] if one[1:] else b"" for one in parts], shifts
        )
        for chunk, one, places, shift in zip(chunks, parts, offsets, shifts, strict=True):
            column = _moved(chunk, shift)
            if places:  # a view would hold all that it was read with until the end
                self._page_indexes.append((column, [bytes(one[1]), places]))
            self._write(one[0])
            self._group.append((chunk, column))
            if len(self._group) == len(self._like.leaves):
                self._end_group()

    def _end_group(self) -> None:
        chunks = [chunk for chunk, _ in self._group]
        stored, rows = sum(chunk.size for chunk in chunks), chunks[0].rows
        group = Struct(
            (Group.COLUMNS, LIST, Elements(STRUCT, [column for _, column in self._group])),
            (Group.UNCOMPRESSED, I64, sum(chunk.uncompressed for chunk in chunks)),
            (Group.ROWS, I64, rows),
            (Group.OFFSET, I64, self._at - stored),
            (Group.STORED, I64, stored),
        )
        self._groups.append(group)
        self._rows += rows
        self._group = []

    def finish(self, metadata: Mapping[bytes, bytes]) -> pq.FileMetaData:
        for place, field in enumerate((Column.COLUMN_INDEX, Column.OFFSET_INDEX)):
            for column, indexes in self._page_indexes:
                if raw := indexes[place]:
                    column[field], column[field + 1] = self._at, len(raw)
                    self._write(raw)
        words = [
            Struct((Word.KEY, BINARY, key), (Word.VALUE, BINARY, value))
            for key, value in metadata.items()
        ]
        footer = self._like.stored.changed(
            (Footer.ROWS, I64, self._rows),
            (Footer.GROUPS, LIST, self._groups),
            (Footer.WORDS, LIST, Elements(STRUCT, words) if words else None),
        )
        tail = whole_footer(encode_struct(footer))
        self._write(tail)
        return understood(tail, self._like.path)

    def _write(self, raw: Raw) -> None:
        self._sink.write(raw)
        self._at += len(raw)


def _checked(like: ParquetParts, groups: Iterable[Sequence[Chunk]]) -> Iterator[Chunk]:
    """The chunks of all row groups. Raises UsageError."""
    known: set[ParquetParts] = set()
    for group in groups:
        for parts in {chunk.parts for chunk in group} - known:
            if reason := obstacle(like, parts):
                raise UsageError("cannot be spliced", path=parts.path, found=reason)
        known = {chunk.parts for chunk in group}  # not those before: they are in memory
        if not group or [chunk.leaf.path for chunk in group] != [one.path for one in like.leaves]:
            raise UsageError("a row group has one chunk of each column, in the schema's order")
        if len({chunk.rows for chunk in group}) > 1:
            found = {chunk.leaf.name: chunk.rows for chunk in group}
            raise UsageError("chunks of a row group have as many rows", found=found)
        sources = {(chunk.leaf.path[0], chunk.parts, chunk.group) for chunk in group}
        if len(sources) > len({name for name, _, _ in sources}):
            raise UsageError("a nested column comes whole, out of one row group")
        yield from group


def read_chunks(chunks: Iterable[Chunk]) -> Iterator[list[Raw]]:
    """For each chunk its bytes and, if it has a page index, column index and offset index: some
    READ_BYTES of them at a time."""
    return (one for batch in _batches(chunks) for one in _read(batch))


def _batches(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    held = 0
    for chunk in chunks:
        if batch and held + chunk.size > READ_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(chunk)
        held += chunk.size
    if batch:
        yield batch


def _read(batch: Sequence[Chunk]) -> Iterator[list[Raw]]:
    """`read_chunks` of so many: what lies together is read by one request."""
    wanted: dict[ParquetParts, list[Span]] = {}
    for chunk in batch:
        wanted.setdefault(chunk.parts, []).extend(_spans(chunk))
    found = {parts: iter(parts.read(spans)) for parts, spans in wanted.items()}
    return ([next(found[chunk.parts]) for _ in _spans(chunk)] for chunk in batch)


def _spans(chunk: Chunk) -> list[Span]:
    return [(chunk.offset, chunk.size), *chunk.page_index]


def _moved(chunk: Chunk, shift: int) -> Struct:
    """ColumnChunk, so many bytes further on; where its page index lies is told at the end."""
    data, dictionary = (chunk.meta.get(field) for field in (Meta.DATA_PAGE, Meta.DICTIONARY))
    meta = chunk.meta.changed(
        (Meta.DATA_PAGE, I64, data + shift if data else 0),
        (Meta.DICTIONARY, I64, dictionary + shift if dictionary else None),
        *((field, I64, None) for field in (Meta.BLOOM, Meta.BLOOM_SIZE)),
    )
    own = number(chunk.stored, Column.OFFSET, chunk.parts.path)  # 0, a place in it, or elsewhere
    is_within = chunk.offset <= own < chunk.offset + chunk.size
    bounds, places = chunk.page_index or [(0, 0), (0, 0)]
    gone = [*(() if places[1] else _OFFSET_INDEX), *(() if bounds[1] else _COLUMN_INDEX)]
    return chunk.stored.changed(
        (Column.OFFSET, I64, own + shift if is_within else 0),
        (Column.META, STRUCT, meta),
        *((field, I64, None) for field in gone),
    )
