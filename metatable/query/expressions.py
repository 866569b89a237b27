"""Expressions: predicates over a table's rows, as frozen values.

Built in Python, or parsed from tuples as pyarrow and pandas know them:

    (metatable.col("day") >= date(2024, 3, 1)) & ~metatable.col("city").is_in(["Bonn", "Köln"])
    [("day", ">=", date(2024, 3, 1)), ("city", "not in", ["Bonn", "Köln"])]     all of them
    [[("a", "=", 1)], [("b", "is null"), ("c", "starts with", "x")]]            one of the lists

They mean what Spark means. A comparison with null is neither true nor false, and rows are
wanted only where the predicate is true; NaN equals itself and is the greatest number, -0 = 0;
strings and binaries are in byte order, false is below true. `in ()` is false, `not in ()` is
true. Numbers are compared as numbers, whatever digits the column has room for.

An expression knows no table: `predicates` holds it against a schema, and says what it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metatable.storage.errors import UsageError

__all__ = [
    "OPERATORS",
    "And",
    "Column",
    "Comparison",
    "Constant",
    "Expression",
    "In",
    "InRows",
    "IsNull",
    "Not",
    "Or",
    "StartsWith",
    "col",
    "parse_where",
]

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


class Expression:
    """A predicate. Combine with `&`, `|`, `~` (Python's `and`, `or`, `not` cannot be used)."""

    __slots__ = ()

    def __and__(self, other: Expression) -> Expression:
        return And((*_terms(self, And), *_terms(_operand(other), And)))

    def __or__(self, other: Expression) -> Expression:
        return Or((*_terms(self, Or), *_terms(_operand(other), Or)))

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        what = "an expression has no truth value before it meets rows"
        raise UsageError(what, expected="& | ~, with brackets around comparisons", found=repr(self))


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """`column op value`, with one of = != < <= > >=."""

    column: str
    op: str
    value: Any


@dataclass(frozen=True, slots=True)
class In(Expression):
    """Whether a column has one of the values."""

    column: str
    values: tuple[Any, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InRows(Expression):
    """Whether some columns have the values that one of these rows has for them: what `bind` makes
    of `(a = 1 and b = 2) or (a = 3 and b = 4) or …`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """Whether a column is null: always true or false."""

    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class StartsWith(Expression):
    """Whether a string or binary begins with these characters or bytes."""

    column: str
    prefix: str | bytes
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And(Expression):
    """True where all of its terms are."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """True where one of its terms is."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """True where its term is false; a comparison with null is neither, so it stays left out."""

    term: Expression


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """True of every row or of none."""

    value: bool


# Building


class Column:
    """A column by its name; comparing it makes an expression."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Expression:  # type: ignore[override]
        return Comparison(self.name, "=", value)

    def __ne__(self, value: object) -> Expression:  # type: ignore[override]
        return Comparison(self.name, "!=", value)

    def __lt__(self, value: Any) -> Expression:
        return Comparison(self.name, "<", value)

    def __le__(self, value: Any) -> Expression:
        return Comparison(self.name, "<=", value)

    def __gt__(self, value: Any) -> Expression:
        return Comparison(self.name, ">", value)

    def __ge__(self, value: Any) -> Expression:
        return Comparison(self.name, ">=", value)

    __hash__ = None  # type: ignore[assignment]

    def is_in(self, values: Iterable[Any]) -> Expression:
        """The value is one of these; as with SQL's IN, a null among them matches nothing."""
        return In(self.name, _values(self.name, values))

    def is_null(self) -> Expression:
        """The value is null."""
        return IsNull(self.name)

    def is_not_null(self) -> Expression:
        """The value is not null."""
        return IsNull(self.name, negated=True)

    def starts_with(self, prefix: str | bytes) -> Expression:
        """The string or binary begins with these characters or bytes."""
        return StartsWith(self.name, prefix)

    def __repr__(self) -> str:
        return f"col({self.name!r})"


def col(name: str) -> Column:
    """A column, to be compared: `col("a") > 5`, `col("b").is_in([1, 2])`, `col("c").is_null()`."""
    return Column(name)


# Parsing


def parse_where(where: Any) -> Expression | None:
    """The expression for a `where`, which is one already, None, or made of tuples.

    A list of tuples is true where all of them are, a list of such lists where one list is. Raises
    UsageError.
    """
    if where is None or isinstance(where, Expression):
        return where
    if _is_tuple(where):
        return _parse_tuple(where)
    lists = _sequence(where)
    if all(_is_tuple(one) for one in lists):
        return _joined(And, [_parse_tuple(one) for one in lists])
    return _joined(
        Or, [_joined(And, [_parse_tuple(one) for one in _sequence(part)]) for part in lists]
    )


def _is_tuple(given: Any) -> bool:
    """Whether this is (column, op, …), and not a list of such."""
    return isinstance(given, tuple) and bool(given) and isinstance(given[0], str)


def _sequence(given: Any) -> Sequence[Any]:
    if not isinstance(given, list | tuple) or not given:
        raise UsageError("not a predicate", expected=_EXPECTED, found=repr(given))
    return given


_EXPECTED = "an expression, a list of (column, op, value), or a list of such lists"


def _parse_tuple(given: Any) -> Expression:
    if not _is_tuple(given) or len(given) not in (2, 3) or not isinstance(given[1], str):
        raise UsageError("not a predicate", expected=_EXPECTED, found=repr(given))
    column, op, *value = given
    op = " ".join(op.lower().split())
    op = "=" if op == "==" else op
    if op in ("is null", "is not null") and not value:
        return IsNull(column, op == "is not null")
    if len(value) != 1 or op not in (*OPERATORS, *_WITH_VALUE):
        raise UsageError("no such operator", column=column, expected=list(_KNOWN), found=given[1:])
    if op in OPERATORS:
        return Comparison(column, op, value[0])
    negated = op.startswith("not ")
    if op.endswith("in"):
        return In(column, _values(column, value[0]), negated)
    return StartsWith(column, value[0], negated)


_WITH_VALUE = ("in", "not in", "starts with", "not starts with")
_KNOWN = (*OPERATORS, *_WITH_VALUE, "is null", "is not null")


def _values(column: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        what = "one of several values is asked for"
        raise UsageError(what, column=column, expected="a list of values", found=repr(values))
    return tuple(values)


def _joined(kind: type[And] | type[Or], terms: list[Expression]) -> Expression:
    return terms[0] if len(terms) == 1 else kind(tuple(terms))


def _terms(one: Expression, kind: type[And] | type[Or]) -> tuple[Expression, ...]:
    """The terms of a chain, so that a long one does not become a deep one."""
    return one.terms if isinstance(one, kind) else (one,)


def _operand(other: Any) -> Expression:
    if not isinstance(other, Expression):
        expected = "an expression; comparisons stand in brackets"
        raise UsageError("not a predicate", expected=expected, found=repr(other))
    return other
