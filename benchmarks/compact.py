"""Compaction: ten commits' index files become one set, beside RocksDB and beside the codec."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import metatable
from benchmarks import hfiles
from benchmarks.data import rows_of
from benchmarks.harness import (
    FLOOR,
    Case,
    Measure,
    Peer,
    Setup,
    absent,
    package,
    run_module,
    timed,
    timed_on_copies,
)
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.manifests.versions import newest_of
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store

QUESTION = (
    "Ten commits have each left index files of a million keys: how long does a major compaction "
    "take, how long RocksDB's of the same entries, and how much of ours is the codec?"
)

READING = "inputs of one range of places are read block by block, merged in columns, written once"
COMMITS = 10
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.int8())])
TARGET = 2.0
"""How many times as fast as RocksDB we mean to be."""
ROCKS_CODECS = {"gz": "zstd", "zstd": "zstd", "none": "none"}
"""RocksDB's beside ours. Its zlib is not in the package: asked for it, it compresses nothing."""


def cases(setup: Setup) -> Iterator[Case]:
    """The record index: in the default codec, in the one that RocksDB has too, uncompressed."""
    each = setup.tenth(1_000_000)
    for codec, theirs in ROCKS_CODECS.items():
        made = setup.cupboard.made(
            f"compact-{each}-{codec}", partial(_make, each=each, codec=codec)
        )
        yield Case(
            f"{COMMITS} x {each:,} entries, {codec}",
            "record index: keys of 16 bytes, values of 4, none twice; files in the page cache, no "
            "fsync; on as many threads as there are processors",
            _ours(setup, made / "table", each),
            [_rocks(setup, made, each, theirs), _codec(made / "table", codec)],
            READING,
        )


def _make(folder: Path, each: int, codec: str) -> None:
    """The table, and the same entries for RocksDB, one file a commit."""
    table = metatable.create(
        str(folder / "table"),
        SCHEMA,
        key="id",
        index="record",
        options={"upkeep_files": 0, "hfile_codec": codec},
        storage_options={"durable": "false"},
    )
    for commit in range(COMMITS):
        numbers = np.arange(commit * each, (commit + 1) * each)
        ids = rows_of("uuid", numbers, COMMITS * each).select(["id"])
        table.insert(ids.append_column("v", pa.nulls(each, pa.int8())))
    rocks = package("rocksdict")
    if rocks is not None:
        _load(rocks, folder, ROCKS_CODECS[codec])


def _ours(setup: Setup, source: Path, each: int) -> Measure:
    def compact(place: Path) -> Any:
        table = metatable.open(place, storage_options={"durable": "false"})
        return table.compact(major=True, partitions="record_index")

    def check(told: Any) -> None:
        assert told.files_after < told.files_before, told
        assert told.entries == COMMITS * each, told

    return timed_on_copies(setup.cupboard, source, compact, check)


def _refs(folder: Path) -> tuple[Store, list[HFileRef]]:
    """The HFiles of the record index, oldest first."""
    store = Store(str(folder))
    refs = Snapshot(store, newest_of(store)).refs("record_index")
    return store, sorted(refs, key=lambda one: one.sequence)


def _options(rocks: Any, codec: str) -> Any:
    """One file a flush, none merged before it is asked for; two threads."""
    options = rocks.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    options.set_level_zero_slowdown_writes_trigger(1000)
    options.set_level_zero_stop_writes_trigger(1000)
    options.set_write_buffer_size(1 << 30)
    options.set_compression_type(getattr(rocks.DBCompressionType, codec)())
    options.set_max_background_jobs(2)
    options.set_max_subcompactions(2)
    table = rocks.BlockBasedOptions()
    table.set_block_size(64 << 10)
    options.set_block_based_table_factory(table)
    return options


def _load(rocks: Any, folder: Path, codec: str) -> None:
    store, refs = _refs(folder / "table")
    database = rocks.Rdict(str(folder / "rocks"), _options(rocks, codec))
    for commit in sorted({one.sequence for one in refs}):
        for ref in (one for one in refs if one.sequence == commit):
            for batch in HFileReader.open(store, ref.path, ref.size_bytes).scan():
                entries = rocks.WriteBatch(raw_mode=True)
                columns = (batch[name].to_pylist() for name in ("key", "value"))
                for key, value in zip(*columns, strict=True):
                    entries.put(key, value)
                database.write(entries)
        database.flush()
    database.close()


def _rocks(setup: Setup, folder: Path, each: int, codec: str) -> Peer:
    rocks = package("rocksdict")
    if rocks is None or not (folder / "rocks").exists():
        return absent("RocksDB", "rocksdict is not installed, or was not when data was made")
    held: list[tuple[Path, Any]] = []

    def prepare() -> None:
        while held:
            setup.cupboard.drop(held.pop()[0])
        place = setup.cupboard.scratch() / "rocks"
        shutil.copytree(folder / "rocks", place)
        held.append((place.parent, rocks.Rdict(str(place), _options(rocks, codec))))

    def compact() -> Any:
        held[0][1].compact_range(None, None)
        return held[0][1]

    def check(database: Any) -> None:
        entries = sum(one["num_entries"] for one in database.live_files())
        assert entries == COMMITS * each, entries
        database.close()

    name = f"RocksDB {rocks.__version__}" if hasattr(rocks, "__version__") else "RocksDB"
    measure = timed(compact, prepare=prepare, check=check)
    return Peer(f"{name}, {codec}, two subcompactions", measure, target=TARGET)


def _codec(folder: Path, codec: str) -> Peer:
    """All blocks of the inputs inflated, and as many deflated, on as many threads."""
    kind = Codec.named(codec)
    _, refs = _refs(folder)
    blocks = [one for ref in refs for one in hfiles.data_blocks(folder / ref.path)]
    word = "CRC32C" if kind is Codec.NONE else f"{codec} both ways"
    return Peer(f"{FLOOR}{word} alone", timed(_both_ways(kind, blocks)))


def _both_ways(codec: Codec, blocks: list[tuple[bytes, int]]) -> Callable[[], int]:
    return lambda: hfiles.both_ways(codec, blocks)


if __name__ == "__main__":
    run_module(globals())
