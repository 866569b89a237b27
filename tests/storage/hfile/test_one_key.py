"""One key of one block: what is answered without its other records is what these say."""

from __future__ import annotations

from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.cache import blocks as block_cache
from metatable.storage.errors import CorruptError
from metatable.storage.hfile import forms
from metatable.storage.hfile.block import BlockHeader, open_block
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import Codec, beginnings
from metatable.storage.hfile.key_values import encode_records
from metatable.storage.hfile.reading import one_block
from metatable.storage.hfile.reading.finding import find_records
from metatable.storage.hfile.reading.one_key import begins_with_digits, share_before, value_of
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, folder

KEYS = [b"key-%04d" % number for number in range(0, 900, 3)]
ASKED = [b"key-%04d" % number for number in range(900)]


def record(key: bytes, value: bytes) -> bytes:
    return bytes(encode_records(binary([key]), binary([value])))


def payload_of(entries: dict[bytes, bytes]) -> bytes:
    return bytes(encode_records(binary(entries), binary(entries.values())))


def told(payload: bytes, key: bytes, stride: int | None = None) -> bytes | None:
    """What the whole of a payload says, which two beginnings of it must not contradict."""
    whole = value_of([payload], len(payload), key, stride)
    for cut in (len(payload) // 3, len(payload) // 3 * 2):
        beginnings = [payload[:cut], payload]
        assert value_of(beginnings, len(payload), key, stride) == whole
        assert value_of(beginnings[:1], len(payload), key, stride) in (None, whole)
    return whole


def found_in(payload: bytes) -> dict[bytes, bytes]:
    """What all records of a payload say, of equal keys the first."""
    records = find_records(np.frombuffer(payload, np.uint8), True, "", 0)
    places = range(len(records) - 1, -1, -1)
    return {records.key(place): records.value(place) for place in places}


VALUES = {
    "of one size": {key: key[::-1] for key in KEYS},
    "of many sizes": {key: b"v" * (number % 40) for number, key in enumerate(KEYS)},
    "that look like records": {
        key: b"".join(record(other, b"not it") for other in ASKED[3 * number : 3 * number + 7])
        for number, key in enumerate(KEYS)
    },
}


@pytest.mark.parametrize("values", VALUES)
def test_a_key_is_answered_as_all_records_say_or_not_at_all(values: str) -> None:
    entries = VALUES[values]
    payload = payload_of(entries)
    answers = {key: told(payload, key) for key in ASKED}
    assert {key: told for key, told in answers.items() if told is not None}.items() <= (
        entries.items()
    )
    looks_like_others = values == "that look like records"
    assert looks_like_others or answers == {key: entries.get(key) for key in ASKED}
    assert not looks_like_others or any(answers[key] is None for key in KEYS)


def test_records_of_one_size_begin_at_multiples_of_it() -> None:
    entries = VALUES["of one size"]
    payload, stride = payload_of(entries), len(record(KEYS[0], entries[KEYS[0]]))
    assert [told(payload, key, stride) for key in KEYS] == list(entries.values())
    assert [told(payload, key, stride + 1) for key in KEYS] == [None] * len(KEYS)
    assert [told(payload[1:], key, stride) for key in KEYS] == [None] * len(KEYS)
    within = payload_of({b"0" * 8: record(KEYS[9], b"inner...") * 2})
    assert told(within, KEYS[9], len(record(KEYS[9], b"inner..."))) is None


def test_no_flipped_bit_makes_another_answer() -> None:
    entries = {key: b"v" * (number % 5) + key for number, key in enumerate(KEYS[:7])}
    payload = payload_of(entries)
    for bit in range(8 * len(payload)):
        changed = bytearray(payload)
        changed[bit // 8] ^= 1 << bit % 8
        answers = {key: told(bytes(changed), key) for key in entries}
        try:
            expected = found_in(bytes(changed))
        except CorruptError:
            continue
        assert all(answers[key] in (None, expected.get(key)) for key in entries), bit


def test_keys_that_no_record_has_room_for_are_not_there() -> None:
    assert told(payload_of(VALUES["of one size"]), bytes(1 << 16)) is None
    assert told(b"", b"") is None


@pytest.mark.each_once
@pytest.mark.parametrize("form", [forms.OURS, forms.HUDI, forms.HBASE], ids=["we", "Hudi", "HBase"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZ, Codec.ZSTD])
@pytest.mark.parametrize("values", VALUES)
def test_files_answer_one_key_as_a_dict_does(
    tmp_path: Path, form: forms.Form, codec: Codec, values: str
) -> None:
    entries, store = VALUES[values], folder(tmp_path)
    with HFileWriter(store, "a.hfile", codec=codec, form=form, block_size_bytes=9_000) as file:
        file.add(binary(entries), binary(entries.values()))
    for again in range(3):
        reader = cold(store, "a.hfile")
        for key in ASKED[again :: 1 if again else 40]:  # blocks that are known, and are not
            assert reader.get(key) == entries.get(key), key


@pytest.mark.parametrize("values", ["of one size", "of many sizes"])
def test_first_key_of_a_block_needs_no_other_record(
    tmp_path: Path, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, store = VALUES[values], folder(tmp_path)
    write(store, entries)

    def fails(*_: object) -> None:
        raise AssertionError("records of a block were found")

    monkeypatch.setattr(one_block, "find_records", fails)
    for key in KEYS[::37]:
        assert cold(store, "a.hfile").get(key) == entries[key]


def test_block_that_is_asked_again_keeps_its_records(tmp_path: Path) -> None:
    entries, store = VALUES["of many sizes"], folder(tmp_path)
    write(store, entries)
    reader = cold(store, "a.hfile")
    sizes = []
    for _ in range(3):
        assert reader.get(KEYS[5]) == entries[KEYS[5]]
        sizes.append(len(block_cache))
    assert sizes == [1, 2, 2]
    assert reader.counters["hfile.blocks"] == 1


def write(store: Store, entries: dict[bytes, bytes]) -> None:
    with HFileWriter(store, "a.hfile", codec=Codec.GZ) as file:
        file.add(binary(entries), binary(entries.values()))


@pytest.mark.parametrize("kind", [Checksum.CRC32C, Checksum.NULL])
def test_gz_without_a_checksum_of_its_block_is_inflated_to_the_end(
    tmp_path: Path, kind: Checksum, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    write(store, VALUES["of many sizes"])

    def damaged(*block: Any) -> tuple[BlockHeader, memoryview]:
        header, stored = open_block(*block)
        changed = bytearray(stored)
        changed[-6] ^= 1  # of GZ's own checksum
        return replace(header, checksum=kind), memoryview(bytes(changed))

    monkeypatch.setattr(one_block, "open_block", damaged)
    reader = cold(store, "a.hfile")
    if kind is not Checksum.NULL:
        assert reader.get(KEYS[1]) == b"v"  # its block's was verified
        return
    with pytest.raises(CorruptError, match="cannot be decompressed"):
        reader.get(KEYS[1])


def test_where_a_key_of_hexadecimal_digits_lies_is_guessed() -> None:
    keys = [b"00f%05x" % number for number in range(0, 1 << 20, 999)]
    first, *inner, behind = keys
    for place, key in enumerate(inner, 1):
        share = share_before(key, first, behind)
        assert begins_with_digits(key)
        assert share is not None
        assert abs(share - place / (len(keys) - 1)) < 0.001
    assert share_before(first, first, behind) == 0
    assert share_before(first[:4], first, behind) == 0


@pytest.mark.parametrize(
    ("key", "first", "behind"),
    [
        (b"b", b"b", b"b"),
        (b"c", b"a", b"b"),
        (b"a", b"b", b"c"),
        (b"x-1", b"x-0", b"x-z"),
        (b"", b"", b"\xff"),
    ],
)
def test_where_other_keys_lie_is_not_guessed(key: bytes, first: bytes, behind: bytes) -> None:
    assert share_before(key, first, behind) is None


def test_keys_of_other_bytes_are_known_by_their_beginning() -> None:
    assert [begins_with_digits(key) for key in (b"00aF99-z", b"00aF9-", b"https:", b"")] == [
        True,
        False,
        False,
        True,
    ]


@given(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
def test_a_guess_is_a_share(key: bytes, first: bytes, behind: bytes) -> None:
    share = share_before(key, first, behind)
    assert share is None or 0 <= share < 1


def test_keys_of_hexadecimal_digits_are_found_with_less_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    hashes = sorted(md5(b"%d" % number).hexdigest().encode() for number in range(4000))
    entries = {key: key[: 20 + at % 9] for at, key in enumerate(hashes)}
    write(store, entries)
    steps: list[int] = []

    def counted(*told: Any, **more: Any) -> Any:
        for made in beginnings(*told, **more):
            steps.append(len(made))
            yield made

    monkeypatch.setattr(one_block, "beginnings", counted)
    asked = hashes[::50]
    for key in asked:
        assert cold(store, "a.hfile").get(key) == entries[key]
    assert len(steps) < 1.5 * len(asked)
