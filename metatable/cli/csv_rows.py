"""CSV as batches: the first line names the columns, an empty cell is null, `""` is an empty text.

Columns of the table are read in its types: dates as 2026-01-31, times as 13:45:00, timestamps as
2026-01-31T13:45:00 (with Z or +01:00 exactly where the column has a zone), binaries as base64.
Other columns are guessed, where 007 is a text. A CSV file cannot hold lists, maps and structs.
Columns that are not read may hold any bytes.
"""

from __future__ import annotations

import base64
import csv
import io
import re
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from metatable.cli.csv_lines import Source
from metatable.cli.csv_quotes import Quotes
from metatable.cli.csv_texts import columns_of_texts
from metatable.storage.errors import UsageError

__all__ = ["Chosen", "base64_decoded", "columns_read", "read", "wide"]

Chosen = Callable[[Sequence[str]], Sequence[str]]
"""Which columns of a file are read, of those that it has. Raises UsageError where one is not
there."""

BLOCK_BYTES = 4 << 20
"""A row that is longer may end beyond two blocks, and Arrow holds no more of them."""

HEAD_BYTES = 64 << 10

LET_GO_SECONDS = 1.0
"""How long Arrow's thread is waited for at most: it may be in a pipe that nobody writes to."""

_END = "\x04\x04\x04"
"""A cell of the line that is put behind the last one. Arrow takes a quote that nobody closes for
one that the end of the file closes, and the rows behind it for a part of that cell."""


class _Lent:
    """A stream while Arrow has it, which reads ahead in a thread of its own, and drops it there.

    Where the interpreter ends meanwhile, that thread is ended at its next touch of Python, and the
    whole process with it, by a signal. So this object tells, by going, that Arrow has let go.
    """

    __slots__ = ("__weakref__", "_end", "_head", "_held", "_quotes", "_stream")
    closed = False

    def __init__(self, head: bytes, stream: io.BufferedReader, end: _End, quotes: Quotes) -> None:
        self._head, self._stream, self._end, self._quotes = head, stream, end, quotes
        self._held = b""

    def read(self, size: int) -> bytes:
        body = self._held + self._next(size - len(self._held))
        is_last = len(body) < size
        # Arrow drops a line feed at the begin of a block behind this, between quotes, too
        self._held = b"\r" if not is_last and size > 1 and body.endswith(b"\r") else b""
        body = body.removesuffix(self._held) if self._held else body
        self._quotes.see(body)
        if body and is_last:
            self._quotes.see(b"")
        return self._end.after(body) if is_last else body

    def _next(self, size: int) -> bytes:
        """So many bytes: of the head, which was read before, and of what is behind it."""
        head, self._head = self._head[:size], self._head[size:]
        return head + self._stream.read(size - len(head))

    def close(self) -> None:
        """Whoever opened the stream closes it."""


class _End:
    """The line behind the last one: as many cells as the first line has, which Arrow reads as
    nulls, unless a quote is open."""

    def __init__(self, cells: int, delimiter: str) -> None:
        self._made = f"\n{delimiter.join([_END] * cells)}\n".encode() if cells else b""
        self.line = b""
        """What was put there, once the stream has ended."""

    def after(self, body: bytes) -> bytes:
        """The last bytes, and the line once."""
        line = b"" if self.line else self._made
        self.line = self._made
        return body + line

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The last batch without it; None where it is not there, but in a cell."""
        if not self.line:
            return batch
        last = batch.num_rows - 1
        if any(column[last].is_valid for column in batch.columns):
            return None
        return batch.slice(0, last)


def _let_go(lent: weakref.ref[_Lent]) -> None:
    """Wait until Arrow has dropped the stream."""
    until = time.monotonic() + LET_GO_SECONDS
    while lent() is not None and time.monotonic() < until:
        time.sleep(0.0005)


def read(
    stream: Any,
    schema: pa.Schema | None,
    file: str,
    delimiter: str = ",",
    nulls: Sequence[str] = ("",),
    again: Callable[[], Any] | None = None,
    chosen: Chosen | None = None,
) -> tuple[pa.Schema, Generator[pa.RecordBatch, None, None]]:
    """Columns and batches. Raises UsageError, also while it is read, naming file and line.

    `schema`: types of the columns that are known. `again`: the stream from its beginning, to count
    lines; without it the number of a row is told, the first behind the names being 1. `chosen`:
    which columns; None: all. Batches that are not read to their end are to be closed before the
    interpreter ends.
    """
    parsing, names = _parsing(delimiter), list[str]()
    source, quotes = Source(file, delimiter, again), Quotes(delimiter)
    try:
        buffered = io.BufferedReader(stream, HEAD_BYTES)
        head = buffered.read(HEAD_BYTES)
        names = _names(head, delimiter)
        end = _End(len(names), delimiter)
        types = _types(names, schema, chosen)
        texts = columns_of_texts(_text(head), delimiter, nulls, types)
        types |= dict.fromkeys(texts, pa.string())
        converting = _converting(types, nulls)
        read = _read(_Lent(head, buffered, end, quotes), parsing, converting)
        found = next(read)
        wanted = columns_read(found, chosen, file)
    except UsageError:
        read.close()
        raise
    except UnicodeDecodeError as error:  # of a name
        raise UsageError("rows that cannot be read", file=file, line=1, found=str(error)) from error
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _wrong(error, source, names, quotes) from error
    held = {one.name: one for one in schema or () if _is_read_as_text(one.type)}
    made = pa.schema([held.get(name) or found.field(name) for name in wanted])
    return made, _batches(read, end, made, found.names, source, quotes)


def columns_read(found: pa.Schema, chosen: Chosen | None, file: str) -> Sequence[str]:
    """The names of the columns of a file that are read. Raises UsageError, also where one of them
    is there twice."""
    names: Sequence[str] = found.names if chosen is None else chosen(found.names)
    if any(len(found.get_all_field_indices(name)) > 1 for name in names):
        raise UsageError("a column is there twice", file=file, found=found.names)
    return names


def _types(
    names: Sequence[str], schema: pa.Schema | None, chosen: Chosen | None
) -> dict[str, pa.DataType]:
    """What columns are read as. Those that are not chosen are bytes, which may be any: what stands
    in them is not judged, but it tells whether a quote is open."""
    known = {one.name: _read_as(one.type) for one in schema or ()}
    if chosen is None or not names:
        return known
    wanted: Sequence[str] = ()
    with suppress(UsageError):  # raised behind what Arrow has to say
        wanted = chosen(names)
    return known | dict.fromkeys({*names} - {*wanted}, pa.binary())


def _converting(types: dict[str, pa.DataType], nulls: Sequence[str]) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        column_types=types,
        null_values=[*nulls, _END],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _read(
    lent: Any, parsing: pa.csv.ParseOptions, converting: pa.csv.ConvertOptions
) -> Generator[Any, None, None]:
    """The schema, then the batches that Arrow reads."""
    # one thread: several do not know the number of a row that is wrong
    reading = pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
    reader: Any = None
    held: weakref.ref[_Lent] = weakref.ref(lent)
    try:
        reader = pa.csv.open_csv(pa.PythonFile(lent, "r"), reading, parsing, converting)
        yield reader.schema
        for batch in chain(reader):
            if batch.num_rows:
                yield batch
    finally:
        lent = reader = None  # a traceback would hold them
        _let_go(held)


def _names(head: bytes, delimiter: str) -> list[str]:
    """The columns, as the first line tells them; none where it does not end here."""
    text = io.StringIO(_text(head), newline="")
    names = next(filter(None, csv.reader(text, delimiter=delimiter)), [])
    return names if len(head) < HEAD_BYTES or text.tell() < len(text.getvalue()) else []


def _text(head: bytes) -> str:
    return head.decode("utf-8-sig", "replace")


def _parsing(delimiter: str) -> pa.csv.ParseOptions:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise UsageError("not a delimiter", found=delimiter, expected="one character")
    return pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _batches(
    read: Generator[Any, None, None],
    end: _End,
    schema: pa.Schema,
    names: Sequence[str],
    source: Source,
    quotes: Quotes,
) -> Generator[pa.RecordBatch, None, None]:
    row = 2  # the first one names the columns
    try:
        for batch in _cut(read, end):
            if batch is None:
                raise pa.ArrowInvalid(f"Row #{row}: {_END}")
            made = _in_types(batch, schema, source, row)
            _refuse_text_behind(quotes, source)
            yield made
            row += batch.num_rows
        _refuse_text_behind(quotes, source)
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _wrong(error, source, names, quotes) from error
    finally:
        read.close()


def _in_types(batch: pa.RecordBatch, schema: pa.Schema, source: Source, row: int) -> pa.RecordBatch:
    """The rows as these columns, or UsageError for what these cannot hold. `row`: the first one."""
    batch = batch.select(schema.names)
    try:
        columns = [
            _converted(column, one) if column.type != one.type else column
            for column, one in zip(batch.columns, schema, strict=True)
        ]
    except UsageError as error:
        facts = {name: fact for name, fact in error.facts.items() if name != "row"}
        where = source.of_row(row + error.facts["row"])
        raise UsageError(error.what, file=source.name, **where, **facts) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _refuse_text_behind(quotes: Quotes, source: Source) -> None:
    """Raise UsageError where there is some behind a closing quote, as far as Arrow has read."""
    line = quotes.wrong_line
    if line is not None:
        what, found = "rows that cannot be read", "text behind a quote that closes a cell"
        raise UsageError(what, file=source.name, line=line, found=found)


def _cut(
    batches: Iterable[pa.RecordBatch], end: _End
) -> Generator[pa.RecordBatch | None, None, None]:
    """The batches without the line behind the last one; None behind the last row that is whole."""
    last: pa.RecordBatch | None = None
    for batch in batches:
        if last is not None:
            yield last
        last = batch
    if last is not None:
        whole = end.cut(last)
        yield last.slice(0, last.num_rows - 1) if whole is None else whole
        if whole is None:
            yield None


def _read_as(kind: pa.DataType) -> pa.DataType:
    return pa.string() if _is_read_as_text(kind) else kind


def _is_read_as_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_decimal(kind) or t.is_binary(kind) or t.is_fixed_size_binary(kind))


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    is_decimal = pa.types.is_decimal(field.type)
    return _decimals(column, field) if is_decimal else base64_decoded(column, field)


def _decimals(column: pa.Array, field: pa.Field) -> pa.Array:
    """Texts as decimals. Raises UsageError, naming the row."""
    texts = pc.ascii_trim_whitespace(column)
    found = _decimals_or_none(texts, field.type)
    if found is None:
        row, one = next(
            (row, text)
            for row, text in enumerate(texts.to_pylist())
            if _decimals_or_none(texts.slice(row, 1), field.type) is None
        )
        what, expected = "not a decimal of the column's type", str(field.type)
        raise UsageError(what, row=row, column=field.name, expected=expected, found=one)
    return found


def _decimals_or_none(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(wide(kind)).cast(kind)
    except pa.ArrowInvalid:
        return None


def wide(kind: pa.DataType) -> pa.DataType:
    """As what decimals of this type are read. Of numbers that are too large for it Arrow makes
    other ones within 128 bits."""
    return pa.decimal256(76, kind.scale)


def base64_decoded(column: pa.Array, field: pa.Field) -> pa.Array:
    """Texts as the binaries that they stand for. Raises UsageError, naming the row."""
    width = field.type.byte_width if pa.types.is_fixed_size_binary(field.type) else None
    values: list[bytes | None] = []
    try:
        for text in column.to_pylist():
            value = None if text is None else base64.b64decode(text, validate=True)
            if value is not None and width not in (None, len(value)):
                raise ValueError(f"{len(value)} bytes where {width} are expected")
            values.append(value)
        return pa.array(values, field.type)
    except MemoryError:  # of Arrow, too
        raise
    except (ValueError, pa.ArrowException) as error:
        what = "not base64 of the column's length"
        raise UsageError(what, row=len(values), column=field.name, found=str(error)) from error


_ROW = re.compile(r"Row #(\d+): *(.*)", re.S)
_COLUMN = re.compile(r"In CSV column #(\d+)")
_ZONELESS = re.compile(r"expected a zone offset in '(.*?)'\. If")
_STRADDLES = "straddling object"


def _wrong(
    error: BaseException, source: Source, names: Sequence[str], quotes: Quotes
) -> UsageError:
    """Arrow's sentence, with the line and the column where it names them; or, if it may come of
    them, of quotes before."""
    told = " ".join(str(error).split())
    facts: dict[str, Any] = {"file": source.name}
    is_open, told = _END in told, told[:300]
    row, column = _ROW.search(told), _COLUMN.search(told)
    if row is not None:
        facts |= source.of_row(int(row[1]))
    if _STRADDLES in told:
        facts |= source.of_longer_row(BLOCK_BYTES)
    if quotes.wrong_line is not None and quotes.wrong_line <= facts.get("line", sys.maxsize):
        _refuse_text_behind(quotes, source)
    if column is not None and int(column[1]) < len(names):
        facts["column"] = names[int(column[1])]
    if isinstance(error, pa.ArrowNotImplementedError):
        facts["expected"] = "JSON lines or Parquet for such columns"
    found = "a quote that is not closed" if is_open else row[2] if row else told
    zoneless = _ZONELESS.search(told)
    if zoneless is not None:
        facts["expected"], found = "a time with a zone, such as 2024-07-01T10:00:00Z", zoneless[1]
    if _STRADDLES in told:
        most = f"rows of up to {BLOCK_BYTES >> 20} MiB"
        facts["expected"] = f"{most}; longer ones as JSON lines or Parquet"
        found = "a longer one, or a quote that is not closed"
    return UsageError("rows that cannot be read", **facts, found=found)
