"""Conditions as text: `fare > 7.5 and city in ('Ulm', 'Bonn')`, read with a table's columns.

    condition := part {"or" part}            part := term {"and" term}
    term      := "not" term | "(" condition ")" | test
    test      := column op literal           op: = == != <> < <= > >=
               | column ["not"] "in" "(" literal {"," literal} ")"
               | column ["not"] "between" literal "and" literal
               | column ["not"] "starts" "with" literal
               | column "is" ["not"] "null"

A part of SQL's, for the command line; it makes the same expressions as Python does, which mean
what `expressions` says. Words of the grammar in any case. Columns are names, or `"names"` in double
quotes; texts stand in single quotes (`''` is one quote). A text becomes the date, time, timestamp
(UTC, where the column has a zone and the text has none) or binary that its column asks for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema import META_FIELDS
from metatable.query.expressions import (
    OPERATORS,
    Comparison,
    Expression,
    In,
    IsNull,
    StartsWith,
)
from metatable.storage.errors import UsageError

__all__ = ["exactly", "parse_text"]

_DEEPEST = 100
"""Brackets in brackets."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<name>"(?:[^"]|"")*")
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![A-Za-z_0-9.])
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign><=|>=|<>|!=|==|[=<>(),])
    )""",
    re.X,
)
_SPELLINGS = {"==": "=", "<>": "!="}
_EXPECTED = "such as: fare > 7.5 and city in ('Ulm', 'Bonn') and day is not null"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_text(text: str, schema: pa.Schema) -> Expression:
    """The expression that the text stands for, over a table of these columns.

    Raises UsageError, which names the place, for what is no condition, no column of the table, or
    no value of the column.
    """
    return _Parser(text, schema).whole()


class _Parser:
    """Reads from the left, one token ahead."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._types = {field.name: field.type for field in (*META_FIELDS, *schema)}
        self._tokens = _tokens(text)
        self._place = 0
        self._depth = 0

    def whole(self) -> Expression:
        made = self._condition()
        if self._token.kind != "end":
            raise self._wrong("and, or, or the end")
        return made

    @property
    def _token(self) -> _Token:
        return self._tokens[self._place]

    def _condition(self) -> Expression:
        made = self._part()
        while self._accepts("or"):
            made = made | self._part()
        return made

    def _part(self) -> Expression:
        made = self._term()
        while self._accepts("and"):
            made = made & self._term()
        return made

    def _term(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"no more than {_DEEPEST} brackets in brackets")
        try:
            if self._accepts("not"):
                return ~self._term()
            if not self._accepts("("):
                return self._test()
            made = self._condition()
            self._expect(")")
            return made
        finally:
            self._depth -= 1

    def _test(self) -> Expression:
        column = self._column()
        operator = _SPELLINGS.get(self._token.text, self._token.text)
        if self._token.kind == "sign" and operator in OPERATORS:
            self._place += 1
            return Comparison(column, operator, self._literal(column))
        if self._accepts("is"):
            negated = self._accepts("not")
            self._expect("null")
            return IsNull(column, negated)
        negated = self._accepts("not")
        made = self._worded(column)
        return ~made if negated else made

    def _worded(self, column: str) -> Expression:
        if self._accepts("in"):
            self._expect("(")
            values = [self._literal(column)]
            while self._accepts(","):
                values.append(self._literal(column))
            self._expect(")")
            return In(column, tuple(values))
        if self._accepts("between"):
            low = self._literal(column)
            self._expect("and")
            return Comparison(column, ">=", low) & Comparison(column, "<=", self._literal(column))
        if self._accepts("starts"):
            self._expect("with")
            return StartsWith(column, self._literal(column))
        raise self._wrong(f"{' '.join(OPERATORS)}, is, in, between, starts with")

    def _column(self) -> str:
        token = self._token
        if token.kind not in ("word", "name"):
            raise self._wrong("a column's name")
        name = token.text if token.kind == "word" else token.text[1:-1].replace('""', '"')
        if name not in self._types:
            raise UsageError("no such column", column=name, expected=[*self._types])
        self._place += 1
        return name

    def _literal(self, column: str) -> Any:
        token = self._token
        kind = self._types[column]
        if token.kind == "text":
            self._place += 1
            return _fitting(token.text[1:-1].replace("''", "'"), kind, column)
        if token.kind == "number":
            self._place += 1
            return _number(token.text, kind, column)
        if token.kind == "word" and token.text.lower() in ("true", "false"):
            self._place += 1
            return token.text.lower() == "true"
        raise self._wrong("a number, a 'text', true or false (for nulls: is null)")

    def _accepts(self, word: str) -> bool:
        token = self._token
        found = token.kind in ("word", "sign") and token.text.lower() == word
        self._place += found
        return found

    def _expect(self, word: str) -> None:
        if not self._accepts(word):
            raise self._wrong(word)

    def _wrong(self, expected: str) -> UsageError:
        found = self._text[self._token.at :] or "the end"
        return UsageError(
            "not a condition", where=self._text, at=self._token.at, expected=expected, found=found
        )


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise UsageError(
                "not a condition", where=text, at=at, expected=_EXPECTED, found=text[at:]
            )
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    return [*found, _Token("end", "", len(text))]


def _number(text: str, kind: pa.DataType, column: str) -> int | float | Decimal:
    """The number as it was written: only a float column rounds it. Raises UsageError."""
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text) if len(text) < 1000 else Decimal(text)
    if pa.types.is_floating(kind) and math.isfinite(number := float(text)):
        return number
    try:
        return Decimal(text)
    except InvalidOperation as error:
        what, expected = "not a value of this column", f"an exponent of {MAX_EMAX} or less"
        raise UsageError(what, column=column, expected=expected, found=text) from error


def _fitting(text: str, kind: pa.DataType, column: str) -> Any:
    """What the text is in a column of this type; the text, where only a text can be meant."""
    for is_kind, read, expected in _READ:
        if is_kind(kind):
            try:
                return read(text, kind)
            except ValueError as error:
                raise UsageError(
                    "not a value of this column", column=column, expected=expected, found=text
                ) from error
    return text


def exactly(text: str) -> str:
    """The text of a time or a moment. Raises ValueError where Python, which has microseconds, would
    cut it off without a word."""
    if _FINER.search(text):
        raise ValueError(f"{text!r} is finer than microseconds")
    return text


_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")


def _moment(text: str, kind: pa.DataType) -> datetime:
    found = datetime.fromisoformat(exactly(text))
    return found.replace(tzinfo=UTC) if kind.tz is not None and found.tzinfo is None else found


_t = pa.types
_READ: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any], str], ...] = (
    (_t.is_date, lambda text, _: date.fromisoformat(text), "'2026-01-31'"),
    (_t.is_timestamp, _moment, "'2026-01-31 13:45:00'"),
    (_t.is_time, lambda text, _: time.fromisoformat(exactly(text)), "'13:45:00'"),
    (_t.is_binary, lambda text, _: text.encode(), "a text"),
    (_t.is_fixed_size_binary, lambda text, _: text.encode(), "a text"),
)
