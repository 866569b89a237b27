"""Gzip members inflated where they are to lie: Python's gzip is the judge, and no answer is
always allowed, for then another one is asked."""

from __future__ import annotations

import ctypes
import gzip
import random
import zlib
from concurrent.futures import ThreadPoolExecutor

import deflate
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage import inflate
from metatable.storage.inflate import gunzip, gunzip_into

TEXT = b"".join(b"key %d of a file, " % (number * number) for number in range(2000))
PAYLOADS = st.binary(max_size=300) | st.binary(min_size=1, max_size=9).map(lambda part: part * 5000)


def with_name(payload: bytes) -> bytes:
    plain = gzip.compress(payload)
    return (
        plain[:3] + bytes([0x1E]) + plain[4:10] + b"\3\0abcname\0told\0" + crc16(plain) + plain[10:]
    )


def crc16(plain: bytes) -> bytes:
    head = plain[:3] + bytes([0x1E]) + plain[4:10] + b"\3\0abcname\0told\0"
    return (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")


@given(PAYLOADS, st.integers(0, 9))
def test_a_member_is_inflated_as_gzip_does(payload: bytes, level: int) -> None:
    for member in (gzip.compress(payload, level), with_name(payload)):
        assert gunzip(member, len(payload)) == payload == gzip.decompress(member)
        for other in (len(payload) + 1, len(payload) - 1):
            assert other < 0 or gunzip(member, other) is None


def test_what_is_not_one_whole_member_is_left_to_others() -> None:
    member = gzip.compress(TEXT)
    for other in (member + b"\0", member + member, member[:-1], member[1:], b"", bytes(30)):
        assert gunzip(other, len(TEXT)) is None
    assert gunzip(member, 1 << 60) is None


def test_so_much_that_memory_is_to_be_taken_bit_by_bit_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = gzip.compress(TEXT)
    monkeypatch.setattr(inflate, "AT_ONCE_BYTES", len(TEXT))
    assert gunzip(member, len(TEXT)) == TEXT
    monkeypatch.setattr(inflate, "AT_ONCE_BYTES", len(TEXT) - 1)
    assert gunzip(member, len(TEXT)) is None


def test_damage_is_not_taken_for_a_payload() -> None:
    payload = TEXT[:3000]
    member = gzip.compress(payload, mtime=0)
    for at in range(len(member)):
        for bit in range(8):
            damaged = bytearray(member)
            damaged[at] ^= 1 << bit
            assert gunzip(bytes(damaged), len(payload)) in (None, payload)
            if at >= len(member) - 8:  # the sum and the size
                assert gunzip(bytes(damaged), len(payload)) is None


@given(st.binary(max_size=200), st.integers(0, 5000))
def test_bytes_of_any_kind_are_refused_or_what_gzip_says(raw: bytes, size: int) -> None:
    whole = gunzip(gzip.compress(b"")[:10] + raw, size)
    assert whole is None or whole == gzip.decompress(gzip.compress(b"")[:10] + raw)


def test_nothing_is_written_beside_the_room() -> None:
    member = gzip.compress(TEXT)
    for size in (0, 1, len(TEXT) - 1, len(TEXT), len(TEXT) + 1):
        around = np.full(size + 200, 7, np.uint8)
        assert gunzip_into(memoryview(member), around[100 : 100 + size]) == (size == len(TEXT))
        assert (around[:100] == 7).all()
        assert (around[100 + size :] == 7).all()


def test_each_thread_has_its_own() -> None:
    payloads = [random.Random(seed).randbytes(2000).hex().encode() * 9 for seed in range(40)]
    members = [gzip.compress(payload) for payload in payloads]
    with ThreadPoolExecutor(4) as threads:
        sizes = list(map(len, payloads))
        for _ in range(5):
            assert list(threads.map(gunzip, members, sizes)) == payloads


def test_without_the_library_nothing_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    member = gzip.compress(TEXT)
    monkeypatch.setattr(inflate, "_loaded", None)
    assert gunzip(member, len(TEXT)) is None
    assert not gunzip_into(member, np.empty(len(TEXT), np.uint8))


def test_a_library_that_inflates_otherwise_or_none_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deflate._deflate, "__file__", "/nowhere/deflate.so")
    assert inflate._library() is None
    monkeypatch.setattr(deflate._deflate, "__file__", None)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert inflate._library() is None
    monkeypatch.undo()
    assert inflate._tells_what_gzip_does()
    monkeypatch.setattr(inflate._Inflater, "into", lambda *_: True)
    assert not inflate._tells_what_gzip_does()
