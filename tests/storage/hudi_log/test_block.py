"""Blocks of log files: both directions, golden bytes, real files, hostile bytes."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError, MetatableError, UpgradeError, UsageError
from metatable.storage.hudi_log import block
from metatable.storage.hudi_log.block import MAGIC, BlockKind, HeaderKey, LogBlock
from metatable.storage.hudi_log.log_file import LogFile
from tests.storage.hudi_log.corpus import log_files, tables

BLOCKS = st.builds(
    LogBlock,
    st.sampled_from(BlockKind),
    st.dictionaries(st.sampled_from(HeaderKey), st.text(max_size=8), max_size=4),
    st.one_of(st.binary(max_size=40), st.sampled_from([MAGIC, MAGIC * 3, MAGIC + bytes(8)])),
    st.dictionaries(st.integers(0, 9), st.text(max_size=3), max_size=2),
)

INSTANT = {HeaderKey.INSTANT_TIME: "20260101000000000"}

ROLLBACK = LogBlock(
    BlockKind.COMMAND,
    {**INSTANT, HeaderKey.TARGET_INSTANT_TIME: "t", HeaderKey.COMMAND_BLOCK_TYPE: "0"},
    b"",
)
GOLDEN = (
    "23 48 55 44 49 23  00 00 00 00 00 00 00 4b  00 00 00 01  00 00 00 00"
    "00 00 00 03"
    "00 00 00 00  00 00 00 11  32 30 32 36 30 31 30 31 30 30 30 30 30 30 30 30 30"
    "00 00 00 01  00 00 00 01  74"
    "00 00 00 03  00 00 00 01  30"
    "00 00 00 00 00 00 00 00  00 00 00 00  00 00 00 00 00 00 00 51"
)


def sound() -> bytes:
    """Three blocks, the second with a content that looks like one."""
    middle = LogBlock(BlockKind.AVRO_DATA, {**INSTANT, HeaderKey.SCHEMA: "{}"}, MAGIC * 5)
    return LogFile.encode([ROLLBACK, middle, LogBlock(BlockKind.DELETE, INSTANT, b"abc" * 30)])


def starts(body: bytes) -> list[int]:
    return [one.offset for one in LogFile.decode(body, "p").blocks]


def test_the_first_bytes_of_a_log_tell_the_instant_of_its_first_block() -> None:
    raw, instant = sound(), INSTANT[HeaderKey.INSTANT_TIME]
    least = raw.index(instant.encode()) + len(instant)
    told = [block.first_instant(memoryview(raw[:size]), "p") for size in range(len(raw) + 1)]
    assert told == [None] * least + [instant] * (len(raw) + 1 - least)
    bare = LogBlock(BlockKind.DELETE, {HeaderKey.SCHEMA: "{}"}, raw)
    assert block.first_instant(memoryview(bare.encode()), "p") is None
    with pytest.raises(CorruptError, match="no log block begins here"):
        block.first_instant(memoryview(raw[1:]), "p")


def test_a_rollback_block_has_the_golden_bytes() -> None:
    assert ROLLBACK.encode() == bytes.fromhex(GOLDEN)
    assert LogFile.decode(bytes.fromhex(GOLDEN), "p") == LogFile((ROLLBACK,))


@given(st.lists(BLOCKS, max_size=4))
def test_blocks_go_both_ways(blocks: list[LogBlock]) -> None:
    body = LogFile.encode(blocks)
    found = LogFile.decode(body, "a/b")
    assert list(found.blocks) == blocks
    assert found.torn_at is None
    assert [list(one.header) for one in found.blocks] == [list(one.header) for one in blocks]
    assert {one.path for one in found.blocks} <= {"a/b"}
    assert LogFile.encode(found.blocks) == body


@given(st.lists(BLOCKS, min_size=1, max_size=3), st.data())
def test_a_file_cut_anywhere_keeps_its_whole_blocks(
    blocks: list[LogBlock], draw: st.DataObject
) -> None:
    body = LogFile.encode(blocks)
    bounds = [*starts(body), len(body)]
    size = draw.draw(st.integers(0, len(body)))
    found = LogFile.decode(body[:size], "p")
    whole = sum(bound <= size for bound in bounds[1:])
    assert list(found.blocks) == blocks[:whole]
    assert found.torn_at == (None if size in bounds else bounds[whole])


@pytest.mark.parametrize("longer", [1, 40, 1 << 40])
def test_a_size_that_reaches_over_a_later_block_is_damage_and_no_torn_end(longer: int) -> None:
    body = bytearray(sound())
    _, second, third = starts(bytes(body))
    (size,) = struct.unpack_from(">q", body, second + 6)
    struct.pack_into(">q", body, second + 6, size + longer + len(body))
    with pytest.raises(CorruptError, match=f"runs over .* path='p' offset={second}") as caught:
        LogFile.decode(bytes(body), "p")
    assert f"an end before {third}" in str(caught.value)


def test_a_torn_block_whose_rows_speak_of_blocks_is_torn() -> None:
    rows = MAGIC + (1 << 20).to_bytes(8, "big") + MAGIC + (70).to_bytes(8, "big") + bytes(90)
    body = ROLLBACK.encode() + LogBlock(BlockKind.AVRO_DATA, INSTANT, rows).encode()
    for lost in range(1, 8 + 4 + 20):
        found = LogFile.decode(body[:-lost], "p")
        assert (found.blocks, found.torn_at) == ((ROLLBACK,), len(ROLLBACK.encode()))


def test_bytes_that_are_no_block_are_damage() -> None:
    body = sound()
    for extra in (b"\0", b"#HUDI!", b"#HX", bytes(100)):
        with pytest.raises(CorruptError, match=f"no log block begins here.* offset={len(body)}"):
            LogFile.decode(body + extra, "p")


def patched(at: int, layout: str, value: int) -> bytes:
    body = bytearray(ROLLBACK.encode())
    struct.pack_into(layout, body, at, value)
    return bytes(body)


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (
            patched(14, ">i", 2),
            UpgradeError,
            "unknown log format version.*expected=\\[1\\] found=2",
        ),
        (patched(18, ">i", 7), UpgradeError, "unknown kind of log block.*found=7"),
        (patched(18, ">i", -1), UpgradeError, "unknown kind of log block.*found=-1"),
        (patched(26, ">i", 9), UpgradeError, "unknown log block header.*found=\\[9\\]"),
        (patched(26, ">i", 1), CorruptError, "header tells one thing twice.*found=1"),
        (patched(22, ">i", -1), CorruptError, "header has an impossible count.*found=-1"),
        (patched(22, ">i", 9), CorruptError, "header has an impossible count.*found=9"),
        (patched(22, ">i", 2), CorruptError, "out of bounds"),
        (patched(30, ">i", -1), CorruptError, "header is out of bounds: .*found=-1"),
        (patched(30, ">i", 1 << 30), CorruptError, "header is out of bounds"),
        (patched(34, ">B", 0xFF), CorruptError, "header is not UTF-8"),
        (patched(69, ">q", 1 << 62), CorruptError, "content of a log block is out of bounds"),
        (patched(69, ">q", -8), CorruptError, "content of a log block is out of bounds"),
        (patched(69, ">q", 4), CorruptError, "impossible count|do not fill"),
        (patched(77, ">i", 1), CorruptError, "footer"),
        (patched(81, ">q", 80), CorruptError, "before and behind .* differ.*expected=81 found=80"),
        (patched(6, ">q", 3), CorruptError, "size of a log block is impossible.*found=3"),
        (patched(6, ">q", -1), CorruptError, "size of a log block is impossible.*found=-1"),
    ],
)
def test_what_breaks_the_format_is_told(body: bytes, kind: type[MetatableError], told: str) -> None:
    with pytest.raises(kind, match=told) as caught:
        LogFile.decode(body, "a/log")
    assert caught.value.facts["path"] == "a/log"
    assert {"offset", "expected", "found"} <= caught.value.facts.keys()


def test_an_error_says_where_in_the_file_it_stands() -> None:
    first = ROLLBACK.encode()
    with pytest.raises(UpgradeError) as caught:
        LogFile.decode(first + patched(14, ">i", 2), "p")
    assert caught.value.facts["offset"] == len(first) + 22


def test_a_block_longer_than_its_parts_is_damage() -> None:
    body = ROLLBACK.encode()
    body = body[:6] + (0x4C).to_bytes(8, "big") + body[14:-8] + b"\0" + (0x52).to_bytes(8, "big")
    with pytest.raises(CorruptError, match="parts of a log block do not fill it"):
        LogFile.decode(body, "p")


def test_a_content_that_java_cannot_hold_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "MAX_CONTENT_SIZE", 10)
    assert LogBlock(BlockKind.DELETE, {}, bytes(10)).encode()
    with pytest.raises(UsageError, match="log block is too large: expected=10 found=11"):
        LogBlock(BlockKind.DELETE, {}, bytes(11)).encode()


def test_mutated_bytes_end_in_our_errors_or_in_blocks_that_are_sound() -> None:
    body = sound()
    rng = random.Random(7)
    told: Counter[str] = Counter()
    for _ in range(20_000):
        bent = bytearray(body)
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(bent))
            if rng.random() < 0.5:
                bent[at] = rng.randrange(256)
            else:
                word = rng.choice((0, 1, -1, 255, 1 << 31, 1 << 40, (1 << 63) - 1))
                size = rng.choice((4, 8))
                bent[at : at + size] = (word & ((1 << 8 * size) - 1)).to_bytes(size, "big")
        raw = bytes(bent)
        try:
            found = LogFile.decode(raw, "p")
        except (CorruptError, UpgradeError) as error:
            told[type(error).__name__] += 1
            continue
        told["torn" if found.torn_at is not None else "read"] += 1
        assert LogFile.encode(found.blocks) == raw[: found.torn_at]
    assert min(told[one] for one in ("CorruptError", "UpgradeError", "torn", "read")) > 100, told


def test_told_sizes_get_no_memory_before_there_are_bytes_for_them() -> None:
    huge = patched(22, ">i", (1 << 31) - 1)
    many = MAGIC + (1 << 50).to_bytes(8, "big") + (MAGIC + (99).to_bytes(8, "big")) * 50_000
    tracemalloc.start()
    with pytest.raises(CorruptError):
        LogFile.decode(huge, "p")
    assert LogFile.decode(many, "p").torn_at == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(many) + (1 << 20)


def test_hudi_s_own_log_files_are_read_and_written_again_byte_for_byte(interop: Path) -> None:
    kinds: Counter[BlockKind] = Counter()
    for table in tables(interop):
        for name, body in log_files(table):
            found = LogFile.decode(body, name)
            assert found.torn_at is None
            assert LogFile.encode(found.blocks) == body, name
            kinds.update(one.kind for one in found.blocks)
            assert all(HeaderKey.INSTANT_TIME in one.header for one in found.blocks)
    assert kinds[BlockKind.AVRO_DATA] > 150
    assert kinds[BlockKind.DELETE] > 60
    assert kinds[BlockKind.HFILE_DATA] > 150
