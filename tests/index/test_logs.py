"""What every index must answer of merge-on-read tables: the suites, with logs of both forms; of a
few kinds, or, with METATABLE_LONG=1, of all."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.index.index_contract import KINDS, IndexContract, Kind, RaceContract
from tests.long import LONG

WRITTEN = [("record", "global")]
ALONE = [("consistent_hashing", "partition")]
FIND_LOGS = [one for one in KINDS if "bloom" not in one[0]]
ASKED = [("metadata_bloom", "partition"), ("record", "global")]
AS_PARQUET = [("bloom", "partition"), ("bucket", "partition")]


class TestAvroLogs(RaceContract):
    """Rows in logs as Hudi writes them by default."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor"}

    @pytest.fixture(scope="class", params=KINDS if LONG else WRITTEN, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param


class TestLogsAlone(RaceContract):
    """They open file groups, too."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor", "new_groups": "log"}

    @pytest.fixture(scope="class", params=FIND_LOGS if LONG else ALONE, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param


class TestTagsOfLogs(IndexContract):
    """In process."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor"}

    @pytest.fixture(scope="class", params=KINDS if LONG else ASKED, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param


class TestParquetLogs(RaceContract):
    """How rows stand in logs is nothing to an index."""

    options: ClassVar[dict[str, Any]] = {"table_type": "mor", "log_format": "parquet"}

    @pytest.fixture(scope="class", params=KINDS if LONG else AS_PARQUET, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        return request.param
