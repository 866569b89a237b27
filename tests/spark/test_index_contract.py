"""What every index must answer, on Spark: the one that takes most steps, or, with
METATABLE_LONG=1, all of them in both scopes. (The others are asked and written in test_placed,
test_explain, test_write, test_spark_history and, with a real HBase, in tests/services; in process
every index has the suite in every run.)"""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.index.index_contract import KINDS, HistoryContract, IndexContract, Kind, drawn
from tests.long import LONG
from tests.model import Model, listed

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

    if not LONG:  # how a table came to be is nothing to a plan, and test_tag.py has the last two
        test_groups_without_rows_know_no_key = None
        test_rows_that_repeat_a_key_are_all_found = None
        test_an_older_version_answers_as_it_did = None
        test_a_null_and_an_empty_partition_value_name_the_same_key = None

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


class TestLogsOnSpark(OnSpark, HistoryContract):
    """Merge-on-read."""

    steps = 10 if LONG else 4
    options: ClassVar[dict[str, Any]] = {"table_type": "mor"}

    @pytest.fixture(scope="class", params=KINDS if LONG else [("record", "global")], ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param

    def test_rows_and_changes_come_merged(self, table_uri: str, kind: Kind) -> None:
        table = self.made(table_uri, kind)
        model = Model(kind[1] == "global", ordering=False)
        given = drawn(random.Random(3), 20)
        self.write(table, model, "insert", given)
        before, held = table.version, [*model.rows.values()]
        self.write(table, model, "upsert", [{**row, "v": 99} for row in held[:5]])
        self.write(table, model, "delete", held[-3:])
        scan = table.scan().to_spark(self.spark).toArrow().to_pylist()
        assert listed(scan) == model.listed()
        changed = table.changes(before).to_spark(self.spark).toArrow()["_change_type"].to_pylist()
        assert sorted(changed) == ["delete"] * 3 + ["update"] * 5
