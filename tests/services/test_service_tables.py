"""Tables on real servers of each kind of service, with storage options and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import metatable
from tests.cleaned import strange_files
from tests.long import LONG
from tests.model import Model, Row, arrow, scanned
from tests.services.servers import Bucket
from tests.services.test_s3_tables import created, rows

ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import json, sys
import metatable
from tests.model import arrow
from tests.services.test_s3_tables import rows
uri, options, mine = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
table = metatable.open(uri, storage_options=options)
print("ready", flush=True)
sys.stdin.readline()
for number in range(3):
    own = 50 + 10 * mine + number
    table.upsert(arrow(rows(0, 4, 10 * number + mine) + rows(own, own + 1, 1)))
"""


@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_a_table_lives_on_each_service(any_bucket: Bucket, index: str) -> None:
    if index != "record" and not LONG:
        pytest.skip("METATABLE_LONG is not set")
    uri = f"{any_bucket.uri}/a folder/deeper"
    table = created(uri, any_bucket.storage_options, index)
    model = Model(is_global=True, ordering=True)

    def told_to_both(verb: str, given: list[Row]) -> None:
        getattr(table, verb)(arrow(given))
        (model.delete if verb == "delete" else model.upsert)(given)

    told_to_both("insert", rows(0, 20, 1))
    told_to_both("upsert", rows(10, 25, 2))
    told_to_both("upsert", rows(5, 15, 3, shift=1))  # these move
    told_to_both("delete", rows(0, 3, 0))
    table.compact()
    table.upsert(arrow(rows(24, 30, 4)))
    table.rollback()
    assert scanned(table) == model.listed()

    table = metatable.open(uri, storage_options=dict(any_bucket.storage_options))
    asked = arrow(rows(0, 30, 0)).select(["id", "city"])
    located = table.tag_locations(asked)["_location"]
    assert len(located) - located.null_count == len(model.rows)
    table.compact(major=True)
    assert table.clean(versions=1, hours=0).files_deleted > 10
    assert strange_files(table._store) == []
    assert scanned(table) == model.listed()
    assert table.verify().findings == ()


def test_processes_that_write_the_same_rows_lose_nothing(any_bucket: Bucket) -> None:
    if any_bucket.scheme != "az" and not LONG:  # S3 and GCS take turns with it in long runs
        pytest.skip("METATABLE_LONG is not set")
    table = created(any_bucket.uri, any_bucket.storage_options)
    table.insert(arrow(rows(0, 8, 0)))
    options = json.dumps(dict(any_bucket.storage_options))
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, any_bucket.uri, options, str(mine)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for mine in (1, 2)
    ]
    for one in crew:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    told = []
    for one in crew:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in crew:
        _, said = one.communicate(timeout=300)
        told.append((one.returncode, said))
    assert told == [(0, "")] * 2
    upserts = [one for one in table.history() if one.operation == "upsert"]
    assert len(upserts) == 6
    found = {row[0]: row for row in scanned(table)}
    assert sorted(found) == sorted(
        {f"k{number:02}" for number in (*range(8), 60, 61, 62, 70, 71, 72)}
    )
    assert {found[f"k{number:02}"][2] for number in range(4)} == {22}, "the greatest ts wins"
    assert table.verify().findings == ()
