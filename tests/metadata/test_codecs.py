"""How the HFiles of each metadata partition are compressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.data.bucket_functions import HASH_SPACE
from metatable.data.config.options import Options
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.storage.hfile.block import HEADER_SIZE
from metatable.storage.hfile.codec import (
    ZSTD_LEVEL,
    ZSTD_REPEATS_ONLY,
    Codec,
    compress,
    decompress,
)
from metatable.storage.hfile.inspect import meta
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from tests.storage.hfile.making import blocks_of

LEVELS = (ZSTD_LEVEL, ZSTD_REPEATS_ONLY)
KEYS = pa.array([b"%016d" % number for number in range(500)], pa.binary())
ROWS = pa.table({"id": [f"k{number}" for number in range(50)], "v": range(50)})


def codecs_of(uri: Path) -> dict[str, set[str]]:
    """Of all HFiles of a table, by metadata partition."""
    store, found = Store(uri), dict[str, set[str]]()
    for path in sorted(one.path for one in store.walk() if one.path.endswith(".hfile")):
        partition = path.split("/")[-2]
        found.setdefault(partition, set()).add(meta(HFileReader.open(store, path))["codec"])
    return found


@pytest.mark.parametrize(
    ("given", "record", "others"),
    [
        ({}, "ZSTD", "GZ"),
        ({"hfile_codec": "none"}, "NONE", "NONE"),
        ({"hfile_codecs": {"record_index": "none"}}, "NONE", "GZ"),
        ({"hfile_codec": "zstd", "hfile_codecs": {"record_index": "gz"}}, "GZ", "ZSTD"),
    ],
)
def test_each_partition_is_compressed_as_it_is_said(
    tmp_path: Path, given: dict[str, Any], record: str, others: str
) -> None:
    words: dict[str, Any] = {"key": "id", "index": "record", "options": given}
    table = metatable.create(tmp_path, ROWS.schema, storage_options={"durable": "false"}, **words)
    table.insert(ROWS.slice(0, 30))
    table.upsert(ROWS.slice(20))
    table.compact(major=True)
    wanted = {"files": {others}, "column_stats": {others}, "record_index": {record}}
    assert codecs_of(tmp_path) == wanted


@pytest.mark.parametrize(("form", "level"), [("hash", ZSTD_REPEATS_ONLY), ("plain", ZSTD_LEVEL)])
def test_level_of_zstd_follows_from_whether_keys_are_hashes(form: str, level: int) -> None:
    """Of text, so that the levels make different bytes."""
    options = Options.create("t", ["id"], key="id", options={"record_key_form": form})
    entries = RecordIndexPartition(options).tombstones_of(KEYS)
    store, owner = Store("memory://levels"), Owner("compact", "a")
    ref = RecordIndexPartition(options).store(store, 0, HASH_SPACE, entries, owner)
    assert ref is not None
    body = store.fetch(ref.path)
    offset, header = next(blocks_of(body))
    stored = body[offset + HEADER_SIZE : offset + header.covered_size]
    payload = decompress(Codec.ZSTD, stored, header.payload_size)
    packed = {one: compress(Codec.ZSTD, payload, zstd_level=one) for one in LEVELS}
    assert [one for one in LEVELS if packed[one] == stored] == [level]


def test_tables_of_before_keep_their_codec() -> None:
    old = Options.create("t", ["id"], key="id", options={"hfile_codec": "gz"}).encode()
    del old["hfile_codecs"]
    held = Options.decode(old, "")
    assert held.codec_of("record_index") == "gz"
    assert Options.decode(held.encode(), "").codec_of("record_index") == "gz"
