"""Unpacked pages: many together are what each is, and none is of another size than it says."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from metatable.storage.parquet.unpacked_pages import MOST_BYTES, _frame_sizes, unpacked

CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd"}


def packed(codec: int, page: bytes) -> bytes:
    name = CODECS[codec]
    return page if name is None else pa.Codec(name).compress(page, asbytes=True)


def told(codecs: Sequence[int], stored: Sequence[bytes], sizes: Sequence[int]) -> bytes | None:
    found = unpacked(codecs, [memoryview(one) for one in stored], sizes)
    return None if found is None else found.tobytes()


@pytest.mark.parametrize("codecs", [[0] * 3, [1] * 3, [2] * 3, [6] * 3, [6, 0, 2, 1, 6]], ids=str)
def test_pages_come_out_behind_each_other(codecs: list[int]) -> None:
    pages = [bytes([65 + place]) * (1 + 400 * place) for place in range(len(codecs))]
    stored = [packed(*one) for one in zip(codecs, pages, strict=True)]
    sizes = [*map(len, pages)]
    assert told(codecs, stored, sizes) == b"".join(pages)
    assert told(codecs, stored, [*sizes[:-1], sizes[-1] + 1]) is None
    assert told(codecs, stored, [sizes[0] + 1, sizes[1] - 1, *sizes[2:]]) is None


@pytest.mark.parametrize("codec", [1, 2, 6])
def test_a_page_of_another_size_than_it_says_is_not_unpacked(codec: int) -> None:
    page = b"some words " * 40
    stored = packed(codec, page)
    assert told([codec], [stored], [len(page)]) == page
    for size in (len(page) - 1, len(page) + 1, 0, MOST_BYTES + 1, 1 << 40):
        assert told([codec], [stored], [size]) is None
    assert told([codec], [stored[:-9]], [len(page)]) in (None, page)
    assert told([codec], [b"\xff" * 20], [20]) is None
    assert told([4], [stored], [len(page)]) is None
    assert told([], [], []) is None


@pytest.mark.parametrize("size", [1, 255, 256, 300, 65_791, 65_792, 70_000])
def test_a_frame_tells_its_size(size: int) -> None:
    head = packed(6, bytes(size))[:16].ljust(16, b"\0")
    other = b"\x28\xb5\x2f\xfd" + bytes(12)  # no word of its size
    assert _frame_sizes(head + other + bytes(16)).tolist() == [size, -1, -1]
    assert _frame_sizes(head[:4] + bytes([head[4] | 1]) + head[5:]).tolist() == [-1]


def test_a_damaged_frame_is_told_or_read_as_it_was() -> None:
    draw = random.Random(2)
    pages = [draw.randbytes(600).hex().encode() for _ in range(4)]
    stored = [packed(6, page) for page in pages]
    sizes = [*map(len, pages)]
    for _ in range(300):
        bad = [bytearray(one) for one in stored]
        one = draw.choice(bad)
        one[draw.randrange(12)] ^= 1 << draw.randrange(8)
        found = told([6] * 4, [bytes(one) for one in bad], sizes)
        assert found is None or len(found) == sum(sizes)
