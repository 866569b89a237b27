"""What benchmarks of HFiles share: files of one set of entries, who is asked, and the floor.

A `Sample` is entries of one shape, keys to ask for, and files of them, made when they are
first needed: ours, and those that peers write. A `Panel` is the peers to ask, each a file
that it can read. The floor is the codec's work on the blocks that are touched, on as many
threads as ours.
"""

from __future__ import annotations

import os
import statistics
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.harness import FLOOR, Measure, Peer, Setup, absent, timed
from benchmarks.peers.asked import Asked, Peers
from benchmarks.peers.program import Answer, put_entries, put_keys
from metatable.storage.hfile.codec import (
    ZSTD_LEVEL,
    ZSTD_REPEATS_ONLY,
    Codec,
    compress,
    decompress,
)
from metatable.storage.hfile.forms import HBASE, HUDI, OURS, Form
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from metatable.storage.threads import WORKERS, in_order

__all__ = [
    "ABSENT_EACH",
    "BLOCK_HEADER",
    "PIECES",
    "REPEATS",
    "HFile",
    "Panel",
    "Question",
    "Ratios",
    "Sample",
    "both_ways",
    "crc32_of",
    "data_blocks",
    "equal",
    "often",
    "packing",
    "reading_one",
    "unpacking",
    "unpacking_one",
]

BLOCK_BYTES, INDEX_BYTES = 64 << 10, 128 << 10
ABSENT_EACH = 101
"""One key in so many is taken out of the entries, to be asked for."""
REPEATS = 21
"""Runs of one measurement where a run is less than a millisecond."""
PIECES = 16
"""Blocks that a thread of the floor takes at a time."""

BLOCK_HEADER = struct.Struct(">8siiqBii")
"""Of a block: kind, bytes behind it, when unpacked, the block before, checksums (kind, of how many
bytes each), bytes that they cover."""

Ratios = dict[str, float]
"""Targets by peer, "floor" among them."""


class Sample:
    """Entries of one shape, keys to ask for, and the files of them that were made so far."""

    def __init__(self, setup: Setup, name: str, told: str, entries: data.Entries) -> None:
        (self.keys, self.values), self.absent = data.split_entries(*entries, ABSENT_EACH)
        self.name, self.told, self.count = name, told, len(self.keys)
        self.folder = setup.cupboard.scratch()
        self.store = Store(self.folder, {"durable": "false"})
        self.places = np.arange(0, self.count, 10)
        self.packed = cache(self._packed)

    def keys_at(self, *places: int) -> pa.Array:
        return self.keys.take(pa.array(places))

    @property
    def tenth(self) -> pa.Array:
        return self.keys.take(pa.array(self.places))

    @property
    def tenth_values(self) -> pa.Array:
        return self.values.take(pa.array(self.places))

    def setting(self, file: HFile | None = None) -> str:
        where = ""
        if file:
            size = (self.store.size(file.path) or 0) / 1e6
            where = f", file of {size:.1f} MB by {file.writer}, in the page cache"
        return (
            f"{self.count:,} entries of {self.told}, blocks of 64 KiB{where}; ours on {WORKERS} "
            "threads, each on a processor of its own, caches of the process empty; peers warm"
        )

    def asking(self, name: str, keys: pa.Array) -> Path:
        """These keys as a file for peers."""
        place = self.folder / f"{name}.keys"
        return place if place.exists() else put_keys(place, keys)

    @property
    def entries(self) -> Path:
        """The entries as a file for peers."""
        place = self.folder / "entries"
        return place if place.exists() else put_entries(place, self.keys, self.values)

    def ours(self, codec: Codec, filter_kind: str | None = None) -> HFile:
        name = f"ours{'-filter' if filter_kind else ''}-{codec.name.lower()}.hfile"
        if not (self.folder / name).exists():
            self.write(name, codec, filter_kind)
        return HFile(name, codec, "us, with a filter" if filter_kind else "us")

    def write(
        self, name: str, codec: Codec, filter_kind: str | None = None, form: Form = OURS
    ) -> None:
        writer = HFileWriter(self.store, name, codec=codec, filter_kind=filter_kind, form=form)
        with writer as file:
            file.add(self.keys, self.values)

    def theirs(self, peer: Asked, codec: Codec) -> HFile:
        """A file by this peer, by us in its form where it cannot be asked."""
        name = f"{peer.name.lower()}-{codec.name.lower()}.hfile"
        there = (self.folder / name).exists()
        if peer.program is None:
            if not there:
                self.write(name, codec, form=FORMS[peer.name])
            return HFile(name, codec, f"us, in the form of {peer.name}")
        if not there:
            peer.program.ask(*self.writing(name, codec))
        return HFile(name, codec, peer.title)

    def writing(self, name: str, codec: Codec) -> tuple[object, ...]:
        """The command for a peer."""
        return ("write", self.folder / name, self.entries, codec.name, BLOCK_BYTES, INDEX_BYTES)

    def _packed(self, path: str) -> list[tuple[bytes, int]]:
        return _data_blocks((self.folder / path).read_bytes())


FORMS = {"hudi-io": HUDI, "HBase": HBASE}


@dataclass(frozen=True)
class HFile:
    path: str
    codec: Codec
    writer: str


@dataclass(frozen=True)
class Question:
    """What is asked of a file, by us and, with the same words, by peers."""

    words: Callable[[HFile], tuple[object, ...]]
    expected: tuple[int, int]
    times: int = 1
    warm_up: Callable[[HFile], tuple[object, ...]] | None = None

    def check(self, answer: Answer) -> None:
        equal(self.expected, (answer.count, answer.checksum))


@dataclass(frozen=True)
class Panel:
    """Who is asked beside us, each of its own file, and the ratios that we mean to reach."""

    sample: Sample
    peers: Peers
    question: Question
    targets: Ratios = field(default_factory=dict)

    def of(self, codec: Codec) -> list[Peer]:
        """Every peer, with this codec where it knows it, else with GZ."""
        found = []
        for peer in (self.peers.hudi_io, self.peers.hbase, self.peers.hudi_rs):
            writer, its_codec = self._source(peer, codec)
            if peer is self.peers.hudi_rs and self.sample.name == "hash":
                found.append(absent(peer.name, "its keys are texts"))
            elif peer.program is None or writer.program is None:
                found.append(absent(peer.name, peer.why or writer.why))
            else:
                found.append(self._peer(peer, self.sample.theirs(writer, its_codec)))
        return found

    def _source(self, peer: Asked, codec: Codec) -> tuple[Asked, Codec]:
        """Who wrote what this peer is asked of: hudi-io writes keys that are texts."""
        if peer is self.peers.hbase:
            return peer, codec
        texts = self.sample.name != "hash"
        writer = self.peers.hudi_io if texts else self.peers.hbase
        return writer, codec if codec in (Codec.GZ, Codec.NONE) else Codec.GZ

    def _peer(self, peer: Asked, file: HFile) -> Peer:
        question = self.question
        return peer.peer(
            file.codec.name,
            *question.words(file),
            check=question.check,
            times=question.times,
            warm_up=question.warm_up(file) if question.warm_up else None,
            target=self.targets.get(peer.name),
        )


# The floor


def unpacking(sample: Sample, file: HFile, target: float | None) -> Peer:
    """Decompressing all data blocks."""
    packed = sample.packed(file.path)
    run = partial(_each, partial(_unpack, file.codec), packed)
    return _floor(file.codec, "decompress", run, target)


def unpacking_one(sample: Sample, file: HFile) -> Peer:
    """Decompressing one block, in each run another: a processor that is given one again foretells
    after some runs what comes in it, and takes two thirds of the time."""
    blocks = cycle(_middle(sample, file))
    return _floor(
        file.codec, "decompress", lambda: _unpack(file.codec, next(blocks)), is_short=True
    )


def reading_one(sample: Sample, file: HFile) -> Peer:
    """What nobody spares who asks for another block of an open file and finds a key in it: the
    block read and verified, unpacked, and its bytes passed once. In each run another."""
    path, packed = sample.folder / file.path, _middle(sample, file)
    body, places, at = path.read_bytes(), list[int](), 0
    for raw, _ in packed:
        at = body.index(raw, at)
        places.append(at)
    blocks = cycle(zip(places, packed, strict=True))

    def run() -> int:
        place, (raw, size) = next(blocks)
        handle = os.open(path, os.O_RDONLY)
        try:
            stored = os.pread(handle, len(raw), place)
        finally:
            os.close(handle)
        crc = google_crc32c.value(stored)
        return int(crc) + decompress(file.codec, stored, size).find(b"not in any block")

    name = f"{FLOOR}one block read, unpacked, passed once"
    return Peer(name, often(timed(run)))


def _middle(sample: Sample, file: HFile) -> list[tuple[bytes, int]]:
    """So many blocks as there are runs, from the middle of the file."""
    packed = sample.packed(file.path)
    return packed[len(packed) // 2 :][:REPEATS]


def packing(sample: Sample, codec: Codec) -> Peer:
    """Compressing the payloads of all data blocks."""
    own = sample.ours(codec)
    payloads = [decompress(codec, raw, size) for raw, size in sample.packed(own.path)]
    return _floor(codec, "compress", partial(_each, partial(_pack, codec), payloads))


def _floor(
    codec: Codec,
    what: str,
    run: Callable[[], int],
    target: float | None = None,
    is_short: bool = False,
) -> Peer:
    name = "CRC32C" if codec is Codec.NONE else f"{codec.name} {what}"
    measure = timed(run)
    return Peer(f"{FLOOR}{name} alone", often(measure) if is_short else measure, target=target)


def _each(work: Callable[[Any], int], blocks: Sequence[Any]) -> int:
    """`work` on every block, on as many threads as ours."""
    pieces = [blocks[start : start + PIECES] for start in range(0, len(blocks), PIECES)]
    return sum(in_order(lambda piece: sum(map(work, piece)), pieces))


def both_ways(codec: Codec, blocks: Sequence[tuple[bytes, int]]) -> int:
    """Each block unpacked and its payload packed as one of hashes, on as many threads as ours;
    bytes packed."""
    return _each(partial(_repack, codec), blocks)


def data_blocks(path: Path) -> list[tuple[bytes, int]]:
    """(stored bytes, size of the payload) of the data blocks of a file."""
    return _data_blocks(path.read_bytes())


def _repack(codec: Codec, block: tuple[bytes, int]) -> int:
    raw, size = block
    payload = raw if codec is Codec.NONE else decompress(codec, raw, size)
    return _pack(codec, payload, ZSTD_REPEATS_ONLY)


def _pack(codec: Codec, payload: bytes, zstd_level: int = ZSTD_LEVEL) -> int:
    if codec is Codec.NONE:
        return int(google_crc32c.value(payload))
    return len(compress(codec, payload, zstd_level=zstd_level))


def _unpack(codec: Codec, block: tuple[bytes, int]) -> int:
    raw, size = block
    if codec is Codec.NONE:
        return int(google_crc32c.value(raw))
    return len(decompress(codec, raw, size))


def _data_blocks(body: bytes) -> list[tuple[bytes, int]]:
    """(stored payload, its size when unpacked) of every data block."""
    found, at = [], 0
    while body[at : at + 7] in (b"DATABLK", b"IDXLEAF"):
        kind, stored, size, _, _, _, covered = BLOCK_HEADER.unpack_from(body, at)
        if kind.startswith(b"DATABLK"):
            found.append((body[at + BLOCK_HEADER.size : at + covered], size))
        at += BLOCK_HEADER.size + stored
    return found


# Measures and checks


def often(measure: Measure) -> Measure:
    """The median of many runs, for what takes less than a millisecond."""
    return lambda: statistics.median(measure() for _ in range(REPEATS))


def crc32_of(values: pa.Array) -> int:
    return zlib.crc32(b"".join(values.to_pylist()))


def equal(expected: object, found: object) -> None:
    assert found == expected, (expected, found)
