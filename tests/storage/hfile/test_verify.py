"""`verify` says what is wrong with a file, and nothing of one in which nothing is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage import filters
from metatable.storage.hashing import xxh64
from metatable.storage.hfile import inspect, record_sizes
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import LASTKEY, decode_file_info, encode_file_info
from metatable.storage.hfile.record_sizes import META, RecordSizes
from metatable.storage.store import Store
from tests.storage.hfile.raw_file import DATA, INNER, LEAF, Link, RawBlock, RawFile
from tests.storage.hfile.sound_files import FILTER, SUFFIX, Form, laid_out, record, sound_files


def told(raw: RawFile) -> list[str]:
    store = Store("memory://verify")
    store.put("a.hfile", raw.build())
    return [f"{one.code}: {one.detail}" for one in inspect.verify(store, "a.hfile")]


def meta(raw: RawFile, name: str) -> RawBlock:
    block = raw.meta(name)
    assert block is not None
    return block


def links(block: RawBlock) -> list[Link]:
    assert block.links is not None
    return block.links


@pytest.mark.parametrize("name", sound_files())
def test_nothing_is_said_of_a_sound_file(name: str) -> None:
    assert told(sound_files()[name]) == []


# Index levels

DEEP = Form(Codec.GZ, "equal", levels=3)


def test_an_index_block_must_begin_with_the_key_that_leads_to_it() -> None:
    for magic in (LEAF, INNER):
        raw = laid_out(DEEP)
        block = raw.of(magic)[1]
        above = raw.roots[0] if magic == INNER else raw.of(INNER)[0]
        links(above)[1].key = key(b"k0000037")
        first = links(block)[0].key[2:10]
        assert told(raw)[0] == (
            f"index: first key {first!r} of an index block is not b'k0000037', which leads to it"
        )


def key(row: bytes) -> bytes:
    return len(row).to_bytes(2, "big") + row + SUFFIX


@pytest.mark.parametrize("magic", [LEAF, INNER])
def test_index_keys_must_ascend_in_every_block(magic: bytes) -> None:
    raw = laid_out(DEEP)
    entries = links(raw.of(magic)[0])
    entries[1].key = entries[0].key
    assert any(re.match(r"index: index key b'k\d+' follows b'k0000000'", one) for one in told(raw))


def test_levels_must_be_of_their_kinds() -> None:
    raw = laid_out(DEEP)
    raw.of(LEAF)[0].magic = INNER
    assert told(raw)[0].startswith("index: block is of another kind")


def test_a_damaged_index_block_does_not_hide_what_else_is_wrong() -> None:
    raw = laid_out(DEEP)
    raw.of(LEAF)[0].on_payload.append(lambda payload: payload[:-1])
    last = raw.of(DATA)[-1]
    last.payload = last.payload[:-1]
    codes = [one.split(":")[0] for one in told(raw)]
    assert codes == ["index", "block"]


def test_index_blocks_that_overlap_are_reported() -> None:
    raw = laid_out(DEEP)
    first, second = raw.of(INNER)[:2]
    links(first)[1].child = links(second)[0].child
    assert any("block index is malformed" in one for one in told(raw))


# Record sizes and filter

SIZES = Form(Codec.GZ, "mixed", hints="both")


def change(raw: RawFile, edit: Callable[[RecordSizes], RecordSizes]) -> RawFile:
    block = meta(raw, META)
    block.payload = edit(RecordSizes.decode(block.payload, "", 0)).encode()
    return raw


def bent(sizes: RecordSizes) -> RecordSizes:
    """One key a byte longer, the next as much shorter."""
    keys = np.array(sizes.key_sizes)
    keys[3], keys[4] = keys[3] + 1, keys[4] - 1
    return RecordSizes(sizes.block_counts, keys, sizes.value_sizes)


def moved(sizes: RecordSizes) -> RecordSizes:
    """One record counted in the block before its own."""
    counts = sizes.block_counts.copy()
    counts[0], counts[1] = counts[0] + 1, counts[1] - 1
    return RecordSizes(counts, sizes.key_sizes, sizes.value_sizes)


def fewer(sizes: RecordSizes) -> RecordSizes:
    return RecordSizes(sizes.block_counts[:-1], sizes.key_sizes, sizes.value_sizes)


def test_record_sizes_are_compared_with_the_records() -> None:
    said = "hint: the sizes of 6 records are not those of the META block"
    assert told(change(laid_out(SIZES), bent)) == [said]
    assert told(change(laid_out(SIZES), moved)) == [said] * 2


def test_record_sizes_of_other_blocks_are_reported() -> None:
    raw = laid_out(SIZES)
    block = meta(raw, META)
    block.payload = block.payload[:-1]
    assert [one.split(":")[:2] for one in told(raw)] == [["hint", " record sizes are malformed"]]
    raw = laid_out(SIZES)
    raw.of(DATA)[0].payload += record(b"k0000", b"")
    assert "hint: the sizes of 7 records are not those of the META block" in told(raw)


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (b"\0\0\0\7\0\0\0\5", "key of 8 bytes, expected 7, as file info says"),
        (b"\0\0\0\x08\0\0\0\4", "value of 5 bytes, expected 4, as file info says"),
        (b"\0\0\0\x08", "record sizes in file info are"),
    ],
)
def test_sizes_in_file_info_are_compared_with_the_records(fact: bytes, said: str) -> None:
    raw = laid_out(Form(Codec.GZ, "equal", hints="sizes"))
    with_facts(raw, {record_sizes.FACT: fact})
    found = told(raw)
    assert found
    assert all(one.startswith(f"hint: {said}") for one in found)


@pytest.mark.parametrize("at", range(10))
def test_records_of_another_form_than_sizes_can_say_are_reported(at: int) -> None:
    """Family, time and kind of a cell, one of whose bytes is another, and sizes that still agree:
    who looks for one key looks at them all."""
    raw = laid_out(Form(Codec.GZ, "equal", hints="sizes"))
    block = raw.of(DATA)[0]
    spoilt = bytearray(block.payload)
    second = len(record(b"k0000000", bytes(5))) + len(b"\0\0\0\0" * 2 + b"\0\x08k0000003") + at
    assert spoilt[second] == SUFFIX[at]
    spoilt[second] = 7
    block.payload = bytes(spoilt)
    found = told(raw)
    if at in (0, 9):  # no longer a record, or not one that HBase would show
        assert len(found) == 1
        assert found[0].startswith("block: records do not fit into their block")
    else:
        assert found == ["hint: record 1 is more than a row and a value, which file info denies"]


def test_a_longer_mvcc_number_is_reported_where_the_file_denies_it() -> None:
    raw = laid_out(Form(Codec.GZ, "equal", hints="sizes"))
    block = raw.of(DATA)[0]
    block.payload = block.payload[:-1] + b"\x8f\x7f"  # an mvcc of two bytes
    assert told(raw)[0] == "hint: record 5 is more than a row and a value, which file info denies"


def with_facts(raw: RawFile, new: dict[bytes, bytes]) -> None:
    info = raw.roots[2]
    info.payload = encode_file_info(decode_file_info(info.payload, "", 0) | new)


def test_a_filter_that_denies_a_key_is_reported() -> None:
    raw = laid_out(SIZES)
    some = xxh64(pa.array([row for row, _ in raw.entries[5:]], pa.binary()))
    meta(raw, FILTER).payload = filters.build("fingerprints", some, 1e-9).encode()
    with_facts(raw, {FILTER.encode(): b"fingerprints"})
    [finding] = told(raw)
    assert finding.startswith("filter: 5 keys are denied by the file's filter, such as [")
    assert repr([row for row, _ in raw.entries[:5]]) in finding


def test_a_filter_that_cannot_be_read_is_reported() -> None:
    raw = laid_out(SIZES)
    meta(raw, FILTER).payload = b""
    assert [one.split(":")[0] for one in told(raw)] == ["filter"]


# Totals


def test_sums_of_sizes_are_those_that_hbase_defines(interop: Path) -> None:
    store = Store(interop / "hfile")
    for file in sorted((interop / "hfile").iterdir()):
        assert inspect.verify(store, file.name) == []


@pytest.mark.parametrize(
    ("number", "name"), [(3, "uncompressed_data_index_size"), (4, "total_uncompressed_bytes")]
)
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_sums_of_sizes_are_compared_with_the_trailer(number: int, name: str, levels: int) -> None:
    raw = laid_out(Form(Codec.GZ, "equal", levels=levels))
    raw.build()
    right = raw._facts()[number]
    assert isinstance(right, int)
    raw.trailer = [(one, right + 1 if one == number else value) for one, value in raw.trailer]
    raw.keep = {number}
    said = f"count: expected {name} {right + 1}, as the trailer says, found {right}"
    assert told(raw) == [said]


def test_hudis_own_sums_are_nothing_to_complain_of() -> None:
    raw = laid_out(Form(Codec.GZ, "equal"))
    raw.trailer = [
        (3, 12345) if one == 3 else (one, value) for one, value in raw.trailer if one != 4
    ]
    raw.keep = {3}
    assert told(raw) == []


def test_meta_blocks_of_one_name_are_reported() -> None:
    raw = laid_out(Form(Codec.GZ, "equal"))
    index = links(raw.roots[1])
    index.append(Link(index[0].child, index[0].key))
    assert "meta: 2 META blocks have 1 names" in told(raw)


# Entries that hudi-io drops


def of_one_block(rows: list[bytes], value: bytes, chunk_bytes: int) -> RawFile:
    raw = laid_out(Form(Codec.NONE, "one"))
    [block] = raw.of(DATA)
    block.payload = b"".join(record(row, value) for row in rows)
    block.chunk_bytes = chunk_bytes
    links(raw.roots[0])[0].key = key(rows[0])
    with_facts(raw, {LASTKEY: key(rows[-1])})
    raw.trailer = [(one, len(rows) if one == 7 else value) for one, value in raw.trailer]
    return raw


@pytest.mark.parametrize("most", [10_000, 5])
@pytest.mark.parametrize("chunk_bytes", [16, 40, 100, 400])
def test_dropped_entries_are_counted_and_named(
    chunk_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metatable.storage.hfile.verify.NAMED_LOST", most)
    rows = [b"%04d" % number for number in range(100)]
    raw = of_one_block(rows, b"v", chunk_bytes)
    found = told(raw)
    [block] = raw.of(DATA)
    # as hudi-io counts: chunks of the whole block, header and checksums included
    area = 4 * -(-block.size // chunk_bytes)
    lost = [row for place, row in enumerate(rows) if place * 26 >= len(block.payload) - area]
    assert lost
    assert found == [
        f"tail: {len(lost)} of 100 entries, in 1 of 1 blocks, are dropped by hudi-io: "
        f"{lost[:most]!r}{' and others' if len(lost) > most else ''}"
    ]


def test_chunks_are_counted_over_the_checksums_too() -> None:
    """293 bytes are 6 chunks of 49; with 24 bytes of checksums they are 7, and 28 bytes are
    more than the last record."""
    raw = of_one_block([b"%04d" % number for number in range(10)], b"v", 49)
    assert [one.rpartition(": ")[2] for one in told(raw)] == ["[b'0009']"]
    assert raw.of(DATA)[0].size == 293 + 24
