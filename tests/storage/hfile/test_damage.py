"""Hostile bytes end in one of our errors, which says where; nothing large is allocated first."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError, MetatableError, UpgradeError
from metatable.storage.hfile import file_info, inspect
from metatable.storage.hfile.block import BlockHeader, BlockType
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import encode_file_info
from metatable.storage.hfile.trailer import TRAILER_SIZE, Trailer
from metatable.storage.store import Store
from tests.long import examples, one_in
from tests.storage.hfile.making import binary, cold, encode_block, entries_of, folder, write

ENTRIES = {b"%04d" % number: b"v" * (number % 7) for number in range(24)}


def sound_file(codec: Codec = Codec.GZ) -> bytes:
    store = Store("memory://sound")
    write(store, "a.hfile", ENTRIES, codec=codec, block_size_bytes=256, meta={"m": b"body"})
    return store.fetch("a.hfile")


def read_all(body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    store = Store("memory://damaged")
    store.put("a.hfile", body)
    reader = cold(store, "a.hfile")
    reader.get(b"0007")
    reader.get_sorted(binary(sorted(ENTRIES)))
    return entries_of(reader), reader.meta("m")


CODECS = [Codec.GZ, Codec.NONE, Codec.ZSTD]


@pytest.mark.parametrize("codec", CODECS)
def test_any_flipped_byte_before_the_trailer_is_reported_as_corruption(codec: Codec) -> None:
    """By `verify` always; by lookups unless it is in a hint that they did without."""
    body = sound_file(codec)
    sound = read_all(body)
    hints = bytes_of_hints(body)
    rng = random.Random(1)
    for at in one_in(3, range(len(body) - TRAILER_SIZE), CODECS.index(codec)):
        damaged = flipped(body, at, 1 << rng.randrange(8))
        store = Store("memory://damaged")
        store.put("a.hfile", damaged)
        assert inspect.verify(store, "a.hfile"), at
        if at in hints:
            with suppress(CorruptError):
                assert read_all(damaged) == sound
        else:
            with pytest.raises(CorruptError):
                read_all(damaged)


def bytes_of_hints(body: bytes) -> set[int]:
    store = Store("memory://sound")
    store.put("a.hfile", body)
    places = cold(store, "a.hfile").opened.meta
    spans = [range(at, at + size) for name, (at, size) in places.items() if name != "m"]
    return {at for span in spans for at in span}


def test_no_damaged_byte_of_the_trailer_changes_an_answer_unseen() -> None:
    body = sound_file()
    sound = read_all(body)
    for at in range(len(body) - TRAILER_SIZE, len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 1 << at % 8
        try:
            found = read_all(bytes(damaged))
        except MetatableError:
            continue
        assert found == sound


def test_any_cut_file_is_reported_as_corruption() -> None:
    body = sound_file()
    for size in [*range(0, len(body) - 1, 97), len(body) - 1]:
        with pytest.raises(CorruptError):
            read_all(body[:size])


@given(st.binary(max_size=300), st.integers(0, 10**6), st.data())
@settings(max_examples=examples(75, 300), deadline=None)
def test_random_bytes_anywhere_end_in_an_error_of_ours_or_in_nothing(
    noise: bytes, place: int, data: st.DataObject
) -> None:
    body = sound_file(data.draw(st.sampled_from([Codec.GZ, Codec.NONE])))
    at = place % len(body)
    message = "a.hfile"
    try:
        read_all(body[:at] + noise + body[at + len(noise) :])
    except MetatableError as error:
        message = str(error)
    assert "a.hfile" in message


def test_messages_say_what_where_expected_and_found() -> None:
    body = bytearray(sound_file(Codec.NONE))
    body[40] ^= 1
    with pytest.raises(CorruptError) as caught:
        read_all(bytes(body))
    assert caught.value.what == "block checksum mismatch"
    assert set(caught.value.facts) == {"path", "offset", "chunk", "expected", "found"}
    assert caught.value.facts["offset"] == 0


def rebuilt(
    payload: bytes,
    *,
    codec: Codec = Codec.NONE,
    checksum: Checksum = Checksum.CRC32C,
    index: Callable[[int], bytes] | None = None,
    facts: dict[bytes, bytes] | None = None,
    header: Callable[[bytes], bytes] = bytes,
    **trailer: int,
) -> bytes:
    """A file of one data block whose checksums are right, whatever else is wrong with it."""
    data = header(encode_block(BlockType.DATA, payload, codec, checksum=checksum))
    root = (
        index(len(data))
        if index
        else bytes(8) + len(data).to_bytes(4, "big") + b"\x10\0\4" + b"0000" + full_suffix()
    )
    info = {file_info.KEY_VALUE_VERSION: b"\0\0\0\1"} if facts is None else facts
    parts = [data]
    for kind, body in (
        (BlockType.ROOT_INDEX, root),
        (BlockType.ROOT_INDEX, b""),
        (BlockType.FILE_INFO, encode_file_info(info)),
    ):
        parts.append(encode_block(kind, body, codec, checksum=checksum))
    sizes = [len(part) for part in parts]
    known = {
        "file_info_offset": sum(sizes[:3]),
        "load_on_open_data_offset": sizes[0],
        "data_index_count": 1,
        "entry_count": 1,
        "first_data_block_offset": 0,
        "last_data_block_offset": 0,
    }
    end = Trailer(**(known | trailer), compression_codec=codec)
    return b"".join((*parts, end.encode()))


def full_suffix() -> bytes:
    return bytes.fromhex("00 7fffffffffffffff 04")


def record(row: bytes, value: bytes = b"v", *, kind: int = 4, mvcc: bytes = b"\0") -> bytes:
    key = len(row).to_bytes(2, "big") + row + full_suffix()[:-1] + bytes((kind,))
    sizes = len(key).to_bytes(4, "big") + len(value).to_bytes(4, "big")
    return sizes + key + value + mvcc


def test_rebuilt_file_is_sound_if_nothing_is_changed() -> None:
    assert read_all(rebuilt(record(b"0000")))[0] == [(b"0000", b"v")]


@pytest.mark.parametrize(
    "payload",
    [
        record(b"0000")[:-1],
        record(b"0000") + b"\0",
        b"\xff" * 40,
        record(b"0000").replace(b"\0\0\0\1", b"\xff\xff\xff\xff"),
        record(b"0000", kind=8),
        record(b"0000", mvcc=b"\x88"),
        b"\0\0\0\1" * 3,
        b"\0\0\0" + record(b"0001"),
    ],
    ids=[
        "cut",
        "too long",
        "ones",
        "huge value",
        "a delete",
        "cut mvcc",
        "short key",
        "a gap",
    ],
)
@pytest.mark.parametrize("before", [0, 1, 50])
def test_records_that_do_not_fit_are_reported(payload: bytes, before: int) -> None:
    sound = b"".join(record(b"%04d" % number) for number in range(before))
    with pytest.raises(CorruptError, match="records do not fit"):
        read_all(rebuilt(sound + payload, entry_count=before + 1))


@pytest.mark.parametrize(
    "change",
    [
        {"entry_count": 2},
        {"data_index_count": 2},
        {"data_index_count": 1 << 40},
        {"data_index_count": -1},
        {"meta_index_count": 1},
        {"num_data_index_levels": 2},
        {"num_data_index_levels": 17},
        {"load_on_open_data_offset": 1 << 62},
        {"load_on_open_data_offset": 1},
        {"file_info_offset": -5},
        {"file_info_offset": 10**6},
        {"first_data_block_offset": 10**6},
    ],
    ids=str,
)
def test_trailers_that_lie_are_reported(change: dict[str, int]) -> None:
    with pytest.raises(CorruptError):
        read_all(rebuilt(record(b"0000"), **change))


@pytest.mark.parametrize(
    "entry",
    [
        lambda size: b"\xff" * 8 + size.to_bytes(4, "big") + b"\x10\0\4",
        lambda size: bytes(8) + (size + 1).to_bytes(4, "big") + b"\x10\0\4",
        lambda size: bytes(8) + (10**6).to_bytes(4, "big") + b"\x10\0\4",
        lambda size: bytes(8) + bytes(4) + b"\x10\0\4",
        lambda size: bytes(8) + size.to_bytes(4, "big") + b"\x10\7\4",
        lambda size: bytes(8) + size.to_bytes(4, "big") + b"\x88\x7f\xff",
    ],
    ids=["negative offset", "size", "beyond", "empty", "row length", "length"],
)
def test_indexes_that_lie_are_reported(entry: Callable[[int], bytes]) -> None:
    with pytest.raises(CorruptError):
        read_all(rebuilt(record(b"0000"), index=lambda size: entry(size) + b"0000" + full_suffix()))


@pytest.mark.parametrize("field", range(4))
def test_headers_that_lie_are_reported(field: int) -> None:
    offset, value = [(8, 10), (12, -1), (25, 0), (29, 5)][field]

    def lie(block: bytes) -> bytes:
        return block[:offset] + value.to_bytes(4, "big", signed=True) + block[offset + 4 :]

    with pytest.raises(CorruptError):
        read_all(rebuilt(record(b"0000"), header=lie))


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.ZSTD, Codec.NONE])
@pytest.mark.parametrize("claimed", [1, (1 << 31) - 1])
def test_a_payload_size_that_is_not_true_is_reported_before_memory_is_taken(
    codec: Codec, claimed: int
) -> None:
    def lie(block: bytes) -> bytes:
        return block[:12] + claimed.to_bytes(4, "big") + block[16:]

    body = rebuilt(record(b"0000"), codec=codec, header=lie, checksum=Checksum.NULL)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptError):
        read_all(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
    assert pa.total_allocated_bytes() - before < 32 << 20


def test_a_bomb_is_stopped_at_the_size_that_its_header_names() -> None:
    payload = bytes(64 << 20)

    def lie(block: bytes) -> bytes:
        return block[:12] + (1000).to_bytes(4, "big") + block[16:]

    for codec in (Codec.GZ, Codec.ZSTD):
        body = rebuilt(payload, codec=codec, header=lie, checksum=Checksum.NULL)
        tracemalloc.start()
        with pytest.raises(CorruptError):
            read_all(body)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("checksum", list(Checksum))
def test_all_checksum_types_are_read_and_verified(checksum: Checksum) -> None:
    body = bytearray(rebuilt(record(b"0000", b"value"), checksum=checksum))
    assert read_all(bytes(body))[0] == [(b"0000", b"value")]
    area = BlockHeader.decode(bytes(body[:33]), "", 0)
    assert any(body[area.covered_size : area.size]) is (checksum is not Checksum.NULL)
    body[body.index(b"value")] ^= 1
    if checksum is Checksum.NULL:
        assert read_all(bytes(body))[0] == [(b"0000", b"walue")]
    else:
        with pytest.raises(CorruptError, match="checksum mismatch"):
            read_all(bytes(body))


def test_multi_byte_mvcc_numbers_and_families_are_walked_over() -> None:
    first = record(b"0000", mvcc=b"\x8e\x01\x02")
    key = b"\0\4" + b"0001" + b"\2fam" + b"qualifier"[:4] + bytes(8) + b"\4"
    second = len(key).to_bytes(4, "big") + b"\0\0\0\1" + key + b"w" + b"\0"
    found = read_all(rebuilt(first + second, entry_count=2))[0]
    assert found == [(b"0000", b"v"), (b"0001", b"w")]


def test_without_key_value_version_there_is_no_mvcc_number() -> None:
    payload = record(b"0000", mvcc=b"") + record(b"0001", mvcc=b"")
    assert len(read_all(rebuilt(payload, facts={}, entry_count=2))[0]) == 2


@pytest.mark.parametrize(
    "facts",
    [{b"hfile.MAX_TAGS_LEN": b"\0\0\0\1"}, {b"DATA_BLOCK_ENCODING": b"FAST_DIFF"}],
    ids=["tags", "block encoding"],
)
def test_forms_that_are_not_read_are_named(facts: dict[bytes, bytes]) -> None:
    with pytest.raises(UpgradeError, match=r"path='a\.hfile'"):
        read_all(rebuilt(record(b"0000"), facts=facts))


@pytest.mark.parametrize(("codec", "major"), [(Codec.LZO, 3), (Codec.NONE, 2)])
def test_codecs_and_versions_that_are_not_read_are_named(codec: Codec, major: int) -> None:
    body = rebuilt(record(b"0000"))
    end = Trailer.decode(body[-TRAILER_SIZE:], "", 0)
    fields = {name: getattr(end, name) for name in Trailer.__dataclass_fields__}
    changed = Trailer(**(fields | {"compression_codec": codec})).encode()
    with pytest.raises(UpgradeError, match="not read"):
        read_all(body[:-TRAILER_SIZE] + changed[:-1] + bytes((major,)))


def test_encrypted_file_is_refused() -> None:
    body = rebuilt(record(b"0000"))
    end = bytearray(body[-TRAILER_SIZE:])
    size = end[8]
    end[8] += 3
    end[9 + size : 12 + size] = b"\x6a\x01k"
    with pytest.raises(UpgradeError, match="encrypted"):
        read_all(body[:-TRAILER_SIZE] + bytes(end))


def test_protobuf_form_of_key_lengths_is_repaired() -> None:
    row = b"0000" + b"x" * 300
    key = len(row).to_bytes(2, "big") + row
    length = bytes((len(key) & 127 | 128, len(key) >> 7))  # as Hudi 1.1 wrote it

    def index(size: int) -> bytes:
        return bytes(8) + size.to_bytes(4, "big") + length + key

    assert read_all(rebuilt(record(row), index=index))[0] == [(row, b"v")]


@pytest.mark.parametrize("suffix", [b"", full_suffix()], ids=["without suffix", "full"])
@pytest.mark.parametrize("size", [1, 113, 114, 115, 116, 117, 125, 126, 127, 128, 250, 300, 9000])
def test_index_keys_of_every_length_are_read_in_hadoops_form(size: int, suffix: bytes) -> None:
    row = b"k" * size
    key = len(row).to_bytes(2, "big") + row + suffix
    length = (
        bytes((len(key),))
        if len(key) < 128
        else (
            b"\x8f" + bytes((len(key),))
            if len(key) < 256
            else b"\x8e" + len(key).to_bytes(2, "big")
        )
    )

    def index(block: int) -> bytes:
        return bytes(8) + block.to_bytes(4, "big") + length + key

    assert read_all(rebuilt(record(row), index=index))[0] == [(row, b"v")]


def test_missing_file_is_corruption_with_its_name(tmp_path: Path) -> None:
    for known in (None, 5000):
        with pytest.raises(CorruptError, match=r"file is missing: path='none\.hfile'"):
            cold(folder(tmp_path), "none.hfile", known)


def test_another_size_than_promised_is_corruption(tmp_path: Path) -> None:
    store = folder(tmp_path)
    size = write(store, "a.hfile", ENTRIES).size_bytes
    for promised in (size - 1, size + 1):
        with pytest.raises(CorruptError):
            cold(store, "a.hfile", promised)
    warm = cold(store, "a.hfile", size)
    with pytest.raises(CorruptError, match="another size"):
        type(warm).open(store, "a.hfile", size + 1)


def test_verify_reports_instead_of_raising(tmp_path: Path) -> None:
    store = folder(tmp_path)
    for what, body in {
        "open": sound_file()[:-5],
        "block": flipped(sound_file(), 50),
        "count": rebuilt(record(b"0000"), entry_count=7),
        "order": rebuilt(record(b"0001") + record(b"0000"), entry_count=2),
        "index": rebuilt(record(b"00")),
    }.items():
        store.put("a.hfile", body)
        findings = inspect.verify(store, "a.hfile")
        assert {one.code for one in findings} == {what}, findings
        assert all("a.hfile" in one.where for one in findings)


def test_verify_reports_blocks_that_changed_places(tmp_path: Path) -> None:
    store = folder(tmp_path)
    write(store, "a.hfile", {b"a": b"1", b"b": b"2"}, codec=Codec.NONE, block_size_bytes=1)
    body = store.fetch("a.hfile")
    size = body.index(b"DATABLK*", 1)
    store.put("a.hfile", body[size : 2 * size] + body[:size] + body[2 * size :])
    codes = {one.code for one in inspect.verify(store, "a.hfile")}
    assert codes == {"index", "order", "count"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"facts": {b"KEY_VALUE_VERSION": b"\0\0\0\1", b"hfile.LASTKEY": b"\0\1x"}},
            "last key b'x'",
        ),
        ({"last_data_block_offset": 5}, r"data block at \(0, 5\)"),
    ],
    ids=["last key", "last block"],
)
def test_verify_compares_with_what_the_file_says_of_itself(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    store = folder(tmp_path)
    store.put("a.hfile", rebuilt(record(b"0000"), **change))
    [finding] = inspect.verify(store, "a.hfile")
    assert finding.code == "count"
    assert re.search(told, finding.detail)


def test_verify_reports_a_damaged_meta_block(tmp_path: Path) -> None:
    store = folder(tmp_path)
    body = sound_file(Codec.NONE)
    store.put("a.hfile", flipped(body, body.index(b"body")))
    assert [one.code for one in inspect.verify(store, "a.hfile")] == ["meta"]


def flipped(body: bytes, at: int, bits: int = 1) -> bytes:
    return body[:at] + bytes((body[at] ^ bits,)) + body[at + 1 :]
