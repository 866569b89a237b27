"""Rows of proven keys, read at once: those that are read in two steps, which are the judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import AddColumn, RenameColumn, Table
from metatable.data.base_files import base_file_writer
from metatable.data.reading import keyed_rows, proven_rows
from metatable.query import point_reads
from metatable.storage import cache
from metatable.storage.parquet import (
    chosen_pages,
    column_pages,
    pages_together,
    stored_pages,
    unpacked_pages,
)
from metatable.storage.parquet.page_places import KeyPages, Wanted
from tests.index.rows import SCHEMA, rows
from tests.long import one_in

pytestmark = pytest.mark.each_once

NAMES = (None, ["note", "id"], ["value"], ["id"])


@pytest.fixture(autouse=True, params=[0, 1 << 30], ids=["keys ahead", "all at once"])
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages of eight rows, of which keys are asked however many they are."""
    cache.clear()
    monkeypatch.setattr(chosen_pages, "AHEAD_BYTES", request.param)
    monkeypatch.setattr(unpacked_pages, "LEAST_BYTES", 1)
    monkeypatch.setattr(base_file_writer, "PAGE_ROWS", 8)
    monkeypatch.setattr(keyed_rows, "KEY_ROWS", 0)
    monkeypatch.setattr(column_pages, "BLOCK_BYTES", 400)
    yield
    cache.clear()


def made(folder: Path, kind: str = "cow", **options: str | int) -> Table:
    """300 rows in no order, of which some were updated, and have nulls."""
    table = metatable.create(
        folder,
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        table_type=kind,
        options={"file_rows": 80, "row_group_rows": 40, "small_file_bytes": 0, **options},
        storage_options={"durable": "false"},
    )
    table.insert(rows(0, 300).take(pa.array(np.random.default_rng(3).permutation(300))))
    some = rows(100, 120, value=1000)
    nulls = pa.array([None if row % 3 else f"new {row}" for row in range(20)])
    table.upsert(some.set_column(3, "note", nulls))
    return table


def both(table: Table, asked: pa.Table, names: list[str] | None = None) -> tuple[pa.Table, int]:
    """The rows, which are those of two steps, and of how many keys these were not needed."""
    ordinary, others = proven_rows.rows_of_keys, [0]

    def noted(store: Any, some: Any, *more: Any) -> Any:
        others[0] += sum(len(one.keys) for one in some)
        return ordinary(store, some, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proven_rows, "rows_of_keys", noted)
        found = table.read_keys(asked, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proven_rows, "_is_proven", lambda one: False)
        expected = table.read_keys(asked, names)
        patch.setattr(point_reads, "FEW_ROWS", 0)
        tagged = table.read_keys(asked, names)
    assert found.equals(expected)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, tagged.to_pylist()))
    found.validate(full=True)
    return found, asked.num_rows - others[0]


@pytest.mark.parametrize("seed", one_in(2, range(8)))
def test_rows_at_once_are_those_of_two_steps(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(pages_together, "ROUND_BYTES", [1, 1 << 20][seed % 2])
    monkeypatch.setattr(chosen_pages, "PORTION_BYTES", [900, 1 << 20][seed // 2 % 2])
    monkeypatch.setattr(keyed_rows, "KEYS_TOGETHER", [5, 500][seed // 4 % 2])
    table = made(tmp_path)
    count = int(random.integers(1, 60))
    asked = rows(0, 320).take(pa.array(random.choice(320, count, replace=False)))
    there = asked.filter(pa.array([one < "k000300" for one in asked["id"].to_pylist()]))
    for names in NAMES:
        found, at_once = both(table, asked, names)
        assert found.num_rows == there.num_rows
        if names != ["id"]:  # which is not read besides the pages of keys
            assert at_once == asked.num_rows
    assert sorted(both(table, asked)[0]["id"].to_pylist()) == sorted(there["id"].to_pylist())


def test_one_step_reads_what_two_steps_read(tmp_path: Path) -> None:
    table, asked, told = made(tmp_path), rows(20, 60), []
    for is_proven in (proven_rows._is_proven, lambda one: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proven_rows, "_is_proven", is_proven)
            table.read_keys(asked)
            before = dict(table.counters)
            table.read_keys(asked)
            told.append(table.counters.since(before))
    names = "data.pages", "data.page_bytes", "store.bytes_read"
    assert [told[0][name] for name in names] == [told[1][name] for name in names]


def test_keys_in_logs_are_read_in_two_steps(tmp_path: Path) -> None:
    found, at_once = both(made(tmp_path, "mor"), rows(90, 110))
    assert at_once < 20
    assert found.num_rows == 20


def test_keys_that_are_asked_twice_come_once(tmp_path: Path) -> None:
    asked = pa.concat_tables([rows(30, 40), rows(35, 45)])
    found, at_once = both(made(tmp_path), asked)
    assert (found.num_rows, at_once) == (15, 20)


def test_so_many_keys_of_a_page_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chosen_pages, "TEXTS_OF_A_PAGE", 2)
    found, at_once = both(made(tmp_path), rows(0, 300))
    assert (found.num_rows, at_once) == (300, 0)


@pytest.mark.parametrize("turn", [1, -1])
def test_bounds_that_are_wrong_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    table, plain = made(tmp_path), KeyPages.wanted

    def wrong(self: KeyPages, texts: list[bytes]) -> Wanted:
        told, count = plain(self, texts), len(self.least)
        return dict(sorted(((page + turn) % count, own) for page, own in told.items()))

    monkeypatch.setattr(KeyPages, "wanted", wrong)
    found, at_once = both(table, rows(50, 53))
    assert at_once == 0
    assert found.sort_by("id").to_pylist() == rows(50, 53).to_pylist()


def test_keys_between_pages_are_looked_for_in_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everywhere(self: KeyPages, texts: list[bytes]) -> Wanted:
        return {page: [*texts] for page in range(len(self.least))}

    monkeypatch.setattr(KeyPages, "wanted", everywhere)
    assert both(made(tmp_path), rows(50, 53))[1] == 0


@pytest.mark.parametrize("seed", one_in(2, range(6)))
def test_columns_whose_pages_begin_at_other_rows_are_read_at_once(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of keys more pages, of notes more, or neither's begin where the other's do."""
    plain = base_file_writer.pq.ParquetWriter
    size, step = [(60, 4), (100, 2), (40, 1), (60, 3), (90, 5), (30, 2)][seed]

    def uneven(*given: Any, **words: Any) -> Any:
        return plain(*given, **words | {"data_page_size": size, "write_batch_size": step})

    monkeypatch.setattr(base_file_writer.pq, "ParquetWriter", uneven)
    monkeypatch.setattr(pages_together, "ROUND_BYTES", [1, 1 << 20][seed % 2])
    table, random = made(tmp_path), np.random.default_rng(seed)
    for count in (1, 3, 40):
        asked = rows(0, 300).take(pa.array(random.choice(300, count, replace=False)))
        for names in NAMES:
            found, at_once = both(table, asked, names)
            assert found.num_rows == count
            if names != ["id"]:
                assert at_once == count


def test_keys_with_a_dictionary_are_decoded_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = base_file_writer.pq.ParquetWriter

    def encoded(*given: Any, **words: Any) -> Any:
        return plain(*given, **{**words, "use_dictionary": True, "column_encoding": None})

    monkeypatch.setattr(base_file_writer.pq, "ParquetWriter", encoded)
    found, at_once = both(made(tmp_path), rows(50, 70))
    assert (found.num_rows, at_once) == (20, 20)


@pytest.mark.parametrize("odd", ["headers", "frames"])
def test_pages_that_are_not_understood_are_decoded_and_found(
    tmp_path: Path, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers are there again for who decodes pages, whatever came of decompressing them."""
    if odd == "headers":
        monkeypatch.setattr(stored_pages, "_checked_together", lambda *given: None)
    else:
        monkeypatch.setattr(unpacked_pages, "_decompressed", lambda *given: None)
    found, at_once = both(made(tmp_path), rows(50, 70))
    assert (found.num_rows, at_once) == (20, 20)


def test_files_of_other_columns_are_read_at_once_too(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.alter(RenameColumn("note", "text"), AddColumn("note", pa.string()))
    table.insert(rows(300, 340).append_column("text", pa.array(["t"] * 40)))
    asked = pa.concat_tables([rows(95, 105), rows(310, 315)])
    for names in (None, ["id", "text"], ["note"]):
        assert both(table, asked, names)[0].num_rows == 15


def test_a_damaged_page_is_told_with_its_place(tmp_path: Path) -> None:
    table = made(tmp_path)
    for file in tmp_path.rglob("*.parquet"):
        raw = bytearray(file.read_bytes())
        raw[60:2000] = bytes(1940)
        file.write_bytes(raw)
    cache.clear()
    with pytest.raises(metatable.CorruptError, match=r"page.* path='city=.*column='.*offset="):
        table.read_keys(rows(0, 300))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("other", [b"j", b"z"])
def test_keys_that_are_there_are_found_where_bounds_of_pages_are_damaged(
    tmp_path: Path, other: bytes, kind: str
) -> None:
    """Bounds have no checksum; behind the pages, before the footer, nothing else tells keys."""
    table = made(tmp_path, kind)
    expected = table.read_keys(rows(90, 110))
    assert expected.num_rows == 20
    changed = 0
    for file in tmp_path.rglob("*.parquet"):
        raw = file.read_bytes()
        end = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
        meta = pq.read_metadata(file)
        groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
        columns = [one.column(at) for one in groups for at in range(one.num_columns)]
        start = max(
            (one.dictionary_page_offset or one.data_page_offset) + one.total_compressed_size
            for one in columns
        )
        told = raw[start:end].replace(b"k000", other + b"000")
        changed += told != raw[start:end]
        file.write_bytes(raw[:start] + told + raw[end:])
    assert changed
    cache.clear()
    found = table.read_keys(rows(90, 110))
    assert found.sort_by("id").equals(expected.sort_by("id"))
