"""Columns as text: `id: string, city: string, fare: double not null, tags: list<string>`.

Types are called as Arrow prints them, and as SQL and Python people call them. Commas or line ends
stand between columns, whatever follows a # is left out:

    bool int32 int64 float double string binary date time     timestamp, timestamp[ms], …[us, UTC]
    decimal(10, 2)   fixed_size_binary[16]   list<T>   map<string, T>   struct<a: T, b: T>
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from metatable.storage.errors import UsageError

__all__ = ["parse_columns"]

T = TypeVar("T")

_PLAIN = {
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "int32": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "str": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_DEEPEST = 30
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*(?:/[\w+-]+)*|\d+|[][<>():,=])\s*")  # a zone has slashes
_EXPECTED = "'id: string, fare: double not null, at: timestamp[us, UTC], tags: list<string>'"


def parse_columns(text: str) -> pa.Schema:
    """The schema that the text describes. Raises UsageError, naming the place."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    joined = ", ".join(line.strip(",") for line in lines if line.strip(","))
    return _Parser(joined).schema()


class _Parser:
    """Reads from the left, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._place = 0

    def schema(self) -> pa.Schema:
        fields = self._several(self._field)
        if self._next:
            raise self._wrong("a comma, or the end")
        return pa.schema(fields)

    @property
    def _next(self) -> str:
        """The token, "" behind the last one."""
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _several(self, read: Callable[[int], pa.Field], depth: int = 0) -> list[pa.Field]:
        found = [read(depth)]
        while self._accepts(","):
            found.append(read(depth))
        return found

    def _field(self, depth: int) -> pa.Field:
        name = self._word("a column's name")
        self._expect(":")
        kind = self._type(depth)
        nullable = not self._accepts("not")
        if not nullable:
            self._expect("null")
        return pa.field(name, kind, nullable)

    def _type(self, depth: int) -> pa.DataType:
        if depth > _DEEPEST:
            raise self._wrong(f"no more than {_DEEPEST} types in types")
        word = self._word("a type").lower()
        if word in ("decimal", "decimal128", "numeric"):
            return self._decimal()
        if word == "fixed_size_binary":
            [size] = self._within("[]", lambda: [self._number()])
            return self._made(lambda: pa.binary(size))
        if word == "timestamp" and self._next == "[":
            return self._timestamp()
        if word in ("time64", "date32") and self._next == "[":
            self._within("[]", lambda: [self._word("a unit")])
            return _PLAIN[word[:4]]
        if word in ("list", "map", "struct"):
            return self._nested(word, depth + 1)
        if word not in _PLAIN:
            self._place -= 1
            raise self._wrong(f"a type: {', '.join(_PLAIN)}, decimal, list, map, struct")
        return _PLAIN[word]

    def _decimal(self) -> pa.DataType:
        def digits() -> list[int]:
            precision = self._number()
            return [precision, self._number() if self._accepts(",") else 0]

        found = self._within("()", digits)
        return self._made(lambda: pa.decimal128(*found))

    def _timestamp(self) -> pa.DataType:
        def parts() -> list[str]:
            found = [self._word("a unit")]
            if self._accepts(","):
                if self._accepts("tz"):  # as Arrow prints it: `tz=UTC`
                    self._accepts("=")
                found.append(self._word("a zone"))
            return found

        found = self._within("[]", parts)
        return self._made(lambda: pa.timestamp(*found))

    def _nested(self, word: str, depth: int) -> pa.DataType:
        self._expect("<")
        if word == "struct":
            made: pa.DataType = pa.struct(self._several(self._field, depth))
        elif word == "list":
            made = pa.list_(self._item(depth))
        else:
            key = self._type(depth)
            self._expect(",")
            made = pa.map_(key, self._type(depth))
        self._expect(">")
        return made

    def _item(self, depth: int) -> pa.DataType | pa.Field:
        """What a list holds: a type, or a field, as Arrow prints it (`list<element: string>`)."""
        is_field = self._tokens[self._place + 1 : self._place + 2] == [":"]
        return self._field(depth) if is_field else self._type(depth)

    def _within(self, brackets: str, read: Callable[[], list[T]]) -> list[T]:
        self._expect(brackets[0])
        found = read()
        self._expect(brackets[1])
        return found

    def _made(self, make: Callable[[], pa.DataType]) -> pa.DataType:
        try:
            return make()
        except (ValueError, pa.ArrowInvalid) as error:
            raise UsageError("no such type", where=self._text, found=str(error)) from error

    def _word(self, expected: str) -> str:
        word = self._next
        if not (word[:1].isalpha() or word[:1] == "_"):
            raise self._wrong(expected)
        self._place += 1
        return word

    def _number(self) -> int:
        if not self._next.isdigit():
            raise self._wrong("a number")
        self._place += 1
        return int(self._tokens[self._place - 1][:9])

    def _accepts(self, token: str) -> bool:
        found = self._next.lower() == token
        self._place += found
        return found

    def _expect(self, token: str) -> None:
        if not self._accepts(token):
            raise self._wrong(token)

    def _wrong(self, expected: str) -> UsageError:
        found = " ".join(self._tokens[self._place :]) or "the end"
        return UsageError("not columns", where=self._text, expected=expected, found=found)


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UsageError("not columns", where=text, expected=_EXPECTED, found=text[at:])
        found.append(match[1])
        at = match.end()
    return found
