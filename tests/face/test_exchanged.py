"""Chunks of which only the pages with rows that change are made anew, beside whole ones."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from benchmarks.rounds import Rounds
from metatable.data.base_files import base_file_writer, encoding, exchanged_columns
from metatable.data.base_files.base_file_writer import FileForm, encoded_columns
from metatable.data.base_files.encoding import Encoding
from metatable.data.config.options import Options
from metatable.engine import local
from metatable.storage import cache, store
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Bounds, Meta
from metatable.storage.parquet.offset_index import ROW, decode_offset_indexes
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.thrift import decode_struct
from metatable.storage.store import Store
from metatable.write import group_maker
from tests.far import data_rounds, far, in_memory

PAGE_ROWS = 4
GROUP_ROWS = 40
FIRST = datetime(2026, 1, 1)

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("t", pa.string()),
        ("b", pa.binary()),
        ("city", pa.string()),
        ("rare", pa.int64()),
    ]
)


@pytest.fixture(autouse=True, params=[1 << 20, 20], ids=["by rows", "by bytes"])
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of numbers four rows a page, of texts two where so few bytes fill it. Where they do not,
    numbers have no codec."""
    is_by_rows = request.param > PAGE_ROWS * 20
    monkeypatch.setattr(encoding, "_RUN", 8)
    monkeypatch.setattr(encoding, "_LEAST_ROWS", 16 if is_by_rows else 1 << 20)
    monkeypatch.setattr(base_file_writer, "PAGE_ROWS", PAGE_ROWS)
    monkeypatch.setattr(base_file_writer, "PAGE_BYTES", request.param)
    monkeypatch.setattr(base_file_writer, "BATCH_ROWS", PAGE_ROWS // 2)
    monkeypatch.setattr(exchanged_columns, "PAGE_ROWS", PAGE_ROWS)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Chunk | None]:
    """Every chunk whose pages were to be exchanged, None where it was encoded whole after all."""
    seen: list[Chunk | None] = []

    def spy(*given: Any) -> list[Chunk | None]:
        found = exchanged(*given)
        seen.extend(found)
        return found

    exchanged = exchanged_columns.exchanged
    monkeypatch.setattr(exchanged_columns, "exchanged", spy)
    return seen


def rows(numbers: Any, seed: int = 0) -> pa.Table:
    chance = random.Random(seed)
    columns: list[list[Any]] = [[] for _ in SCHEMA]
    for number in numbers:
        some = chance.randrange(-(10**6), 10**6)
        values = (
            f"k{number:05}",
            some,
            some // 7,
            some / 8,
            date(2026, 1, 1) + timedelta(days=some % 5000),
            FIRST + timedelta(seconds=some),
            f"t{some}",
            b"\xff%d" % some,
            f"city {some % 3}",
            None if some % 4 == 0 else some,
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return pa.table(columns, SCHEMA)


def make(uri: str, **options: Any) -> metatable.Table:
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        index="record",
        options={"row_group_rows": GROUP_ROWS, "file_rows": 1000, **options},
        storage_options=None if uri.startswith("memory") else {"durable": "false"},
    )
    table.insert(rows(range(100)))
    return table


def file_of(table: metatable.Table) -> Path:
    [file] = [Path(table.uri, one.path) for one in table.files()]
    return file


def stored(file: Path) -> pa.Table:
    found = pq.ParquetFile(file, page_checksum_verification=True).read()
    return found.drop_columns(["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"])


def parts_of(file: Path) -> ParquetParts:
    found = ParquetParts.open(Store(str(file.parent)), file.name, file.stat().st_size)
    assert found is not None
    return found


def told(chunk: Chunk) -> list[Any]:
    """What a chunk tells of its values and of its pages, but for the order of bounds."""
    bounds, places = chunk.parts.read(chunk.page_index)
    index, _ = decode_struct(bounds, "")
    _, pages = decode_offset_indexes([places])
    lists = [index.get(field) for field in range(1, Bounds.LAST + 1) if field != Bounds.ORDER]
    return [chunk.meta[Meta.STATISTICS], lists, pages[:, ROW].tolist(), chunk.uncompressed]


def encoded_anew(file: Path, group: int) -> tuple[Chunk, ...]:
    piece = pq.ParquetFile(file).read_row_group(group)
    chunks = parts_of(file).chunks(group)
    worth = [one.leaf.name for one in chunks if one.has_dictionary]
    plain = [one.leaf.name for one in chunks if not one.meta[Meta.CODEC]]
    form = FileForm(Options("t", ("id",)), None)
    return ParquetParts.of_bytes(encoded_columns(piece, form, Encoding(worth, plain))).chunks(0)


def test_a_table_of_exchanged_pages_is_that_of_files_made_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: list[Chunk | None],
    request: pytest.FixtureRequest,
) -> None:
    """Ten commits over each other: rows, bounds, places of pages."""
    tables = [make(str(tmp_path / name)) for name in ("one", "two")]
    for number in range(10):
        batch = rows(random.Random(number).sample(range(100), 4), seed=100 + number)
        tables[0].upsert(batch)
        with monkeypatch.context() as patched:
            patched.setattr(group_maker, "spliced_file", lambda *_: None)
            tables[1].upsert(batch)
        one, other = map(file_of, tables)
        assert stored(one).equals(stored(other))
        for group in range(len(parts_of(one).groups)):
            chunks = zip(parts_of(one).chunks(group), encoded_anew(one, group), strict=True)
            for chunk, anew in chunks:
                if chunk.has_dictionary:
                    continue
                assert told(chunk) == told(anew), (number, group, chunk.leaf.name)
    assert sum(one is not None for one in made) > 100
    assert {one.leaf.name for one in made if one} >= {"n", "i", "x", "day", "at", "t", "b", "rare"}
    assert None in made  # bounds go, too
    codecs = {one.leaf.name: one.meta[Meta.CODEC] for one in made if one}
    assert (codecs["n"] == 0) == ("by rows" in request.node.name)
    assert codecs["t"]
    assert tables[0].verify().findings == ()


def test_pages_that_their_bytes_fill_are_exchanged_with_those_of_as_many_rows(
    tmp_path: Path, made: list[Chunk | None], request: pytest.FixtureRequest
) -> None:
    table = make(str(tmp_path))
    for number in range(5, 30, 5):
        table.upsert(rows([number], seed=number))
    rows_of = {one.leaf.name: told(one)[2] for one in filter(None, made)}
    assert rows_of["n"] == [*range(0, GROUP_ROWS, PAGE_ROWS)]
    step = PAGE_ROWS // 2 if "by bytes" in request.node.name else PAGE_ROWS
    assert rows_of["t"] == rows_of["b"] == [*range(0, GROUP_ROWS, step)]


def test_other_readers_find_rows_of_exchanged_pages(
    tmp_path: Path, made: list[Chunk | None]
) -> None:
    table = make(str(tmp_path))
    table.upsert(rows([5, 50], seed=1))
    assert any(made)
    expected = pa.Table.from_batches(table.scan().to_batches()).sort_by("id")
    found = duckdb.sql(f"select * from '{file_of(table)}' order by id").to_arrow_table()
    assert found.select(SCHEMA.names).to_pylist() == expected.to_pylist()
    assert pl.read_parquet(file_of(table)).select(SCHEMA.names).to_dicts() == expected.to_pylist()
    hudi = pytest.importorskip("hudi")
    read = pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(table.uri).build().read())
    assert read.select(SCHEMA.names).sort_by("id").cast(SCHEMA).to_pylist() == expected.to_pylist()
    [n] = expected.slice(50, 1)["n"].to_pylist()
    assert duckdb.sql(f"select id from '{file_of(table)}' where n = {n}").fetchall() == [
        ("k00050",)
    ]
    assert table.read_keys(pa.table({"id": ["k00050"]}))["n"].to_pylist() == [n]


def test_a_chunk_whose_least_value_goes_is_encoded_whole(
    tmp_path: Path, made: list[Chunk | None]
) -> None:
    table = make(str(tmp_path))
    held = pq.ParquetFile(file_of(table)).read_row_group(0)
    at = held["n"].to_pylist().index(min(held["n"].to_pylist()))
    number = int(held["id"][at].as_py()[1:])
    batch = rows([number], seed=3)
    table.upsert(batch.set_column(1, SCHEMA.field("n"), pa.array([0])))
    assert None in made
    chunk = pq.read_metadata(file_of(table)).row_group(0).column(6)
    assert chunk.path_in_schema == "n"
    left = sorted(held["n"].to_pylist())[1]
    assert chunk.statistics.min == left


def test_many_rows_are_no_case_for_single_pages(tmp_path: Path, made: list[Chunk | None]) -> None:
    table = make(str(tmp_path))
    table.upsert(rows(range(0, 100, 5), seed=1))
    assert made == []


def test_what_is_made_anew_of_a_file_without_a_codec_has_the_one_that_was_set(
    tmp_path: Path, made: list[Chunk | None]
) -> None:
    """Its pages cannot stand beside those of the file: columns that change are encoded whole."""
    table = make(str(tmp_path), parquet_codec="none")
    table.set_options({"parquet_codec": "zstd"})
    table.upsert(rows([5], seed=1))
    told = {one.leaf.name: one.meta[Meta.CODEC] for one in parts_of(file_of(table)).chunks(0)}
    assert (told["id"], told["_hoodie_commit_time"]) == (0, 0)
    assert told["n"] == told["t"] != 0
    assert {*made} == {None}


def test_pages_of_dictionaries_stay_together(tmp_path: Path, made: list[Chunk | None]) -> None:
    """A PLAIN page between pages of a dictionary is read wrongly by Spark."""
    table = make(str(tmp_path))
    table.upsert(rows([5], seed=1))
    assert "city" not in {one.leaf.name for one in made if one}
    assert made


def test_pages_far_away_are_fetched_together(
    monkeypatch: pytest.MonkeyPatch, made: list[Chunk | None]
) -> None:
    """Of all columns and row groups of a file. What is decoded whole, as columns of dictionaries,
    comes a row group at a time."""
    monkeypatch.setattr(local, "_processors", lambda: 1)
    monkeypatch.setattr(store, "DISTANT_GAP_BYTES", 0)  # else a small file is read whole
    uri, waited = in_memory(), list[int]()
    make(uri)
    for hit in ([5], [6, 50, 90]):
        table, backend = far(uri, Rounds)
        table.upsert(rows(hit, seed=1))
        waited.append(len(data_rounds(backend)))
    assert len([*filter(None, made)]) > 20
    assert waited[0] < 12
    assert waited[1] <= waited[0] + 2 * 2


def test_damage_in_a_page_that_stays_is_found(tmp_path: Path, made: list[Chunk | None]) -> None:
    table = make(str(tmp_path))
    file = file_of(table)
    chunk = next(one for one in parts_of(file).chunks(0) if one.leaf.name == "t")
    raw = bytearray(file.read_bytes())
    raw[chunk.offset + chunk.size - 2] ^= 1
    rewritten(file, bytes(raw))
    with pytest.raises(CorruptError) as caught:
        metatable.open(table.uri).upsert(rows([1], seed=1))
    assert any(one and one.leaf.name == "t" for one in made)
    assert file.name in str(caught.value)
    assert file_of(metatable.open(table.uri)) == file


def test_page_indexes_that_are_damaged_are_not_needed(
    tmp_path: Path, made: list[Chunk | None]
) -> None:
    """Bounds of pages of a column that changes: it is encoded whole."""
    table = make(str(tmp_path))
    file = file_of(table)
    chunk = next(one for one in parts_of(file).chunks(0) if one.leaf.name == "t")
    (at, size), _ = chunk.page_index
    raw = bytearray(file.read_bytes())
    raw[at : at + size] = b"\xff" * size
    rewritten(file, bytes(raw))
    batch = rows([1], seed=1)
    metatable.open(table.uri).upsert(batch)
    assert None in made
    found = metatable.open(table.uri).read_keys(pa.table({"id": ["k00001"]}))
    assert found.to_pylist() == batch.to_pylist()


def rewritten(file: Path, raw: bytes) -> None:
    file.chmod(0o644)
    file.write_bytes(raw)
    cache.clear()
