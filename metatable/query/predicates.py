"""Predicates: expressions held against a schema, and what they mean.

`bind` brings an expression into a form that is easy to evaluate: columns exist, literals are
in their column's type, `not` is pushed down to the leaves. From there on only what is surely
true counts: a conjunction is true where both parts are, a disjunction where one is, and a leaf
over null is as good as false. So nobody behind `bind` needs a third truth value.

A `Dialect` says what the leaves mean: over rows (`row_dialect`), over the bounds of files
(`bounds`), in Spark (`spark.parquet`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from metatable.data.columns.schema import META_FIELDS
from metatable.query.expressions import (
    OPERATORS,
    And,
    Comparison,
    Constant,
    Expression,
    In,
    InRows,
    IsNull,
    Not,
    Or,
    StartsWith,
)
from metatable.query.literals import fit
from metatable.storage.errors import UsageError

__all__ = ["Dialect", "bind", "columns_of", "evaluate"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DEEPEST = 100
"""Expressions in expressions: whoever walks through them goes down with them."""

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def bind(expression: Expression, schema: pa.Schema) -> Expression:
    """The expression over columns of `schema` (and Hudi's own), ready to be evaluated.

    Leaves have values of exactly their column's type; there is no Not, no null and no empty
    list left. Raises UsageError naming column, expected, found, and for one that is too deep.
    """
    fields = {field.name: field.type for field in (*META_FIELDS, *schema)}
    return _bind(expression, fields, negated=False, depth=0)


def _bind(
    expression: Expression, fields: dict[str, pa.DataType], negated: bool, depth: int
) -> Expression:
    """`negated`: an odd number of `Not` stands around the expression. `depth`: how many expressions
    it lies in."""
    if depth > DEEPEST:
        expected = f"{DEEPEST} within each other at most; chains of & or | may be long"
        raise UsageError("conditions lie too deep in each other", expected=expected)
    if isinstance(expression, Not):
        return _bind(expression.term, fields, not negated, depth + 1)
    if isinstance(expression, And | Or):
        terms = tuple(_bind(term, fields, negated, depth + 1) for term in expression.terms)
        return And(terms) if isinstance(expression, And) != negated else _either(terms)
    if isinstance(expression, Constant):
        return Constant(expression.value != negated)
    return _bind_leaf(expression, fields, negated)


def _either(terms: Sequence[Expression]) -> Expression:
    """One of these bound terms. Values that one column may have, or several together, are a list,
    which is held against rows as a whole: of many terms each is looked at for every batch."""
    lists: dict[tuple[str, ...], dict[tuple[Any, ...], Expression]] = {}
    others: list[Expression] = []
    for term in terms:
        values = _values_of(term)
        if values:
            lists.setdefault(tuple(values), {})[tuple(values.values())] = term
        else:
            others.append(term)
    made = (*others, *(_listed(columns, rows) for columns, rows in lists.items()))
    return made[0] if len(made) == 1 else Or(made)


def _values_of(term: Expression) -> dict[str, Any]:
    """What each column of a bound term must be equal to, in the order of their names; empty where
    it asks for something else, too."""
    parts = term.terms if isinstance(term, And) else (term,)
    asked = {
        one.column: one.value for one in parts if isinstance(one, Comparison) and one.op == "="
    }
    return dict(sorted(asked.items())) if len(asked) == len(parts) else {}


def _listed(columns: tuple[str, ...], rows: Mapping[tuple[Any, ...], Expression]) -> Expression:
    """`rows`: what is asked of these columns, and the terms that do."""
    if len(rows) == 1:
        return next(iter(rows.values()))
    if len(columns) == 1:
        return In(columns[0], tuple(value for (value,) in rows))
    return InRows(columns, tuple(rows))


def _bind_leaf(expression: Expression, fields: dict[str, pa.DataType], negated: bool) -> Expression:
    if not isinstance(expression, Comparison | In | IsNull | StartsWith):
        raise UsageError("not a predicate", expected="an expression", found=repr(expression))
    kind = _type_of(expression.column, fields)
    if isinstance(expression, Comparison):
        op = _OPPOSITE.get(expression.op, "") if negated else expression.op
        return _bind_comparison(Comparison(expression.column, op, expression.value), kind)
    negated = expression.negated != negated
    if isinstance(expression, In):
        return _bind_in(expression, kind, negated)
    if isinstance(expression, StartsWith):
        return _bind_prefix(expression, kind, negated)
    return IsNull(expression.column, negated)


def _type_of(column: str, fields: dict[str, pa.DataType]) -> pa.DataType:
    if not isinstance(column, str) or column not in fields:
        raise UsageError("no such column", column=column, expected=list(fields))
    return fields[column]


def _bind_comparison(one: Comparison, kind: pa.DataType) -> Expression:
    """A literal that the type has no room for lies between two values, or beyond them all."""
    if one.op not in OPERATORS:
        raise UsageError("no such operator", expected=list(OPERATORS), found=one.op)
    fitted = fit(one.value, kind, one.column)
    if fitted is None:  # null: never true
        return Constant(False)
    if fitted.exact:
        return Comparison(one.column, one.op, fitted.value)
    if one.op in ("=", "!="):
        return _where_not_null(one.column, one.op == "!=")
    above = one.op in (">", ">=")
    if fitted.value is None:
        return _where_not_null(one.column, above)
    return Comparison(one.column, ">" if above else "<=", fitted.value)


def _where_not_null(column: str, outcome: bool) -> Expression:
    return IsNull(column, negated=True) if outcome else Constant(False)


def _bind_in(one: In, kind: pa.DataType, negated: bool) -> Expression:
    if not one.values:
        return Constant(negated)
    fitted = [fit(value, kind, one.column) for value in one.values]
    if negated and None in fitted:  # not equal to null: never true
        return Constant(False)
    values = tuple(found.value for found in fitted if found is not None and found.exact)
    if not values:
        return _where_not_null(one.column, negated)
    return In(one.column, values, negated)


def _bind_prefix(one: StartsWith, kind: pa.DataType, negated: bool) -> Expression:
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        what = "only strings and binaries start with something"
        raise UsageError(what, column=one.column, expected="string or binary", found=str(kind))
    fitted = fit(one.prefix, kind, one.column)
    return StartsWith(one.column, fitted.value, negated) if fitted else Constant(False)


# Dialects


class Dialect(Protocol[T]):
    """What the parts of a bound expression mean; `T` is a truth over rows, files, …

    Literals are of their column's type and not null, and lists of them are not empty, as `bind`
    leaves them. Each leaf is one of the expression that has its name in `expressions`.
    """

    def constant(self, value: bool) -> T:
        """The truth that is `value` everywhere."""
        ...

    def compare(self, column: str, op: str, value: Any) -> T:
        """A `Comparison`: `op` is one of `OPERATORS`."""
        ...

    def is_in(self, column: str, values: Sequence[Any], negated: bool) -> T:
        """An `In`; false for null also where it is negated."""
        ...

    def is_null(self, column: str, negated: bool) -> T:
        """An `IsNull`."""
        ...

    def starts_with(self, column: str, prefix: str | bytes, negated: bool) -> T:
        """A `StartsWith`; false for null also where it is negated."""
        ...

    def both(self, left: T, right: T) -> T:
        """Where both are true."""
        ...

    def either(self, left: T, right: T) -> T:
        """Where one of them is true."""
        ...


@runtime_checkable
class RowsDialect(Protocol[T_co]):
    """A dialect that has a way to ask for many rows at once; others are asked for each of them."""

    def is_among(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> T_co:
        """An `InRows`."""
        ...


def evaluate(bound: Expression, dialect: Dialect[T]) -> T:
    """A bound expression in this dialect."""
    match bound:
        case And(terms):
            return _joined(terms, dialect, dialect.both)
        case Or(terms):
            return _joined(terms, dialect, dialect.either)
        case _:
            return _leaf(bound, dialect)


def _leaf(bound: Expression, dialect: Dialect[T]) -> T:
    match bound:
        case Comparison(column, op, value):
            found = dialect.compare(column, op, value)
        case In(column, values, negated):
            found = dialect.is_in(column, values, negated)
        case InRows(columns, rows):
            found = _among(columns, rows, dialect)
        case StartsWith(column, prefix, negated):
            found = dialect.starts_with(column, prefix, negated)
        case IsNull(column, negated):
            found = dialect.is_null(column, negated)
        case _:
            assert isinstance(bound, Constant), bound
            found = dialect.constant(bound.value)
    return found


def _among(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], dialect: Dialect[T]) -> T:
    if isinstance(dialect, RowsDialect):
        found: T = dialect.is_among(columns, rows)
        return found
    terms = [
        And(tuple(Comparison(name, "=", value) for name, value in zip(columns, row, strict=True)))
        for row in rows
    ]
    return _joined(terms, dialect, dialect.either)


def _joined(terms: Sequence[Expression], dialect: Dialect[T], join: Callable[[T, T], T]) -> T:
    """The terms in halves: who makes an expression of them goes down it by calls, as Spark does."""
    if len(terms) == 1:
        return evaluate(terms[0], dialect)
    half = len(terms) // 2
    left = _joined(terms[:half], dialect, join)
    return join(left, _joined(terms[half:], dialect, join))


def columns_of(expression: Expression) -> list[str]:
    """The columns that an expression names, each once, in order."""
    return list(dict.fromkeys(_columns_of(expression)))


def _columns_of(expression: Expression) -> Iterator[str]:
    if isinstance(expression, And | Or):
        for term in expression.terms:
            yield from _columns_of(term)
    elif isinstance(expression, InRows):
        yield from expression.columns
    elif isinstance(expression, Not):
        yield from _columns_of(expression.term)
    elif not isinstance(expression, Constant):
        yield expression.column  # type: ignore[attr-defined]
