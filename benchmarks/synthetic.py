"""Tables that are all metadata: many files are listed, and none of them is there.

Ours go through our own commit: slices are told to the metadata partitions as if they had been
written, entries become runs, runs HFiles, and one put publishes them. Peers' are written the way
their writers write them, from the same description of the same files:

    place     int64    in file i all of [1000 i, 1000 i + 999], so that a range keeps a few files
    seen      int64    any value, in every file
    day       string   the partition: file i is in day i mod 100
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

import metatable
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.commit_metadata import CommitMetadata
from metatable.engine.local import LocalEngine
from metatable.index import create_index
from metatable.index.build import build_hfiles
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.hfiles.entry_files import Run, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.partitions.column_stats import RECORD_KEY
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.written import WrittenSlice, entries_of
from metatable.storage.counters import Counters
from metatable.storage.store import Store

__all__ = [
    "DAYS",
    "FILE_BYTES",
    "FILE_ROWS",
    "FILE_SPAN",
    "SCHEMA",
    "add_files",
    "delta_action",
    "make_delta",
    "make_iceberg",
    "make_ours",
]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("place", pa.int64()),
        pa.field("seen", pa.int64()),
    ]
)

DAYS = 100
FILE_SPAN = 1000
FILE_ROWS = 100_000
FILE_BYTES = 20_000_000
_BATCH_FILES = 20_000


def _day(number: int) -> str:
    return f"d{number % DAYS:02d}"


def _bounds(number: int) -> Mapping[str, tuple[Any, Any]]:
    return {
        "id": (f"{number:012d}-a", f"{number:012d}-z"),
        "day": (_day(number), _day(number)),
        "place": (number * FILE_SPAN, number * FILE_SPAN + FILE_SPAN - 1),
        "seen": (0, 1 << 40),
    }


# Ours


def make_ours(folder: Path, files: int, index: str = "record") -> None:
    """A table of `files` file groups, of one commit."""
    metatable.create(
        folder,
        SCHEMA,
        key="id",
        partition_by="day",
        index=index,
        options={"hive_style": False, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )
    add_files(Store(folder, {"durable": "false"}), range(files))


def add_files(store: Store, numbers: Sequence[int]) -> dict[str, int]:
    """Commit these files; what it counted."""
    counters = Counters()
    store = store.counting(counters)
    with Transaction.begin(store) as transaction:
        instant = transaction.start()
        transaction.begin_files()
        options = transaction.snapshot.options
        engine = LocalEngine(counters=counters)
        scratch = engine.scratch(store)
        partitions = partitions_of(options, create_index(options))
        runs = list(_runs(scratch, partitions, numbers, instant))
        adds, files = build_hfiles(engine, store, scratch, partitions, runs, transaction.owner)
        body = CommitMetadata(operation="INSERT", stats=(), extra={}).encode()
        steps = (transaction.stage(body),)
        updates = (AddFiles(adds),)
        transaction.publish(Change("insert", instant, updates=updates, steps=steps, files=files))
    return dict(counters)


def _runs(
    scratch: Store, partitions: Sequence[MetadataPartition], numbers: Sequence[int], instant: str
) -> Iterator[Run]:
    for at in range(0, len(numbers), _BATCH_FILES):
        written = [_written(one, instant) for one in numbers[at : at + _BATCH_FILES]]
        for name, entries in entries_of(written, partitions):
            if entries.num_rows:
                yield write_run(scratch, name, entries)


def _written(number: int, instant: str) -> WrittenSlice:
    """A slice of which the first and the last key are known; record indexes are told of none."""
    file_id = f"{number:08d}-{instant}-0"
    made = DataFile(_day(number), file_id, "0-0-0", instant, FILE_BYTES, FILE_ROWS)
    return WrittenSlice(
        made=FileSlice(made),
        keys=pa.array(_bounds(number)["id"]),
        stats=tuple(_stats_of(number)),
    )


def _stats_of(number: int) -> Iterator[ColumnStats]:
    bounds = _bounds(number)
    for column in (RECORD_KEY, *SCHEMA.names):
        name = "id" if column == RECORD_KEY else column
        low, high = bounds[name]
        kind = SCHEMA.field(name).type
        yield ColumnStats(column, kind, low, high, 0, FILE_ROWS, FILE_BYTES, FILE_BYTES)


# Delta


def delta_action(number: int) -> dict[str, Any]:
    """The `add` of a file, as Delta's log has it."""
    bounds = {name: pair for name, pair in _bounds(number).items() if name != "day"}
    stats = {
        "numRecords": FILE_ROWS,
        "minValues": {name: low for name, (low, _) in bounds.items()},
        "maxValues": {name: high for name, (_, high) in bounds.items()},
        "nullCount": dict.fromkeys(bounds, 0),
    }
    return {
        "path": f"day={_day(number)}/part-{number:08d}.parquet",
        "size": FILE_BYTES,
        "partitionValues": {"day": _day(number)},
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def make_delta(folder: Path, files: int, deltalake: ModuleType) -> None:
    """A Delta table with a checkpoint."""
    table = deltalake.DeltaTable.create(
        folder, deltalake.Schema.from_arrow(SCHEMA), partition_by=["day"]
    )
    log = folder / "_delta_log" / f"{1:020d}.json"
    lines = (json.dumps({"add": delta_action(number)}) for number in range(files))
    log.write_text("\n".join([*lines, json.dumps({"commitInfo": {"operation": "WRITE"}})]) + "\n")
    table = deltalake.DeltaTable(folder)
    table.create_checkpoint()


# Iceberg

_NAMES = SCHEMA.names


def make_iceberg(folder: Path, files: int) -> None:
    """An Iceberg table of one snapshot; `location` says where its metadata is."""
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  (a peer, not always there)
    from pyiceberg.conversions import to_bytes  # noqa: PLC0415
    from pyiceberg.manifest import DataFile as Listed  # noqa: PLC0415
    from pyiceberg.manifest import DataFileContent, FileFormat  # noqa: PLC0415
    from pyiceberg.partitioning import PartitionField, PartitionSpec  # noqa: PLC0415
    from pyiceberg.schema import Schema  # noqa: PLC0415
    from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415
    from pyiceberg.typedef import Record  # noqa: PLC0415
    from pyiceberg.types import LongType, NestedField, StringType  # noqa: PLC0415

    warehouse = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    catalog = SqlCatalog("bench", **warehouse)
    catalog.create_namespace("bench")
    kinds = {name: LongType() if name in ("place", "seen") else StringType() for name in _NAMES}
    ids = {name: place for place, name in enumerate(_NAMES, 1)}
    schema = Schema(*(NestedField(ids[name], name, kinds[name]) for name in _NAMES))
    spec = PartitionSpec(PartitionField(ids["day"], 1000, IdentityTransform(), "day"))
    table = catalog.create_table("bench.files", schema, partition_spec=spec)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(files):
            bounds = _bounds(number)
            low, high = (
                {ids[name]: to_bytes(kinds[name], pair[side]) for name, pair in bounds.items()}
                for side in (0, 1)
            )
            append.append_data_file(
                Listed.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"file://{folder}/data/day={_day(number)}/{number:08d}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=Record(_day(number)),
                    record_count=FILE_ROWS,
                    file_size_in_bytes=FILE_BYTES,
                    lower_bounds=low,
                    upper_bounds=high,
                    null_value_counts=dict.fromkeys(low, 0),
                    value_counts=dict.fromkeys(low, FILE_ROWS),
                    spec_id=table.metadata.default_spec_id,
                )
            )
    (folder / "location").write_text(catalog.load_table("bench.files").metadata_location)
