"""Pages: what a column chunk is made of, a header in Thrift and the stored values behind it.

    field  of the header
        1  i32  kind: 0 data, 1 index, 2 dictionary, 3 data of version 2
        2  i32  bytes behind the header before they were compressed
        3  i32  bytes behind the header
        4  i32  CRC32 of those bytes; most writers set it
     5, 8       of data pages, version 1 and 2: number of values, encoding

Headers themselves have no checksum. So they are held against what the footer tells: they fill
the chunk to its last byte, begin where it says, add up to as many values and bytes, and are
encoded in one of its ways; a dictionary stands first or nowhere.
"""

from __future__ import annotations

from typing import Protocol

from isal import isal_zlib

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Meta, Page
from metatable.storage.parquet.parts import Chunk, Raw, Span, number
from metatable.storage.parquet.thrift import Struct, decode_struct

__all__ = ["Place", "check_values", "checked_page", "checked_pages"]

_DATA_PAGES = (
    (Page.DATA, Page.DATA_HEADER, Page.ENCODING),
    (Page.DATA_V2, Page.DATA_V2_HEADER, Page.V2_ENCODING),
)
"""Kind, field of the own header, and in that the field of the encoding."""

_HEADERS = {kind: (field, encoding) for kind, field, encoding in _DATA_PAGES} | {
    Page.DICTIONARY: (Page.DICTIONARY_HEADER, Page.ENCODING)
}


class Place(Protocol):
    """Where pages are from: the file, the offset of their bytes in it, and what is raised."""

    @property
    def path(self) -> str: ...
    @property
    def offset(self) -> int: ...
    def wrong(self, what: str, offset: int, **facts: object) -> CorruptError: ...


def checked_page(
    place: Place, raw: bytes, most_bytes: int, encodings: int
) -> tuple[int, int, int | None]:
    """(kind, values, rows if it tells them) of a single page, which is all of `raw`, comes to
    `most_bytes` at most when it is decompressed, and is encoded in one of the ways of which
    `encodings` has the bit. Raises CorruptError."""
    header, body = _header(place, raw, 0)
    if _end(place, header, 0, body, len(raw)) != len(raw):
        raise place.wrong("page ends before its place does", place.offset)
    _check_sum(place, header, 0, memoryview(raw)[body:])
    kind, plain = header.get(Page.KIND, -1), header.get(Page.UNCOMPRESSED, 0)
    if plain > most_bytes:
        what = "page is larger than its column chunk"
        raise place.wrong(what, place.offset, expected=f"at most {most_bytes}", found=plain)
    field, encoding = _HEADERS.get(kind, (-1, -1))
    own = header.get(field)
    own = own if isinstance(own, Struct) else Struct()
    values, stored_as, rows = (own.get(one, -1) for one in (Page.VALUES, encoding, Page.ROWS))
    is_known = type(stored_as) is int and 0 <= stored_as < 32 and encodings >> stored_as & 1
    if type(values) is not int or values < 0 or not is_known:
        what, found = "header of a page is damaged", (kind, values, stored_as)
        raise place.wrong(what, place.offset, expected="its values and encoding", found=found)
    return kind, values, rows if kind == Page.DATA_V2 else None


def checked_pages(chunk: Chunk, raw: Raw) -> list[Span]:
    """Where the data pages of a chunk lie in its file, headers included; `raw` are its bytes.

    Raises CorruptError: of damage, naming column, row group and offset.
    """
    view = memoryview(raw)
    spans: list[Span] = []
    values = uncompressed = start = 0
    has_dictionary = False
    while start < len(raw):
        header, body = _header(chunk, raw, start)
        end = _end(chunk, header, start, body, len(raw))
        _check_sum(chunk, header, start, view[body:end])
        if header.get(Page.KIND) == Page.DICTIONARY:
            if start:
                raise chunk.wrong("dictionary behind other pages", chunk.offset + start)
            has_dictionary = True
        for kind, field, encoding in _DATA_PAGES:
            if header.get(Page.KIND) == kind:
                values += _values(chunk, header.get(field), encoding, start)
                spans.append((chunk.offset + start, end - start))
        uncompressed += body - start + header.get(Page.UNCOMPRESSED, 0)
        start = end
    _check_places(chunk, has_dictionary, spans)
    if (values, uncompressed) != (chunk.values, chunk.uncompressed):
        what, expected = "pages add up to other sums", (chunk.values, chunk.uncompressed)
        raise chunk.wrong(what, chunk.offset, expected=expected, found=(values, uncompressed))
    return spans


def check_values(chunk: Chunk, raw: Raw) -> None:
    """Raise CorruptError unless its data pages say to have as many values as its footer says that
    there are: whoever reads them goes by both. `raw` as of `checked_pages`."""
    values = start = 0
    while start < len(raw):
        header, body = _header(chunk, raw, start)
        for kind, field, _ in _DATA_PAGES:
            own = header.get(field)
            if header.get(Page.KIND) == kind and isinstance(own, Struct):
                values += number(own, Page.VALUES, chunk.path)
        start = _end(chunk, header, start, body, len(raw))
    if values != chunk.values:
        what = "pages say to have another number of values than their footer"
        raise chunk.wrong(what, chunk.offset, expected=chunk.values, found=values)


def _header(chunk: Place, raw: Raw, start: int) -> tuple[Struct, int]:
    try:
        return decode_struct(raw, chunk.path, start)
    except CorruptError as error:
        what = "page header is damaged"
        raise chunk.wrong(what, chunk.offset + start, found=str(error)) from error


def _end(chunk: Place, header: Struct, start: int, body: int, limit: int) -> int:
    size, uncompressed = header.get(Page.STORED), header.get(Page.UNCOMPRESSED, 0)
    if type(size) is not int or type(uncompressed) is not int or not 0 <= size <= limit - body:
        what, expected = "page does not end in its column chunk", f"at most {limit - body} bytes"
        raise chunk.wrong(what, chunk.offset + start, expected=expected, found=size)
    return body + size


def _check_sum(chunk: Place, header: Struct, start: int, body: memoryview) -> None:
    stored = header.get(Page.CRC)
    if stored is None:
        return
    found = isal_zlib.crc32(body)
    expected = stored & 0xFFFFFFFF if type(stored) is int else -1
    if expected != found:
        what = "page checksum mismatch"
        raise chunk.wrong(what, chunk.offset + start, expected=hex(expected), found=hex(found))


def _values(chunk: Chunk, header: object, encoding: int, start: int) -> int:
    own = header if isinstance(header, Struct) else Struct()
    values, stored_as = own.get(Page.VALUES), own.get(encoding)
    known = chunk.meta[Meta.ENCODINGS]
    if type(values) is not int or values < 0 or stored_as not in known:
        what, found = "header of a data page is damaged", (values, stored_as)
        expected = f"values, and an encoding of {known}"
        raise chunk.wrong(what, chunk.offset + start, expected=expected, found=found)
    return values


def _check_places(chunk: Chunk, has_dictionary: bool, spans: list[Span]) -> None:
    """Old writers count the dictionary among the data pages, and do not tell where it is."""
    data, dictionary = (chunk.meta.get(field) for field in (Meta.DATA_PAGE, Meta.DICTIONARY))
    first = spans[0][0] if spans else data
    is_told = not dictionary or (has_dictionary and dictionary == chunk.offset)
    if not is_told or data not in (0, chunk.offset, first):
        what, expected = "pages lie elsewhere than their footer says", (data, dictionary)
        raise chunk.wrong(what, chunk.offset, expected=expected, found=first)
