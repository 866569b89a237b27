"""What a reader finds is what a writer was given: against a dict, with tiny blocks."""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.hfile import inspect
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.long import examples
from tests.storage.hfile.making import binary, cold, entries_of, write

CODECS = st.sampled_from([Codec.GZ, Codec.NONE, Codec.ZSTD])
BLOCKS = st.sampled_from([1, 64, 256, 1024, 65536])
# few letters, so that keys are prefixes of each other and agree in many of their first bytes
LETTERS = st.sampled_from([b"\0", b"a", b"b", b"\x7f", b"\xff", b"\xff" * 7 + b"\x04", b"aaaaaaaa"])
KEYS = st.one_of(
    st.lists(LETTERS, min_size=1, max_size=6).map(b"".join),
    st.binary(min_size=1, max_size=40),
    st.binary(min_size=16, max_size=16),
)
VALUES = st.one_of(
    st.binary(max_size=4),
    st.binary(min_size=4, max_size=4),
    st.just(bytes.fromhex("00 7fffffffffffffff 04 00")),
    st.binary(max_size=300),
)
ANY_ENTRIES = st.dictionaries(KEYS, VALUES, max_size=80)
EQUAL_ENTRIES = st.dictionaries(
    st.binary(min_size=16, max_size=16), st.binary(min_size=4, max_size=4), max_size=80
)
ENTRIES = st.one_of(ANY_ENTRIES, EQUAL_ENTRIES)


def made(entries: dict[bytes, bytes], codec: Codec, block: int) -> HFileReader:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, {"durable": "false"})
        write(store, "a.hfile", entries, codec=codec, block_size_bytes=block)
        assert inspect.verify(store, "a.hfile") == []
        body = (Path(folder) / "a.hfile").read_bytes()
    memory = Store("memory://round-trip")
    memory.put("a.hfile", body)
    return cold(memory, "a.hfile", len(body))


@given(ENTRIES, CODECS, BLOCKS, st.lists(KEYS, max_size=20))
@settings(max_examples=examples(40, 150), deadline=None)
def test_lookups_answer_as_a_dict_does(
    entries: dict[bytes, bytes], codec: Codec, block: int, others: list[bytes]
) -> None:
    reader = made(entries, codec, block)
    asked = [*entries, *others, *(key + b"\0" for key in entries), *(key[:-1] for key in others)]
    expected = [entries.get(key) for key in asked]
    assert reader.find(binary(asked)).to_pylist() == expected
    ascending = sorted(asked)
    assert reader.get_sorted(binary(ascending)).to_pylist() == [*map(entries.get, ascending)]
    assert [reader.get(key) for key in asked[:20]] == expected[:20]


@given(ENTRIES, CODECS, BLOCKS, KEYS)
@settings(max_examples=examples(30), deadline=None)
def test_scans_and_prefixes_answer_as_a_sorted_list_does(
    entries: dict[bytes, bytes], codec: Codec, block: int, start: bytes
) -> None:
    reader = made(entries, codec, block)
    pairs = sorted(entries.items())
    assert entries_of(reader) == pairs
    assert (reader.first_key, reader.last_key) == (
        (pairs[0][0], pairs[-1][0]) if pairs else (b"", b"")
    )
    assert entries_of(reader, start) == pairs[bisect_left(pairs, (start, b"")) :]
    for prefix in (start, start[:1], b"", b"\xff"):
        batch = reader.prefix(prefix)
        found = list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
        assert found == [pair for pair in pairs if pair[0].startswith(prefix)]


@given(
    st.lists(st.tuples(KEYS, st.integers(1, 12)), max_size=12, unique_by=lambda one: one[0]),
    BLOCKS,
    st.integers(1, 9),
)
@settings(max_examples=examples(20, 60), deadline=None)
def test_equal_keys_stay_in_one_block_and_the_first_is_found(
    counted: list[tuple[bytes, int]], block: int, step: int
) -> None:
    pairs = [(key, b"%d" % number) for key, count in sorted(counted) for number in range(count)]
    store = Store("memory://equal-keys")
    writer = HFileWriter(store, "a.hfile", block_size_bytes=block, unique=False)
    with writer as file:
        for at in range(0, len(pairs), step):
            part = pairs[at : at + step]
            file.add(binary(key for key, _ in part), binary(value for _, value in part))
    assert inspect.verify(store, "a.hfile") == []  # an equal key in two blocks is a finding
    reader = cold(store, "a.hfile")
    assert entries_of(reader) == pairs
    assert reader.find(binary(key for key, _ in counted)).to_pylist() == [b"0"] * len(counted)


@given(ANY_ENTRIES, st.lists(st.integers(1, 30), min_size=1, max_size=5), BLOCKS)
@settings(max_examples=examples(20, 60), deadline=None)
def test_bytes_do_not_depend_on_how_entries_are_batched(
    entries: dict[bytes, bytes], steps: list[int], block: int
) -> None:
    store, plain = Store("memory://batching"), Codec.NONE  # isal's bytes follow its memory's, too
    whole = write(store, "whole.hfile", entries, codec=plain, block_size_bytes=block)
    pairs = sorted(entries.items())
    keys, values = binary(key for key, _ in pairs), binary(value for _, value in pairs)
    with HFileWriter(store, "parts.hfile", codec=plain, block_size_bytes=block) as file:
        at, turn = 0, 0
        while at < len(pairs):
            step = steps[turn % len(steps)]
            file.add(keys[at : at + step], values[at : at + step])
            at, turn = at + step, turn + 1
    assert store.fetch("parts.hfile") == store.fetch("whole.hfile")
    assert file.written.checksum == whole.checksum


def test_slices_and_other_byte_types_are_written_like_plain_binary() -> None:
    store = Store("memory://types")
    keys = pa.array([b"%04d" % number for number in range(100)], pa.binary())
    plain = write(store, "plain.hfile", [(key.as_py(), b"v") for key in keys[10:90]])
    values = pa.array(["v"] * 100)
    large = (pa.large_binary(), pa.large_string())
    for kind in (pa.binary(4), pa.string(), pa.string_view(), pa.binary_view(), *large):
        with HFileWriter(store, "other.hfile") as file:
            file.add(keys.cast(pa.binary()).cast(kind)[10:90], values[10:90])
        assert file.written.checksum == plain.checksum
        wanted = keys.cast(kind)[5:95]
        found = cold(store, "other.hfile").get_sorted(wanted)
        assert found.type == pa.binary()
        assert found.null_count == 10
