"""What a Hudi writer is told of a table: options of Spark's, and what is left of ours then."""

from __future__ import annotations

import pytest

from metatable import Table, UpgradeError
from tests.hudi_spark.session import PEACEFUL
from tests.model import Row, arrow, scanned

__all__ = ["BUCKETS", "check_that_it_is_refused", "options_for", "writer_options"]

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "SIMPLE"}

_GENERATORS = "org.apache.hudi.keygen."


def writer_options(
    name: str, key: tuple[str, ...], partition_by: tuple[str, ...] = (), **more: str
) -> dict[str, str]:
    """Of a table of version 6 that stays one. `more`: dots are written as `__`."""
    simple = len(key) == len(partition_by) == 1
    generator = "Simple" if simple else "Complex" if partition_by else "Nonpartitioned"
    made = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.datasource.write.recordkey.field": ",".join(key),
        "hoodie.datasource.write.partitionpath.field": ",".join(partition_by),
        "hoodie.datasource.write.keygenerator.class": f"{_GENERATORS}{generator}KeyGenerator",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.table.timeline.timezone": "UTC",
    }
    return made | PEACEFUL | {word.replace("__", "."): value for word, value in more.items()}


def options_for(table: Table, **more: str) -> dict[str, str]:
    """Of a table of ours."""
    ours = table.options
    return writer_options(ours.name, ours.key, ours.partition_by, **more)


def check_that_it_is_refused(table: Table, given: list[Row], why: str) -> None:
    """No verb writes to a table to which another has written; reading goes on, at our version."""
    before = scanned(table)
    for write in (table.upsert, table.insert, table.delete):
        with pytest.raises(UpgradeError, match=why):
            write(arrow(given))
    with pytest.raises(UpgradeError, match=why):
        table.compact(major=True)
    with pytest.raises(UpgradeError, match=why):
        table.rollback()
    assert scanned(table) == before
