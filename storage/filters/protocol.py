"""Filter: is this key in that file? It may say yes wrongly, never no.

A family of filters is a kind, a name that is stored beside the bytes. Every family takes
64-bit hashes (XXH64, seed 42, of the key's text), so that a batch of keys is hashed once
for all files whatever their filters are. To add one: a module that calls `register`, and its
name in `metatable/storage/filters/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from metatable.storage.arrays import Bools, UInt64s
from metatable.storage.errors import UpgradeError, UsageError

__all__ = ["Filter", "build", "decode", "kinds", "register"]


class Filter(Protocol):
    """What one file's filter can do. It is immutable."""

    @property
    def kind(self) -> str:
        """The family's name."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes that it holds in memory, about."""
        ...

    def encode(self) -> bytes:
        """The bytes that `decode` takes."""
        ...

    def might_contain(self, hashes: UInt64s) -> Bools:
        """For each hash: False only if it was not among those that the filter was built of."""
        ...


Build = Callable[[UInt64s, float], Filter]
Decode = Callable[[bytes, str], Filter]

_families: dict[str, tuple[Build, Decode]] = {}


def register(kind: str, build: Build, decode: Decode) -> None:
    """Make a family known. `build(hashes, fpp)`; `decode(raw, path)` raises CorruptError."""
    _families[kind] = build, decode


def kinds() -> list[str]:
    """The families that are known."""
    return sorted(_families)


def build(kind: str, hashes: UInt64s, fpp: float) -> Filter:
    """A filter over `hashes` (any order, repeats allowed), wrong with probability `fpp` at most.

    Raises UsageError for a kind that is not known.
    """
    if kind not in _families:
        raise UsageError("unknown kind of filter", found=kind, expected=kinds())
    if not 0 < fpp < 1:
        raise UsageError("false-positive rate out of range", found=fpp, expected="0 < p < 1")
    return _families[kind][0](hashes, fpp)


def decode(kind: str, raw: bytes, path: str = "") -> Filter:
    """The filter whose bytes these are; `path` is for messages.

    Raises CorruptError for damaged bytes, UpgradeError for a kind that is not known.
    """
    if kind not in _families:
        raise UpgradeError("unknown kind of filter", path=path, found=kind, expected=kinds())
    return _families[kind][1](raw, path)
