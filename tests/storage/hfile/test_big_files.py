"""Files beyond 2 and 4 GiB: offsets are 64 bits wide everywhere. The space between is holes."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest

from metatable.storage.hfile import inspect
from metatable.storage.hfile.codec import Codec
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, entries_of
from tests.storage.hfile.raw_file import DATA, RawFile
from tests.storage.hfile.sound_files import Form, Keys, laid_out

MIB, GIB = 1 << 20, 1 << 30
MOST_READ = 4 * MIB
"""Of a file of gigabytes: its end, and the blocks that are asked for."""

KEYS: tuple[Keys, ...] = ("equal", "mixed")
FORMS = [
    Form(codec, keys, levels=levels, hints="both")
    for codec, keys, levels in product((Codec.NONE, Codec.GZ), KEYS, (1, 2, 3))
]


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A folder whose files may have holes."""
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        file.truncate(GIB)
    taken = getattr(os.stat(probe), "st_blocks", GIB) * 512
    probe.unlink()
    if taken > MIB:
        pytest.skip("files have no holes here, and this one takes gigabytes")
    return tmp_path


def put(raw: RawFile, path: Path) -> int:
    """Write the file with holes where it has gaps; its size."""
    with path.open("wb") as file:
        for gap, part in raw.parts():
            file.seek(gap, os.SEEK_CUR)
            file.write(part)
        return file.tell()


def check(folder: Path, raw: RawFile) -> None:
    """Every way of access finds what the file holds, and reads little of it."""
    store, entries = Store(folder), raw.entries
    held = dict(entries)
    keys = [key for key, _ in entries]
    absent = [key + b"\0" for key in keys]
    assert inspect.verify(store, "a.hfile") == []

    reader = cold(store, "a.hfile")
    assert [reader.get(key) for key in keys] == list(held.values())
    assert [reader.get(key) for key in absent] == [None] * len(absent)

    reader = cold(store, "a.hfile")
    mixed = [*reversed(keys), *absent]
    assert reader.find(binary(mixed)).to_pylist() == [held.get(key) for key in mixed]
    assert reader.get_sorted(binary(keys)).to_pylist() == list(held.values())

    reader = cold(store, "a.hfile")
    assert entries_of(reader) == entries
    assert entries_of(reader, keys[20]) == entries[20:]
    prefix = keys[-2][:2]
    found = reader.prefix(prefix)
    assert found["key"].to_pylist() == [key for key in keys if key.startswith(prefix)]
    assert reader.meta("note") == b"a META block"
    assert (reader.first_key, reader.last_key) == (keys[0], keys[-1])
    json.dumps(inspect.meta(reader))
    assert reader._store.counters["store.bytes_read"] < MOST_READ


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_blocks_and_indexes_beyond_5_gib_are_found(form: Form, sparse: Path) -> None:
    raw = laid_out(form)
    raw.blocks[1].gap = 5 * GIB  # the first data block lies at 0, all else behind
    assert put(raw, sparse / "a.hfile") > 5 * GIB
    assert raw.blocks[0].offset == 0
    assert all(block.offset > 5 * GIB for block in raw.blocks[1:])
    check(sparse, raw)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_data_section_that_passes_2_and_4_gib_is_read(form: Form, sparse: Path) -> None:
    raw = laid_out(form)
    data = raw.of(DATA)
    for block in data:
        block.gap = 5 * GIB // len(data)
    put(raw, sparse / "a.hfile")
    offsets = [block.offset for block in data]
    assert sum(offset < 2 * GIB for offset in offsets) > 1
    assert sum(2 * GIB < offset < 4 * GIB for offset in offsets) > 1
    assert sum(offset > 4 * GIB for offset in offsets) >= 1
    check(sparse, raw)


def test_one_key_of_a_file_of_gigabytes_takes_three_requests(sparse: Path) -> None:
    raw = laid_out(Form(Codec.GZ, "equal"))
    raw.blocks[1].gap = 5 * GIB
    size = put(raw, sparse / "a.hfile")
    for key, value in (raw.entries[0], raw.entries[-1]):
        reader = cold(Store(sparse), "a.hfile", size)
        assert reader.get(key) == value
        assert reader._store.counters["store.requests"] <= 3


def test_an_offset_that_a_32_bit_reader_would_take_for_a_small_one_is_not_confused(
    sparse: Path,
) -> None:
    """Two blocks whose offsets differ by 2^32 and 2^31: the lower half is the same."""
    raw = laid_out(Form(Codec.NONE, "equal"))
    first, second, third = raw.of(DATA)[:3]
    size = len(first.encode(raw.codec, 0, -1))
    second.gap = (1 << 31) - size
    third.gap = (1 << 31) - size
    put(raw, sparse / "a.hfile")
    assert [block.offset for block in raw.of(DATA)[:3]] == [0, 1 << 31, 1 << 32]
    check(sparse, raw)
