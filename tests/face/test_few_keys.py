"""Keys of a commit that are looked for in some pages of a file, beside a look at all of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable.data.base_files import base_file_writer
from metatable.data.keys.key_texts import KEY
from metatable.storage import cache
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.store import Store
from metatable.write import few_keys, spliced_slice

PAGE_ROWS = 4
SCHEMA = pa.schema([("id", pa.string()), ("seen", pa.int64()), ("t", pa.string())])


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_file_writer, "PAGE_ROWS", PAGE_ROWS)
    monkeypatch.setattr(few_keys, "KEY_ROWS", PAGE_ROWS)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each file that was to be spliced whether a look at some pages was enough."""
    seen: list[bool] = []
    look = spliced_slice.merge_of_few

    def spy(*given: Any) -> Any:
        found = look(*given)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(spliced_slice, "merge_of_few", spy)
    return seen


def rows(numbers: Any, seen: int = 0) -> pa.Table:
    ids = [f"k{one:05}" for one in numbers]
    return pa.table([ids, [seen] * len(ids), [f"t{one}{seen}" for one in ids]], SCHEMA)


def make(
    uri: str, index: str = "record", ordering: str | None = None, **options: Any
) -> metatable.Table:
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        index=index,
        ordering=ordering,
        options={"row_group_rows": 40, **options},
        storage_options={"durable": "false"},
    )
    table.insert(rows(range(0, 200, 2)))
    return table


def file_of(table: metatable.Table) -> Path:
    [file] = [Path(table.uri, one.path) for one in table.files()]
    return file


def stored(table: metatable.Table) -> tuple[pa.Table, Any]:
    """Rows and the words of the footer, but for what two tables never share."""
    found = pq.ParquetFile(file_of(table), page_checksum_verification=True)
    names = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"]
    return found.read().drop_columns(names), found.metadata.metadata


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spliced_slice, "LEAST_BYTES", 0)


def test_what_few_pages_tell_is_what_all_keys_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked: list[bool]
) -> None:
    """Rows put in, new ones, older ones, deletes: rows, counts, footer."""
    tables = [make(str(tmp_path / name), ordering="seen") for name in ("one", "two")]
    for number in range(10):
        chance = random.Random(number)
        some = sorted(chance.sample(range(200), 5))
        batch, gone = rows(some, chance.randrange(5)), rows([chance.randrange(200)]).select(["id"])
        told = [tables[0].upsert(batch), tables[0].delete(gone)]
        with monkeypatch.context() as patched:
            patched.setattr(spliced_slice, "merge_of_few", lambda *_: None)
            expected = [tables[1].upsert(batch), tables[1].delete(gone)]
        for one, other in zip(told, expected, strict=True):
            counts = ("inserted", "updated", "deleted", "stale", "index_misses")
            assert [getattr(one, name) for name in counts] == [
                getattr(other, name) for name in counts
            ]
        assert stored(tables[0])[0].equals(stored(tables[1])[0])
        assert stored(tables[0])[1] == stored(tables[1])[1]
    assert looked.count(True) > 10
    assert tables[0].verify().findings == ()


def test_many_keys_are_not_looked_for_in_pages(tmp_path: Path, looked: list[bool]) -> None:
    """Of a hundred rows: that they are together is not known before."""
    table = make(str(tmp_path))
    for count in (100 // PAGE_ROWS, 100 // PAGE_ROWS + 1):
        assert table.upsert(rows(range(0, 2 * count, 2), seen=count)).updated == count
    assert looked == [True, False]


def test_a_key_that_bounds_of_pages_deny_is_found(tmp_path: Path, looked: list[bool]) -> None:
    """The record index says that the file holds it: all keys are read."""
    table = make(str(tmp_path))
    file = file_of(table)
    parts = ParquetParts.open(Store(str(file.parent)), file.name, file.stat().st_size)
    assert parts is not None
    key = next(one for one in parts.chunks(0) if one.leaf.name == KEY)
    (at, size), _ = key.page_index
    raw = bytearray(file.read_bytes())
    bounds = bytes(raw[at : at + size])
    raw[at : at + size] = bounds.replace(b"k00008", b"k00011")  # of the page with 8, 10, 12, 14
    assert bytes(raw[at : at + size]) != bounds
    file.chmod(0o644)
    file.write_bytes(raw)
    cache.clear()
    done = metatable.open(table.uri).upsert(rows([10], seen=1))
    assert (done.inserted, done.updated) == (0, 1)
    assert looked == [False]
    assert stored(metatable.open(table.uri))[0]["id"].to_pylist().count("k00010") == 1


def test_many_keys_are_looked_for_in_all(tmp_path: Path, looked: list[bool]) -> None:
    table = make(str(tmp_path))
    table.upsert(rows(range(0, 200, 8), seen=1))
    assert looked == [False]


@pytest.mark.parametrize("index", ["metadata_bloom", "bucket"])
def test_an_index_that_asks_for_keys_or_proves_none_has_all_read(
    tmp_path: Path, index: str, looked: list[bool]
) -> None:
    table = make(str(tmp_path), index, **({"bucket_count": 1} if index == "bucket" else {}))
    table.upsert(rows([10], seen=1))
    assert looked == [False]
