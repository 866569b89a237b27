"""One gzip member, inflated by libdeflate to where it is to lie.

libdeflate makes a whole member in one call, and is told how much room there is: of hashes and
base64 text it takes two thirds to three quarters of isal's time, of text about as long. The
package `deflate` brings it, and makes new memory for each result; the library's own function,
which writes into memory that is there, tells where a member ends, and lets other threads run, is
called by ctypes.
"""

from __future__ import annotations

import ctypes
import gzip
import threading
from collections.abc import Callable

import deflate
import numpy as np
import pyarrow as pa

from metatable.storage.arrays import UInt8s

__all__ = ["gunzip", "gunzip_into"]

MOST_OF_A_BYTE = 1032
"""What one byte of deflate can stand for: 258 bytes by two bits."""

AT_ONCE_BYTES = 16 << 20
"""So much is allocated on a claim's word; who inflates more takes memory as bytes come."""

Call = Callable[..., int]


def _library() -> ctypes.CDLL | None:
    """None where the package has it in another form: no interface of Python promises it."""
    try:
        library = ctypes.CDLL(deflate._deflate.__file__)
        allocate, free = library.libdeflate_alloc_decompressor, library.libdeflate_free_decompressor
        inflate = library.libdeflate_gzip_decompress_ex
    except (OSError, AttributeError, TypeError):
        return None
    address, size = ctypes.c_void_p, ctypes.c_size_t
    told = ctypes.POINTER(size)
    allocate.argtypes, allocate.restype = [], address
    free.argtypes, free.restype = [address], None
    inflate.argtypes = [address, address, size, address, size, told, told]
    inflate.restype = ctypes.c_int
    return library


class _Inflater:
    """What libdeflate works with; one thread's at a time. Arrow tells where bytes lie in a sixth of
    numpy's time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._free: Call = library.libdeflate_free_decompressor
        self._inflate: Call = library.libdeflate_gzip_decompress_ex
        self._taken = ctypes.c_size_t()
        self._state: int | None = library.libdeflate_alloc_decompressor()

    def __del__(self) -> None:
        if self._state is not None:
            self._free(self._state)

    def into(self, raw: bytes | memoryview, room: UInt8s) -> bool:
        if self._state is None:
            return False
        stored, made = pa.py_buffer(raw), pa.py_buffer(room)
        state, size, told = self._state, stored.size, ctypes.byref(self._taken)
        failed = self._inflate(state, stored.address, size, made.address, made.size, told, None)
        return not failed and self._taken.value == size


_here = threading.local()


def gunzip_into(raw: bytes | memoryview, room: UInt8s) -> bool:
    """Whether `raw` is one gzip member and nothing else, sound, of as many bytes as there is room
    for; they are in `room` then, contiguous memory. If it is not, and where there is no libdeflate,
    `room` holds anything, and another one is to be asked. Others may run meanwhile."""
    if _loaded is None:
        return False
    inflater: _Inflater | None = getattr(_here, "inflater", None)
    if inflater is None:
        inflater = _here.inflater = _Inflater(_loaded)
    return inflater.into(raw, room)


def gunzip(raw: bytes | memoryview, size: int) -> bytes | None:
    """The `size` bytes of `raw`, None where `gunzip_into` says no, or there are too many."""
    if size > min(MOST_OF_A_BYTE * len(raw), AT_ONCE_BYTES):
        return None
    room = np.empty(size, np.uint8)
    return room.tobytes() if gunzip_into(raw, room) else None


_loaded = _library()


def _tells_what_gzip_does() -> bool:
    text = np.arange(5000, dtype=np.uint16).tobytes()
    member = gzip.compress(text)
    damaged = member[:-8] + bytes(4) + member[-4:]
    no = (member + b"\0", member[:-1], damaged)
    return gunzip(member, len(text)) == text and not any(gunzip(one, len(text)) for one in no)


if not _tells_what_gzip_does():
    _loaded = None
