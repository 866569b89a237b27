"""Hashing metadata: Hudi's own files byte for byte, RFC-42's form, and bytes that are neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from metatable.data.file_groups.hashing_metadata import HashingMetadata, HashingNode
from metatable.storage.errors import CorruptError

STAGES = ("1initial", "2pending", "3done")

RING = HashingMetadata(
    'a="b"/\u00fc',
    "20261121091412026",
    4,
    3,
    (HashingNode(7, "one"), HashingNode(1 << 30, "two"), HashingNode(0x7FFFFFFF, "three")),
)


def stored(interop: Path, stage: str) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of the hashing files of a table that Hudi 1.2.0 has made."""
    with ZipFile(interop / "hudi-spark" / f"mor_consistent_{stage}.zip") as held:
        for name in held.namelist():
            if name.endswith(".hashing_meta"):
                yield name, held.read(name)


@pytest.mark.parametrize("stage", STAGES)
def test_hudi_s_files_come_back_byte_for_byte(interop: Path, stage: str) -> None:
    found = dict(stored(interop, stage))
    assert len(found) == (6 if stage == "3done" else 3)
    for path, raw in found.items():
        held = HashingMetadata.decode(raw, path)
        assert held.encode() == raw
        assert held.instant == Path(path).stem
        assert held.partition_path == Path(path).parent.name


def test_both_forms_are_read() -> None:
    assert HashingMetadata.decode(RING.encode(), "p") == RING
    told = {
        "version": 1,
        "partition_path": RING.partition_path,
        "instant": RING.instant,
        "num_buckets": RING.num_buckets,
        "bucket_mappings": [
            {"hash_value": one.value, "file_group": one.file_id_prefix} for one in RING.nodes
        ],
    }
    by_rfc = HashingMetadata.decode(json.dumps(told).encode(), "p")
    assert by_rfc.nodes == RING.nodes
    assert (by_rfc.partition_path, by_rfc.num_buckets, by_rfc.seq_no) == ('a="b"/\u00fc', 4, 0)
    assert told["bucket_mappings"][0] == {"hash_value": 7, "file_group": "one"}


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(RING.encode()) | fields).encode()


def nodes(change: Callable[[list[Any]], Any]) -> bytes:
    held = json.loads(RING.encode())
    change(held["nodes"])
    return json.dumps(held).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b"{}",
        changed(version=2),
        changed(version=True),
        changed(version="0"),
        changed(partitionPath=None),
        changed(instant="2026"),
        changed(instant=20261121091412),
        changed(numBuckets=0),
        changed(numBuckets=4.0),
        changed(seqNo=-1),
        changed(nodes=[]),
        changed(nodes={}),
        changed(nodes=[None]),
        nodes(lambda held: held.reverse()),
        nodes(lambda held: held[0].update(value=-1)),
        nodes(lambda held: held[2].update(value=1 << 31)),
        nodes(lambda held: held[0].update(value=False)),
        nodes(lambda held: held[1].update(value=7)),
        nodes(lambda held: held[0].update(tag="DELETE")),
        nodes(lambda held: held[0].update(fileIdPrefix="two")),
        nodes(lambda held: held[0].update(fileIdPrefix="../x")),
        nodes(lambda held: held[0].update(fileIdPrefix=None)),
        nodes(lambda held: held[0].pop("value")),
    ],
    ids=range(27),
)
def test_bytes_that_are_no_ring_are_refused_with_their_place(raw: bytes) -> None:
    with pytest.raises(CorruptError, match="path='here'"):
        HashingMetadata.decode(raw, "here")


def test_a_file_cut_short_anywhere_is_refused() -> None:
    raw = RING.encode()
    for size in range(len(raw)):
        with pytest.raises(CorruptError):
            HashingMetadata.decode(raw[:size], "here")
