"""Rows that verbs are given: files of CSV, JSON lines or Parquet, standard input, or keys.

A file's form is told by `--from`, else by its name: `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.json`
(lines), `.parquet`; texts also packed (`.gz`, `.bz2`, `.zst`). `-` is standard input. Several
files are one stream, batch by batch: nothing is read whole. What the table has columns for is read
as their types, so that the key 007 stays a text.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.cli import csv_rows, json_rows
from metatable.cli.csv_lines import Source
from metatable.cli.csv_rows import Chosen
from metatable.cli.descriptors import descriptor_of
from metatable.cli.file_names import form_of, is_of_tabs, packing_of
from metatable.cli.json_rows import Absent
from metatable.cli.missing_keys import refuse_missing_keys
from metatable.cli.progress import Progress
from metatable.cli.row_arguments import FORMS_IN
from metatable.data.columns.align import align
from metatable.data.columns.schema import META_FIELDS
from metatable.data.config.options import Options
from metatable.data.keys.key_texts import identity_columns
from metatable.storage.errors import UsageError
from metatable.storage.system_errors import in_temporary_folder
from metatable.table import Table

__all__ = ["Absent", "Given", "given_keys", "given_rows", "inferred_schema"]

ToldBy = Callable[[Options, Sequence[str]], list[str]]
"""Which columns tell the rows of a table, of those that are given: `identity_columns`, or
`own_identity_columns`. Raises UsageError where one is missing."""

_STANDARD_INPUT = 0

BATCH_ROWS, BATCH_BYTES = 1 << 16, 64 << 20
"""Of Parquet that is read at once, at most; bytes as its footer tells them."""


@dataclass(frozen=True, slots=True)
class Given:
    """How files are to be read."""

    schema: pa.Schema | None
    """Types of the columns that are known; None: all are found out."""
    key: Sequence[str] = ()
    """Columns in which no row is null or empty, where they are there."""
    required: frozenset[str] = frozenset()
    """Columns that JSON lines must not leave out."""
    absent: Absent = Absent.NULL
    """What a column is that a line of JSON lacks."""
    format: str | None = None
    delimiter: str | None = None
    nulls: Sequence[str] = ("",)
    """What stands for null in CSV."""
    chosen: Chosen | None = None
    """Which of a file's columns are read; None: all."""
    replaces: bool = False
    """The rows take the place of all others: what tells nothing at all is refused."""


@contextmanager
def given_rows(
    args: argparse.Namespace,
    table: Table,
    shown: Progress,
    absent: Absent = Absent.NULL,
    version: int | None = None,
    told_by: ToldBy | None = None,
    replaces: bool = False,
) -> Iterator[pa.RecordBatchReader]:
    """The rows of `args.rows`, or the keys of `args.key`, for one pass, in the types that columns
    have in this version (None: the newest). With `told_by` only the columns that tell which rows
    they are: others may hold anything. `replaces`: as of `Given`. Raises UsageError."""
    keys = getattr(args, "key", None)
    if bool(keys) == bool(args.rows):
        raise UsageError("which rows?", expected="files, - for standard input, or --key")
    _refuse_streams_twice(args.rows)
    options, schema = table.options, table.scan(version=version).schema
    if keys:
        yield given_keys(keys, identity_columns(options, schema.names), schema).to_reader()
        return
    required = {*options.key, *options.partition_by, *filter(None, [options.ordering])}
    given = Given(
        schema,
        key=options.key,
        required=frozenset(required),
        absent=absent,
        format=args.given_format,
        delimiter=args.delimiter,
        nulls=args.null or ("",),
        chosen=None if told_by is None else partial(told_by, options),
        replaces=replaces,
    )
    with _stream(args.rows, given, shown) as reader:
        yield reader


def _refuse_streams_twice(paths: Sequence[str]) -> None:
    """Raise UsageError where what can be read once is named again: standard input, `/dev/fd/3`."""
    opened = [_STANDARD_INPUT if path == "-" else descriptor_of(path) for path in paths]
    for place, path in enumerate(paths):
        if opened[place] is not None and opened[place] in opened[:place]:
            is_input = opened[place] == _STANDARD_INPUT
            what = "standard input is named twice" if is_input else "a stream is named twice"
            raise UsageError(what, file=path, expected="once: it can be read once")


def given_keys(words: Sequence[str], columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Keys as they were typed, in the table's types: of several columns, a line of CSV each."""
    single = len(columns) == 1
    lines = [[word] if single else _cells(word) for word in words]
    for word, line in zip(words, lines, strict=True):
        if len(line) != len(columns):
            raise UsageError("not a key of this table", found=word, expected=",".join(columns))
    known = pa.schema([schema.field(name) for name in columns])
    body = io.BytesIO(os.fsencode("".join(map(_line_of, [columns, *lines]))))
    _, batches = csv_rows.read(pa.PythonFile(body, "r"), known, "the keys")
    return pa.Table.from_batches(batches)


def _line_of(cells: Sequence[str]) -> str:
    """A line of CSV, in which a cell without text is null, as a key's partition may be. Alone it is
    an empty text: a line without any text would be none."""
    doubled = (cell.replace('"', '""') for cell in cells)
    quoted = [f'"{cell}"' if cell or len(cells) == 1 else "" for cell in doubled]
    return ",".join(quoted) + "\n"


def _cells(word: str) -> list[str]:
    """The cells of a line of CSV; none where it is no line."""
    try:
        return next(csv.reader([word]), [])
    except csv.Error:
        return []


def inferred_schema(path: str, format_: str | None = None) -> pa.Schema:
    """The columns of a file, as its first rows tell. Raises UsageError."""
    with _stream([path], Given(None, format=format_), Progress()) as reader:
        return reader.schema


@contextmanager
def _stream(paths: Sequence[str], given: Given, shown: Progress) -> Iterator[pa.RecordBatchReader]:
    """The rows of all files, one behind the other, with the columns of the first. Those of a
    single one are as they are."""
    sizes = [_size(path) for path in paths]
    total = None if None in sizes else float(sum(size for size in sizes if size))
    with ExitStack() as opened:
        first = _opened(paths[0], given, opened)
        made = first.schema if len(paths) == 1 else _common(first.schema, given.schema)

        def batches() -> Iterator[pa.RecordBatch]:
            before, file = 0.0, first
            for place, path in enumerate(paths):
                if place:
                    opened.close()  # the one before: there may be more than a process may hold open
                    file = _opened(path, _behind(given, made), opened)
                    _check_columns(path, file.schema, first.schema)
                row = 0
                for batch in file.batches:
                    shown.advance(before + file.bytes_read(), total)
                    batch = batch if len(paths) == 1 else _conformed(batch, made, known, path)
                    refuse_missing_keys(batch, given.key, path, partial(file.place, row))
                    yield batch
                    row += batch.num_rows
                before += sizes[place] or 0

        known = frozenset(given.schema.names if given.schema else ())
        yield pa.RecordBatchReader.from_batches(made, batches())


def _behind(given: Given, first: pa.Schema) -> Given:
    """How a file behind the first is read: one of lines that are given back has its columns, any
    other what were texts in it as texts."""
    if given.absent is not Absent.LEFT_OUT:
        known = given.schema or pa.schema([])
        texts = (one for one in first if one.type == pa.string() and one.name not in known.names)
        return replace(given, schema=pa.schema([*known, *texts]))
    return replace(given, schema=first, required=frozenset(), absent=Absent.NULL)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file of rows, which are read when they are asked for."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    bytes_read: Callable[[], float]
    """How many of its bytes, packed or not, are read by now."""
    source: Source | None = None
    """Of CSV, what knows its lines."""

    def place(self, before: int, row: int) -> dict[str, int]:
        """Facts of a row of a batch, behind so many rows: its line in CSV, else its number, the
        first being 1."""
        row += before + 1
        return {"row": row} if self.source is None else self.source.of_row(row + 1)


def _opened(path: str, given: Given, files: ExitStack) -> _OpenFile:
    """The file of this name, closed with `files`. Raises UsageError."""
    form, packed = _form(path, given), packing_of(path)
    if packed and os.path.isfile(path) and not _size(path):  # no bytes are no packed nothing
        raise UsageError("an empty file", file=path, expected=f"{packed}, or another name")
    raw = files.enter_context(_bytes_of(path))
    if form == "parquet":
        return _parquet(_seekable(raw, files), path, given.chosen)
    stream, source = _unpacked(raw, packed), None
    if form == "csv":
        delimiter = given.delimiter or ("\t" if is_of_tabs(path) else ",")
        known = pa.schema([*META_FIELDS, *(given.schema or ())])
        is_file = os.path.isfile(path) and descriptor_of(path) is None
        again = partial(_again, path, packed) if is_file else None
        how = (delimiter, given.nulls, again, given.chosen)
        schema, read = csv_rows.read(stream, known, path, *how)
        source = Source(path, delimiter, again)
        files.callback(read.close)
        rows: Iterator[pa.RecordBatch] = read
    else:
        asked = json_rows.Asked(
            given.schema, given.required, given.absent, given.chosen, given.replaces
        )
        schema, rows = json_rows.read(io.BufferedReader(stream), asked, path)

    def tell() -> float:
        with suppress(OSError, ValueError):
            return raw.tell()
        return 0

    return _OpenFile(schema, rows, tell, source)


def _unpacked(raw: IO[bytes], packed: str | None) -> Any:
    stream = pa.PythonFile(raw, "r")
    return stream if packed is None else pa.CompressedInputStream(stream, packed)


def _again(path: str, packed: str | None) -> Any:
    """The file's bytes once more; closed, they close the file."""
    return _unpacked(open(path, "rb", buffering=0), packed)


def _parquet(source: IO[bytes], path: str, chosen: Chosen | None = None) -> _OpenFile:
    try:
        file = pq.ParquetFile(source)
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError) as error:
        raise UsageError("not a Parquet file", file=path, found=_line(error)) from error
    schema, done, columns = file.schema_arrow, 0, None
    if chosen is not None:
        columns = csv_rows.columns_read(schema, chosen, path)
        schema = pa.schema([schema.field(name) for name in columns])

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal done
        try:
            for batch in file.iter_batches(_rows_at_once(file.metadata), columns=columns):
                done += batch.num_rows
                yield batch if columns is None else batch.select(columns)
        except MemoryError:  # of Arrow, too
            raise
        except (pa.ArrowException, OSError) as error:
            raise UsageError("a damaged Parquet file", file=path, found=_line(error)) from error

    size = source.seek(0, os.SEEK_END)
    rows = max(file.metadata.num_rows, 1)
    return _OpenFile(schema, batches(), lambda: size * done / rows)


def _rows_at_once(footer: pq.FileMetaData) -> int:
    """Rows of a batch: fewer where they are wide."""
    groups = (footer.row_group(place) for place in range(footer.num_row_groups))
    width = max((one.total_byte_size / max(one.num_rows, 1) for one in groups), default=0)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(width, 1))))


def _form(path: str, given: Given) -> str:
    """csv, jsonl or parquet."""
    form = given.format or form_of(path)
    if form is None:
        expected = f"--from {'|'.join(FORMS_IN)}, or a name such as rows.csv"
        raise UsageError("rows of which form?", file=path, expected=expected)
    return form


@contextmanager
def _bytes_of(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        if sys.stdin is None:
            raise UsageError("there is no standard input, it is closed", file=path)
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115  (closed below)
    except OSError as error:
        raise UsageError("no such file of rows", file=path, found=error.strerror) from error
    with file:
        yield file


def _seekable(raw: IO[bytes], files: ExitStack) -> IO[bytes]:
    """Parquet is read from its end: what comes through a pipe goes to a temporary file first."""
    if raw.seekable():
        return raw
    with in_temporary_folder():
        spool = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        shutil.copyfileobj(raw, spool, 1 << 20)
    return spool


def _size(path: str) -> int | None:
    try:
        return None if path == "-" else os.path.getsize(path)
    except OSError:
        return None


def _check_columns(path: str, found: pa.Schema, expected: pa.Schema) -> None:
    if sorted(found.names) != sorted(expected.names):
        raise UsageError(
            "files of different columns", file=path, expected=expected.names, found=found.names
        )


def _common(first: pa.Schema, table: pa.Schema | None) -> pa.Schema:
    """What rows of several files become: of the table's types, and of the first file's where it has
    a column that the table has not, or does not take. Whether there may be nulls the table
    decides."""
    known = {one.name: one.type for one in table or ()}
    types = [_type_of(one, known.get(one.name, one.type)) for one in first]
    return pa.schema([*zip(first.names, types, strict=True)])


def _type_of(field: pa.Field, wanted: pa.DataType) -> pa.DataType:
    try:
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], names=[field.name])
        align(nothing, pa.schema([(field.name, wanted)]))
    except UsageError:
        return field.type
    return wanted


def _conformed(
    batch: pa.RecordBatch, schema: pa.Schema, known: Collection[str], path: str
) -> pa.RecordBatch:
    """The rows in these types, by the rules that a table has for what it is given. Numbers that it
    does not know were guessed, file by file: of those, integers become floats where all do."""
    try:
        for place, field in enumerate(batch.schema):
            wanted = schema.field(field.name)
            if field.name not in known and _become_floats(field.type, wanted.type):
                batch = batch.set_column(place, wanted, batch.column(place).cast(wanted.type))
        return align(batch, schema)
    except MemoryError:  # of Arrow, too
        raise
    except pa.ArrowException as error:
        raise UsageError("files of different types", file=path, found=_line(error)) from error
    except UsageError as error:
        raise UsageError(error.what, file=path, **error.facts) from error


def _become_floats(given: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(pa.types.is_integer(given) and pa.types.is_floating(wanted))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
