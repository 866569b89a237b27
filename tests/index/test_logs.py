"""What every index must answer of merge-on-read tables: the suites, with logs of both forms."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.index.index_contract import BUCKETS, IndexContract, Kind, RaceContract

FEW = [("record", "global"), ("bloom", "partition"), *((one, "partition") for one in BUCKETS[:2])]


class TestAvroLogs(RaceContract):
    """Rows in logs as Hudi writes them by default."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor"}


class TestTagsOfLogs(IndexContract):
    """In process."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor"}


class TestParquetLogs(RaceContract):
    """A few kinds: how rows stand in logs is nothing to an index."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor", "log_format": "parquet"}

    @pytest.fixture(scope="class", params=FEW, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param
