"""Buckets that resize: how fast keys are placed, how soon buckets are even, what a split costs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import metatable
from benchmarks.harness import FLOOR, Case, Measure, Peer, Setup, run_module, timed
from metatable.data.file_groups.children import WAYS
from metatable.index.bucket.ring import SPACE, Ring, hashes_of
from metatable.storage import cache
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.store import Store
from metatable.storage.xxh32 import xxh32

QUESTION = (
    "Keys go where their hashes say, and most of them have hashes beside each other: how long does "
    "placing take, how many rounds of resizing until the buckets are even, and what does one cost?"
)

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("value", pa.int64())])
NODES = (256, 100_000)
CROWDED_KEYS, CROWDED_HASHES = 0.9, 0.01
"""So many of the keys lie in so much of all hashes."""
EVEN = 2.0
"""No bucket above so many times the target."""
DEALT = 16
"""Buckets that the keys would fill if they were even."""
CUTS = {"middle": "in the middle", "median": "at the median"}
MOST_ROUNDS = 40
LOGGED = 16
"""Buckets of the table that is written while they are resized."""
BATCH = 1 << 22
"""Random keys that are hashed at once, to find those in the crowd."""


def cases(setup: Setup) -> Iterator[Case]:
    """Placing; rounds until even, cut in the middle and at the median; splits; upserts beside."""
    yield from _placing(setup.tenth(1_000_000))
    yield from _crowded(setup, setup.tenth(10_000_000))
    yield from _logged(setup, setup.tenth(1_000_000), setup.tenth(100_000))


def _placing(count: int) -> Iterator[Case]:
    """Which of many buckets keys belong to."""
    keys = _keys(np.arange(count))
    for nodes in NODES:
        ring = Ring.first("", nodes)
        yield Case(
            f"{count:,} keys to {nodes:,} buckets",
            "XXH32 of keys of 32 characters, then one binary search for all",
            timed(partial(_placed, ring, keys)),
            [Peer(f"{FLOOR}XXH32 alone", timed(lambda: xxh32(keys)))],
            "buckets are a sorted array of ends",
        )


def _crowded(setup: Setup, count: int) -> Iterator[Case]:
    """Most keys in few hashes: rounds until buckets are even, and the first split of all."""
    crowd = setup.cupboard.made(f"buckets-{count}", partial(_make, count=count))
    setting = (
        f"{CROWDED_KEYS:.0%} of the keys in {CROWDED_HASHES:.0%} of the hashes; one bucket at "
        f"first; a bucket is split above a {DEALT}th of the table, until none is"
    )
    for cut, where in CUTS.items():
        yield Case(
            f"{count:,} keys, cut {where}",
            setting,
            _rounds(setup, crowd, cut),
            reading=f"no bucket is above {EVEN:g} times the target, or it is an error; rounds "
            "are printed as they pass",
        )
    yield Case(
        f"one split of a bucket of {count:,} keys",
        "the only bucket, cut in the middle; the floor writes its rows anew as Parquet",
        _split(setup, crowd),
        [Peer(f"{FLOOR}Parquet read and written", timed(partial(_rewritten, crowd)))],
        "each child reads its parent, and rows are copied as they are",
    )


def _logged(setup: Setup, count: int, upserted: int) -> Iterator[Case]:
    """A merge-on-read table: one split, and upserts while all of its buckets are being split."""
    logged = setup.cupboard.made(f"buckets-logged-{count}", partial(_make_logged, count=count))
    yield Case(
        f"one split of one of {LOGGED} buckets",
        f"a table of {count:,} keys in one partition; Hudi's form writes all buckets of a "
        "partition anew, of which only the Parquet is done here",
        _split(setup, logged, most_bytes=1),
        [Peer("Hudi's form of a resize", timed(partial(_rewritten, logged)))],
        "our form costs the bucket",
    )
    idle = timed(_upsert(_waiting(setup, logged, None), upserted))
    for way in WAYS:
        table = _waiting(setup, logged, way)
        upsert = _upsert(table, upserted)
        upsert()
        more = sorted(_sizes_of_logs(table))[:-LOGGED]
        yield Case(
            f"{upserted:,} rows to buckets that are being resized, {way}",
            f"an upsert to a merge-on-read table of {count:,} keys in {LOGGED} buckets, all of "
            "which are being split",
            timed(upsert),
            [
                Peer(f"{FLOOR}no resize waits", idle),
                Peer(f"{FLOOR}the {len(more)} logs more, alone", timed(_files(setup, more))),
            ],
            "a row is encoded once; dual write puts its bytes twice, into three logs a bucket; "
            "that many files with their markers, and nothing else, are the floor of what comes "
            "on top",
        )


def _placed(ring: Ring, keys: pa.Array) -> Any:
    return ring.place(hashes_of(keys, ("id",)))


def _keys(numbers: Int64s) -> pa.Array:
    """Texts of 32 characters, each number's own."""
    words = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(">u8")
    both = np.stack([words, numbers.astype(">u8").view(np.uint64)], axis=1)
    digits = np.frombuffer(both.tobytes().hex().encode(), np.uint8)
    offsets = pa.py_buffer(np.arange(0, 32 * (len(numbers) + 1), 32, dtype=np.int32))
    return pa.StringArray.from_buffers(len(numbers), offsets, pa.py_buffer(digits))


def _make(folder: Path, count: int) -> None:
    """A table of one bucket with these keys."""
    wanted, found, start = int(count * CROWDED_KEYS), list[pa.Array](), 0
    while sum(map(len, found)) < wanted:
        keys = _keys(np.arange(start, start + BATCH))
        start += BATCH
        found.append(keys.filter(pa.array(_is_crowded(hashes_of(keys, ("id",))))))
    crowd = pa.concat_arrays(found)[:wanted]
    rest = _keys(np.arange(start, start + count - wanted))
    ids = pa.concat_arrays([crowd, rest])
    table = metatable.create(
        str(folder / "table"),
        SCHEMA,
        key="id",
        index="bucket",
        options={"bucket_engine": "consistent_hashing", "bucket_count": 1},
        storage_options={"durable": "false"},
    )
    rows = pa.table([ids, pa.array(np.arange(len(ids)))], schema=SCHEMA)
    table.insert(rows)


def _make_logged(folder: Path, count: int) -> None:
    """A merge-on-read table with these keys."""
    table = metatable.create(
        str(folder / "table"),
        SCHEMA,
        key="id",
        index="bucket",
        table_type="mor",
        options={"bucket_engine": "consistent_hashing", "bucket_count": LOGGED},
        storage_options={"durable": "false"},
    )
    table.insert(pa.table([_keys(np.arange(count)), pa.array(np.arange(count))], schema=SCHEMA))


def _waiting(setup: Setup, source: Path, way: str | None) -> Any:
    """A copy of the table, of which all buckets are being split this way, if any."""
    table = _fresh(setup, source)()
    if way is not None:
        table.resize_buckets(split_above=1, merge_below=0, writers=way, schedule=True)
    return table


def _upsert(table: Any, count: int) -> Callable[[], Any]:
    """One of these keys, each time with other values."""
    keys, turns = _keys(np.arange(count)), iter(range(1 << 30))
    return lambda: table.upsert(
        pa.table([keys, pa.array(np.arange(count) + next(turns))], schema=SCHEMA)
    )


def _sizes_of_logs(table: Any) -> list[int]:
    return [path.stat().st_size for path in Path(table.uri).rglob(".*.log.*")]


def _files(setup: Setup, sizes: Sequence[int]) -> Callable[[], None]:
    """So many files of these sizes, and before them their markers, as a commit writes them."""
    store, turns = Store(setup.cupboard.scratch(), {"durable": "false"}), iter(range(1 << 30))
    bodies = [b"x" * size for size in sizes]

    def write() -> None:
        names = [f"p/{next(turns)}" for _ in bodies]
        store.together(store.marking([f".hoodie/.temp/{name}" for name in names]), writes=True)
        pairs = zip(names, bodies, strict=True)
        store.together([partial(store.create, *pair) for pair in pairs], writes=True)

    return write


def _is_crowded(hashes: Int64s) -> Bools:
    first = SPACE // 3
    return (hashes >= first) & (hashes < first + int(SPACE * CROWDED_HASHES))


def _fresh(setup: Setup, source: Path) -> Callable[[], Any]:
    """Gives a copy of the table, and drops the one before."""
    held: list[Path] = []

    def given() -> Any:
        if held:
            setup.cupboard.drop(held.pop())
        held.append(setup.cupboard.copy(source / "table"))
        cache.clear()
        return metatable.open(held[0], storage_options={"durable": "false"})

    return given


def _made_even(table: Any, cut: str) -> int:
    """Resize until nothing is due; how many rounds that took."""
    target = int(table.describe().data_bytes / DEALT)
    for number in range(MOST_ROUNDS):
        told = table.resize_buckets(split_above=target, merge_below=target // 10, cut=cut)
        if not told.files_before:
            largest = max(filter(None, table.buckets()["bytes"].to_pylist()))
            assert largest <= EVEN * target, (largest, target)
            return number
        sizes = [one for one in table.buckets()["bytes"].to_pylist() if one]
        print(
            f"  round {number + 1}, {cut}: {told.files_before} -> {told.files_after} files, "
            f"largest {max(sizes) / target:.2f} of the target, {len(sizes)} with rows",
            file=sys.stderr,
        )
    raise AssertionError(f"buckets are not even after {MOST_ROUNDS} rounds")


def _rounds(setup: Setup, source: Path, cut: str) -> Measure:
    given, held = _fresh(setup, source), list[Any]()
    return timed(lambda: _made_even(held.pop(), cut), prepare=lambda: held.append(given()))


def _split(setup: Setup, source: Path, **at_once: int) -> Measure:
    given, held = _fresh(setup, source), list[Any]()

    def check(told: Any) -> None:
        assert (told.files_before, told.files_after) == (1, 2), told

    return timed(
        lambda: held.pop().resize_buckets(split_above=1, merge_below=0, **at_once),
        prepare=lambda: held.append(given()),
        check=check,
    )


def _rewritten(source: Path) -> None:
    for file in metatable.open(source / "table").files().uris:
        sink = pa.BufferOutputStream()
        pq.write_table(pq.read_table(file, partitioning=None), sink, compression="zstd")


if __name__ == "__main__":
    run_module(globals())
