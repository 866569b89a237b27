"""The newest root is lost, and it had changed the table's columns: `repair` gives them back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    Table,
    WidenColumn,
)
from metatable.storage import cache

FAST = {"durable": "false"}
SCHEMA = pa.schema(
    [("id", pa.string()), ("fare", pa.float32()), ("s", pa.struct([("a", "int32")]))]
)

Step = Callable[[Table], object]


def rows(*ids: str, **more: Any) -> pa.Table:
    held: dict[str, Any] = {"id": [*ids], "fare": [1.5] * len(ids), "s": [{"a": 1}] * len(ids)}
    return pa.table({**held, **more}, SCHEMA if not more else None)


def evolving(table: Table) -> object:
    more = pa.array([0.5, 0.25])
    schema = pa.schema([*SCHEMA, ("tip", more.type)])
    given = pa.table([["b", "c"], [2.5, 3.5], [{"a": 2}, None], more], schema=schema)
    return table.upsert(given, evolve=True)


def added_again(table: Table) -> object:
    table.alter(DropColumn("fare"))
    return table.alter(AddColumn("fare", pa.string()))


LAST: dict[str, Step] = {
    "evolved": evolving,
    "added": lambda table: table.alter(AddColumn("tip", pa.int64()), AddColumn("s.b", pa.string())),
    "dropped": lambda table: table.alter(DropColumn("fare")),
    "added again": added_again,
    "renamed": lambda table: table.alter(RenameColumn("fare", "price")),
    "widened": lambda table: table.alter(WidenColumn("fare", pa.float64())),
    "moved": lambda table: table.alter(MoveColumn("s", "")),
}


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def rows_of(table: Table) -> list[dict[str, Any]]:
    return rows_in(table.scan().to_arrow())


def newest_root(table: Table) -> Path:
    return max(Path(table.uri, ".hoodie/metatable/manifest").glob("0*.json"))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("last", LAST)
def test_a_lost_root_that_changed_columns_is_published_again_with_them(
    table_uri: str, table_type: str, last: str
) -> None:
    table = metatable.create(
        table_uri, SCHEMA, key="id", table_type=table_type, storage_options=FAST
    )
    table.insert(rows("a", "b"))
    table.upsert(rows("b"))
    LAST[last](table)
    told = table.scan().to_arrow()
    newest_root(table).unlink()
    cache.clear()
    table = metatable.open(table_uri, storage_options=FAST)
    result = table.repair(dry_run=False)
    assert result.unmended == ()
    assert result.rows_lost == 0
    again = metatable.open(table_uri, storage_options=FAST)
    assert again.verify().findings == ()
    assert again.scan().to_arrow().schema == told.schema
    assert rows_of(again) == rows_in(told)
    again.alter(AddColumn("later", pa.int64()))
    assert again.scan("later").to_arrow()["later"].null_count == told.num_rows
