"""Damage and malice: from a sound file and a number, the bytes of a mutated one.

Plain damage is done to the bytes: whatever protects them is then wrong. The other mutations
change what the file *says* (sizes, counts, places, keys, records, facts, hints) before it is
laid out, so that compression, sizes, offsets and checksums are right again and only the
content can be refused; or they change the layout itself.

Everything follows from the file's name and the number, so that a failure can be repeated.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from metatable.storage.errors import MetatableError
from metatable.storage.hfile import codec as codecs
from metatable.storage.hfile import file_info, record_sizes, wire
from metatable.storage.hfile.codec import Codec
from tests.storage.hfile import raw_file
from tests.storage.hfile.raw_file import DATA, INNER, LEAF, META, Edit, Link, RawBlock, RawFile
from tests.storage.hfile.sound_files import FILTER, SUFFIX, record

__all__ = ["Mutated", "mutated"]

_MARKS = (0, 1, -1, 2, 4, 12, 33, 127, 128, 255, 256, 4096, 65535, 1 << 15, (1 << 15) - 1)
_LARGE = (1 << 16, 1 << 24, 1 << 30, (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 32) - 1)
_HUGE = (1 << 32, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), -(1 << 40))
_TRAILER_SIZE = raw_file.TRAILER_SIZE
_UNFIT = (struct.error, IndexError, OverflowError, ValueError)


@dataclass(frozen=True)
class Mutated:
    """A mutated file, and what was done to it."""

    body: bytes
    told: str
    plain: bool
    """Only bytes before the trailer were damaged: no answer may differ unseen."""
    hints: bool = False
    """Only hints were changed: nothing but what the file holds may be answered."""


def mutated(base: RawFile, number: int) -> Mutated:
    """File `number` made of `base`."""
    rng = random.Random(f"{base.name}:{number}")
    if rng.random() < 0.25:
        return _plain(base, rng)
    bent = base.copy()
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        told.append(_bend(bent, rng))
    try:
        body = bent.build()
    except _UNFIT as error:  # two lies that do not go together
        return Mutated(base.build(), f"{told}: {error}", plain=True)
    if rng.random() < 0.03:
        damaged, also = _damage(body, rng)
        body, told = damaged, [*told, also]
    hints = all(one.startswith(("sizes ", "filter ")) for one in told)
    return Mutated(body, ", ".join(told), plain=False, hints=hints)


def _bend(bent: RawFile, rng: random.Random) -> str:
    """Do one thing that can be done to this file, and tell what."""
    for kind in rng.sample(_KINDS, len(_KINDS)):
        try:
            done = kind(bent, rng)
        except (MetatableError, *_UNFIT):  # an earlier one left nothing for it
            continue
        if done:
            return f"{kind.__name__[1:]} {done}"
    return ""


def _plain(base: RawFile, rng: random.Random) -> Mutated:
    body = base.build()
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        body, done = _damage(body, rng, (len(body) - _TRAILER_SIZE) if rng.random() < 0.9 else None)
        told.append(done)
    sound = body[-_TRAILER_SIZE:] == base.build()[-_TRAILER_SIZE:]
    return Mutated(body, ", ".join(told), plain=sound and base.blocks[0].checksum != 0)


def _damage(body: bytes, rng: random.Random, limit: int | None = None) -> tuple[bytes, str]:
    """`body` with some bytes changed, gone, new or moved, below `limit`."""
    if not body:
        return rng.randbytes(5), "5 bytes"
    limit = len(body) if limit is None else min(max(limit, 1), len(body))
    at = rng.randrange(limit)
    size = min(rng.choice((1, 1, 2, 4, 8, 33, 100)), limit - at)
    part = body[at : at + size]
    noise = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size))
    other = rng.randrange(limit)
    match rng.choice(("bit", "bit", "bit", "noise", "insert", "delete", "double", "move", "cut")):
        case "bit":
            new, told = bytes((body[at] ^ 1 << rng.randrange(8),)) + body[at + 1 : at + size], "bit"
        case "noise":
            new, told = noise, f"{size} bytes of noise"
        case "insert":
            new, told = noise + part, f"{size} bytes more"
        case "delete":
            new, told = b"", f"{size} bytes less"
        case "double":
            new, told = part * 2, f"{size} bytes twice"
        case "move":
            new, told = body[other : other + size], f"{size} bytes from {other}"
        case _:
            return (body[:at], f"cut at {at}") if rng.random() < 0.5 else (body[at:], f"from {at}")
    return body[:at] + new + body[at + size :], f"{told} at {at}"


def _number(rng: random.Random, old: int, bits: int) -> int:
    """Something else that fits into so many bits: near, at an edge, huge, or any."""
    near = (
        old + 1,
        old - 1,
        old * 2,
        old // 2,
        -old,
        old + 4,
        old - 4,
        old ^ 1 << rng.randrange(7),
    )
    wide = (*near, *near, *_MARKS, *_LARGE, *(_HUGE if bits == 64 else ()), rng.getrandbits(bits))
    return _fit(rng.choice(wide), bits)


def _fit(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _put(raw: bytes, at: int, new: bytes) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


def _patch(payload: bytes, rng: random.Random) -> bytes:
    """Some bytes of a payload changed: an integer somewhere, or noise."""
    if not payload:
        return rng.randbytes(rng.randrange(1, 40))
    at = rng.randrange(len(payload))
    if rng.random() < 0.5:
        width = rng.choice((1, 2, 4, 8))
        part = payload[at : at + width]
        old = int.from_bytes(part, "big", signed=True)
        new = _number(rng, old, 8 * width).to_bytes(width, "big", signed=True)
        return _put(payload, at, new[: len(part)])
    return _damage(payload, rng)[0]


def _any_block(bent: RawFile, rng: random.Random) -> RawBlock:
    """Each section as often as the others, however many data blocks there are."""
    data, meta, info = bent.roots
    some = [bent.of(DATA), bent.of(LEAF, INNER), bent.of(META), [data], [meta], [info]]
    return rng.choice(rng.choice([one for one in some if one]))


def _index_block(bent: RawFile, rng: random.Random) -> RawBlock:
    return rng.choice([*bent.of(LEAF, INNER), *bent.roots[:2]])


def _header(bent: RawFile, rng: random.Random) -> str:
    """A header field that lies, under right checksums."""
    block = _any_block(bent, rng)
    place = rng.choice((0, 1, 1, 2, 3, 4, 5))
    bits = (32, 32, 64, 8, 32, 32)[place]
    fixed = rng.random() < 0.5

    def lie(fields: list[int]) -> None:
        fields[place] = _number(rng, fields[place], bits)
        if place == 3:
            fields[3] &= 255
        if fixed and fields[4] > 0:  # the others follow, so that sizes agree with each other
            fields[0] = _fit(fields[5] - 33 + 4 * -(-fields[5] // fields[4]), 32)

    block.on_header.append(lie)
    return f"field {place} of {block.magic!r}"


def _checking(bent: RawFile, rng: random.Random) -> str:
    """Another checksum type or chunk size, which is in order, or another kind of block."""
    block = _any_block(bent, rng)
    which = rng.randrange(3)
    if which == 0:
        block.checksum = rng.randrange(3)
    elif which == 1:
        block.chunk_bytes = rng.choice((1, 4, 16, 33, 34, 64, 1 << 20, (1 << 31) - 1))
    else:
        block.magic = rng.choice(
            (DATA, LEAF, INNER, META, raw_file.ROOT, raw_file.INFO, b"DATABLKE")
        )
    return f"{which} of {block.magic!r}"


def _record_field(bent: RawFile, rng: random.Random) -> str:
    """A field of a record: lengths, row, family, time, type, value, mvcc number."""
    blocks = bent.of(DATA)
    if not blocks:
        return ""
    block = rng.choice(blocks)
    places = _records(block.payload)
    start, end = rng.choice(places)
    row_size = int.from_bytes(block.payload[start + 8 : start + 10], "big")
    key_end = start + 10 + row_size + len(SUFFIX)
    at, width = rng.choice(
        (
            *((start, 4), (start + 4, 4), (start + 8, 2), (start, 4), (start + 4, 4)),
            *((start + 10 + row_size, 1), (start + 11 + row_size, 8), (key_end - 1, 1)),
            *((end - 1, 1), (end - 1, 1), (start + 10, 1), (key_end, 1)),
        )
    )
    old = int.from_bytes(block.payload[at : at + width], "big", signed=True)
    new = _number(rng, old, 8 * width).to_bytes(width, "big", signed=True)
    block.payload = _put(block.payload, at, new)
    return f"byte {at} of {len(block.payload)}: {new.hex()}"


def _records(payload: bytes) -> list[tuple[int, int]]:
    """(start, end) of the records, as far as they are in order; never none."""
    try:
        places = raw_file.records_of(payload)
    except struct.error:
        return [(0, 10)]
    return [one for one in places if one[1] > one[0]] or [(0, 10)]


def _record_list(bent: RawFile, rng: random.Random) -> str:
    """Records gone, doubled, swapped, moved to another block, or new."""
    blocks = bent.of(DATA)
    if not blocks:
        return ""
    block = rng.choice(blocks)
    parts = [block.payload[start:end] for start, end in _records(block.payload)]
    at = rng.randrange(len(parts))
    what = rng.choice(("gone", "twice", "swapped", "moved", "new", "wide", "many"))
    if what == "gone":
        del parts[at]
    elif what == "twice":
        parts.insert(at, parts[at])
    elif what == "swapped":
        other = rng.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif what == "moved":
        target = rng.choice(blocks)
        target.payload += parts[at]
    elif what == "new":
        parts.insert(at, record(rng.randbytes(rng.randrange(9)), rng.randbytes(rng.randrange(9))))
    elif what == "wide":
        value = rng.choice((b"\x8f\x80", b"\x8e\1\0", b"\xff", b"\x80" + b"\xff" * 8, b"\x88"))
        parts.insert(at, record(b"k%d" % at, b"v", mvcc=value))
    else:
        parts[at:at] = [parts[at]] * rng.choice((100, 1000))
    block.payload = b"".join(parts)
    return what


def _payload(bent: RawFile, rng: random.Random) -> str:
    """Any bytes of any payload, compressed and checked anew."""
    block = _any_block(bent, rng)
    seed = rng.getrandbits(32)
    block.on_payload.append(lambda payload: _patch(payload, random.Random(seed)))
    return repr(block.magic)


def _stored(bent: RawFile, rng: random.Random) -> str:
    """Compressed bytes that are not what the codec makes, under right checksums."""
    block = _any_block(bent, rng)
    seed = rng.getrandbits(32)
    what = rng.choice(("damaged", "cut", "more", "twice", "other codec", "empty", "framing"))
    other = rng.choice([one for one in codecs.SUPPORTED if one is not bent.codec])
    sizes = struct.pack(">II", *(abs(_number(rng, 100, 32)) for _ in range(2)))
    edits: dict[str, Edit] = {
        "damaged": lambda raw: _patch(raw, random.Random(seed)),
        "cut": lambda raw: raw[: seed % (len(raw) + 1)],
        "more": lambda raw: raw + seed.to_bytes(4, "big"),
        "twice": lambda raw: raw * 2,
        "other codec": lambda raw: codecs.compress(other, raw),
        "empty": lambda raw: b"",
        "framing": lambda raw: _put(raw, seed % 2 * 4, sizes[: 4 + seed // 2 % 2 * 4]),
    }
    block.on_stored.append(edits[what])
    return f"{what} in {block.magic!r}"


def _link_place(bent: RawFile, rng: random.Random) -> str:
    """An index entry that leads elsewhere: another block, backward, itself, out of the file."""
    block = _index_block(bent, rng)
    links = block.links
    if not links:
        return ""
    link = rng.choice(links)
    if rng.random() < 0.5:
        link.child = rng.choice([*bent.blocks, block])
        return f"to {link.child.magic!r}"
    shift, which = rng.getrandbits(32), rng.randrange(3)

    def lie(offset: int, size: int) -> tuple[int, int]:
        dice = random.Random(shift)
        if which != 1:
            offset = _number(dice, offset, 64)
        return (offset, size if which == 0 else _number(dice, size, 32))

    link.lie = lie
    return "to nowhere"


def _link_key(bent: RawFile, rng: random.Random) -> str:
    """An index entry with another key: no key at all, too long, empty, out of order."""
    block = _index_block(bent, rng)
    if not block.links:
        return ""
    link = rng.choice(block.links)
    row = rng.choice((b"", b"\0", b"k5", b"\xff" * 20, rng.randbytes(rng.randrange(300))))
    link.key = rng.choice(
        (
            _patch(link.key, rng),
            len(row).to_bytes(2, "big") + row + SUFFIX,
            len(row).to_bytes(2, "big") + row,
            b"\xff\xff" + row,
            row,
            b"",
        )
    )
    return f"{link.key[:40]!r} in {block.magic!r}"


def _link_list(bent: RawFile, rng: random.Random) -> str:
    """Index entries gone, doubled, swapped; a leaf of another; a level more; a cycle."""
    block = _index_block(bent, rng)
    links = block.links
    if not links:
        return ""
    at, other = rng.randrange(len(links)), rng.randrange(len(links))
    what = rng.choice(("gone", "all gone", "twice", "swapped", "cycle", "many", "tail"))
    if what == "gone":
        del links[at]
    elif what == "all gone":
        links.clear()
    elif what == "twice":
        links.insert(at, links[at])
    elif what == "swapped":
        links[at], links[other] = links[other], links[at]
    elif what == "cycle":
        links[:] = [Link(block, links[at].key)]
    elif what == "many":
        links[at:at] = [links[at]] * 200
    else:
        block.behind = rng.randbytes(rng.choice((1, 15, 16, 17)))
    return f"{what} in {block.magic!r}"


def _index_number(bent: RawFile, rng: random.Random) -> str:
    """A count, a position or a key length of an index that lies; a VInt without end."""
    block = _index_block(bent, rng)
    seed = rng.getrandbits(32)

    def lie(payload: bytes) -> bytes:
        dice = random.Random(seed)
        if block.magic == raw_file.ROOT:
            at = 12 if dice.random() < 0.7 else dice.randrange(len(payload) + 1)
            long = dice.choice(
                (b"\x8c\x7f\xff\xff\xff", b"\x88" + b"\x7f" + b"\xff" * 7, b"\xff" * 11)
            )
            return payload[:at] + dice.choice((long, b"\x80", b"\x90", b"\0")) + payload[at + 1 :]
        at = 4 * dice.randrange(min(6, len(payload) // 4))
        old = int.from_bytes(payload[at : at + 4], "big", signed=True)
        return _put(payload, at, _number(dice, old, 32).to_bytes(4, "big", signed=True))

    block.on_payload.append(lie)
    return repr(block.magic)


def _info(bent: RawFile, rng: random.Random) -> str:
    """FILE_INFO pairs: gone, changed, new; its magic, lengths and fields."""
    info = bent.roots[2]
    payload = info.payload
    what = rng.choice(("gone", "value", "value", "new", "magic", "length", "bytes"))
    facts = file_info.decode_file_info(payload, "", 0) if payload[:4] == b"PBUF" else {}
    name = rng.choice(sorted(facts)) if facts else b""
    if what == "gone":
        facts.pop(name, None)
    elif what == "value":
        facts[name] = _patch(facts.get(name, b""), rng)
    elif what == "new":
        names = (b"hfile.MAX_TAGS_LEN", b"DATA_BLOCK_ENCODING", *file_info.RESERVED)
        facts[rng.choice((*names, record_sizes.FACT, FILTER.encode()))] = rng.choice(
            (
                b"",
                b"NONE",
                bytes(4),
                bytes(8),
                b"\0\0\0\2",
                b"\xff" * 8,
                b"\xff\xfe",
                rng.randbytes(8),
            )
        )
    else:
        return _info_bytes(info, what, rng)
    info.payload = file_info.encode_file_info(facts)
    return f"{what} {name!r}"


def _info_bytes(info: RawBlock, what: str, rng: random.Random) -> str:
    payload = info.payload
    if what == "magic":
        info.payload = rng.choice((b"PBUE", b"", b"P")) + payload[4:]
    elif what == "length":
        long = rng.choice((b"\xff" * 11, wire.write_varint(_number(rng, 60, 64)), b"\x80\0", b""))
        info.payload = payload[:4] + long + payload[5:]
    else:
        info.payload = _patch(payload, rng)
    return what


def _trailer_field(bent: RawFile, rng: random.Random) -> str:
    """A trailer field: another number, none, twice, of another kind; new fields."""
    fields = bent.trailer
    at = rng.randrange(len(fields))
    number, value = fields[at]
    what = rng.choice(("number", "number", "number", "gone", "twice", "kind", "new", "near"))
    if what in ("number", "near"):
        old = value if isinstance(value, int) else 0
        honest = bent._facts().get(number, old) if what == "near" else old
        fields[at] = number, _number(rng, honest if isinstance(honest, int) else 0, 64)
        bent.keep.add(number)
    elif what == "gone":
        del fields[at]
    elif what == "twice":
        fields.append((number, _number(rng, 1, 64)))
        bent.keep.add(number)
    elif what == "kind":
        fields[at] = number, rng.randbytes(rng.randrange(20))
        bent.keep.add(number)
    else:
        fields.append((rng.choice((0, 13, 14, 99, 1 << 28)), rng.choice((7, b"x", -1))))
    return f"{number}: {what}"


def _trailer_bytes(bent: RawFile, rng: random.Random) -> str:
    """Bytes of the trailer's message, or of the trailer."""
    seed = rng.getrandbits(32)
    place = rng.choice((bent.on_message, bent.on_message, bent.on_trailer))

    def damage(raw: bytes) -> bytes:
        dice = random.Random(seed)
        if len(raw) != _TRAILER_SIZE:
            return _patch(raw, dice)
        at = dice.choice(
            (dice.randrange(12), dice.randrange(150), _TRAILER_SIZE - 1 - dice.randrange(5))
        )
        return _put(raw, at, dice.randbytes(1))

    place.append(damage)
    return "message" if place is bent.on_message else "trailer"


def _blocks(bent: RawFile, rng: random.Random) -> str:
    """Blocks swapped, doubled, gone, or with each other's content."""
    at, other = rng.randrange(len(bent.blocks)), rng.randrange(len(bent.blocks))
    one, two = bent.blocks[at], bent.blocks[other]
    what = rng.choice(("swapped", "content", "twice", "gone"))
    if what == "swapped":
        bent.blocks[at], bent.blocks[other] = two, one
    elif what == "content":
        one.payload, two.payload = two.payload, one.payload
        one.links, two.links = two.links, one.links
    elif what == "twice":
        bent.blocks.insert(at, RawBlock(two.magic, two.payload, two.links, checksum=two.checksum))
    elif len(bent.blocks) > 4 and at < len(bent.blocks) - 3:
        del bent.blocks[at]
    return what


def _sizes(bent: RawFile, rng: random.Random) -> str:
    """The hint of record sizes: widths, counts, sizes; sums that stay right."""
    block = bent.meta(record_sizes.META)
    if block is None:
        return ""
    raw = block.payload
    key_width, value_width = raw[1], raw[2]
    counts = int.from_bytes(raw[4:8], "big")
    what = rng.choice(("header", "shift", "shift", "swap", "counts", "bytes", "cut", "more"))
    keys_at = 16 + 4 * counts
    if what == "header":
        at, width = rng.choice(((0, 1), (1, 1), (2, 1), (3, 1), (4, 4), (8, 8)))
        old = int.from_bytes(raw[at : at + width], "big", signed=True)
        new = _number(rng, old, 8 * width)
        block.payload = _put(raw, at, new.to_bytes(width, "big", signed=True))
    elif what in ("shift", "swap", "counts"):
        places = {"shift": (keys_at, key_width), "swap": (keys_at, 1), "counts": (16, 4)}
        at, width = places[what]
        if what == "shift" and rng.random() < 0.5:
            entries = int.from_bytes(raw[8:16], "big")
            at, width = keys_at + (key_width * entries or 4), value_width
        block.payload = _balanced(raw, at, max(width, 1), rng)
    elif what == "bytes":
        block.payload = _patch(raw, rng)
    else:
        block.payload = raw[: -rng.randrange(1, 9)] if what == "cut" else raw + rng.randbytes(4)
    return what


def _balanced(raw: bytes, at: int, width: int, rng: random.Random) -> bytes:
    """One number a little more, another as much less, so that sums stay as they are."""
    count = (len(raw) - at) // width
    if count < 2:
        return _patch(raw, rng)
    numbers = [
        int.from_bytes(raw[at + n * width : at + n * width + width], "big") for n in range(count)
    ]
    step = rng.randrange(1, 4)
    low = rng.choice([n for n in range(count) if numbers[n] >= step] or [0])
    high = (low + 1) % count if rng.random() < 0.5 else rng.randrange(count)
    numbers[low] = max(numbers[low] - step, 0)
    numbers[high] = min(numbers[high] + step, (1 << 8 * width) - 1)
    body = b"".join(number.to_bytes(width, "big") for number in numbers)
    return _put(raw, at, body)


def _filter(bent: RawFile, rng: random.Random) -> str:
    """The filter: its bytes, its kind, another file's."""
    block = bent.meta(FILTER)
    if block is None:
        return ""
    block.payload = rng.choice((_patch(block.payload, rng), b"", block.payload[:-1], bytes(64)))
    return f"{len(block.payload)} bytes"


def _bomb(bent: RawFile, rng: random.Random) -> str:
    """A payload that becomes much larger than what is stored, true to its header or not."""
    block = _any_block(bent, rng)
    what = rng.choice(("true", "short", "long", "huge"))
    size = rng.choice((1 << 17, 1 << 20) if what in ("true", "long") else (1 << 20, 32 << 20))
    if bent.codec is Codec.NONE:  # nothing becomes larger than it is
        what, size = rng.choice(("short", "long", "huge")), 1 << 17
    large = rng.choice((bytes(size), record(b"k", bytes(size)), b"\xff" * size))
    before = block.payload_size
    claims = {"short": 100, "long": size * 2, "huge": (1 << 31) - 1}
    block.on_payload.append(lambda payload: payload + large)

    def lie(fields: list[int]) -> None:
        fields[1] = claims.get(what, fields[1])

    block.on_header.append(lie)
    return f"{what} {size} over {before} in {block.magic!r}"


def _levels(bent: RawFile, rng: random.Random) -> str:
    """More or fewer levels than the index has, or more entries in its root."""
    levels = rng.choice((0, 2, 3, 4, 16, 17, 1 << 20, -1))
    numbers = {8: levels} if rng.random() < 0.7 else {5: rng.choice((0, 1, 2, 100, 1 << 40))}
    bent.trailer = [(number, numbers.get(number, value)) for number, value in bent.trailer]
    bent.keep |= set(numbers)
    return str(numbers)


_KINDS: tuple[Callable[[RawFile, random.Random], str], ...] = (
    *(_header, _header, _checking, _record_field, _record_field, _record_list, _payload),
    *(_payload, _stored, _stored, _link_place, _link_key, _link_list, _index_number, _info),
    *(_trailer_field, _trailer_bytes, _blocks, _sizes, _sizes, _filter, _bomb, _levels),
)
