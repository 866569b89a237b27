"""Timestamps within others, in logs: what docs/hudi-readers.md says of the `hudi` wheel."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable

hudi = pytest.importorskip("hudi", reason="the hudi wheel is not installed")

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
KIND = pa.timestamp("us", "UTC")
WITHIN: dict[str, tuple[pa.DataType, Any]] = {
    "list": (pa.list_(KIND), [MOMENT]),
    "map": (pa.map_(pa.string(), KIND), [("at", MOMENT)]),
    "struct": (pa.struct([("at", KIND)]), {"at": MOMENT}),
}


def read(table: metatable.Table) -> list[Any]:
    batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read()
    return [row["v"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.each_once
@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_the_wheel_refuses_them_in_avro_logs_alone(
    tmp_path: Path, log_format: str, name: str
) -> None:
    kind, value = WITHIN[name]
    schema = pa.schema([("id", pa.string()), ("v", kind)])
    table = metatable.create(
        tmp_path / "table",
        schema,
        key="id",
        table_type="mor",
        options={"log_format": log_format},
    )
    for _ in range(2):
        table.upsert(pa.Table.from_pylist([{"id": "a", "v": value}], schema))
    if log_format == "avro":
        with pytest.raises(Exception, match="incompatible with target"):
            read(table)
        table.compact_logs(ratio=0)
    assert read(table) == [value]
    assert [row["v"] for row in table.scan().to_arrow().to_pylist()] == [value]
