"""Checksums of many pieces: google's, of each alone, is the judge."""

from __future__ import annotations

import ctypes

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from metatable.storage.hfile import checksum
from metatable.storage.hfile.checksum import crc32c_each

RAW = np.random.default_rng(148).integers(0, 256, 70_000, np.uint8)
PIECES = st.lists(st.tuples(st.integers(0, 69_000), st.integers(0, 40_000)), max_size=12)


def alone(raw: np.ndarray, pieces: list[tuple[int, int]]) -> list[int]:
    return [google_crc32c.value(raw[start : start + size].tobytes()) for start, size in pieces]


def each(raw: np.ndarray, pieces: list[tuple[int, int]]) -> list[int]:
    starts, sizes = np.array(pieces, np.int64).reshape(-1, 2).T
    return crc32c_each(raw, starts, sizes)


@given(PIECES)
def test_each_sum_is_that_of_its_piece_alone(pieces: list[tuple[int, int]]) -> None:
    assert each(RAW, pieces) == alone(RAW, pieces)  # some end behind the bytes: those have fewer
    inside = [(start, min(size, len(RAW) - start)) for start, size in pieces]
    assert each(RAW, inside) == alone(RAW, inside)
    assert each(RAW[3:], inside[:1]) == alone(RAW[3:], inside[:1])


def test_bytes_that_lie_apart_and_those_that_cannot_be_written_to_have_the_same_sums() -> None:
    pieces = [(0, 0), (0, 9), (5, 30_000)]
    assert each(RAW[::2], pieces) == alone(np.ascontiguousarray(RAW[::2]), pieces)
    fixed = np.frombuffer(RAW.tobytes(), np.uint8)
    assert each(fixed, pieces) == alone(fixed, pieces)


def test_without_isal_google_tells_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_isal", None)
    pieces = [(0, 0), (1, 9), (5, 69_000)]
    assert each(RAW, pieces) == alone(RAW, pieces)


def test_a_library_that_tells_other_sums_or_none_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other:
        def __init__(self, _: str) -> None:
            pass

        class crc32_iscsi:  # noqa: N801  (what isal calls it)
            def __new__(cls, *_: int) -> int:  # type: ignore[misc]
                return 0

    monkeypatch.setattr(ctypes, "CDLL", Other)
    assert checksum._isal_sum() is None
    monkeypatch.undo()
    monkeypatch.setattr(isal_zlib, "__file__", "/nowhere/isal.so")
    assert checksum._isal_sum() is None
