"""Writes base files: the Parquet files that hold a table's rows, with the footer that Hudi's
writers read.

Columns: the five meta columns, then the table's. The footer tells bounds of the record keys and a
filter over them (`key_footer.py`): without the filter Hudi's bloom index dies of a null pointer,
so there always is one. The Arrow schema is not stored: readers see plain Parquet types, and, as
Parquet's field ids, the ids of the table's columns (`stored_columns.py`). A file's name is planned
before it is written and the write is put-if-absent: a second attempt finds the file of the first
and adopts it, because two files of one slice would make every read of the table fail.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.base_files.encoding import Encoding
from metatable.data.base_files.key_footer import GrownFilter, footer_of, grown_footer, kept_footer
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import IDS_ARE_OURS, schema_with_ids
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store
from metatable.storage.system_errors import in_temporary_folder

__all__ = [
    "PAGE_ROWS",
    "FileForm",
    "columns_with_nan",
    "encoded_base_file",
    "encoded_columns",
    "store_base_file",
    "stream_to_base_file",
    "write_base_file",
]

PAGE_ROWS = 2048
"""Rows of a page at most: who looks for one row decodes so many. Files are 1 to 2 % larger than
with pages of a megabyte, and encoding takes 7 % more; with half as many rows it takes 20 % more."""

PAGE_BYTES = 36 << 10
"""Values of a page before they are compressed, from which on it ends with half as many rows: of a
number and of what is short nothing changes, of texts as long as most keys are half is decoded."""

BATCH_ROWS = PAGE_ROWS // 2
"""Rows that pyarrow hands on at once to whoever encodes them, and behind which it looks whether a
page is full. Twice or four times as many would take a fiftieth less of all encoding."""


@dataclass(frozen=True, slots=True)
class FileForm:
    """How the rows of one base file are encoded, and what its footer tells under names."""

    options: Options
    columns: TableSchema | None
    """The table's columns, whose ids the file tells; None: it tells none."""
    with_nan: Collection[str] = ()
    """Columns of floats of which a value is not a number: the footer tells no bounds of these."""

    def words(self, keys: pa.ChunkedArray, grown: GrownFilter | None) -> dict[str, str]:
        """All that the footer of a file with these record keys (strings) tells under names.
        `grown`: the filter of the file that it follows, if there is a sound one."""
        return self._with_ids(footer_of(keys, self.options.footer_bloom_fpp, grown))

    def grown_words(self, grown: GrownFilter, count: int) -> dict[str, str] | None:
        """`words` of a file of so many keys that follows another, without a look at them; None:
        it takes one."""
        words = grown_footer(grown, count, self.options.footer_bloom_fpp)
        return None if words is None else self._with_ids(words)

    def kept_words(self, footer: pq.FileMetaData) -> dict[str, str] | None:
        """`words` of a file that has the keys of another, whose footer this is; None: its keys
        must be looked at."""
        words = kept_footer(footer, self.options.footer_bloom_fpp)
        return None if words is None else self._with_ids(words)

    def _with_ids(self, words: dict[str, str]) -> dict[str, str]:
        return words | ({IDS_ARE_OURS: "1"} if self.columns else {})

    def writer(
        self, sink: Any, rows: pa.Table, encoding: Encoding | None = None
    ) -> pq.ParquetWriter:
        """Writes files with the columns of these rows. `encoding`: how these are stored; None: as
        these rows show it to be best."""
        schema = rows.schema if self.columns is None else schema_with_ids(self.columns)
        encoding = encoding or Encoding.of(rows, self.options)
        return pq.ParquetWriter(
            sink,
            pa.schema([_as_held(schema.field(one.name), one.type) for one in rows.schema]),
            compression=encoding.codecs(rows.schema, self.options),
            use_dictionary=[*encoding.dictionaries],
            write_statistics=_worth_statistics(rows.schema, self.with_nan),
            store_schema=False,
            write_page_checksum=True,
            write_page_index=True,
            max_rows_per_page=PAGE_ROWS,
            data_page_size=PAGE_BYTES,
            write_batch_size=BATCH_ROWS,
            version="2.6",
        )


def write_base_file(
    store: Store,
    data_file: DataFile,
    table: pa.Table,
    *,
    options: Options,
    columns: TableSchema | None = None,
) -> tuple[int, bool]:
    """Write the rows, meta columns included, under the file's name, unless it is there.

    `columns` are the table's, with their ids; None: the file tells none.

    Returns its size in bytes, and whether what is stored is what was given. False: another
    attempt wrote other bytes first; they are the file, and entries must be made from them.
    """
    return store_base_file(store, data_file, encoded_base_file(table, options, columns))


def encoded_base_file(
    table: pa.Table,
    options: Options,
    columns: TableSchema | None,
    grown: GrownFilter | None = None,
) -> bytes:
    """The bytes of a file with these rows, meta columns included. `columns`: as of
    `write_base_file`.

    `grown`: the filter of the file that it follows, which spares hashing the keys of that one.
    """
    sink = pa.BufferOutputStream()
    form = FileForm(options, columns, columns_with_nan(table))
    _encode_pieces(sink, iter([table]), form, grown)
    return bytes(sink.getvalue())


def store_base_file(store: Store, data_file: DataFile, body: bytes | IO[bytes]) -> tuple[int, bool]:
    """Write these bytes, or those of an open file, under the file's name, unless it is there.
    Returns what `write_base_file` does."""
    size_bytes = len(body) if isinstance(body, bytes) else body.seek(0, os.SEEK_END)
    if store.create(data_file.path, body):
        return size_bytes, True
    return _stored_size(store, data_file), False


StoreAs = Callable[[Store, DataFile, IO[bytes]], tuple[int, bool]]
"""How an open file becomes a data file: `store_base_file`, or what does more."""


def stream_to_base_file(
    store: Store,
    data_file: DataFile,
    pieces: Iterable[pa.Table],
    *,
    options: Options,
    columns: TableSchema | None,
    with_nan: Collection[str],
    grown: GrownFilter | None = None,
    store_as: StoreAs = store_base_file,
) -> tuple[int, bool]:
    """`write_base_file` of rows that come piece by piece, of which one is in memory at a time.

    `with_nan`: columns of floats of which a value is not a number; what comes last is not known
    when the first rows are written. The bytes wait in a temporary file; `store_as` stores it.
    """
    with in_temporary_folder(), tempfile.TemporaryFile() as body:
        _encode_pieces(body, iter(pieces), FileForm(options, columns, with_nan), grown)
        return store_as(store, data_file, body)


def _stored_size(store: Store, data_file: DataFile) -> int:
    size = store.size(data_file.path)
    if size is None:
        raise CorruptError("data file vanished while it was written", path=data_file.path)
    return size


def _encode_pieces(
    sink: Any, pieces: Iterator[pa.Table], form: FileForm, grown: GrownFilter | None
) -> None:
    """The first piece with rows tells how columns are stored. One without rows before
    it would be a row group of none, in which no page lies."""
    first = next(pieces)
    while not first.num_rows and (more := next(pieces, None)) is not None:
        first = more
    with form.writer(sink, first) as writer:
        keys: list[pa.Array] = []
        for piece in chain([first], pieces):
            if piece.num_rows or not keys:
                writer.write_table(piece, row_group_size=form.options.row_group_rows)
            keys += piece.column(KEY_COLUMN).chunks
        every = pa.chunked_array(keys, first.schema.field(KEY_COLUMN).type)
        writer.add_key_value_metadata(form.words(every, grown))


def encoded_columns(
    table: pa.Table,
    form: FileForm,
    encoding: Encoding | None = None,
    sizes: Sequence[int] | None = None,
) -> pa.Buffer:
    """Some columns of a base file, meta columns among them, as they stand in one: a Parquet file.

    `encoding`: as of `FileForm.writer`. `sizes`: the rows of each of its row groups, none for
    0; None: all are in one.
    """
    sink = pa.BufferOutputStream()
    with form.writer(sink, table, encoding) as writer:
        start = 0
        for size in [table.num_rows] if sizes is None else sizes:
            if size:
                writer.write_table(table.slice(start, size), row_group_size=size)
            start += size
    return sink.getvalue()


def _as_held(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """The field of a column of this type, which may be a dictionary: Parquet's is the same."""
    return field.with_type(kind) if pa.types.is_dictionary(kind) else field


def columns_with_nan(table: pa.Table) -> list[str]:
    """Columns of floats of which a value is not a number."""
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    return [name for name in floats if pc.any(pc.is_nan(table.column(name))).as_py()]


def _worth_statistics(schema: pa.Schema, with_nan: Collection[str]) -> list[str]:
    """Columns whose footer bounds tell the truth.

    Bounds leave NaN out, but readers for which NaN is the greatest number (Spark) would skip
    row groups that hold it. So a column with a NaN gets none, and nested ones get none.
    """
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    return [name for name in flat if name not in with_nan]
