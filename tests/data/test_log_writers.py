"""Who wrote a log is told by the heads of its blocks, as all of it tells."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from metatable.data.file_groups.slices import DataFile, LogFile
from metatable.data.reading import log_writers
from metatable.data.reading.log_writers import writers_of
from metatable.data.reading.slice_reader import writer_of
from metatable.storage import hudi_log
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.store import Store
from tests.faults import watched

PATH = "city=ny/.f-0_20260101000000000.log.{}_0-0-0"
HEAD_BYTES = 60


def block(instant: str | None, size: int) -> LogBlock:
    told = {HeaderKey.INSTANT_TIME: instant} if instant else {}
    return LogBlock(BlockKind.DELETE, {**told, HeaderKey.SCHEMA: "{}"}, bytes(size))


def stored(store: Store, bodies: list[bytes]) -> list[LogFile]:
    """A log of each of these bodies."""
    found = []
    for number, body in enumerate(bodies, 1):
        store.put(PATH.format(number), body)
        log = LogFile.decode(PATH.format(number), len(body))
        assert isinstance(log, LogFile)
        found.append(log)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of a few bytes are large ones."""
    monkeypatch.setattr(log_writers, "WHOLE_BYTES", 0)
    monkeypatch.setattr(log_writers, "FIRST_BYTES", HEAD_BYTES)


@pytest.mark.usefixtures("small")
def test_whole_and_torn_logs_of_any_blocks_tell_what_all_of_them_does(tmp_path: Path) -> None:
    draw, store, bodies = random.Random(3), Store(tmp_path), list[bytes]()
    for _ in range(120):
        told = draw.choice([["2"], ["2"], ["2"], ["2", "3"], ["2", None]])
        blocks = [block(draw.choice(told), draw.randrange(90)) for _ in range(draw.randrange(20))]
        body = hudi_log.log_file.LogFile.encode(blocks)
        bodies.append(body[: draw.choice([len(body), len(body), draw.randrange(len(body) + 1)])])
    files = [*stored(store, bodies), DataFile("city=ny", "f-0", "0-0-0", "7")]
    expected = [writer_of(store, one) for one in files]
    assert writers_of(store, files) == expected
    assert {"", "2", "3", "7"} == set(expected)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [-1, 0, 1, 1 << 20, (1 << 63) - 1])
def test_sizes_that_cannot_be_are_nobody_s(tmp_path: Path, size: int) -> None:
    store, raw = Store(tmp_path), block("2", 90).encode()
    hostile = raw[:6] + size.to_bytes(8, "big", signed=True) + raw[14:]
    assert writers_of(store, stored(store, [hostile, raw + hostile, raw])) == ["", "", "2"]


@pytest.mark.usefixtures("small")
def test_of_each_block_its_first_bytes_are_read(tmp_path: Path) -> None:
    raw = block("2", 1 << 20).encode()
    [log] = stored(Store(tmp_path), [raw * 3])
    store, backend = watched(str(tmp_path))
    assert writers_of(store, [log]) == ["2"]
    assert [verb for verb, _ in backend.calls] == ["read"] * 3
    assert store.counters["store.bytes_read"] == 3 * HEAD_BYTES


def test_small_logs_are_read_at_once(tmp_path: Path) -> None:
    [log] = stored(Store(tmp_path), [block("2", 9).encode() * 3])
    store, backend = watched(str(tmp_path))
    assert writers_of(store, [log]) == ["2"]
    assert [verb for verb, _ in backend.calls] == ["read_whole"]
