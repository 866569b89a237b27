"""Spliced files: every reader finds in them what it finds in a file that was written anew."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.parquet import splice as splicing
from metatable.storage.parquet.fields import Column, Footer, Group, Meta
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.splice import obstacle, replaced, splice
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Elements,
    Struct,
    decode_struct,
)
from metatable.storage.store import Store
from tests.long import one_in
from tests.storage.parquet.files import (
    OPTIONS,
    OTHERS,
    ROWS,
    after_ten_upserts,
    every_type,
    footer_of,
    spliced,
    with_all,
    with_columns,
    with_footer,
    written,
)

parts_of = ParquetParts.of_bytes

EVERY_OPTION = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def stored(tmp_path: Path, raw: bytes, name: str = "f.parquet") -> tuple[Store, ParquetParts]:
    store = Store(tmp_path, {"durable": "false"})
    store.put(name, raw)
    parts = ParquetParts.open(store, name, len(raw))
    assert parts is not None
    return store, parts


# judges


def by_pyarrow(path: Path) -> pa.Table:
    return pq.read_table(path, page_checksum_verification=True)


def by_dataset(path: Path) -> pa.Table:
    return ds.dataset(path).to_table()


def by_duckdb(path: Path) -> pa.Table:
    return duckdb.read_parquet(str(path)).to_arrow_table()


def by_polars(path: Path) -> pa.Table:
    return pl.read_parquet(path).to_arrow()


JUDGES: list[Callable[[Path], pa.Table]] = [by_pyarrow, by_dataset, by_duckdb, by_polars]


def rows_of(table: pa.Table) -> str:
    return str(table.to_pylist())


def judged(tmp_path: Path, raw: bytes, rows: pa.Table) -> None:
    """All readers find in the file what they find in one that was written anew."""
    ours, plain = tmp_path / "ours", tmp_path / "plain"
    ours.write_bytes(raw)
    plain.write_bytes(written(rows))
    for judge in JUDGES:
        assert rows_of(judge(ours)) == rows_of(judge(plain)), judge.__name__
    assert rows_of(by_pyarrow(ours)) == rows_of(rows)


@EVERY_OPTION
def test_a_file_all_of_whose_chunks_are_copied_is_the_same_to_the_byte(
    options: dict[str, Any],
) -> None:
    for store_schema in (True, False):
        raw = written(ROWS, store_schema=store_schema, **options)
        like = parts_of(raw)
        assert spliced(like, metadata=like.metadata) == raw


@pytest.mark.each_once
@EVERY_OPTION
@pytest.mark.parametrize("first", [0, 1], ids=["even", "odd"])
def test_columns_of_any_type_are_replaced(
    tmp_path: Path, options: dict[str, Any], first: int
) -> None:
    new = OTHERS.select(OTHERS.column_names[first::2])
    raw = with_columns(written(ROWS, **options), new, **options)
    judged(tmp_path, raw, with_all(ROWS, new))


@pytest.mark.each_once
@pytest.mark.parametrize("stored_as", one_in(2, [*OPTIONS]))
@pytest.mark.parametrize("fresh_as", ["as ours", "pages v2", "plain"])
def test_chunks_of_other_codecs_pages_and_encodings_stand_together(
    tmp_path: Path, stored_as: str, fresh_as: str
) -> None:
    new = OTHERS.select(["text", "list", "flag", "file"])
    raw = with_columns(written(ROWS, **OPTIONS[stored_as]), new, **OPTIONS[fresh_as])
    judged(tmp_path, raw, with_all(ROWS, new))


@pytest.mark.parametrize("fresh", [ROWS.slice(0, 0), ROWS.slice(17, 1)], ids=["none", "one"])
def test_row_groups_may_be_empty_or_of_one_row(tmp_path: Path, fresh: pa.Table) -> None:
    new = parts_of(written(fresh))
    like = parts_of(written(ROWS))
    groups = [new.chunks(0), like.chunks(1), new.chunks(0)]
    raw = spliced(like, groups)
    judged(tmp_path, raw, pa.concat_tables([fresh, ROWS.slice(250, 250), fresh]))
    again = parts_of(raw)
    assert spliced(again) == raw
    judged(tmp_path, spliced(parts_of(written(fresh))), fresh)


def test_a_file_may_come_to_have_no_row_group(tmp_path: Path) -> None:
    judged(tmp_path, spliced(parts_of(written(ROWS)), []), ROWS.slice(0, 0))


@pytest.mark.parametrize("written_as", OPTIONS)
def test_after_ten_upserts_over_each_other_all_readers_find_the_rows(
    tmp_path: Path, written_as: str
) -> None:
    raw, rows = after_ten_upserts(written_as)
    judged(tmp_path, raw, rows)
    footer = pq.read_metadata(io.BytesIO(raw))
    assert footer.metadata == {b"turn": b"9"}
    assert footer.num_row_groups > 4


def spliced_again(raw: bytes) -> bytes:
    """The file with its column of file names encoded anew, if it has one."""
    rows = pq.read_table(io.BytesIO(raw))
    names = rows.select([name for name in rows.column_names if name == "_hoodie_file_name"])
    assert obstacle(parts_of(raw), parts_of(written(names))) is None
    return with_columns(raw, names, max(rows.num_rows, 1))


def test_files_of_hudi_on_spark_read_equal_when_they_are_spliced(interop: Path) -> None:
    count = 0
    for packed in interop.rglob("*.zip"):
        with zipfile.ZipFile(packed) as archive:
            for name in archive.namelist():
                if name.endswith(".parquet") and not name.startswith("__MACOSX/"):
                    raw = archive.read(name)
                    new = io.BytesIO(spliced_again(raw))
                    read = pq.read_table(new, page_checksum_verification=True)
                    assert read.equals(pq.read_table(io.BytesIO(raw))), name
                    count += 1
    assert count > 50


@pytest.mark.parametrize("name", ["v6_nonpartitioned", "v6_complexkeygen_hivestyle"])
def test_the_hudi_wheel_reads_a_table_of_spliced_files(
    interop: Path, tmp_path: Path, name: str
) -> None:
    hudi = pytest.importorskip("hudi", reason="the hudi wheel is not installed")
    with zipfile.ZipFile(interop / "hudi" / f"sample_table__cow__{name}.zip") as archive:
        archive.extractall(tmp_path)

    def rows() -> list[str]:
        batches = hudi.HudiTableBuilder.from_base_uri(str(tmp_path / name)).build().read()
        return sorted(map(str, pa.Table.from_batches(batches).to_pylist()))

    before = rows()
    for path in (tmp_path / name).rglob("*.parquet"):
        path.write_bytes(spliced_again(path.read_bytes()))
    assert rows() == before != []


@EVERY_OPTION
def test_the_footer_tells_what_pyarrow_tells_of_the_same_bytes(options: dict[str, Any]) -> None:
    new = OTHERS.select(["file", "big", "double"])
    raw = with_columns(written(ROWS, **options), new, **options)
    footer = pq.read_metadata(io.BytesIO(raw))
    for number, group in enumerate(footer_of(raw)[Footer.GROUPS]):
        columns = [footer.row_group(number).column(leaf) for leaf in range(footer.num_columns)]
        starts = [
            min(filter(None, (c.data_page_offset, c.dictionary_page_offset))) for c in columns
        ]
        sizes = [column.total_compressed_size for column in columns]
        assert starts == [group[Group.OFFSET] + sum(sizes[:place]) for place in range(len(sizes))]
        assert group[Group.STORED] == sum(sizes)
        assert group[Group.UNCOMPRESSED] == footer.row_group(number).total_byte_size
        assert group[Group.UNCOMPRESSED] == sum(c.total_uncompressed_size for c in columns)
        assert group[Group.ROWS] == [250, 250, 100][number]
    assert footer.num_rows == 600


# traps


def encodings(raw: bytes, group: int, column: int) -> list[tuple[int, int]]:
    """(kind, encoding) of the pages of a chunk."""
    [chunk] = [parts_of(raw).chunks(group)[column]]
    pages, at = [], chunk.offset
    while at < chunk.offset + chunk.size:
        header, at = decode_struct(raw, "", at)
        own = next(header[field] for field in (5, 7, 8) if field in header)
        pages.append((header[1], own[4 if header[1] == 3 else 2]))
        at += header[3]
    return pages


def test_a_copied_chunk_keeps_its_dictionary_first_and_its_plain_tail() -> None:
    raw = written(ROWS, **OPTIONS["dictionary falls back"])
    new = with_columns(raw, OTHERS.select(["file"]))
    text = ROWS.column_names.index("text")
    pages = encodings(new, 0, text)
    assert pages == encodings(raw, 0, text)
    assert pages[0][0] == 2
    kinds = [encoding for _, encoding in pages[1:]]
    assert kinds == sorted(kinds, reverse=True)  # 8 is of the dictionary, 0 plain
    assert {0, 8} == set(kinds)


def test_required_and_optional_are_not_mixed() -> None:
    like = parts_of(written(ROWS))
    optional = parts_of(written(pa.table({"must": ROWS["must"]})))
    assert obstacle(like, optional) == "another schema: column must"
    required = parts_of(written(ROWS.select(["must"])))
    assert obstacle(like, required) is None
    with pytest.raises(UsageError, match="another schema: column must"):
        spliced(like, [replaced(like.chunks(0), optional.chunks(0))])


@pytest.mark.parametrize(
    "field",
    [
        pa.field("small", pa.int64()),
        pa.field("small", pa.int32(), metadata={"PARQUET:field_id": "7"}),
        pa.field("small", pa.date32()),
        pa.field("grown", pa.int32()),
        pa.field("point", pa.struct([("x", pa.int64())])),
        pa.field("list", pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_files_of_an_evolved_schema_are_refused(field: pa.Field) -> None:
    like = parts_of(written(ROWS))
    new = pa.table([pa.nulls(250, field.type)], schema=pa.schema([field]))
    reason = obstacle(like, parts_of(written(new)))
    assert reason is not None
    assert reason.startswith(f"another schema: column {field.name}")


def changed_column(raw: bytes, change: Callable[[Struct], Struct]) -> bytes:
    """The file with another footer entry for the last column of its first row group."""
    footer = footer_of(raw)
    columns = footer[Footer.GROUPS][0][Group.COLUMNS]
    columns[-1] = change(columns[-1])
    return with_footer(raw, footer)


def test_encrypted_columns_are_refused() -> None:
    raw = written(ROWS)
    secret = changed_column(raw, lambda one: one.changed((Column.CRYPTO, STRUCT, Struct())))
    like = parts_of(secret)
    assert obstacle(parts_of(raw), like) == "columns are encrypted"
    assert obstacle(like, parts_of(raw)) == "columns are encrypted"
    with pytest.raises(UsageError, match="columns are encrypted"):
        spliced(like)
    signed = with_footer(raw, footer_of(raw).changed((Footer.SIGNATURE, BINARY, b"x")))
    assert obstacle(parts_of(raw), parts_of(signed)) == "columns are encrypted"


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.changed((Column.FILE, BINARY, b"elsewhere")),
        lambda one: one.changed((77, I64, 4)),
        lambda one: one.changed((3, STRUCT, one[3].changed((Meta.INDEX_PAGE, I64, 4)))),
        lambda one: one.changed((3, STRUCT, one[3].changed((99, I32, 4)))),
    ],
    ids=["another file", "unknown", "index pages", "unknown in the metadata"],
)
def test_what_may_be_a_place_in_the_file_is_not_moved(change: Callable[[Struct], Struct]) -> None:
    reason = obstacle(parts_of(written(ROWS)), parts_of(changed_column(written(ROWS), change)))
    assert reason is not None
    assert "places in the file" in reason


def test_unknown_fields_that_are_no_places_are_kept() -> None:
    bounds = Struct((3, I64, 0), (99, I64, 5))
    raw = changed_column(
        written(ROWS),
        lambda one: one.changed((3, STRUCT, one[3].changed((12, STRUCT, bounds)))),
    )
    assert footer_of(spliced(parts_of(raw))) == footer_of(raw)


def test_a_nested_column_comes_whole_out_of_one_row_group() -> None:
    like = parts_of(written(ROWS))
    chunks = list(like.chunks(0))
    [x, y] = [place for place, one in enumerate(chunks) if one.leaf.path[0] == b"point"]
    other = like.chunks(1)
    chunks[x] = other[x]
    with pytest.raises(UsageError, match="nested column comes whole"):
        spliced(like, [chunks])
    chunks[y] = other[y]
    raw = spliced(like, [chunks])
    points = pq.read_table(io.BytesIO(raw))["point"]
    assert points.equals(ROWS["point"].slice(250, 250))


def test_chunks_of_a_row_group_have_as_many_rows() -> None:
    like = parts_of(written(ROWS))
    fewer = parts_of(written(ROWS.select(["big"]).slice(0, 249)))
    with pytest.raises(UsageError, match=r"have as many rows.*'big': 249"):
        spliced(like, [replaced(like.chunks(0), fewer.chunks(0))])


def test_a_row_group_has_one_chunk_of_each_column_in_their_order() -> None:
    like = parts_of(written(ROWS))
    chunks = like.chunks(0)
    for wrong in ([], chunks[:-1], chunks[::-1], [*chunks, chunks[0]]):
        with pytest.raises(UsageError, match="one chunk of each column"):
            spliced(like, [wrong])
    with pytest.raises(UsageError, match="one chunk of each column"):
        spliced(parts_of(written(pa.table({}))), [[]])


@pytest.mark.parametrize("zero", [True, False], ids=["written as 0", "left out"])
def test_a_chunk_without_a_dictionary_begins_with_its_data(tmp_path: Path, zero: bool) -> None:
    raw = written(ROWS, **OPTIONS["plain"])
    footer = footer_of(raw)
    for group in footer[Footer.GROUPS]:
        for place, column in enumerate(group[Group.COLUMNS]):
            meta = column[Column.META].changed((Meta.DICTIONARY, I64, 0 if zero else None))
            group[Group.COLUMNS][place] = column.changed((Column.META, STRUCT, meta))
    new = OTHERS.select(["big"])
    judged(tmp_path, with_columns(with_footer(raw, footer), new), with_all(ROWS, new))


def test_page_indexes_are_moved_with_their_pages() -> None:
    raw = written(ROWS, **OPTIONS["page index"])
    new = with_columns(raw, OTHERS.select(["file", "text"]), **OPTIONS["page index"])
    footer = pq.read_metadata(io.BytesIO(new))
    last = 0
    for group in range(3):
        for chunk, before in zip(
            parts_of(new).chunks(group), parts_of(raw).chunks(group), strict=True
        ):
            (at, size), (offsets_at, offsets_size) = chunk.page_index
            index, end = decode_struct(new, "", offsets_at)
            assert end == offsets_at + offsets_size
            for location in index[1]:
                header, body = decode_struct(new, "", location[1])
                assert body + header[3] - location[1] == location[2]
            assert [one[3] for one in index[1]] == list(
                range(0, footer.row_group(group).num_rows, 50)
            )
            if chunk.leaf.name not in ("file", "text"):
                old_at, old_size = before.page_index[0]
                assert new[at : at + size] == raw[old_at : old_at + old_size]
            last = max(last, chunk.offset + chunk.size)
            assert at > last
    assert footer.row_group(0).column(0).has_offset_index


@pytest.mark.parametrize("gone", [Column.COLUMN_INDEX, Column.OFFSET_INDEX])
@pytest.mark.parametrize("how", ["both", "size"])
def test_of_a_page_index_that_is_not_whole_the_places_stay(
    tmp_path: Path, gone: int, how: str
) -> None:
    fields = [gone, gone + 1] if how == "both" else [gone + 1]
    raw = changed_column(
        written(ROWS, **OPTIONS["page index"]),
        lambda one: one.changed(*((field, I64, None) for field in fields)),
    )
    new = spliced(parts_of(raw))
    chunks = parts_of(new).chunks(0)
    places = {Column.OFFSET_INDEX, Column.OFFSET_INDEX_SIZE} - {gone, gone + 1}
    assert set(chunks[-1].stored) == {Column.OFFSET, Column.META, *places}
    assert all(chunk.page_index[0][1] for chunk in chunks[:-1])
    if places:
        [_, (at, size)] = chunks[-1].page_index
        [_, (was_at, was_size)] = parts_of(raw).chunks(0)[-1].page_index
        moved = chunks[-1].offset - parts_of(raw).chunks(0)[-1].offset
        index, was = decode_struct(new, "", at)[0], decode_struct(raw, "", was_at)[0]
        assert size == was_size or moved
        assert [one[1] - moved for one in index[1]] == [one[1] for one in was[1]]
    judged(tmp_path, new, ROWS)


@pytest.mark.parametrize("field", [Column.COLUMN_INDEX, Column.OFFSET_INDEX])
@pytest.mark.parametrize("place", [(2, 8), (1 << 40, 8), (4, 1 << 60)], ids=str)
def test_a_page_index_outside_of_its_file_is_damage(field: int, place: tuple[int, int]) -> None:
    at, size = place
    raw = changed_column(
        written(ROWS, **OPTIONS["page index"]),
        lambda one: one.changed((field, I64, at), (field + 1, I64, size)),
    )
    with pytest.raises(CorruptError, match="page index lies outside of its file"):
        spliced(parts_of(raw))


def test_bloom_filters_of_columns_are_left_out(tmp_path: Path) -> None:
    duckdb.from_arrow(ROWS).write_parquet(str(tmp_path / "d"))
    raw = (tmp_path / "d").read_bytes()
    assert any(Meta.BLOOM in chunk.meta for chunk in parts_of(raw).chunks(0))
    new = spliced(parts_of(raw))
    assert not any(
        {Meta.BLOOM, Meta.BLOOM_SIZE} & chunk.meta.keys() for chunk in parts_of(new).chunks(0)
    )
    (tmp_path / "n").write_bytes(new)
    for judge in JUDGES:
        assert rows_of(judge(tmp_path / "n")) == rows_of(judge(tmp_path / "d"))
    found = duckdb.read_parquet(str(tmp_path / "n")).filter("city = 'cairo'").to_arrow_table()
    assert found.num_rows == pc.sum(pc.equal(ROWS["city"], "cairo")).as_py()


def renamed(raw: bytes, writer: bytes) -> bytes:
    return with_footer(raw, footer_of(raw).changed((Footer.CREATED_BY, BINARY, writer)))


def test_bounds_are_believed_by_the_name_of_their_writer(tmp_path: Path) -> None:
    raw = written(ROWS)
    _, ours = stored(tmp_path, raw, "ours")
    _, other = stored(tmp_path, renamed(raw, b"parquet-mr version 1.5.0"), "other")
    assert obstacle(ours, ours) is None
    assert "another writer" in str(obstacle(ours, other))
    assert "another writer" in str(obstacle(other, ours))
    fresh = parts_of(raw)
    assert obstacle(other, fresh) is None  # of ours less is believed than could be
    new = spliced(other, [fresh.chunks(0)])
    assert pq.read_metadata(io.BytesIO(new)).created_by == "parquet-mr version 1.5.0"


def test_bounds_without_an_order_are_not_put_where_they_would_be_believed() -> None:
    raw = written(ROWS)
    old = with_footer(raw, footer_of(raw).changed((Footer.ORDERS, BINARY, None)))
    assert obstacle(parts_of(old), parts_of(raw)) is None
    assert "another schema" in str(obstacle(parts_of(raw), parts_of(old)))


def test_each_chunk_keeps_the_bounds_it_has_or_has_none() -> None:
    raw = written(ROWS)
    new = OTHERS.select(["double", "small"])  # one of the doubles is not a number
    kept = parts_of(raw)
    fresh = parts_of(written(new, write_statistics=["small"]))
    groups = [replaced(kept.chunks(0), fresh.chunks(0)), kept.chunks(1)]
    footer = pq.read_metadata(io.BytesIO(spliced(kept, groups)))
    before = pq.read_metadata(io.BytesIO(raw))
    theirs = pq.read_metadata(io.BytesIO(written(new)))
    for leaf in range(footer.num_columns):
        found = footer.row_group(0).column(leaf)
        if found.path_in_schema == "double":
            assert found.statistics is None
        elif found.path_in_schema == "small":
            assert found.statistics.equals(theirs.row_group(0).column(1).statistics)
        else:
            expected = before.row_group(0).column(leaf).statistics
            assert found.statistics == expected
        assert (
            footer.row_group(1).column(leaf).statistics
            == before.row_group(1).column(leaf).statistics
        )


@pytest.mark.parametrize("own", ["inside", "behind"])
def test_a_chunks_own_offset_is_moved_where_it_is_one(own: str) -> None:
    raw = written(ROWS)
    chunk = parts_of(raw).chunks(0)[-1]
    at = chunk.offset + (1 if own == "inside" else chunk.size)
    told = changed_column(raw, lambda one: one.changed((Column.OFFSET, I64, at)))
    new = spliced(parts_of(told), [parts_of(raw).chunks(1), parts_of(told).chunks(0)])
    moved = parts_of(new).chunks(1)[-1]
    expected = moved.offset + 1 if own == "inside" else 0
    assert moved.stored[Column.OFFSET] == expected


# damage, requests, memory


@pytest.mark.parametrize("options", [OPTIONS["as ours"], OPTIONS["pages v2"]], ids=["v1", "v2"])
def test_any_flipped_byte_of_what_is_copied_is_told_or_in_a_header(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    raw = written(ROWS.slice(0, 90), 45, **options)
    like = parts_of(raw)
    headers = set()
    for group in range(2):
        for chunk in like.chunks(group):
            at = chunk.offset
            while at < chunk.offset + chunk.size:
                header, body = decode_struct(raw, "", at)
                headers |= {*range(at, body)}
                at = body + header[3]
    draw = random.Random(3)
    end = like.data_end
    for place in draw.sample(sorted({*range(4, end)} - headers), 120):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << draw.randrange(8)
        with pytest.raises(CorruptError, match=r"page checksum mismatch: path='f.parquet' column="):
            spliced(stored(tmp_path, bytes(damaged))[1])
    for place in draw.sample(sorted(headers), 120):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << draw.randrange(8)
        with suppress(CorruptError):  # headers have no checksum
            spliced(stored(tmp_path, bytes(damaged))[1])


def test_damage_is_told_with_its_column_row_group_and_page(tmp_path: Path) -> None:
    raw = bytearray(written(ROWS, **OPTIONS["plain"]))
    chunk = parts_of(bytes(raw)).chunks(1)[5]
    raw[chunk.offset + chunk.size - 1] ^= 4
    _, like = stored(tmp_path, bytes(raw))
    told = rf"path='f.parquet' column='big' row_group=1 offset={chunk.offset} expected='0x"
    with pytest.raises(CorruptError, match=told):
        spliced(like)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        (Meta.STORED, -1, "footer is damaged.*field=7 .*found=-1"),
        (Meta.STORED, 10, "page header is damaged"),
        (Meta.STORED, 24, "page does not end in its column chunk"),
        (Meta.STORED, 1 << 40, "lies outside of its file"),
        (Meta.DATA_PAGE, 1 << 40, "pages lie elsewhere"),
        (Meta.DATA_PAGE, 1, "lies outside of its file"),
        (Meta.VALUES, 249, "another number of values than its row group"),
        (Meta.DICTIONARY, 4, "page"),
        (Meta.PATH, Elements(BINARY, [b"big"]), "column chunk of another column"),
    ],
)
def test_a_footer_that_does_not_fit_its_pages_is_damage(
    tmp_path: Path, field: int, value: Any, told: str
) -> None:
    kind = LIST if field == Meta.PATH else I64
    raw = changed_column(
        written(ROWS),
        lambda one: one.changed((Column.META, STRUCT, one[3].changed((field, kind, value)))),
    )
    _, like = stored(tmp_path, raw)
    with pytest.raises(CorruptError, match=told):
        spliced(like)


@pytest.mark.parametrize("written_as", ["plain", "as ours"])
def test_a_dictionary_that_is_told_must_be_there(written_as: str) -> None:
    raw = written(ROWS, **OPTIONS[written_as])
    start = parts_of(raw).chunks(0)[-1].offset
    behind = start + (written_as != "plain")
    change = ((Meta.DATA_PAGE, I64, start), (Meta.DICTIONARY, I64, behind))
    told = changed_column(raw, lambda one: one.changed((3, STRUCT, one[3].changed(*change))))
    with pytest.raises(CorruptError, match="pages lie elsewhere"):
        spliced(parts_of(told))


def test_a_dictionary_may_be_counted_among_the_data_pages(tmp_path: Path) -> None:
    raw = written(ROWS)
    start = parts_of(raw).chunks(0)[-1].offset
    change = ((Meta.DICTIONARY, I64, None), (Meta.DATA_PAGE, I64, start))
    old = changed_column(raw, lambda one: one.changed((3, STRUCT, one[3].changed(*change))))
    new = OTHERS.select(["big"])
    moved = with_columns(old, new)
    assert parts_of(moved).chunks(0)[-1].offset != start
    assert rows_of(pq.read_table(io.BytesIO(moved))) == rows_of(with_all(ROWS, new))


def test_fewer_values_than_rows_in_a_nested_column_are_damage() -> None:
    raw = written(ROWS)
    footer = footer_of(raw)
    place = next(n for n, one in enumerate(parts_of(raw).leaves) if one.name == "list.list.element")
    column = footer[Footer.GROUPS][0][Group.COLUMNS][place]
    column[Column.META][Meta.VALUES] += 1
    with pytest.raises(CorruptError, match=r"pages add up to other sums.*=\(251, .*=\(250, "):
        spliced(parts_of(with_footer(raw, footer)))


@pytest.mark.parametrize(
    "found",
    [b"\xff", b"\0", b"\x19\x15\x02\0", b"\x19\x1c\0\0", None],
    ids=["no Thrift", "no list", "no locations", "no offset", "another page"],
)
def test_an_offset_index_that_does_not_tell_the_pages_is_damage(found: bytes | None) -> None:
    raw = bytearray(written(ROWS, **OPTIONS["page index"]))
    offset, size = parts_of(bytes(raw)).chunks(0)[0].page_index[1]
    if found is None:
        raw[offset + size // 2] ^= 2
    else:
        raw[offset : offset + len(found)] = found
    with pytest.raises(
        CorruptError, match=rf"offset index.*column='id' row_group=0 offset={offset}"
    ):
        spliced(parts_of(bytes(raw)))


def test_pages_without_checksums_are_copied(tmp_path: Path) -> None:
    judged(tmp_path, spliced(parts_of(written(ROWS, write_page_checksum=False))), ROWS)


def test_flipped_bytes_of_footers_are_damage_an_obstacle_or_a_file() -> None:
    draw = random.Random(5)
    raw = written(every_type(40), 20, **OPTIONS["page index"])
    length, refused = int.from_bytes(raw[-8:-4], "little"), 0
    for _ in range(400):
        damaged = bytearray(raw)
        for _ in range(draw.choice([1, 1, 2, 5])):
            damaged[len(raw) - 8 - draw.randrange(1, length + 1)] = draw.randrange(256)
        try:
            spliced(parts_of(bytes(damaged)))
        except (CorruptError, UsageError):
            refused += 1
    assert refused > 200


def test_neighbours_are_read_by_one_request(tmp_path: Path) -> None:
    store, like = stored(tmp_path, written(ROWS))
    before = store.counters["store.requests"]
    spliced(like)
    assert store.counters["store.requests"] == before + 1


def test_no_more_is_held_than_a_chunk_or_what_is_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, like = stored(tmp_path, written(ROWS, **OPTIONS["plain"]))
    read: list[int] = []
    plain = Store.read

    def spied(self: Store, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        read.append(sum(size for _, size in ranges))
        return plain(self, path, ranges)

    monkeypatch.setattr(Store, "read", spied)
    monkeypatch.setattr(Store, "map", lambda *_: None)  # as far away
    _, like = stored(tmp_path, written(ROWS, **OPTIONS["plain"]))
    read.clear()
    largest = max(chunk.size for chunk in like.chunks(0))
    for limit in (1, largest, 4 * largest):
        monkeypatch.setattr(splicing, "READ_BYTES", limit)
        spliced(like)
        assert max(read) <= max(limit, largest)
        assert len(read) > (60 if limit == 1 else 3)
        read.clear()
    assert store.counters["store.requests"]


def test_row_groups_are_asked_for_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splicing, "READ_BYTES", 1)
    like = parts_of(written(ROWS))
    sink = io.BytesIO()
    told: list[int] = []

    def groups() -> Iterator[Sequence[Chunk]]:
        for group in range(3):
            told.append(sink.tell())
            yield like.chunks(group)

    splice(sink, like, groups(), {})
    assert told == sorted(set(told))


def test_a_footer_too_long_for_this_is_not_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = written(ROWS)
    store, _ = stored(tmp_path, raw)
    length = int.from_bytes(raw[-8:-4], "little") + 8
    for limit, is_taken in ((length, True), (length - 1, False)):
        monkeypatch.setattr("metatable.storage.parquet.parts.MOST_FOOTER_BYTES", limit)
        assert (ParquetParts.open(store, "f.parquet", len(raw)) is not None) == is_taken


def test_by_which_columns_rows_are_sorted_is_left_out() -> None:
    raw = written(ROWS, sorting_columns=[pq.SortingColumn(0)])
    assert pq.read_metadata(io.BytesIO(raw)).row_group(0).sorting_columns
    footer = pq.read_metadata(io.BytesIO(spliced(parts_of(raw))))
    assert not footer.row_group(0).sorting_columns


def test_what_the_footer_tells_under_keys_is_replaced_as_a_whole() -> None:
    like = parts_of(written(ROWS.replace_schema_metadata({"a": "b"}), store_schema=True))
    assert set(like.metadata) == {b"ARROW:schema", b"a"}
    new = parts_of(spliced(like, metadata={b"c": b"\xff", b"d": b""}))
    assert new.metadata == {b"c": b"\xff", b"d": b""}
    assert parts_of(spliced(new)).metadata == {}
