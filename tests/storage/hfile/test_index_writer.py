"""The index of a file as it is written: levels, the mid key, shortened keys; read back whole."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.errors import UsageError
from metatable.storage.hfile import inspect
from metatable.storage.hfile.block import HEADER_SIZE, BlockHeader, BlockType
from metatable.storage.hfile.block_index import Entry
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.forms import HBASE, OURS, Form
from metatable.storage.hfile.key_values import KEY_SUFFIX
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.trailer import TRAILER_SIZE
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.hfile.writing.index_writer import IndexWriter, encode_inner, separator
from metatable.storage.store import Store
from tests.long import examples
from tests.storage.hfile.making import binary, blocks_of, cold, entries_of, write

FORMS = st.sampled_from([OURS, HBASE])
KEYS = st.one_of(
    st.binary(min_size=1, max_size=3),
    st.lists(st.sampled_from([b"a", b"b", b"\xff", b"aaaa"]), min_size=1, max_size=5).map(b"".join),
)


def deep(count: int, chunk: int, form: Form = OURS) -> tuple[HFileReader, bytes]:
    """A file of a block an entry, and its bytes."""
    store = Store("memory://deep")
    entries = {b"key-%06d" % number: b"%d" % number for number in range(count)}
    options = {"block_size_bytes": 1, "index_chunk_bytes": chunk, "codec": Codec.NONE, "form": form}
    write(store, "a.hfile", entries, meta={"name": b"body"}, **options)
    return cold(store, "a.hfile"), store.fetch("a.hfile")


@given(
    st.dictionaries(KEYS, st.binary(max_size=5), max_size=120),
    st.sampled_from([1, 40, 100, 1 << 17]),
    st.sampled_from([1, 60, 300]),
    FORMS,
    st.lists(KEYS, max_size=10),
)
@settings(max_examples=examples(25, 80))
def test_any_index_leads_to_every_entry_and_to_no_other(
    entries: dict[bytes, bytes], chunk: int, block: int, form: Form, others: list[bytes]
) -> None:
    store = Store("memory://levels")
    options = {"block_size_bytes": block, "index_chunk_bytes": chunk, "form": form}
    write(store, "a.hfile", entries, **options)
    reader = cold(store, "a.hfile")
    assert inspect.verify(store, "a.hfile") == []
    assert entries_of(reader) == sorted(entries.items())
    asked = sorted({*entries, *others, *(key + b"\0" for key in entries)})
    assert reader.get_sorted(binary(asked)).to_pylist() == [entries.get(key) for key in asked]
    for key in asked[:20]:
        assert reader.get(key) == entries.get(key)
        assert entries_of(reader, key) == [one for one in sorted(entries.items()) if one[0] >= key]


@pytest.mark.parametrize(
    ("count", "chunk", "levels"),
    [(0, 1, 1), (1, 1 << 17, 1), (1, 1, 2), (16, 1, 2), (17, 1, 3), (40, 40, 4), (61, 100, 3)],
)
def test_small_chunks_make_many_levels(count: int, chunk: int, levels: int) -> None:
    reader, _ = deep(count, chunk)
    assert reader.trailer.num_data_index_levels == levels
    assert len(entries_of(reader)) == count


def test_leaves_follow_the_data_they_cover_and_inner_blocks_the_meta_blocks() -> None:
    reader, body = deep(60, 100)
    kinds = [header.kind for _, header in blocks_of(body)]
    first_meta = kinds.index(BlockType.META)
    leaf = [*[BlockType.DATA] * 3, BlockType.LEAF_INDEX]
    assert kinds[:first_meta] == leaf * 20
    rest = [kind for kind in kinds[first_meta:] if kind is not BlockType.META]
    inner = rest.index(BlockType.ROOT_INDEX)
    assert rest[:inner] == [BlockType.INTERMEDIATE_INDEX] * reader.trailer.data_index_count
    assert rest[inner:] == [BlockType.ROOT_INDEX, BlockType.ROOT_INDEX, BlockType.FILE_INFO]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 59, 60, 61])
def test_mid_key_is_the_place_of_the_middle_data_block(count: int) -> None:
    reader, body = deep(count, 40)
    load = reader.trailer.load_on_open_data_offset
    root = BlockHeader.decode(body[load : load + HEADER_SIZE], "", load)
    end = load + HEADER_SIZE + root.payload_size
    offset, size, entry = struct.unpack(">qii", body[end - 16 : end])
    header = BlockHeader.decode(body[offset : offset + HEADER_SIZE], "", offset)
    assert (header.kind, header.size) == (BlockType.LEAF_INDEX, size)
    leaf = body[offset + HEADER_SIZE : offset + header.covered_size]
    n, *positions = struct.unpack_from(f">{int.from_bytes(leaf[:4], 'big') + 2}i", leaf)
    at = 4 + 4 * (n + 1) + positions[entry]
    data = [place for place, one in blocks_of(body) if one.kind is BlockType.DATA]
    assert struct.unpack_from(">q", leaf, at) == (data[(len(data) - 1) // 2],)


def test_sums_in_the_trailer_are_those_of_the_blocks() -> None:
    reader, body = deep(60, 100)
    sums = dict.fromkeys(BlockType, 0)
    for _, header in blocks_of(body):
        sums[header.kind] += header.payload_size
    load = reader.trailer.load_on_open_data_offset
    root = BlockHeader.decode(body[load : load + HEADER_SIZE], "", load).payload_size
    inner, leaf = sums[BlockType.INTERMEDIATE_INDEX], sums[BlockType.LEAF_INDEX]
    assert reader.trailer.uncompressed_data_index_size == root + inner + leaf
    counted = [one for _, one in blocks_of(body) if one.kind is not BlockType.INTERMEDIATE_INDEX]
    total = sum(HEADER_SIZE + one.payload_size for one in counted) - HEADER_SIZE - root
    assert reader.trailer.total_uncompressed_bytes == total + TRAILER_SIZE


def test_only_a_leaf_and_the_entries_above_it_are_held() -> None:
    written: list[BlockType] = []

    def emit(kind: BlockType, payload: bytes) -> tuple[int, int]:
        written.append(kind)
        return len(written), 100

    index = IndexWriter(emit, 1000)
    for number in range(10_000):
        index.add([(number, 1, b"k" * 20)])
        assert len(index._leaf) <= 1000 // 36
    assert len(index._roots) == len(written) == 10_000 // 28 + (10_000 % 28 == 0)


@given(KEYS, KEYS)
def test_separator_lies_between_its_keys(one: bytes, other: bytes) -> None:
    before, first = sorted((one, other))
    row, suffix = separator(before, first)
    if before == first:
        assert (row, suffix) == (first, KEY_SUFFIX)
    else:
        assert before < row <= first
        assert len(row) <= len(first)
        assert suffix == KEY_SUFFIX[:-1] + b"\xff"


@pytest.mark.parametrize(
    ("before", "first", "between"),
    [
        (b"hudi-key-000000469-abcdefghij", b"hudi-key-000000470-abcdefghij", b"hudi-key-00000047"),
        (b"abc", b"abcde", b"abcd"),
        (b"abc", b"aez", b"ac"),
        (b"abc", b"acz", b"ac"),
        (b"a\xff", b"b", b"b"),
        (b"abc", b"abc", b"abc"),
    ],
)
def test_separator_is_as_short_as_hbase_makes_it(
    before: bytes, first: bytes, between: bytes
) -> None:
    assert separator(before, first)[0] == between


def test_inner_payload_has_positions_from_zero_to_its_end() -> None:
    entries: list[Entry] = [(1, 2, b"ab"), (3, 4, b"cde")]
    found = encode_inner(entries)
    assert found == struct.pack(">iiii", 2, 0, 14, 29) + b"".join(
        struct.pack(">qi", offset, size) + key for offset, size, key in entries
    )


def test_index_chunks_of_no_size_are_refused() -> None:
    with pytest.raises(UsageError, match="index chunk size out of range"):
        HFileWriter(Store("memory://none"), "a.hfile", index_chunk_bytes=0)


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_a_leaf_is_closed_once_its_payload_has_reached_the_chunk_size(spare: int) -> None:
    entries: list[Entry] = [(100 * number, 100, b"key-%03d" % number) for number in range(12)]
    written: list[bytes] = []

    def emit(kind: BlockType, payload: bytes) -> tuple[int, int]:
        written.append(payload)
        return 0, len(payload)

    index = IndexWriter(emit, len(encode_inner(entries[:5])) + spare)
    assert index.takes([key for _, _, key in entries]) == 5 + (spare > 0)
    for entry in entries[:7]:
        index.add([entry])
    assert written == [encode_inner(entries[: 5 + (spare > 0)])]
