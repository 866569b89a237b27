"""Forms: what HBase and Hudi wrote, written again byte for byte; and golden files of each form.

`METATABLE_GOLDEN=1` makes the golden files anew. They are read by people, too: review them.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from metatable.storage.errors import UsageError
from metatable.storage.hfile.block import HEADER_SIZE, BlockType
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec, compress, decompress
from metatable.storage.hfile.file_info import RESERVED
from metatable.storage.hfile.forms import HBASE, HUDI, OURS, Form, java_order
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.trailer import TRAILER_SIZE
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, blocks_of, cold, entries_of, write
from tests.storage.hfile.raw_file import check_values

FOLDER = Path(__file__).parent / "golden"
GZIP_SYSTEM = 9
"""Where a gzip member names its operating system."""
HFILE_BLOCK = 4
"""The type of a log block whose content is an HFile."""


# Files of others


class Found(NamedTuple):
    """An HFile of somebody else's: where it was, and its bytes."""

    name: str
    body: bytes


def hfiles_of(place: Path) -> Iterator[Found]:
    """That of a path, or those of a zipped table, the ones in its log files included."""
    if place.suffix == ".hfile":
        yield Found(place.name, place.read_bytes())
        return
    with zipfile.ZipFile(place) as table:
        for path in table.namelist():
            if "__MACOSX" in path or "/.hoodie/metadata/" not in path or path.endswith(".crc"):
                continue
            if path.endswith(".hfile"):
                yield Found(path, table.read(path))
            elif ".log." in path:
                for content in hfile_blocks(table.read(path)):
                    yield Found(path, content)


def hfile_blocks(log: bytes) -> Iterator[bytes]:
    """The HFiles in a log file: magic, size, version, type, header map, size, content."""
    at = 0
    while at < len(log):
        assert log[at : at + 6] == b"#HUDI#"
        size, _, kind = struct.unpack_from(">qii", log, at + 6)
        if kind == HFILE_BLOCK:
            place = at + 26
            for _ in range(*struct.unpack_from(">i", log, at + 22)):
                place += 8 + int.from_bytes(log[place + 4 : place + 8], "big")
            (length,) = struct.unpack_from(">q", log, place)
            yield log[place + 8 : place + 8 + length]
        at += 14 + size


def written_again(store: Store, found: Found) -> bytes:
    """The file that our writer makes of another's entries, META blocks and facts."""
    store.put("theirs.hfile", found.body)
    theirs = cold(store, "theirs.hfile", len(found.body))
    entries = entries_of(theirs)
    with HFileWriter(store, "again.hfile", **options_of(found.name, theirs)) as file:
        file.add(binary(key for key, _ in entries), binary(value for _, value in entries))
        for name in theirs.opened.meta:
            file.add_meta(name, theirs.meta(name) or b"")
        for name, value in theirs.file_info.items():
            if name not in RESERVED:
                file.add_file_info(name.decode(), value)
    return store.fetch("again.hfile")


def options_of(name: str, theirs: HFileReader) -> dict[str, Any]:
    """What its writer was told: the name says it, or no entry does."""
    size = re.search(r"_(\d+)KB_", name)
    form = replace(
        HBASE if theirs.trailer.minor == 3 else HUDI,
        comparator=theirs.trailer.comparator_class_name,
        create_time_ms=int.from_bytes(theirs.file_info[b"hfile.CREATE_TIME_TS"], "big"),
    )
    return {
        "codec": theirs.trailer.compression_codec,
        "block_size_bytes": int(size[1]) << 10 if size else 1 << 20,
        "index_chunk_bytes": 2048 if "deep_index" in name else 128 << 10,
        "unique": "non_unique" not in name,
        "form": form,
    }


def of_java_8(body: bytes) -> bytes:
    """A GZ file as Java 8 would have written it: since 16, Java says `ff` for the system in gzip
    members, and before 0. Checksums follow."""
    changed = bytearray(body)
    for at, header in blocks_of(body):
        assert changed[at + HEADER_SIZE + GZIP_SYSTEM] in (0, 0xFF)
        changed[at + HEADER_SIZE + GZIP_SYSTEM] = 0
        covered = bytes(changed[at : at + header.covered_size])
        values = check_values(covered, header.checksum, header.chunk_bytes)
        changed[at + header.covered_size : at + header.size] = values
    return bytes(changed)


def payloads(body: bytes, codec: Codec) -> list[tuple[BlockType, bytes]]:
    """What does not depend on how well the codec does: all but indexes, which hold offsets."""
    kinds = (BlockType.DATA, BlockType.META, BlockType.FILE_INFO)
    return [
        (
            header.kind,
            decompress(
                codec, body[at + HEADER_SIZE : at + header.covered_size], header.payload_size
            ),
        )
        for at, header in blocks_of(body)
        if header.kind in kinds
    ]


def zlib_is_javas(body: bytes) -> bool:
    """Whether the first block, compressed here, is what it is there."""
    at, header = next(blocks_of(body))
    stored = body[at + HEADER_SIZE : at + header.covered_size]
    payload = decompress(Codec.GZ, stored, header.payload_size)
    return compress(Codec.GZ, payload, like_java=True) == stored


@pytest.mark.parametrize(
    ("pattern", "hbase", "hudi"),
    [("hfile/*.hfile", 7, 0), ("hudi/*.zip", 59, 191), ("hudi-spark/*.zip", 66, 221)],
)
def test_files_of_others_are_written_again_byte_for_byte(
    pattern: str, hbase: int, hudi: int, interop: Path
) -> None:
    store = Store("memory://forms")
    count = {3: 0, 0: 0}
    for place in sorted(interop.glob(pattern)):
        for found in hfiles_of(place):
            again = written_again(store, found)
            codec = cold(store, "theirs.hfile").trailer.compression_codec
            expected = of_java_8(found.body) if codec is Codec.GZ else found.body
            if codec is Codec.GZ and not zlib_is_javas(expected):
                assert payloads(again, codec) == payloads(expected, codec), found.name
            else:
                assert again == expected, found.name
            count[found.body[-4]] += 1
    assert count == {3: hbase, 0: hudi}


# Golden files


def dump(body: bytes) -> str:
    """Block by block, 16 bytes a line with their offset and text; zeros at the end are left out."""
    lines: list[str] = []
    for at, header in blocks_of(body):
        lines.append(
            f"-- {header.kind.name}: payload {header.payload_size}, "
            f"previous {header.previous_offset}, {header.checksum.name} of {header.chunk_bytes}"
        )
        lines += rows(body, at, at + HEADER_SIZE)
        lines += rows(body, at + HEADER_SIZE, at + header.covered_size)
        lines += rows(body, at + header.covered_size, at + header.size)
    lines.append("-- TRAILER")
    start = len(body) - TRAILER_SIZE
    for at in range(start, len(body), 16):
        if any(body[at : at + 16]):
            lines += rows(body, at, at + 16)
    return "\n".join(lines) + "\n"


def rows(body: bytes, start: int, end: int) -> Iterator[str]:
    for at in range(start, end, 16):
        row = body[at : min(at + 16, end)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:06x}  {row.hex(' '):<47}  {text}".rstrip()


FEW = {b"k%d" % number: b"value" * number for number in range(6)}
MANY = {b"key-%02d" % number: b"v%d" % number for number in range(53)}
DATED = replace(HUDI, create_time_ms=1_700_000_000_000)
GOLDEN: dict[str, tuple[dict[bytes, bytes], dict[str, Any]]] = {
    "ours_none_100_byte_blocks_6_keys": (FEW, {"block_size_bytes": 100}),
    "hudi_none_6_keys": (FEW, {"form": DATED}),
    "hudi_none_no_keys": ({}, {"form": DATED}),
    "hbase_none_50_byte_blocks_6_keys": (FEW, {"block_size_bytes": 50, "form": HBASE}),
    "hbase_none_1_byte_blocks_53_keys_3_index_levels": (
        MANY,
        {"block_size_bytes": 1, "index_chunk_bytes": 100, "form": HBASE},
    ),
}
"""Entries and options of the writer."""


@pytest.mark.parametrize("name", GOLDEN)
def test_uncompressed_files_have_the_golden_bytes(name: str) -> None:
    entries, options = GOLDEN[name]
    store = Store("memory://golden")
    meta = {"bloomFilter": b"text", "alpha": b"first"}
    facts = {"minRecordKey": b"k0", "maxRecordKey": b"k5"}
    write(store, "a.hfile", entries, codec=Codec.NONE, meta=meta, facts=facts, **options)
    assert entries_of(cold(store, "a.hfile")) == sorted(entries.items())
    path = FOLDER / f"{name}.hex"
    if os.environ.get("METATABLE_GOLDEN") == "1":
        path.write_text(dump(store.fetch("a.hfile")))
    assert dump(store.fetch("a.hfile")) == path.read_text()


# Rules that are one form's


def test_java_lists_names_by_bucket_and_then_in_the_order_given() -> None:
    names = [
        *(b"schema", b"bloomFilterTypeCode", b"hfile.LASTKEY", b"hfile.AVG_VALUE_LEN"),
        *(b"minRecordKey", b"hfile.AVG_KEY_LEN", b"maxRecordKey", b"KEY_VALUE_VERSION"),
        *(b"MAX_MEMSTORE_TS_KEY", b"hfile.CREATE_TIME_TS"),
    ]
    assert java_order(names) == names
    names[2], names[3] = names[3], names[2]  # of one bucket
    assert java_order(sorted(names)) == names
    assert java_order([]) == []
    assert java_order([b"Aa", b"BB"]) == [b"Aa", b"BB"]  # of one hash
    assert java_order([b"BB", b"Aa"]) == [b"BB", b"Aa"]


def test_java_doubles_its_buckets_with_the_thirteenth_name() -> None:
    names = [b"Q", b"A", b"a", *(b"%d" % number for number in range(9))]  # codes 81, 65, 97, 48…
    assert java_order(names)[:5] == [b"0", b"Q", b"A", b"a", b"1"]
    assert java_order([*names, b"9"])[:5] == [b"A", b"a", b"0", b"Q", b"1"]


@pytest.mark.parametrize("form", [HUDI, HBASE], ids=lambda form: form.name)
def test_only_our_form_has_hints(form: Form) -> None:
    store = Store("memory://hints")
    entries = {b"%03d" % number: b"x" * number for number in range(50)}
    write(store, "a.hfile", entries, block_size_bytes=200, form=form)
    reader = cold(store, "a.hfile")
    assert not [name for name in reader.file_info if name.startswith(b"metatable.")]
    assert not reader.opened.meta
    with pytest.raises(UsageError, match="has no filter"):
        HFileWriter(store, "a.hfile", form=form, filter_kind="fingerprints")


def test_data_blocks_of_hudis_form_name_themselves_but_for_the_first() -> None:
    store = Store("memory://links")
    entries = {b"%03d" % number: b"" for number in range(9)}
    write(store, "a.hfile", entries, block_size_bytes=1, form=HUDI, meta={"a": b"", "b": b""})
    for at, header in blocks_of(store.fetch("a.hfile")):
        names_itself = header.kind is BlockType.DATA and at > 0
        assert header.previous_offset == (at if names_itself else -1)
        assert (header.checksum, header.chunk_bytes) == (Checksum.NULL, 16384)


def test_forms_differ_from_each_other_and_from_ours() -> None:
    store = Store("memory://differ")
    entries = {b"%03d" % number: b"x" * 30 for number in range(50)}
    bodies = set()
    for form in (OURS, HUDI, HBASE):
        write(store, "a.hfile", entries, block_size_bytes=200, form=form)
        bodies.add(store.fetch("a.hfile"))
        assert entries_of(cold(store, "a.hfile")) == sorted(entries.items())
    assert len(bodies) == 3
