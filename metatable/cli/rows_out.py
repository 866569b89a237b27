"""Rows that verbs give: a grid on a terminal, CSV, JSON lines or Parquet in pipes and files.

    --json, --format jsonl|csv|parquet|table      else by the name of --output
    neither                                       a grid on a terminal, CSV in a pipe

.tsv has tabs between cells; texts are packed where the name says so (.csv.gz, .jsonl.zst).

Batch by batch: nothing is held but a page of the grid or a row group of Parquet. A file appears,
whole, when all rows are in it. In CSV structs are columns `a.b`, lists and maps JSON; in CSV and
JSON binaries are base64.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from typing import IO, Any, Protocol, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from metatable.cli import terminal
from metatable.cli.cell_values import values_of
from metatable.cli.descriptors import descriptor_of
from metatable.cli.file_names import form_of, is_of_tabs, packing_of
from metatable.cli.grid import Grid
from metatable.cli.row_arguments import FORMS_IN
from metatable.cli.verb import to_json
from metatable.storage.errors import UsageError

__all__ = ["print_rows"]

GROUP_ROWS = 128 << 10
"""Rows of a row group of Parquet."""

GROUP_BYTES = 128 << 20
"""Bytes of the same, in memory: rows may be of any width."""

SHOWN_ROWS = 100
"""On a terminal, where nobody said how many."""


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


def print_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], args: argparse.Namespace
) -> int:
    """Write the rows where and as they are asked for; how many there were."""
    form, limit = _form(args), args.limit
    cut = form == "table" and limit is None and terminal.is_terminal()
    rows = 0
    with _sink(args.output, form) as file, _packed(file, args.output, form) as sink:
        has_tabs = form == "csv" and args.output is not None and is_of_tabs(args.output)
        writer = _Csv(sink, schema, "\t") if has_tabs else _WRITERS[form](sink, schema)
        for batch in _first(batches, SHOWN_ROWS + 1 if cut else limit):
            room = batch.num_rows if not cut else max(SHOWN_ROWS - rows, 0)
            writer.write(batch[:room])
            rows += batch.num_rows
        writer.close()
    _remark(args, rows, cut and rows > SHOWN_ROWS)
    return rows


def _remark(args: argparse.Namespace, rows: int, is_cut: bool) -> None:
    """What is not among the rows."""
    if args.quiet or (args.output is None and not is_cut):
        return
    if is_cut:
        told = f"the first {SHOWN_ROWS} rows; more with --limit N, --output FILE or --json"
    elif args.json:
        print(to_json({"output": args.output, "rows": rows}))
        return
    else:
        told = f"{rows:,} rows in {args.output}"
    print(terminal.dim(told, sys.stderr), file=sys.stderr)


def _form(args: argparse.Namespace) -> str:
    if args.format is not None:
        return str(args.format)
    if args.output is not None:
        form = form_of(args.output)
        if form is None or (form == "parquet" and packing_of(args.output)):
            expected = f"--format {'|'.join(FORMS_IN)}, or a name such as rows.csv"
            raise UsageError("rows in which form?", file=args.output, expected=expected)
        return form
    if args.json:
        return "jsonl"
    return "table" if terminal.is_terminal() else "csv"


def _first(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch if limit is None else batch[:limit]
        if limit is not None:
            limit -= min(limit, batch.num_rows)
            if not limit:
                return


@contextmanager
def _sink(output: str | None, form: str) -> Iterator[IO[bytes]]:
    """Where bytes go: standard output, or a file that appears when the block ends well. What is no
    file (a named pipe, a device), or is open already, is written to as it is, and a link leads to
    the file it names."""
    if output is None:
        if form == "parquet" and terminal.is_terminal():
            raise UsageError("Parquet is not for a terminal", expected="--output FILE, or a pipe")
        sys.stdout.flush()
        yield cast(IO[bytes], _Stream(sys.stdout))
        return
    target = os.path.realpath(output)
    partial = f"{target}.{uuid4().hex}.partial"  # in containers all processes have one number
    try:
        opened = descriptor_of(output)
        if opened is not None or (os.path.exists(output) and not os.path.isfile(output)):
            with open(output if opened is None else os.dup(opened), "wb") as device:
                yield cast(IO[bytes], _Stream(device))
            return
        with open(partial, "xb") as file:
            yield file
        os.replace(partial, target)
    except OSError as error:
        _remove(partial)
        raise UsageError("cannot write", file=output, found=error.strerror) from error
    except BaseException:
        _remove(partial)
        raise


@contextmanager
def _packed(file: IO[bytes], output: str | None, form: str) -> Iterator[IO[bytes]]:
    """The file, or, where its name says that texts are packed, what packs them."""
    codec = None if output is None or form == "parquet" else packing_of(output)
    if codec is None:
        yield file
        return
    with pa.CompressedOutputStream(pa.PythonFile(file, "w"), codec) as packed:
        yield packed


def _remove(path: str) -> None:
    with suppress(OSError):
        os.remove(path)


class _Stream(io.RawIOBase):
    """Standard output, or a file, as bytes; either may be a pipe: this knows how far it is."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self._out = out
        # a text stream without bytes in its place, as in tests
        self._bytes = getattr(out, "buffer", None if isinstance(out, io.TextIOBase) else out)
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        body = bytes(data)
        if self._bytes is None:
            self._out.write(body.decode())
        else:
            self._bytes.write(body)
        self._at += len(body)
        return len(body)

    def flush(self) -> None:
        if not self.closed:
            self._out.flush()


class _Csv:
    """Arrow's writer, over columns that CSV can hold."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema, delimiter: str = ",") -> None:
        self._sink, self._delimiter = sink, delimiter
        self._header = True
        self._write(_flat(schema.empty_table()))

    def write(self, batch: pa.RecordBatch) -> None:
        self._write(_flat(pa.Table.from_batches([batch])))

    def _write(self, rows: pa.Table) -> None:
        text = io.BytesIO()
        how = pa.csv.WriteOptions(include_header=self._header, delimiter=self._delimiter)
        pa.csv.write_csv(rows, text, how)
        self._sink.write(text.getvalue())
        self._header = False

    def close(self) -> None:
        self._sink.flush()


class _JsonLines:
    """An object a line, as Python's json writes it."""

    def __init__(self, sink: IO[bytes], _: pa.Schema) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        rows = zip(*map(values_of, batch.columns), strict=True)
        lines = [_json_line(dict(zip(batch.schema.names, row, strict=True))) for row in rows]
        self._sink.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))

    def close(self) -> None:
        self._sink.flush()


class _Parquet:
    """Row groups of GROUP_ROWS rows, or of GROUP_BYTES, whatever batches come."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._held), self._rows)
        self._held, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _Table:
    """A grid for people."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema) -> None:
        self._sink = sink
        names = _flat(schema.empty_table())
        right = [_is_number(one.type) for one in names.schema]
        self._grid = Grid(names.column_names, right)

    def write(self, batch: pa.RecordBatch) -> None:
        rows = _flat(pa.Table.from_batches([batch]))
        columns = [map(_cell, values_of(column)) for column in rows.columns]
        self._tell(self._grid.add(zip(*columns, strict=True)))

    def close(self) -> None:
        self._tell(self._grid.end())

    def _tell(self, lines: Iterable[str]) -> None:
        self._sink.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], _Writer]] = {
    "csv": _Csv,
    "jsonl": _JsonLines,
    "parquet": _Parquet,
    "table": _Table,
}


def _flat(rows: pa.Table) -> pa.Table:
    """Structs as columns of their own, and nothing that CSV cannot hold."""
    while any(pa.types.is_struct(one.type) for one in rows.schema):
        rows = rows.flatten()
    for place, field in enumerate(rows.schema):
        made = _as_text(rows.column(place), field.type)
        if made is not None:
            rows = rows.set_column(place, field.name, made)
    return rows


def _as_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | None:
    """The column as texts; None where CSV has it as it is."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if any(is_kind(plain) for is_kind in _IN_CSV):
        return None
    values = values_of(column)
    return pa.array([one if one is None else _text(one) for one in values], pa.string())


_t = pa.types
_IN_CSV = (
    *(_t.is_null, _t.is_boolean, _t.is_integer, _t.is_floating, _t.is_decimal),
    *(_t.is_date, _t.is_time, _t.is_timestamp, _t.is_duration, _t.is_string, _t.is_large_string),
)
"""Types that Arrow's writer of CSV knows, of those that rows to be looked up may have."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json_line(value).strip('"')


def _json_line(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False)
    except ValueError:  # JSON has no word for NaN and the infinities
        return json.dumps(_finite(value), ensure_ascii=False, default=_plain)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return _base64(value)
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
