"""One session of Spark with the bundle that METATABLE_HUDI names; without it, no tests.

`python -m tests.hudi_spark` sets it, to one pinned version after the other: a JVM holds one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

VERSION = os.environ.get("METATABLE_HUDI", "")

collect_ignore_glob = [] if VERSION else ["*"]

if VERSION:
    from tests.hudi_spark.session import HudiOnSpark, hudi_on_spark


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiOnSpark]:
    """Hudi on Spark: what is missing for it fails, for this suite is asked for by name."""
    with hudi_on_spark(VERSION, tmp_path_factory.mktemp("hudi")) as running:
        yield running
