"""Small sound HFiles of every form that is read, as models: what mutations begin with.

Most are laid out here, by the rules of the format and not by our writer: each codec, each
checksum, one to three index levels, the three kinds of index keys, records of equal and of
mixed sizes, equal keys, no mvcc numbers, hints of ours. Others come from our writer, and,
where the interop folder is there, from HBase and from Hudi.
"""

from __future__ import annotations

import os
import random
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from metatable.storage import filters
from metatable.storage.arrays import Int64s
from metatable.storage.hashing import xxh64
from metatable.storage.hfile import codec as codecs
from metatable.storage.hfile import file_info, forms, record_sizes
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.record_sizes import RecordSizes
from metatable.storage.store import Store
from tests.storage.hfile import raw_file
from tests.storage.hfile.making import write
from tests.storage.hfile.raw_file import Link, RawBlock, RawFile

__all__ = ["SUFFIX", "Form", "laid_out", "record", "sound_files"]

SUFFIX = bytes.fromhex("00 7fffffffffffffff 04")
FILTER = "metatable.filter"
COMPARATOR = b"org.apache.hadoop.hbase.KeyValue$KVComparator"
Keys = Literal["equal", "mixed", "repeated", "one", "none"]
IndexKeys = Literal["full", "bare", "short"]
Hints = Literal["no", "sizes", "filter", "both"]


@dataclass(frozen=True)
class Form:
    """What a file is like; its name says the same."""

    codec: Codec = Codec.NONE
    keys: Keys = "mixed"
    levels: int = 1
    checksum: int = 2
    index_keys: IndexKeys = "full"
    hints: Hints = "no"
    mvcc: bool = True
    block_entries: int = 6

    @property
    def name(self) -> str:
        parts = (
            self.codec.name.lower(),
            self.keys,
            f"{self.levels}_levels",
            f"{('null', 'crc32', 'crc32c')[self.checksum]}",
            f"{self.index_keys}_index_keys",
            f"{self.hints}_hints",
            "" if self.mvcc else "no_mvcc",
        )
        return "-".join(filter(None, parts))


@cache
def sound_files() -> dict[str, RawFile]:
    """By name."""
    files = [laid_out(form) for form in _forms()]
    files += _written()
    files += _foreign()
    return {one.name: one for one in files}


def laid_out(form: Form) -> RawFile:
    """A file of this form."""
    entries = list(_entries(form.keys))
    data = [_data_block(part, form) for part in _cut(entries, form.block_entries)]
    links = [
        Link(block, key) for block, key in zip(data, _index_keys(data, form, entries), strict=True)
    ]
    blocks, top, inner = _leveled(data, links, form.levels)
    metas = _metas(entries, data, form)
    meta_links = [Link(metas[name], name.encode()) for name in sorted(metas)]
    blocks += [metas[name] for name in sorted(metas)] + inner
    facts = _facts(entries, form)
    blocks += [
        RawBlock(raw_file.ROOT, links=top, behind=bytes(16) if form.levels > 1 else b""),
        RawBlock(raw_file.ROOT, links=meta_links),
        RawBlock(raw_file.INFO, file_info.encode_file_info(facts)),
    ]
    for block in blocks:
        block.checksum = form.checksum
    numbers = {1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: len(entries), 8: form.levels, 9: 0, 10: 0}
    fields: list[tuple[int, int | bytes]] = list(numbers.items())
    fields += [(11, COMPARATOR), (12, 0)]
    return RawFile(form.name, form.codec, blocks, fields, entries=entries)


def record(row: bytes, value: bytes, mvcc: bytes = b"\0") -> bytes:
    """One record of a DATA payload."""
    key = len(row).to_bytes(2, "big") + row + SUFFIX
    return struct.pack(">ii", len(key), len(value)) + key + value + mvcc


def _forms() -> Iterator[Form]:
    """Each pair of what may meet, not all combinations of everything."""
    many: tuple[Keys, ...] = ("equal", "mixed")
    for codec, keys in product(codecs.SUPPORTED, many):
        yield Form(codec, keys)
        yield Form(codec, keys, levels=2, hints="both")
    for checksum, keys in product((0, 1), many):
        yield Form(Codec.GZ, keys, checksum=checksum)
        yield Form(Codec.NONE, keys, checksum=checksum, levels=3)
    kinds: tuple[IndexKeys, ...] = ("bare", "short")
    for index_keys, levels in product(kinds, (1, 2, 3)):
        yield Form(Codec.GZ, "mixed", levels=levels, index_keys=index_keys)
    hints: tuple[Hints, ...] = ("sizes", "filter", "both")
    for hint, keys in product(hints, many):
        yield Form(Codec.NONE, keys, hints=hint)
        yield Form(Codec.ZSTD, keys, hints=hint, checksum=0)
    yield Form(Codec.NONE, "mixed", mvcc=False)
    yield Form(Codec.GZ, "repeated", levels=2)
    yield Form(Codec.NONE, "repeated", hints="both")
    yield Form(Codec.NONE, "one", hints="both")
    yield Form(Codec.GZ, "none")


def _entries(kind: Keys) -> Iterator[tuple[bytes, bytes]]:
    rng = random.Random(kind)
    if kind == "equal":
        for number in range(36):
            yield b"k%07d" % (number * 3), rng.randbytes(5)
    elif kind == "repeated":
        for number in range(12):
            for time in range(number % 4 + 1):
                yield b"key%03d" % number, b"%d" % time
    elif kind == "mixed":
        long = b"m" * 140  # a length of two bytes in the index
        rows = {b"k%05d" % rng.randrange(10**5) + b"x" * rng.randrange(9) for _ in range(34)}
        for row in sorted(rows | {b"\0", long, long + b"\xff" * 9}):
            yield row, rng.choice([b"", SUFFIX + b"\0", rng.randbytes(rng.randrange(14))])
    elif kind == "one":
        yield b"only", b"value"


def _cut(entries: list[tuple[bytes, bytes]], most: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Blocks of about `most` entries; equal keys stay together."""
    part: list[tuple[bytes, bytes]] = []
    for _, group in groupby(entries, key=lambda entry: entry[0]):
        if len(part) >= most:
            yield part
            part = []
        part += group
    if part:
        yield part


def _data_block(part: list[tuple[bytes, bytes]], form: Form) -> RawBlock:
    mvcc = b"\0" if form.mvcc else b""
    return RawBlock(raw_file.DATA, b"".join(record(row, value, mvcc) for row, value in part))


def _index_keys(
    data: list[RawBlock], form: Form, entries: list[tuple[bytes, bytes]]
) -> Iterator[bytes]:
    at, last = 0, b""
    for block in data:
        size = int.from_bytes(block.payload[8:10], "big")
        row = block.payload[10 : 10 + size]
        if form.index_keys == "short" and last:
            row = _separator(last, row)
        yield len(row).to_bytes(2, "big") + row + (b"" if form.index_keys == "bare" else SUFFIX)
        part = next(one for one in _cut(entries[at:], form.block_entries))
        at, last = at + len(part), part[-1][0]


def _separator(last: bytes, first: bytes) -> bytes:
    """Some bytes above `last`, at most `first`: the shortest beginning of it that will do."""
    return next(first[:size] for size in range(1, len(first) + 1) if first[:size] > last)


def _leveled(
    data: list[RawBlock], links: list[Link], levels: int
) -> tuple[list[RawBlock], list[Link], list[RawBlock]]:
    """(data and leaf blocks, links of the root, inner blocks)."""
    if levels == 1:
        return list(data), links, []
    blocks: list[RawBlock] = []
    leaves: list[Link] = []
    for start in range(0, len(links), 2):
        part = links[start : start + 2]
        leaf = RawBlock(raw_file.LEAF, links=part)
        blocks += [*data[start : start + 2], leaf]
        leaves.append(Link(leaf, part[0].key))
    if levels == 2:
        return blocks, leaves, []
    inner: list[RawBlock] = []
    top: list[Link] = []
    for start in range(0, len(leaves), 2):
        part = leaves[start : start + 2]
        inner.append(RawBlock(raw_file.INNER, links=part))
        top.append(Link(inner[-1], part[0].key))
    return blocks, top, inner


def _metas(
    entries: list[tuple[bytes, bytes]], data: list[RawBlock], form: Form
) -> dict[str, RawBlock]:
    found = {"note": b"a META block"}
    if form.hints in ("sizes", "both") and form.keys != "equal" and len(data) > 1:
        counts = np.array([len(part) for part in _cut(entries, form.block_entries)], np.int64)
        keys = np.array([len(row) for row, _ in entries], np.int64)
        values = np.array([len(value) for _, value in entries], np.int64)
        found[record_sizes.META] = RecordSizes(counts, _one(keys), _one(values)).encode()
    if form.hints in ("filter", "both"):
        hashes = xxh64(pa.array([row for row, _ in entries], pa.binary()))
        found[FILTER] = filters.build(_filter_kind(form), hashes, 0.01).encode()
    return {name: RawBlock(raw_file.META, body) for name, body in found.items()}


def _filter_kind(form: Form) -> str:
    kinds = filters.kinds()
    return kinds[int(form.codec) % len(kinds)]


def _facts(entries: list[tuple[bytes, bytes]], form: Form) -> dict[bytes, bytes]:
    facts = {file_info.MAX_MEMSTORE_TS_KEY: bytes(8), b"schema": b'{"type": "string"}'}
    if form.mvcc:
        facts[file_info.KEY_VALUE_VERSION] = b"\0\0\0\1"
    if entries:
        last = entries[-1][0]
        facts[file_info.LASTKEY] = len(last).to_bytes(2, "big") + last + SUFFIX
    if form.hints in ("sizes", "both"):
        sizes = [_one(np.array([len(pair[at]) for pair in entries])) for at in (0, 1)]
        numbers = [size if isinstance(size, int) else None for size in sizes]
        facts[record_sizes.FACT] = record_sizes.encode_fact(*numbers)
    if form.hints in ("filter", "both"):
        facts[FILTER.encode()] = _filter_kind(form).encode()
    return facts


def _one(sizes: Int64s) -> Int64s | int:
    """The size that all have, or all sizes."""
    return int(sizes[0]) if (sizes == sizes[0]).all() else sizes


def _written() -> Iterator[RawFile]:
    """Files of our own writer, in all of its forms."""
    many: tuple[Keys, ...] = ("equal", "mixed", "one", "none")
    for at, (codec, keys) in enumerate(product(codecs.SUPPORTED, many)):
        kinds = [None, *filters.kinds()]
        yield _wrote(f"ours-{codec.name.lower()}", keys, codec=codec, filter_kind=kinds[at % 3])
    for form, keys in product((forms.HUDI, forms.HBASE), many):
        codec = Codec.NONE if keys == "equal" else Codec.GZ
        yield _wrote(form.name, keys, codec=codec, form=form, index_chunk_bytes=100)


def _wrote(name: str, keys: Keys, **options: Any) -> RawFile:
    store, name, pairs = Store("memory://sound-files"), f"{name}-{keys}", list(_entries(keys))
    write(store, name, pairs, block_size_bytes=260, meta={"note": b"body"}, **options)
    found = RawFile.parse(name, store.fetch(name))
    found.entries = pairs
    return found


def _foreign() -> Iterator[RawFile]:
    """The smallest files of HBase and Hudi."""
    folder = Path(os.environ.get("METATABLE_INTEROP", ""))
    if not os.environ.get("METATABLE_INTEROP") or not folder.is_dir():
        return
    bodies = {one.stem: one.read_bytes() for one in sorted((folder / "hfile").glob("*no_entry*"))}
    with zipfile.ZipFile(folder / "hudi/sample_table__cow__v9_txns_simple_meta.zip") as table:
        for path in sorted(table.namelist()):
            name = path.rpartition("/")[2]
            if name.startswith("files-0000-0_13") and "__MACOSX" not in path:
                bodies[name.removesuffix(".hfile")] = table.read(path)
    for name, body in bodies.items():
        found = RawFile.parse(name, body)
        found.entries = raw_file.entries_in([one.payload for one in found.of(raw_file.DATA)])
        yield found
