"""Filters of every family, asked with the same keys.

Filters differ in what they are asked with: 64-bit hashes of one seed or another, or Hudi's own
chain of hashes. `AskedKeys` makes each of these once for a batch of keys, however many files'
filters are asked; a `KeyFilter` asks for what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Bools, UInt32s, UInt64s
from metatable.storage.filters import Filter
from metatable.storage.filters.hudi import HudiBloom, chained
from metatable.storage.hashing import xxh64

__all__ = ["AskedKeys", "HashFilters", "HudiKeyFilter", "KeyFilter", "NoFilter", "admitted"]

MANY_KEYS = 8 << 10
"""Keys of one file from which on all of its keys are decoded, unless hardly any passes its filter.
"""

SOME_KEYS = 256
"""How many of `MANY_KEYS` are asked first, to tell what share of them passes."""


FEW_KEYS = 4096
"""Up to so many keys are hashed for Hudi's filters together, whichever of them a file is asked for:
steps cost more than keys."""


class AskedKeys:
    """Distinct key texts (string array, no nulls) in byte order; or several times such texts behind
    each other, of which only parts are asked for."""

    def __init__(self, texts: pa.Array, every: AskedKeys | None = None, first: int = 0) -> None:
        """`every`: what these are a part of, from its key `first` on."""
        self.texts = texts
        self._every, self._first = every, first
        self._hashes: dict[int, UInt64s] = {}
        self._chains = np.empty((0, len(texts)), np.uint32)

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, first: int, last: int) -> AskedKeys:
        """The keys [first, last). All are hashed together: for few, steps cost more than keys."""
        return AskedKeys(self.texts.slice(first, last - first), self, first)

    def hashes(self, seed: int) -> UInt64s:
        """XXH64 of each text."""
        if self._every is not None:
            return self._every.hashes(seed)[self._first : self._first + len(self.texts)]
        if seed not in self._hashes:
            self._hashes[seed] = xxh64(self.texts, seed)
        return self._hashes[seed]

    def chains(self, hashes: int) -> UInt32s:
        """So many of Hudi's hashes of each text, or more: (hash, key)."""
        if self._every is not None:
            chains = self._every.chains(hashes)
            return chains[:, self._first : self._first + len(self.texts)]
        if len(self._chains) < hashes:
            self._chains = chained(self.texts, hashes)
        return self._chains


class KeyFilter(Protocol):
    """What a file says of keys without being read."""

    def might_contain(self, keys: AskedKeys, first: int, last: int) -> Bools:
        """For the keys [first, last): False only for one that the file does not hold."""
        ...


@dataclass(frozen=True, slots=True)
class HashFilters:
    """Filters of hashes of one seed, each over a part of the file's keys."""

    parts: tuple[Filter, ...]
    seed: int

    def might_contain(self, keys: AskedKeys, first: int, last: int) -> Bools:
        hashes = keys.hashes(self.seed)[first:last]
        found = np.zeros(len(hashes), dtype=bool)
        for part in self.parts:
            found |= part.might_contain(hashes)
        return found


@dataclass(frozen=True, slots=True)
class HudiKeyFilter:
    """The filter that Hudi's writers leave in a footer."""

    bloom: HudiBloom

    def might_contain(self, keys: AskedKeys, first: int, last: int) -> Bools:
        if len(keys) > FEW_KEYS:
            return self.bloom.might_contain(keys.texts.slice(first, last - first))
        return self.bloom.might_contain_hashed(keys.chains(self.bloom.hashes)[:, first:last])


@dataclass(frozen=True, slots=True)
class NoFilter:
    """A file that has none may hold every key."""

    def might_contain(self, keys: AskedKeys, first: int, last: int) -> Bools:
        return np.ones(last - first, dtype=bool)


def admitted(body: KeyFilter, keys: AskedKeys, first: int, last: int) -> Bools:
    """`might_contain` of a filter, for who looks into the file at once.

    Where it denies less than half of some keys out of many, all of them are admitted, hashed or
    not: looking for a key that is not there takes less than asking for all of them.
    """
    if last - first >= MANY_KEYS:
        places = np.linspace(first, last - 1, SOME_KEYS).astype(np.int64)
        some = AskedKeys(keys.texts.take(pa.array(places)))
        if 2 * body.might_contain(some, 0, len(some)).sum() > len(some):
            return np.ones(last - first, dtype=bool)
    return body.might_contain(keys, first, last)
