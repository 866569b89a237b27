"""Rows with a column of every kind, for tests of predicates: like values lie together."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = float("nan")

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "city": pa.string(),
    "day": pa.date32(),
    "flag": pa.bool_(),
    "small": pa.int32(),
    "big": pa.int64(),
    "single": pa.float32(),
    "double": pa.float64(),
    "price": pa.decimal128(9, 2),
    "wide": pa.decimal128(38, 4),
    "text": pa.string(),
    "raw": pa.binary(),
    "fixed": pa.binary(2),
    "moment": pa.timestamp("us", "UTC"),
    "clock": pa.timestamp("ms"),
    "hour": pa.time64("us"),
    "nothing": pa.int32(),
}
PARTITIONS = {"clock10": "clock", "price10": "price"}
"""Partition columns of few values, made from others."""
KINDS = COLUMNS | {name: COLUMNS[source] for name, source in PARTITIONS.items()}
SCHEMA = pa.schema(list(COLUMNS.items())).append(pa.field("list", pa.list_(pa.int32())))

LONG_TEXT = "é" * 70
LAST = "\U0010ffff" * 80


def value_of(name: str, n: int, random: random.Random) -> Any:
    """A value near place `n` of the column, so that a file's rows have like values."""
    n += random.randrange(6)
    kinds: dict[str, Callable[[], Any]] = {
        "city": lambda: ["amsterdam", "bärlin", "", "cairo"][n // 150 % 4],
        "day": lambda: date(2024, 2, 27) + timedelta(days=n // 100),
        "flag": lambda: n // 40 % 2 == 0,
        "small": lambda: n - 300,
        "big": lambda: (n - 300) * 10**16,
        "single": lambda: [n / 10 - 20, -0.0, 0.0, float("inf")][
            random.choice([0] * 9 + [1, 2, 3])
        ],
        "double": lambda: [n / 10 - 20, -0.0, 0.0, NAN][random.choice([0] * 30 + [1, 2, 3])],
        "price": lambda: Decimal(n - 300) / 100,
        "wide": lambda: Decimal(n - 300) * 10**30 + Decimal("0.0001"),
        "text": lambda: [f"k{n:04d}", LONG_TEXT + f"{n:04d}", f"k{n:04d}" + LONG_TEXT, LAST][
            random.choice([0] * 60 + [1, 2, 3])
        ],
        "raw": lambda: bytes([n // 4 % 256, n % 256]) * (60 if n % 200 == 7 else 1),
        "fixed": lambda: bytes([n // 256, n % 256]),
        "moment": lambda: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n, microseconds=n),
        "clock": lambda: datetime(1969, 12, 31) + timedelta(hours=n, milliseconds=n),
        "hour": lambda: time(n // 60 % 24, n % 60, 0, n),
    }
    return kinds[name]()


def made_rows(first: int, count: int, random: random.Random) -> pa.Table:
    """Rows in runs of like values; some runs are null, and some values within the others."""
    columns: dict[str, list[Any]] = {"id": list(range(first, first + count))}
    for name in COLUMNS:
        if name in ("id", "nothing"):
            continue
        start = random.randrange(50)
        nulls = {run for run in range(count // 20) if random.random() < 0.08}
        columns[name] = [
            None
            if n // 20 in nulls or random.random() < 0.02
            else value_of(name, n + start, random)
            for n in range(count)
        ]
    columns["nothing"] = [None] * count
    columns["list"] = [None if n % 3 == 0 else [n] for n in range(count)]
    return pa.table(columns, schema=SCHEMA)
