"""Tables in an object store whose answers take long.

`benchmarks/rounds.py` has the store that counts how often a request waits for another one, and the
one that answers late, on threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import metatable
from benchmarks.rounds import Distant, Rounds, reached
from metatable import Table
from metatable.storage import cache

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
DAYS = 24
_names = itertools.count()


def rows(first: int, last: int, v: int) -> pa.Table:
    numbers = range(first, last)
    keys = [f"k{number:04}" for number in numbers]
    days = [f"d{number % DAYS:02}" for number in numbers]
    values = [10 * v + number // DAYS * 3 % 10 for number in numbers]  # in no order of the keys
    return pa.table([keys, days, values], schema=SCHEMA)


def in_memory() -> str:
    return f"memory://far-{next(_names)}"


def made(uri: str, table_type: str, index: str = "record", **more: Any) -> str:
    """A file group for each day; with logs on some of them, several on a few."""
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="day",
        index=index,
        table_type=table_type,
        storage_options={"durable": "false"} if not uri.startswith("memory") else None,
        **more,
    )
    table.insert(rows(0, 400, 0))
    if table_type == "mor":
        table.upsert(rows(0, 30, 1))
        table.upsert(rows(20, 33, 2))
        table.delete(rows(5, 9, 0))
    return uri


def far(uri: str, through: Callable[..., Distant]) -> tuple[Table, Distant]:
    """By a process that knows nothing."""
    cache.clear()
    return reached(uri, through)


def data_rounds(backend: Distant) -> list[int]:
    """How often reads of data files were waited for: of how many base files each time."""
    assert isinstance(backend, Rounds)
    asked: dict[int, set[str]] = {}
    for at, verb, path in backend.log:
        if verb == "create":
            continue
        if path.endswith(".parquet") or ".log." in path:
            asked.setdefault(at, set()).update([path] if path.endswith(".parquet") else [])
    return [len(paths) for paths in asked.values()]
