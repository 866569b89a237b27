"""Ring: the buckets of a table partition as ranges of hashes (RFC-42, consistent hashing).

    hash        XXH32 (seed 0) of the UTF-8 of the key's texts, joined, without its sign
    bucket      the node with the smallest value >= hash; behind the last one the first
    at first    equal ranges, one file group each; their ids follow from range and partition
    split       a node of another value before it; both get new ids
    merge       a node goes into the next one, which gets a new id; the last goes into the first

All of it is Hudi's own arithmetic. A ring is a value: a split or a merge makes another one.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.hashing_metadata import (
    FIRST_INSTANT,
    LAST_HASH,
    HashingMetadata,
    HashingNode,
)
from metatable.data.keys.key_texts import parts_of
from metatable.storage.arrays import Int64s
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.xxh32 import xxh32

__all__ = ["Resizing", "Ring", "hashes_of", "new_prefix", "part_of"]

SPACE = LAST_HASH + 1

Resizing = tuple[tuple[HashingNode, ...], tuple[HashingNode, ...]]
"""Nodes that go, and those that come for them: what `Ring.resized` is given."""


def hashes_of(keys: pa.Array, columns: Sequence[str]) -> Int64s:
    """The hash of every record key (texts, as `KeyGenerator` makes them of `columns`)."""
    parts = parts_of(keys, columns)
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
    return (xxh32(joined) & np.uint32(LAST_HASH)).astype(np.int64)


def part_of(nodes: Sequence[HashingNode], hashes: Int64s) -> Int64s:
    """Which of the nodes that a bucket is parted into (one or two, in their order) has each hash of
    that bucket."""
    first = nodes[-1].value + 1  # behind the bucket: all of it comes before that is passed again
    borders = [(one.value - first) % SPACE for one in nodes[:-1]]
    return np.searchsorted(np.array(borders, np.int64), (hashes - first) % SPACE)


def new_prefix() -> str:
    """The first part of a file id that was never given before."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Ring:
    """Hashing metadata, ready to place: node i holds the hashes in (values[i - 1], values[i]]."""

    engine: ClassVar[str] = "consistent_hashing"

    metadata: HashingMetadata
    values: Int64s
    file_ids: pa.Array

    @classmethod
    def of(cls, metadata: HashingMetadata) -> Self:
        """Raises CorruptError where it is none of this kind."""
        values = np.array([one.value for one in metadata.nodes], np.int64)
        made = cls(metadata, values, pa.array([one.file_id for one in metadata.nodes], pa.string()))
        made.check_invariants()
        return made

    @classmethod
    def first(cls, partition_path: str, count: int) -> Self:
        """The ring of a partition that nobody has resized."""
        values = cls._first_values(count)
        nodes = tuple(
            HashingNode(value, _name_uuid(start, value, partition_path))
            for start, value in pairwise((0, *values))
        )
        return cls.of(HashingMetadata(partition_path, FIRST_INSTANT, count, 0, nodes))

    @classmethod
    def _first_values(cls, count: int) -> tuple[int, ...]:
        step = (LAST_HASH + count - 1) // count
        return tuple(sorted({min(step * (one + 1), LAST_HASH) for one in range(count)}))

    @property
    def nodes(self) -> tuple[HashingNode, ...]:
        return self.metadata.nodes

    def place(self, hashes: Int64s) -> Int64s:
        """The number of each hash's node."""
        return np.searchsorted(self.values, hashes) % len(self.values)

    @property
    def widths(self) -> Int64s:
        """How many hashes each node holds: together all that there are."""
        widths = (self.values - np.roll(self.values, 1)) % SPACE
        return np.where(widths == 0, SPACE, widths)  # a node that is alone

    def middle(self, number: int) -> int | None:
        """The hash at which Hudi cuts a node in two; None: the node holds a single hash."""
        if self.widths[number] < 2:
            return None
        before, value = int(self.values[number - 1]), int(self.values[number])
        return ((before + value + (0 if before < value else SPACE)) >> 1) & LAST_HASH

    def may_split(self, number: int, at: int) -> bool:
        """Whether a cut behind this hash leaves both halves some."""
        before = int(self.values[number - 1])
        return bool(0 < (at - before) % SPACE < self.widths[number])

    def next_of(self, number: int) -> int | None:
        """The node that this one may go into; None: it has no such neighbour."""
        return (number + 1) % len(self.nodes) if len(self.nodes) > 1 else None

    def cut(self, number: int, at: int, prefixes: tuple[str, str]) -> Resizing:
        """The node's hashes up to `at` to a node of its own. Raises UsageError."""
        if not self.may_split(number, at):
            raise UsageError("a bucket is not cut there", found=at, expected="inside of its range")
        node, (low, high) = self.nodes[number], prefixes
        return (node,), (HashingNode(at, low), HashingNode(node.value, high))

    def united(self, number: int, prefix: str) -> Resizing:
        """The node goes into the next. Raises UsageError."""
        other = self.next_of(number)
        if other is None:
            raise UsageError("a bucket without a neighbour is not merged", found=number)
        gone = self.nodes[number], self.nodes[other]
        return gone, (HashingNode(gone[1].value, prefix),)

    def resized(
        self, gone: Iterable[HashingNode], come: Iterable[HashingNode], instant: str
    ) -> Self:
        """Any number of splits and merges at once. Raises CorruptError where nothing is left."""
        nodes = sorted([*(set(self.nodes) - set(gone)), *come], key=lambda one: one.value)
        held = self.metadata
        told = held.partition_path, instant, held.num_buckets, held.seq_no + 1, tuple(nodes)
        return type(self).of(HashingMetadata(*told))

    def check_invariants(self) -> None:
        """Raises CorruptError where not every hash has its one node."""
        ascending = bool((np.diff(self.values) > 0).all())
        if not len(self.values) or not ascending or int(self.widths.sum()) != SPACE:
            raise CorruptError(
                "ring does not hold every hash once",
                partition_path=self.metadata.partition_path,
                found=self.values[:5].tolist(),
            )


def _name_uuid(start: int, end: int, partition_path: str) -> str:
    """Java's `UUID.nameUUIDFromBytes` of a range and its partition."""
    name = start.to_bytes(8) + end.to_bytes(8) + partition_path.encode()
    return str(uuid.UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))
