"""What a file tells of its values is held against them: sound files of any writer pass, and what
would hide a value is found."""

from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import (
    Bounds,
    Column,
    Footer,
    Group,
    Location,
    Page,
    Statistics,
)
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    Elements,
    Struct,
    decode_struct,
    encode_struct,
)
from metatable.storage.parquet.told_bounds import ToldBounds
from metatable.storage.store import Store
from tests.long import LONG
from tests.storage.parquet.files import (
    OPTIONS,
    PAGES,
    ROWS,
    Change,
    after_ten_upserts,
    footer_of,
    with_pages,
    with_statistics,
    written,
)

WHOLE = pa.table({"v": pa.array([*range(100), *[None] * 100], pa.int64()), "one": [1] * 200})
"""Of pages of 20 rows, five of `v` have no values."""

SMALL_PAGES = {"data_page_size": 100, "write_batch_size": 20}


def faults(folder: Path, raw: bytes, rows: pa.Table | None = None) -> list[str]:
    """What is wrong with the columns of a file, which has these rows."""
    store = Store(folder, {"durable": "false"})
    store.put("f.parquet", raw)
    told = ToldBounds.read(store, "f.parquet", len(raw))
    assert told is not None
    table = rows or pq.read_table(io.BytesIO(raw))
    return [*filter(None, (told.fault_of(name, table[name]) for name in table.column_names))]


@pytest.mark.parametrize("written_as", OPTIONS)
@pytest.mark.parametrize("pages", [{}, PAGES], ids=["", "page index"])
def test_what_pyarrow_tells_is_true(tmp_path: Path, written_as: str, pages: dict[str, Any]) -> None:
    assert faults(tmp_path, written(ROWS, **OPTIONS[written_as] | pages)) == []


@pytest.mark.parametrize("written_as", OPTIONS)
def test_spliced_files_tell_what_is_true(tmp_path: Path, written_as: str) -> None:
    assert faults(tmp_path, after_ten_upserts(written_as)[0]) == []


def test_what_other_engines_tell_is_true(tmp_path: Path) -> None:
    rows = ROWS.drop_columns(["pairs"])
    pl.from_arrow(rows.drop_columns(["point"])).write_parquet(tmp_path / "polars.parquet")  # type: ignore[union-attr]
    where = tmp_path / "duckdb.parquet"
    duckdb.sql(f"COPY (SELECT * FROM rows) TO '{where}' (FORMAT parquet)")
    for name in ("polars.parquet", "duckdb.parquet"):
        assert faults(tmp_path, (tmp_path / name).read_bytes()) == [], name


@pytest.mark.parametrize("values", [[0.0, -0.0], [np.nan, 1.0], [np.nan], [None], [], [np.inf]])
def test_numbers_that_have_no_order_are_no_fault(tmp_path: Path, values: list[Any]) -> None:
    table = pa.table({"v": pa.array(values * 30, pa.float64())})
    assert faults(tmp_path, written(table, **PAGES)) == []


# Damage


def flat_columns() -> list[str]:
    fields = [one for one in ROWS.schema if not pa.types.is_nested(one.type)]
    return [one.name for one in fields if one.name not in ("file", "nothing")]


@pytest.mark.parametrize("name", flat_columns())
def test_bounds_that_leave_out_values_are_found_of_every_type(tmp_path: Path, name: str) -> None:
    raw = written(ROWS, **PAGES, compression="zstd")
    least, greatest = Statistics.LEAST, Statistics.GREATEST

    def lowered(told: Struct) -> Struct:
        return told.changed((greatest, BINARY, told[least]))

    def raised(told: Struct) -> Struct:
        return told.changed((least, BINARY, told[greatest]))

    for change in (lowered, raised):
        [fault] = faults(tmp_path, with_statistics(raw, name, change))
        assert fault.startswith(f"column {name} in row group 0: rows 0 to 250 are told to have b")

    def lowered_pages(told: Struct) -> Struct:
        return told.changed((Bounds.GREATEST, LIST, told[Bounds.LEAST]), (Bounds.ORDER, I32, 0))

    [fault] = faults(tmp_path, with_pages(raw, name, lowered_pages))
    assert fault.startswith(f"column {name} in row group ")
    assert fault.endswith(", and have others")


def nulls_of_statistics(count: int) -> Change:
    return lambda told: told.changed((Statistics.NULLS, I64, count))


def listed(field: int, kind: int, *changes: tuple[int, Any]) -> Change:
    def change(told: Struct) -> Struct:
        values = Elements(told[field].kind, told[field])
        for place, value in changes:
            values[place] = value
        return told.changed((field, LIST, values))

    return change


@pytest.mark.parametrize(
    ("where", "change", "expected"),
    [
        (
            with_statistics,
            nulls_of_statistics(0),
            "rows 0 to 200 are told to have 0 nulls, and have 100",
        ),
        (
            with_pages,
            listed(Bounds.NULLS, I64, (7, 0)),
            "rows 140 to 160 are told to have 0 nulls, and have 20",
        ),
        (
            with_pages,
            listed(Bounds.IS_NULL, 1, (1, True)),
            "rows 20 to 40 are told to have no values, and have 20",
        ),
        (
            with_pages,
            lambda told: told.changed((Bounds.ORDER, I32, 2)),
            "bounds of pages are not in the order that is told, 2",
        ),
        (
            with_pages,
            lambda told: told.changed((Bounds.ORDER, I32, 9)),
            "bounds of pages are not in the order that is told, 9",
        ),
        (
            lambda raw, _, change: with_pages(raw, "one", change),
            lambda told: told.changed((Bounds.ORDER, I32, 9)),
            "bounds of pages are not in the order that is told, 9",
        ),
        (
            with_pages,
            listed(Bounds.LEAST, BINARY, (0, b"\0" * 7)),
            "a bound is of another type than values",
        ),
    ],
)
def test_what_hides_values_otherwise_is_found(
    tmp_path: Path, where: Callable[..., bytes], change: Change, expected: str
) -> None:
    raw = written(WHOLE, **PAGES)
    assert faults(tmp_path, raw) == []
    [fault] = faults(tmp_path, where(raw, "v", change))
    assert expected in fault


NUMBERS = [
    pa.array([*range(-30, 30)], pa.int8()),
    pa.array([*range(-30, 30)], pa.int16()),
    pa.array([*range(200, 256)], pa.uint8()),
    pa.array([*range(65_000, 65_060)], pa.uint16()),
    pa.array([*range(2**31 - 30, 2**31 + 30)], pa.uint32()),
    pa.array([*range(2**63 - 30, 2**63 + 30)], pa.uint64()),
    pa.array([Decimal(n).scaleb(-2) for n in range(-30, 30)], pa.decimal128(7, 2)),
    pa.array([Decimal(n).scaleb(-2) for n in range(-30, 30)], pa.decimal128(17, 2)),
    pa.array([Decimal(n * 10**36) for n in range(-30, 30)], pa.decimal128(38, 0)),
    pa.array([Decimal(n * 10**60) for n in range(-30, 30)], pa.decimal256(70, 0)),
    pa.array([f"{n:02}" for n in range(30)], pa.large_string()),
]


@pytest.mark.parametrize("values", NUMBERS, ids=lambda one: str(one.type))
@pytest.mark.parametrize("as_integers", [False, True])
def test_numbers_of_every_size_are_held_against_their_bounds(
    tmp_path: Path, values: pa.Array, as_integers: bool
) -> None:
    options = PAGES | {"store_decimal_as_integer": as_integers}
    raw = written(pa.table({"v": values}), **options)
    assert faults(tmp_path, raw) == []

    def raised(told: Struct) -> Struct:
        return told.changed((Statistics.LEAST, BINARY, told[Statistics.GREATEST]))

    [fault] = faults(tmp_path, with_statistics(raw, "v", raised))
    assert fault.startswith("column v in row group 0: rows 0 to ")


def test_pages_that_begin_at_other_rows_are_found(tmp_path: Path) -> None:
    raw = bytearray(written(WHOLE, **PAGES))
    chunk = footer_of(bytes(raw))[Footer.GROUPS][0][Group.COLUMNS][0]
    start, size = chunk[Column.OFFSET_INDEX], chunk[Column.OFFSET_INDEX_SIZE]
    at = bytes(raw).index(b"\x16\x50\x00", start, start + size)  # row 40, and the end
    raw[at + 1] = 2 * 41
    [fault] = faults(tmp_path, bytes(raw))
    assert "rows 20 to 41 are told to have " in fault


def test_pages_that_lie_elsewhere_are_found(tmp_path: Path) -> None:
    """Of columns without bounds, too: by these places readers find the rows that others leave."""
    lists = pa.array([[n] for n in range(200)])
    raw = written(WHOLE.append_column("l", lists), **PAGES)
    assert faults(tmp_path, raw) == []
    for place in (0, 2):
        chunk = footer_of(raw)[Footer.GROUPS][0][Group.COLUMNS][place]
        start, size = chunk[Column.OFFSET_INDEX], chunk[Column.OFFSET_INDEX_SIZE]
        for page, field in ((0, Location.OFFSET), (5, Location.SIZE), (9, Location.SIZE)):
            index, _ = decode_struct(raw, "", start)
            index[Location.ALL][page][field] ^= 1
            hurt = raw[:start] + encode_struct(index) + raw[start + size :]
            with pytest.raises(CorruptError, match="offset index tells other pages"):
                faults(tmp_path, hurt)


@pytest.mark.parametrize("bound", [b"", np.float64("nan").tobytes()], ids=["none", "no number"])
def test_statistics_of_values_of_which_pages_tell_nothing_are_held_against_them(
    tmp_path: Path, bound: bytes
) -> None:
    raw = written(pa.table({"v": pa.array([float(n) for n in range(40)])}), **PAGES)

    def silent(told: Struct) -> Struct:
        bounds = Elements(BINARY, [bound, told[Bounds.GREATEST][1]])
        least = Elements(BINARY, [bound, told[Bounds.LEAST][1]])
        unordered = told.changed((Bounds.ORDER, I32, 0), (Bounds.LEAST, LIST, least))
        return unordered.changed((Bounds.GREATEST, LIST, bounds))

    def raised(told: Struct) -> Struct:
        return told.changed((Statistics.LEAST, BINARY, np.float64(20).tobytes()))

    raw = with_pages(raw, "v", silent)
    assert faults(tmp_path, raw) == []
    [fault] = faults(tmp_path, with_statistics(raw, "v", raised))
    assert "rows 0 to 40 are told to have " in fault


@pytest.mark.parametrize(
    "change",
    [
        listed(Bounds.LEAST, BINARY),
        lambda told: told.changed((Bounds.LEAST, LIST, Elements(BINARY, told[Bounds.LEAST][1:]))),
        lambda told: told.changed((Bounds.NULLS, I64, 5)),
        lambda told: told.changed((Bounds.GREATEST, LIST, Elements(I32, [1] * 10))),
    ],
    ids=["nothing", "one less", "no list", "of numbers"],
)
def test_an_index_that_is_none_is_damage(
    tmp_path: Path, change: Change, request: pytest.FixtureRequest
) -> None:
    raw = with_pages(written(WHOLE, **PAGES), "v", change)
    if request.node.callspec.id == "nothing":
        assert faults(tmp_path, raw) == []
        return
    with pytest.raises(CorruptError, match="index"):
        faults(tmp_path, raw)


@pytest.mark.parametrize("where", ["page indexes", "footer"])
def test_any_bit_is_found_or_does_not_matter(tmp_path: Path, where: str) -> None:
    """And nothing but CorruptError is raised."""
    rows = ROWS.slice(0, 60)
    raw = written(rows, **PAGES)
    chunks = footer_of(raw)[Footer.GROUPS][0][Group.COLUMNS]
    first = min(chunk[Column.COLUMN_INDEX] for chunk in chunks if Column.COLUMN_INDEX in chunk)
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    start, end = (first, footer) if where == "page indexes" else (footer, len(raw))
    draw, found, turns = np.random.default_rng(1), 0, 4000 if LONG else 300
    for _ in range(turns):
        hurt = bytearray(raw)
        hurt[draw.integers(start, end)] ^= 1 << draw.integers(8)
        try:
            found += bool(faults(tmp_path, bytes(hurt), rows))
        except CorruptError as error:
            found += error.facts["path"] == "f.parquet"
    assert found > turns // 3  # others make bounds wider, or say what nobody goes by


def test_indexes_longer_than_any_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = with_pages(written(WHOLE, **PAGES), "v", listed(Bounds.IS_NULL, 1, (1, True)))
    monkeypatch.setattr("metatable.storage.parquet.told_bounds.MOST_INDEX_BYTES", 10)
    assert faults(tmp_path, raw) == []


@pytest.mark.parametrize("pages", [{}, PAGES], ids=["", "page index"])
def test_a_bit_of_a_page_header_that_gives_rows_the_values_of_others_is_found(
    tmp_path: Path, pages: dict[str, Any]
) -> None:
    rows = pa.table({"n": [None, *range(79)], "list": [[one] * (one % 3) for one in range(80)]})
    raw = written(rows, 80, **SMALL_PAGES | pages)
    parts = ParquetParts.of_bytes(raw)
    silent = 0
    for chunk in parts.chunks(0):
        name, start = chunk.leaf.path[0].decode(), chunk.offset
        while start < chunk.offset + chunk.size:
            header, body = decode_struct(raw, "", start)
            for bit in range(8 * start, 8 * body):
                turned = with_bit(raw, bit)
                if read_as_others(turned, rows):
                    silent += 1
                    with pytest.raises(CorruptError, match="page"):
                        check_pages(tmp_path, turned, name)
            start = body + header[Page.STORED]
    assert silent > 5


def with_bit(raw: bytes, bit: int) -> bytes:
    byte, of_byte = divmod(bit, 8)
    return raw[:byte] + bytes([raw[byte] ^ 1 << of_byte]) + raw[byte + 1 :]


def read_as_others(raw: bytes, rows: pa.Table) -> bool:
    """Whether pyarrow reads other rows, without a word."""
    try:
        read = pq.ParquetFile(io.BytesIO(raw), page_checksum_verification=True).read()
    except (pa.ArrowException, OSError):
        return False
    return not read.equals(rows)


def check_pages(folder: Path, raw: bytes, *names: str) -> None:
    store = Store(folder, {"durable": "false"})
    store.put("f.parquet", raw)
    told = ToldBounds.read(store, "f.parquet", len(raw))
    assert told is not None
    told.check_pages(
        names or [leaf.path[0].decode() for leaf in told.parts.leaves], told.parts.read
    )


@pytest.mark.parametrize("written_as", OPTIONS)
@pytest.mark.parametrize("pages", [{}, PAGES], ids=["", "page index"])
def test_pages_of_sound_files_are_as_told(
    tmp_path: Path, written_as: str, pages: dict[str, Any]
) -> None:
    check_pages(tmp_path, written(ROWS, **OPTIONS[written_as] | pages))
    check_pages(tmp_path, after_ten_upserts(written_as)[0])
