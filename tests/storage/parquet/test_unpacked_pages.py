"""Unpacked pages: many together are what each is, and none is of another size than it says."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.parquet import unpacked_pages
from metatable.storage.parquet.unpacked_pages import (
    MOST_BYTES,
    Packed,
    _frame_sizes,
    begun_each,
    unpacked_each,
)

CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd"}


def packed(codec: int, page: bytes) -> bytes:
    name = CODECS[codec]
    return page if name is None else pa.Codec(name).compress(page, asbytes=True)


def laid(
    codecs: Sequence[int],
    stored: Sequence[bytes],
    sizes: Sequence[int],
    headers: Sequence[int] = (),
    gap: int = 0,
) -> Packed:
    """Pages in memory, each behind a header of so many bytes; so many others are between them."""
    headers = headers or [0] * len(stored)
    memory, begins, ends = bytearray(b"#" * gap), [], []
    for header, body in zip(headers, stored, strict=True):
        memory += b"h" * header + body
        begins.append(len(memory) - len(body))
        ends.append(len(memory))
        memory += b"#" * gap
    numbers = (np.array(one, np.int64) for one in (headers, begins, ends))
    told = np.array(codecs, np.int64), np.array(sizes, np.int64)
    return Packed(*told, memoryview(memory), *numbers)


def told(
    codecs: Sequence[int],
    stored: Sequence[bytes],
    sizes: Sequence[int],
    headers: Sequence[int] = (),
    gap: int = 0,
) -> bytes | None:
    some = laid(codecs, stored, sizes, headers, gap)
    before = bytes(some.memory)
    found = some.unpacked()
    assert bytes(some.memory) == before  # headers are there again
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
    def sizes_of(heads: bytes) -> list[int]:
        rows = np.frombuffer(heads, np.uint8).reshape(-1, 16)
        found: list[int] = _frame_sizes(rows).tolist()
        return found

    head = packed(6, bytes(size))[:16].ljust(16, b"\0")
    other = b"\x28\xb5\x2f\xfd" + bytes(12)  # no word of its size
    assert sizes_of(head + other + bytes(16)) == [size, -1, -1]
    assert sizes_of(head[:4] + bytes([head[4] | 1]) + head[5:]) == [-1]


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


@pytest.mark.parametrize("gap", [0, 1])
def test_frames_are_decompressed_where_they_lie(gap: int) -> None:
    draw = random.Random(gap)
    together = damaged = 0
    for _ in range(300):
        pages = [draw.randbytes(draw.randrange(1, 300)).hex().encode() for _ in range(5)]
        stored = [packed(6, page) for page in pages]
        headers = [draw.randrange(7 if draw.random() < 0.1 else 8, 48) for _ in pages]
        given = [6] * 5, stored, [*map(len, pages)]
        whole = b"".join(pages)
        assert told(*given, headers, gap) == told(*given) == whole
        is_together = laid(*given, headers, gap).is_together
        assert is_together is (not gap and min(headers[1:]) >= 8)
        together += is_together
        place, bad = draw.randrange(5), [*map(bytearray, stored)]
        bad[place][draw.randrange(len(bad[place]))] ^= 1 << draw.randrange(8)
        odd = [6] * 5, [*map(bytes, bad)], given[2]
        joined = unpacked_pages._decompressed(
            unpacked_pages._joined(laid(*odd).bodies), sum(odd[2])
        )
        other = told(*odd, headers, gap)
        assert other is None or (joined is not None and other == joined.tobytes())
        damaged += other is None
    assert together > (-1 if gap else 200)
    assert damaged > 20  # most of a text is literals, which may be any


def test_a_frame_that_goes_on_in_the_next_page_is_damage() -> None:
    pages = [random.Random(5).randbytes(90).hex().encode()] * 3
    frames = [packed(6, page) for page in pages]
    sizes = [*map(len, pages)]
    for cut in range(1, len(frames[0])):
        stored = [frames[0][:-cut], frames[0][-cut:] + frames[1], frames[2]]
        assert told([6] * 3, stored, sizes, [20] * 3) is None
    for more in (frames[1], b"\x50\x2a\x4d\x18\x02\0\0\0ab", b"a", bytes(9)):
        found = told([6] * 3, [frames[0] + more, *frames[1:]], sizes, [20] * 3)
        assert found in (None, b"".join(pages))


def in_one_memory(groups: Sequence[Packed], gap: int) -> list[Packed]:
    """The same pages behind each other; so many other bytes are before each group."""
    memory, found = bytearray(), []
    for one in groups:
        start = len(memory) + gap
        memory += b"#" * gap + one.memory
        found.append(replace(one, begins=one.begins + start, ends=one.ends + start))
    return [replace(one, memory=memoryview(memory)) for one in found]


def a_group(draw: random.Random) -> Packed:
    """Pages of one codec or several, now and then damaged or of another size than told."""
    codecs = [draw.choice([6, 6, 6, draw.choice([*CODECS])]) for _ in range(draw.randrange(5))]
    pages = [draw.randbytes(draw.randrange(1, 300)).hex().encode() for _ in codecs]
    stored = [packed(*one) for one in zip(codecs, pages, strict=True)]
    sizes = [*map(len, pages)]
    if stored and draw.random() < 0.3:
        at = draw.randrange(len(stored))
        bad = bytearray(stored[at])
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        stored[at] = bytes(bad)
        sizes[at] += draw.choice([0, 0, 1, -1, -sizes[at], MOST_BYTES])
    headers = [draw.randrange(6, 20) for _ in stored]
    return laid(codecs, stored, sizes, headers, draw.choice([0, 0, 3]))


@pytest.mark.parametrize("most", [100, 2_000, 8 << 20])
def test_groups_together_are_what_each_is(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacked_pages, "LUMP_BYTES", most)
    draw = random.Random(most)
    told = 0
    for workers in (1, 2, 3) * 40:
        monkeypatch.setattr(unpacked_pages, "workers_here", lambda workers=workers: workers)
        some = [a_group(draw) for _ in range(draw.randrange(7))]
        groups = in_one_memory(some, draw.choice([0, 0, 5]))
        before = bytes(groups[0].memory) if groups else b""
        alone = [one.unpacked() for one in groups]
        ended = begun_each(groups, draw.choice([0.0, 0.5, 1.0]))
        for found in (unpacked_each(groups), ended()):
            for one, other in zip(found, alone, strict=True):
                assert (one is None) is (other is None)
                assert one is None or other is None or one.tobytes() == other.tobytes()
        assert not groups or bytes(groups[0].memory) == before  # headers are there again
        told += sum(one is not None for one in found)
    assert told > 100


def test_each_thread_has_alike_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacked_pages, "workers_here", lambda: 2)
    monkeypatch.setattr(unpacked_pages, "LEAST_BYTES", 1)
    lumps = unpacked_pages._lumps
    assert lumps([5, 9, 3, 9], 1.0) == [[0, 1], [2, 3]]
    assert lumps([4] * 6, 0.5) == [[0, 1, 2, 3], [4, 5]]  # the last one is the caller's
    assert lumps([4] * 3, 0.0) == [[0, 1, 2]]
    assert lumps([7], 1.0) == lumps([7], 0.0) == [[0]]
    assert lumps([], 1.0) == lumps([], 0.0) == []
    monkeypatch.setattr(unpacked_pages, "LUMP_BYTES", 4)
    assert lumps([4, 4, 2, 2], 1.0) == lumps([4, 4, 2, 2], 0.0) == [[0], [1], [2, 3]]
    monkeypatch.setattr(unpacked_pages, "LEAST_BYTES", 100)
    assert lumps([1, 2], 1.0) == [[0, 1]]


def test_what_is_begun_holds_the_caller_up_only_where_it_has_a_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = random.Random(1).randbytes(100).hex().encode()
    stored = packed(6, page)
    group = laid([6] * 3, [stored] * 3, [len(page)] * 3, [9] * 3)
    monkeypatch.setattr(unpacked_pages, "LEAST_BYTES", 1)
    monkeypatch.setattr(unpacked_pages, "workers_here", lambda: 2)
    called: list[int] = []

    def noted(frames: object, size: int) -> None:
        called.append(threading.get_ident())

    monkeypatch.setattr(unpacked_pages, "_decompressed", noted)
    monkeypatch.setattr(unpacked_pages.Packed, "unpacked", lambda group: None)
    for own, threads in ((0.0, 0), (1.0, 1)):
        called.clear()
        ended = begun_each([group, group][: 1 + threads], own)
        assert called.count(threading.get_ident()) == threads
        assert ended() == [None] * (1 + threads)
        assert len(called) == 1 + threads
