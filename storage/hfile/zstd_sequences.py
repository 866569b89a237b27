"""The sequences of a zstd block, encoded: for who knows the repeats and need not look for them.

A sequence takes so many literals, and then repeats so many bytes from so far back. Its section is
the number of sequences, a table for each of these three numbers, and a stream of bits that is read
from its end (RFC 8878, 3.1.1.3.2 and 4.1). A number is a code and the bits behind it; a code is
told by a state, which goes over into one of those of the next code (finite state entropy).

Made here is what `zstd_records.py` needs: few different sequences, all from one distance. It takes
a loop over all of them: it is for what is made once and used for many blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

__all__ = ["MOST_REPEATED", "encode_sequences"]

_LITERALS = [*range(16), 16, 18, 20, 22, 24, 28, 32, 40, 48, *(1 << one for one in range(6, 18))]
_REPEATED = [*range(3, 35), 35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131]
"""The least length of each code, and at the end one that is too long: the bits behind a code
count on up to the next one's."""
MOST_REPEATED: int = _REPEATED[-1] - 1
_AS_BEFORE = (0, "")
"""The distance told last."""
_NEAREST = 3
"""Distances are told as so much more; what is less stands for one of before."""
_LOG = 5
_STATES = 1 << _LOG
_SPREAD = (_STATES >> 1) + (_STATES >> 3) + 3
_ALWAYS, _TABLE = 1, 2
"""How codes are told: it is always this one, or by the table that follows."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How one of the three numbers is told, for all sequences."""

    how: int
    table: bytes
    first: str
    """The bits of the first state."""
    steps: list[str]
    """The bits that lead from the state of each sequence to the next one's."""


def encode_sequences(lengths: Sequence[tuple[int, int]], distance: int) -> bytes:
    """The section of sequences of (literals, 1 to 65535; repeated bytes, 3 to MOST_REPEATED), all
    of them from `distance` back."""
    each = {one: (_coded(one[0], _LITERALS), _coded(one[1], _REPEATED)) for one in set(lengths)}
    literals, repeated = zip(*(each[one] for one in lengths), strict=True)
    far = distance + _NEAREST
    log = far.bit_length() - 1
    distances = [(log, _bits(far, log))] + [_AS_BEFORE] * (len(lengths) - 1)
    ways = [_way([code for code, _ in one]) for one in (literals, distances, repeated)]
    how = ways[0].how << 6 | ways[1].how << 4 | ways[2].how << 2
    behind = ([bits for _, bits in one] for one in (distances, repeated, literals))
    bits = zip(*behind, ways[0].steps, ways[2].steps, ways[1].steps, strict=True)
    stream = _stream(chain((one.first for one in ways), chain.from_iterable(bits)))
    return b"".join((_count(len(lengths)), bytes((how,)), *(one.table for one in ways), stream))


def _coded(length: int, starts: Sequence[int]) -> tuple[int, str]:
    """(its code, the bits behind that)."""
    code = bisect_right(starts, length) - 1
    log = (starts[code + 1] - starts[code]).bit_length() - 1
    return code, _bits(length - starts[code], log)


def _bits(number: int, count: int) -> str:
    """The lowest `count` bits."""
    return f"{number & (1 << count) - 1:0{count}b}" if count else ""


def _count(count: int) -> bytes:
    """A number of sequences, below 0x7f00."""
    return bytes((count,)) if count < 128 else bytes((128 + (count >> 8), count & 0xFF))


def _stream(bits: Iterable[str]) -> bytes:
    """What is read first stands last, behind a bit that says where it begins."""
    text = "1" + "".join(bits)
    return int(text, 2).to_bytes(-(-len(text) // 8), "little")


def _way(codes: Sequence[int]) -> _Way:
    counts = _shares(codes)
    if len(counts) == 1:
        return _Way(_ALWAYS, bytes(counts), "", [""] * len(codes))
    before: dict[tuple[int, int], tuple[int, str]] = {}
    for state, (code, log, base) in enumerate(_states(counts)):
        for step in range(1 << log):
            before[code, base + step] = state, _bits(step, log)
    state = next(one for one in range(_STATES) if _states(counts)[one][0] == codes[-1])
    steps = [""]
    for code in reversed(codes[:-1]):
        state, bits = before[code, state]
        steps.append(bits)
    return _Way(_TABLE, _described(counts), _bits(state, _LOG), steps[::-1])


def _shares(codes: Sequence[int]) -> dict[int, int]:
    """How many states each code gets, by code: one if it is rare, else as many as others."""
    times = Counter(codes)
    counts = dict.fromkeys(sorted(times), 1)
    usual = [code for code in counts if times[code] * _STATES > len(codes)]
    for place, code in enumerate(usual, 1):
        left = _STATES - sum(counts.values()) + 1
        counts[code] = left // (len(usual) - place + 1)
    return counts


def _states(counts: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(code, bits to read, least state they lead to) of each state."""
    codes = [-1] * _STATES
    place = 0
    for code, count in counts.items():
        for _ in range(count):
            codes[place] = code
            place = (place + _SPREAD) % _STATES
    numbers = dict(counts)
    made = []
    for code in codes:
        log = _LOG + 1 - numbers[code].bit_length()
        made.append((code, log, (numbers[code] << log) - _STATES))
        numbers[code] += 1
    return made


def _described(counts: Mapping[int, int]) -> bytes:
    """The table: of each code how many states it has, in no more bits than are left to tell."""
    number, size = 0, 4  # the log of the table, less 5
    left, code = _STATES + 1, 0
    while left > 1:
        count = counts.get(code, 0)
        log = left.bit_length()
        spare = (1 << log) - 1 - left
        told = count + 1
        if told >= 1 << log - 1:
            told += spare
        number |= told << size
        size += log - (told < spare)
        left -= count
        code += 1
        if not count:
            passed = 0
            while left > 1 and not counts.get(code, 0):
                passed, code = passed + 1, code + 1
            for _ in range(passed // 3):
                number |= 3 << size
                size += 2
            number |= passed % 3 << size
            size += 2
    return number.to_bytes(-(-size // 8), "little")
