"""HFiles between us and those for whom the format was made, hudi-io and HBase, both ways.

Their jars come from `make peers`; without them, or without a JDK, these tests are skipped.
With METATABLE_PEERS=required, which is what continuous integration says, they then fail.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.hfiles import data_blocks
from benchmarks.peers.jars import HBASE, HUDI_IO, Library, MissingError
from benchmarks.peers.program import QUICK, Program, java, put_entries, put_keys
from metatable.storage.filters import split_block
from metatable.storage.hfile import forms
from metatable.storage.hfile.codec import SUPPORTED, ZSTD_LEVEL, ZSTD_REPEATS_ONLY, Codec
from metatable.storage.hfile.file_info import CREATE_TIME_TS
from metatable.storage.hfile.verify import verify
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.hfile.zstd_records import unpack_blocks
from metatable.storage.store import Store
from tests.storage.hfile.making import binary, cold, entries_of, folder
from tests.storage.hfile.raw_file import RawFile

Entries = Mapping[bytes, bytes]

CODECS = {HUDI_IO: (Codec.GZ, Codec.NONE), HBASE: SUPPORTED}
FORMS = {HUDI_IO: forms.HUDI, HBASE: forms.HBASE}
WHOLE_INDEX = 128 << 10


@dataclass(frozen=True)
class Peer:
    library: Library
    program: Program


@pytest.fixture(scope="module", params=[HUDI_IO, HBASE], ids=lambda one: one.name)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    try:
        program = java(request.param, QUICK)
    except MissingError as error:
        if os.environ.get("METATABLE_PEERS") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))
    with program:
        yield Peer(request.param, program)


def hashed_entries(count: int) -> Entries:
    noise = np.random.default_rng(5).bytes(20 * count)
    return {noise[at : at + 16]: noise[at + 16 : at + 20] for at in range(0, len(noise), 20)}


CASES: dict[str, Entries] = {
    "hashed keys": hashed_entries(6_000),
    "texts": {f"clé-{n:06d}".encode() * (n % 12 + 1): b"v" * (n % 300) for n in range(5_000)},
    "one entry larger than a block": {b"a": b"1", b"b": b"2" * 300_000, b"c": b"3"},
    "long keys": {b"%03d" % n + b"k" * 300: b"v" for n in range(100)},
    "one size": {b"%08d" % n: b"%04d" % (n % 977) for n in range(0, 15_000, 3)},
    "nothing": {},
}


@dataclass(frozen=True)
class Shape:
    """How a file is laid out."""

    block_bytes: int
    index_bytes: int = WHOLE_INDEX
    filter_kind: str | None = None


SHAPES = (
    Shape(65536, filter_kind=split_block.KIND),
    Shape(1 << 20),
    Shape(256),
    Shape(256, index_bytes=600),
)


def write_ours(store: Store, path: str, entries: Entries, codec: Codec, shape: Shape) -> None:
    with HFileWriter(
        store,
        path,
        codec=codec,
        block_size_bytes=shape.block_bytes,
        index_chunk_bytes=shape.index_bytes,
        filter_kind=shape.filter_kind,
    ) as file:
        file.add(binary(sorted(entries)), binary(entries[key] for key in sorted(entries)))
        file.add_meta("body", BODY)


BODY = b"\0meta\xff"


def asked_of(entries: Entries) -> list[bytes]:
    """Some of its keys, and some that are not there, ascending."""
    keys = sorted(entries)
    return sorted({b"\0", *keys[::7], *(key + b"!" for key in keys[::11])})


def text(raw: bytes | None) -> str:
    return "none" if raw is None else "=" + base64.b64encode(raw).decode()


def printed(entries: Entries, asked: Iterable[bytes]) -> list[str]:
    """What Peer.java prints of a file of these entries."""
    return [
        str(len(entries)),
        f"meta {text(BODY)}",
        *(f"entry {text(key)} {text(entries[key])}" for key in sorted(entries)),
        *(f"found {text(entries.get(key))}" for key in asked),
    ]


def print_with(peer: Peer, file: Path, asked: list[bytes]) -> list[str]:
    keys, out = file.with_suffix(".keys"), file.with_suffix(".txt")
    peer.program.ask("print", file, put_keys(keys, binary(asked)), out)
    return out.read_text("ascii").splitlines()


@pytest.mark.parametrize("case", CASES)
def test_every_entry_of_ours_is_scanned_and_found_by_them(
    peer: Peer, case: str, tmp_path: Path
) -> None:
    entries = CASES[case]
    asked = asked_of(entries)
    expected = printed(entries, asked)
    for codec, shape in product(CODECS[peer.library], SHAPES):
        write_ours(folder(tmp_path), "a.hfile", entries, codec, shape)
        assert print_with(peer, tmp_path / "a.hfile", asked) == expected, (codec.name, shape)


@pytest.mark.parametrize("peer", [HBASE], indirect=True, ids=lambda one: one.name)
def test_frames_that_zstd_has_not_made_are_scanned_and_found_by_hbase(
    peer: Peer, tmp_path: Path
) -> None:
    """Full blocks of a record index of hashes are laid out by hand (zstd_records.py)."""
    entries, store = hashed_entries(20_000), folder(tmp_path)
    keys = sorted(entries)
    by_hand = {}
    for level in (ZSTD_REPEATS_ONLY, ZSTD_LEVEL):
        with HFileWriter(store, "a.hfile", codec=Codec.ZSTD, zstd_level=level) as file:
            file.add(binary(keys), binary(entries[key] for key in keys))
            file.add_meta("body", BODY)
        blocks = [np.frombuffer(raw, np.uint8) for raw, _ in data_blocks(tmp_path / "a.hfile")]
        told = [unpack_blocks([block], 16, 4) is not None for block in blocks]
        by_hand[level] = sum(told), len(told)
        asked = asked_of(entries)
        assert print_with(peer, tmp_path / "a.hfile", asked) == printed(entries, asked)
    assert by_hand == {ZSTD_REPEATS_ONLY: (12, 13), ZSTD_LEVEL: (0, 13)}, "not the full blocks"


def written_by(peer: Peer, place: Path, entries: Entries, codec: Codec, shape: Shape) -> None:
    keys = sorted(entries)
    source = place.with_suffix(".entries")
    if not source.exists():
        put_entries(source, binary(keys), binary(entries[key] for key in keys))
    peer.program.ask("write", place, source, codec.name, shape.block_bytes, shape.index_bytes)


def writable(peer: Peer, entries: Entries) -> bool:
    """hudi-io takes keys as texts."""
    try:
        return peer.library is not HUDI_IO or all(key.decode() for key in entries)
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("case", CASES)
def test_every_entry_of_theirs_is_scanned_and_found_by_us(
    peer: Peer, case: str, tmp_path: Path
) -> None:
    entries = CASES[case]
    if not writable(peer, entries):
        return
    asked = asked_of(entries)
    expected = [entries.get(key) for key in asked]
    levels = set()
    for codec, shape in product(CODECS[peer.library], SHAPES):
        written_by(peer, tmp_path / "a.hfile", entries, codec, shape)
        reader = cold(folder(tmp_path), "a.hfile")
        assert entries_of(reader) == sorted(entries.items()), (codec.name, shape)
        assert reader.get_sorted(binary(asked)).to_pylist() == expected, (codec.name, shape)
        assert [reader.get(key) for key in asked[::97]] == expected[::97], (codec.name, shape)
        levels.add(reader.trailer.num_data_index_levels)
    if peer.library is HBASE and case == "texts":
        assert len(levels) > 2, "no index of several levels was met"


def write_as(peer: Peer, store: Store, entries: Entries, codec: Codec, shape: Shape) -> None:
    """`ours.hfile` in the form of `theirs.hfile`, which the peer writes."""
    written_by(peer, Path(store.uri, "theirs.hfile"), entries, codec, shape)
    created = cold(store, "theirs.hfile").file_info[CREATE_TIME_TS]
    with HFileWriter(
        store,
        "ours.hfile",
        codec=codec,
        block_size_bytes=shape.block_bytes,
        index_chunk_bytes=shape.index_bytes,
        form=replace(FORMS[peer.library], create_time_ms=int.from_bytes(created)),
    ) as file:
        file.add(binary(sorted(entries)), binary(entries[key] for key in sorted(entries)))


@pytest.mark.parametrize("case", CASES)
def test_our_form_of_theirs_has_their_bytes(peer: Peer, case: str, tmp_path: Path) -> None:
    entries, store = CASES[case], folder(tmp_path)
    for shape in SHAPES if writable(peer, entries) else ():
        write_as(peer, store, entries, Codec.NONE, shape)
        ours, theirs = (cold(store, name) for name in ("ours.hfile", "theirs.hfile"))
        bodies = [store.fetch(one.path) for one in (ours, theirs)]
        if not theirs.file_info.keys() & SINCE_2_6:
            assert bodies[0] == bodies[1], shape
            continue
        facts = theirs.trailer.file_info_offset
        assert bodies[0][:facts] == bodies[1][:facts], shape
        assert ours.file_info == without(theirs.file_info, SINCE_2_6)
        trailers = [replace(one.trailer, total_uncompressed_bytes=0) for one in (ours, theirs)]
        assert trailers[0] == trailers[1]


@pytest.mark.parametrize("case", CASES)
def test_our_form_of_theirs_has_their_blocks_once_inflated(
    peer: Peer, case: str, tmp_path: Path
) -> None:
    """Java says 255 for the system in gzip's header, and its zlib may be another one."""
    entries, store = CASES[case], folder(tmp_path)
    for shape in SHAPES[::3] if writable(peer, entries) else ():
        write_as(peer, store, entries, Codec.GZ, shape)
        ours, theirs = (
            RawFile.parse(name, store.fetch(name) or b"") for name in ("ours.hfile", "theirs.hfile")
        )
        assert shapes_of(ours) == shapes_of(theirs), shape


def shapes_of(file: RawFile) -> list[tuple[object, ...]]:
    """Kind, content and checksums of each block; of index blocks, which hold places, the keys."""
    return [
        (
            block.magic,
            block.payload if block.links is None else [link.key for link in block.links],
            block.checksum,
            block.chunk_bytes,
        )
        for block in file.blocks[:-1]
    ]


@pytest.mark.parametrize("peer", [HUDI_IO], indirect=True, ids=lambda one: one.name)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZ])
def test_verify_names_the_keys_that_hudi_io_drops(peer: Peer, codec: Codec, tmp_path: Path) -> None:
    """It drops them from files of its own: large blocks, of which each has several checksums."""
    entries = {b"%06d" % n: b"v" * (n % 3) for n in range(60_000)}
    shape = Shape(1 << 20)
    written_by(peer, tmp_path / "a.hfile", entries, codec, shape)
    told = print_with(peer, tmp_path / "a.hfile", [])
    read = {line.split()[1] for line in told if line.startswith("entry ")}
    dropped = [key for key in sorted(entries) if text(key) not in read]
    found = [one.detail for one in verify(folder(tmp_path), "a.hfile") if one.code == "tail"]
    assert bool(dropped) == bool(found)
    assert (codec is Codec.GZ) or dropped, "nothing was dropped"
    for detail in found:
        assert detail.startswith(f"{len(dropped)} of {len(entries)} entries")
        assert detail.endswith(f"are dropped by hudi-io: {dropped!r}")


SINCE_2_6 = {b"hfile.KEY_OF_BIGGEST_CELL", b"hfile.LEN_OF_BIGGEST_CELL"}
"""Facts of HBase 2.6 that Hudi's HBase, 2.4, does not write: the form is that of 2.4."""


def without(facts: Entries, names: set[bytes]) -> Entries:
    return {name: value for name, value in facts.items() if name not in names}
