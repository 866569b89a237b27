"""Page values: single values out of a page, without decoding its other ones.

    levels    of a leaf that may be null: 4 bytes (little-endian) how many follow, then runs: which
              values there are
    PLAIN     numbers of one width; texts, each behind 4 bytes that tell its size
    RLE_DICTIONARY    a byte, the width of an index, then runs of indexes into the dictionary's page
    run       a varint n; n even: n / 2 times the value that follows, in whole bytes; n odd: n // 2
              groups of eight values, packed by bits

A page of 2,048 rows is decompressed for one of them; decoding the other 2,047 costs as much again.
Numbers lie where their place says, and so do texts of one size, which those of most keys, hashes
and codes are. What lies otherwise (texts of several sizes, other encodings, codecs and types) is
not answered (None), and neither is anything odd: pyarrow decodes it then, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from metatable.storage.parquet.fields import Element
from metatable.storage.parquet.parts import Leaf
from metatable.storage.parquet.varints import read_varint, write_varint

__all__ = ["Dictionary", "ValueForm", "array_of", "places_of", "unpacked", "values_at"]

_OPTIONAL, _REQUIRED = 1, 0
_TEXT = 6
_WIDTHS = {1: 4, 2: 8, 4: 4, 5: 8}
"""Bytes of Parquet's types of numbers."""

_PLAIN, _OLD_DICTIONARY, _DICTIONARY = 0, 2, 8

_NONE, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_NAMES = {_SNAPPY: "snappy", _ZSTD: "zstd"}
_GZIP_MEMBER = 31
_DAMAGED = cast("type[Exception]", isal_zlib.error)
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")

MOST_BYTES = 16 << 20
"""Of a page that is decompressed here: its header's word is believed for the allocation."""

_WALKED_BYTES = 64 << 10
"""Of a dictionary of texts of several sizes, which are walked through one by one."""

_MOST_WIDTH = 32
"""Bits of an index."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How values of a leaf are stored: `width` bytes each, or 0: texts. `type`: what they are."""

    is_optional: bool
    width: int
    type: pa.DataType

    @classmethod
    def of(cls, leaf: Leaf, type_: pa.DataType) -> ValueForm | None:
        """None where values of this type are not the bytes that are stored."""
        element = leaf.elements[-1]
        kind, repetition = element.get(Element.TYPE, -1), element.get(Element.REPETITION)
        if len(leaf.elements) > 1 or repetition not in (_OPTIONAL, _REQUIRED):
            return None
        is_text = kind == _TEXT and type_ in (pa.string(), pa.binary())
        if not is_text and not (_is_number(type_) and type_.bit_width == 8 * _WIDTHS.get(kind, 0)):
            return None
        return cls(repetition == _OPTIONAL, 0 if is_text else _WIDTHS[kind], type_)


def _is_number(type_: pa.DataType) -> bool:
    of = pa.types
    return bool(
        of.is_integer(type_)
        or of.is_floating(type_)
        or of.is_timestamp(type_)
        or of.is_date32(type_)
        or of.is_time(type_)
    )


def unpacked(codec: int, stored: memoryview, size: int) -> bytes | None:
    """A page behind its header, decompressed, which is of `size` bytes; None where it is another
    codec's, or does not say that it is."""
    if codec == _NONE:
        return bytes(stored) if len(stored) == size else None
    if codec == _GZIP and size <= MOST_BYTES:
        return _inflated(stored, size)
    told = {_SNAPPY: _snappy_size, _ZSTD: _zstd_size}.get(codec)
    if told is None or not 0 < size <= MOST_BYTES or told(bytes(stored[:16])) != size:
        return None
    try:
        raw: bytes = pa.Codec(_NAMES[codec]).decompress(stored, size, asbytes=True)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return raw


def _inflated(stored: memoryview, size: int) -> bytes | None:
    try:
        raw: bytes = isal_zlib.decompressobj(_GZIP_MEMBER).decompress(stored, size + 1)
    except _DAMAGED:
        return None
    return raw if len(raw) == size else None


def _zstd_size(head: bytes) -> int:
    """What a frame says that it holds; without such a word less would leave memory as it was."""
    if head[:4] != _ZSTD_MAGIC or len(head) < 5 or head[4] & 3:
        return -1
    flag, is_single = head[4] >> 6, head[4] >> 5 & 1
    width = (is_single, 2, 4, 8)[flag]
    at = 6 - is_single
    told = int.from_bytes(head[at : at + width], "little") + (256 if flag == 1 else 0)
    return told if width and at + width <= len(head) else -1


def _snappy_size(head: bytes) -> int:
    return read_varint(head, 0)[0]


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The values of a dictionary's page: of numbers and texts of one size where each lies follows
    from its number; of others `borders` tell."""

    raw: bytes
    count: int
    skip: int
    size: int
    borders: tuple[int, ...] = ()

    @classmethod
    def of(cls, form: ValueForm, raw: bytes, count: int) -> Dictionary | None:
        """None where it is not so many values, or too long to be walked through."""
        if form.width:
            return cls(raw, count, 0, form.width) if len(raw) == count * form.width else None
        size = _size_of_all(raw, 0, count)
        if size is not None:
            return cls(raw, count, 4, size)
        if len(raw) > _WALKED_BYTES:
            return None
        borders, at = [0], 0
        while at < len(raw):
            at += 4 + int.from_bytes(raw[at : at + 4], "little")
            borders.append(at)
        is_whole = at == len(raw) and len(borders) == count + 1
        return cls(raw, count, 4, 0, tuple(borders)) if is_whole else None

    def value(self, number: int) -> bytes | None:
        if not 0 <= number < self.count:
            return None
        if self.borders:
            return self.raw[self.borders[number] + 4 : self.borders[number + 1]]
        at = number * (self.skip + self.size) + self.skip
        return self.raw[at : at + self.size]


@dataclass(frozen=True, slots=True)
class _Levels:
    """Which of a page's values there are, a bit each (`mask`; None: all), and where they begin."""

    start: int
    present: int
    mask: int | None

    @classmethod
    def of(cls, form: ValueForm, raw: bytes, count: int) -> _Levels | None:
        if not form.is_optional:
            return cls(0, count, None)
        start = 4 + int.from_bytes(raw[:4], "little")
        if start > len(raw):
            return None
        if raw[4:start] == _all_there(count):
            return cls(start, count, None)
        mask = _mask(raw[4:start], count)
        return None if mask is None else cls(start, mask.bit_count(), mask)

    def place(self, position: int) -> int | None:
        """Among the values that there are; None: it is null."""
        if self.mask is None:
            return position
        if not self.mask >> position & 1:
            return None
        return (self.mask & (1 << position) - 1).bit_count()


def _all_there(count: int) -> bytes:
    """One run of so many ones."""
    made = bytearray()
    write_varint(made, count << 1)
    return bytes(made) + b"\x01"


def _mask(runs: bytes, count: int) -> int | None:
    mask = at = done = 0
    while done < count:
        head, at = read_varint(runs, at)
        if head < 2:  # a run of none, or the end
            return None
        width = head >> 1 if head & 1 else 1
        value = int.from_bytes(runs[at : at + width], "little")
        if at + width > len(runs) or (not head & 1 and value > 1):
            return None
        rows = min(width * 8 if head & 1 else head >> 1, count - done)
        ones = (1 << rows) - 1
        mask |= (value & ones if head & 1 else ones * value) << done
        done, at = done + rows, at + width
    return mask


def _index(raw: bytes, at: int, width: int, position: int) -> int:
    """The value of this position in runs that begin there; -1 where they end before it."""
    size = (width + 7) // 8
    while at < len(raw):
        head, at = read_varint(raw, at)
        if head < 2:
            return -1
        rows, behind = head >> 1, at + size
        if head & 1:
            rows, behind = rows * 8, at + rows * width
        if position < rows:
            if not head & 1:
                return int.from_bytes(raw[at:behind], "little") if behind <= len(raw) else -1
            bit = position * width
            first, last = at + bit // 8, at + (bit + width + 7) // 8
            word = int.from_bytes(raw[first:last], "little") >> bit % 8
            return word & (1 << width) - 1 if last <= len(raw) else -1
        position, at = position - rows, behind
    return -1


def _size_of_all(raw: bytes, start: int, count: int) -> int | None:
    """The size of so many texts, which fill the page from there on; None where they differ."""
    if not count or start + 4 * count > len(raw):
        return None
    size = int.from_bytes(raw[start : start + 4], "little")
    if start + count * (4 + size) != len(raw):
        return None
    told = np.ndarray((count,), "<u4", raw, start, (4 + size,))
    return size if bool((told == size).all()) else None


def values_at(
    form: ValueForm,
    raw: bytes,
    encoding: int,
    count: int,
    positions: Sequence[int],
    dictionary: Dictionary | None,
) -> list[bytes | None] | None:
    """The stored bytes of these values of a decompressed page of `count`; None for a null."""
    levels = _Levels.of(form, raw, count)
    if levels is None:
        return None
    places = [levels.place(position) for position in positions]
    if encoding == _PLAIN:
        return _plain(form, raw, levels, places)
    if encoding in (_DICTIONARY, _OLD_DICTIONARY) and dictionary is not None:
        return _looked_up(raw, levels, places, dictionary)
    return None


def _plain(
    form: ValueForm, raw: bytes, levels: _Levels, places: Sequence[int | None]
) -> list[bytes | None] | None:
    start, size, skip = levels.start, form.width, 0
    if not size:
        told = _size_of_all(raw, start, levels.present)
        if told is None:
            return [None] * len(places) if start == len(raw) and not levels.present else None
        size, skip = told, 4
    if start + levels.present * (size + skip) != len(raw):
        return None
    begins = [None if one is None else start + one * (size + skip) + skip for one in places]
    return [None if at is None else raw[at : at + size] for at in begins]


def _looked_up(
    raw: bytes, levels: _Levels, places: Sequence[int | None], dictionary: Dictionary
) -> list[bytes | None] | None:
    if levels.start >= len(raw) or raw[levels.start] > _MOST_WIDTH:
        return None
    width, found = raw[levels.start], list[bytes | None]()
    for place in places:
        if place is None:
            found.append(None)
            continue
        # of no bits: there is one value
        number = _index(raw, levels.start + 1, width, place) if width else 0
        value = dictionary.value(number)
        if value is None:
            return None
        found.append(value)
    return found


def places_of(
    form: ValueForm, raw: bytes, encoding: int, count: int, texts: Sequence[bytes]
) -> list[tuple[int, bytes]] | None:
    """Where these texts stand in a decompressed page of `count` texts, of which none is null, and
    which are of one size: (position, text), ascending."""
    levels = _Levels.of(form, raw, count)
    if form.width or encoding != _PLAIN or levels is None or levels.present != count:
        return None
    size = _size_of_all(raw, levels.start, count)
    if size is None:
        return None
    found = []
    for text in texts:
        wanted = size.to_bytes(4, "little") + text
        at = raw.find(wanted, levels.start) if len(text) == size else -1
        while at >= 0:
            place, within = divmod(at - levels.start, 4 + size)
            if not within:
                found.append((place, text))
            at = raw.find(wanted, at + 1)
    return sorted(found)


def array_of(form: ValueForm, values: Sequence[bytes | None]) -> pa.Array:
    """Stored bytes of values as an array of the form's type."""
    is_there = np.array([one is not None for one in values], np.bool_)
    bits = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    if form.width:
        none = bytes(form.width)
        body = pa.py_buffer(b"".join([none if one is None else one for one in values]))
        return pa.Array.from_buffers(form.type, len(values), [bits, body])
    sizes = [0 if one is None else len(one) for one in values]
    ends = pa.py_buffer(np.cumsum([0, *sizes], dtype=np.int32))
    body = pa.py_buffer(b"".join([one for one in values if one is not None]))
    return pa.Array.from_buffers(form.type, len(values), [bits, ends, body])
