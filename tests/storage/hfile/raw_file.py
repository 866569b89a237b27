"""An HFile as a model that can be bent: blocks, links between them, and a trailer.

`RawFile.parse` takes a sound file apart; `build` lays it out again: payloads of indexes from
the places where their children came to lie, then compression, header, checksums, and last
the trailer with the offsets and counts that follow. So whatever a mutation changes, all that
protects it is right again, unless the mutation wants it wrong. It shares with the readers
only the codecs and the variable-length integers; where blocks lie, what an index says and
what is covered by a checksum is written down here a second time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import google_crc32c

from metatable.storage.hfile import codec as codecs
from metatable.storage.hfile import wire
from metatable.storage.hfile.codec import Codec

__all__ = ["Link", "RawBlock", "RawFile", "records_of"]

HEADER = struct.Struct(">8siiqBii")
PLACE = struct.Struct(">qi")
DATA, LEAF, INNER, ROOT, META, INFO = (
    *(b"DATABLK*", b"IDXLEAF2", b"IDXINTE2"),
    *(b"IDXROOT2", b"METABLKc", b"FILEINF2"),
)
TRAILER_SIZE = 4096
MAGIC = b'TRABLK"$'
Edit = Callable[[bytes], bytes]
HeaderEdit = Callable[[list[int]], None]
"""Changes [on_disk_size, payload_size, previous_offset, checksum, chunk_bytes, covered_size]."""


@dataclass(eq=False)
class Link:
    """An index entry: the block it leads to, and the key before it. `lie` replaces the place."""

    child: RawBlock | None
    key: bytes
    lie: Callable[[int, int], tuple[int, int]] | None = None


@dataclass(eq=False)
class RawBlock:
    """One block. The payload of an index block follows from its links."""

    magic: bytes
    payload: bytes = b""
    links: list[Link] | None = None
    behind: bytes = b""
    """What follows the links of a root (HBase's mid key)."""
    checksum: int = 2
    chunk_bytes: int = 16384
    gap: int = 0
    """Bytes of nothing before it."""
    on_payload: list[Edit] = field(default_factory=list)
    on_stored: list[Edit] = field(default_factory=list)
    on_header: list[HeaderEdit] = field(default_factory=list)
    offset: int = 0
    size: int = 0
    payload_size: int = 0

    def encode(self, codec: Codec, offset: int, previous: int) -> bytes:
        """The bytes of the block at `offset`; its children have their places already."""
        payload = self.payload if self.links is None else self._index()
        for edit in self.on_payload:
            payload = edit(payload)
        stored = compressed(codec, payload)
        for edit in self.on_stored:
            stored = edit(stored)
        covered = HEADER.size + len(stored)
        on_disk = len(stored) + 4 * -(-covered // self.chunk_bytes)
        fields = [on_disk, len(payload), previous, self.checksum, self.chunk_bytes, covered]
        for change in self.on_header:
            change(fields)
        body = HEADER.pack(self.magic, *fields) + stored
        body += check_values(body, fields[3], fields[4])
        self.offset, self.size, self.payload_size = offset, len(body), len(payload)
        return body

    def _index(self) -> bytes:
        links = self.links or []
        if self.magic == ROOT:
            parts = (place_of(one) + wire.write_hadoop(len(one.key)) + one.key for one in links)
            return b"".join(parts) + self.behind
        entries = [place_of(one) + one.key for one in links]
        positions = [sum(map(len, entries[:count])) for count in range(len(entries) + 1)]
        return struct.pack(f">{len(entries) + 2}i", len(entries), *positions) + b"".join(entries)


@dataclass
class RawFile:
    """Blocks in file order, the last three being data root, meta root and FILE_INFO."""

    name: str
    codec: Codec
    blocks: list[RawBlock]
    trailer: list[tuple[int, int | bytes]]
    """Fields in order; those that follow from the blocks are made anew by `build`."""
    minor: int = 3
    keep: set[int] = field(default_factory=set)
    """Trailer fields that are not made anew: they are to lie."""
    on_message: list[Edit] = field(default_factory=list)
    on_trailer: list[Edit] = field(default_factory=list)
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)
    """What a sound file holds."""

    @property
    def roots(self) -> tuple[RawBlock, RawBlock, RawBlock]:
        data, meta, info = self.blocks[-3:]
        return data, meta, info

    def of(self, *magics: bytes) -> list[RawBlock]:
        return [one for one in self.blocks if one.magic in magics]

    def meta(self, name: str) -> RawBlock | None:
        """The META block called `name`."""
        links = self.roots[1].links or []
        return next((one.child for one in links if one.key == name.encode()), None)

    def copy(self) -> RawFile:
        """A file that can be bent while this one stays."""
        made = {id(one): replace(one) for one in self.blocks}
        for one in made.values():
            one.on_payload, one.on_stored, one.on_header = [], [], []
            if one.links is not None:
                one.links = [
                    Link(made.get(id(link.child)), link.key, link.lie) for link in one.links
                ]
        bent = replace(self, blocks=[made[id(one)] for one in self.blocks])
        bent.trailer, bent.keep = list(self.trailer), set(self.keep)
        bent.on_message, bent.on_trailer = [], []
        return bent

    def build(self) -> bytes:
        """The bytes."""
        return b"".join(bytes(gap) + part for gap, part in self.parts())

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """(bytes of nothing, bytes) in file order."""
        previous: dict[bytes, int] = {}
        at = 0
        for block in self.blocks:
            at += block.gap
            body = block.encode(self.codec, at, previous.get(block.magic, -1))
            yield block.gap, body
            previous[block.magic] = at
            at += len(body)
        yield 0, self._trailer()

    def _trailer(self) -> bytes:
        fresh = self._facts()
        message = b"".join(
            pb_field(number, fresh.get(number, value) if number not in self.keep else value)
            for number, value in self.trailer
        )
        for edit in self.on_message:
            message = edit(message)
        body = MAGIC + wire.write_varint(len(message)) + message
        raw = body.ljust(TRAILER_SIZE - 4, b"\0") + bytes((self.minor,)) + b"\0\0\3"
        for edit in self.on_trailer:
            raw = edit(raw)
        return raw

    def _facts(self) -> dict[int, int | bytes]:
        """The trailer fields that follow from the blocks, as HBase counts them."""
        data, meta, info = self.roots
        blocks = self.of(DATA)
        index = [*self.of(LEAF, INNER), data]
        counted = [*self.of(DATA, LEAF, META), meta, info]
        native = all(number != 4 for number, _ in self.trailer)
        return {
            1: info.offset,
            2: data.offset,
            3: sum(one.payload_size for one in (blocks if native else index)),
            4: sum(one.payload_size + HEADER.size for one in counted) + TRAILER_SIZE,
            5: len(data.links or []),
            6: len(meta.links or []),
            9: blocks[0].offset if blocks else -1,
            10: blocks[-1].offset if blocks else (0 if native else -1),
            12: int(self.codec),
        }

    @classmethod
    def parse(cls, name: str, body: bytes) -> RawFile:
        """From the bytes of a sound file."""
        end = body[-TRAILER_SIZE:]
        size, at = wire.read_varint(end, len(MAGIC))
        fields = list(wire.fields(end[at : at + size]))
        known = dict(fields)
        codec = Codec(int(known.get(12, Codec.NONE)))
        blocks = list(_blocks(body, codec))
        places = {one.offset: one for one in blocks}
        inner_root, meta_root = blocks[-3:-1]
        inner_root.links, inner_root.behind = _root_links(inner_root, int(known[5]), places)
        meta_root.links, meta_root.behind = _root_links(meta_root, int(known.get(6, 0)), places)
        for one in blocks:
            if one.magic in (LEAF, INNER):
                one.links = _inner_links(one, places)
        return cls(name, codec, blocks, fields, minor=end[-4])


def compressed(codec: Codec, payload: bytes) -> bytes:
    """Kept, because most blocks of a mutated file are those of the sound one."""
    return _kept(codec, payload) if len(payload) < 4096 else codecs.compress(codec, payload)


@lru_cache(20_000)
def _kept(codec: Codec, payload: bytes) -> bytes:
    return bytes(codecs.compress(codec, payload))


def check_values(covered: bytes, kind: int, chunk_bytes: int) -> bytes:
    """The checksum area; where the numbers make no sense, one of any size."""
    if chunk_bytes <= 0:
        return bytes(4)
    chunk_bytes = max(chunk_bytes, len(covered) // 1000 + 1)
    chunks = [covered[at : at + chunk_bytes] for at in range(0, len(covered), chunk_bytes)]
    if kind == 1:
        return b"".join(zlib.crc32(one).to_bytes(4, "big") for one in chunks)
    if kind == 2:
        return b"".join(google_crc32c.value(one).to_bytes(4, "big") for one in chunks)
    return bytes(4 * len(chunks))


def place_of(link: Link) -> bytes:
    child = link.child
    place = (child.offset, child.size) if child else (0, 0)
    return PLACE.pack(*(link.lie(*place) if link.lie else place))


def pb_field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return wire.write_bytes_field(number, value)
    return wire.write_varint_field(number, value)


def records_of(payload: bytes) -> list[tuple[int, int]]:
    """(start, end) of every record of a sound DATA payload with one-byte mvcc numbers."""
    places: list[tuple[int, int]] = []
    at = 0
    while at < len(payload):
        key, value = struct.unpack_from(">ii", payload, at)
        if min(key, value) < 0:
            raise struct.error("the payload is not sound")
        places.append((at, at + 9 + key + value))
        at = places[-1][1]
    return places


def entries_in(payloads: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The rows and values of sound DATA payloads."""
    found: list[tuple[bytes, bytes]] = []
    for payload in payloads:
        for start, end in records_of(payload):
            key, _, row = struct.unpack_from(">iih", payload, start)
            value = payload[start + 8 + key : end - 1]
            found.append((payload[start + 10 : start + 10 + row], value))
    return found


def _blocks(body: bytes, codec: Codec) -> Iterator[RawBlock]:
    at = 0
    while at < len(body) - TRAILER_SIZE:
        magic, on_disk, size, _, checksum, chunk, covered = HEADER.unpack_from(body, at)
        payload = bytes(codecs.decompress(codec, body[at + HEADER.size : at + covered], size))
        block = RawBlock(magic, payload, checksum=checksum, chunk_bytes=chunk, offset=at)
        block.size, block.payload_size = HEADER.size + on_disk, size
        yield block
        at += block.size


def _root_links(
    block: RawBlock, count: int, places: dict[int, RawBlock]
) -> tuple[list[Link], bytes]:
    links: list[Link] = []
    at = 0
    for _ in range(count):
        offset, _ = PLACE.unpack_from(block.payload, at)
        size, start = wire.read_hadoop(block.payload, at + PLACE.size)
        links.append(Link(places[offset], block.payload[start : start + size]))
        at = start + size
    return links, block.payload[at:]


def _inner_links(block: RawBlock, places: dict[int, RawBlock]) -> list[Link]:
    payload = block.payload
    count = int.from_bytes(payload[:4], "big")
    area = 8 + 4 * count
    positions = struct.unpack_from(f">{count + 1}i", payload, 4)
    links: list[Link] = []
    for number in range(count):
        start, end = area + positions[number], area + positions[number + 1]
        offset, _ = PLACE.unpack_from(payload, start)
        links.append(Link(places[offset], payload[start + PLACE.size : end]))
    return links
