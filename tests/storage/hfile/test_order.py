"""Files whose keys are not simply ascending: Hudi's order, rows over several blocks, straddlers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.hfile import file_info
from metatable.storage.hfile.block import BlockType
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.forms import HBASE
from metatable.storage.hfile.key_values import full_key
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.hfile.verify import verify
from metatable.storage.hfile.writing.block_writer import BlockWriter
from metatable.storage.hfile.writing.index_writer import encode_inner, encode_root
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, entries_of
from tests.storage.hfile.sound_files import record

Entries = Sequence[tuple[bytes, bytes]]

JAVA = ["a", "b", "c", "\U00010000", "\U00010001", "\ue000", "\ue001", "\ue002"]
"""As Java sorts strings."""
KEYS = [one.encode() for one in JAVA]


def opened(*blocks: Entries, leaf_blocks: int = 0) -> HFileReader:
    """A file of these blocks, whatever their order; index keys are those that open them."""
    payloads = [b"".join(record(key, value) for key, value in block) for block in blocks]
    index_keys = [block[0][0] for block in blocks]
    return put(payloads, index_keys, sum(map(len, blocks)), leaf_blocks)


def put(
    payloads: Sequence[bytes], index_keys: Sequence[bytes], entry_count: int, leaf_blocks: int = 0
) -> HFileReader:
    """`leaf_blocks`: the index has two levels, and leaves lead to so many blocks each."""
    store = Store("memory://order")
    with store.sink("a.hfile") as sink:
        file = BlockWriter(sink, Codec.NONE, HBASE)
        places = [file.emit(BlockType.DATA, payload) for payload in payloads]
        entries = [(*place, full_key(key)) for place, key in zip(places, index_keys, strict=True)]
        if leaf_blocks:
            cuts = range(0, len(entries), leaf_blocks)
            leaves = [entries[at : at + leaf_blocks] for at in cuts]
            entries = [
                (*file.emit(BlockType.LEAF_INDEX, encode_inner(one)), one[0][2]) for one in leaves
            ]
        root, _ = file.emit(BlockType.ROOT_INDEX, encode_root(entries))
        file.emit(BlockType.ROOT_INDEX, b"")
        facts = {file_info.KEY_VALUE_VERSION: b"\0\0\0\1"}
        info, _ = file.emit(BlockType.FILE_INFO, file_info.encode_file_info(facts))
        end = Trailer(
            file_info_offset=info,
            load_on_open_data_offset=root,
            total_uncompressed_bytes=1,
            data_index_count=len(entries),
            entry_count=entry_count,
            num_data_index_levels=2 if leaf_blocks else 1,
            first_data_block_offset=0,
            last_data_block_offset=places[-1][0],
        )
        file.write(end.encode())
    assert len(end.encode()) == TRAILER_SIZE
    return cold(store, "a.hfile")


def test_keys_in_javas_order_are_found_by_every_lookup() -> None:
    found = opened([(key, b"v" + key) for key in KEYS])
    expected = [b"v" + key for key in KEYS]
    assert [found.get(key) for key in KEYS] == expected
    assert found.find(binary(KEYS)).to_pylist() == expected
    assert [found.find(binary([key]))[0].as_py() for key in KEYS] == expected
    assert found.get("\uffff".encode()) is None
    assert [key for key, _ in entries_of(found)] == KEYS


def test_keys_in_javas_order_that_differ_late_are_found() -> None:
    keys = [b"a", *(b"x0000000" + b"12345678" + key for key in KEYS[3:]), b"z"]
    found = opened([(key, b"v") for key in keys])
    assert found.find(binary(keys)).to_pylist() == [b"v"] * len(keys)
    assert [found.get(key) for key in keys] == [b"v"] * len(keys)


def test_an_index_out_of_order_is_scanned_and_not_searched() -> None:
    found = opened([(b"b", b"1")], [(b"a", b"2")])
    assert entries_of(found) == [(b"b", b"1"), (b"a", b"2")]
    for ask in (
        lambda: found.get(b"a"),
        lambda: found.find(binary([b"a"])),
        lambda: found.prefix(b"a"),
        lambda: entries_of(found, b"a"),
    ):
        with pytest.raises(CorruptError, match="index keys are not in order"):
            ask()


SPREAD: list[Entries] = [
    [(b"a", b"0"), (b"k", b"1")],
    [(b"k", b"2"), (b"k", b"3")],
    [(b"k", b"4"), (b"m", b"5")],
    [(b"m", b"6"), (b"z", b"7")],
]
"""Rows over several blocks, as HBase may have cells of other columns or times."""


@pytest.mark.parametrize("leaf_blocks", [0, 1, 2, 3])
def test_of_a_row_over_several_blocks_lookups_give_the_first_entry(leaf_blocks: int) -> None:
    found = opened(*SPREAD, leaf_blocks=leaf_blocks)
    firsts = {b"a": b"0", b"k": b"1", b"m": b"5", b"z": b"7", b"l": None}
    assert {key: found.get(key) for key in firsts} == firsts
    assert {key: found.find(binary([key]))[0].as_py() for key in firsts} == firsts
    asked = sorted([*firsts, b"k", b"m"])
    assert found.get_sorted(binary(asked)).to_pylist() == [firsts[key] for key in asked]
    assert found.find(binary(reversed(asked))).to_pylist() == [
        firsts[key] for key in reversed(asked)
    ]


@pytest.mark.parametrize("leaf_blocks", [0, 1, 2, 3])
def test_of_a_row_over_several_blocks_scans_and_prefixes_give_all_entries(leaf_blocks: int) -> None:
    found = opened(*SPREAD, leaf_blocks=leaf_blocks)
    assert found.prefix(b"k")["value"].to_pylist() == [b"1", b"2", b"3", b"4"]
    assert found.prefix(b"m")["value"].to_pylist() == [b"5", b"6"]
    assert [value for _, value in entries_of(found, b"k")] == [b"%d" % n for n in range(1, 8)]


def test_a_record_in_two_blocks_is_corruption_for_everyone() -> None:
    first, second = record(b"a", b"x" * 30), record(b"b", b"y" * 40)
    found = put([first + second[:20], second[20:]], [b"a", b"b"], 2)
    for ask in (
        lambda: found.get(b"a"),
        lambda: found.find(binary([b"a", b"b"])),
        lambda: entries_of(found),
    ):
        with pytest.raises(CorruptError):
            ask()
    assert {one.code for one in verify(found._store, "a.hfile")} == {"block"}


@pytest.mark.parametrize("leaf_blocks", [0, 1, 2, 3])
def test_a_row_over_several_blocks_is_no_fault(leaf_blocks: int) -> None:
    found = opened(*SPREAD, leaf_blocks=leaf_blocks)
    faults = [one for one in verify(found._store, "a.hfile") if one.code != "count"]
    assert faults == []  # the sums in the trailer are none


def test_an_index_key_that_comes_again_without_its_row_is_a_fault() -> None:
    blocks = [[b"a", b"b"], [b"b", b"c"], [b"d", b"e"]]
    payloads = [b"".join(record(key, b"1") for key in block) for block in blocks]
    found = put(payloads, [b"a", b"b", b"b"], 6)
    faults = [one.detail for one in verify(found._store, "a.hfile") if one.code == "index"]
    assert faults == ["index key b'b' is not above last key b'c' before it"]
    found = put(payloads[:2], [b"a", b"a"], 4)
    faults = [one.detail for one in verify(found._store, "a.hfile") if one.code == "index"]
    assert faults[0] == "index key b'a' is not above last key b'b' before it"
    assert faults[1:] == ["index key b'a' follows b'a'"]
