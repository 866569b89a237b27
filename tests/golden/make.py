"""Golden tables: a small table of every kind, as each format stored it, for ever.

    tables/<format>-<name>.zip     the table's folder, every file of it
    tables/<format>-<name>.json    what it holds: rows of each readable version, what came when

`python -m tests.golden.make FORMAT` writes those of the code at hand under the name of its
format (`format1`); once a format has been released its files are never written again.
`test_golden_tables.py` reads, writes, compacts and verifies all of them with the newest code.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import Table
from metatable.engine.local import LocalEngine
from metatable.metadata.transaction import Transaction
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import Refused, watched
from tests.model import SCHEMA, Row, arrow, scanned

FOLDER = Path(__file__).parent / "tables"
FAST = {"durable": "false"}
CITIES = ("ny", "sf", "île d'Yeu")
SHRUNK: dict[str, Any] = {
    "file_rows": 5,
    "row_group_rows": 3,
    "buckets": {"files": 2, "bloom_filter": 4, "column_stats": 4, "record_index": 4},
    "hfile_block_bytes": 256,
    "hfile_target_bytes": 4096,
    "key_salts": [3, -5],
}


def rows(first: int, last: int, v: int, shift: int = 0, cities: int = 2) -> list[Row]:
    """Keys k00…, cities in turn."""
    return [
        {"id": f"k{number:02}", "city": CITIES[(number + shift) % cities], "v": v, "ts": v}
        for number in range(first, last)
    ]


def dying(table: Table, given: list[Row], where: str) -> None:
    """An upsert that dies at the first call (verb and path) that `where` matches."""

    def die(verb: str, path: str) -> None:
        if re.fullmatch(where, f"{verb} {path}"):
            backend.limit = 0
            raise Refused(path)

    store, backend = watched(table.uri, before=die)
    with pytest.raises(Refused):
        write(store, LocalEngine(1), arrow(given), "upsert")


def recover(table: Table) -> None:
    with Transaction.begin(Store(table.uri, FAST)):
        pass


def grown(table: Table) -> None:
    """All verbs of data, not compacted."""
    table.insert(arrow(rows(0, 22, 1, cities=3)))
    table.upsert(arrow(rows(18, 26, 2, cities=3)))
    table.delete(arrow(rows(3, 7, 0, cities=3)))
    table.upsert(arrow(rows(9, 11, 3, shift=1, cities=3)))


def compacted(table: Table) -> None:
    """Compacted by halves, whole, and written after it."""
    grown(table)
    table.compact()
    table.upsert(arrow(rows(4, 6, 4, cities=3)))
    table.compact(major=True, partitions=["column_stats"], buckets=[1, 2])
    table.compact(major=True)
    table.delete(arrow(rows(20, 22, 0, cities=3)))


def rolled_back(table: Table) -> None:
    """Two rollbacks, one over a compaction."""
    table.insert(arrow(rows(0, 15, 1)))
    table.upsert(arrow(rows(10, 20, 2)))
    table.rollback()
    table.upsert(arrow(rows(5, 12, 3)))
    table.delete(arrow(rows(0, 3, 0)))
    table.compact(major=True)
    table.rollback()


def withdrawn(table: Table) -> None:
    """A writer died before its put and was fenced; its last sweep is still to come."""
    table.insert(arrow(rows(0, 15, 1)))
    dying(table, rows(10, 18, 2), r"create .*/manifest/\d+\.json")
    recover(table)
    table.upsert(arrow(rows(12, 16, 3)))
    table.compact()


def dead(table: Table) -> None:
    """A writer died before its put, and nobody came since."""
    table.insert(arrow(rows(0, 15, 1)))
    dying(table, rows(10, 18, 2), r"create .*/manifest/\d+\.json")


def unfinished(table: Table) -> None:
    """A writer died after its put: Hudi's timeline lacks the commit."""
    table.insert(arrow(rows(0, 15, 1)))
    dying(table, rows(10, 18, 2), r"create .*/\d+\.commit")


def undone_half(table: Table) -> None:
    """A rollback died after its put."""
    table.insert(arrow(rows(0, 15, 1)))
    table.upsert(arrow(rows(10, 18, 2)))

    def die(verb: str, path: str) -> None:
        if re.fullmatch(r"delete .*\.parquet", f"{verb} {path}"):
            backend.limit = 0
            raise Refused(path)

    store, backend = watched(table.uri, before=die)
    twin = metatable.open(table.uri, FAST)
    twin._store = store
    with pytest.raises(Refused):
        twin.rollback()


TABLES: dict[str, tuple[str, str, Callable[[Table], None], dict[str, Any]]] = {
    "record-global": ("record", "global", grown, {}),
    "record-partition-compacted": ("record", "partition", compacted, {}),
    "record-plain-rolled-back": (
        "record",
        "global",
        rolled_back,
        {"record_key_form": "plain", "record_bucket_function": "java_string"},
    ),
    "record-withdrawn": ("record", "global", withdrawn, {"lease_seconds": 0}),
    "record-dead": ("record", "global", dead, {}),
    "record-unfinished": ("record", "partition", unfinished, {}),
    "bloom-partition": ("metadata_bloom", "partition", grown, {}),
    "bloom-global-compacted": ("metadata_bloom", "global", compacted, {}),
    "bloom-partition-rolled-back": ("metadata_bloom", "partition", rolled_back, {}),
    "bloom-undone-half": ("metadata_bloom", "global", undone_half, {}),
}


def make(name: str, folder: Path) -> Table:
    index, scope, fill, options = TABLES[name]
    table = metatable.create(
        folder / "table",
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        options={**SHRUNK, "key_scope": scope, **options},
        storage_options=FAST,
    )
    fill(table)
    return table


def keep(table: Table, target: Path) -> None:
    """The folder as it is, and what its versions hold."""
    told = {"history": [one.to_dict() for one in table.history()], "rows": {}}
    for version in range(1, table.version + 1):
        try:
            told["rows"][version] = scanned(table, version)
        except metatable.MetatableError:
            told["rows"][version] = None  # undone: its files are gone
    with zipfile.ZipFile(target.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(Path(table.uri).rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(table.uri).as_posix())
    text = json.dumps(told, ensure_ascii=False, indent=1)
    target.with_suffix(".json").write_text(text + "\n", "utf-8")


def main() -> None:
    [prefix] = sys.argv[1:]
    FOLDER.mkdir(exist_ok=True)
    for name in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            keep(make(name, Path(folder)), FOLDER / f"{prefix}-{name}")


if __name__ == "__main__":
    main()
