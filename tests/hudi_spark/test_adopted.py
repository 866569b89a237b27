"""A table that Hudi on Spark has made is ours from there, and Hudi goes on reading it."""

from __future__ import annotations

import metatable
from tests.hudi_spark.histories import FAST, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_reads import as_rows
from tests.hudi_spark.writing import writer_options
from tests.model import Model, arrow, scanned


def test_its_ordering_column_decides_for_us_too(hudi: HudiOnSpark, table_uri: str) -> None:
    """1.x calls it otherwise than 0.15.0, also in a table of version 6."""
    model = Model(is_global=False, ordering=True)
    for given in (rows(0, 30, 5), rows(20, 40, 6)):
        hudi.write(arrow(given), table_uri, writer_options("t", ("id",), ("city",)))
        model.upsert(given)
    table = metatable.adopt(table_uri, storage_options=FAST)
    assert table.options.ordering == "ts"
    assert scanned(table) == model.listed()
    for given in (rows(0, 10, 3), rows(25, 45, 7)):
        assert table.upsert(arrow(given)).stale == model.upsert(given).stale
        assert scanned(table) == model.listed() == as_rows(hudi.read(table_uri))
    assert table.verify().findings == ()
