"""Page values: single values out of many pages, without decoding their other ones.

    levels    of a leaf that may be null: 4 bytes (little-endian) how many follow, then runs: which
              values there are
    PLAIN     numbers of one width; texts, each behind 4 bytes that tell its size
    RLE_DICTIONARY    a byte, the width of an index, then runs of indexes into the dictionary's page
    run       a varint n; n even: n / 2 times the value that follows, in whole bytes; n odd: n // 2
              groups of eight values, packed by bits

A page of 2,048 rows is decompressed for one of them; decoding the other 2,047 costs as much again.
Numbers lie where their place says, and so do texts of one size, which those of most keys, hashes
and codes are. All pages of a block are looked at together; only nulls are walked page by page. What
lies otherwise (texts of several sizes, other encodings and types) is not answered (None), and
neither is anything odd: pyarrow decodes it then, or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt64s
from metatable.storage.parquet.fields import Element
from metatable.storage.parquet.parts import Leaf
from metatable.storage.parquet.varints import encoded_zigzags, read_varint

__all__ = ["Block", "ValueForm", "places_of", "values_at"]

_OPTIONAL, _REQUIRED = 1, 0
_TEXT = 6
_WIDTHS = {1: 4, 2: 8, 4: 4, 5: 8}
"""Bytes of Parquet's types of numbers."""

_PLAIN, _OLD_DICTIONARY, _DICTIONARY = 0, 2, 8

_WALKED_BYTES = 64 << 10
"""Bytes of a dictionary of texts of several sizes, at most: they are walked through one by one."""

_MOST_WIDTH = 32
"""Bits of an index into a dictionary, at most."""

_SIZE = 4
"""Bytes that tell a text's size."""

_WORD = 8
"""Bytes of a text, its size before it included, by which most others are told from it."""

MOST_HITS = 64
"""Texts that end as one that is looked for; more are told apart by more of their bytes."""

_HEAD_BYTES = 5
"""Bytes of the varint that a run begins with, at most."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How values of a leaf are stored: `width` bytes each, or 0: texts. `type`: what they are."""

    is_optional: bool
    width: int
    type: pa.DataType

    @classmethod
    def of(cls, leaf: Leaf, type_: pa.DataType) -> ValueForm | None:
        """The form of a leaf's values; None where values of this type are not the bytes that are
        stored."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Decompressed pages behind each other: page i is `body[borders[i]:borders[i + 1]]`, holds
    `counts[i]` values, nulls included, and is encoded as `encodings[i]`. The first pages are
    dictionaries; page `len(dictionary_of)` from the end and all after it hold data, and have these
    dictionaries, by number (-1: none)."""

    body: UInt8s
    borders: Int64s
    counts: Int64s
    encodings: Int64s
    dictionary_of: Int64s

    @property
    def dictionaries(self) -> _Pages:
        count = len(self.counts) - len(self.dictionary_of)
        return _Pages(self.borders[:count], self.borders[1 : count + 1], self.counts[:count])

    @property
    def data(self) -> _Pages:
        first = len(self.counts) - len(self.dictionary_of)
        return _Pages(self.borders[first:-1], self.borders[first + 1 :], self.counts[first:])

    @property
    def data_encodings(self) -> Int64s:
        return self.encodings[len(self.counts) - len(self.dictionary_of) :]


@dataclass(frozen=True, slots=True, eq=False)
class _Pages:
    """Where values of pages begin and end in a body, and how many there are."""

    begins: Int64s
    ends: Int64s
    counts: Int64s


def values_at(form: ValueForm, block: Block, of: Int64s, positions: Int64s) -> pa.Array | None:
    """The values at these `positions` of the data pages `of` a block, as an array of the form's
    type; None where they are not to be had."""
    levels = _levels(form, block)
    if levels is None:
        return None
    pages, masks = levels
    places, is_there = _among_present(masks, of, positions)
    encodings = block.data_encodings
    is_plain = encodings == _PLAIN
    if not (is_plain | (encodings == _DICTIONARY) | (encodings == _OLD_DICTIONARY)).all():
        return None
    at, sizes = np.zeros(len(of), np.int64), np.zeros(len(of), np.int64)
    for asked, look in ((is_plain[of], _plain), (~is_plain[of], _looked_up)):
        own = np.flatnonzero(asked & is_there)
        if asked.any():
            found = look(form, block, pages, of[own], places[own])
            if found is None:
                return None
            at[own], sizes[own] = found
    return _array(form, block.body, at, sizes, is_there)


def places_of(
    form: ValueForm, block: Block, texts: Sequence[Sequence[bytes]]
) -> tuple[Int64s, Int64s, pa.Array] | None:
    """Where those texts stand that are looked for in each data page, of whose texts none is null
    and all are of one size: (numbers of pages, positions, texts), in this order; None where it is
    not so."""
    levels = _levels(form, block)
    if form.width or levels is None or levels[1] or (block.data_encodings != _PLAIN).any():
        return None
    pages, _ = levels
    sizes = _first_sizes(block.body, pages)
    if (sizes < _WORD - _SIZE).any():
        return None
    found = [np.empty((2, 0), np.int64)]
    for low, high in _alike(pages, sizes):
        some = _Alike(block.body, pages, slice(low, high), int(sizes[low]))
        own = _search(some, texts[low:high])
        if own is None:
            return None
        own[0] += low
        found.append(own)
    of, places = np.concatenate(found, axis=1)
    at = pages.begins[of] + places * (_SIZE + sizes[of]) + _SIZE
    return of, places, _array(form, block.body, at, sizes[of], np.ones(len(of), np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """Pages that lie equally far from each other and hold as many texts, all of this size if the
    first ones tell it."""

    body: UInt8s
    pages: _Pages
    some: slice
    size: int

    def ends(self) -> UInt64s | None:
        """(page, position): of each text the last four bytes and the size of the next one, which is
        the same, so that one sweep reads both; None where one is of another size."""
        begins, count = self.pages.begins[self.some], int(self.pages.counts[self.some.start])
        words = np.empty((len(begins), count), "<u8")
        words[:, :-1] = _column(self.body, self.pages, self.some, self.size, self.size, "<u8", 1)
        last = begins + count * (_SIZE + self.size) - _SIZE
        words[:, -1] = _numbers(self.body, last, _SIZE) | self.size << 8 * _SIZE
        above = int(words.min()) >> 8 * _SIZE, int(words.max()) >> 8 * _SIZE
        return words if above == (self.size, self.size) else None

    def last_bytes(self) -> UInt64s:
        """(page, position): the last eight bytes of each text, its size before it included."""
        skip = self.size + _SIZE - _WORD
        held = _column(self.body, self.pages, self.some, skip, self.size, "<u8")
        return np.ascontiguousarray(held)


def _search(alike: _Alike, texts: Sequence[Sequence[bytes]]) -> Int64s | None:
    """Pages and positions, a row each, of texts of one size; None where sizes differ."""
    words, size = alike.ends(), alike.size
    if words is None:
        return None
    wanted = [(page, text) for page, own in enumerate(texts) for text in own if len(text) == size]
    if not wanted:
        return np.empty((2, 0), np.int64)
    page = np.array([one for one, _ in wanted], np.int64)
    told = b"".join([text + size.to_bytes(_SIZE, "little") for _, text in wanted])
    whole = np.frombuffer(told, np.uint8).reshape(len(wanted), size + _SIZE)
    hits = _hits(words, page, _last_words(whole))
    if len(hits[0]) > MOST_HITS * len(wanted):  # many end alike
        sized = np.roll(whole, _SIZE, axis=1)
        hits = _hits(alike.last_bytes(), page, _last_words(sized))
    which, place = hits
    at = alike.pages.begins[alike.some][page[which]] + place * (_SIZE + size) + _SIZE
    same = (_taken(alike.body, at, size) == whole[which, :size]).all(axis=1)
    found = np.stack([page[which[same]], place[same]])
    return found[:, np.lexsort(found[::-1])]


def _last_words(rows: UInt8s) -> UInt64s:
    return np.ascontiguousarray(rows[:, -_WORD:]).view("<u8")[:, 0]


def _hits(held: UInt64s, page: Int64s, wanted: UInt64s) -> tuple[Int64s, Int64s]:
    """For each page, which of the wanted words equals which word of the page: (numbers of the
    wanted words, places in their pages). `page`: that of each wanted word, ascending."""
    turn = np.arange(len(page)) - np.searchsorted(page, page)  # among those of its page
    hits = []
    for number in range(int(turn.max()) + 1):
        own = np.flatnonzero(turn == number)
        rows = held if len(own) == len(held) else held[page[own]]
        hit = np.flatnonzero(rows == wanted[own, None])  # sooner than by row and column
        which, place = np.divmod(hit, rows.shape[1])
        hits.append(np.stack([own[which], place]))
    which, place = np.concatenate(hits, axis=1)
    return which, place


def _levels(form: ValueForm, block: Block) -> tuple[_Pages, dict[int, int]] | None:
    """(where the values that there are begin; of pages with nulls which there are, a bit each)."""
    body, pages = block.body, block.data
    if not form.is_optional:
        return pages, {}
    first = pages.begins + _SIZE
    sizes = _numbers(body, pages.begins, _SIZE)
    begins = first + sizes
    if (begins > pages.ends).any():
        return None
    run, told = encoded_zigzags(pages.counts)  # the head of a run of so many
    width = told.sum(axis=1)
    found = _taken(body, first, run.shape[1])
    all_there = ((found == run) | ~told).all(axis=1) & (sizes == width + 1)
    all_there &= _taken(body, first + width, 1)[:, 0] == 1
    present, masks = pages.counts.copy(), {}
    for page in np.flatnonzero(~all_there).tolist():
        runs = body[first[page] : begins[page]].tobytes()
        mask = _mask(runs, int(pages.counts[page]))
        if mask is None:
            return None
        present[page] = mask.bit_count()
        if present[page] < pages.counts[page]:
            masks[page] = mask
    return _Pages(begins, pages.ends, present), masks


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


def _among_present(masks: dict[int, int], of: Int64s, positions: Int64s) -> tuple[Int64s, Bools]:
    """(the place of each value among those that there are; whether it is there)."""
    places, is_there = positions.copy(), np.ones(len(of), np.bool_)
    if not masks:
        return places, is_there
    for row in np.flatnonzero(np.isin(of, [*masks])).tolist():
        mask, position = masks[int(of[row])], int(positions[row])
        is_there[row] = mask >> position & 1
        places[row] = (mask & (1 << position) - 1).bit_count()
    return places, is_there


def _plain(
    form: ValueForm, block: Block, pages: _Pages, of: Int64s, places: Int64s
) -> tuple[Int64s, Int64s] | None:
    """Where these values of PLAIN pages begin, and their sizes."""
    asked = block.data_encodings == _PLAIN
    own = _Pages(pages.begins[asked], pages.ends[asked], pages.counts[asked])
    sizes, skip = _sizes(form, block.body, own)
    if (sizes < 0).any():
        return None
    size = np.zeros(len(asked), np.int64)
    size[asked] = sizes
    return pages.begins[of] + places * (skip + size[of]) + skip, size[of]


def _sizes(form: ValueForm, body: UInt8s, pages: _Pages) -> tuple[Int64s, int]:
    """(bytes of every value of each page, -1 where they differ; those before a value)."""
    if not form.width:
        return _sizes_of_all(body, pages), _SIZE
    is_whole = pages.begins + pages.counts * form.width == pages.ends
    return np.where(is_whole, form.width, -1), 0


def _sizes_of_all(body: UInt8s, pages: _Pages) -> Int64s:
    """The size of all texts of each page, which fill it; -1 where they differ."""
    sizes = _first_sizes(body, pages)
    for low, high in _alike(pages, sizes):
        size = int(sizes[low])
        if size >= 0 and pages.counts[low]:
            same = (_column(body, pages, slice(low, high), 0, size, "<u4") == size).all(axis=1)
            sizes[low:high][~same] = -1
    return sizes


def _first_sizes(body: UInt8s, pages: _Pages) -> Int64s:
    """The size of the first text of each page; -1 where as many of it do not fill the page."""
    sizes = np.where(pages.counts > 0, _numbers(body, pages.begins, _SIZE), 0)
    sizes[pages.begins + pages.counts * (_SIZE + sizes) != pages.ends] = -1
    return sizes


def _alike(pages: _Pages, sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Neighbours that lie equally far from each other and hold as many texts of one size."""
    steps = np.diff(pages.begins, prepend=0)
    new = np.ones(len(sizes), np.bool_)
    new[1:] = (np.diff(pages.counts) != 0) | (np.diff(sizes) != 0)
    new[2:] |= ~new[1:-1] & (steps[2:] != steps[1:-1])  # the first step of a run may be any
    return pairwise([*np.flatnonzero(new).tolist(), len(sizes)])


def _column(
    body: UInt8s, pages: _Pages, some: slice, skip: int, size: int, kind: str, less: int = 0
) -> UInt64s:
    """A number of each text, but so many `less`, of pages that are alike: page, position."""
    begins, count = pages.begins[some], int(pages.counts[some.start]) - less
    step = int(begins[1] - begins[0]) if len(begins) > 1 else 0
    shape, strides = (len(begins), count), (step, _SIZE + size)
    return np.ndarray(shape, kind, body, int(begins[0]) + skip, strides)


def _looked_up(
    form: ValueForm, block: Block, pages: _Pages, of: Int64s, places: Int64s
) -> tuple[Int64s, Int64s] | None:
    """Where these values of pages of indexes begin in dictionaries, and their sizes."""
    own, held = block.dictionary_of[of], block.dictionaries
    if (own < 0).any():
        return None
    numbers = _indexes(block.body, pages.begins[of], pages.ends[of], places)
    if (numbers < 0).any() or (numbers >= held.counts[own]).any():
        return None
    every, skip = _sizes(form, block.body, held)
    sizes = every[own]
    at = held.begins[own] + numbers * (skip + sizes) + skip
    for number in np.unique(own[sizes < 0]).tolist():
        raw = block.body[held.begins[number] : held.ends[number]].tobytes()
        borders = None if form.width else _borders(raw, int(held.counts[number]))
        if borders is None:
            return None
        rows = np.flatnonzero(own == number)
        told = borders[numbers[rows]]
        sizes[rows] = borders[numbers[rows] + 1] - told - _SIZE
        at[rows] = held.begins[number] + told + _SIZE
    return at, sizes


def _borders(raw: bytes, count: int) -> Int64s | None:
    """Where each text of a dictionary begins, its size before it; None where it is not so many, or
    too long to be walked through."""
    if len(raw) > _WALKED_BYTES:
        return None
    borders, at = [0], 0
    while at < len(raw):
        at += _SIZE + int.from_bytes(raw[at : at + _SIZE], "little")
        borders.append(at)
    return np.array(borders) if at == len(raw) and len(borders) == count + 1 else None


def _indexes(body: UInt8s, at: Int64s, ends: Int64s, places: Int64s) -> Int64s:
    """The values of these places in runs that begin there, behind their width; -1 where they end
    before it. All are walked to by the same steps, a run each."""
    widths = np.where(at < ends, _taken(body, at, 1)[:, 0], _MOST_WIDTH + 1).astype(np.int64)
    found = np.where(widths, -1, 0)  # of no bits: there is one value
    left = np.flatnonzero((widths > 0) & (widths <= _MOST_WIDTH))
    at, places = at[left] + 1, places[left]
    while len(left):
        width = widths[left]
        heads, begins = _heads(body, at)
        runs, is_packed = heads >> 1, heads & 1 == 1
        rows = np.where(is_packed, 8 * runs, runs)
        behind = begins + np.where(is_packed, runs * width, (width + 7) // 8)
        is_sound = (heads >= 2) & (begins <= ends[left])
        here = is_sound & (places < rows)
        bits = np.where(is_packed, places * width, 0)[here]
        held = np.where(is_packed, width, (width + 7) // 8 * 8)[here]
        is_whole = begins[here] + (bits + held + 7) // 8 <= ends[left[here]]
        words = _numbers(body, begins[here] + bits // 8, 8) >> bits % 8
        found[left[here]] = np.where(is_whole, words & (1 << held) - 1, -1)
        on = is_sound & ~here & (behind < ends[left])
        left, at, places = left[on], behind[on], places[on] - rows[on]
    return found


def _heads(body: UInt8s, at: Int64s) -> tuple[Int64s, Int64s]:
    """(varints that begin there, -1 where one does not end; where they end)."""
    told = _taken(body, at, _HEAD_BYTES).astype(np.int64)
    is_on = np.logical_and.accumulate(told >= 128, axis=1)
    length = is_on.sum(axis=1) + 1
    own = np.arange(_HEAD_BYTES) < length[:, None]
    values = (np.where(own, told & 127, 0) << np.arange(0, 7 * _HEAD_BYTES, 7)).sum(axis=1)
    return np.where(length > _HEAD_BYTES, -1, values), at + length


def _taken(body: UInt8s, at: Int64s, width: int) -> UInt8s:
    """So many bytes from each place; of places outside anything."""
    return body.take(at[:, None] + np.arange(width), mode="clip")


def _numbers(body: UInt8s, at: Int64s, width: int) -> Int64s:
    """Numbers (little-endian) of 4 or 8 bytes, of the latter 63 bits."""
    return _taken(body, at, width).view(f"<u{width}")[:, 0].astype(np.int64)


def _array(form: ValueForm, body: UInt8s, at: Int64s, sizes: Int64s, is_there: Bools) -> pa.Array:
    """Stored bytes of values as an array of the form's type."""
    bits = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    if form.width:
        values = pa.py_buffer(_taken(body, at, form.width))
        return pa.Array.from_buffers(form.type, len(at), [bits, values])
    ends = np.cumsum(np.append(0, sizes))
    if len(sizes) and (sizes == sizes[0]).all():
        values = _taken(body, at, int(sizes[0]))
    else:
        values = body[np.repeat(at - ends[:-1], sizes) + np.arange(ends[-1])]
    buffers = [bits, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(values)]
    return pa.Array.from_buffers(form.type, len(at), buffers)
