"""Literals: what a value in a predicate is in the type of its column.

    column                          literals
    bool                            bool
    integers, floats                int, float, Decimal
    decimal                         int, Decimal (a float is hardly ever the decimal it is meant as)
    string; binary                  str; bytes
    date                            date
    time                            time without a zone
    timestamp with, without zone    datetime with, without a zone

numpy's, pandas' and Arrow's scalars count as what they hold. Integers, decimals and timestamps
are compared exactly: a literal that the type has no room for lies just above one of its values,
or below all of them. Floats are compared as doubles, and their literals are made double; beyond all
finite ones they lie short of the infinite ones.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.storage.errors import UsageError

__all__ = ["Fitted", "fit"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A literal in its column's type.

    Where it is not `exact`, it lies above `value`, the greatest that the type has below it;
    None: it lies below all values of the type.
    """

    value: Any
    exact: bool = True


def fit(literal: Any, kind: pa.DataType, column: str) -> Fitted | None:
    """The literal in the type `kind`, None for null.

    Raises UsageError for one of another kind, naming column, expected, found.
    """
    plain = _plain(literal)
    for is_kind, fitter, expected in _FITTERS:
        if not is_kind(kind):
            continue
        if plain is None:
            return None
        fitted = fitter(plain, kind)
        if fitted is None:
            what = "literal is not of the column's kind"
            expected = _meant(plain, kind) or expected
            raise UsageError(what, column=column, expected=expected, found=_told(literal))
        return fitted
    what = "columns of this type are not compared"
    raise UsageError(what, column=column, expected="is null, is not null", found=str(kind))


def _meant(literal: Any, kind: pa.DataType) -> str | None:
    """The date or datetime to write for a text that is one, or for a date where moments are; None
    for others."""
    try:
        if isinstance(literal, str):
            made = datetime.fromisoformat(literal)
        elif type(literal) is date:
            made = datetime.combine(literal, time())
        else:
            return None
    except ValueError:
        return None
    if _t.is_date(kind):
        return repr(made.date()) if made.time() == time() else None
    if not _t.is_timestamp(kind) or (kind.tz is None and made.tzinfo is not None):
        return None
    if kind.tz is not None and made.tzinfo is None:
        made = made.replace(tzinfo=UTC)
    return repr(made)


def _told(literal: Any) -> str:
    """A literal as messages tell it; of one that has no text (a number of thousands of digits, a
    day of Arrow's in no year of Python's) its type."""
    try:
        return repr(literal)
    except (ValueError, OverflowError):
        return type(literal).__name__


def _plain(literal: Any) -> Any:
    """The Python value of a scalar of Arrow's, numpy's or pandas'; None for their nulls."""
    if isinstance(literal, pa.Scalar):
        literal = _plain_arrow(literal)
    if isinstance(literal, np.datetime64):
        return _plain_time(literal)
    if isinstance(literal, np.generic):
        literal = literal.item()
    if type(literal).__module__.partition(".")[0] == "pandas":
        return _plain_pandas(literal)
    return literal


def _plain_arrow(literal: pa.Scalar) -> Any:
    """A Python value; what Python cannot hold stays as it is, and fits no column."""
    try:
        return literal.as_py()
    except (ValueError, OverflowError):
        return literal


def _plain_time(literal: np.datetime64) -> date | datetime | np.datetime64 | None:
    """A date or datetime; what they cannot hold stays as it is, and fits no column."""
    if np.isnat(literal):
        return None
    if np.datetime_data(literal.dtype)[0] in ("Y", "M", "W", "D"):
        found: Any = literal.astype("datetime64[D]")
    else:
        found = literal.astype("datetime64[us]")
    item = found.item()
    return item if found == literal and isinstance(item, date) else literal


def _plain_pandas(literal: Any) -> Any:
    """pandas' Timestamp is a datetime with nanoseconds, NaT and NA are nulls."""
    if type(literal).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(literal, datetime) and not getattr(literal, "nanosecond", 0):
        return literal.to_pydatetime()  # type: ignore[attr-defined]
    return literal


_Fitter = Callable[[Any, pa.DataType], Fitted | None]


def _of_class(*classes: type) -> _Fitter:
    """Values of exactly these classes: a bool is no int here, a datetime no date."""
    return lambda value, _: Fitted(value) if type(value) in classes else None


# One function a kind of column: the literal in its type, or None for one of another kind.


def _integer(value: Any, kind: pa.DataType) -> Fitted | None:
    if not _is_number(value):
        return None
    greatest = (1 << (kind.bit_width - 1)) - 1
    if isinstance(value, float) and not math.isfinite(value):
        return Fitted(None if value < 0 else greatest, exact=False)
    if isinstance(value, Decimal) and value.adjusted() > kind.bit_width:
        return _integer(math.copysign(math.inf, value) if value else 0, kind)
    whole = math.floor(value)
    if whole < -greatest - 1:
        return Fitted(None, exact=False)
    return Fitted(min(whole, greatest), exact=value == whole <= greatest)


def _float(value: Any, _: pa.DataType) -> Fitted | None:
    if not _is_number(value):
        return None
    try:
        made = float(value)
    except OverflowError:
        made = -math.inf if value < 0 else math.inf
    if math.isfinite(made) or isinstance(value, float):
        return Fitted(made)
    # beyond all finite doubles, and short of the infinite ones
    return Fitted(sys.float_info.max if made > 0 else made, exact=False)


def _decimal(value: Any, kind: pa.DataType) -> Fitted | None:
    if not _is_number(value) or isinstance(value, float):
        return None
    number = Decimal(value)
    if number.adjusted() > kind.precision:  # beyond all values, or a zero: no scale moves its point
        number = Decimal(10**kind.precision if number else 0).copy_sign(number)
    digits = len(number.as_tuple().digits) + kind.precision + 1
    exactly = Context(prec=digits, rounding=ROUND_FLOOR, Emax=MAX_EMAX, Emin=MIN_EMIN)
    scaled = number.scaleb(kind.scale, exactly)
    greatest = Decimal(10**kind.precision - 1)
    least = greatest.copy_negate()  # a minus would round it to the digits of Python's context
    if scaled < least:
        return Fitted(None, exact=False)
    whole = min(scaled, greatest).to_integral_value(ROUND_FLOOR)
    if whole < least:
        return Fitted(None, exact=False)
    return Fitted(whole.scaleb(-kind.scale, exactly), exact=whole == scaled)


def _is_number(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _string(value: Any, _: pa.DataType) -> Fitted | None:
    if not isinstance(value, str):
        return None
    try:
        return Fitted(value.encode().decode())  # that of an enumeration prints its name
    except UnicodeEncodeError:
        return None


def _binary(value: Any, _: pa.DataType) -> Fitted | None:
    return Fitted(bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else None


def _time(value: Any, _: pa.DataType) -> Fitted | None:
    return Fitted(value) if isinstance(value, time) and value.tzinfo is None else None


def _timestamp(value: Any, kind: pa.DataType) -> Fitted | None:
    if type(value) is not datetime or (value.utcoffset() is None) != (kind.tz is None):
        return None
    if kind.tz is not None:
        try:
            value = value.astimezone(UTC)
        except OverflowError:
            return None
    if kind.unit == "us":
        return Fitted(value)
    floor = value.replace(microsecond=value.microsecond // 1000 * 1000)
    return Fitted(floor, exact=floor == value)


_t = pa.types
_FITTERS: tuple[tuple[Callable[[pa.DataType], bool], _Fitter, str], ...] = (
    (_t.is_boolean, _of_class(bool), "bool"),
    (_t.is_integer, _integer, "a number"),
    (_t.is_floating, _float, "a number"),
    (_t.is_decimal, _decimal, "Decimal or int"),
    (_t.is_string, _string, "str"),
    (_t.is_binary, _binary, "bytes"),
    (_t.is_fixed_size_binary, _binary, "bytes"),
    (_t.is_date, _of_class(date), "date"),
    (_t.is_time, _time, "time without a zone"),
    (lambda kind: _t.is_timestamp(kind) and kind.tz is None, _timestamp, "datetime without a zone"),
    (lambda kind: _t.is_timestamp(kind) and kind.tz is not None, _timestamp, "datetime with zone"),
)
