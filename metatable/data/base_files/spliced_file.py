"""A base file as parts of the one that follows it: what has not changed is copied as it is stored.

The new file has the columns of the old one, to the last word of their schema, and was written by
the same writer; else it is made the ordinary way, decoded and encoded anew. Chunks that change are
encoded as any others are, in memory, and put beside those that are copied (`storage/parquet/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.base_files.base_file import read_groups
from metatable.data.base_files.base_file_writer import FileForm, encoded_columns
from metatable.data.base_files.encoding import Encoding
from metatable.data.base_files.key_footer import GrownFilter, sound_ends, sound_filter
from metatable.data.base_files.parquet import open_parquet
from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema
from metatable.data.columns.stored_columns import (
    IDS_ARE_OURS,
    AskedColumns,
    StoredColumns,
    schema_with_ids,
)
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile
from metatable.storage import cache
from metatable.storage.errors import CorruptError
from metatable.storage.filters.hudi import HudiBloom
from metatable.storage.parquet.footer import ToldChunk
from metatable.storage.parquet.paged_file import PagedFile
from metatable.storage.parquet.parts import Chunk, ParquetParts
from metatable.storage.parquet.splice import obstacle, replaced, splice
from metatable.storage.store import Store

__all__ = ["StoredParts", "stored_parts"]

Chunks = Sequence[tuple[Chunk, ...]]

_EMPTY_BYTES = 2000
"""Held of a column without rows, about."""


@dataclass(frozen=True, slots=True)
class StoredParts:
    """A stored base file that is open: to be read by row groups, and to be copied from. Its columns
    have the names and types of the table's."""

    store: Store
    file: DataFile
    parquet: Any
    parts: ParquetParts
    groups: Chunks
    """The chunks of each row group."""
    form: FileForm
    """How it was encoded, and chunks are that take the places of some of its own."""
    encoding: Encoding
    """How its columns are stored, and those are that take the places of some of them."""

    @property
    def unbounded(self) -> frozenset[str]:
        """Columns of floats that tell no bounds, because a value is not a number. A file tells them
        for all of its row groups or for none: a reader might take those that are told for the
        file's."""
        return frozenset(self.form.with_nan)

    @property
    def group_rows(self) -> list[int]:
        """Rows of each row group."""
        footer = self.parquet.metadata
        return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]

    def group_bytes(self, group: int) -> int:
        """Bytes of a row group before compression."""
        size: int = self.parquet.metadata.row_group(group).total_byte_size
        return size

    @property
    def filter(self) -> HudiBloom | None:
        """The filter over its keys, if it is ours and sound."""
        return sound_filter(self.parquet.metadata.metadata)

    @property
    def key_ends(self) -> tuple[str, str] | None:
        """The least and the greatest of its keys, where the footer is to be believed."""
        return sound_ends(self.parquet.metadata)

    def read(self, schema: pa.Schema, group: int | None = None) -> pa.Table:
        """These columns of a row group, or of all. Raises CorruptError."""
        groups = range(self.parquet.num_row_groups) if group is None else [group]
        stored = StoredColumns.of(self.parquet, self.file.path)
        asked = AskedColumns.of(stored, schema, None)
        return read_groups(self.store, self.file, self.parquet, groups, asked)

    def as_stored(self, schema: pa.Schema) -> pa.Schema:
        """These columns, texts that are stored as dictionaries as such: so they are read sooner."""
        held = self.parquet.schema_arrow
        return pa.schema([one.with_type(held.field(one.name).type) for one in schema])

    def copied(self, group: int, by: Iterable[Chunk]) -> list[Chunk]:
        """The chunks of a row group of the file, with those of `by` in the places of its own."""
        return replaced(self.groups[group], by)

    def changed(self, rows: pa.Table) -> tuple[Chunk, ...]:
        """Chunks of those columns of a row group that changed (of one row at least). Those that
        are dictionaries in the file stay such, and those without a codec."""
        return self.encoded(rows, self.encoding)

    def paged(self) -> PagedFile | None:
        """The same file as one of which single pages are read; None where these are not told.
        Raises CorruptError."""
        return PagedFile.of(self.parts, self.file.size_bytes, self.groups.__getitem__)

    def encoded(self, rows: pa.Table, encoding: Encoding | None = None) -> tuple[Chunk, ...]:
        """A row group of these rows, one at least, or those of its columns that are given."""
        return _encoded(rows, self.form, encoding).chunks(0)

    def encoded_groups(
        self, rows: pa.Table, sizes: Sequence[int], encoding: Encoding | None = None
    ) -> list[tuple[Chunk, ...]]:
        """Chunks of some columns for row groups of these `sizes`, whose rows stand behind each
        other."""
        parts = _encoded(rows, self.form, encoding or Encoding((), self.encoding.plain), sizes)
        return [parts.chunks(group) for group in range(len(sizes))]

    def words(self, keys: pa.Array, grown: GrownFilter | None) -> dict[str, str]:
        """What the footer of a file with these keys tells under names."""
        return self.form.words(pa.chunked_array([keys]), grown)

    def grown_words(self, grown: GrownFilter, count: int) -> dict[str, str] | None:
        """`words` of a file of so many keys without a look at them; None: it takes one."""
        return self.form.grown_words(grown, count)

    @property
    def kept_words(self) -> dict[str, str] | None:
        """`words` of a file that has the keys of this one; None: these must be looked at."""
        return self.form.kept_words(self.parquet.metadata)

    def write(
        self,
        sink: IO[bytes],
        groups: Iterable[Sequence[Chunk]],
        words: Mapping[str, str],
    ) -> pq.FileMetaData:
        """The file of these row groups, of which the footer tells these words. Returns that. Raises
        CorruptError where what is copied is damaged."""
        stored = {name.encode(): text.encode() for name, text in words.items()}
        return splice(sink, self.parts, groups, stored)


@contextmanager
def stored_parts(
    store: Store, file: DataFile, options: Options, columns: TableSchema
) -> Iterator[StoredParts | None]:
    """A base file to copy from; None where it cannot be. Raises CorruptError."""
    told = _legible(store, file) if file.size_bytes else None
    if told is None or not _is_alike(told[0], options, columns):
        yield None
        return
    encoding = _encoding(told[1])
    texts = [one.name for one in schema_with_ids(columns) if pa.types.is_string(one.type)]
    known = frozenset(encoding.dictionaries)
    coded = [name for name in texts if name in known and "." not in name]  # no path of parts
    with open_parquet(store, file, coded) as parquet:
        if IDS_ARE_OURS.encode() not in (parquet.metadata.metadata or {}):
            yield None  # others tell bounds of numbers beside a NaN, and one would be passed over
            return
        form = FileForm(options, columns, _unbounded(parquet.metadata, columns))
        yield StoredParts(store, file, parquet, *told, form, encoding)


def _legible(store: Store, file: DataFile) -> tuple[ParquetParts, Chunks] | None:
    """The file and its chunks, if its footer is sound in all that it says. Who decodes the rows may
    need less of it, and is the judge: pages have checksums, a footer has none."""
    try:
        parts = ParquetParts.open(store, file.path, file.size_bytes)
        if parts is None:
            return None
        return parts, [*map(parts.chunks, range(len(parts.groups)))]
    except CorruptError:
        return None


def _encoding(groups: Chunks) -> Encoding:
    """How leaves are stored in the first row group at least. Of a file whose keys have no codec
    nobody has asked whether others are worth one."""
    first = groups[0] if groups else ()
    plain = {one.leaf.name for one in first if not one.has_codec}
    dictionaries = tuple(one.leaf.name for one in first if one.has_dictionary)
    return Encoding(dictionaries, frozenset() if KEY_COLUMN in plain else frozenset(plain))


def _unbounded(footer: pq.FileMetaData, columns: TableSchema) -> frozenset[str]:
    """Columns of floats for which a row group tells no bounds."""
    groups = range(footer.num_row_groups)
    floats = {one.name for one in columns.arrow if pa.types.is_floating(one.type)}
    leaves = [(leaf, footer.schema.column(leaf).path) for leaf in range(footer.num_columns)]
    return frozenset(
        name
        for leaf, name in leaves
        if name in floats
        and not all(_is_bounded(ToldChunk.of(footer, group, leaf)) for group in groups)
    )


def _is_bounded(chunk: ToldChunk) -> bool:
    """Whether it tells bounds, or has no values that could have some."""
    told = chunk.statistics
    if told is None:
        return not chunk.num_values
    return bool(told.has_min_max or (told.has_null_count and told.null_count == chunk.num_values))


def _is_alike(parts: ParquetParts, options: Options, columns: TableSchema) -> bool:
    """Whether a file of these columns would have the schema, and the writer, of this one."""
    ours = _empty(columns, options)
    alike = [one.path for one in parts.leaves] == [one.path for one in ours.leaves]
    same_writer = parts.created_by == ours.created_by
    return alike and same_writer and not parts.bound and not obstacle(parts, ours)


def _empty(columns: TableSchema, options: Options) -> ParquetParts:
    """A file of these columns without rows. A commit asks for each file that it follows."""
    schema = schema_with_ids(columns)
    key = ("no-rows", schema.serialize().to_pybytes(), options.parquet_codec)
    found: ParquetParts | None = cache.shared.get(key)
    if found is None:
        made = _encoded(schema.empty_table(), FileForm(options, columns))
        found = cache.shared.offer(key, made, _EMPTY_BYTES * len(schema))
    return found


def _encoded(
    rows: pa.Table,
    form: FileForm,
    encoding: Encoding | None = None,
    sizes: Sequence[int] | None = None,
) -> ParquetParts:
    body = encoded_columns(rows, form, encoding, sizes)
    parts = ParquetParts.of_bytes(body)
    if parts is None:
        raise CorruptError("a footer in memory is longer than any that is read")
    return parts
