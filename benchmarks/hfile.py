"""HFiles alone: what a record index of a million entries costs to write and to ask.

Peers are the libraries of HFiles in other languages, warm: each asks a file that it, or one
of them, has written from the same entries. The floor is the codec's work on the blocks that
are touched, on as many threads as ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import data
from benchmarks.harness import Case, Measure, Peer, Setup, absent, run_module, timed
from benchmarks.hfiles import (
    ABSENT_EACH,
    REPEATS,
    HFile,
    Panel,
    Question,
    Ratios,
    Sample,
    crc32_of,
    equal,
    often,
    packing,
    reading_one,
    unpacking,
    unpacking_one,
)
from benchmarks.peers.asked import Peers
from benchmarks.peers.program import Answer
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.filters import split_block
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from metatable.storage.threads import WORKERS, in_order

QUESTION = (
    "How long does it take to write an HFile of sorted entries, to look up a tenth of them, keys "
    "that are not there, one key, and to read it all? How much of that is the codec, and how long "
    "do others take?"
)

FLOOR_TARGET = 0.5
"""We may take twice as long."""
OPENED = (
    "; but for decoded blocks: the file is open and mapped, and its checksums were verified "
    "(hudi-io verifies none)"
)
MAPPED_S = 0.015 / 1_000_000
"""For each entry of a mapped file, of 16-byte keys, of which a tenth is asked for."""


def cases(setup: Setup) -> Iterator[Case]:
    """Lookups, scans and writes for four shapes of keys; uuids have all of them."""
    count = setup.tenth(1_000_000)
    settle_threads()
    with Peers(warm_up_s=4.0 if setup.full else 1.0) as peers:
        for name, (make, told) in SHAPES.items():
            if setup.only.partition(":")[0] in SHAPES.keys() - {name}:
                continue
            sample = Sample(setup, name, told, make(count + count // (ABSENT_EACH - 1)))
            yield from (_uuid_cases if name == "uuid" else _other_cases)(sample, peers)
            setup.cupboard.drop(sample.folder)


def settle_threads() -> None:
    """Give each of our threads a processor of its own, until this process ends: some kernels of
    virtual machines leave threads that were woken together on one for ten milliseconds, to let the
    others sleep, which is a third of the shortest lookups here. Peers have one thread."""
    if not hasattr(os, "sched_setaffinity"):
        return
    begun = Barrier(WORKERS)  # or a thread that is done already would take another's turn

    def settle(processor: int) -> None:
        begun.wait()
        os.sched_setaffinity(0, {processor})

    for _ in in_order(settle, sorted(os.sched_getaffinity(0))[:WORKERS]):
        pass


SHAPES: dict[str, tuple[Callable[[int], data.Entries], str]] = {
    "uuid": (data.uuid_entries, "uuids as text and values like a record index's"),
    "base64": (data.base64_entries, "base64 hashes and values like a record index's"),
    "url": (data.url_entries, "addresses of mixed length and 8-byte values"),
    "hash": (data.sorted_entries, "16-byte hashes and 4-byte values"),
}


def _all_peers(ratio: float) -> Ratios:
    return {"hudi-io": ratio, "HBase": ratio, "hudi-rs": ratio}


# Cases


def _uuid_cases(sample: Sample, peers: Peers) -> Iterator[Case]:
    yield from _lookups(sample, peers)
    yield from _absent_lookups(sample, peers)
    yield from _one_key(sample, peers)
    yield from _writes(sample, peers, (Codec.GZ, Codec.ZSTD, Codec.NONE))
    yield from _scans(sample, peers, (Codec.GZ, Codec.ZSTD, Codec.NONE))


def _other_cases(sample: Sample, peers: Peers) -> Iterator[Case]:
    yield from _lookups(sample, peers)
    yield from _absent_lookups(sample, peers)
    yield from _writes(sample, peers, (Codec.GZ,))
    yield from _scans(sample, peers, (Codec.GZ,))


def _lookups(sample: Sample, peers: Peers) -> Iterator[Case]:
    """A tenth of the keys, ascending, of files of others and of ours."""
    keys = sample.tenth
    question = Question(
        partial(_asking, "get", sample, sample.asking("tenth", keys)),
        (len(keys), crc32_of(sample.tenth_values)),
    )
    other = peers.hbase if sample.name == "hash" else peers.hudi_io
    files: list[tuple[HFile, Ratios]] = [
        (sample.theirs(other, Codec.GZ), _all_peers(1.5)),
        (sample.theirs(other, Codec.NONE), _all_peers(0.4)),
        (sample.ours(Codec.GZ), {"hudi-io": 2, "floor": FLOOR_TARGET}),
        (sample.ours(Codec.ZSTD), {"hudi-io": 3, "floor": FLOOR_TARGET}),
        (sample.ours(Codec.NONE), {"hudi-io": 1.5}),
    ]
    for file, targets in files:
        mapped = file == sample.ours(Codec.NONE)
        for state in ("", OPENED) if mapped else ("",):
            yield Case(
                f"{sample.name}: get {len(keys):,} sorted keys, {file.codec.name} by "
                f"{file.writer}{state and ', opened before'}",
                sample.setting(file) + state,
                timed(
                    partial(_get, sample.store, file.path, keys),
                    prepare=cache.blocks.clear if state else cache.clear,
                    check=partial(_same, sample.tenth_values),
                ),
                [
                    unpacking(sample, file, targets.get("floor")),
                    *Panel(sample, peers, question, targets).of(file.codec),
                ],
                target=MAPPED_S * sample.count if mapped and sample.name == "hash" else None,
            )


def _absent_lookups(sample: Sample, peers: Peers) -> Iterator[Case]:
    keys = sample.absent
    question = Question(partial(_asking, "get", sample, sample.asking("absent", keys)), (0, 0))
    for file, targets in (
        (sample.ours(Codec.GZ, split_block.KIND), {"hudi-io": 10.0}),
        (sample.ours(Codec.GZ), {}),
    ):
        yield Case(
            f"{sample.name}: get {len(keys):,} absent keys, {file.codec.name} by {file.writer}",
            sample.setting(file),
            timed(
                partial(_get, sample.store, file.path, keys),
                prepare=cache.clear,
                check=lambda found: equal(len(found), found.null_count),
            ),
            [
                unpacking(sample, file, None),
                *Panel(sample, peers, question, targets).of(file.codec),
            ],
        )


def _one_key(sample: Sample, peers: Peers) -> Iterator[Case]:
    """The first key of a file that is not open, and the second one of a file that is."""
    places = sample.count // 3, sample.count // 2
    first, second = (sample.keys[place].as_py() for place in places)
    crc32 = crc32_of(sample.values.take(pa.array(places[1:])))
    many = sample.keys_at(*range(0, sample.count, sample.count // 200))
    asking = {
        "open": sample.asking("one", sample.keys_at(places[1])),
        "next": sample.asking("two", sample.keys_at(*places)),
    }
    warming = sample.asking("many", many)
    foreign = sample.theirs(peers.hudi_io, Codec.GZ)
    files = [foreign, *(sample.ours(codec) for codec in (Codec.GZ, Codec.ZSTD, Codec.NONE))]
    for what, asked in (("open", asking["open"]), ("next", asking["next"])):
        question = Question(
            partial(_asking, what, sample, asked),
            (1, crc32),
            REPEATS,
            partial(_asking, "open", sample, warming),
        )
        for file in files:
            measure = _opening if what == "open" else _asking_again
            yield Case(
                f"{sample.name}: {_ONE_KEY[what]}, {file.codec.name} by {file.writer}",
                f"{sample.setting(file)}; {_cost(sample, file, second)}",
                often(measure(sample, file, first, second)),
                [
                    unpacking_one(sample, file),
                    reading_one(sample, file),
                    *Panel(sample, peers, question).of(file.codec),
                ],
                target=0.001 if what == "open" else 0.0001,
            )


_ONE_KEY = {"open": "get one key, open included", "next": "get a second key of the open file"}


def _asking(what: str, sample: Sample, keys: Path, file: HFile) -> tuple[object, ...]:
    return what, sample.folder / file.path, keys


def _opening(sample: Sample, file: HFile, first: bytes, second: bytes) -> Measure:
    return timed(
        lambda: HFileReader.open(sample.store, file.path).get(second),
        prepare=cache.clear,
        check=_some,
    )


def _asking_again(sample: Sample, file: HFile, first: bytes, second: bytes) -> Measure:
    opened: list[HFileReader] = []

    def prepare() -> None:
        cache.clear()
        opened[:] = [HFileReader.open(sample.store, file.path)]
        _some(opened[0].get(first))

    return timed(lambda: opened[0].get(second), prepare=prepare, check=_some)


def _cost(sample: Sample, file: HFile, key: bytes) -> str:
    """What opening and the first key cost; on an object store requests are what takes the time."""
    cache.clear()
    counters = Counters()
    _some(HFileReader.open(sample.store.counting(counters), file.path).get(key))
    requests, read = counters["store.requests"], counters["store.bytes_read"]
    return f"the first key takes {requests} requests (target: 3) and {read:,} bytes"


def _writes(sample: Sample, peers: Peers, codecs: Sequence[Codec]) -> Iterator[Case]:
    for codec in codecs:
        targets: Ratios = {"hudi-io": 3} if codec is Codec.GZ else {}
        floor = packing(sample, codec)
        with_filter: dict[str, str | None] = {codec.name: None}
        if codec is Codec.GZ and sample.name == "uuid":
            with_filter[f"{codec.name}, with a filter"] = split_block.KIND
        for told, kind in with_filter.items():
            yield Case(
                f"{sample.name}: write {sample.count:,}, {told}",
                sample.setting(),
                timed(partial(sample.write, "draft.hfile", codec, kind), prepare=cache.clear),
                [
                    floor,
                    *_writing_peers(sample, peers, codec, targets),
                ],
            )


def _writing_peers(sample: Sample, peers: Peers, codec: Codec, targets: Ratios) -> list[Peer]:
    found = [absent(peers.hudi_rs.name, "this version has no writer of HFiles")]
    for peer in (peers.hbase, peers.hudi_io):
        if peer is peers.hudi_io and sample.name == "hash":
            found.append(absent(peer.name, "it writes keys that are texts"))
            continue
        known = codec is not Codec.ZSTD or peer is peers.hbase
        words = sample.writing("draft-of-peer.hfile", codec if known else Codec.GZ)
        label, target = words[3], targets.get(peer.name)
        check = partial(_count_is, sample.count)
        found.append(peer.peer(str(label), *words, check=check, target=target))
    return found[::-1]


def _scans(sample: Sample, peers: Peers, codecs: Sequence[Codec]) -> Iterator[Case]:
    total = int(pc.sum(pc.binary_length(sample.keys)).as_py())
    total += int(pc.sum(pc.binary_length(sample.values)).as_py())
    question = Question(lambda file: ("scan", sample.folder / file.path), (sample.count, total))
    foreign = sample.theirs(peers.hbase if sample.name == "hash" else peers.hudi_io, Codec.GZ)
    for file in (foreign, *(sample.ours(codec) for codec in codecs)):
        targets: Ratios = {"hudi-io": 2} if file.codec is Codec.GZ else {}
        for views in (False, True) if sample.name == "uuid" else (False,):
            columns = "views of the blocks" if views else "Arrow batches"
            yield Case(
                f"{sample.name}: scan to {columns}, {file.codec.name} by {file.writer}",
                sample.setting(file),
                timed(
                    partial(_scan, sample.store, file.path, views),
                    prepare=cache.clear,
                    check=partial(equal, sample.count),
                ),
                [
                    unpacking(sample, file, None),
                    *Panel(sample, peers, question, targets).of(file.codec),
                ],
            )


def _get(store: Store, path: str, keys: pa.Array) -> pa.Array:
    return HFileReader.open(store, path).get_sorted(keys)


def _scan(store: Store, path: str, views: bool) -> int:
    return sum(batch.num_rows for batch in HFileReader.open(store, path).scan(views=views))


# Checks


def _same(expected: pa.Array, found: pa.Array) -> None:
    assert found.equals(expected)


def _some(found: bytes | None) -> None:
    assert found is not None


def _count_is(expected: int, answer: Answer) -> None:
    equal(expected, answer.count)


if __name__ == "__main__":
    run_module(globals())
