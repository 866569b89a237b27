"""What every index must answer, on Spark: the one that takes most steps, or, with
METATABLE_LONG=1, all of them in both scopes. (The others are asked and written in test_placed,
test_explain, test_write and test_spark_history; in process every index passes the suite in every
run.)"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest

from tests.index.index_contract import KINDS, HistoryContract, IndexContract, Kind

LONG = os.environ.get("METATABLE_LONG") == "1"

ASKED = [("metadata_bloom", "global")]
WRITTEN = [("bloom", "global")]


class OnSpark:
    @pytest.fixture(autouse=True)
    def _session(self, spark: Any) -> None:
        self.spark = spark

    def given(self, asked: pa.Table) -> Any:
        return self.spark.createDataFrame(asked)

    def told(self, answer: Any) -> pa.Table:
        return answer.toArrow()


class TestTagsOnSpark(OnSpark, IndexContract):
    """Lazy plans, brought back by a job each."""

    @pytest.fixture(scope="class", params=KINDS if LONG else ASKED, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param


class TestHistoriesOnSpark(OnSpark, HistoryContract):
    """Each step is several jobs."""

    steps = 10 if LONG else 4

    @pytest.fixture(scope="class", params=KINDS if LONG else WRITTEN, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param
