"""Point reads: pages that hold the keys, and the answers that whole files give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, RenameColumn, Table
from metatable.data.base_files import base_file_writer
from metatable.data.reading import keyed_rows, proven_rows
from metatable.query import point_reads
from metatable.storage import cache
from metatable.storage.parquet import column_pages
from metatable.storage.parquet.page_places import KeyPages
from metatable.storage.parquet.parts import ParquetParts
from tests.index.rows import SCHEMA, expected_tags, fitting, index_of, rows, told_tags

FAST = {"durable": "false"}
KINDS = [
    ("record", "cow"),
    ("record", "mor"),
    ("metadata_bloom", "mor"),
    ("bloom", "cow"),
    ("bucket", "cow"),
    ("consistent_hashing", "mor"),
]


GONE = {f"k{number:06d}" for number in (*range(110, 115), *range(117, 120))}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages of eight rows, of which keys are asked however many they are."""
    cache.clear()
    monkeypatch.setattr(base_file_writer, "PAGE_ROWS", 8)
    monkeypatch.setattr(keyed_rows, "KEY_ROWS", 0)
    monkeypatch.setattr(keyed_rows, "FOUND_ROWS", 0)
    monkeypatch.setattr(column_pages, "BLOCK_BYTES", 400)
    monkeypatch.setattr(column_pages, "FEW_BYTES", 800)
    yield
    cache.clear()


def made(folder: Path, index: str = "record", kind: str = "cow", **options: Any) -> Table:
    """300 rows, some of them updated, some gone; of merge-on-read tables in logs."""
    options = {"file_rows": 80, "row_group_rows": 40, "small_file_bytes": 0, **options}
    table = metatable.create(
        folder,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index_of(index),
        table_type=kind,
        options=fitting(index, options) | ({"bucket_count": 2} if "bucket" in index else {}),
        storage_options=FAST,
    )
    order = np.random.default_rng(3).permutation(300)
    table.insert(rows(0, 300).take(pa.array(order)))
    table.upsert(rows(100, 130, value=1000))
    table.delete(rows(110, 120))
    table.upsert(rows(115, 117, value=2000))
    return table


def read(table: Table, asked: pa.Table, *columns: str) -> list[dict[str, Any]]:
    """The rows of these keys by pages, which are those that whole files give."""
    before = table.counters["data.pages"]
    found = table.read_keys(asked, columns or None).to_pylist()
    assert table.counters["data.pages"] > before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_rows, "KEY_ROWS", 1 << 30)
        patch.setattr(keyed_rows, "FOUND_ROWS", 1 << 30)
        before = table.counters["data.pages"]
        assert table.read_keys(asked, columns or None).to_pylist() == found
        assert table.counters["data.pages"] == before
    return found


@pytest.mark.parametrize("index", ["record", "metadata_bloom", "bloom", "bucket"])
def test_other_columns_than_the_keys_own_are_ignored(tmp_path: Path, index: str) -> None:
    table = made(tmp_path / "table", index)
    asked = table.scan(limit=3).to_arrow()
    for keys in (table.tag_locations(asked), asked.append_column("other", pa.array([1, 2, 3]))):
        for given in (keys, keys.to_reader()):
            found = table.read_keys(given)["id"].to_pylist()
            assert sorted(found) == sorted(asked["id"].to_pylist())


@pytest.mark.parametrize(("index", "kind"), KINDS)
def test_one_column_by_its_name_and_meta_columns_are_as_a_scan_has_them(
    tmp_path: Path, index: str, kind: str
) -> None:
    table, asked = made(tmp_path / "t", index, kind), rows(95, 105)
    names = ["id", "_hoodie_commit_time", "_hoodie_file_name", "_hoodie_record_key"]
    scanned = table.scan(names, where=[("id", ">=", "k000095"), ("id", "<", "k000105")]).to_arrow()
    assert len({*scanned["_hoodie_commit_time"].to_pylist()}) == 2
    assert table.read_keys(asked, names).sort_by("id").equals(scanned.sort_by("id"))
    assert sorted(table.read_keys(asked, "id")["id"].to_pylist()) == sorted(asked["id"].to_pylist())


@pytest.mark.parametrize(("index", "kind"), KINDS, ids=str)
def test_rows_by_pages_are_those_of_whole_files(tmp_path: Path, index: str, kind: str) -> None:
    table = made(tmp_path, index, kind)
    asked = pa.concat_tables([rows(95, 125), rows(95, 97), rows(290, 320), rows(7, 8)])
    expected = [
        *rows(95, 100).to_pylist(),
        *rows(100, 110, value=1000).to_pylist(),
        *rows(115, 117, value=2000).to_pylist(),
        *rows(120, 125, value=1000).to_pylist(),
        *rows(290, 300).to_pylist(),
        *rows(7, 8).to_pylist(),
    ]
    found = read(table, asked)
    assert sorted(found, key=str) == sorted(expected, key=str)
    base_rows_of_old = rows(112, 117)
    told = read(table, base_rows_of_old, "note", "id")
    assert sorted(row["note"] for row in told) == ["note 115", "note 116"]
    there = table.filter_exists(rows(105, 330))["id"].to_pylist()  # level 3, of any index
    assert there == [row["id"] for row in rows(105, 300).to_pylist() if row["id"] not in GONE]
    if "bloom" in index:
        told = table.explain(asked)
        assert told.pages == told.to_dict()["pages"] == told.counters["data.pages"] > 0
        assert ["data", "pages", str(told.pages)] in [
            row.split()[:3] for row in str(told).split("\n")
        ]
        assert told.counters.get("data.files_opened", 0) == 0
        scope = "global" if table.options.is_global else "partition"
        assert told_tags(table.tag_locations(asked)) == expected_tags(table, asked, scope)


def test_few_pages_are_read_and_again_nothing_but_pages(tmp_path: Path) -> None:
    table = made(tmp_path)
    one = rows(50, 51)
    cache.clear()
    before = dict(table.counters)
    assert table.read_keys(one).to_pylist() == one.to_pylist()
    cold = table.counters.since(before)
    assert cold["data.pages"] < 2 + 2 * 9  # of the keys, then of nine columns, some dictionaries
    before = dict(table.counters)
    assert table.read_keys(one).to_pylist() == one.to_pylist()
    warm = table.counters.since(before)
    assert warm["data.pages"] == cold["data.pages"]
    assert warm["store.bytes_read"] < cold["store.bytes_read"]
    assert "data.files_opened" not in warm


def test_a_file_that_is_asked_for_much_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    monkeypatch.setattr(keyed_rows, "KEY_ROWS", 40)
    for count, by_pages in ((1, True), (150, False)):
        before = table.counters["data.pages"]
        assert table.read_keys(rows(130, 130 + count)).num_rows == count
        assert (table.counters["data.pages"] > before) is by_pages


def test_so_many_keys_are_looked_for_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, looked, asked = made(tmp_path), keyed_rows._searched, list[list[int]]()

    def noted(store: Any, some: Any, rows: int) -> Any:
        asked.append([len(one.keys) for one in some])
        return looked(store, some, rows)

    monkeypatch.setattr(keyed_rows, "KEYS_TOGETHER", 30)
    monkeypatch.setattr(keyed_rows, "_searched", noted)
    monkeypatch.setattr(proven_rows, "_is_proven", lambda one: False)
    assert table.read_keys(rows(200, 300)).num_rows == sum(map(sum, asked)) == 100
    assert all(sum(some) <= 30 or len(some) == 1 for some in asked)
    assert len(asked) > 2


def test_bounds_that_deny_a_key_which_is_there_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    monkeypatch.setattr(KeyPages, "wanted", lambda self, texts: {})
    assert table.read_keys(rows(50, 53)).sort_by("id").to_pylist() == rows(50, 53).to_pylist()


def test_files_without_page_indexes_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = base_file_writer.pq.ParquetWriter

    def without(*given: Any, **words: Any) -> Any:
        return plain(*given, **words | {"write_page_index": False})

    monkeypatch.setattr(base_file_writer.pq, "ParquetWriter", without)
    table = made(tmp_path, "metadata_bloom")
    assert table.read_keys(rows(50, 53)).sort_by("id").to_pylist() == rows(50, 53).to_pylist()
    assert table.counters["data.pages"] == 0


def test_files_of_older_columns_are_read_by_pages_beside_newer_ones(tmp_path: Path) -> None:
    table = made(tmp_path, "metadata_bloom", "mor")
    table.alter(RenameColumn("note", "text"), AddColumn("note", pa.string()))
    more = rows(300, 340).append_column("text", pa.array(["t"] * 40))
    table.upsert(more)
    found = read(table, pa.concat_tables([rows(60, 63), rows(310, 313)]), "id", "note", "text")
    assert sorted((row["id"], row["note"], row["text"]) for row in found) == [
        ("k000060", None, "note 60"),
        ("k000061", None, "note 61"),
        ("k000062", None, "note 62"),
        ("k000310", "note 310", "t"),
        ("k000311", "note 311", "t"),
        ("k000312", "note 312", "t"),
    ]
    assert [row["note"] for row in read(table, rows(60, 63), "note")] == [None] * 3


def test_a_damaged_page_is_told_with_its_place(tmp_path: Path) -> None:
    table = made(tmp_path)
    for file in tmp_path.rglob("*.parquet"):
        raw = bytearray(file.read_bytes())
        raw[60:600] = bytes(540)
        file.write_bytes(raw)
    cache.clear()
    with pytest.raises(metatable.CorruptError, match=r"page.* path='city=.*column='.*offset="):
        table.read_keys(rows(0, 300))


@pytest.mark.each_once
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
@pytest.mark.parametrize("column", ["_hoodie_record_key", "note"])
@pytest.mark.parametrize("part", [0, 1], ids=["bounds", "places"])
def test_page_indexes_that_are_damaged_are_not_needed(
    tmp_path: Path, index: str, column: str, part: int
) -> None:
    """They have no checksum, and who decodes whole files does without."""
    table = made(tmp_path, index)
    for file in tmp_path.rglob("*.parquet"):
        raw = bytearray(file.read_bytes())
        parts = ParquetParts.of_bytes(bytes(raw))
        for group in range(len(parts.groups)):
            [chunk] = [one for one in parts.chunks(group) if one.leaf.name == column]
            at, size = chunk.page_index[part]
            raw[at : at + size] = b"\xff" * size
        file.write_bytes(raw)
    cache.clear()
    asked = pa.concat_tables([rows(50, 53), rows(290, 310)])
    found = table.read_keys(asked).sort_by("id").to_pylist()
    assert found == asked.slice(0, 13).to_pylist()
    assert table.filter_exists(asked)["id"].to_pylist() == asked["id"].to_pylist()[:13]


@pytest.mark.parametrize("asked", [[], ["b"], ["b", "a", "b"], ["c", "x", "\u00e4", ""]], ids=str)
def test_few_keys_are_found_among_others_as_many_are(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = [b"a", b"b", b"c", "\u00e4".encode(), b"\xff is no text", b""]
    keys = pa.array([b"before", *raw], pa.binary()).view(pa.string())
    ours = pa.array(["before", *asked], pa.string())
    told = []
    for few in (keyed_rows.FEW_KEYS, -1):
        monkeypatch.setattr(keyed_rows, "FEW_KEYS", few)
        rows, distinct = keyed_rows._rows_among(keys.slice(1), ours.slice(1))
        told.append((rows.tolist(), distinct))
    expected = [row for row, key in enumerate(raw) if key in {one.encode() for one in asked}]
    assert told == [(expected, len({*asked}))] * 2


@pytest.mark.parametrize(("index", "kind"), KINDS)
def test_keys_looked_up_in_parts_give_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, kind: str
) -> None:
    """A group is asked once, whatever parts name it: keys may come again."""
    table = made(tmp_path / "table", index, kind)
    monkeypatch.setattr(point_reads, "FEW_ROWS", 0)
    asked = pa.concat_tables([rows(90, 140), rows(280, 310), rows(95, 125)])
    expected = table.read_keys(asked)
    monkeypatch.setattr(point_reads, "PART_ROWS", 7)
    found = table.read_keys(asked)
    assert len(set(found["id"].to_pylist())) == found.num_rows > 60
    assert found.sort_by("id").equals(expected.sort_by("id"))
