"""Hudi's own bloom filters, as its writers put them into Parquet footers, bit for bit.

A row (integers big-endian, signed):

    offset  size  field
         0     4  -1                  version
         4     4  k                   hashes
         8     1  1                   murmur (0, Jenkins, is refused)
         9     4  m                   bits
        13   m/8  bits                bit i is in byte i / 8, mask 1 << (i % 8)

SIMPLE is one row. DYNAMIC_V0 is a header like the first 13 bytes of a row, then

    offset  size  field
        13     4  keys a row is made for
        17     4  keys in the last row
        21     4  rows
        25        rows, each with its own 13 bytes

and answers yes where any row does. Both are kept as base64, in one line.

The hash is MurmurHash2 with two peculiarities: the tail is taken from the end of the key
backwards and sign-extended, and each of the k hashes is the seed of the next. Positions are
|hash rem m| with the remainder of C and Java. An empty key cannot be hashed.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metatable.storage.arrays import Bools, Int64s, UInt8s, UInt32s
from metatable.storage.byte_columns import at_every_byte
from metatable.storage.errors import CorruptError, UpgradeError, UsageError

__all__ = ["DYNAMIC", "SIMPLE", "FilterForm", "HudiBloom", "chained"]

DYNAMIC = "DYNAMIC_V0"
SIMPLE = "SIMPLE"

_ROW = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_VERSION = -1
_MURMUR = 1
_M = np.uint32(0x5BD1E995)
_MOST_BITS = (1 << 31) - 1
_MOST_HASHES = 1075
"""A filter of the least rate that a double tells has so many; each is a pass over all keys."""
_CHUNK = 1 << 15
"""Keys hashed together: their state stays in the processor's cache."""

_ONES = 0xFFFFFFFF
_FEW, _FEW_BYTES = 4, 256
"""So many keys, of so many bytes, are hashed one by one: an array's every step costs as much as
some of them do."""

_LONG, _FEW_LONG = 4096, 16
"""Keys of more bytes are hashed one by one, too, where they are so few: arrays have a step for each
four bytes of the longest key."""


@dataclass(frozen=True, slots=True)
class FilterForm:
    """A filter of one row that counts its keys, without its bits: what decides whether it lasts."""

    hashes: int
    bits: int
    keys_a_row: int
    keys: int

    @classmethod
    def of_base64(cls, text: bytes) -> FilterForm | None:
        """The form of a filter in a footer, from the beginning of its text; None where it is not
        DYNAMIC, or has several rows."""
        start = _ROW.size + _DYNAMIC.size
        try:
            raw = binascii.a2b_base64(text[: -(-start // 3) * 4])
            version, hashes, kind, bits = _ROW.unpack_from(raw, 0)
            keys_a_row, keys, rows = _DYNAMIC.unpack_from(raw, _ROW.size)
        except (binascii.Error, struct.error):
            return None
        size_bytes = start + _ROW.size + -(-bits // 8)
        is_one = (version, kind, rows, len(text)) == (_VERSION, _MURMUR, 1, -(-size_bytes // 3) * 4)
        return cls(hashes, bits, keys_a_row, keys) if is_one else None

    def holds(self, more: int, fpp: float, at_most: float) -> bool:
        """Whether it is one of `fpp`, and with so many keys `more` holds no more than `at_most`
        times those that it was made for."""
        if not 0 < self.keys + more <= self.keys_a_row * at_most:
            return False
        try:
            return (self.hashes, self.bits) == _form(self.keys_a_row, fpp)
        except UsageError:  # for more keys than there can be a filter for
            return False


@dataclass(frozen=True, slots=True)
class HudiBloom:
    """A filter of k hashes and m bits a row. `rows` holds the packed bits of each."""

    type_code: str
    hashes: int
    bits: int
    keys_a_row: int
    keys_in_last_row: int
    rows: tuple[bytes, ...]

    @classmethod
    def build(
        cls,
        keys: pa.Array,
        fpp: float,
        *,
        capacity: int | None = None,
        type_code: str = DYNAMIC,
    ) -> HudiBloom:
        """A filter of one row over a string array without nulls or empty strings.

        Made for `capacity` keys (default: as many as there are) at a false-positive rate `fpp`.
        Raises UsageError.
        """
        wanted = max(1, len(keys)) if capacity is None else capacity
        if len(keys) > wanted:
            raise UsageError(
                "more keys than the filter is made for", expected=wanted, found=len(keys)
            )
        hashes, bits = _form(wanted, fpp)
        packed = _with_bits(np.zeros(-(-bits // 8) * 8, np.bool_), keys, hashes, bits)
        counts = (wanted, len(keys)) if type_code == DYNAMIC else (0, 0)  # SIMPLE keeps no counts
        return cls(type_code, hashes, bits, *counts, (packed,))

    def with_keys(self, keys: pa.Array, fpp: float, at_most: float) -> HudiBloom | None:
        """A filter of the keys of this one and of these.

        None where it was made for another `fpp`, or has several rows, or would hold more than
        `at_most` times the keys that it was made for, and pass more than it should.
        """
        form = FilterForm(self.hashes, self.bits, self.keys_a_row, self.keys_in_last_row)
        is_one = self.type_code == DYNAMIC and len(self.rows) == 1
        if not is_one or not form.holds(len(keys), fpp, at_most):
            return None
        flags = np.unpackbits(np.frombuffer(self.rows[0], np.uint8), bitorder="little")
        row = _with_bits(flags.view(np.bool_), keys, self.hashes, self.bits)
        return replace(self, keys_in_last_row=self.keys_in_last_row + len(keys), rows=(row,))

    def to_base64(self) -> bytes:
        """As it stands in a footer."""
        head = _ROW.pack(_VERSION, self.hashes, _MURMUR, self.bits)
        body = b"".join(head + row for row in self.rows)
        if self.type_code == DYNAMIC:
            counts = _DYNAMIC.pack(self.keys_a_row, self.keys_in_last_row, len(self.rows))
            body = head + counts + body
        return base64.b64encode(body)

    @classmethod
    def from_base64(cls, text: bytes | str, type_code: str, path: str = "") -> HudiBloom:
        """Read back. Raises CorruptError, and UpgradeError for a family not known here."""
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptError("bloom filter is not base64", path=path, found=str(error)) from error
        if type_code == SIMPLE:
            return cls._of_rows(raw, 0, (0, 0, 1), type_code, path)
        if type_code != DYNAMIC:
            raise UpgradeError("unknown bloom filter", path=path, found=type_code)
        _head(raw, 0, path)
        start = _ROW.size + _DYNAMIC.size
        if len(raw) < start:
            raise _short(path, start, len(raw))
        return cls._of_rows(raw, start, _DYNAMIC.unpack_from(raw, _ROW.size), type_code, path)

    @classmethod
    def _of_rows(
        cls, raw: bytes, start: int, counts: tuple[int, ...], type_code: str, path: str
    ) -> HudiBloom:
        hashes, bits = _head(raw, start, path)
        row_bytes = _ROW.size + -(-bits // 8)
        keys_a_row, keys_in_last_row, rows = counts
        if rows < 1 or start + rows * row_bytes != len(raw):
            raise _short(path, start + rows * row_bytes, len(raw))
        offsets = range(start, len(raw), row_bytes)
        if any(_head(raw, offset, path) != (hashes, bits) for offset in offsets):
            raise CorruptError("rows of a bloom filter differ in their form", path=path)
        packed = tuple(raw[offset + _ROW.size : offset + row_bytes] for offset in offsets)
        return cls(type_code, hashes, bits, keys_a_row, keys_in_last_row, packed)

    def might_contain(self, keys: pa.Array) -> Bools:
        """For each key of a string array without nulls: False is certain, True is likely."""
        answers = [np.empty(0, np.bool_)]
        for chunk in _chunks(keys):
            order, rounds = _positions(chunk, self.hashes, self.bits)
            answer = np.empty(len(chunk), np.bool_)
            answer[order] = self._any_row(np.stack(rounds))
            answers.append(answer)
        return np.concatenate(answers)

    def might_contain_hashed(self, chains: UInt32s) -> Bools:
        """`might_contain` for keys of which these are the `chained` hashes: as many as this filter
        has, or more."""
        return self._any_row(_remainder(chains[: self.hashes], self.bits))

    def _any_row(self, positions: UInt32s) -> Bools:
        """positions: (k, keys)."""
        byte, mask = positions >> 3, (1 << (positions & 7)).astype(np.uint8)
        found = np.zeros(positions.shape[1], np.bool_)
        for row in self.rows:
            found |= (np.frombuffer(row, np.uint8)[byte] & mask).all(axis=0)
        return found


def chained(keys: pa.Array, hashes: int) -> UInt32s:
    """So many hashes of each key of a string array without nulls: (hash, key). They are the same
    for filters of whatever bits."""
    found = np.empty((hashes, len(keys)), np.uint32)
    start = 0
    for chunk in _chunks(keys):
        order, states = _states(chunk, hashes)
        found[:, start : start + len(chunk)][:, order] = np.stack(states)
        start += len(chunk)
    return found


def _form(keys: int, fpp: float) -> tuple[int, int]:
    """k and m of a filter made for so many keys. Raises UsageError."""
    bits = math.ceil(keys * (-math.log(fpp) / (math.log(2) * math.log(2))))
    if bits > _MOST_BITS:
        raise UsageError("too many keys for one filter", expected=f"{_MOST_BITS} bits", found=bits)
    return math.ceil(math.log(2) * bits / keys), bits


def _with_bits(flags: Bools, keys: pa.Array, hashes: int, bits: int) -> bytes:
    """A row: these bits, and those of the keys."""
    for chunk in _chunks(keys):
        if len(chunk) <= _FEW and chunk.nbytes <= _FEW_BYTES:
            for key in chunk.to_pylist():
                flags[_positions_of(key.encode(), hashes, bits)] = True
            continue
        _, rounds = _positions(chunk, hashes, bits)
        for positions in rounds:
            flags[positions.astype(np.intp)] = True  # numpy's own numbers: half the time
    return np.packbits(flags, bitorder="little").tobytes()


def _head(raw: bytes, offset: int, path: str) -> tuple[int, int]:
    """k and m of the 13 bytes at `offset`."""
    if len(raw) < offset + _ROW.size:
        raise _short(path, offset + _ROW.size, len(raw))
    version, hashes, kind, bits = _ROW.unpack_from(raw, offset)
    if version != _VERSION or kind != _MURMUR:
        what = "bloom filter of an old form"
        raise UpgradeError(what, path=path, expected="version -1, murmur", found=(version, kind))
    if hashes < 1 or bits < 1:
        raise CorruptError("bloom filter without bits", path=path, found=(hashes, bits))
    if hashes > _MOST_HASHES:
        what, expected = "bloom filter has too many hashes", f"at most {_MOST_HASHES}"
        raise CorruptError(what, path=path, expected=expected, found=hashes)
    return hashes, bits


def _short(path: str, expected: int, found: int) -> CorruptError:
    what = "bloom filter has the wrong length"
    return CorruptError(what, path=path, expected=f"{expected} bytes", found=f"{found} bytes")


def _chunks(keys: pa.Array) -> list[pa.Array]:
    if keys.null_count:
        raise UsageError("a bloom filter takes no null keys", found=f"{keys.null_count} nulls")
    if keys.type != pa.string():
        keys = keys.cast(pa.string())
    return [keys.slice(start, _CHUNK) for start in range(0, len(keys), _CHUNK)]


def _positions(
    keys: pa.Array, hashes: int, bits: int
) -> tuple[npt.NDArray[np.intp], list[UInt32s]]:
    """The k bit positions of each key, and which key each column of them belongs to."""
    order, states = _states(keys, hashes)
    return order, [_remainder(state, bits) for state in states]


def _states(keys: pa.Array, hashes: int) -> tuple[npt.NDArray[np.intp], list[UInt32s]]:
    """The k hashes of each key, the same way."""
    data, starts, sizes = _bytes_of(keys)
    order = np.argsort(-(sizes >> 2), kind="stable")  # longest first: a round works on prefixes
    starts, sizes = starts[order], sizes[order]
    alone = int(np.count_nonzero(sizes > _LONG))
    if 0 < alone <= _FEW_LONG:
        spans = zip(starts[:alone].tolist(), sizes[:alone].tolist(), strict=True)
        told = [_hashes_of(data[low : low + size].tobytes(), hashes) for low, size in spans]
        rest = _rounds(data, starts[alone:], sizes[alone:], hashes)
        first = np.array(told, np.uint32).T
        return order, [np.concatenate(both) for both in zip(first, rest, strict=True)]
    return order, _rounds(data, starts, sizes, hashes)


def _rounds(data: UInt8s, starts: Int64s, sizes: Int64s, hashes: int) -> list[UInt32s]:
    """The hashes of keys, the longest first."""
    if not len(starts):
        return [np.zeros(0, np.uint32)] * hashes
    words = _mixed_words(data, starts, sizes)
    tails, factors = _tails(data, starts, sizes)
    lengths = sizes.astype(np.uint32)
    state = np.zeros(len(starts), np.uint32)
    rounds = []
    for _ in range(hashes):
        state = _murmur(state ^ lengths, words, tails, factors)
        rounds.append(state)
    return rounds


def _positions_of(key: bytes, hashes: int, bits: int) -> list[int]:
    """The bits of one key, by the interpreter. Raises UsageError for an empty key."""
    if not key:
        raise UsageError("a bloom filter takes no empty keys", row=0)
    states = _hashes_of(key, hashes)
    return [(one if one >> 31 == 0 else _ONES + 1 - one) % bits for one in states]


def _hashes_of(key: bytes, hashes: int) -> list[int]:
    """The hashes of one key, by the interpreter."""
    left, multiplier = len(key) & 3, int(_M)
    words = []
    for (word,) in struct.iter_unpack("<I", key[: len(key) - left]):
        word = word * multiplier & _ONES
        words.append((word ^ word >> 24) * multiplier & _ONES)
    tail = 0
    for place in range(left):
        byte = key[-1 - place]
        tail ^= (byte - (byte >> 7 << 8)) << 8 * place
    state, states = 0, []
    for _ in range(hashes):
        state ^= len(key)
        for word in words:
            state = state * multiplier & _ONES ^ word
        if left:
            state = (state ^ tail) * multiplier & _ONES
        state ^= state >> 13
        state = state * multiplier & _ONES
        state ^= state >> 15
        states.append(state)
    return states


def _bytes_of(
    keys: pa.Array,
) -> tuple[UInt8s, Int64s, Int64s]:
    """The bytes of a string array, and where each value starts and how long it is."""
    _, offsets, values = keys.buffers()
    whole = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    bounds = whole.astype(np.int64)
    sizes: Int64s = np.diff(bounds)
    if not sizes.all():
        row = int(np.flatnonzero(sizes == 0)[0])
        raise UsageError("a bloom filter takes no empty keys", row=row)
    return np.frombuffer(values, np.uint8), bounds[:-1], sizes


def _mixed_words(data: UInt8s, starts: Int64s, sizes: Int64s) -> list[UInt32s]:
    """The 4-byte blocks, mixed: they do not depend on the seed. One array a block, of the keys
    that are long enough; `sizes` descend in whole blocks, so those are the first ones."""
    blocks = sizes >> 2
    if not blocks[0]:
        return []
    one_behind_the_other = int(starts[-1] - starts[0]) == (len(sizes) - 1) * int(sizes[0])
    if one_behind_the_other and (sizes == sizes[0]).all():  # none is to be gathered
        shape, steps = (int(blocks[0]), len(sizes)), (4, int(sizes[0]))
        words = np.ndarray(shape, "<u4", data, int(starts[0]), steps)
        return [_mixed(word.astype(np.uint32)) for word in words]
    mixed: list[UInt32s] = []
    unaligned = at_every_byte(data, "<u4")
    for block in range(int(blocks[0])):
        long_enough = int(np.searchsorted(-blocks, -block))
        mixed.append(_mixed(unaligned[starts[:long_enough] + 4 * block].astype(np.uint32)))
    return mixed


def _mixed(word: UInt32s) -> UInt32s:
    word *= _M
    word ^= word >> np.uint32(24)
    word *= _M
    return word


def _tails(data: UInt8s, starts: Int64s, sizes: Int64s) -> tuple[UInt32s, UInt32s]:
    """What the last size % 4 bytes add to the state, and what it is multiplied by then."""
    signed, ends, left = data.view(np.int8), starts + sizes, sizes & 3
    tail = np.zeros(len(starts), np.int32)
    for back in (1, 2, 3):
        has = np.flatnonzero(left >= back)
        tail[has] ^= signed[ends[has] - back].astype(np.int32) << (8 * (back - 1))
    return tail.view(np.uint32), np.where(left > 0, _M, np.uint32(1))


def _murmur(state: UInt32s, words: list[UInt32s], tails: UInt32s, factors: UInt32s) -> UInt32s:
    """One hash of every key, from its seed (already joined with its length)."""
    for word in words:
        part = state[: len(word)]
        part *= _M
        part ^= word
    state ^= tails
    state *= factors
    state ^= state >> np.uint32(13)
    state *= _M
    state ^= state >> np.uint32(15)
    return state


def _remainder(state: UInt32s, bits: int) -> UInt32s:
    """|signed rem bits|; dividing by one number is fast in numpy, the remainder is not."""
    size = np.where(state >> np.uint32(31), np.uint32(0) - state, state)
    whole = size // np.uint32(bits)
    whole *= np.uint32(bits)
    size -= whole
    return size
