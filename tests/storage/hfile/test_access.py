"""What access costs: requests, blocks, filters, mapped files, and whose word is believed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metatable.storage import cache, filters
from metatable.storage.errors import CorruptError
from metatable.storage.hfile import record_sizes
from metatable.storage.hfile.codec import SUPPORTED, Codec
from metatable.storage.hfile.columns import views
from metatable.storage.hfile.forms import HUDI, OURS, Form
from metatable.storage.hfile.reader import SCHEMA, HFileReader
from metatable.storage.hfile.reading import fetch as fetching
from metatable.storage.hfile.reading import opened as opening
from metatable.storage.hfile.reading import passes
from metatable.storage.hfile.record_sizes import RecordSizes
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, entries_of, folder

COUNT = 20_000
NOISE = np.random.default_rng(3).bytes(16 * COUNT)
KEYS = sorted(NOISE[at : at + 16] for at in range(0, len(NOISE), 16))
ALIKE = {key: key[:4] for key in KEYS}
MIXED = {key: key[: key[0] % 9] for key in KEYS}
ADDRESSES = sorted(
    b"https://host%02d.example.org/%s"
    % (key[0] % 40, key[:3].hex().encode() + key[5:7] * (key[1] % 3))
    for key in KEYS
)
LONG = {key: key[-2:] for key in ADDRESSES}
SHAPES = {"equal records": ALIKE, "values of mixed length": MIXED, "long beginnings": LONG}


def object_store(name: str) -> Store:
    return Store(f"memory://{name}")


def put(store: Store, entries: dict[bytes, bytes], **options: object) -> None:
    with HFileWriter(store, "a.hfile", block_size_bytes=4096, **options) as file:  # type: ignore[arg-type]
        file.add(binary(entries), binary(entries.values()))


@pytest.mark.each_once
@pytest.mark.parametrize("codec", SUPPORTED)
@pytest.mark.parametrize("index_chunk_bytes", [600, 128 << 10])
def test_what_prefixes_begin_with_is_fetched_together(
    codec: Codec, index_chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_tail_bytes", lambda *_: 4096)
    store = object_store(f"held{codec}{index_chunk_bytes}")
    put(store, MIXED, codec=codec, index_chunk_bytes=index_chunk_bytes)
    found = cold(store, "a.hfile")
    assert not len(found.opened.whole)
    prefixes = [b"\x00", *(bytes([first]) for first in range(3, 256, 36)), b"\xff\xff"]
    requests, fetched = "store.requests", "hfile.blocks"
    found.hold(prefixes)
    blocks, asked = found.counters[fetched], found.counters[requests]
    found.hold(prefixes[:2])
    for prefix in prefixes:
        expected = [one for one in MIXED.items() if one[0].startswith(prefix)]
        told = pa.Table.from_batches(found.scan_prefix(prefix), SCHEMA).to_pylist()
        assert [(one["key"], one["value"]) for one in told] == expected
    assert (found.counters[fetched], found.counters[requests]) == (blocks, asked)
    alone = cold(store, "a.hfile")
    assert sum(len(batch) for prefix in prefixes for batch in alone.scan_prefix(prefix)) > 500
    assert alone.counters[fetched] == blocks, "none is fetched for nothing"
    found.hold([])
    every = cold(store, "a.hfile")
    every.hold([b"", b"\x01\x01"])  # all blocks are more than are kept
    assert every.counters[fetched] < 10


@pytest.mark.each_once
@pytest.mark.parametrize("codec", SUPPORTED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "objects"])
def test_every_way_in_gives_the_same(
    tmp_path: Path, codec: Codec, shape: str, on_disk: bool
) -> None:
    entries = SHAPES[shape]
    keys = list(entries)
    store = folder(tmp_path) if on_disk else object_store(f"{codec}{shape[0]}")
    put(store, entries, codec=codec, index_chunk_bytes=600)
    found = cold(store, "a.hfile")
    assert found.opened.levels > 1
    assert found.opened.mapped is (on_disk and codec is Codec.NONE)
    others = (*(key + b"x" for key in keys[::5]), *(key[:9] for key in keys[::7]))
    asked = sorted({*keys[::3], *others})
    expected = [entries.get(key) for key in asked]
    assert found.get_sorted(binary(asked)).to_pylist() == expected
    assert cold(store, "a.hfile").get_sorted(binary(asked[:50])).to_pylist() == expected[:50]
    assert [cold(store, "a.hfile").get(key) for key in asked[:5]] == expected[:5]
    assert entries_of(found) == list(entries.items())
    prefix = keys[7][: len(keys[7]) // 8]
    assert found.prefix(prefix)["key"].to_pylist() == [
        key for key in keys if key.startswith(prefix)
    ]
    some = [batch["key"].to_pylist() for batch in found.scan(keys[50], keys[9000])]
    assert [key for part in some for key in part] == keys[50:9000]
    assert [batch["key"].to_pylist() for batch in found.scan(keys[-1])] == [keys[-1:]]
    viewed = pa.Table.from_batches(found.scan(views=True))
    assert viewed.schema.types == [pa.binary_view()] * 2
    assert viewed["key"].to_pylist() == keys
    assert viewed["value"].to_pylist() == list(entries.values())


def test_one_key_takes_three_requests_and_one_block() -> None:
    store = object_store("one")
    put(store, ALIKE, codec=Codec.NONE)
    found = cold(store, "a.hfile")
    assert found.get(KEYS[777]) == ALIKE[KEYS[777]]
    assert found._store.counters["store.requests"] == 3  # size, end of the file, block
    assert found._store.counters["hfile.blocks"] == 1
    assert found.get(KEYS[778]) == ALIKE[KEYS[778]]
    assert found._store.counters["hfile.blocks"] <= 2


def test_few_keys_read_only_their_own_paths_through_a_deep_index() -> None:
    store = object_store("deep")
    put(store, ALIKE, codec=Codec.NONE, index_chunk_bytes=300)
    found = cold(store, "a.hfile")
    levels = found.opened.levels
    assert levels > 2
    asked = [KEYS[0], KEYS[COUNT // 2], KEYS[-1]]
    assert found.get_sorted(binary(asked)).null_count == 0
    assert found._store.counters["hfile.index_blocks"] == 3 * (levels - 1)
    assert found._store.counters["hfile.blocks"] == 3
    before = dict(found._store.counters)
    assert found.get(asked[1]) == ALIKE[asked[1]]
    assert set(found._store.counters.since(before)) == {"hfile.lookups"}


def test_scanning_from_a_key_leaves_the_index_before_it_unread() -> None:
    store = object_store("from")
    put(store, ALIKE, codec=Codec.NONE, index_chunk_bytes=300)
    found = cold(store, "a.hfile")
    assert len(entries_of(found, KEYS[-100])) == 100
    assert found._store.counters["hfile.index_blocks"] < 10
    assert found._store.counters["hfile.blocks"] <= 3


def test_mapped_bytes_are_counted_like_those_that_are_read(tmp_path: Path) -> None:
    store = folder(tmp_path)
    put(store, ALIKE, codec=Codec.NONE)
    found = cold(store, "a.hfile")
    before = dict(found._store.counters)
    assert found.get(KEYS[5]) == ALIKE[KEYS[5]]
    spent = found._store.counters.since(before)
    assert spent["store.requests"] == spent["hfile.blocks"] == 1
    assert 4000 < spent["store.bytes_read"] < 4300


def test_a_mapped_block_is_verified_before_its_first_use_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    put(store, ALIKE, codec=Codec.NONE)
    found = cold(store, "a.hfile")
    asked = binary(KEYS[::3])
    assert found.get_sorted(asked).null_count == 0
    assert len(found.opened.verified) == len(found.tree.all())
    monkeypatch.setattr("metatable.storage.hfile.reading.data_blocks.verify", None)
    assert found.get_sorted(asked).null_count == 0


def test_a_scan_in_steps_leaves_a_mapped_file_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    put(store, ALIKE, codec=Codec.NONE)
    found = cold(store, "a.hfile")
    monkeypatch.setattr(Store, "count_mapped", None)  # would be called where it is used
    batches = list(found.scan(step_bytes=1000))
    assert found.opened.mapped
    assert sum(map(len, batches)) == len(ALIKE)


def test_what_is_read_anew_is_verified_anew(tmp_path: Path) -> None:
    """A file that was mapped, and verified, and then another under its name: a bad copy of it."""
    store = folder(tmp_path)
    put(store, MIXED, codec=Codec.NONE)
    found = cold(store, "a.hfile")
    assert found.get_sorted(binary(KEYS)).null_count == 0
    body = bytearray(store.fetch("a.hfile"))
    body[body.index(KEYS[9]) + len(KEYS[9]) + 10] ^= 1  # of its value
    Path(tmp_path, "b").write_bytes(body)
    Path(tmp_path, "b").rename(tmp_path / "a.hfile")
    with pytest.raises(CorruptError, match="checksum"):
        for _ in found.scan(step_bytes=1000):
            pass


def test_keys_that_the_filter_denies_touch_no_block() -> None:
    store = object_store("filtered")
    put(store, MIXED, filter_kind="split_block", filter_fpp=1e-6)
    found = cold(store, "a.hfile")
    absent = binary([key[:15] + b"!!" for key in KEYS[::2]])
    assert found.get_sorted(absent).null_count == len(absent)
    assert found._store.counters["hfile.filtered"] == len(absent)
    assert found._store.counters["hfile.blocks"] == 0
    both = sorted([*KEYS[::100], *(key[:15] + b"!!" for key in KEYS[::2])])
    assert found.get_sorted(binary(both)).to_pylist() == [MIXED.get(key) for key in both]
    assert found._store.counters["hfile.filtered"] == 2 * len(absent)


def test_the_filter_is_not_read_for_keys_that_touch_less(tmp_path: Path) -> None:
    store = object_store("few")
    put(store, MIXED, codec=Codec.NONE, filter_kind="split_block")
    found = cold(store, "a.hfile")
    assert found.find(binary([KEYS[9], b"no"])).to_pylist() == [MIXED[KEYS[9]], None]
    assert found._store.counters["hfile.filtered"] == 0


def test_without_a_words_of_sizes_records_are_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = object_store("found")
    put(store, MIXED)
    monkeypatch.setattr(passes, "META", "another")
    found = cold(store, "a.hfile")
    assert found.get_sorted(binary(KEYS)).to_pylist() == list(MIXED.values())
    assert entries_of(found) == list(MIXED.items())


def wrong_sizes(change: Callable[[RecordSizes], RecordSizes], entries: dict[bytes, bytes]) -> Store:
    """A sound file but for what it says of its records' sizes."""
    store = object_store("wrong")
    encode = RecordSizes.encode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordSizes, "encode", lambda self: encode(change(self)))
        put(store, entries)
    return store


def swapped(sizes: RecordSizes) -> RecordSizes:
    assert not isinstance(sizes.value_sizes, int)
    values = np.array(sizes.value_sizes)
    at = int(np.flatnonzero(np.diff(values))[0])
    values[[at, at + 1]] = values[[at + 1, at]]
    return RecordSizes(sizes.block_counts, sizes.key_sizes, values)


def shifted(sizes: RecordSizes) -> RecordSizes:
    counts = sizes.block_counts.copy()
    counts[:2] += [1, -1]
    return RecordSizes(counts, sizes.key_sizes, sizes.value_sizes)


def halved(sizes: RecordSizes) -> RecordSizes:
    counts = np.array([sizes.block_counts.sum()])
    return RecordSizes(counts, sizes.key_sizes, sizes.value_sizes)


@pytest.mark.parametrize("change", [swapped, shifted, halved])
def test_sizes_that_are_not_true_are_reported(
    change: Callable[[RecordSizes], RecordSizes],
) -> None:
    store = wrong_sizes(change, MIXED)
    for use in (lambda file: file.get_sorted(binary(KEYS)), entries_of):
        with pytest.raises(CorruptError, match="sizes"):
            use(cold(store, "a.hfile"))
    assert cold(store, "a.hfile").get(KEYS[41]) == MIXED[KEYS[41]]  # single keys do not ask


def test_an_equal_size_that_is_not_true_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    store = object_store("lie")
    monkeypatch.setattr(
        "metatable.storage.hfile.writer.record_sizes.encode_fact",
        lambda *_: record_sizes._FACT.pack(15, 5),
    )
    put(store, ALIKE)
    with pytest.raises(CorruptError, match="sizes"):
        cold(store, "a.hfile").get_sorted(binary(KEYS[5:99]))
    assert entries_of(cold(store, "a.hfile")) == list(ALIKE.items())  # scans prove each record


@given(
    st.lists(st.binary(max_size=20)) | st.lists(st.binary(min_size=12, max_size=20)),
    st.binary(max_size=5),
)
@example([b"a" * 13, b"b" * 14], b"")
def test_views_are_what_they_view(pieces: list[bytes], before: bytes) -> None:
    raw = np.frombuffer(before + b"".join(pieces), np.uint8)
    sizes = np.array([len(one) for one in pieces], np.int64)
    starts = np.cumsum(sizes) - sizes + len(before)
    made = views(raw, starts, sizes)
    made.validate(full=True)
    assert made.to_pylist() == pieces


def test_views_share_the_payload(tmp_path: Path) -> None:
    store = folder(tmp_path)
    put(store, {key: key * 3 for key in KEYS}, codec=Codec.NONE)
    found = cold(store, "a.hfile")
    before = pa.total_allocated_bytes()
    batches = list(found.scan(views=True))
    assert sum(map(len, batches)) == COUNT
    views_bytes = 2 * 16 * COUNT  # what they view is twice as much
    assert pa.total_allocated_bytes() - before < views_bytes * 1.1


def test_a_file_that_was_opened_stays_readable_when_it_is_deleted(tmp_path: Path) -> None:
    store = folder(tmp_path)
    put(store, ALIKE, codec=Codec.NONE)
    found = HFileReader.open(store, "a.hfile")
    store.delete(["a.hfile"])
    assert found.get_sorted(binary(KEYS)).null_count == 0
    cache.clear()


def test_a_filter_of_a_later_version_is_passed_over_and_read_once() -> None:
    store = object_store("later")
    with pytest.MonkeyPatch.context() as patch:
        later = SimpleNamespace(encode=lambda: b"\xff" * 64)
        patch.setattr(filters, "build", lambda *_: later)
        put(store, MIXED, filter_kind="split_block")
    found = cold(store, "a.hfile")
    assert found.get_sorted(binary(KEYS)).to_pylist() == list(MIXED.values())
    before = dict(found._store.counters)
    assert found.get_sorted(binary(KEYS)).to_pylist() == list(MIXED.values())
    assert "store.reads" not in found._store.counters.since(before)


def test_counts_that_no_block_has_room_for_get_no_memory() -> None:
    def many(sizes: RecordSizes) -> RecordSizes:
        counts = sizes.block_counts.copy()
        counts[0] += counts[1:].sum() - len(counts) + 1
        counts[1:] = 1
        return RecordSizes(counts, sizes.key_sizes, sizes.value_sizes)

    with pytest.raises(CorruptError, match="sizes"):
        cold(wrong_sizes(many, MIXED), "a.hfile").get_sorted(binary(KEYS))


@pytest.mark.parametrize("form", [OURS, HUDI], ids=["it is told", "it is not"])
def test_a_pass_that_unpacks_to_more_than_its_share_is_not_kept(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = object_store(f"shrunk{form is OURS}")
    put(store, {key: bytes(200) for key in KEYS}, form=form)  # 4 MB that lie in a few kB
    found = cold(store, "a.hfile")
    monkeypatch.setattr(cache.blocks, "budget_bytes", 8 << 20)
    monkeypatch.setattr(passes, "SEARCH_BYTES", 1 << 20)
    assert found.get_sorted(binary(KEYS)).null_count == 0
    most = 0 if form is OURS else 2 << 20
    assert bool(most) <= cache.blocks.size_bytes <= most


def test_reading_decodes_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    store = object_store("threads")
    put(store, MIXED)
    monkeypatch.setattr(passes, "GROUP_BYTES", 20_000)
    monkeypatch.setattr(passes, "ALONE_BYTES", 0)
    monkeypatch.setattr("metatable.storage.threads.WORKERS", 2)
    seen = set()
    decode = passes.decode_together

    def watched(*arguments: Any, **how: Any) -> Any:
        seen.add(threading.current_thread().name.rpartition("_")[0])
        time.sleep(0.001)
        return decode(*arguments, **how)

    monkeypatch.setattr(passes, "decode_together", watched)
    assert entries_of(cold(store, "a.hfile")) == list(MIXED.items())
    assert seen == {"metatable"}


@pytest.mark.parametrize("codec", SUPPORTED)
def test_what_is_read_into_memory_at_hand_is_what_is_stored(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path)
    put(store, MIXED, codec=codec)
    monkeypatch.setattr(fetching, "LARGE_BYTES", 1)
    assert entries_of(cold(store, "a.hfile")) == list(MIXED.items())


def test_a_file_that_is_cut_while_it_is_open_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "LARGE_BYTES", 1)
    store = folder(tmp_path)
    put(store, MIXED, codec=Codec.GZ)
    found = cold(store, "a.hfile")
    found.get(KEYS[0])
    with (tmp_path / "a.hfile").open("rb+") as file:
        file.truncate(10_000)
    with pytest.raises(CorruptError, match=r"a\.hfile"):
        found.get_sorted(binary(KEYS))
