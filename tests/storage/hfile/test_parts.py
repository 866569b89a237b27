"""The small parts: codecs, integers, columns, indexes, and the ways to find records."""

from __future__ import annotations

import gzip
import itertools
import random
import struct
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.byte_columns import first_words
from metatable.storage.errors import CorruptError, UpgradeError, UsageError
from metatable.storage.hfile import key_values, wire
from metatable.storage.hfile.block import CHUNK_BYTES, BlockType, chunk_sizes, decode_block
from metatable.storage.hfile.block_index import (
    BlockIndex,
    check_places,
    decode_inner,
    decode_root,
)
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.codec import SUPPORTED, Codec, compress, decompress
from metatable.storage.hfile.columns import bound
from metatable.storage.hfile.key_values import KEY_SUFFIX, KeyValues, encode_records, row_of
from metatable.storage.hfile.reading import endings, finding
from metatable.storage.hfile.reading.data_blocks import Payloads, read_headers, verify
from metatable.storage.hfile.reading.fetch import Stored
from metatable.storage.hfile.reading.finding import find_records, fixed_batch
from metatable.storage.hfile.reading.grid import Grid
from metatable.storage.hfile.reading.searching import find_any
from metatable.storage.hfile.trailer import Trailer
from metatable.storage.hfile.writing.index_writer import encode_root
from metatable.storage.ordering import is_ascending
from tests.long import examples
from tests.storage.hfile.making import binary, encode_block
from tests.storage.hfile.sound_files import record

PAYLOADS = st.one_of(st.binary(max_size=300), st.binary(max_size=30).map(lambda part: part * 9000))
KEYS = st.binary(min_size=1, max_size=20)


@given(PAYLOADS, st.sampled_from(SUPPORTED))
def test_codecs_round_trip(payload: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, payload), len(payload)) == payload


@given(PAYLOADS, st.sampled_from(SUPPORTED), st.integers(-3, 3).filter(bool))
def test_codecs_refuse_another_size(payload: bytes, codec: Codec, difference: int) -> None:
    size = max(len(payload) + difference, 0)
    if size != len(payload):
        with pytest.raises(CorruptError, match="path='p' offset=7"):
            decompress(codec, compress(codec, payload), size, path="p", offset=7)


def test_gz_of_nothing_is_the_known_member() -> None:
    member = compress(Codec.GZ, b"")
    assert member.hex() == "1f8b0800000000000000" + "0300" + "00" * 8
    assert gzip.decompress(member) == b""


def test_gz_with_bytes_behind_the_member_is_refused() -> None:
    with pytest.raises(CorruptError, match="3 bytes after"):
        decompress(Codec.GZ, compress(Codec.GZ, b"abc") + b"xyz", 3)


def test_gz_is_checked_against_its_own_checksum() -> None:
    member = bytearray(compress(Codec.GZ, b"abc"))
    member[-8] ^= 1
    with pytest.raises(CorruptError):
        decompress(Codec.GZ, bytes(member), 3)


def test_zstd_is_read_bare_and_in_groups_of_several_chunks() -> None:
    zstd = pa.Codec("zstd")
    first, second = b"a" * 1000, b"b" * 500
    frames = [zstd.compress(part, asbytes=True) for part in (first, second)]
    assert decompress(Codec.ZSTD, frames[0], 1000) == first
    chunks = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
    assert decompress(Codec.ZSTD, struct.pack(">I", 1500) + chunks, 1500) == first + second


def test_codec_names_are_those_of_the_option() -> None:
    assert [Codec.named(one.name.lower()) for one in SUPPORTED] == list(SUPPORTED)
    for name in ("bzip2", "lzo", "gzip", ""):
        with pytest.raises(UsageError, match="no such HFile codec"):
            Codec.named(name)
    with pytest.raises(UpgradeError, match="LZO"):
        decompress(Codec.LZO, b"", 0)


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8f80"), (131, "8f83"), (255, "8fff"), (256, "8e0100")],
)
def test_hadoop_integers_have_the_known_bytes(value: int, raw: str) -> None:
    assert wire.write_hadoop(value).hex() == raw
    assert wire.read_hadoop(bytes.fromhex(raw), 0) == (value, len(raw) // 2)


@pytest.mark.parametrize(
    ("raw", "value"), [("ff", -1), ("90", -112), ("87ff", -256), ("8680ff", ~0x80FF)]
)
def test_negative_hadoop_integers_are_read(raw: str, value: int) -> None:
    assert wire.read_hadoop(bytes.fromhex(raw), 0) == (value, len(raw) // 2)


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=3))
def test_both_integers_round_trip_amid_other_bytes(value: int, around: bytes) -> None:
    for write, read in (
        (wire.write_hadoop, wire.read_hadoop),
        (wire.write_varint, wire.read_varint),
    ):
        raw = write(value)
        assert read(around + raw + around, len(around)) == (value, len(around) + len(raw))
        with pytest.raises(wire.Malformed):
            read(raw[:-1], 0)


def test_minus_one_takes_ten_bytes_as_a_varint() -> None:
    assert len(wire.write_varint(-1)) == 10
    assert wire.read_varint(wire.write_varint(-1), 0)[0] == (1 << 64) - 1


@given(
    st.builds(
        Trailer, *[st.integers(-1, 1 << 40)] * 10, st.text(max_size=20), st.sampled_from(Codec)
    )
)
def test_trailers_round_trip(trailer: Trailer) -> None:
    raw = trailer.encode()
    assert len(raw) == 4096
    assert Trailer.decode(raw, "p", 0) == trailer


@given(st.lists(st.binary(max_size=12)), st.lists(st.binary(max_size=12)))
def test_bound_is_bisect_on_whole_keys(haystack: list[bytes], needles: list[bytes]) -> None:
    from bisect import bisect_left, bisect_right  # noqa: PLC0415

    haystack.sort()
    column, sought = binary(haystack), binary(needles)
    assert bound(column, sought).tolist() == [bisect_left(haystack, one) for one in needles]
    found = bound(column, sought, right=True).tolist()
    assert found == [bisect_right(haystack, one) for one in needles]


@given(st.lists(st.binary(max_size=12), min_size=1))
def test_first_words_ascend_with_their_keys(keys: list[bytes]) -> None:
    keys.sort()
    data = np.frombuffer(b"".join(keys) + bytes(8), np.uint8)
    sizes = np.array([len(key) for key in keys], np.int64)
    words = first_words(data, np.cumsum(sizes) - sizes, sizes)
    assert words.tolist() == [int.from_bytes(key[:8].ljust(8, b"\0"), "big") for key in keys]


def test_a_key_and_the_same_key_with_a_zero_byte_are_two() -> None:
    assert is_ascending(binary([b"a", b"a\0"]), strictly=True)
    records = records_of([(b"a", b"1"), (b"a\0", b"2"), (b"a\0\0", b"3")])
    assert records.at(np.array([2, 0])).values().to_pylist() == [b"3", b"1"]


@pytest.mark.parametrize("widest", [34, 60, 300])
def test_records_side_by_side_are_the_same_records(widest: int) -> None:
    pairs = [(b"%04d" % n, bytes((n,)) * (widest if n == 7 else 41 - n)) for n in range(12)]
    records = records_of(pairs)
    for chosen in ([11, 0, 7], [7], [3, 3, 10, 11], list(range(12)), []):
        copied = records.at(np.array(chosen, np.int64)).side_by_side()
        assert copied.keys().to_pylist() == [pairs[place][0] for place in chosen]
        assert copied.values().to_pylist() == [pairs[place][1] for place in chosen]
        finding.check_records(copied, "p", 0)
        is_copied = copied.raw is not records.raw
        assert is_copied == bool(chosen and (widest < 256 or 7 not in chosen))


def test_one_large_record_makes_no_wide_copies_of_many_small_ones() -> None:
    records = records_of([(b"%04d" % n, b"v" * (1 if n else 150)) for n in range(9)])
    assert records.side_by_side().raw is records.raw
    assert records.at(np.arange(1, 9)).side_by_side().raw is not records.raw


def records_of(pairs: list[tuple[bytes, bytes]]) -> KeyValues:
    raw = encode_records(binary(key for key, _ in pairs), binary(value for _, value in pairs))
    return parse(bytes(raw))


def parse(payload: bytes) -> KeyValues:
    return find_records(np.frombuffer(payload, np.uint8), True, "p", 0)


def walked(payload: bytes) -> KeyValues:
    return finding._walk(np.frombuffer(payload, np.uint8), True, "p", 0)


ENDING = KEY_SUFFIX[1:]
PIECES = st.sampled_from([ENDING, ENDING[1:], ENDING[:-1], b"\x7f", b"\xff", b"\x04", b"text", b""])


@given(st.lists(PIECES, max_size=12).map(b"".join), st.integers(0, 7))
def test_all_endings_of_keys_are_seen_wherever_they_lie(payload: bytes, skip: int) -> None:
    payload = bytes(10) + payload  # the sizes of the first record
    raw = np.frombuffer(bytes(skip) + payload, np.uint8)[skip:]
    ends = [at for at in range(9, len(raw)) if payload[at - 9 : at] == ENDING]
    assert endings._key_ends(raw, endings._full_places(raw)).tolist() == ends


@pytest.mark.parametrize("key_size", [None, 1, 16, 44])
@pytest.mark.parametrize("value_size", [None, 0, 4])
@pytest.mark.parametrize("count", [1, 2, 500])
def test_all_ways_to_find_records_agree_with_the_walk(
    key_size: int | None, value_size: int | None, count: int
) -> None:
    rng = random.Random(count)
    pairs = [
        (
            rng.randbytes(rng.randint(1, 40) if key_size is None else key_size),
            rng.randbytes(rng.randint(0, 90) if value_size is None else value_size),
        )
        for _ in range(count)
    ]
    keys, values = binary(key for key, _ in pairs), binary(value for _, value in pairs)
    payload = bytes(encode_records(keys, values))
    if key_size:  # the same of columns of fixed size, and of slices
        fixed = pa.concat_arrays([keys[-1:], keys]).cast(pa.binary(key_size))[1:]
        cells = values.cast(pa.binary(value_size)) if value_size else values
        assert encode_records(fixed, cells) == payload
    found, expected = parse(payload), walked(payload)
    assert found.batch().equals(expected.batch())
    assert found.keys().to_pylist() == [key for key, _ in pairs]
    assert found.values().to_pylist() == [value for _, value in pairs]


@pytest.mark.parametrize(
    ("pairs", "others"),
    [
        ([(b"aaaa", b"12"), (b"bbbb", b"34"), (b"cccc", b"56")], ["by_endings"]),
        ([(b"aaaa", b"12"), (b"bbbb", b"34"), (b"cccc", b"56")], ["_by_stride"]),
        ([(b"aaaa", b"1"), (b"bbbb", b"234"), (b"cccc", b"")], ["_by_stride"]),
        ([(b"a", b"12"), (b"bbb", b"34"), (b"cc", b"56")], ["_by_stride"]),
    ],
    ids=["by stride", "equal by endings", "equal keys", "equal values"],
)
def test_usual_records_are_found_without_walking(
    pairs: list[tuple[bytes, bytes]], others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def walks(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(finding, "_walk", walks)
    for other in others:
        monkeypatch.setattr(finding, other, lambda *_: None)
    assert records_of(pairs).keys().to_pylist() == [key for key, _ in pairs]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"\x7f" * 9, b"\0\0\0\x0e", key_values.KEY_SUFFIX[1:], b"k"]),
            st.sampled_from([b"", key_values.KEY_SUFFIX, key_values.KEY_SUFFIX[1:] * 3, b"v"]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_endings_inside_keys_and_values_deceive_nobody(pairs: list[tuple[bytes, bytes]]) -> None:
    records = records_of(pairs)
    assert records.keys().to_pylist() == [key for key, _ in pairs]
    assert records.values().to_pylist() == [value for _, value in pairs]


@given(st.binary(max_size=120), st.booleans())
@settings(max_examples=examples(75, 300))
def test_any_payload_is_parsed_or_refused(payload: bytes, with_mvcc: bool) -> None:
    where: object = 5
    try:
        records = find_records(np.frombuffer(payload, np.uint8), with_mvcc, "p", 5)
        assert len(records.batch()) == len(records)
    except CorruptError as error:
        where = error.facts["offset"]
    assert where == 5


EVEN_KEYS = [(b"%06d" % n, b"\xff" * (7 * n % 11)) for n in range(9)]
EVEN_VALUES = [(b"\xff" * (7 * n % 11), b"%04d" % n) for n in range(9)]


def told(find: Callable[[bytes], KeyValues], payload: bytes) -> list[dict[str, bytes]] | None:
    """The records that are found, None where they are refused."""
    try:
        rows: list[dict[str, bytes]] = find(payload).batch().to_pylist()
    except CorruptError:
        return None
    return rows


def spoilt(payload: bytes, *bits: int) -> Iterator[bytes]:
    """The payload with each one of these bits of each one of its bytes turned."""
    for at, bit in itertools.product(range(len(payload)), bits):
        yield payload[:at] + bytes((payload[at] ^ bit,)) + payload[at + 1 :]


@pytest.mark.parametrize("pairs", [EVEN_KEYS, EVEN_VALUES])
def test_a_spoilt_byte_is_seen_by_every_way_to_find_records_as_by_the_walk(
    pairs: list[tuple[bytes, bytes]],
) -> None:
    sound = bytes(encode_records(*map(binary, zip(*pairs, strict=True))))
    refused = 0
    for payload in spoilt(sound, 0x01, 0x20, 0x80):
        expected = told(walked, payload)
        assert told(parse, payload) == expected
        refused += expected is None
    assert refused > len(sound)


def test_a_spoilt_byte_is_seen_by_who_proves_all_records_and_copies_their_rows() -> None:
    """As by `check_records`, which copies nothing."""
    sound = bytes(encode_records(*map(binary, zip(*EVEN_KEYS, strict=True))))
    found = parse(sound)

    def placed(payload: bytes) -> KeyValues:
        raw = np.frombuffer(payload, np.uint8)
        return KeyValues.plain(raw, found.row_starts, found.row_sizes, found.value_sizes)

    def checked(payload: bytes) -> KeyValues:
        finding.check_records(placed(payload), "p", 0)
        return placed(payload)

    def proven(payload: bytes) -> KeyValues:
        return finding.proven_records(placed(payload), "p", 0)

    assert proven(sound).rows is not None
    answers = [told(proven, payload) for payload in spoilt(sound, 0x10)]
    assert answers == [told(checked, payload) for payload in spoilt(sound, 0x10)]
    assert answers.count(None) == 16 * len(EVEN_KEYS)


def test_pieces_that_would_lie_in_each_other_are_not_copied() -> None:
    """Places come from bytes of a file: so many copies might be asked for as fill the memory."""
    raw = np.zeros(1000, np.uint8)
    assert Grid.of_copies(raw, np.arange(0, 900, 100), 100) is not None
    assert Grid.of_copies(raw, np.arange(0, 900, 50), 100) is None


def test_row_of_takes_full_and_suffix_less_keys() -> None:
    assert row_of(key_values.full_key(b"row")) == b"row"
    assert row_of(b"\0\3row") == b"row"
    assert row_of(b"\0\4row") is row_of(b"\0") is row_of(b"") is None


def entries_of(index: BlockIndex) -> list[tuple[int, int, bytes]]:
    columns = index.offsets.tolist(), index.sizes.tolist(), index.keys.to_pylist()
    return list(zip(*columns, strict=True))


@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(1, 1 << 30), KEYS)))
def test_root_indexes_round_trip_and_a_mid_key_is_passed_over(
    entries: list[tuple[int, int, bytes]],
) -> None:
    full = [(offset, size, key_values.full_key(row)) for offset, size, row in entries]
    raw = encode_root(full)
    assert entries_of(decode_root(raw, len(full), "p", 0)) == entries
    assert entries_of(decode_root(raw + bytes(16), len(full), "p", 0)) == entries
    for fewer in (raw + b"x", raw + bytes(15)):
        with pytest.raises(CorruptError, match="behind them"):
            decode_root(fewer, len(full), "p", 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 50), st.integers(1, 1 << 30), KEYS), min_size=1, max_size=9
    )
)
def test_inner_indexes_are_read(entries: list[tuple[int, int, bytes]]) -> None:
    full = [key_values.full_key(row) for _, _, row in entries]
    places = [struct.pack(">qi", offset, size) for offset, size, _ in entries]
    parts = [place + key for place, key in zip(places, full, strict=True)]
    ends = np.cumsum([0, *map(len, parts)])
    raw = struct.pack(f">{len(entries) + 2}i", len(entries), *ends) + b"".join(parts)
    assert entries_of(decode_inner(raw, "p", 0)) == entries
    for damaged in (raw[:-1], raw + b"x", b"\x7f\xff\xff\xff" + raw[4:], b""):
        with pytest.raises(CorruptError):
            decode_inner(damaged, "p", 0)


def test_a_block_that_contradicts_itself_or_its_index_is_refused() -> None:
    block = encode_block(BlockType.META, b"body", Codec.NONE, checksum=Checksum.NULL)
    assert decode_block(block, Codec.NONE, "p", 3, [BlockType.META])[1] == b"body"
    for damaged, told in (
        (block[:11] + b"\x09" + block[12:] + b"\0", "contradicts itself"),
        (block + b"\0", "another size than its index says"),
        (block[:-1], "another size than its index says"),
        (block[:32], "too short"),
        (block[:24] + b"\3" + block[25:], "unknown checksum type"),
        (b"DATABLKE" + block[8:], "unknown block magic"),
        (b"DATABLK*" + block[8:], "of another kind"),
    ):
        with pytest.raises(CorruptError, match=told) as caught:
            decode_block(damaged, Codec.NONE, "p", 3, [BlockType.META])
        assert caught.value.facts["offset"] == 3


@pytest.mark.parametrize("checksum", list(Checksum))
def test_a_flipped_byte_of_one_block_among_others_is_told(checksum: Checksum) -> None:
    block = encode_block(BlockType.DATA, record(b"key", b"value"), Codec.NONE, checksum=checksum)
    places = np.arange(3) * len(block)
    sizes = np.full(3, len(block))

    def stored(raw: bytes) -> Stored:
        pieces = [np.frombuffer(raw, np.uint8)]
        return Stored(pieces, np.zeros(3, np.int64), places, places + 100, sizes)

    def verified(raw: bytes) -> None:
        some = stored(raw)
        headers = read_headers(some, Codec.NONE, "p")
        verify(some, headers, "p")

    verified(3 * block)
    damaged = bytearray(3 * block)
    damaged[2 * len(block) - 1] ^= 1
    with pytest.raises(CorruptError) as caught:
        verified(bytes(damaged))
    assert caught.value.facts["offset"] == 100 + len(block)


@given(st.lists(st.binary(max_size=3), max_size=9), st.binary(max_size=5), st.data())
def test_pieces_are_copied_alike_whether_they_have_one_size(
    rows: list[bytes], between: bytes, data: st.DataObject
) -> None:
    size = data.draw(st.none() | st.integers(0, 3))
    told = [row if size is None else row[:size].ljust(size, b"x") for row in rows]
    raw = between + between.join(told)
    starts = np.array([len(between) + at for at in _begins(told, between)], np.int64)
    sizes = np.array(list(map(len, told)), np.int64)
    pieces = np.frombuffer(raw, np.uint8)
    assert key_values._pieces(pieces, starts, sizes).to_pylist() == told


def _begins(rows: list[bytes], between: bytes) -> list[int]:
    steps = [0, *(len(row) + len(between) for row in rows[:-1])]
    begins: list[int] = np.cumsum(steps).tolist()[: len(rows)]
    return begins


def test_bytes_behind_the_trailers_message_are_refused() -> None:
    raw = bytearray(Trailer(0, 0).encode())
    raw[4000] = 1
    with pytest.raises(CorruptError, match="not zero behind the message"):
        Trailer.decode(bytes(raw), "p", 0)


def test_overlapping_blocks_are_refused() -> None:
    def checked(*places: tuple[int, int]) -> BlockIndex:
        raw = encode_root([(*place, key_values.full_key(b"k")) for place in places])
        return check_places(decode_root(raw, len(places), "p", 0), 150, "p", 0)

    assert len(checked((0, 100), (100, 50))) == 2
    for places in ([(0, 110), (100, 50)], [(100, 50), (0, 100)], [(0, 160)], [(0, 32)], [(-1, 50)]):
        with pytest.raises(CorruptError, match="block index is malformed"):
            checked(*places)


def test_a_key_behind_one_that_begins_otherwise_is_found() -> None:
    """First and last tell what all rows begin with, and one between them does not."""
    records = records_of([(key, b"") for key in (b"key3", b"key3", b"ley4", b"key5", b"key5")])
    wanted = [b"key3", b"ley4", b"key5", b"key4"]
    assert [records.place_of(key) for key in wanted] == [0, 2, 3, -1]
    assert find_any(records, binary(wanted)).places.tolist() == [0, 2, 3, -1]


@pytest.mark.parametrize("place", range(-8, 0))
def test_a_record_whose_key_does_not_end_as_a_puts_is_reported(place: int) -> None:
    """The sizes agree; the bytes between row and value say family, time and kind of the cell."""
    raw = bytearray(record(b"first", b"1") + record(b"second", b"22"))
    starts = np.array([10, 10 + len(record(b"first", b"1"))])
    sizes, values = np.array([5, 6]), np.array([1, 2])
    sound = KeyValues.plain(np.frombuffer(bytes(raw), np.uint8), starts, sizes, values)
    finding.check_records(sound, "p", 0)
    end = int(starts[1]) + 6 + 10
    raw[end + place] ^= 0x20
    spoilt = KeyValues.plain(np.frombuffer(bytes(raw), np.uint8), starts, sizes, values)
    with pytest.raises(CorruptError, match="sizes that their file says"):
        finding.check_records(spoilt, "p", 0)


@pytest.mark.parametrize("cut", [0, 1, 26, 40, 52, 77])
def test_columns_of_fixed_size_are_taken_from_whole_records_of_each_block(cut: int) -> None:
    keys, values = binary([b"aa", b"bb", b"cc"]), binary([b"1", b"2", b"3"])
    raw = np.frombuffer(encode_records(keys, values), np.uint8)
    size, ends = len(raw) // 3, np.array([cut, len(raw)])
    made = fixed_batch(Payloads(raw, np.array([0, cut]), ends), 2, 1)
    assert (made is not None) == (cut % size == 0)
    if made is not None:
        columns = [one.cast(pa.binary()) for one in made.columns]
        assert columns == [keys, values]


def test_columns_of_fixed_size_are_of_sizes_that_can_be() -> None:
    """Whatever a file says: one record of this key has as many bytes as one of 65,536 and 1."""
    raw = np.frombuffer(encode_records(binary([b"k"]), binary([b"v" * 65_536])), np.uint8)
    payloads = Payloads(raw, np.array([0]), np.array([len(raw)]))
    assert fixed_batch(payloads, 65_536, 1) is None
    assert fixed_batch(payloads, 1, 65_536) is not None


def test_chunks_of_a_block_are_such_that_no_reader_loses_its_last_entry() -> None:
    """Seven checksums are more than an entry of 28 bytes (FORMAT.md, "Two hazards")."""
    covered = np.array([1000, 6_500_000, 6_500_000])
    told = chunk_sizes(covered, np.array([28, 28, 29]))
    assert told.tolist() == [CHUNK_BYTES[0], CHUNK_BYTES[1], CHUNK_BYTES[0]]
    assert chunk_sizes(covered, None).tolist() == [CHUNK_BYTES[0]] * 3
