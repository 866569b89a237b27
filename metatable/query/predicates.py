"""Predicates: expressions held against a schema, and what they mean.

`bind` brings an expression into a form that is easy to evaluate: columns exist, literals are
in their column's type, `not` is pushed down to the leaves. From there on only what is surely
true counts: a conjunction is true where both parts are, a disjunction where one is, and a leaf
over null is as good as false. So nobody behind `bind` needs a third truth value.

A `Dialect` says what the leaves mean: over rows (`row_dialect`), over the bounds of files
(`bounds`), in Spark (`spark.parquet`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from metatable.data.columns.schema import META_FIELDS
from metatable.query.expressions import (
    OPERATORS,
    And,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    StartsWith,
)
from metatable.query.literals import fit
from metatable.storage.errors import UsageError

__all__ = ["Dialect", "bind", "columns_of", "evaluate"]

T = TypeVar("T")

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
    """One of these bound terms. Values that one column may have are a list, which is held against
    rows and files as a whole: of many terms each is looked at for every batch of rows."""
    values: dict[str, list[Any]] = {}
    others: list[Expression] = []
    for term in terms:
        if isinstance(term, Comparison) and term.op == "=":
            values.setdefault(term.column, []).append(term.value)
        else:
            others.append(term)
    lists = (
        In(column, tuple(some)) if len(some) > 1 else Comparison(column, "=", some[0])
        for column, some in values.items()
    )
    made = (*others, *lists)
    return made[0] if len(made) == 1 else Or(made)


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


def evaluate(bound: Expression, dialect: Dialect[T]) -> T:
    """A bound expression in this dialect."""
    if isinstance(bound, And | Or):
        join = dialect.both if isinstance(bound, And) else dialect.either
        return _joined(bound.terms, dialect, join)
    if isinstance(bound, Comparison):
        return dialect.compare(bound.column, bound.op, bound.value)
    if isinstance(bound, In):
        return dialect.is_in(bound.column, bound.values, bound.negated)
    if isinstance(bound, StartsWith):
        return dialect.starts_with(bound.column, bound.prefix, bound.negated)
    if isinstance(bound, IsNull):
        return dialect.is_null(bound.column, bound.negated)
    assert isinstance(bound, Constant), bound
    return dialect.constant(bound.value)


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
    elif isinstance(expression, Not):
        yield from _columns_of(expression.term)
    elif not isinstance(expression, Constant):
        yield expression.column  # type: ignore[attr-defined]
