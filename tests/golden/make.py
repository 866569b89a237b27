"""Golden tables: a small table of every kind, as each format stored it, for ever.

    tables/<format>-<name>.zip.xz  the table's folder, every file of it (of format 1 a .zip)
    tables/<format>-<name>.json    what it holds: rows of each readable version, what came when,
                                   from format 2 on whole rows of the newest and column ids

`python -m tests.golden.make` writes those of the code at hand under the name of its writer's
format (`format6`); once a format has been released its files are never written again.
`test_golden_tables.py` reads, writes, compacts and verifies all of them with the newest code.
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import metatable
from metatable import AddColumn, DropColumn, RenameColumn, Table, WidenColumn
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import WRITER_FORMAT
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import dying
from tests.model import SCHEMA, Row, arrow, scanned
from tests.root_refs import SOME_REFS, root_refs

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

NESTED = pa.schema(
    [
        *SCHEMA,
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("x", pa.float64()), ("names", pa.map_(pa.string(), "i4"))])),
    ]
)


def rows(first: int, last: int, v: int, shift: int = 0, cities: int = 2) -> list[Row]:
    """Keys k00…, cities in turn."""
    return [
        {"id": f"k{number:02}", "city": CITIES[(number + shift) % cities], "v": v, "ts": v}
        for number in range(first, last)
    ]


def dies(table: Table, given: list[Row], where: str) -> None:
    """An upsert that dies at the first call (verb and path) that `where` matches."""
    with dying(table.uri, where) as store:
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


def resized(table: Table) -> None:
    """Buckets split and merged, written between, with a plan that waits."""
    grown(table)
    table.resize_buckets(split_above=1, merge_below=0)
    table.upsert(arrow(rows(4, 9, 4, cities=3)))
    table.resize_buckets(merge_below=1 << 20, most_partitions=1)
    table.resize_buckets(split_above=1, merge_below=0, most_partitions=1, schedule=True)


def nested(table: Table) -> None:
    """Columns inside of columns, which have ids too."""

    def filled(row: Row) -> Row:
        place = {"x": row["v"] / 2, "names": [(row["city"], row["v"])]}
        return row | {"tags": [row["id"], None], "place": place}

    for first, last, v in ((0, 9, 1), (6, 12, 2)):
        given = [filled(row) for row in rows(first, last, v)]
        table.upsert(pa.Table.from_pylist(given, schema=NESTED))
    table.delete(arrow(rows(0, 2, 0)))


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
    dies(table, rows(10, 18, 2), r"create .*/manifest/\d+\.json")
    recover(table)
    table.upsert(arrow(rows(12, 16, 3)))
    table.compact()


def dead(table: Table) -> None:
    """A writer died before its put, and nobody came since."""
    table.insert(arrow(rows(0, 15, 1)))
    dies(table, rows(10, 18, 2), r"create .*/manifest/\d+\.json")


def unfinished(table: Table) -> None:
    """A writer died after its put: Hudi's timeline lacks the commit."""
    table.insert(arrow(rows(0, 15, 1)))
    dies(table, rows(10, 18, 2), r"create .*/\d+\.commit")


def undone_half(table: Table) -> None:
    """A rollback died after its put."""
    table.insert(arrow(rows(0, 15, 1)))
    table.upsert(arrow(rows(10, 18, 2)))
    with dying(table.uri, r"delete .*\.parquet") as store:
        twin = metatable.open(table.uri, FAST)
        twin._store = store
        twin.rollback()


def planned(table: Table) -> None:
    """A plan lies there, and a compaction by another one died before it dropped that."""
    grown(table)
    table.compact(schedule=True, partitions=["column_stats"])
    plan = table.compact(schedule=True, major=True, partitions=["files", "record_index"]).plan
    with dying(table.uri, r"delete .*/plans/.*") as store:
        twin = metatable.open(table.uri, FAST)
        twin._store = store
        twin.compact(plan=plan)


def cleaned(table: Table) -> None:
    """Cleaned, its timeline archived, and written after it."""
    compacted(table)
    table.savepoint("kept", 5, note="what the books say")
    table.clean(versions=2, hours=0)
    table.upsert(arrow(rows(2, 5, 5, cities=3)))


def cleaned_half(table: Table) -> None:
    """A clean died over its first deletion."""
    _dying_clean(table, r"delete .*\.parquet")


def archived_half(table: Table) -> None:
    """A clean died while it took commits off Hudi's timeline."""
    _dying_clean(table, r"delete .*\.inflight")


def altered(table: Table) -> None:
    """Columns that were added, renamed, widened and dropped, and files of before and after."""
    grown(table)
    table.alter(AddColumn("x", pa.int32()), WidenColumn("v", pa.int64()))
    with_x = arrow(rows(3, 6, 5)).append_column("x", pa.array([1, 2, 3], pa.int32()))
    table.upsert(with_x)
    table.alter(RenameColumn("x", "y"), AddColumn("x", pa.string()), AddColumn("z", pa.float32()))
    table.upsert(arrow(rows(5, 8, 6)).append_column("y", pa.array([4, 5, 6], pa.int32())))
    table.alter(DropColumn("z"), WidenColumn("y", pa.int64()))


def _dying_clean(table: Table, where: str) -> None:
    compacted(table)
    with dying(table.uri, where) as store:
        twin = metatable.open(table.uri, FAST)
        twin._store = store
        twin.clean(versions=1, hours=0)


def index_changed(table: Table) -> None:
    """Two changes of the index; a rollback that goes back behind neither, and rows after it."""
    grown(table)
    metatable.adopt(table.uri, index="bloom", storage_options=FAST)
    table.upsert(arrow(rows(2, 5, 5, cities=3)))
    metatable.adopt(table.uri, index="record", storage_options=FAST)
    table.upsert(arrow(rows(4, 8, 6, cities=3)))
    table.rollback()
    table.upsert(arrow(rows(4, 9, 7, shift=1, cities=3)))


def adopted(table: Table) -> None:
    """Made by another writer, and written after it."""
    grown(table)
    shutil.rmtree(Path(table.uri, HOME))
    given = {**SHRUNK, "key_scope": "partition"}
    metatable.adopt(table.uri, index="record", options=given, storage_options=FAST)
    table.upsert(arrow(rows(2, 5, 5, cities=3)))


def logged(table: Table) -> None:
    """Logs of rows and of deletes, and a file written anew for a row that is older than a deleted
    one (merge-on-read)."""
    grown(table)
    table.upsert(arrow(rows(4, 20, 8)))
    table.delete(arrow(rows(6, 9, 0)).select(["id", "city"]))
    table.upsert(arrow(rows(7, 8, -5)))


def logs_compacted(table: Table) -> None:
    """A compaction of logs that waited while rows came, and was carried out."""
    logged(table)
    plan = table.compact_logs(ratio=0, schedule=True).plan
    table.upsert(arrow(rows(0, 12, 9)))
    table.compact_logs(plan=plan)
    table.upsert(arrow(rows(2, 6, 10)))


def resized_beside(table: Table) -> None:
    """Buckets that were split, while writers put rows there twice."""
    table.insert(arrow(rows(0, 16, 1)))
    how: dict[str, Any] = {"split_above": 1, "merge_below": 0, "writers": "dual_write"}
    plan = table.resize_buckets(**how, schedule=True).plan
    table.upsert(arrow(rows(4, 20, 8)))
    table.resize_buckets(plan=plan)


def opened_by_logs(table: Table) -> None:
    """File groups of logs alone, and some that were compacted since."""
    grown(table)
    table.compact_logs(partitions=f"city={CITIES[0]}")
    table.upsert(arrow(rows(0, 30, 9, cities=3)))
    table.delete(arrow(rows(7, 13, 0, cities=3)))


def refs_in_roots(table: Table) -> None:
    """References in the roots of some versions, and beside them in files, folded and not."""
    with root_refs(SOME_REFS + 3):
        grown(table)
        table.compact(partitions=["files"])
        table.upsert(arrow(rows(4, 6, 4, cities=3)))


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
    "record-planned": ("record", "global", planned, {}),
    "record-unfinished": ("record", "partition", unfinished, {}),
    "record-cleaned": ("record", "global", cleaned, {"timeline_commits": 3}),
    "bloom-cleaned-half": ("metadata_bloom", "partition", cleaned_half, {"timeline_commits": 2}),
    "record-archived-half": ("record", "partition", archived_half, {"timeline_commits": 2}),
    "bloom-partition": ("metadata_bloom", "partition", grown, {}),
    "bloom-global-compacted": ("metadata_bloom", "global", compacted, {}),
    "bloom-partition-rolled-back": ("metadata_bloom", "partition", rolled_back, {}),
    "bloom-undone-half": ("metadata_bloom", "global", undone_half, {}),
    "bloom-nested": ("metadata_bloom", "partition", nested, {}),
    "bloom-altered": ("metadata_bloom", "global", altered, {"hudi_readable": False}),
    "footers": ("bloom", "partition", grown, {}),
    "buckets": ("bucket", "partition", grown, {"bucket_count": 3}),
    "directories": (
        "bucket",
        "partition",
        resized,
        {"bucket_count": 2, "bucket_engine": "extendible_hashing"},
    ),
    "rings": (
        "bucket",
        "partition",
        resized,
        {"bucket_count": 2, "bucket_engine": "consistent_hashing"},
    ),
    "index-changed": ("metadata_bloom", "global", index_changed, {}),
    "adopted": ("bloom", "partition", adopted, {}),
    "logs": ("record", "global", logged, {"table_type": "mor"}),
    "logs-compacted": (
        "bucket",
        "partition",
        logs_compacted,
        {"bucket_count": 3, "table_type": "mor", "log_format": "parquet"},
    ),
    "resized-beside": (
        "bucket",
        "partition",
        resized_beside,
        {"bucket_engine": "consistent_hashing", "bucket_count": 1, "table_type": "mor"},
    ),
    "opened-by-logs": (
        "bucket",
        "partition",
        opened_by_logs,
        {"bucket_count": 2, "table_type": "mor", "new_groups": "log"},
    ),
    "refs-in-roots": ("record", "global", refs_in_roots, {"upkeep_files": 0}),
}
FORMATS = {
    "format1": (
        *("record-global", "record-partition-compacted", "record-plain-rolled-back"),
        *("record-withdrawn", "record-dead", "record-unfinished"),
        *("bloom-partition", "bloom-global-compacted", "bloom-partition-rolled-back"),
        "bloom-undone-half",
    ),
    "format2": (
        *("record-global", "record-partition-compacted", "record-dead"),
        *("bloom-nested", "bloom-global-compacted", "bloom-undone-half"),
    ),
    "format3": (
        *("record-partition-compacted", "record-plain-rolled-back", "bloom-global-compacted"),
        *("footers", "buckets"),
    ),
    "format4": ("record-unfinished", "bloom-undone-half", "record-planned"),
    "format5": ("record-cleaned", "bloom-cleaned-half", "record-archived-half"),
    "format6": ("index-changed", "adopted", "bloom-altered"),
    "format7": ("rings", "directories"),
    "format8": ("logs", "logs-compacted"),
    "format9": ("resized-beside",),
    "format10": ("opened-by-logs",),
    "format11": ("refs-in-roots",),
}
"""Which kinds there are of each."""


def make(name: str, folder: Path) -> Table:
    index, scope, fill, options = TABLES[name]
    shrunk = {word: one for word, one in SHRUNK.items() if word != "file_rows" or index != "bucket"}
    table = metatable.create(
        folder / "table",
        NESTED if fill is nested else SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        options={**shrunk, "key_scope": scope, **options},
        storage_options=FAST,
    )
    fill(table)
    return table


def whole(table: Table) -> list[Row]:
    """The newest rows with all of their columns, as JSON has them."""
    found: list[Row] = json.loads(json.dumps(table.scan().to_arrow().to_pylist()))
    return sorted(found, key=lambda row: (row["id"], row["city"]))


def column_ids(table: Table) -> dict[str, int]:
    store = Store(table.uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest).table_schema.ids()


def keep(table: Table, target: str) -> None:
    """The folder as it is, and what its versions hold."""
    told: dict[str, Any] = {"history": [one.to_dict() for one in table.history()], "rows": {}}
    for version in range(1, table.version + 1):
        try:
            told["rows"][version] = scanned(table, version)
        except metatable.MetatableError:
            told["rows"][version] = None  # undone, or not kept: its files are gone
    told |= {"newest": whole(table), "ids": column_ids(table)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(Path(table.uri).rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(table.uri).as_posix())
    (FOLDER / f"{target}.zip.xz").write_bytes(lzma.compress(packed.getvalue()))
    text = json.dumps(told, ensure_ascii=False, indent=1)
    (FOLDER / f"{target}.json").write_text(text + "\n", "utf-8")


def unpack(name: str, folder: Path) -> None:
    """Either kind of file."""
    path = FOLDER / f"{name}.zip"
    if path.exists():
        packed = path.read_bytes()
    else:
        packed = lzma.decompress(Path(f"{path}.xz").read_bytes())
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        file.extractall(folder)


def main() -> None:
    prefix = f"format{WRITER_FORMAT}"
    for name in FORMATS[prefix]:
        with tempfile.TemporaryDirectory() as folder:
            keep(make(name, Path(folder)), f"{prefix}-{name}")


if __name__ == "__main__":
    main()
