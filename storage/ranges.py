"""Ranges (offset, bytes) of a file, and the few reads that answer them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["coalesce", "cut", "joined"]


def joined(
    ranges: Sequence[tuple[int, int]], begins: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Ranges that follow each other without a gap, in memory too, as one; where each begins."""
    spans: list[tuple[int, int]] = []
    places: list[int] = []
    end = at = -1
    for (offset, size), begin in zip(ranges, begins, strict=True):
        if offset == end and begin == at:
            spans[-1] = spans[-1][0], spans[-1][1] + size
        else:
            spans.append((offset, size))
            places.append(begin)
        end, at = offset + size, begin + size
    return spans, places


def coalesce(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """What to read for these ranges, in order: those that are nearer than `gap` as one."""
    if len(ranges) == 1:
        return list(ranges)
    spans: list[tuple[int, int]] = []
    start = end = -1
    for offset, size in sorted(ranges):
        if start < 0 or offset > end + gap:
            if start >= 0:
                spans.append((start, end - start))
            start, end = offset, offset + size
        elif offset + size > end:
            end = offset + size
    return [*spans, (start, end - start)]


def cut(
    ranges: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], parts: Sequence[bytes]
) -> list[bytes]:
    """The bytes of each range, out of those of the spans that `coalesce` made of them."""
    known = dict(zip(spans, parts, strict=True))  # most ranges are a span of their own
    starts = [offset for offset, _ in spans]
    found: list[bytes] = []
    for one in ranges:
        part = known.get(one)
        if part is None and one[1]:
            place = bisect_right(starts, one[0]) - 1
            begin = one[0] - starts[place]
            part = parts[place][begin : begin + one[1]]
        found.append(part or b"")
    return found
