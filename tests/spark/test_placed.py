"""What workers must be told of, on Spark: indexes that place rows themselves, Hudi's buckets and
one of a user's own, and, with METATABLE_LONG=1, a user's own bucket function."""

from __future__ import annotations

from typing import Any

import pytest

import metatable
from metatable import UsageError
from tests.index import by_customer  # noqa: F401  (registers itself)
from tests.index.by_letter import ByLetter
from tests.long import LONG
from tests.model import SCHEMA, Model, Row, arrow, check

FAST = {"durable": "false"}
KINDS = {
    "bucket": ("bucket", {"bucket_count": 3}),
    "own index": (ByLetter.name, {}),
}
if LONG:
    own = {"record_key_form": "plain", "record_bucket_function": "by_customer"}
    KINDS["own bucket function"] = ("record", own)


def rows(first: int, last: int, v: int) -> list[Row]:
    return [
        {"id": f"{'abc'[n % 3]}{n:03}", "city": ("ny", "sf")[n % 2], "v": v, "ts": v}
        for n in range(first, last)
    ]


@pytest.mark.parametrize(("index", "options"), KINDS.values(), ids=KINDS)
def test_a_table_is_written_and_asked_on_spark(
    spark: Any, table_uri: str, index: str, options: dict[str, Any]
) -> None:
    table = metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        options={"key_scope": "partition", **options},
        storage_options=FAST,
    )
    model = Model(is_global=False, ordering=True)

    def frame(given: list[Row]) -> Any:
        return spark.createDataFrame(arrow(given))

    assert table.insert(frame(rows(0, 40, 1))).inserted == 40
    model.upsert(rows(0, 40, 1))
    with pytest.raises(UsageError, match="insert of keys that the table holds"):
        table.insert(frame(rows(39, 45, 1)))
    told = table.upsert(frame([*rows(30, 50, 2), *rows(0, 5, 0)]))
    assert (told.inserted, told.updated, told.stale) == (10, 10, 5)
    model.upsert([*rows(30, 50, 2), *rows(0, 5, 0)])
    keys = frame(rows(45, 60, 0)).select("id", "city")
    assert table.explain(keys).buckets == table.explain(arrow(rows(45, 60, 0))).buckets
    assert table.filter_exists(keys).count() == 5
    found = table.tag_locations(keys).where("_location is not null").count()
    assert found == (5 if index == "record" else 15)
    gone = table.delete(keys)
    assert (gone.deleted, gone.absent) == (5, 10)
    model.delete(rows(45, 60, 0))
    assert table.compact(major=True, engine=spark).files_after <= 3
    check(table, model, rows(0, 70, 0))
