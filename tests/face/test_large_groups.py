"""File groups too large for memory: merged piece by piece, with the same result.

What makes a slice large, a file and a piece is shrunk; a table beside it is written in memory.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metatable
from metatable.data.base_files import base_file, statistics
from metatable.data.base_files.spliced_file import StoredParts
from metatable.data.rows import merge, taking
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.parquet import splice
from metatable.storage.store import Store
from metatable.write import new_slice, spliced_slice
from tests.long import examples

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("x", pa.float64()), ("text", pa.string())]
)
ROWS = 120


def make(uri: Path, **options: Any) -> metatable.Table:
    return metatable.create(
        str(uri),
        SCHEMA,
        key="id",
        ordering="ts",
        index="bucket",
        options={"bucket_count": 1, "row_group_rows": 7, **options},
        storage_options={"durable": "false"},
    )


def batch(numbers: Any, ts: int, x: float = 1.0) -> pa.Table:
    numbers = list(numbers)
    columns = [
        [f"k{number:04d}" for number in numbers],
        [ts] * len(numbers),
        [x + number for number in numbers],
        [f"{ts} " * (number % 9) if number % 5 else None for number in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of any size is large, a piece is a row group or some rows."""
    monkeypatch.setattr(new_slice, "LARGE_FILE_BYTES", 0)
    monkeypatch.setattr(new_slice, "LARGE_ROWS_BYTES", 0)
    monkeypatch.setattr(base_file, "STEP_BYTES", 1)
    monkeypatch.setattr(new_slice, "PIECE_BYTES", 500)
    monkeypatch.setattr(merge, "PIECE_BYTES", 300)
    monkeypatch.setattr(taking, "JOINED_BYTES", 1500)


def facts(table: metatable.Table) -> list[Any]:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    stats = [Snapshot(store, newest).stats(name, SCHEMA.field(name).type) for name in SCHEMA.names]
    return [[column.to_pylist() for column in one.columns] for one in stats]


COMMITS = [
    ("upsert", batch(range(40, ROWS), 5)),
    ("upsert", batch(range(60), 7)),
    ("upsert", batch(range(20, 70), 6)),
    ("delete", batch([*range(3, 30), 500], 0)),
    ("insert", batch(range(200, 230), 1)),
    ("upsert", batch([33, 250], 9)),
    ("delete", batch(range(40, 60), 0)),
]


def outcome(table: metatable.Table) -> list[Any]:
    told = []
    for verb, rows in COMMITS:
        done = getattr(table, verb)(rows)
        counts = (done.inserted, done.updated, done.deleted, done.stale, done.absent)
        rows_now = table.scan().to_arrow().sort_by("id").to_pylist()
        told.append((counts, rows_now, facts(table)))
    assert table.verify().findings == ()
    return told


def test_piece_by_piece_the_outcome_is_that_of_memory(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = outcome(make(tmp_path / "memory"))
    request.getfixturevalue("small_pieces")
    assert outcome(make(tmp_path / "pieces")) == expected


@pytest.mark.usefixtures("small_pieces")
def test_only_a_piece_and_the_rows_that_come_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "table")
    table.upsert(batch(range(ROWS), 1))
    held: list[int] = []
    write = pq.ParquetWriter.write_table

    def noting(self: Any, piece: pa.Table, *given: Any, **words: Any) -> None:
        held.append(piece.num_rows)
        write(self, piece, *given, **words)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", noting)
    monkeypatch.setattr(base_file, "read_base_file", None)
    monkeypatch.setattr("metatable.data.reading.slice_reader.read_base_file", None)
    table.upsert(batch([3, 200], 2))
    # the row group that changes, the name of the file for all others of its size, and the last one
    # with the new row: chunks of rows that stay are copied
    assert sorted(held) == [2, 7, 7]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("place", [0, ROWS // 2, ROWS - 1])
def test_a_nan_anywhere_leaves_no_bounds_in_the_footer(tmp_path: Path, place: int) -> None:
    table = make(tmp_path / "table")
    table.upsert(batch(range(ROWS), 1))
    assert bounded(table) == {True}
    table.upsert(batch([place], 2, math.nan))
    assert bounded(table) == {False}
    table.upsert(batch([ROWS + 1], 3))
    assert bounded(table) == {False}, "that it is stored is seen before it is written again"
    table.upsert(batch([place], 4))
    table.upsert(batch([ROWS + 2], 5))
    assert bounded(table) == {True}, "once it is replaced, from the next commit on"


def bounded(table: metatable.Table) -> set[bool]:
    """Whether row groups have bounds of `x`."""
    [file] = table.files()
    footer = pq.ParquetFile(Path(table.uri, file.path)).metadata
    leaf = [footer.schema.column(one).path for one in range(footer.num_columns)].index("x")
    groups = [footer.row_group(one).column(leaf) for one in range(footer.num_row_groups)]
    return {bool(one.statistics is not None and one.statistics.has_min_max) for one in groups}


@pytest.mark.usefixtures("small_pieces")
def test_a_second_attempt_adopts_what_the_first_has_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "table")
    table.upsert(batch(range(ROWS), 1))
    create = Store.create

    def twice(self: Store, path: str, body: Any, **how: Any) -> bool:
        if path.endswith(".parquet"):
            assert create(self, path, body, **how)
        return create(self, path, body, **how)

    monkeypatch.setattr(Store, "create", twice)
    assert table.upsert(batch(range(50, ROWS + 10), 2)).inserted == 10
    assert table.scan().count() == ROWS + 10
    assert table.verify().findings == ()


@given(parts=st.lists(st.lists(st.one_of(st.none(), st.text(max_size=80)), min_size=1), min_size=1))
@settings(deadline=None, max_examples=examples(20, 60))
def test_statistics_of_pieces_are_those_of_all_rows(parts: list[list[str | None]]) -> None:
    pieces = [pa.table({"a": pa.array(one, pa.string())}) for one in parts]
    [found] = statistics.of_all([statistics.of_table(one, ["a"]) for one in pieces])
    [whole] = statistics.of_table(pa.concat_tables(pieces), ["a"])
    told = (found.minimum, found.null_count, found.value_count)
    assert told == (whole.minimum, whole.null_count, whole.value_count)
    assert found.maximum == whole.maximum


def test_texts_too_long_for_a_footer_are_looked_at_by_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is spliced tells no bounds of them: they are read, but never all together."""
    texts = pa.array([f"{number % 7}" * 5_000 for number in range(ROWS)])
    wide = batch(range(ROWS), 1).set_column(3, "text", texts)
    news = batch([15, 16], 2).set_column(3, "text", pa.array(["9" * 5_000] * 2))
    table = make(tmp_path / "table", row_group_rows=10)
    table.upsert(wide)
    held: list[int] = []
    of_table = statistics.of_table

    def counting(rows: pa.Table, columns: Any) -> Any:
        held.append(rows.num_rows)
        return of_table(rows, columns)

    monkeypatch.setattr(pq.ParquetFile, "read", None)
    monkeypatch.setattr(statistics, "of_table", counting)
    table.upsert(news)
    monkeypatch.undo()
    assert held == [10] * (ROWS // 10)
    anew = make(tmp_path / "anew", row_group_rows=10)
    anew.upsert(pa.concat_tables([wide.slice(0, 15), news, wide.slice(17)]))
    assert facts(table) == facts(anew)


def test_row_groups_made_anew_are_written_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each nothing is held but its page index, which is small."""
    table = make(tmp_path / "table", row_group_rows=10)
    noise = Random(1)
    texts = pa.array([noise.randbytes(25_000).hex() for _ in range(ROWS)])
    table.upsert(batch(range(ROWS), 1).set_column(3, "text", texts))
    alive: list[int] = []
    encoded = StoredParts.encoded

    def noting(self: Any, *given: Any) -> Any:
        alive.append(pa.total_allocated_bytes())
        return encoded(self, *given)

    monkeypatch.setattr(StoredParts, "encoded", noting)
    monkeypatch.setattr(splice, "READ_BYTES", 1)
    monkeypatch.setattr(spliced_slice, "LARGE_FILE_BYTES", 0)  # small ones wait in memory
    places = range(0, ROWS, 10)
    news = pa.array([noise.randbytes(25_000).hex() for _ in places])
    table.upsert(batch(places, 2).set_column(3, "text", news))
    assert len(alive) == ROWS // 10
    assert alive[-1] - alive[1] < 1 << 20  # of 3 MiB, compressed
