"""Parquet files for tests: a column of every type, and all that a writer can be told."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.storage.parquet.thrift import Struct, decode_struct, encode_struct
from tests.face.every_kind import made_rows

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

SUM = {"write_page_checksum": True, "store_schema": False}


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
