"""What a metadata partition is: entries made from data files, stored in sorted HFiles.

A partition knows its bytes: how a written data file becomes entries, where a key
is, how a value is stored. An index only knows how to ask. Entries travel as

    place   int64   where the key is in the partition's space: its bucket follows from that
    key     binary  the HFile's row key
    value   binary or dictionary of binary; null = tombstone

and every partition stores a tombstone as one constant byte string, so that whoever merges
or looks up recognises it by equality without decoding anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.bucket_functions import HASH_SPACE, place_by_text
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef, border
from metatable.metadata.written import WrittenSlice
from metatable.storage.arrays import Bools, Int32s, Int64s
from metatable.storage.filters.split_block import KIND as SPLIT_BLOCK
from metatable.storage.hfile.codec import ZSTD_LEVEL, ZSTD_REPEATS_ONLY, Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.ordering import as_binary, sort_order
from metatable.storage.sinks import Sinks
from metatable.storage.store import Store

__all__ = ["ENTRIES", "Entry", "MetadataPartition", "Rewriter", "Storer"]

ENTRIES = pa.schema(
    [
        pa.field("place", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)

Entry = tuple[pa.Array, pa.Array, Int32s]
"""A batch on its way from old HFiles to a new one: keys, raw values, number of the source."""


class Rewriter(Protocol):
    """Carries raw values from old HFiles into a new one, batch by batch."""

    def values(self, values: pa.Array, sources: Int32s) -> tuple[pa.Array, Bools]:
        """(values as the new file stores them, True where the entry is a tombstone)."""
        ...

    def metas(self) -> Mapping[str, bytes]:
        """Meta blocks of the new file, known when all values have passed."""
        ...


class Storer(Protocol):
    """Turns entries into the values of one new file, piece by piece."""

    def values(self, entries: pa.Table) -> pa.Array:
        """Their values as bytes, tombstones too."""
        ...

    def metas(self) -> Mapping[str, bytes]:
        """Meta blocks of the new file, known when all entries have passed."""
        ...


class MetadataPartition:
    """Base of the stored partitions: one sorted HFile over a range of places."""

    name: ClassVar[str]
    tombstone: ClassVar[bytes]
    schema: pa.Schema = ENTRIES
    has_keys: ClassVar[bool] = False
    """Whether it has an entry a record key, and so must be told which keys are gone."""
    reads_keys: ClassVar[bool] = False
    """Whether it looks at all keys of what was written, not just at those that came and went."""
    default_buckets: ClassVar[int] = 1
    """The number of buckets where the table's options name none, as before it is created."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.bucket_count = int(options.buckets.get(self.name, self.default_buckets))

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        """What written slices, at least one, add to and take from this partition, in `schema`."""
        raise NotImplementedError

    def retired(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
        """What it loses with slices that leave the table together with their file groups, but for
        entries by key; `columns` are those that have statistics."""
        raise NotImplementedError

    def departed(self, keys: pa.Array, partition_paths: pa.Array) -> pa.Table:
        """What it loses with record keys (texts) that are in no file any more."""
        raise NotImplementedError

    @property
    def keys_are_hashes(self) -> bool:
        """Whether keys are bytes that nothing makes shorter."""
        return False

    @property
    def filter_fpp(self) -> float:
        """How often a filter over the keys of an HFile may be wrong; 0: there is none."""
        return 0.0

    @property
    def space(self) -> int:
        """How many places there are; buckets are equal ranges of them."""
        return HASH_SPACE

    def places(self, keys: pa.Array) -> Int64s:
        """The place of each stored key, int64 in [0, space)."""
        return place_by_text(keys)

    def cut(self, pieces: int) -> list[tuple[int, int]]:
        """About equal ranges of places, at borders of buckets: at most one a bucket."""
        pieces = min(pieces, self.bucket_count)
        borders = (self._border(self.bucket_count * one // pieces) for one in range(pieces + 1))
        return list(pairwise(borders))

    def bucket(self, number: int) -> tuple[int, int]:
        """The places of one bucket."""
        return self._border(number), self._border(number + 1)

    def _border(self, bucket: int) -> int:
        return border(self.space, self.bucket_count, bucket)

    def key_range(self, lo: int, hi: int) -> tuple[bytes | None, bytes | None] | None:
        """Where keys are in the order of their places: the least key that places [lo, hi) can
        have, and the least behind them (None: there is none). Else None."""
        return None

    @property
    def takes_pieces(self) -> bool:
        """Whether entries may be stored one range of places after the other."""
        return self.key_range(0, self.space) is not None

    def live(self, batch: pa.RecordBatch, lo: int, hi: int) -> pa.RecordBatch:
        """The entries of a batch that are in [lo, hi)."""
        if lo == 0 and hi == self.space:
            return batch
        places = self.places(as_binary(batch["key"]))
        there = (places >= lo) & (places < hi)
        return batch if there.all() else batch.filter(pa.array(there))

    def tombstones_of(self, keys: pa.Array) -> pa.Table:
        """Entries that take these stored keys, in `schema`."""
        values = pa.nulls(len(keys), self.schema.field("value").type)
        return pa.table([pa.array(self.places(keys)), keys, values], schema=self.schema)

    def file_info(self) -> Mapping[str, bytes]:
        """Entries of our own for the HFile's file info."""
        return {}

    def storer(self) -> Storer:
        """How entries become the values of one new file; as they are, unless overridden."""
        return _AsGiven(self.tombstone)

    def rewriter(self, readers: Sequence[HFileReader]) -> Rewriter:
        """How values move from these HFiles into a new one; as they are, unless overridden."""
        return _AsTheyAre(self.tombstone)

    def tombstones(self, values: pa.Array) -> Bools:
        """True where a stored value is the tombstone; False where it is null."""
        return _equal(values, self.tombstone)

    def store(
        self, store: Sinks, lo: int, hi: int, entries: pa.Table, owner: Owner
    ) -> HFileRef | None:
        """Write `entries` (any order, of places [lo, hi)) to one HFile, durable but unseen.

        A commit has one entry per key: the writer refuses a second one.
        """
        return self.store_pieces(store, lo, hi, iter([entries]), owner)

    def store_pieces(
        self, store: Sinks, lo: int, hi: int, pieces: Iterator[pa.Table], owner: Owner
    ) -> HFileRef | None:
        """Write one HFile as `store` does, of entries that come piece by piece: each piece has
        greater keys than the last. None, and no file, where there are no entries."""
        filled = (piece for piece in pieces if piece.num_rows)
        first = next(filled, None)
        if first is None:
            return None
        storer, tombstones = self.storer(), 0
        with self.writer(store, owner) as writer:
            for piece in chain([first], filled):
                order = sort_order(piece["key"].combine_chunks())
                if (np.diff(order) != 1).any():
                    piece = piece.take(pa.array(order))
                entries = piece.combine_chunks()
                writer.add(as_binary(entries["key"]), storer.values(entries))
                tombstones += entries["value"].null_count
            for name, body in storer.metas().items():
                writer.add_meta(name, body)
        return self._ref(writer, lo, hi, owner, tombstones)

    def rewrite(
        self,
        store: Store,
        lo: int,
        hi: int,
        readers: Sequence[HFileReader],
        batches: Iterable[Entry],
        owner: Owner,
        keep_tombstones: bool,
    ) -> HFileRef | None:
        """Write merged batches (sorted, one entry a key) of `readers` to one HFile."""
        rewriter = self.rewriter(readers)
        counts = [0, 0]
        with self.writer(store, owner) as writer:
            for keys, values, dead in _rewritten(batches, rewriter, keep_tombstones):
                writer.add(keys, values)
                counts[0] += len(keys)
                counts[1] += int(np.count_nonzero(dead))
            for name, body in rewriter.metas().items():
                writer.add_meta(name, body)
        if not counts[0]:
            store.delete([writer.written.path])
            return None
        return self._ref(writer, lo, hi, owner, counts[1])

    @contextmanager
    def writer(self, store: Sinks, owner: Owner) -> Iterator[HFileWriter]:
        """A writer of a new file of this partition, with its file info filled in."""
        path = owner.new_path(self.name)
        codec = Codec.named(self.options.codec_of(self.name))
        with HFileWriter(
            store,
            path,
            codec=codec,
            block_size_bytes=self.options.hfile_block_bytes,
            zstd_level=ZSTD_REPEATS_ONLY if self.keys_are_hashes else ZSTD_LEVEL,
            filter_kind=SPLIT_BLOCK if self.filter_fpp else None,
            filter_fpp=self.filter_fpp,
        ) as writer:
            for name, value in self.file_info().items():
                writer.add_file_info(name, value)
            yield writer

    def _ref(
        self, writer: HFileWriter, lo: int, hi: int, owner: Owner, tombstones: int
    ) -> HFileRef:
        """A reference without a sequence: the version that publishes it gives it one."""
        made = writer.written
        return HFileRef(
            path=made.path,
            lo=lo,
            hi=hi,
            sequence=0,
            instant=owner.instant,
            entry_count=made.entry_count,
            tombstone_count=tombstones,
            first_key=made.first_key,
            last_key=made.last_key,
            size_bytes=made.size_bytes,
            checksum=made.checksum,
            space=self.space,
        )


class _AsGiven:
    """A `Storer` of values that are bytes as they are stored; null becomes the tombstone."""

    def __init__(self, tombstone: bytes) -> None:
        self._tombstone = tombstone

    def values(self, entries: pa.Table) -> pa.Array:
        values = entries["value"].combine_chunks()
        return pc.fill_null(values, pa.scalar(self._tombstone, pa.binary()))

    def metas(self) -> Mapping[str, bytes]:
        return {}


class _AsTheyAre:
    """A `Rewriter` of values that mean the same in every file."""

    def __init__(self, tombstone: bytes) -> None:
        self._tombstone = tombstone

    def values(self, values: pa.Array, sources: Int32s) -> tuple[pa.Array, Bools]:
        return values, _equal(values, self._tombstone)

    def metas(self) -> Mapping[str, bytes]:
        return {}


def _rewritten(
    batches: Iterable[Entry], rewriter: Rewriter, keep_tombstones: bool
) -> Iterator[tuple[pa.Array, pa.Array, Bools]]:
    """(keys, values as the new file stores them, which are tombstones), batch by batch."""
    for keys, raw, sources in batches:
        values, dead = rewriter.values(raw, sources)
        if not keep_tombstones and dead.any():
            alive = pa.array(~dead)
            keys, values, dead = keys.filter(alive), values.filter(alive), dead[~dead]
        if len(keys):
            yield keys, values, dead


def _equal(values: pa.Array, constant: bytes) -> Bools:
    """Which values are these bytes; null is not."""
    if pa.types.is_fixed_size_binary(values.type) and values.type.byte_width != len(constant):
        return np.zeros(len(values), bool)
    same = pc.fill_null(pc.equal(values, pa.scalar(constant, values.type)), False)
    return np.asarray(same.to_numpy(zero_copy_only=False), dtype=bool)
