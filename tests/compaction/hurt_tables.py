"""Tables to hurt: one of each index with a history, made once and copied, and `Hurt`, who
reaches behind the back of such a copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.reading.slice_reader import stream_left
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.commit import publish
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.steps import announce
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.written import WrittenSlice, facts_of_stored, stats_columns
from metatable.storage.store import Store
from tests.long import LONG
from tests.model import SCHEMA, Row, arrow, listed, scanned
from tests.root_refs import SOME_REFS, root_refs
from tests.shared import made_once

FAST = {"durable": "false"}
INDEXES = ("record", "metadata_bloom", "bloom", "bucket")
LOGGED = ("record-avro", "metadata_bloom-parquet", "bloom-avro", "bucket-parquet")
"""Merge-on-read, with logs of this format."""
TABLES = (*INDEXES, *LOGGED)


def rows(first: int, last: int, v: int) -> list[Row]:
    return [
        {"id": f"k{one:02}", "city": ("ny", "sf")[one % 2], "v": v, "ts": one}
        for one in range(first, last)
    ]


def made(uri: str, index: str, **options: Any) -> Table:
    """Five commits over two partitions, one compaction, one commit undone."""
    index, log_format, new_groups = [*index.split("-"), "", ""][:3]
    more: dict[str, Any] = {"bucket_count": 2} if index == "bucket" else {"file_rows": 5}
    if log_format:
        more |= {"table_type": "mor", "log_format": log_format}
        more |= {"new_groups": new_groups or "base"}
    table = metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={"hfile_codec": "none", "key_scope": "partition"} | more | options,
        storage_options=FAST,
    )
    table.insert(arrow(rows(0, 16, 1)))
    table.upsert(arrow(rows(4, 8, 2)))
    table.compact(major=True)
    table.upsert(arrow(rows(14, 20, 3)))
    table.delete(arrow(rows(0, 2, 0)))
    table.upsert(arrow(rows(6, 9, 9)))
    table.rollback()
    table.upsert(arrow(rows(3, 5, 4)))
    return table


def once(
    tables: pytest.TempPathFactory, make: Callable[[str, str], object]
) -> Callable[[str], Path]:
    """The table of an index, which nobody changes, made (where, index) when it is first asked. Some
    of its pages are files."""

    def made_with_pages(index: str, uri: str) -> None:
        with root_refs(SOME_REFS):
            make(uri, index)

    name = make.__name__
    return lambda index: made_once(tables, f"{name}-{index}", partial(made_with_pages, index))


@dataclass
class Hurt:
    """A copy of a sound table, and ways to hurt it behind its back."""

    uri: str

    def __post_init__(self) -> None:
        self.table = metatable.open(self.uri, FAST)
        self.store = Store(self.uri, FAST)

    @property
    def newest(self) -> Manifest:
        found = load_newest(self.store)
        assert found is not None
        return found

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.store, self.newest)

    def files(self) -> list[FileSlice]:
        return list(self.snapshot.slices())

    def path(self, path: str) -> Path:
        return Path(self.uri, path)

    def rows_of(self, file: FileSlice) -> set[str]:
        return self.rows_left(file.files)

    def keys_of(self, file: FileSlice) -> pa.Array:
        return pa.array(sorted(self.rows_of(file)))

    def rows_left(self, files: Sequence[DataFile | LogFile]) -> set[str]:
        """Ids in these files of a slice, and in no others."""
        asked, columns = pa.schema([SCHEMA.field("id")]), self.snapshot.table_schema
        pieces = stream_left(self.store, files, ReadColumns(asked, columns, None))
        return {one for piece in pieces for one in piece["id"].to_pylist()}

    def written(self, file: FileSlice, **told: Any) -> WrittenSlice:
        columns = stats_columns(self.snapshot.table_schema, self.table.options)
        keys, stats = facts_of_stored(self.store, file, columns, self.snapshot.table_schema)
        return WrittenSlice(FileSlice(file.base), **({"keys": keys, "stats": stats} | told))

    def enter(self, partition: MetadataPartition, entries: pa.Table) -> None:
        """Publish entries of one partition, and nothing else."""
        owner = Owner.new("compact")
        ref = partition.store(self.store, 0, partition.space, entries, owner)
        assert ref is not None
        change = Change("compact", updates=(AddFiles({partition.name: (ref,)}),))
        announce(self.store, publish(self.store, self.newest, change, Owner.new("compact")))

    def every(self, partition: MetadataPartition) -> pa.Table:
        held = self.snapshot.scan(partition).read_all()
        places = pa.array(partition.places(held["key"].combine_chunks()), pa.int64())
        return held.add_column(0, "place", places)

    def bury(self, partition: MetadataPartition, entries: pa.Table) -> None:
        """Publish tombstones for these entries."""
        kind = partition.schema.field("value").type
        gone = pa.nulls(entries.num_rows, kind)
        self.enter(partition, entries.set_column(2, pa.field("value", kind), gone))

    def alter(self, partition: MetadataPartition, value: bytes) -> None:
        """Publish another value of the first entry."""
        first = self.every(partition).slice(0, 1)
        self.enter(partition, first.set_column(2, "value", pa.array([value], pa.binary())))

    def hfiles(self, partition: str) -> list[Path]:
        return [self.path(ref.path) for ref in self.snapshot.refs(partition)]

    def pages(self) -> list[Path]:
        return [self.path(page.path) for page in self.newest.page_files]

    @property
    def action(self) -> str:
        return "deltacommit" if self.table.options.has_logs else "commit"

    def commits(self) -> list[Path]:
        return sorted(Path(self.uri, ".hoodie").glob(f"*.{self.action}"))

    def state(self, suffix: str) -> str:
        """The end of a name on the timeline, of which a table's own kind of commit is left out."""
        if suffix == ".inflight" and self.action == "commit":
            return suffix
        return f".{self.action}{suffix}"

    def aged(self, *names: str, body: bytes = b"") -> None:
        """Files of Hudi's timeline that nobody has touched for a day."""
        for name in names:
            path = self.path(f".hoodie/{name}")
            path.write_bytes(body)
            os.utime(path, (path.stat().st_mtime - 86_400,) * 2)


Lost = set[str] | None
"""Ids of rows that are gone."""


def writable(hurt: Hurt, held: dict[str, tuple[Any, ...]]) -> None:
    """Updates, inserts and deletes go where they should."""
    told = hurt.table.upsert(arrow(rows(10, 22, 7)))
    known = [key for key in held if "k10" <= key < "k22"]
    if not hurt.table.options.has_logs:
        assert (told.updated, told.inserted) == (len(known), 12 - len(known))
    held |= {row[0]: row for row in listed(rows(10, 22, 7))}
    assert scanned(hurt.table) == sorted(held.values())
    if LONG:
        assert hurt.table.delete(arrow(rows(18, 22, 0))).deleted in (4, None)
        assert hurt.table.verify().findings == ()


def contents(uri: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(uri)): path.read_bytes()
        for path in sorted(Path(uri).rglob("*"))
        if path.is_file()
    }
