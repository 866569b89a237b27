"""What a small file can make a reader hold: never much more than its payloads take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile import block_index, file_info, wire
from metatable.storage.hfile.block_index import BlockIndex, decode_names, decode_root
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import decode_file_info, encode_file_info
from metatable.storage.hfile.key_values import full_key
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import finding, index_tree
from metatable.storage.hfile.trailer import COMPARATOR
from tests.storage.hfile.making import binary, cold, entries_of, folder
from tests.storage.hfile.raw_file import DATA, INFO, LEAF, ROOT, Link, RawBlock, RawFile
from tests.storage.hfile.sound_files import record

KEYS = [b"%02d" % number for number in range(8)]
PADDING = 1 << 20
"""Zeros behind the row in the key of a leaf's only entry: a thousandth of them is stored."""


def peak_per_byte(size: int, work: Callable[[], object]) -> float:
    """How many times `size` the work had allocated at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / size
    finally:
        tracemalloc.stop()


def leaves_that_swell() -> RawFile:
    """A file of two levels, of a few KiB, whose leaves unpack to a MiB each."""
    data = [RawBlock(DATA, record(key, b"v")) for key in KEYS]
    leaves = [
        RawBlock(LEAF, links=[Link(block, full_key(key) + bytes(PADDING))])
        for block, key in zip(data, KEYS, strict=True)
    ]
    root = [Link(leaf, full_key(key)) for leaf, key in zip(leaves, KEYS, strict=True)]
    facts = encode_file_info({file_info.KEY_VALUE_VERSION: b"\0\0\0\1"})
    scanned = [block for pair in zip(data, leaves, strict=True) for block in pair]
    loaded = [RawBlock(ROOT, links=root), RawBlock(ROOT, links=[]), RawBlock(INFO, facts)]
    counts: list[tuple[int, int | bytes]] = [(7, len(KEYS)), (8, 2), (9, 0), (10, 0)]
    trailer = [*((field, 0) for field in range(1, 7)), *counts, (11, COMPARATOR.encode()), (12, 0)]
    return RawFile("swelling", Codec.GZ, [*scanned, *loaded], trailer)


@pytest.fixture(scope="module")
def swelling(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    path = tmp_path_factory.mktemp("swelling")
    body = leaves_that_swell().build()
    folder(path).put("a.hfile", body)
    return path, len(body)


def test_leaves_below_the_limit_of_a_level_are_read(swelling: tuple[Path, int]) -> None:
    reader = cold(folder(swelling[0]), "a.hfile")
    assert entries_of(reader) == [(key, b"v") for key in KEYS]
    assert reader.get(KEYS[5]) == b"v"


@pytest.mark.parametrize(
    "read",
    [
        entries_of,
        lambda reader: reader.find(binary(KEYS)),
        lambda reader: list(reader.prefix(b"")),
    ],
    ids=["scan", "find", "prefix"],
)
def test_leaves_that_unpack_to_more_than_a_level_may_are_refused(
    swelling: tuple[Path, int],
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[HFileReader], object],
) -> None:
    path, size = swelling
    monkeypatch.setattr(index_tree, "LEVEL_BYTES", 3 * PADDING + 1000)
    monkeypatch.setattr(index_tree, "LEVEL_RATIO", 1)
    reader = cold(folder(path), "a.hfile")
    with pytest.raises(CorruptError, match="index blocks of one level claim more") as caught:
        read(reader)
    assert caught.value.facts["path"] == "a.hfile"
    assert 0 < caught.value.facts["offset"] < size
    assert reader.get(KEYS[5]) == b"v"


def test_leaves_in_the_cache_count_for_their_level(
    swelling: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_tree, "LEVEL_BYTES", 6 * PADDING)
    monkeypatch.setattr(index_tree, "LEVEL_RATIO", 1)
    reader = cold(folder(swelling[0]), "a.hfile")
    for key in KEYS[:3]:
        assert reader.get(key) == b"v"
    with pytest.raises(CorruptError, match="index blocks of one level claim more"):
        entries_of(reader)


def test_an_index_above_two_gib_says_so_when_keys_are_compared() -> None:
    raw = np.broadcast_to(np.uint8(0), (1 << 31,))
    one = np.array([5], np.int64)
    index = BlockIndex(one, one, raw, one + (1 << 31) - 100, one)
    with pytest.raises(UsageError, match="below 2 GiB"):
        _ = index.keys


def test_a_root_of_keys_of_many_lengths_takes_no_objects_an_entry() -> None:
    count = 20_000
    payload = (bytes(12) + b"\2\0\0" + bytes(12) + b"\3\0\1x") * (count // 2)
    assert decode_root(payload, count, "p", 0).row(-1) == b"x"
    assert peak_per_byte(len(payload), lambda: decode_root(payload, count, "p", 0)) < 7


def test_walked_records_take_no_objects_a_record() -> None:
    payload = np.frombuffer(record(b"", b"") * 20_000, np.uint8)
    assert len(finding._walk(payload, True, "p", 0)) == 20_000
    assert peak_per_byte(len(payload), lambda: finding._walk(payload, True, "p", 0)) < 4


def test_meta_names_above_their_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_index, "MOST_NAMES", 3)
    entry = bytes(12) + b"\1n"
    assert len(decode_names(entry * 3, 3, "p", 0)) == 3
    with pytest.raises(CorruptError, match="at most 3 names' found=4"):
        decode_names(entry * 4, 4, "p", 0)


def test_facts_above_their_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_info, "MOST_PAIRS", 3)
    facts = {b"%d" % number: b"" for number in range(4)}
    few = dict(list(facts.items())[:3])
    assert decode_file_info(encode_file_info(few), "p", 0) == few
    with pytest.raises(CorruptError, match="more than 3 pairs"):
        decode_file_info(encode_file_info(facts), "p", 7)


def test_unknown_fields_of_a_pair_are_not_kept() -> None:
    name = wire.write_bytes_field(1, b"n") + wire.write_bytes_field(2, b"v")
    pair = b"".join(wire.write_bytes_field(number, b"") for number in range(3, 20_000)) + name
    message = wire.write_bytes_field(1, pair)
    payload = b"PBUF" + wire.write_varint(len(message)) + message
    assert decode_file_info(payload, "p", 0) == {b"n": b"v"}
    assert peak_per_byte(len(payload), lambda: decode_file_info(payload, "p", 0)) < 5


@pytest.mark.parametrize("count", [1, 2, 9])
def test_records_with_any_byte_wrong_that_all_share_are_no_table(count: int) -> None:
    one = record(b"key", b"value")
    own = {*range(10, 13), *range(23, 28)}  # the bytes of row and value
    assert finding._by_stride(np.frombuffer(one * count, np.uint8)) is not None
    for which in {0, count // 2, count - 1}:
        for at in range(len(one)):
            damaged = bytearray(one * count)
            damaged[which * len(one) + at] ^= 1
            found = finding._by_stride(np.frombuffer(damaged, np.uint8))
            assert (found is not None) == (at in own), at


def test_a_family_that_does_not_fit_into_its_key_is_damage() -> None:
    good = bytearray(record(b"key", b"value"))
    held = finding._walk(np.frombuffer(bytes(good), np.uint8), True, "a", 0)
    assert [held.key(0), len(held)] == [b"key", 1]
    good[10 + len(b"key")] = 1  # the family's length, where there is room for none
    with pytest.raises(CorruptError, match="family=1"):
        finding._walk(np.frombuffer(bytes(good), np.uint8), True, "a", 0)
