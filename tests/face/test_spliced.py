"""Files of which most is copied, beside the same ones that are decoded and encoded anew."""

from __future__ import annotations

import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import metatable
from metatable import col
from metatable.data.base_files import base_file_writer
from metatable.data.base_files.key_footer import sound_filter
from metatable.data.rows import merge, taking
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.errors import CorruptError
from metatable.storage.filters.hudi import HudiBloom
from metatable.storage.parquet.fields import Column, Footer, Group, Location, Meta
from metatable.storage.parquet.thrift import Struct, decode_struct, encode_struct
from metatable.storage.store import Store
from metatable.write import group_maker, new_slice, spliced_slice
from tests.every_kind import SCHEMA as EVERY_KIND
from tests.every_kind import made_rows
from tests.storage.parquet.files import footer_of, with_footer

SCHEMA = pa.schema(
    [("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("t", pa.string())]
)
SMALL = {"row_group_rows": 20, "file_rows": 1000}


def rows(numbers: Any, value: float = 0) -> pa.Table:
    ids, n = [f"k{one:05}" for one in numbers], [one // 3 + int(value) for one in numbers]
    return pa.table(
        [ids, n, [one + value for one in n], [f"t{one // 3 % 7}" for one in numbers]], SCHEMA
    )


def make(uri: str, schema: pa.Schema = SCHEMA, **options: Any) -> metatable.Table:
    return metatable.create(
        uri,
        schema,
        key="id",
        index="record",
        options={**SMALL, **options},
        storage_options={"durable": "false"},
    )


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each file that was written anew was spliced."""
    seen: list[bool] = []

    def spy(*given: Any) -> Any:
        filed = spliced_slice.spliced_file(*given)
        seen.append(filed is not None)
        return filed

    with monkeypatch.context() as patched:
        patched.setattr(group_maker, "spliced_file", spy)
        yield seen


def plainly(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(group_maker, "spliced_file", lambda *_: None)


def everything(table: metatable.Table) -> pa.Table:
    return pa.Table.from_batches(table.scan().to_batches())


def files(table: metatable.Table) -> list[Path]:
    return [Path(table.uri, one.path) for one in table.files()]


def stored(table: metatable.Table) -> pa.Table:
    """All rows with meta columns, in the order of their files, but for what two tables never share:
    times, and names of files."""
    found = pa.concat_tables([_checked(one) for one in files(table)])
    return found.drop_columns(["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"])


def _checked(file: Path) -> pa.Table:
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        found = parquet.read()
    assert found["_hoodie_file_name"].unique().to_pylist() == [file.name]
    return found


def statistics(table: metatable.Table) -> list[Any]:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    view = Snapshot(store, newest)
    found = []
    for field in view.schema:
        if not pa.types.is_nested(field.type):
            held = view.stats(field.name, field.type)
            found.append((field.name, *(str(one.to_pylist()) for one in held.columns)))
    return found


def row_groups(table: metatable.Table) -> list[list[int]]:
    metas = [pq.read_metadata(one) for one in files(table)]
    return [[meta.row_group(at).num_rows for at in range(meta.num_row_groups)] for meta in metas]


def test_what_is_spliced_is_what_is_encoded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of column, ten commits over each other."""
    chance = random.Random(5)
    tables = [make(str(tmp_path / name), EVERY_KIND, row_group_rows=50) for name in ("one", "two")]
    for table in tables:
        table.insert(made_rows(0, 240, random.Random(1)))
    for number in range(10):
        some = chance.sample(range(260), 9) if number % 3 else [*range(60, 64)]
        batch = made_rows(0, 260, random.Random(number)).take(some)
        with watched(monkeypatch) as seen:
            told = [tables[0].upsert(batch)]
        assert seen == [True]
        with monkeypatch.context() as patched:
            plainly(patched)
            told.append(tables[1].upsert(batch))
        assert (told[0].inserted, told[0].updated) == (told[1].inserted, told[1].updated)
        found, expected = map(stored, tables)
        assert found.equals(expected) or _same_with_nan(found, expected)
        assert statistics(tables[0]) == statistics(tables[1])
    gone = pa.table({"id": pa.array([3, 70, 71], pa.int64())})
    for table in tables:
        assert table.delete(gone).deleted == 3
        assert table.verify().findings == ()
    assert _same_with_nan(*map(stored, tables))


def _same_with_nan(one: pa.Table, other: pa.Table) -> bool:
    """NaN is not equal to itself; its text is."""
    return [str(row) for row in one.to_pylist()] == [str(row) for row in other.to_pylist()]


def test_other_readers_find_the_same(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    for number in range(5):
        table.upsert(rows(range(number * 17, 100 + number, 13), value=number))
    table.delete(rows([50, 51]).select(["id"]))
    [file] = files(table)
    expected = everything(table).sort_by("id")
    by_duckdb = duckdb.sql(f"select id, n, x, t from '{file}' order by id").to_arrow_table()
    assert by_duckdb.to_pylist() == expected.to_pylist()
    late = duckdb.sql(f"select id from '{file}' where id >= 'k00090' order by id").fetchall()
    assert late == [(one,) for one in expected["id"].to_pylist() if one >= "k00090"]
    found = pa.Table.from_batches(_by_hudi(table_uri)).select(SCHEMA.names).sort_by("id")
    assert found.cast(SCHEMA).to_pylist() == expected.to_pylist()


def _by_hudi(uri: str) -> Any:
    hudi = pytest.importorskip("hudi")
    return hudi.HudiTableBuilder.from_base_uri(uri).build().read()


def test_a_file_of_others_may_tell_bounds_beside_a_nan(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that pyarrow alone wrote has our writer's name, and leaves NaN out of its bounds."""
    table = make(table_uri)
    table.insert(_with_a_nan(rows(range(100))))
    [file] = files(table)
    size = file.stat().st_size
    pq.write_table(pq.read_table(file, partitioning=None), file, 20, store_schema=False)
    for commit in Path(table_uri, ".hoodie").rglob("*.commit"):
        told = commit.read_text()
        commit.write_text(re.sub(rf"\b{size}\b", str(file.stat().st_size), told))
    shutil.rmtree(Path(table_uri) / HOME)
    adopted = metatable.adopt(table_uri, index="record", options={"row_group_rows": 20})
    with watched(monkeypatch) as seen:
        adopted.upsert(rows([45]))
        adopted.upsert(rows([46]))
    assert seen == [False, True]
    assert adopted.scan(where=col("x") > 1000).count() == 1
    assert adopted.verify().findings == ()


def _with_a_nan(table: pa.Table) -> pa.Table:
    numbers = pc.if_else(pc.equal(table["id"], "k00070"), math.nan, table["x"])
    return table.set_column(2, SCHEMA.field("x"), numbers)


def test_row_groups_that_nobody_hits_are_not_decoded(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    before = dict(table.counters)
    table.upsert(rows([45], value=1))
    assert table.counters.since(before)["data.row_groups"] == 1
    [held] = row_groups(table)
    assert held == [20] * 5


def test_chunks_of_what_stays_are_the_same_bytes(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    [before] = files(table)
    table.upsert(rows([45], value=1))
    [after] = files(table)
    same = {name: _chunk(before, name) == _chunk(after, name) for name in _columns(after)}
    changed = {"_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name", "n", "x"}
    assert {name for name, is_same in same.items() if not is_same} == changed


def _columns(file: Path) -> list[str]:
    return [str(name) for name in pq.read_schema(file).names]


def _chunk(file: Path, name: str, group: int = 2) -> bytes:
    held = pq.read_metadata(file).row_group(group).column(_columns(file).index(name))
    start = min(filter(None, (held.dictionary_page_offset, held.data_page_offset)))
    return file.read_bytes()[start : start + held.total_compressed_size]


def test_small_commits_leave_no_file_of_short_row_groups(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(50)))
    for number in range(50, 110):
        table.upsert(rows([number]))
    [held] = row_groups(table)
    assert sum(held) == 110
    assert all(count >= 10 for count in held[:-1])
    assert len(held) <= 11


def test_deletes_end_in_a_file_made_anew(table_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(table_uri)
    table.insert(rows(range(200)))
    seen, left = list[bool](), 200
    for number in range(9):
        with watched(monkeypatch) as spied:
            table.delete(rows(range(number * 20, number * 20 + 19)).select(["id"]))
        seen += spied
        [held] = row_groups(table)
        assert sum(count < 10 for count in held) <= len(held) // 2 + 1
        left -= 19
    assert table.scan().count() == left
    assert False in seen[5:]
    assert seen[0]


def test_a_file_that_was_written_piece_by_piece_is_spliced(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its row groups are short, and would be again; those that deletes leave would not."""
    small_pieces(monkeypatch)
    table = make(table_uri, row_group_rows=200)
    table.insert(rows(range(600)))
    with watched(monkeypatch) as seen:
        table.alter(metatable.AddColumn("more", pa.int64()))
        for number in range(5, 8):
            table.upsert(rows([number], value=1))
    [held] = row_groups(table)
    assert max(held) * 2 < 200
    assert seen == [False, True, True]
    gone = [one for one in range(400) if one % 20]
    with watched(monkeypatch) as seen:
        table.delete(rows(gone).select(["id"]))
        table.upsert(rows([600], value=1))
    assert seen == [True, False]
    assert len(row_groups(table)[0]) < len(held) / 2
    assert table.scan().count() == 601 - len(gone)
    assert table.verify().findings == ()


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored file of any size is large, and some rows are a piece."""
    for module in (new_slice, spliced_slice, merge):
        monkeypatch.setattr(module, "PIECE_BYTES", 8 << 10)
    for module in (new_slice, spliced_slice):
        monkeypatch.setattr(module, "LARGE_FILE_BYTES", 0)
    monkeypatch.setattr(taking, "COLUMN_BYTES", 0)


def test_filters_of_keys_grow(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    table.upsert(rows([5, 101, 102], value=1))
    [file] = files(table)
    held = sound_filter(pq.read_metadata(file).metadata)
    assert held is not None
    assert (held.keys_a_row, held.keys_in_last_row) == (100, 102)
    assert held.might_contain(everything(table)["id"].combine_chunks()).all()


def test_what_row_groups_and_footers_have_alike_is_made_once(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column that names the file, of as many rows; the filter, where no key comes or goes."""
    table = make(table_uri)
    table.insert(rows(range(100)))
    before = pq.read_metadata(*files(table)).metadata
    counts, constant = list[int](), spliced_slice.constant

    def spy(name: str, count: int) -> pa.DictionaryArray:
        counts.append(count)
        return constant(name, count)

    monkeypatch.setattr(spliced_slice, "constant", spy)
    with monkeypatch.context() as patched:
        patched.setattr(HudiBloom, "from_base64", None)
        table.upsert(rows([5, 55], value=1))
    [held] = row_groups(table)
    assert len(held) > len(set(held))
    assert sorted(counts) == sorted(set(held))
    assert pq.read_metadata(*files(table)).metadata == before
    [file] = files(table)
    assert _checked(file)["_hoodie_file_name"].unique().to_pylist() == [file.name]


def test_ends_of_keys_follow_what_comes_and_goes(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(100, 200)))
    for come, gone in (([90, 150], []), ([150, 210], []), ([], [90, 91]), ([], [210]), ([95], [])):
        if come:
            table.upsert(rows(come, value=1))
        else:
            table.delete(rows(gone).select(["id"]))
        words = pq.read_metadata(*files(table)).metadata
        told = [words[f"hoodie_{end}_record_key".encode()].decode() for end in ("min", "max")]
        keys = everything(table)["id"].to_pylist()
        assert told == [min(keys), max(keys)]


def test_dictionaries_forget_values_that_no_row_has(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a row group are taken one by one, or in runs."""
    table = make(table_uri)
    table.insert(rows(range(100)).set_column(3, "t", pa.array([None, "a", "b", "c"] * 25)))
    for number, hit in enumerate(([41, 45], range(40, 56), [43])):
        batch = rows(hit).set_column(3, "t", pa.array([f"new{number}"] * len(hit)))
        monkeypatch.setattr(merge, "RUN_ROWS", 512 * number)
        table.upsert(batch)
    [file] = files(table)
    names = ["_hoodie_commit_time", "_hoodie_file_name", "t"]
    held = pq.ParquetFile(file, read_dictionary=names).read_row_group(2, names)
    plain = pq.read_table(file, columns=names).slice(40, 20)
    assert held.cast(plain.schema).equals(plain)
    for name in names:
        stored = held[name].chunk(0).dictionary.to_pylist()
        assert sorted(stored) == sorted(plain[name].drop_null().unique().to_pylist())
    assert plain["t"].to_pylist() == ["new1"] * 3 + ["new2"] + ["new1"] * 12 + [None, *"abc"]


@pytest.mark.parametrize("column", ["id", "t", "_hoodie_record_key"])
def test_damage_is_found_and_not_copied(table_uri: str, column: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    [file] = files(table)
    at = file.read_bytes().index(_chunk(file, column, 3)) + len(_chunk(file, column, 3)) - 2
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.chmod(0o644)
    file.write_bytes(raw)
    cache.clear()
    with pytest.raises(CorruptError) as caught:
        metatable.open(table_uri).upsert(rows([5], value=1))
    assert file.name in str(caught.value)
    assert files(metatable.open(table_uri)) == [file]


def change_columns(table: metatable.Table) -> None:
    table.alter(metatable.AddColumn("more", pa.int64()))


def other_writer(table: metatable.Table) -> None:
    """The same file, as another version of pyarrow would have written it."""
    for file in files(table):
        raw = file.read_bytes()
        assert raw.count(b"parquet-cpp-arrow version 2") == 1
        file.chmod(0o644)
        file.write_bytes(
            raw.replace(b"parquet-cpp-arrow version 2", b"parquet-cpp-arrow version 1")
        )
    cache.clear()


@pytest.mark.parametrize("happens", [change_columns, other_writer])
def test_files_that_are_not_alike_go_the_ordinary_way(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, happens: Callable[[metatable.Table], None]
) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    happens(table)
    with watched(monkeypatch) as seen:
        table = metatable.open(table_uri)
        table.upsert(rows([5], value=1))
        table.upsert(rows([6], value=1))
    assert seen == [False, True]
    assert pc.sum(everything(table)["x"]).as_py() == sum(one // 3 for one in range(100)) + 4


def test_wide_row_groups_of_large_files_go_the_ordinary_way(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has those of a small one all in memory."""
    monkeypatch.setattr(spliced_slice, "LARGE_ROWS_BYTES", 500)
    table = make(table_uri)
    table.insert(rows(range(100)))
    with watched(monkeypatch) as seen:
        table.upsert(rows([5], value=1))
        monkeypatch.setattr(spliced_slice, "LARGE_FILE_BYTES", 0)
        table.upsert(rows([6], value=1))
    assert seen == [True, False]


def test_a_file_that_is_encoded_sooner_than_looked_at_goes_the_ordinary_way(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))
    [size] = [one.size_bytes for one in table.files()]
    with watched(monkeypatch) as seen:
        monkeypatch.setattr(spliced_slice, "LEAST_BYTES", size + 1)
        table.upsert(rows([5], value=1))
        monkeypatch.setattr(spliced_slice, "LEAST_BYTES", size // 2)
        table.upsert(rows([6], value=1))
        monkeypatch.setattr(spliced_slice, "COLUMNS", 1)  # the table has more, and looks at each
        table.upsert(rows([7], value=1))
    assert seen == [False, True, False]


def test_keys_are_not_read_twice_where_all_of_a_file_comes_anew(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spliced_slice.StoredParts, "read", None)
    table = make(table_uri)
    table.insert(rows(range(9)))
    with watched(monkeypatch) as seen:
        table.upsert(rows([5, 100], value=1))
    assert seen == [False]


def test_a_large_file_is_spliced_on_disk(table_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spliced_slice, "LARGE_FILE_BYTES", 100)
    table = make(table_uri)
    table.insert(rows(range(100)))
    with watched(monkeypatch) as seen:
        table.upsert(rows([5, 99, 100, 130], value=1))
    assert seen == [True]
    assert table.scan().count() == 102
    assert table.verify().findings == ()


def test_a_value_that_only_looks_the_same_is_written(table_uri: str) -> None:
    table = make(table_uri)
    table.insert(rows(range(40)))
    zero = rows([3]).set_column(2, "x", pa.array([0.0]))
    for value in (0.0, -0.0, 0.0):
        table.upsert(zero.set_column(2, "x", pa.array([value])))
        [found] = table.read_keys(zero.select(["id"]))["x"].to_pylist()
        assert str(found) == str(value)


def test_hudis_reader_finds_meta_columns_of_every_row(table_uri: str) -> None:
    pytest.importorskip("hudi")
    table = make(table_uri)
    table.insert(rows(range(60)))
    result = table.upsert(rows([7, 8], value=1))
    found = pa.Table.from_batches(_by_hudi(table_uri))
    hit = found.filter(pc.equal(found["_hoodie_commit_time"], result.instant))
    assert sorted(hit["id"].to_pylist()) == ["k00007", "k00008"]
    assert found["_hoodie_file_name"].unique().to_pylist() == [files(table)[0].name]


def test_a_column_has_bounds_in_all_row_groups_or_in_none(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who joins the bounds of row groups must not take those that are told for all there are."""
    table = make(table_uri)
    table.insert(rows(range(100)))
    nan = rows([30]).set_column(2, "x", pa.array([float("nan")]))
    read, asked = spliced_slice.StoredParts.read, list[Any]()

    def spy(self: Any, schema: pa.Schema, group: int | None = None) -> pa.Table:
        asked.extend([group] if "x" in schema.names else [])
        return read(self, schema, group)

    monkeypatch.setattr(spliced_slice.StoredParts, "read", spy)
    for batch, spliced, bounded in (
        (rows([31], value=1), True, True),
        (nan, False, False),
        (rows([32], value=1), True, False),
        (rows([30], value=1), False, True),
        (rows([33], value=1), True, True),
    ):
        with watched(monkeypatch) as seen:
            table.upsert(batch)
        assert seen == [spliced]
        [file] = files(table)
        footer, leaf = pq.read_metadata(file), _columns(file).index("x")
        told = [footer.row_group(one).column(leaf).statistics for one in range(5)]
        assert {bool(one and one.has_min_max) for one in told} == {bounded}
        assert table.verify().findings == ()
    assert asked
    assert None not in asked  # a row group at a time, whatever the file is


@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_a_footer_that_only_copying_goes_by_is_damaged_and_rows_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    """A turned bit in the name that a column chunk tells: no reader of rows goes by that, and what
    goes by it here, pages and chunks, is left to who decodes the file."""
    table = metatable.create(
        str(tmp_path / "t"), SCHEMA, key="id", index=index, options={**SMALL, "key_scope": "global"}
    )
    table.insert(rows(range(100)))
    [file] = files(table)
    body = bytearray(file.read_bytes())
    footer = body.index(
        b"_hoodie_commit_seqno", len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    )
    named = body.index(b"_hoodie_commit_seqno", footer + 1)  # first in the schema, then of a chunk
    body[named + 3] ^= 1
    file.write_bytes(body)
    cache.clear()
    expected = everything(table)
    assert table.read_keys(rows([3, 50]).select(["id"])).num_rows == 2
    assert table.tag_locations(rows([3, 500]).select(["id"]))["_location"].null_count == 1
    with watched(monkeypatch) as spliced:
        assert table.upsert(rows([50, 51], 9)).updated == 2
    assert spliced == [False]
    assert sorted(everything(table)["id"].to_pylist()) == sorted(expected["id"].to_pylist())
    assert table.verify().findings == ()
    with watched(monkeypatch) as spliced:
        table.upsert(rows([50], 10))
    assert spliced == [True]


@pytest.mark.parametrize("error", [pa.ArrowInvalid, pa.ArrowCapacityError])
def test_what_arrow_cannot_hold_in_one_piece_goes_the_ordinary_way(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Texts of a dictionary that come to 2 GiB in a row group, say: the file is not damaged."""
    table = make(table_uri)
    table.insert(rows(range(100)))
    read = spliced_slice.StoredParts.read

    def overflowing(self: Any, schema: pa.Schema, group: int | None = None) -> pa.Table:
        if "t" in schema.names:
            raise error("array cannot contain more than 2147483646 bytes")
        return read(self, schema, group)

    monkeypatch.setattr(spliced_slice.StoredParts, "read", overflowing)
    with watched(monkeypatch) as seen:
        assert table.delete(rows([5]).select(["id"])).deleted == 1
    assert seen == [False]
    assert table.scan().count() == 99


def test_where_memory_is_short_nothing_else_is_tried(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri)
    table.insert(rows(range(100)))

    def too_large(*_: Any) -> Any:
        raise pa.ArrowMemoryError("malloc failed")

    monkeypatch.setattr(spliced_slice.StoredParts, "copied", too_large)
    with watched(monkeypatch) as seen, pytest.raises(MemoryError):
        table.upsert(rows([5], value=1))
    assert seen == []


def beginning_with_none(sink: Any, pieces: Any, form: Any, grown: Any) -> None:
    """A file as one was made piece by piece, of which the first piece had lost all of its rows."""
    every = pa.concat_tables(pieces)
    with form.writer(sink, every) as writer:
        writer.write_table(every.slice(0, 0))
        writer.write_table(every, row_group_size=form.options.row_group_rows)
        writer.add_key_value_metadata(form.words(every["_hoodie_record_key"], grown))


@pytest.mark.parametrize("names", [["id", "n", "t"], SCHEMA.names], ids=["no floats", "floats"])
def test_a_row_group_without_rows_is_not_copied(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    table = make(table_uri, pa.schema([SCHEMA.field(name) for name in names]))
    with monkeypatch.context() as patched:
        patched.setattr(base_file_writer, "_encode_pieces", beginning_with_none)
        table.insert(rows(range(50)).select(names))
    assert row_groups(table) == [[0, 20, 20, 10]]
    with watched(monkeypatch) as seen:
        table.upsert(rows([5, 51], value=1).select(names))
    assert seen == [True]
    assert row_groups(table) == [[20, 20, 10, 1]]
    assert table.scan().count() == 51
    assert table.verify().findings == ()


def hurt(file: Path, path: list[bytes], change: Callable[[Struct], None]) -> None:
    """Change what the footer tells of a chunk of the second row group."""
    raw = file.read_bytes()
    footer = footer_of(raw)
    chunks = footer[Footer.GROUPS][1][Group.COLUMNS]
    [meta] = [one[Column.META] for one in chunks if one[Column.META][Meta.PATH] == path]
    change(meta)
    rewrite(file, with_footer(raw, footer))


def rewrite(file: Path, raw: bytes) -> None:
    assert len(raw) == file.stat().st_size
    file.chmod(0o644)
    file.write_bytes(raw)
    cache.clear()


def other_sum(file: Path) -> None:
    def change(meta: Struct) -> None:
        meta[Meta.UNCOMPRESSED] ^= 1

    hurt(file, [b"id"], change)


def other_encodings(file: Path) -> None:
    def change(meta: Struct) -> None:
        meta[Meta.ENCODINGS][meta[Meta.ENCODINGS].index(0)] = 4

    hurt(file, [b"id"], change)


def other_place(file: Path) -> None:
    raw = file.read_bytes()
    chunks = footer_of(raw)[Footer.GROUPS][1][Group.COLUMNS]
    [chunk] = [one for one in chunks if one[Column.META][Meta.PATH] == [b"id"]]
    at, size = chunk[Column.OFFSET_INDEX], chunk[Column.OFFSET_INDEX_SIZE]
    index, _ = decode_struct(raw, "", at)
    index[Location.ALL][0][Location.SIZE] ^= 1
    rewrite(file, raw[:at] + encode_struct(index) + raw[at + size :])


@pytest.mark.parametrize("happens", [other_sum, other_encodings, other_place])
def test_what_is_told_of_sound_pages_is_not_needed_to_write_them(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path], None]
) -> None:
    """One bit of it: rows are decoded, and the next file tells what is so."""
    make(table_uri).insert(rows(range(100)))
    table = metatable.open(table_uri)
    [file] = files(table)
    happens(file)
    found = table.verify().findings
    assert [str(one.kind) for one in found] == ["footer"] * (happens is other_place)
    for number, spliced in ((5, False), (6, True)):
        with watched(monkeypatch) as seen:
            assert table.upsert(rows([number], value=1)).updated == 1
        assert seen == [spliced]
    assert pc.sum(everything(table)["n"]).as_py() == sum(one // 3 for one in range(100)) + 2
    assert table.verify().findings == ()


def test_lists_that_may_have_lost_values_are_not_written_anew(table_uri: str) -> None:
    """Who decodes them counts rows, and these are all there."""

    def with_lists(numbers: Any) -> pa.Table:
        lists = [[one, one] for one in numbers]
        return rows(numbers).append_column("l", pa.array(lists, pa.list_(pa.int64())))

    def one_less(meta: Struct) -> None:
        meta[Meta.VALUES] -= 1

    table = make(table_uri, with_lists([]).schema)
    table.insert(with_lists(range(100)))
    [file] = files(table)
    hurt(file, [b"l", b"list", b"element"], one_less)
    with pytest.raises(CorruptError, match="pages add up to other sums"):
        metatable.open(table_uri).upsert(with_lists([5]))
    assert files(metatable.open(table_uri)) == [file]
