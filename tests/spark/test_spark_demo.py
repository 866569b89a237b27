"""The demo with its writes, its deletes and its compaction on Spark."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import demo
from tests.face.test_demo import some_flights


def test_on_spark_every_step_is_as_expected_too(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = some_flights()
    monkeypatch.setattr(spark, "stop", lambda: None)  # others go on using it
    page = demo.Page(io.StringIO())
    folder = str(tmp_path / "flights")
    demo.run(flights, folder, page, lambda: spark)
    assert page.wrong == []
    assert "tag the same rows, on Spark" in page.out.getvalue()  # type: ignore[attr-defined]
    asked = spark.createDataFrame(flights.select(demo.KEY))
    assert (
        metatable.open(folder).filter_exists(asked).count()
        == flights["dep_time"].drop_null().length()
    )
