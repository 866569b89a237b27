"""Chosen pages: rows by position are those of the whole file, whatever pages they come from."""

from __future__ import annotations

import operator
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage import cache
from metatable.storage.errors import CorruptError
from metatable.storage.parquet import (
    chosen_pages,
    column_pages,
    offset_index,
    page_places,
    paged_file,
    pages_together,
    small_file,
    stored_pages,
    unpacked_pages,
)
from metatable.storage.parquet.chosen_pages import read_rows
from metatable.storage.parquet.fields import Column, Footer, Group, Meta
from metatable.storage.parquet.offset_index import decode_offset_indexes
from metatable.storage.parquet.page_places import KeyPages, group_pages, key_pages
from metatable.storage.parquet.paged_file import BOUNDS_SIZE, PLACES_SIZE, PagedFile, paged
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Elements,
    Struct,
    decode_struct,
    encode_struct,
)
from metatable.storage.store import Store
from tests.long import one_in
from tests.storage.parquet.files import (
    OPTIONS,
    OTHERS,
    PAGES,
    ROWS,
    footer_of,
    spliced,
    with_footer,
    written,
)

KEYS: dict[str, Any] = PAGES | {"compression": "zstd", "use_dictionary": False}
"""As columns of keys are written."""

UNEVEN: dict[str, Any] = PAGES | {"data_page_size": 300, "write_batch_size": 16}
"""Columns have pages of different rows, nested ones some without any."""


def put(store: Store, raw: bytes, name: str = "f") -> PagedFile | None:
    store.put(name, raw)
    [file] = paged(store, [(name, len(raw))])
    return file


def opened(store: Store, raw: bytes, name: str = "f") -> PagedFile:
    file = put(store, raw, name)
    assert file is not None
    return file


def some(count: int, seed: int = 0, of: int = 600) -> Any:
    return np.sort(np.random.default_rng(seed).choice(of, count, replace=False))


@pytest.mark.each_once
@pytest.mark.parametrize(
    ("options", "pages"),
    [*((options, UNEVEN) for options in OPTIONS.values()), (OPTIONS["as ours"], PAGES)],
    ids=[*OPTIONS, "even pages"],
)
@pytest.mark.parametrize("is_decoded", [True, False], ids=["decoded", "taken"])
def test_rows_by_position_are_those_of_the_whole_file(
    store: Store,
    options: dict[str, Any],
    pages: dict[str, Any],
    is_decoded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = opened(store, written(ROWS, **options | pages), "first")
    second = opened(store, written(OTHERS, **options | pages), "second")
    assert first.shape is second.shape
    files: list[bytes] = []

    def noted(*given: Any) -> bytes:
        files.append(small_file.small_file(*given))
        return files[-1]

    monkeypatch.setattr(column_pages, "small_file", noted)
    monkeypatch.setattr(column_pages, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(column_pages, "ALONE_BYTES", 1000)
    monkeypatch.setattr(pages_together, "ROUND_BYTES", 9000)
    if is_decoded:
        monkeypatch.setattr(column_pages, "ROWS_OF_A_PAGE", 0)
    for turn, count in enumerate((9, 200)):
        asked = [(first, some(count, turn)), (second, some(count, 7)), (first, some(3))]
        expected = [ROWS.take(asked[0][1]), OTHERS.take(asked[1][1]), ROWS.take(asked[2][1])]
        monkeypatch.setattr(chosen_pages, "PORTION_BYTES", 20_000 if turn else 1)
        found = read_rows(store, asked, ROWS.column_names)
        assert str(found.to_pylist()) == str(pa.concat_tables(expected).to_pylist())
        # a row group of a file at a time, or few
        are_whole = is_decoded or options.get("data_page_version") == "2.0"
        assert (len(files) > 6 * ROWS.num_columns) is are_whole
        files.clear()


def test_frames_of_columns_and_files_are_decompressed_where_they_lie(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"n": range(600), "word": ["a", "b", "c"] * 200, "m": range(600, 1200)})
    raw = written(rows, use_dictionary=["word"], compression="zstd", **PAGES)
    files = [opened(store, raw, name) for name in ("one", "other")]
    joined: list[int] = []
    monkeypatch.setattr(unpacked_pages, "LEAST_BYTES", 1)
    monkeypatch.setattr(unpacked_pages, "workers_here", lambda: 2)
    monkeypatch.setattr(unpacked_pages, "_joined", lambda bodies: joined.append(len(bodies)))
    positions = np.array([0, 19, 20, 301, 599])
    found = read_rows(store, [(file, positions) for file in files], ["word", "n", "m"])
    assert not joined
    own = rows.take(pa.array(positions)).select(["word", "n", "m"])
    assert found.equals(pa.concat_tables([own, own]))


def test_a_thread_that_has_all_pages_takes_more_of_them_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(store, written(ROWS, **OPTIONS["as ours"] | PAGES))
    blocks: list[int] = []

    def noted(groups: Any, own: float) -> Any:
        blocks.extend(one.plain_bytes for one in groups)
        return unpacked_pages.begun_each(groups, own)

    monkeypatch.setattr(pages_together, "begun_each", noted)
    monkeypatch.setattr(column_pages, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(column_pages, "workers_here", lambda: 2)
    rows, name = some(9), ROWS.column_names[0]
    beside = read_rows(store, [(file, rows)], [name])
    few = [*blocks]
    monkeypatch.setattr(column_pages, "workers_here", lambda: 1)
    assert read_rows(store, [(file, rows)], [name]) == beside == ROWS.select([name]).take(rows)
    alone = blocks[len(few) :]
    assert len(alone) < len(few)
    assert sum(alone) <= sum(few)  # a dictionary is in each block


@pytest.mark.each_once
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("few", [0, 1 << 20])
def test_texts_are_found_by_whatever_blocks(
    store: Store, workers: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_pages, "workers_here", lambda: workers)
    monkeypatch.setattr(stored_pages, "BESIDE_BYTES", few)
    monkeypatch.setattr(stored_pages, "LARGE_PAGE", 0)
    monkeypatch.setattr(column_pages, "FEW_BYTES", few)
    monkeypatch.setattr(column_pages, "BLOCK_BYTES", 300)
    for turn, alone in enumerate((200, 900, 8 << 20)):
        monkeypatch.setattr(column_pages, "ALONE_BYTES", alone)
        texts = [f"{number * 7919 % 600:03d}-{turn}" for number in range(600)]
        rows = pa.table({"k": texts if turn else sorted(texts)})
        odd = rows.take(np.arange(599, -1, -1))
        files = [
            opened(store, written(one, **KEYS), f"{name}-{turn}")
            for name, one in (("one", rows), ("other", odd))
        ]
        wanted = sorted(f"{number:03d}-{turn}".encode() for number in (0, 5, 77, 78, 301, 599, 600))
        bounds = key_pages(store, files, "k")
        asked = [
            (file, own, own.wanted(wanted)) for file, own in zip(files, bounds, strict=True) if own
        ]
        found = chosen_pages.find_rows(store, asked, "k")
        for table, (places, held) in zip((rows, odd), found, strict=True):
            told = dict(zip(held.cast(pa.binary()).to_pylist(), places.tolist(), strict=True))
            keys = table["k"].to_pylist()
            assert held.to_pylist() == [keys[place] for place in places.tolist()]
            assert sorted(told) == wanted[:-1]


@pytest.mark.each_once
@pytest.mark.parametrize("few", [0, 1 << 20], ids=["one by one", "together"])
@pytest.mark.parametrize("keys", [12, 40, 90], ids=["short keys", "keys", "long keys"])
@pytest.mark.parametrize("size", [80, 160, 300])
def test_rows_of_keys_are_those_of_the_whole_file_wherever_pages_of_columns_begin(
    store: Store, few: int, keys: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_together, "ROUND_BYTES", few)
    texts = pa.array([f"{number:0{keys}d}" for number in range(600)])
    options = KEYS | {"use_dictionary": ["file"], "data_page_size": size, "write_batch_size": 5}
    tables = [one.append_column("k", texts) for one in (ROWS, OTHERS)]
    files = [
        opened(store, written(one, **options), f"f{place}") for place, one in enumerate(tables)
    ]
    told = group_pages(store, [(file, 0) for file in files])
    assert all(len(one.starts) > 1 and not one.is_even for one in told)
    own = [some(count, count) for count in (1, 40)]
    bounds = [one for one in key_pages(store, files, "k") if one is not None]
    wanted = [
        (file, pages, pages.wanted([texts[place].as_py().encode() for place in places.tolist()]))
        for file, pages, places in zip(files, bounds, own, strict=True)
    ]
    found = chosen_pages.read_found(store, wanted, "k", ROWS.column_names)
    assert found is not None
    assert found[0] == [1, 40]
    expected = [table.take(places) for table, places in zip(tables, own, strict=True)]
    assert found[1].to_pylist() == [
        one.encode() for table in expected for one in table["k"].to_pylist()
    ]
    rows = pa.concat_tables(expected).drop_columns(["k"])
    assert str(found[2].to_pylist()) == str(rows.to_pylist())


def test_each_thread_has_as_many_blocks_of_keys_the_first_of_which_is_half_of_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_pages, "workers_here", lambda: 2)
    monkeypatch.setattr(column_pages, "FEW_BYTES", 0)
    rows = pa.table({"k": [f"{number:05d}" for number in range(600)]})
    file = opened(store, written(rows, **KEYS))
    [bounds] = key_pages(store, [file], "k")
    assert bounds is not None
    asked = [(file, bounds, bounds.wanted([*(b"%05d" % place for place in range(0, 600, 9))]))]
    blocks: list[int] = []

    def noted(group: unpacked_pages.Packed) -> Any:
        blocks.append(group.plain_bytes)
        return unpacked_pages.Packed.unpacked(group)

    class Noting(unpacked_pages.Packed):
        unpacked = noted

    monkeypatch.setattr(column_pages, "Packed", Noting)
    for alone in (700, 2_000, 4_000, 8 << 20):
        monkeypatch.setattr(column_pages, "ALONE_BYTES", alone)
        blocks.clear()
        [(places, _)] = chosen_pages.find_rows(store, asked, "k")
        assert places.tolist() == [*range(0, 600, 9)]
        *halves, least = sorted(blocks)[:3]
        assert len(blocks) % 2 == 1
        assert max(blocks) < alone + 300
        assert max(blocks) - least < 400  # a page or two
        assert sum(halves) < max(blocks) + 400


def test_no_page_is_read_but_those_of_the_rows_and_dictionaries(store: Store) -> None:
    rows = pa.table({"n": range(600), "word": ["a", "b", "c"] * 200})
    raw = written(rows, use_dictionary=["word"], compression="none", **PAGES)
    file = opened(store, raw)
    positions = np.array([0, 19, 20, 599])  # two pages of the first row group, one of the last
    assert read_rows(store, [(file, positions)], ["word", "n"])["n"].to_pylist() == [0, 19, 20, 599]
    assert store.counters["data.pages"] == 3 + 3 + 2
    before = store.counters["store.bytes_read"], store.counters["store.requests"]
    read_rows(store, [(file, positions[:1])], ["n"])
    assert store.counters["data.pages"] == 9
    assert store.counters["store.requests"] - before[1] == 1  # where pages lie is remembered
    assert 160 <= store.counters["store.bytes_read"] - before[0] < 250


def test_spliced_files_and_those_of_no_row_have_pages_too(store: Store) -> None:
    raw = written(ROWS, **PAGES)
    file = opened(store, spliced(ParquetParts.of_bytes(raw)))
    found = read_rows(store, [(file, some(50))], ROWS.column_names)
    assert str(found.to_pylist()) == str(ROWS.take(some(50)).to_pylist())
    assert (
        read_rows(store, [(file, some(0))], ["id", "list"]).schema
        == ROWS.schema.empty_table().select(["id", "list"]).schema
    )


def test_a_file_that_is_not_paged_is_told(store: Store) -> None:
    assert put(store, written(ROWS), "no index") is None
    assert put(store, written(ROWS), "no index") is None
    assert put(store, written(ROWS, store_schema=True, **PAGES), "Arrow's schema") is None
    assert put(store, written(ROWS.slice(0, 0), **PAGES), "no rows") is None
    some = [ParquetParts.of_bytes(written(one, **PAGES)) for one in (ROWS, ROWS.slice(0, 0))]
    raw = spliced(some[0], [one.chunks(0) for one in some])
    footer = footer_of(raw)
    for column in footer[Footer.GROUPS][1][Group.COLUMNS]:  # an index of no pages
        column.kinds |= {Column.OFFSET_INDEX: I64, Column.OFFSET_INDEX_SIZE: I32}
        column[Column.OFFSET_INDEX], column[Column.OFFSET_INDEX_SIZE] = 4, 1
    assert put(store, with_footer(raw, footer), "a row group of none") is None
    footer = footer_of(written(ROWS, **PAGES))
    secret = footer.changed((Footer.SIGNATURE, BINARY, b"x"))
    assert put(store, with_footer(written(ROWS, **PAGES), secret), "encrypted") is None
    column = footer[Footer.GROUPS][1][Group.COLUMNS][3]
    del column[Column.OFFSET_INDEX]
    assert put(store, with_footer(written(ROWS, **PAGES), footer), "one without") is None


def test_a_key_is_looked_for_where_bounds_admit_it() -> None:
    bounds = [b"b", b"cc", None, b"cc", b"z"], [b"c", b"cd", None, b"d", b"z"]
    least, greatest = (pa.array(one, pa.binary()) for one in bounds)
    pages = KeyPages.of(least, greatest, np.array([0, 10, 20, 30, 30, 32]))
    for keys, rows in [
        (["a"], []),
        (["b"], range(10)),
        (["c", "ca"], range(10)),
        (["ccccc"], range(10, 20)),
        (["cd"], range(10, 20)),
        (["a", "y", "z"], [30, 31]),
        (["aa", "bb", "cc"], range(20)),
    ]:
        assert pages.rows_of([*pages.wanted([one.encode() for one in keys])]).tolist() == [*rows]
        assert pages.rows_of(pages.holding(pa.array([*keys[::-1], keys[0]]))).tolist() == [*rows]
    assert not len(pages.holding(pa.array([], pa.string())))


@pytest.mark.parametrize("asked", [1, 3, 40, 100])
def test_bounds_that_ascend_are_bisected_as_any_are_searched(asked: int) -> None:
    rng = np.random.default_rng(asked)
    values = sorted(b"%05d" % one for one in rng.integers(0, 5_000, 200))
    least, greatest = (pa.array(values[first::2], pa.binary()) for first in (0, 1))
    starts = np.arange(101) * 10
    pages, plain = KeyPages.of(least, greatest, starts), KeyPages(least, greatest, starts)
    some = rng.integers(0, 5_000, asked) * (1 + np.arange(asked) % 2)  # some above all bounds
    texts = sorted({*(b"%05d" % one for one in some), *rng.choice(values, asked // 2).tolist()})
    assert pages.ascending is not None
    for _ in range(2):  # texts are kept, from the first time that many are asked
        assert pages.wanted(texts) == plain.wanted(texts)
        assert pages.wanted(texts[:1]) == plain.wanted(texts[:1])


def test_places_that_are_known_are_not_decoded_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(store, written(ROWS, **PAGES))
    known = group_pages(store, [(file, 0)]), key_pages(store, [file], "city")

    def never(raws: object) -> None:
        raise AssertionError(raws)

    monkeypatch.setattr(page_places, "decode_offset_indexes", never)
    again = group_pages(store, [(file, 0)]), key_pages(store, [file], "city")
    assert known[1] != [None]
    assert all(map(operator.is_, chain(*again), chain(*known)))


def test_a_column_that_is_not_there_tells_no_bounds(store: Store) -> None:
    assert key_pages(store, [opened(store, written(ROWS, **KEYS))], "absent") == [None]


def test_pages_of_keys_are_those_of_all_row_groups(store: Store) -> None:
    texts = [f"{n:04}" for n in range(600)]
    rows = pa.table({"key": texts, "n": range(600)})
    file = opened(store, written(rows, **PAGES))
    [pages] = key_pages(store, [file], "key")
    assert pages is not None
    wanted = pages.wanted([b"0019", b"0255", b"0599"])
    assert [*wanted.values()] == [[b"0019"], [b"0255"], [b"0599"]]
    assert pages.rows_of([*wanted]).tolist() == [*range(20), *range(250, 270), *range(580, 600)]
    assert key_pages(store, [file], "n") == [None]
    unordered = footer_of(written(rows, **PAGES)).changed((Footer.ORDERS, LIST, None))
    unsure = opened(store, with_footer(written(rows, **PAGES), unordered), "unsure")
    assert key_pages(store, [unsure], "key") == [None]
    unknown = opened(store, written(rows, write_statistics=["n"], **PAGES), "unknown")
    assert key_pages(store, [unknown], "key") == [None]


@pytest.mark.parametrize("size", [0, 1, 36, 127, 128])
@pytest.mark.parametrize("pages", [1, 14, 15, 30])
def test_bounds_of_one_size_are_those_that_decoding_gives(
    store: Store, size: int, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"key": [f"{n:0{size}}"[-size:] if size else "" for n in range(20 * pages)]})
    raw = written(rows, group_rows=1000, write_statistics=["key"], **PAGES)
    [known] = key_pages(store, [opened(store, raw)], "key")
    monkeypatch.setattr(page_places, "_bounds_of_one_size", lambda raw, count: None)
    [plain] = key_pages(store, [opened(store, raw, "again")], "key")
    assert (known is None) is (plain is None)
    if known is not None and plain is not None:
        assert len(known.least) == pages
        assert known.least.equals(plain.least)
        assert known.greatest.equals(plain.greatest)


def spoiled(store: Store, raw: bytes, field: str) -> Iterator[PagedFile]:
    """The file with one bit of a part of it another one, each under a name of its own."""
    draw = random.Random(5)
    parts = ParquetParts.of_bytes(raw)
    chunks = [chunk for group in range(3) for chunk in parts.chunks(group)]
    for turn in range(100):
        chunk = draw.choice(chunks)
        bounds, places = chunk.page_index
        at, size = {"bounds": bounds, "places": places, "pages": (chunk.offset, chunk.size)}[field]
        bad = bytearray(raw)
        bad[at + draw.randrange(size)] ^= 1 << draw.randrange(8)
        yield opened(store, bytes(bad), f"{field}-{turn}")


@pytest.mark.each_once
@pytest.mark.parametrize(
    ("field", "least"), [("places", 60), ("bounds", 3), ("pages", 40)], ids=str
)
@pytest.mark.parametrize(("version", "beside"), [("1.0", 4 << 20), ("1.0", 0), ("2.0", 0)])
def test_a_bit_that_is_another_one_is_damage_or_says_nothing(
    store: Store,
    version: str,
    beside: int,
    field: str,
    least: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_pages, "BESIDE_BYTES", beside)
    monkeypatch.setattr(stored_pages, "LARGE_PAGE", 0)
    rows = ROWS.select(["id", "city", *(["list"] if version == "2.0" else [])])
    raw = written(rows, data_page_version=version, compression="zstd", **PAGES)
    positions, sound = some(40), 0
    expected = str(rows.take(positions).to_pylist())
    for file in spoiled(store, raw, field):
        with suppress(CorruptError):
            key_pages(store, [file], "city")
            found = str(read_rows(store, [(file, positions)], rows.column_names).to_pylist())
            assert found == expected
            sound += 1
    assert 100 - sound > least


def index_of(locations: list[tuple[int, int, int]]) -> bytes:
    every = [Struct((1, I64, at), (2, I32, size), (3, I64, row)) for at, size, row in locations]
    return encode_struct(Struct((1, LIST, Elements(STRUCT, every))))


def test_many_offset_indexes_are_decoded_as_one_is() -> None:
    draw = random.Random(3)
    some = [
        [(draw.getrandbits(draw.randrange(62)), draw.getrandbits(31), row) for row in range(count)]
        for count in (0, 1, 7, 8, 14, 15, 16, 200, 0, 3)
    ]
    raws = [index_of(one) + bytes(extra) for one, extra in zip(some, [0, 3] * 5, strict=True)]
    assert [one[1] for one in decode_struct(raws[-1], "")[0][1]] == [one[0] for one in some[-1]]
    counts, found = decode_offset_indexes(raws)
    assert counts.tolist() == [len(one) for one in some]
    assert [tuple(one) for one in found.tolist()] == [one for own in some for one in own]


def as_by_varints(raws: list[bytes]) -> tuple[Any, Any]:
    counts, found, _ = offset_index._decoded(raws, [offset_index._head(one) for one in raws])
    return counts, found


def usual_indexes(draw: random.Random) -> list[bytes]:
    """Some bytes behind each, as of texts' sizes."""
    some = []
    for count in draw.choices(range(1, 40), k=12):
        bits = draw.choice([7, 20, 33, 54])
        rows = sorted(draw.sample(range(1, 1 << 16), count - 1))
        own = [(draw.getrandbits(bits) + 1, draw.getrandbits(20) + 1, row) for row in (0, *rows)]
        some.append(index_of(own) + draw.randbytes(draw.choice([0, 9])))
    return some


@pytest.mark.parametrize("seed", one_in(3, range(20)))
def test_indexes_whose_locations_end_by_zeros_are_decoded_as_any(seed: int) -> None:
    raws = usual_indexes(random.Random(seed))
    heads = [offset_index._head(one) for one in raws]
    found = offset_index._ended_by_zeros(raws, heads)
    assert found is not None
    counts, pages, ends = offset_index._decoded(raws, heads)
    assert (found[0].tolist(), found[1].tolist()) == (counts.tolist(), pages.tolist())
    assert found[2] == ends


def test_what_a_changed_byte_of_an_offset_index_tells_is_the_same_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_index, "_TOGETHER", 2)
    draw, changed = random.Random(7), 0
    for _ in range(600):
        raws = usual_indexes(draw)[:5]
        place = draw.randrange(5)
        bad = bytearray(raws[place])
        bad[draw.randrange(len(bad))] = draw.choice([0, 0, 0x15, 0x16, 0x80, draw.randrange(256)])
        raws[place] = bytes(bad)[: draw.choice([None, None, -draw.randrange(1, len(bad))])]
        found, plain = decode_offset_indexes(raws), as_by_varints(raws)
        changed += bool((plain[0] < 0).any())
        assert [one.tolist() for one in found] == [one.tolist() for one in plain]
    assert changed > 100


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x19",
        index_of([(4, 9, 0)])[:-3],
        b"\x19\xfc\xff\xff\xff\xff\x7f",
        b"\x19\xfc\xff\xff\xff\xff\xff",
        index_of([(4, 9, 0)]).replace(b"\x16", b"\x15", 1),
        b"\x19\x1c\x16" + b"\xff" * 9 + b"\x01\x15\x02\x16\x00\x00\x00",
    ],
    ids=["nothing", "no list", "cut", "many", "endless", "another type", "64 bits"],
)
def test_an_offset_index_that_is_not_understood_is_told(raw: bytes) -> None:
    good = index_of([(4, 9, 0), (13, 2, 5)])
    counts, found = decode_offset_indexes([good, raw, good])
    assert counts.tolist() == [2, -1, 2]
    assert found.tolist() == [[4, 9, 0], [13, 2, 5]] * 2
    assert decode_offset_indexes([good, raw])[0].tolist() == [2, -1]


LOCATIONS: dict[str, Callable[[list[tuple[int, int, int]]], list[tuple[int, int, int]]]] = {
    "none": lambda told: [],
    "before its chunk": lambda told: [(told[0][0] - 1, *told[0][1:]), *told[1:]],
    "behind its chunk": lambda told: [*told[:-1], (told[-1][0] + 1, *told[-1][1:])],
    "each other": lambda told: [(told[0][0], told[0][1] + 1, 0), *told[1:]],
    "not from the first row": lambda told: told[1:],
    "rows backwards": lambda told: [told[0], (*told[1][:2], 50), *told[2:]],
    "rows beyond the end": lambda told: [*told[:-1], (*told[-1][:2], 251)],
    "of no bytes": lambda told: [told[0], (told[1][0], 0, 20), *told[2:]],
}


@pytest.mark.parametrize("change", LOCATIONS.values(), ids=LOCATIONS)
def test_pages_lie_in_their_chunk_in_order(store: Store, change: Callable[..., Any]) -> None:
    rows = pa.table({"n": range(250), "m": range(250)})
    raw = written(rows, use_dictionary=False, compression="none", **PAGES)
    footer = footer_of(raw)
    column = footer[Footer.GROUPS][0][Group.COLUMNS][1]
    at, size = column[Column.OFFSET_INDEX], column[Column.OFFSET_INDEX_SIZE]
    told = [(one[1], one[2], one[3]) for one in decode_struct(raw, "", at)[0][1]]
    made = index_of(change(told))
    body = raw[:at] + made + raw[at + size :]
    column[Column.OFFSET_INDEX_SIZE] = len(made)
    file = opened(store, with_footer(body, footer))
    with pytest.raises(CorruptError, match=r"offset index is damaged.*column='m' row_group=0"):
        read_rows(store, [(file, some(3, of=250))], ["n"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda told: [*told[:3], (*told[3][:2], 61), *told[4:]],
            r"another num.*expected=21 found",
        ),
        (
            lambda told: [*told[:2], (told[2][0], told[2][1] + told[3][1], 40), *told[4:]],
            "page ends before its place does",
        ),
    ],
    ids=["rows", "two in one"],
)
def test_a_page_that_is_not_what_its_place_says_is_damage(
    store: Store, change: Callable[..., Any], told: str
) -> None:
    """No checksum would say so."""
    raw = written(pa.table({"n": range(250)}), use_dictionary=False, compression="none", **PAGES)
    footer = footer_of(raw)
    [column] = footer[Footer.GROUPS][0][Group.COLUMNS]
    at, size = column[Column.OFFSET_INDEX], column[Column.OFFSET_INDEX_SIZE]
    places = [(one[1], one[2], one[3]) for one in decode_struct(raw, "", at)[0][1]]
    made = index_of(change(places))
    column[Column.OFFSET_INDEX_SIZE] = len(made)
    file = opened(store, with_footer(raw[:at] + made + raw[at + size :], footer))
    with pytest.raises(CorruptError, match=told):
        read_rows(store, [(file, np.array([50]))], ["n"])
    assert read_rows(store, [(file, np.array([100]))], ["n"])["n"].to_pylist() == [100]


def test_headers_of_pages_are_read_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ROWS.select(["id", "city", "list"])
    monkeypatch.setattr(stored_pages, "checked_page", None)
    for number, codec in enumerate(["zstd", "none"]):
        file = opened(store, written(rows, compression=codec, **PAGES), f"file-{number}")
        found = read_rows(store, [(file, some(40))], rows.column_names)
        assert found.to_pylist() == rows.take(some(40)).to_pylist()


@pytest.mark.parametrize("step", [-1, 1])
def test_pages_of_lists_hold_the_rows_that_their_places_say(store: Store, step: int) -> None:
    """Of lists, a page of the first version does not tell how many."""
    rows = pa.table({"list": [[n] * (n % 3) for n in range(250)]})
    raw = written(rows, use_dictionary=False, compression="none", **PAGES)
    [column] = footer_of(raw)[Footer.GROUPS][0][Group.COLUMNS]
    at, size = column[Column.OFFSET_INDEX], column[Column.OFFSET_INDEX_SIZE]
    places = [(one[1], one[2], one[3]) for one in decode_struct(raw, "", at)[0][1]]
    made = index_of([*places[:3], (*places[3][:2], 60 + step), *places[4:]])
    file = opened(store, raw[:at] + made + raw[at + size :])
    for rows_asked in ([50, 200], [62], [62, 200], [10, 70]):
        with pytest.raises(CorruptError, match="pages are not readable"):
            read_rows(store, [(file, np.array(rows_asked))], ["list"])
    near = np.array([50, 62, 200])  # both pages, behind each other
    found = read_rows(store, [(file, near)], ["list"])
    assert found.to_pylist() == rows.take(near).to_pylist()


def test_places_that_many_chunks_share_are_not_read_for_each(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = written(pa.table({"key": ["a", "b"] * 300, "n": range(600)}), **PAGES)
    file = opened(store, raw)
    bounds, places = file.chunks[:, 0, BOUNDS_SIZE].sum(), file.chunks[:, :, PLACES_SIZE].sum()
    assert bounds < places
    for most, is_paged, is_bounded in (
        (places, True, True),
        (bounds, False, True),
        (bounds - 1, False, False),
    ):
        monkeypatch.setattr(paged_file, "MOST_INDEX_BYTES", most)
        monkeypatch.setattr(page_places, "MOST_INDEX_BYTES", most)
        cache.clear()
        assert (put(store, raw) is not None) is is_paged
        assert (key_pages(store, [file], "key") != [None]) is is_bounded
    monkeypatch.undo()
    footer = footer_of(raw)
    first = footer[Footer.GROUPS][0][Group.COLUMNS][1]
    for group in footer[Footer.GROUPS]:
        group[Group.COLUMNS][1][Column.META] |= {
            field: first[Column.META][field] for field in (Meta.DATA_PAGE, Meta.DICTIONARY)
        } | {Meta.STORED: len(raw) // 2}
    assert put(store, with_footer(raw, footer), "shared") is None


@pytest.mark.parametrize("error", [None, CorruptError("damaged")])
def test_when_pages_are_given_up_no_thread_has_their_headers_hidden(
    error: CorruptError | None,
) -> None:
    """Who gives up decodes the same pages otherwise, at once."""
    begun, ended = threading.Event(), list[int]()

    def look(number: int) -> int | None:
        if not number:
            assert begun.wait(60)
            if error is not None:
                raise error
            return None
        begun.set()
        time.sleep(0.05)
        ended.append(number)
        return number

    with pytest.raises(CorruptError) if error else nullcontext():
        assert column_pages._all_or_none_together(look, range(40)) is None
    assert 1 in ended
    assert len(ended) < 39
    before = len(ended)
    time.sleep(0.2)
    assert len(ended) == before
