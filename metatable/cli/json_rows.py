"""JSON lines as batches: one object per line, blocks of whole lines parsed by Arrow.

Columns of the table are read in its types: dates, times and timestamps are texts in ISO's form
(with a zone only where the column has one; without it UTC is meant there), decimals numbers or
texts, floats numbers or one of `WORDS`, binaries base64. What an absent field is, the verb says
(`Absent`). Maps, and dates, times, binaries and `WORDS` within lists and structs, need Parquet: a
column of these may be left out, or be null. Fields that are not read may hold anything.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import time
from enum import Enum, auto
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from metatable.cli.csv_rows import Chosen, base64_decoded, wide
from metatable.data.columns.align import refuse_wrong
from metatable.data.columns.schema import META_FIELDS
from metatable.query.where_text import exactly
from metatable.storage.errors import UsageError

__all__ = ["Absent", "Asked", "read"]

BLOCK_BYTES = 4 << 20

LONGEST_LINE = 256 << 20
"""A line is held whole, and more than once; a file of one large array has no line ends."""

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON has no word for, as texts."""

MOST_LEVELS = 100
"""How deep a value may be whose type is guessed: as deep as Arrow reads one of Parquet."""

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')

_WORD = re.compile(rb'"(?:NaN|-?Infinity)"')


class Absent(Enum):
    """What it means that a line lacks a column of the table."""

    NULL = auto()
    """It is null: lines are whole rows."""
    NOT_GIVEN = auto()
    """It stays as it is: all lines must have the fields of the first."""
    LEFT_OUT = auto()
    """Rows are given back: no more than the fields of the first line; a null where a later one
    lacks one of these."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The table's columns, if there is one; those that must not be absent; what others are."""

    schema: pa.Schema | None
    required: frozenset[str] = frozenset()
    absent: Absent = Absent.NULL
    chosen: Chosen | None = None
    """Which of the first line's fields are read: others may be in any line, and hold anything.
    None: all."""
    replaces: bool = False
    """The rows take the place of all others: an input without a line is refused."""


@dataclass(slots=True)
class _Reader:
    """Blocks of lines, and what is known of the columns."""

    stream: IO[bytes]
    file: str
    asked: Asked
    line: int = 1
    """The first of the block."""
    schema: pa.Schema | None = None
    """What batches have."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        while block := self._block():
            yield self._parsed(block)
            self.line += block.count(b"\n")

    def _block(self) -> bytes:
        try:
            while block := self.stream.read(BLOCK_BYTES):
                block += self._rest(block)
                if block.strip():
                    return block
                self.line += block.count(b"\n")
        except (OSError, EOFError) as error:
            raise self._wrong(str(error), 0) from error
        return b""

    def _rest(self, block: bytes) -> bytes:
        """What is left of the block's last line."""
        rest = self.stream.readline(LONGEST_LINE)
        if len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            found = f"more than {LONGEST_LINE} bytes"
            raise self._wrong(found, block.count(b"\n"), "an object a line")
        return rest

    def _parsed(self, block: bytes) -> pa.RecordBatch:
        if self.schema is None:
            self.schema = self._first(block)
        block, told, rows = self._numbers(block) if _WORD.search(block) else (block, {}, None)
        try:
            batch = self._batch(block)
            if rows not in (None, batch.num_rows):
                raise UsageError("several objects in a line", expected="an object a line")
            return _replaced(batch, told)
        except MemoryError:  # of Arrow, too
            raise
        except (pa.ArrowException, UsageError) as error:
            if isinstance(error, UsageError) and "line" in error.facts:
                raise
            self._find(block)
            raise self._wrong(_line(error), 0) from error

    def _first(self, block: bytes) -> pa.Schema:
        """The columns: fields of the first line, and, absent as null, of the table."""
        offset, line = next(
            (place, one) for place, one in enumerate(block.split(b"\n")) if one.strip()
        )
        names = list(self._object(line, offset))
        asked = self.asked.schema
        if asked is None:
            return self._guessed(block, None)
        known = {one.name: one for one in (*META_FIELDS, *asked)}
        if self.asked.chosen is not None:
            return pa.schema([known[name] for name in self.asked.chosen(names)])
        given = pa.schema([known[name] for name in names if name in known])
        others = self._guessed(block, given) if set(names) - set(known) else given
        made = {one.name: one for one in others}
        fields = [known.get(name) or made[name] for name in names]
        if self.asked.absent is Absent.NULL:
            fields += [one for one in asked if one.name not in {*names, *self.asked.required}]
        return pa.schema(fields)

    def _guessed(self, block: bytes, known: pa.Schema | None) -> pa.Schema:
        self._refuse_deep(block)
        read_as = None if known is None else pa.schema([_read_as(one) for one in known])
        try:
            guessed = _read(block, read_as, "infer").schema
        except MemoryError:  # of Arrow, too
            raise
        except pa.ArrowException as error:
            self._find(block)
            raise self._wrong(_line(error), 0) from error
        if known is None:
            return guessed
        return pa.schema([one.with_type(_mapped(one.type, _no_moment)) for one in guessed])

    def _refuse_deep(self, block: bytes) -> None:
        """A type that is guessed is as deep as the text: whoever goes through it calls himself as
        often, Arrow too, which ends the process."""
        for offset, line in enumerate(block.split(b"\n")):
            if line.count(b"[") + line.count(b"{") > MOST_LEVELS and _levels(line) > MOST_LEVELS:
                raise self._wrong("more levels", offset, f"{MOST_LEVELS} levels at most")

    def _batch(self, block: bytes) -> pa.RecordBatch:
        assert self.schema is not None
        read_as = pa.schema([_read_as(one) for one in self.schema])
        found = _read(block, read_as, "ignore" if self.asked.chosen else "error")
        columns = []
        for field in self.schema:
            column = pa.concat_arrays(found[field.name].chunks) if found.num_rows else None
            if column is None:
                column = pa.array([], field.type)
            columns.append(self._cast(column, field))
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self.asked.absent is Absent.NOT_GIVEN:
            self._check_fields(block, made)
        return made

    def _numbers(self, block: bytes) -> tuple[bytes, dict[str, dict[int, float]], int]:
        """The block with nulls for numbers that JSON has no word for, of columns of floats; these
        numbers by column and row; and how many rows there are, one a line."""
        assert self.schema is not None
        floats = [one.name for one in self.schema if pa.types.is_floating(one.type)]
        told: dict[str, dict[int, float]] = {name: {} for name in floats}
        lines, row = block.split(b"\n"), -1
        for offset, line in enumerate(lines):
            row += bool(line.strip())
            given = self._object(line, offset) if _WORD.search(line) else {}
            for name in floats:
                number = WORDS.get(given[name]) if isinstance(given.get(name), str) else None
                where = rb'("%b"\s*:\s*)%b' % (name.encode(), _WORD.pattern)
                # a field of a struct may have that name, too: then Arrow refuses the line
                if number is not None and len(re.findall(where, line)) == 1:
                    lines[offset] = re.sub(where, rb"\1null", lines[offset])
                    told[name][row] = number
        return b"\n".join(lines), told, row + 1

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type != field.type:
            column = self._converted(column, field)
        try:
            refuse_wrong(column, field.name)
        except UsageError as error:  # Arrow reads more than the column can hold
            found = f"{error.what}: column={field.name!r} expected='{field.type}'"
            raise UsageError(error.what, found=found) from error
        return column

    def _converted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if _holds_map(field.type):
            return pa.nulls(len(column), field.type)
        if pa.types.is_binary(field.type) or pa.types.is_fixed_size_binary(field.type):
            return base64_decoded(column, field)
        if pa.types.is_time(field.type):
            return self._times(column, field)
        try:
            return column.cast(_mapped(field.type, _in_micros)).cast(field.type)
        except pa.ArrowInvalid as error:
            found = f"{error}: column={field.name!r} expected='{field.type}'"
            raise UsageError("not of the column's type", found=found) from error

    def _times(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Arrow casts no text to a time."""
        try:
            texts = column.to_pylist()
            return pa.array([None if text is None else _time(text) for text in texts], field.type)
        except ValueError as error:
            raise UsageError("not a time", column=field.name, found=str(error)) from error

    def _check_fields(self, block: bytes, batch: pa.RecordBatch) -> None:
        """Where a null is, the field may be absent."""
        if not any(column.null_count for column in batch.columns):
            return
        wanted = set(batch.schema.names)
        for offset, line in enumerate(block.split(b"\n")):
            if line.strip():
                absent = wanted - set(self._object(line, offset))
                if absent:
                    raise self._wrong(
                        f"no field {sorted(absent)[0]!r}", offset, "the fields of the first line"
                    )

    def _object(self, line: bytes, offset: int) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._wrong(str(error), offset) from error
        if not isinstance(found, dict):
            raise self._wrong(type(found).__name__, offset, "an object a line")
        return found

    def _find(self, block: bytes) -> None:
        """Raise UsageError for the first line that is wrong by itself."""
        known = self.schema or self.asked.schema
        for offset, line in enumerate(block.split(b"\n")):
            if not line.strip():
                continue
            given = self._object(line, offset)
            strange = set(given) - set(known.names if known else ())
            if self.schema is not None and strange and self.asked.chosen is None:
                named, others = f"field {sorted(strange)[0]!r}", ""
                if self.asked.absent is Absent.NULL:
                    others = ", or the table's"
                raise self._wrong(named, offset, f"the fields of the first line{others}")
            if known is None:
                continue
            for field in known:
                if given.get(field.name) is not None and _holds_map(field.type):
                    raise self._not_json(field, offset)
            try:
                found = _read(line, pa.schema([_read_as(one) for one in known]), "ignore")
                for field in known:
                    for chunk in found[field.name].chunks:
                        self._cast(chunk, field)
            except MemoryError:  # of Arrow, too
                raise
            except (pa.ArrowException, UsageError) as error:
                raise self._wrong(_line(error), offset) from error

    def _not_json(self, field: pa.Field, offset: int) -> UsageError:
        return UsageError(
            "JSON lines cannot hold this column",
            file=self.file,
            line=self.line + offset,
            column=field.name,
            expected="Parquet",
            found=str(field.type),
        )

    def _wrong(self, found: str, offset: int, expected: str | None = None) -> UsageError:
        facts: dict[str, Any] = {"file": self.file, "line": self.line + offset}
        if expected is not None:
            facts["expected"] = expected
        return UsageError("a line that cannot be read", **facts, found=found)


def read(stream: IO[bytes], asked: Asked, file: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Columns and batches. Raises UsageError, also while it is read, naming file and line."""
    reader = _Reader(stream, file, asked)
    batches = reader.batches()
    first = next(batches, None)
    if first is None and asked.replaces:
        expected = "an object a line; to empty a table, a CSV file of its header alone"
        raise UsageError("no line is there", file=file, expected=expected)
    if first is None:
        empty = asked.schema if asked.schema is not None else pa.schema([])
        names = empty.names if asked.chosen is None else asked.chosen(empty.names)
        return pa.schema([empty.field(name) for name in names]), iter(())

    def rest() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return first.schema, rest()


def _levels(line: bytes) -> int:
    """How deep a line of JSON is."""
    marks = np.frombuffer(_TEXT.sub(b"", line), np.uint8)
    steps = np.isin(marks, list(b"[{")).astype(np.int64) - np.isin(marks, list(b"]}"))
    return int(steps.cumsum().max(initial=0))


def _replaced(batch: pa.RecordBatch, told: dict[str, dict[int, float]]) -> pa.RecordBatch:
    """The rows with these numbers, by column and row."""
    for name, numbers in told.items():
        if numbers:
            place, column = batch.schema.get_field_index(name), batch[name]
            mask = np.zeros(len(column), bool)
            mask[list(numbers)] = True
            values = pa.array([*numbers.values()], pa.float64()).cast(column.type)
            column = pc.replace_with_mask(column, mask, values)
            batch = batch.set_column(place, batch.schema.field(place), column)
    return batch


def _read(block: bytes, schema: pa.Schema | None, others: str) -> pa.Table:
    parsing = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    reading = pa.json.ReadOptions(block_size=max(len(block), 1))
    return pa.json.read_json(pa.BufferReader(block), reading, parsing)


def _time(text: str) -> time:
    """Raises ValueError, also for what the column would lose of it."""
    found = time.fromisoformat(exactly(text))
    if found.tzinfo is not None:
        raise ValueError(f"{text!r} has a zone")
    return found


def _read_as(field: pa.Field) -> pa.Field:
    """Arrow's reader of JSON takes dates and times for numbers, and binaries for texts; it drops
    the zone of a moment where the column has none, reads no more digits than the column has, and
    makes other decimals of some that are too large (`wide`): in lists and structs, too. What JSON
    lines cannot hold it takes as nulls alone."""
    kind = pa.null() if _holds_map(field.type) else _mapped(field.type, _read_kind)
    return pa.field(field.name, kind)


def _read_kind(kind: pa.DataType) -> pa.DataType:
    if _is_text(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return pa.string()
    return wide(kind) if pa.types.is_decimal(kind) else _in_micros(kind)


def _in_micros(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def _no_moment(kind: pa.DataType) -> pa.DataType:
    """Of columns that the table lacks, which come back as they are, Arrow takes texts like days for
    moments."""
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _mapped(kind: pa.DataType, made: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with what is `made` of it, or of all that is in its structs and lists."""
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_mapped(one.type, made)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_mapped(kind.value_type, made)))
    return made(kind)


def _is_text(kind: pa.DataType) -> bool:
    """Whether it must be read as a text first, wherever it is."""
    t = pa.types
    return any(one(kind) for one in (t.is_date, t.is_time, t.is_binary, t.is_fixed_size_binary))


def _holds_map(kind: pa.DataType) -> bool:
    """Maps, and what within lists and structs would have to be read as a text first."""
    if pa.types.is_map(kind):
        return True
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(place) for place in range(kind.num_fields)]
    return any(_holds_map(one.type) or _is_text(one.type) for one in inner)


def _line(error: BaseException) -> str:
    told = error.facts.get("found", error.what) if isinstance(error, UsageError) else str(error)
    return " ".join(str(told).split())[:300]
