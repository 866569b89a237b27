"""An index made by Spark's workers is the one that this process makes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import metatable
from metatable.metadata.manifests.home import HOME
from tests.index.rows import make, rows, told_tags


def tagged(table: metatable.Table) -> list[Any]:
    """File groups of many keys, without the place in the file, which not every index knows."""
    told = told_tags(table.tag_locations(rows(0, 50)))
    return [one and one[:3] for one in told]


def test_tables_are_adopted_by_workers(tmp_path: Path, spark: Any) -> None:
    uri = tmp_path / "table"
    table = make(str(uri), "metadata_bloom", "partition")
    table.insert(rows(0, 30))
    table.upsert(rows(10, 20, value=100))
    tags = tagged(table)
    metatable.adopt(uri, index="record", engine=spark)
    assert table.options.index == "record"
    assert tagged(table) == tags
    assert table.verify().findings == ()
    shutil.rmtree(uri / HOME)
    table = metatable.adopt(uri, engine=spark)
    assert tagged(table) == tags
    assert table.verify().findings == ()
