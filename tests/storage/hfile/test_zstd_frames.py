"""Frames unpacked together: the same as one by one, or not at all."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.hfile.codec import (
    ZSTD_LEVEL,
    ZSTD_REPEATS_ONLY,
    Codec,
    compress,
    decompress,
)
from metatable.storage.hfile.reading import data_blocks
from metatable.storage.hfile.zstd_frames import are_frames, unpack_frames
from tests.storage.hfile.making import binary, cold, entries_of, folder
from tests.storage.hfile.test_access import ALIKE, MIXED, put


def text(size: int) -> bytes:
    return random.Random(size).randbytes(size).hex().encode()[:size]


def together(stored: Sequence[bytes], sizes: Sequence[int]) -> bytes | None:
    views = [memoryview(one) for one in stored]
    out = np.zeros(sum(sizes), np.uint8)
    if not are_frames(views, sizes) or not unpack_frames(views, out):
        return None
    return out.tobytes()


def alone(stored: Sequence[bytes], sizes: Sequence[int]) -> bytes | None:
    with suppress(CorruptError):
        return b"".join(map(decompress, [Codec.ZSTD] * len(sizes), stored, sizes))
    return None


@pytest.mark.parametrize("level", [ZSTD_LEVEL, ZSTD_REPEATS_ONLY])
def test_blocks_of_ours_are_unpacked_in_one_call(level: int) -> None:
    sizes = [1, 255, 256, 65_536, 65_791, 65_792, 128 << 10]
    payloads = [*map(text, sizes), random.Random(1).randbytes(3000), b"ab" * 2000]
    stored = [compress(Codec.ZSTD, one, zstd_level=level) for one in payloads]
    assert together(stored, list(map(len, payloads))) == b"".join(payloads)


def chunked(*chunks: bytes, size: int) -> bytes:
    parts = (struct.pack(">I", len(one)) + one for one in chunks)
    return struct.pack(">I", size) + b"".join(parts)


def framed(payload: bytes) -> bytes:
    return pa.Codec("zstd").compress(payload, asbytes=True)


def streamed(payload: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(payload)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("stored", "size"),
    [
        (compress(Codec.ZSTD, text((128 << 10) + 1)), (128 << 10) + 1),
        (framed(text(600)), 600),
        (chunked(framed(text(300)), framed(text(400)), size=700), 700),
        (chunked(framed(text(300)) + framed(text(400)), size=700), 700),
        (chunked(streamed(text(600)), size=600), 600),
        (chunked(framed(b""), framed(text(600)), size=600), 600),
        (compress(Codec.ZSTD, text(600)) + bytes(4), 600),
        (compress(Codec.ZSTD, text(600))[:17], 600),
        (b"", 0),
    ],
)
def test_other_blocks_are_left_to_those_who_unpack_one(stored: bytes, size: int) -> None:
    assert not are_frames([memoryview(stored)], [size])


@pytest.mark.parametrize("size", [200, 600, 70_000])
def test_all_bits_before_the_content_say_what_a_frame_is(size: int) -> None:
    whole = compress(Codec.ZSTD, text(size))
    content = 8 + 4 + 1 + {200: 1, 600: 2, 70_000: 4}[size] + 3
    taken = []
    for bit in range(8 * content):
        raw = bytearray(whole)
        raw[bit // 8] ^= 1 << bit % 8
        if are_frames([memoryview(raw)], [size]):
            taken.append(bit)
    assert taken == [8 * (content - 3) + 2]  # whether the block is stored or compressed


def test_any_damaged_byte_is_seen_together_as_it_is_alone() -> None:
    payloads = [text(300), text(310)]
    sizes, stored = [300, 310], [compress(Codec.ZSTD, one) for one in payloads]
    for number, whole in enumerate(stored):
        for at in range(len(whole)):
            for flip in (1, 128):
                damaged = bytearray(whole)
                damaged[at] ^= flip
                both = [*stored[:number], bytes(damaged), *stored[number + 1 :]]
                found = together(both, sizes)
                assert found is None or found == alone(both, sizes), (number, at, flip)


@pytest.mark.parametrize("entries", [ALIKE, MIXED], ids=["equal records", "mixed"])
def test_no_block_of_a_whole_file_is_unpacked_by_itself(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    entries: dict[bytes, bytes],
) -> None:
    store = folder(tmp_path_factory.mktemp("zstd"))
    put(store, entries, codec=Codec.ZSTD)
    monkeypatch.delattr(data_blocks, "decompress")
    assert entries_of(cold(store, "a.hfile")) == list(entries.items())
    found = cold(store, "a.hfile")
    for _ in range(2):  # at first from the file, then from what was kept
        assert found.get_sorted(binary(entries)).to_pylist() == list(entries.values())
