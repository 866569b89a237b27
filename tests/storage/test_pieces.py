"""A file of pieces reads like one in one place."""

from __future__ import annotations

import io
import os

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.pieces import Pieces

PIECES = st.lists(st.binary(max_size=4), max_size=6)
READS = st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(-1, 20)), max_size=5)


@given(PIECES, READS)
def test_pieces_are_read_as_if_they_lay_in_one_place(
    written: list[bytes], reads: list[tuple[int, int | None]]
) -> None:
    pieces, plain = Pieces(), io.BytesIO()
    for one in written:
        assert pieces.write(one) == plain.write(one)
        assert pieces.tell() == plain.tell()
    for place, size in reads:
        assert pieces.seek(place) == plain.seek(place)
        assert pieces.read(size) == plain.read(size)
        assert pieces.tell() == plain.tell()
    assert pieces.seek(-pieces.seek(0, os.SEEK_END), os.SEEK_CUR) == 0
    assert pieces.readall() == plain.getvalue()


@given(PIECES, st.integers(0, 20))
def test_pieces_are_copied_whole_wherever_they_were_read(written: list[bytes], place: int) -> None:
    pieces, copy = Pieces(), io.BytesIO()
    for one in written:
        pieces.write(one)
    pieces.seek(place)
    pieces.copy_to(copy)
    assert copy.getvalue() == b"".join(written)
    assert pieces.tell() == place


def test_what_was_written_is_not_copied() -> None:
    held, pieces = bytearray(b"ab"), Pieces()
    pieces.write(held)
    pieces.write(pa.py_buffer(b"\xff"))
    held[0] = ord("c")
    pieces.seek(0)
    assert pieces.read() == b"cb\xff"
