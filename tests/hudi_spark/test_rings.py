"""Hudi's own writers go by the rings that we put where they look for them, and its readers read on.

They write to copies: what they have written to, our writers refuse.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pyarrow as pa

from metatable import Table
from metatable.data.file_groups.hashing_metadata import HASHING_FOLDER
from metatable.index.bucket.ring import hashes_of
from tests.compaction.test_hudi_rings import OTHER, PATH, filled, resize, ring_of, upsert
from tests.compaction.test_resize import MERGE, SPLIT
from tests.hudi_spark.histories import rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.test_buckets import groups_of
from tests.hudi_spark.test_log_compaction import AT_ONCE, ON_READ, copied
from tests.hudi_spark.test_reads import as_rows
from tests.hudi_spark.writing import options_for
from tests.model import Model, Row, arrow, read_by_hudi

CONSISTENT = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.bucket.index.num.buckets": "7",
}
"""Of the number of buckets it is told something else than we were: the rings say it."""


def turn(hudi: HudiOnSpark, table: Table, model: Model, name: str, given: list[Row]) -> None:
    """Hudi upserts into a copy, and compacts it: all keys are there once, in our buckets."""
    copy = copied(table, name)
    before = groups_of(copy, hudi)
    rings = files_of(copy)
    hudi.write(arrow(given), copy, options_for(table, **ON_READ, **AT_ONCE) | CONSISTENT)
    expected = deepcopy(model)
    expected.upsert(given)
    assert as_rows(hudi.read(copy)) == expected.listed() == read_by_hudi(copy)
    after = groups_of(copy, hudi)
    assert {key: after[key] for key in before} == before
    for (path, key), group in after.items():
        ring = ring_of(table, path)
        [place] = ring.place(hashes_of(pa.array([key]), ["id"]))
        assert ring.nodes[place].file_id == group
    assert {name: files_of(copy)[name] for name in rings} == rings


def files_of(uri: str) -> dict[str, bytes]:
    folder = Path(uri, HASHING_FOLDER)
    found = (one for one in folder.rglob("*") if one.is_file() and one.suffix != ".crc")
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in found}


def test_hudi_writes_by_our_rings(hudi: HudiOnSpark, table_uri: str) -> None:
    table, model = filled(table_uri)
    turn(hudi, table, model, "first", rows(20, 90, 5))
    resize(table, SPLIT)
    turn(hudi, table, model, "split", rows(20, 90, 5))
    upsert(table, model, 40, 100, 6)
    resize(table, SPLIT)
    turn(hudi, table, model, "split-again", rows(20, 120, 7))
    resize(table, MERGE)
    turn(hudi, table, model, "merged", rows(20, 120, 7))
    table.rollback()
    turn(hudi, table, model, "undone", rows(20, 120, 7))
    table.clean(versions=1, hours=0)
    turn(hudi, table, model, "cleaned", rows(20, 120, 7))
    assert {ring_of(table, path).metadata.seq_no for path in (PATH, OTHER)} == {2}
