"""Known footers: files of a table tell the same things in the same form, with other numbers.

A footer is some thousand fields, which take a millisecond to decode one by one; page places need
ten numbers of each column chunk. So of the first file that is decoded its form is kept, and others
of that form are read by patterns, a chunk at a time, and their numbers decoded together.

    same bytes    version and schema; path of each chunk; what stands behind the footer's words
    numbers       rows; of a chunk its codec, values, bytes, places
    passed over   statistics, bounds of which have any length; sizes; the words' values

Nor is all of it read: a filter under a word, which may be most of the file's footer, lies between
the row groups and the end. Whatever has another form, or numbers that `parts.py` would refuse, is
not understood: it is decoded the plain way, which finds the same, or says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np

from metatable.storage.arrays import Bools, Int64s, UInt8s
from metatable.storage.parquet.fields import Element, Footer, Meta
from metatable.storage.parquet.footer import END_BYTES, MAGIC
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    LIST,
    STRUCT,
    Elements,
    Struct,
    encode_struct,
)
from metatable.storage.parquet.varints import read_varint, zigzags

__all__ = [
    "BOUNDS_AT",
    "BOUNDS_SIZE",
    "CODEC",
    "PLACES_AT",
    "PLACES_SIZE",
    "STORED",
    "UNCOMPRESSED",
    "FooterForm",
    "FooterNumbers",
    "starts_of",
]

_V = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_ENCODING = rb"[\x00-\x7f]"
_BEGIN = re.compile(
    rb"\x26%b\x1c\x15(%b)\x19(\x15%b|\x25%b{2}|\x35%b{3}|\x45%b{4})" % (_V, _V, *[_ENCODING] * 4)
)
"""What a chunk begins with: its offset, the type, its encodings. Its path follows."""

_NUMBERS = re.compile(
    rb"\x15(%b)\x16(%b)\x16(%b)\x16(%b)\x26(%b)(?:\x26(%b)(\x1c?)|(\x3c?))" % ((_V,) * 6)
)
"""Codec, values, bytes before and after compression, data page, dictionary. Statistics follow where
there are any."""

_WAY = rb"\x15%b\x15%b\x15%b\x00" % ((_V,) * 3)
_WAYS = rb"(?:\x1c%b|\x2c(?:%b){2}|\x3c(?:%b){3})" % ((_WAY,) * 3)
_LEVELS = b"(?:%b)" % b"|".join(b"\\x%02x(?:%b){%d}" % (n << 4 | 6, _V, n) for n in range(15))
_SIZES = rb"(?:\x16%b)?(?:[\x19\x29]%b)?(?:[\x19\x29\x39]%b)?\x00" % (_V, _LEVELS, _LEVELS)
_INDEXES = rb"\x16(%b)\x15(%b)(?:\x16(%b)\x15(%b))?" % ((_V,) * 4)


def _end(last: int) -> re.Pattern[bytes]:
    """What is behind a field of this number: encodings of pages and sizes of levels, each of which
    may be missing; then where offset index and column index lie."""
    ways, sizes = (one - last << 4 for one in (Meta.WAYS, Meta.SIZES))
    told = rb"(?:\x%02x%b)?(?:[\x3c\x%02x]%b)?\x00" % (ways | LIST, _WAYS, sizes | STRUCT, _SIZES)
    return re.compile(told + _INDEXES + b"\\x00")


_BEHIND_DATA_PAGE = _end(Meta.DATA_PAGE).match
_BEHIND_DICTIONARY = _end(Meta.DICTIONARY).match
_BEHIND_STATISTICS = _end(Meta.STATISTICS).match

_GROUP_END = re.compile(rb"\x16%b\x16(%b)(?:\x26%b(?:\x16%b(?:\x14%b)?)?)?\x00" % ((_V,) * 5))
"""Bytes, rows; place, bytes, number."""

_ROWS = re.compile(rb"\x16%b\x19" % _V)
_NEXT_TEXT, _NEXT_LIST, _STOP = 0x18, 0x19, 0x00
_LONG = 15

(CODEC, VALUES, UNCOMPRESSED, STORED, DATA, DICTIONARY) = range(6)
PLACES_AT, PLACES_SIZE, BOUNDS_AT, BOUNDS_SIZE = range(6, 10)

_ENCODINGS = 32
"""How many encodings are told apart."""


@dataclass(frozen=True, slots=True, eq=False)
class FooterNumbers:
    """The numbers that a footer tells."""

    rows: Int64s
    """Rows of each row group."""
    chunks: Int64s
    """(row group, leaf, number): those from CODEC to BOUNDS_SIZE, 0 where there is none."""
    encodings: Int64s
    """(row group, leaf): a bit for each encoding of the chunk."""
    words: frozenset[bytes]
    """The keys of the footer's words."""


@dataclass(frozen=True, slots=True, eq=False)
class FooterForm:
    """What the footers of alike files begin with, what their words are followed by, and the types
    and paths of their chunks. `size_bytes`: of all before the words, in the file that it was
    learned from."""

    before: bytes
    behind: bytes
    paths: tuple[tuple[bytes, bytes], ...]
    is_repeated: Bools
    size_bytes: int

    @classmethod
    def of(cls, parts: ParquetParts) -> FooterForm | None:
        """The form of this file's footer; None where it has no words, or no row groups."""
        stored = parts.stored
        if not parts.groups or Footer.WORDS not in stored:
            return None
        groups = encode_struct(Struct((Footer.GROUPS, LIST, stored[Footer.GROUPS])))
        before = _encoded(stored, 0, (Footer.VERSION, Footer.SCHEMA))
        paths = [
            (
                _encoded(
                    Struct((Meta.TYPE, I32, leaf.elements[-1][Element.TYPE])), 0, (Meta.TYPE,)
                )[1:],
                _encoded(Struct((Meta.PATH, LIST, Elements(BINARY, leaf.path))), 2, (Meta.PATH,)),
            )
            for leaf in parts.leaves
        ]
        behind = _encoded(stored, Footer.WORDS, (Footer.CREATED_BY, Footer.ORDERS))
        is_repeated = np.array([leaf.is_repeated for leaf in parts.leaves])
        size = len(before) + len(groups)
        return cls(before, behind + bytes([_STOP]), tuple(paths), is_repeated, size)

    def numbers(
        self, head: bytes, tail: bytes, tail_at: int, data_end: int
    ) -> FooterNumbers | None:
        """The numbers of a footer. `head`: its first bytes; `tail`: its last ones, up to the end of
        the file, which begin `tail_at` bytes behind the first one, or nothing, where `head` is all.

        None where it is not understood, or its numbers are not those of a file with `data_end`
        bytes before it.
        """
        end = -END_BYTES
        head, tail = (head, tail[:end]) if tail else (head[:end], b"")
        try:
            return self._numbers(head, tail, tail_at, data_end)
        except (IndexError, _OtherFormError):
            return None

    def _numbers(
        self, head: bytes, tail: bytes, tail_at: int, data_end: int
    ) -> FooterNumbers | None:
        if not head.startswith(self.before):
            return None
        at = _matched(_ROWS, head, len(self.before)).end() - 1
        count, at = _list(head, at, STRUCT)
        rows: list[tuple[int, int]] = []
        spans: list[tuple[tuple[int, int], ...]] = []
        encodings: list[int] = []
        for _ in range(count):
            at = self._group(head, at, spans, encodings)
            end = _matched(_GROUP_END, head, at)
            rows.append(end.regs[1])
            at = end.end()
        words = self._words(head, at, tail, tail_at)
        body = np.frombuffer(head, np.uint8)
        found = _decoded(body, chain.from_iterable(spans)).reshape(count, len(self.paths), -1)
        told = _decoded(body, rows)
        ways = np.array(encodings, np.int64).reshape(count, -1)
        if not self._are_sound(told, found, data_end):
            return None
        return FooterNumbers(told, found, ways, words)

    def _group(
        self, head: bytes, at: int, spans: list[tuple[tuple[int, int], ...]], encodings: list[int]
    ) -> int:
        """Where the chunks of a row group end, whose numbers are added."""
        count, at = _list(head, at, STRUCT)
        if count != len(self.paths):
            raise _OtherFormError
        for kind, path in self.paths:
            begin = _BEGIN.match(head, at)
            if begin is None or begin[1] != kind or not head.startswith(path, begin.end()):
                raise _OtherFormError
            numbers = _NUMBERS.match(head, begin.end() + len(path))
            if numbers is None:
                raise _OtherFormError
            at, places = numbers.end(), numbers.regs
            if numbers[7] or numbers[8]:
                at, end_of = _passed_over(head, at), _BEHIND_STATISTICS
            else:
                end_of = _BEHIND_DATA_PAGE if places[6][0] < 0 else _BEHIND_DICTIONARY
            end = end_of(head, at)
            if end is None:
                raise _OtherFormError
            spans.append(places[1:7] + end.regs[1:])
            encodings.append(_bits(begin[2]))
            at = end.end()
        return at

    def _words(self, head: bytes, at: int, tail: bytes, tail_at: int) -> frozenset[bytes]:
        """The keys of the words, behind which nothing but what is known may stand."""
        raw, base = head, 0
        count, at = _list(raw, at, STRUCT)
        keys = []
        for _ in range(count):
            begin, end = _text(raw, at - base)
            keys.append(raw[begin:end])
            at = base + _text(raw, end)[1]
            if raw is head and at >= len(head):
                raw, base = tail, tail_at
            if at < base or raw[at - base] != _STOP:
                raise _OtherFormError
            at += 1
        if raw[at - base :] != self.behind:
            raise _OtherFormError
        return frozenset(keys)

    def _are_sound(self, rows: Int64s, chunks: Int64s, data_end: int) -> bool:
        """Whether `parts.py` would take these numbers."""
        if (rows <= 0).any() or (chunks < 0).any():
            return False
        begins, sizes = starts_of(chunks), chunks[:, :, STORED]
        is_odd = (begins < len(MAGIC)) | (begins > data_end - sizes)
        is_odd |= (chunks[:, :, VALUES] != rows[:, None]) & ~self.is_repeated
        for place, size in ((PLACES_AT, PLACES_SIZE), (BOUNDS_AT, BOUNDS_SIZE)):
            at, own = chunks[:, :, place], chunks[:, :, size]
            is_there = (at > 0) & (own > 0)
            is_odd |= is_there & ((at < len(MAGIC)) | (at > data_end - own))
            is_odd |= ~is_there & ((at > 0) | (own > 0))
        return not bool(is_odd.any())


def starts_of(chunks: Int64s) -> Int64s:
    """Where chunks begin: at the lower of two places, of which one may not be told."""
    data, dictionary = chunks[:, :, DATA], chunks[:, :, DICTIONARY]
    both = np.minimum(data, dictionary)
    return np.where(both > 0, both, np.maximum(data, dictionary))


class _OtherFormError(Exception):
    """A footer is not of this form."""


def _encoded(fields: Struct, last: int, wanted: Sequence[int]) -> bytes:
    """These fields, as they stand behind a field of number `last`, without the end."""
    some = [(one, fields.kinds[one], fields[one]) for one in wanted if one in fields]
    if not last:
        return encode_struct(Struct(*some))[:-1]
    return encode_struct(Struct((last, I32, 0), *some))[2:-1]


def _matched(pattern: re.Pattern[bytes], raw: bytes, at: int) -> re.Match[bytes]:
    found = pattern.match(raw, at)
    if found is None:
        raise _OtherFormError
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(raw, at)
    if value < 0:
        raise _OtherFormError
    return value, at


def _list(raw: bytes, at: int, kind: int) -> tuple[int, int]:
    """(how many elements the list has that is the next field, where the first one begins)."""
    if raw[at] != _NEXT_LIST or raw[at + 1] & 15 != kind:
        raise _OtherFormError
    count = raw[at + 1] >> 4
    return (count, at + 2) if count < _LONG else _varint(raw, at + 2)


def _text(raw: bytes, at: int) -> tuple[int, int]:
    """(where the text begins that is the next field, where it ends)."""
    if raw[at] != _NEXT_TEXT:
        raise _OtherFormError
    size, at = _varint(raw, at + 1)
    return at, at + size


def _passed_over(raw: bytes, at: int) -> int:
    """Where a struct of numbers and texts ends."""
    while (head := raw[at]) != _STOP:
        kind, at = head & 15, at + 1
        if head < 16:
            raise _OtherFormError
        if kind == BINARY:
            size, at = (raw[at], at + 1) if raw[at] < 128 else _varint(raw, at)
            at += size
        elif kind in (5, 6):
            while raw[at] > 127:
                at += 1
            at += 1
        elif kind not in (1, 2):
            raise _OtherFormError
    return at + 1


@lru_cache(256)
def _bits(encodings: bytes) -> int:
    """A bit for each encoding of a stored list, whose numbers are zigzag and take a byte: four at
    most, and the same ones in most chunks."""
    known = {one >> 1 for one in encodings[1:] if not one & 1 and one >> 1 < _ENCODINGS}
    return sum(1 << one for one in known)


def _decoded(body: UInt8s, spans: Iterable[tuple[int, int]]) -> Int64s:
    """The zigzag varints from and to these places; 0 where there is none (-1)."""
    places = np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 2)
    starts, ends = places[:, 0], places[:, 1]
    return zigzags(body, np.maximum(starts, 0), ends - starts)
