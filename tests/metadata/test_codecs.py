"""How the HFiles of each metadata partition are compressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable.data.options import Options
from metatable.storage.hfile.inspect import meta
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store

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


def test_tables_of_before_keep_their_codec() -> None:
    old = Options.create("t", ["id"], key="id", options={"hfile_codec": "gz"}).encode()
    del old["hfile_codecs"]
    held = Options.decode(old, "")
    assert held.codec_of("record_index") == "gz"
    assert Options.decode(held.encode(), "").codec_of("record_index") == "gz"
