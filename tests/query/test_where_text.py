"""Conditions as text are the expressions that Python makes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from metatable import UsageError, col
from metatable.query.expressions import Expression, parse_where
from metatable.query.predicates import bind
from metatable.query.where_text import parse_text

SCHEMA = pa.schema(
    {
        "fare": pa.float64(),
        "n": pa.int64(),
        "city": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "naive": pa.timestamp("us"),
        "noon": pa.time64("us"),
        "price": pa.decimal128(10, 2),
        "raw": pa.binary(),
        "ok": pa.bool_(),
        "Or": pa.string(),
    }
)
MOMENT = datetime(2026, 1, 31, 13, 45)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fare > 7.5", col("fare") > 7.5),
        ("n==-3", col("n") == -3),
        ("fare < -1e400", col("fare") < Decimal("-1e400")),  # no infinity
        ("n <> 3", col("n") != 3),
        ("n>=1.5", col("n") >= Decimal("1.5")),
        ("price <= 1.10", col("price") <= Decimal("1.10")),
        ("city = 'it''s'", col("city") == "it's"),
        ("\"Or\" = 'or'", col("Or") == "or"),
        ("ok = TRUE", col("ok") == True),  # noqa: E712
        ("day < '2026-01-31'", col("day") < date(2026, 1, 31)),
        ("at >= '2026-01-31 13:45'", col("at") >= MOMENT.replace(tzinfo=UTC)),
        ("at >= '2026-01-31T13:45:00Z'", col("at") >= MOMENT.replace(tzinfo=UTC)),
        ("naive = '2026-01-31T13:45'", col("naive") == MOMENT),
        ("noon = '12:00'", col("noon") == time(12)),
        ("raw = 'a'", col("raw") == b"a"),
        ("city is null", col("city").is_null()),
        ("city IS NOT NULL", col("city").is_not_null()),
        ("city in ('Ulm', 'Bonn')", col("city").is_in(["Ulm", "Bonn"])),
        ("city not in ('Ulm')", ~col("city").is_in(["Ulm"])),
        ("city starts with 'U'", col("city").starts_with("U")),
        ("n between 1 and 3", (col("n") >= 1) & (col("n") <= 3)),
        ("n not between 1 and 3", ~((col("n") >= 1) & (col("n") <= 3))),
        ("n = 1 or n = 2 and ok = true", (col("n") == 1) | ((col("n") == 2) & (col("ok") == True))),  # noqa: E712
        ("(n = 1 or n = 2) and not n = 3", ((col("n") == 1) | (col("n") == 2)) & ~(col("n") == 3)),
        ("n = 1 or n = 2 or n = 3", (col("n") == 1) | (col("n") == 2) | (col("n") == 3)),
        ("n > 1 and n > 2 and n > 3", (col("n") > 1) & (col("n") > 2) & (col("n") > 3)),
        ("_hoodie_commit_time > '2026'", col("_hoodie_commit_time") > "2026"),
    ],
)
def test_a_text_is_the_expression(text: str, expected: Expression) -> None:
    found = parse_text(text, SCHEMA)
    assert repr(found) == repr(parse_where(expected))
    bind(found, SCHEMA)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a column's name"),
        ("fare", "starts with"),
        ("fare >", "a number"),
        ("fare > 7 8", "and, or, or the end"),
        ("nope = 1", "no such column"),
        ("city = null", "is null"),
        ("city = Ulm", "a number, a 'text'"),
        ("city = 'Ulm", "not a condition"),
        ("n in ()", "a number"),
        ("n in (1", "expected=')'"),
        ("(n = 1", "expected=')'"),
        ("day = 'yesterday'", "2026-01-31"),
        ("at > '2026-01-31 13:45:00.0000001'", "2026-01-31 13:45:00"),
        ("noon = '13:45:00.0000001'", "'13:45:00'"),
        ("n = 1; drop", "at=5"),
        ("n = 1abc", "not a condition"),
        ("n > 1e9999999999999999999", "an exponent of"),
        ("(" * 500 + "n = 1" + ")" * 500, "brackets in brackets"),
        ("not " * 500 + "n = 1", "brackets in brackets"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_text(text, SCHEMA)
    assert told in str(caught.value)


def test_a_long_number_is_read_as_it_is() -> None:
    assert repr(parse_text("n = " + "9" * 5000, SCHEMA)).count("9") >= 5000
