"""Codecs: the framings byte by byte, what is refused, and how little memory a lie can take."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage import inflate
from metatable.storage.errors import CorruptError, UpgradeError, UsageError
from metatable.storage.hfile import codec as codecs
from metatable.storage.hfile import wire
from metatable.storage.hfile.codec import (
    READABLE,
    SUPPORTED,
    Codec,
    beginnings,
    compress,
    decompress,
    decompress_into,
)
from tests.long import examples

FRAMED = {Codec.SNAPPY: "snappy", Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}
HBASE_CHUNK = 218_422
"""262144 - (262144 / 6 + 32), as HBase's codecs set up Hadoop's BlockCompressorStream."""

PAYLOADS = st.one_of(
    st.binary(max_size=300), st.binary(min_size=1, max_size=30).map(lambda part: part * 20_000)
)
framed = pytest.mark.parametrize("codec", list(FRAMED))
readable = pytest.mark.parametrize("codec", READABLE)


@pytest.fixture(autouse=True, params=["libdeflate", "isal alone"], scope="module")
def inflated_by(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "isal alone":
            patch.setattr(inflate, "_loaded", None)
        yield


def raw_chunk(codec: Codec, payload: bytes) -> bytes:
    return pa.Codec(FRAMED[codec]).compress(payload, asbytes=True)


def sized(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def group(codec: Codec, *payloads: bytes) -> bytes:
    chunks = sized(*(raw_chunk(codec, payload) for payload in payloads))
    return struct.pack(">I", sum(map(len, payloads))) + chunks


def stored_as(codec: Codec, payload: bytes) -> bytes:
    return bz2.compress(payload) if codec is Codec.BZIP2 else compress(codec, payload)


def random_text(size: int) -> bytes:
    return random.Random(size).randbytes(size // 2).hex().encode()


def peak_bytes(act: Callable[[], object]) -> int:
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    act()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + pa.total_allocated_bytes() - arrow


def refused(codec: Codec, raw: bytes, size: int, told: str | None = None) -> None:
    with pytest.raises(CorruptError, match=told) as caught:
        decompress(codec, raw, size, path="p", offset=7)
    assert (caught.value.facts["path"], caught.value.facts["offset"]) == ("p", 7)
    assert {"expected", "found"} <= set(caught.value.facts)


# The framings


@pytest.mark.parametrize(
    ("codec", "raw"),
    [
        (Codec.NONE, "616263"),
        (Codec.GZ, "1f8b0800000000000000" + "4b4c4a0600" + "c2412435" + "03000000"),
        (Codec.SNAPPY, "00000003" + "00000005" + "0308616263"),
        (Codec.LZ4, "00000003" + "00000004" + "30616263"),
        (Codec.ZSTD, "00000003" + "0000000c" + "28b52ffd2003190000616263"),
        (Codec.ZSTD, "28b52ffd2003190000616263"),
        (Codec.ZSTD, "28b52ffd2001090000" + "61" + "28b52ffd2002110000" + "6263"),
        (Codec.BZIP2, bz2.compress(b"abc").hex()),
    ],
    ids=["NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "bare ZSTD", "two bare frames", "BZIP2"],
)
def test_golden_bytes_are_read(codec: Codec, raw: str) -> None:
    assert decompress(codec, bytes.fromhex(raw), 3) == b"abc"


@pytest.mark.parametrize(
    ("codec", "raw"),
    [
        (Codec.SNAPPY, "00000003" + "00000005" + "0308616263"),
        (Codec.LZ4, "00000003" + "00000004" + "30616263"),
    ],
)
def test_golden_bytes_are_written(codec: Codec, raw: str) -> None:
    assert compress(codec, b"abc").hex() == raw


@framed
def test_large_payloads_are_one_group_of_the_chunks_that_hbase_makes(codec: Codec) -> None:
    payload = random_text(HBASE_CHUNK * 2 + 10)
    cuts = (payload[start : start + HBASE_CHUNK] for start in range(0, len(payload), HBASE_CHUNK))
    assert compress(codec, payload) == group(codec, *cuts) + bytes(4)
    assert compress(codec, payload[:HBASE_CHUNK]) == group(codec, payload[:HBASE_CHUNK])


@framed
def test_chunks_of_bytes_that_do_not_shrink_fit_into_hbases_buffers(codec: Codec) -> None:
    raw = compress(codec, random.Random(1).randbytes(HBASE_CHUNK))
    assert HBASE_CHUNK < int.from_bytes(raw[4:8], "big") == len(raw) - 8 <= 256 << 10


@framed
def test_an_empty_group_may_end_every_payload(codec: Codec) -> None:
    for raw in (group(codec, b"abc"), group(codec, b"ab", b"c"), group(codec, b"a") * 3):
        size = 3
        decompress(codec, raw, size)
        decompress(codec, raw + bytes(4), size)
        for more in (bytes(3), bytes(5), bytes(8), bytes(4) + group(codec, b"a")):
            refused(codec, raw + more, size)


@framed
def test_an_empty_payload_is_an_empty_group_or_nothing(codec: Codec) -> None:
    assert compress(codec, b"") == bytes(4)
    assert decompress(codec, bytes(4), 0) == decompress(codec, b"", 0) == b""
    for raw in (bytes(3), bytes(8), bytes(4) + group(codec, b"abc"), b"\0\0\0\1"):
        refused(codec, raw, 0)
    for raw in (b"", bytes(4), bytes(4) + group(codec, b"abc")):
        refused(codec, raw, 3)


def test_gz_like_javas_is_zlibs_sixth_level_in_a_fixed_header() -> None:
    payload = random_text(100_000)
    raw = compress(Codec.GZ, payload, like_java=True)
    end = struct.pack("<II", zlib.crc32(payload), len(payload))
    assert raw == bytes.fromhex("1f8b0800000000000000") + zlib.compress(payload, 6, -15) + end
    assert decompress(Codec.GZ, raw, len(payload)) == payload == gzip.decompress(raw)
    assert compress(Codec.GZ, payload) != raw


# Any cut into groups and chunks


@framed
@settings(deadline=None, max_examples=examples(20, 60))
@given(sizes=st.lists(st.lists(st.integers(1, 400_000), min_size=1, max_size=3), max_size=3))
def test_any_cut_into_groups_and_chunks_is_read(codec: Codec, sizes: list[list[int]]) -> None:
    payload = random_text(sum(itertools.chain(*sizes)) + 1)
    text = io.BytesIO(payload)
    groups = [[text.read(size) for size in one] for one in sizes]
    raw = b"".join(group(codec, *one) for one in groups)
    assert decompress(codec, raw, text.tell()) == payload[: text.tell()]


@framed
def test_chunks_of_another_size_than_hbases_are_read(codec: Codec) -> None:
    for sizes in ((1 << 20,), (HBASE_CHUNK, 1), (HBASE_CHUNK + 1, HBASE_CHUNK), (3, 1 << 20, 3)):
        payloads = [random_text(size + size % 2)[:size] for size in sizes]
        raw = group(codec, *payloads)
        assert decompress(codec, raw, sum(sizes)) == b"".join(payloads)
    sparse = group(codec, b"abc", bytes(4 << 20), b"abc")
    assert decompress(codec, sparse, 6 + (4 << 20)) == b"abc" + bytes(4 << 20) + b"abc"


def test_bare_zstd_frames_of_any_size_are_read() -> None:
    small, large = random_text(50_000), bytes(20 << 20)
    zstd = pa.Codec("zstd")
    frames = zstd.compress(small, asbytes=True) + zstd.compress(large, asbytes=True)
    size = len(small) + len(large)
    assert decompress(Codec.ZSTD, frames, size) == small + large
    for cut in (frames[:-1], frames + b"x"):
        refused(Codec.ZSTD, cut, size)
    for other in (size - 1, size + 1):
        refused(Codec.ZSTD, frames, other)


def test_an_lz4_chunk_above_four_mebibytes_is_refused_as_such() -> None:
    payload = bytes(4 << 20)
    assert decompress(Codec.LZ4, group(Codec.LZ4, payload), len(payload)) == payload
    refused(Codec.LZ4, group(Codec.LZ4, payload + b"x"), len(payload) + 1, "LZ4 chunk")


# Whatever holds the bytes


@readable
@settings(deadline=None)
@given(payload=PAYLOADS)
def test_payloads_round_trip_whatever_holds_the_bytes(codec: Codec, payload: bytes) -> None:
    raw = stored_as(codec, payload)
    around = np.frombuffer(b"abc" + raw + b"de", np.uint8)[3 : 3 + len(raw)]
    for stored in (raw, memoryview(raw), around):
        made = decompress(codec, stored, len(payload))
        assert type(made) is bytes
        assert made == payload
    if codec in SUPPORTED:
        assert compress(codec, memoryview(b"ab" + payload)[2:]) == raw


def test_threads_do_not_disturb_each_other() -> None:
    payloads = [random_text(2000 * number) for number in range(1, 21)]
    work = [(codec, payload) for payload in payloads for codec in SUPPORTED] * 3

    def there_and_back(one: tuple[Codec, bytes]) -> bool:
        return decompress(one[0], compress(*one), len(one[1])) == one[1]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(there_and_back, work))


# What is refused


@readable
@pytest.mark.parametrize("size", [1, 500])
def test_any_cut_is_refused(codec: Codec, size: int) -> None:
    raw = stored_as(codec, random_text(1000)[:size])
    for kept in range(len(raw)):
        refused(codec, raw[:kept], size)


@framed
def test_any_cut_of_several_groups_and_chunks_is_refused(codec: Codec) -> None:
    payloads = [random_text(size) for size in (40, 60, 80)]
    raw = group(codec, *payloads[:2]) + group(codec, payloads[2])
    assert decompress(codec, raw, 180) == b"".join(payloads)
    for kept in range(len(raw)):
        refused(codec, raw[:kept], 180)


@readable
@pytest.mark.parametrize("more", [b"\0", b"abc", b"\0\0\0\1", bytes(8)])
def test_bytes_behind_the_payload_are_refused(codec: Codec, more: bytes) -> None:
    for payload in (b"", b"abc", random_text(1000)):
        refused(codec, stored_as(codec, payload) + more, len(payload))


@readable
def test_a_repeated_payload_is_refused(codec: Codec) -> None:
    refused(codec, stored_as(codec, b"abc") * 2, 3)


@readable
@given(payload=st.binary(max_size=100), difference=st.integers(-3, 3).filter(bool))
def test_another_size_is_refused(codec: Codec, payload: bytes, difference: int) -> None:
    if len(payload) + difference >= 0:
        refused(codec, stored_as(codec, payload), len(payload) + difference)


@framed
def test_any_flipped_bit_of_a_length_is_refused(codec: Codec) -> None:
    first, second = random_text(100), random_text(300)
    raw = group(codec, first, second) + group(codec, first)
    behind = len(group(codec, first, second))
    lengths = [0, 4, 8 + len(raw_chunk(codec, first)), behind, behind + 4]
    assert decompress(codec, raw, 500) == first + second + first
    for at, bit in itertools.product(lengths, range(32)):
        damaged = bytearray(raw)
        damaged[at + bit // 8] ^= 1 << bit % 8
        refused(codec, bytes(damaged), 500)


@framed
def test_chunks_that_fill_less_than_their_group_are_refused(codec: Codec) -> None:
    """Arrow's one-shot calls leave the rest of the buffer as it was, which may be anything."""
    chunk = raw_chunk(codec, b"abc" * 50)
    for claimed in (151, 160, 1000, 300_000):
        refused(codec, struct.pack(">I", claimed) + sized(chunk), claimed)
    refused(codec, struct.pack(">I", 300) + sized(chunk), 300)


@framed
def test_chunks_that_fill_more_than_their_group_are_refused(codec: Codec) -> None:
    raw = struct.pack(">I", 3) + sized(raw_chunk(codec, b"abcd"))
    refused(codec, raw, 3)
    refused(codec, raw + group(codec, b"efgh"), 8)


@framed
def test_empty_chunks_and_groups_are_refused(codec: Codec) -> None:
    for raw in (
        struct.pack(">I", 3) + sized(b"", raw_chunk(codec, b"abc")),
        struct.pack(">I", 3) + sized(raw_chunk(codec, b""), raw_chunk(codec, b"abc")),
        struct.pack(">I", 3) + sized(raw_chunk(codec, b"abc"), raw_chunk(codec, b"")),
        bytes(4) + group(codec, b"abc"),
        group(codec, b"ab") + bytes(4) + group(codec, b"c"),
    ):
        refused(codec, raw, 3)


@readable
@given(raw=st.binary(max_size=60), size=st.integers(0, 200))
def test_any_bytes_are_a_payload_of_that_size_or_refused(
    codec: Codec, raw: bytes, size: int
) -> None:
    made = bytes(size)
    with suppress(CorruptError):
        made = decompress(codec, raw, size)
    assert len(made) == size


@framed
@given(data=st.data(), sizes=st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_damaged_frames_make_the_payloads_size_or_nothing(
    codec: Codec, data: st.DataObject, sizes: list[int]
) -> None:
    raw = bytearray(group(codec, *(random_text(size + 1)[:size] for size in sizes)))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    made = bytes(sum(sizes))
    with suppress(CorruptError):
        made = decompress(codec, bytes(raw), sum(sizes))
    assert len(made) == sum(sizes)


def each_alone(codec: Codec, raws: list[bytes], sizes: list[int]) -> bytes | str:
    try:
        return b"".join(
            decompress(codec, raw, size, path="p", offset=at)
            for at, (raw, size) in enumerate(zip(raws, sizes, strict=True))
        )
    except CorruptError as error:
        return str(error)


def into(codec: Codec, raws: list[bytes], sizes: list[int]) -> bytes | str:
    out = np.full(sum(sizes), 7, np.uint8)
    views = list(map(memoryview, raws))
    try:
        decompress_into(codec, views, sizes, out, path="p", offsets=range(len(sizes)))
    except CorruptError as error:
        return str(error)
    return out.tobytes()


@readable
@given(data=st.data(), payloads=st.lists(st.binary(max_size=90), max_size=4))
def test_payloads_side_by_side_are_those_of_each_alone(
    codec: Codec, data: st.DataObject, payloads: list[bytes]
) -> None:
    raws, sizes = [stored_as(codec, one) for one in payloads], list(map(len, payloads))
    assert into(codec, raws, sizes) == b"".join(payloads)
    if raws:
        place = data.draw(st.integers(0, len(raws) - 1))
        change = data.draw(st.sampled_from(["flip", "cut", "more", "size", "twice"]))
        raw = bytearray(raws[place])
        if change == "flip" and raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "cut":
            del raw[data.draw(st.integers(0, len(raw))) :]
        elif change == "size":
            sizes[place] = data.draw(st.integers(0, 200))
        else:
            raw += bytes(raw) if change == "twice" else data.draw(st.binary(min_size=1, max_size=9))
        raws[place] = bytes(raw)
        assert into(codec, raws, sizes) == each_alone(codec, raws, sizes)


def test_gz_is_held_to_its_own_checksum_and_size() -> None:
    member = compress(Codec.GZ, b"abc")
    for at in range(1, 9):
        damaged = bytearray(member)
        damaged[-at] ^= 1
        refused(Codec.GZ, bytes(damaged), 3)


def test_unread_and_unwritten_codecs_are_named() -> None:
    with pytest.raises(UpgradeError, match="LZO"):
        decompress(Codec.LZO, b"", 0)
    for codec in (Codec.LZO, Codec.BZIP2):
        with pytest.raises(UsageError, match=f"not written.*{codec.name}"):
            compress(codec, b"")


# Bombs


@readable
@pytest.mark.parametrize("claimed", [(1 << 31) - 1, codecs.BOMB_BYTES + 1])
def test_a_claim_that_is_not_believed_takes_no_memory(codec: Codec, claimed: int) -> None:
    raw = stored_as(codec, bytes(1000))

    def act() -> None:
        refused(codec, raw, claimed, "more payload than is believed")

    assert peak_bytes(act) < 1 << 20


@readable
def test_a_believed_claim_takes_memory_only_as_bytes_come(codec: Codec) -> None:
    raw = stored_as(codec, bytes(1000))
    body = raw if codec not in FRAMED else struct.pack(">I", codecs.BOMB_BYTES) + raw[4:]
    assert peak_bytes(lambda: refused(codec, body, codecs.BOMB_BYTES)) < 17 << 20


def test_a_snappy_chunk_is_not_believed_either() -> None:
    chunk = wire.write_varint(codecs.BOMB_BYTES) + raw_chunk(Codec.SNAPPY, bytes(1000))[2:]
    raw = struct.pack(">I", codecs.BOMB_BYTES) + sized(chunk)
    for body in (raw, raw + b"x"):
        assert peak_bytes(lambda raw=body: refused(Codec.SNAPPY, raw, codecs.BOMB_BYTES)) < 1 << 20


@pytest.mark.parametrize("codec", [one for one in READABLE if one is not Codec.NONE])
@pytest.mark.parametrize("claimed", [1000, 100_000])
def test_no_more_is_produced_than_claimed(codec: Codec, claimed: int) -> None:
    raw = stored_as(codec, bytes(64 << 20))
    size = claimed
    variants = [raw]
    if codec in FRAMED:
        variants.append(struct.pack(">I", claimed) + raw[4:])
        chunk = sized(raw_chunk(codec, bytes(4 << 20 if codec is Codec.LZ4 else 64 << 20)))
        variants += [struct.pack(">I", claimed) + chunk + more for more in (b"", b"x")]
    if codec is Codec.ZSTD:
        variants.append(raw_chunk(codec, bytes(64 << 20)))
    for variant in variants:
        # a copy of what is stored, and the buffers of the decompressors
        most = len(variant) + (9 << 20)
        assert peak_bytes(lambda raw=variant: refused(codec, raw, size)) < most


def test_large_payloads_are_read_if_their_share_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "BOMB_BYTES", 10_000)
    dense, sparse = random_text(10_002), bytes(10_001)
    for codec in SUPPORTED:
        assert decompress(codec, compress(codec, dense), len(dense)) == dense
        assert decompress(codec, compress(codec, sparse[1:]), 10_000) == sparse[1:]
    for codec in (Codec.GZ, Codec.LZ4, Codec.ZSTD):
        with pytest.raises(UsageError, match="how far it shrinks"):
            compress(codec, sparse)


@pytest.mark.parametrize("codec", SUPPORTED)
@given(payload=PAYLOADS, share=st.none() | st.floats(0, 1))
def test_beginnings_grow_until_they_are_the_payload(
    codec: Codec, payload: bytes, share: float | None
) -> None:
    made = list(beginnings(codec, compress(codec, payload), len(payload), share=share))
    assert made[-1] == payload
    assert all(payload.startswith(one) for one in made)
    assert [len(one) for one in made] == sorted(len(one) for one in made)


def test_beginnings_of_gz_are_less_than_the_payload() -> None:
    payload = random_text(60_000)
    made = list(beginnings(Codec.GZ, compress(Codec.GZ, payload), len(payload)))
    assert 0 < len(made[0]) < len(payload) // 2 < len(made[-2]) < len(payload)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_the_first_beginning_reaches_the_share_that_is_asked_for(share: float) -> None:
    payload = random_text(60_000)
    stored = compress(Codec.GZ, payload)
    first = next(iter(beginnings(Codec.GZ, stored, len(payload), share=share)))
    assert share <= len(first) / len(payload) <= share + 0.15


@pytest.mark.parametrize("share", [None, 0.0, 0.4, 1.0])
def test_beginnings_end_with_the_error_of_the_whole(share: float | None) -> None:
    payload = random_text(9_000)
    stored = compress(Codec.GZ, payload)
    damaged = bytearray(stored)
    damaged[-6] ^= 1
    cases = [(bytes(damaged), 9_000), (stored[:-9], 9_000), (stored + b"1", 9_000)]
    for raw, size in [*cases, (stored, 8_999), (stored, 9_001), (stored, 100), (b"", 5)]:
        with pytest.raises(CorruptError) as whole:
            decompress(Codec.GZ, raw, size)
        made: list[bytes] = []
        with pytest.raises(CorruptError) as parts:
            made.extend(beginnings(Codec.GZ, raw, size, share=share))
        assert parts.value.args == whole.value.args
        assert all(payload.startswith(one) for one in made)
