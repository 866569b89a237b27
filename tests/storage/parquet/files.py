"""Parquet files for tests: a column of every type, and all that a writer can be told."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.storage.parquet.fields import Column, Footer, Group, Meta
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.splice import replaced, splice
from metatable.storage.parquet.thrift import (
    I32,
    I64,
    STRUCT,
    Struct,
    decode_struct,
    encode_struct,
)
from tests.every_kind import made_rows

Change = Callable[[Struct], Struct]

OPTIONS: dict[str, dict[str, Any]] = {
    "as ours": {"compression": "zstd"},
    "plain": {"compression": "none", "use_dictionary": False},
    "snappy": {"compression": "snappy", "write_statistics": False},
    "gzip": {"compression": "gzip", "version": "1.0"},
    "pages v2": {"data_page_version": "2.0", "compression": "zstd"},
    "small pages": {"data_page_size": 200, "write_batch_size": 16},
    "page index": {"write_page_index": True, "max_rows_per_page": 50},
    "dictionary falls back": {"dictionary_pagesize_limit": 200, "write_batch_size": 16},
    "other encodings": {
        "use_dictionary": False,
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"},
    },
}
"""What pyarrow's writer can be told, by a word for it."""

PAGES: dict[str, Any] = {"write_page_index": True, "max_rows_per_page": 20}

SUM = {"write_page_checksum": True, "store_schema": False}


@cache
def every_type(rows: int = 600, seed: int = 1) -> pa.Table:
    """A column of every flat type, and nested ones; the first one holds the row numbers."""
    table = made_rows(0, rows, random.Random(seed))
    pairs = [None if n % 7 == 0 else [(f"k{n}", n), ("", None)] for n in range(rows)]
    point = [None if n % 5 == 0 else {"x": n, "y": [str(n)] * (n % 3)} for n in range(rows)]
    point_type = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    return (
        table.append_column("pairs", pa.array(pairs, pa.map_(pa.string(), pa.int32())))
        .append_column("point", pa.array(point, point_type))
        .append_column(pa.field("must", pa.int32(), False), pa.array(range(rows), pa.int32()))
        .append_column("file", pa.repeat("first", rows))
    )


def written(table: pa.Table, group_rows: int = 250, **options: Any) -> bytes:
    """`table` as a Parquet file, page checksums included."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group_rows, **(SUM | options))
    return bytes(sink.getvalue())


def footer_of(raw: bytes) -> Struct:
    """The footer of a file, as it is stored."""
    length = int.from_bytes(raw[-8:-4], "little")
    return decode_struct(raw, "", len(raw) - 8 - length)[0]


def with_footer(raw: bytes, footer: Struct) -> bytes:
    """The file with another footer."""
    length = int.from_bytes(raw[-8:-4], "little")
    body = encode_struct(footer)
    return raw[: -8 - length] + body + len(body).to_bytes(4, "little") + raw[-4:]


def changed_chunks(raw: bytes, name: str, change: Change) -> bytes:
    """The file, of which the chunks (ColumnChunk) of a column are others."""
    footer = footer_of(raw)
    for group in footer[Footer.GROUPS]:
        for place, chunk in enumerate(group[Group.COLUMNS]):
            if chunk[Column.META][Meta.PATH] == [name.encode()]:
                group[Group.COLUMNS][place] = change(chunk)
    return with_footer(raw, footer)


def with_statistics(raw: bytes, name: str, change: Change) -> bytes:
    """The same, with other statistics."""

    def one(chunk: Struct) -> Struct:
        meta = chunk[Column.META]
        told = meta.changed((Meta.STATISTICS, STRUCT, change(meta[Meta.STATISTICS])))
        return chunk.changed((Column.META, STRUCT, told))

    return changed_chunks(raw, name, one)


def with_pages(raw: bytes, name: str, change: Change) -> bytes:
    """The same, with other column indexes: in their places, or in front of the footer where they
    are of another size."""
    length = int.from_bytes(raw[-8:-4], "little")
    body, end = bytearray(raw[: -8 - length]), raw[-8 - length :]

    def one(chunk: Struct) -> Struct:
        at, size = chunk[Column.COLUMN_INDEX], chunk[Column.COLUMN_INDEX_SIZE]
        index = encode_struct(change(decode_struct(raw, "", at)[0]))
        if len(index) != size:
            at = len(body)
        body[at : at + len(index)] = index
        return chunk.changed(
            (Column.COLUMN_INDEX, I64, at), (Column.COLUMN_INDEX_SIZE, I32, len(index))
        )

    footer = footer_of(changed_chunks(raw, name, one))
    return with_footer(bytes(body) + end, footer)


ROWS = every_type()
OTHERS = every_type(seed=2).set_column(
    ROWS.num_columns - 1, ROWS.field("file"), pa.repeat("second", 600)
)


def spliced(
    like: ParquetParts,
    groups: Iterable[Sequence[Chunk]] | None = None,
    metadata: dict[bytes, bytes] | None = None,
) -> bytes:
    sink = io.BytesIO()
    every = map(like.chunks, range(len(like.groups))) if groups is None else groups
    footer = splice(sink, like, every, metadata or {})
    assert footer.equals(pq.read_metadata(io.BytesIO(sink.getvalue())))
    return sink.getvalue()


def with_columns(raw: bytes, new: pa.Table, group_rows: int = 250, **options: Any) -> bytes:
    """The file with these columns in place of its own."""
    like = ParquetParts.of_bytes(raw)
    kept = {name: word for name, word in options.items() if name != "column_encoding"}
    fresh = ParquetParts.of_bytes(written(new, group_rows, **kept))
    groups = range(len(like.groups))
    return spliced(like, [replaced(like.chunks(group), fresh.chunks(group)) for group in groups])


def with_all(table: pa.Table, new: pa.Table) -> pa.Table:
    for name in new.column_names:
        table = table.set_column(table.column_names.index(name), new.field(name), new[name])
    return table


@cache
def after_ten_upserts(written_as: str) -> tuple[bytes, pa.Table]:
    """A file and its rows: each upsert replaces some columns of some row groups, `file` in all, and
    inserts rows, with the last row group while that is short, or as one of their own."""
    draw = random.Random(7)
    options = OPTIONS[written_as]
    plain = {name: word for name, word in options.items() if name != "column_encoding"}
    names = [name for name in ROWS.column_names if name not in ("id", "file")]
    pieces = [ROWS.slice(0, 250), ROWS.slice(250, 250), ROWS.slice(500, 20)]
    raw = written(pa.concat_tables(pieces), 250, **options)
    for turn in range(10):
        like = ParquetParts.of_bytes(raw)
        groups: list[Sequence[Chunk]] = []
        for group, piece in enumerate(pieces):
            new = every_type(piece.num_rows, seed=draw.randrange(3)).select(
                draw.sample(names, draw.choice([0, 0, 1, 9]))
            )
            new = new.append_column("file", pa.repeat(f"turn {turn}", piece.num_rows))
            pieces[group] = with_all(piece, new)
            fresh = ParquetParts.of_bytes(written(new, 1000, **plain))
            groups.append(replaced(like.chunks(group), fresh.chunks(0)))
        new = pa.table({"file": pa.repeat(f"turn {turn}", 80)})
        inserts = with_all(every_type(80, seed=turn % 3), new)
        if pieces[-1].num_rows < 250:
            pieces[-1] = pa.concat_tables([pieces[-1], inserts]).combine_chunks()
            del groups[-1]
        else:
            pieces.append(inserts)
        groups.append(ParquetParts.of_bytes(written(pieces[-1], 1000, **plain)).chunks(0))
        raw = spliced(like, groups, {b"turn": str(turn).encode()})
    return raw, pa.concat_tables(pieces)
