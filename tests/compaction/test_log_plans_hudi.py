"""What docs/hudi-readers.md says of the `hudi` wheel while a compaction of logs waits."""

from __future__ import annotations

from pathlib import Path

import metatable
from metatable import Table
from tests.model import SCHEMA, Row, arrow, read_by_hudi, scanned


def row(key: str, v: int) -> Row:
    return {"id": key, "city": "ny", "v": v, "ts": None}


def of_hudi(table: Table) -> dict[str, int]:
    return {key: v for key, _, v, _ in read_by_hudi(table.uri)}


def test_the_wheel_shows_older_rows_while_a_compaction_of_logs_waits(tmp_path: Path) -> None:
    uri = tmp_path / "table"
    table = metatable.create(uri, SCHEMA, key="id", index="record", table_type="mor")
    for v in (1, 2):
        table.upsert(arrow([row("a", v), row("b", v)]))
    plan = table.compact_logs(ratio=0, schedule=True).plan
    table.upsert(arrow([row("a", 3), row("c", 3)]))
    table.delete(arrow([row("b", 0)]))
    assert {key: v for key, _, v, _ in scanned(table)} == {"a": 3, "c": 3}
    assert of_hudi(table) == {"a": 2, "b": 2, "c": 3}
    table.compact_logs(plan=plan)
    assert of_hudi(table) == {"a": 3, "c": 3}
