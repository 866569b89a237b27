"""The smallest writer of a Hudi table from the parts of metatable.data, for tests alone.

No index, no manifest: it takes an instant, writes marker, files and commit in Hudi's order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files.base_file_writer import write_base_file
from metatable.data.base_files.meta_columns import add_meta_columns, with_file_name
from metatable.data.columns.avro_schema import to_avro
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import align, normal, with_meta_columns
from metatable.data.config.options import Options
from metatable.data.file_groups import slices
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.commit_metadata import CommitMetadata, WriteStat
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.hoodie.timeline import Timeline, next_instant
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.reading.slice_reader import read_slice
from metatable.storage.store import Store
from tests.data.merging import Merged, merge_rows


@dataclass
class HudiTable:
    """A table whose file groups, one a partition, are kept in a dict."""

    store: Store
    options: Options
    schema: pa.Schema
    groups: dict[str, DataFile]
    last: str | None = None

    @classmethod
    def create(cls, uri: str, schema: pa.Schema, options: Options) -> HudiTable:
        store = Store(uri, {"durable": "false"})
        schema = normal(schema)
        store.put(PROPERTIES_PATH, TableProperties.of(options, schema).encode())
        return cls(store, options, schema, {})

    def begin(self) -> str:
        """Take the next instant."""
        self.last = next_instant(after=self.last)
        timeline = Timeline(self.store)
        assert timeline.request(self.last)
        assert timeline.inflight(self.last)
        return self.last

    def finish(self, operation: str, stats: list[WriteStat], replaced: object = None) -> None:
        """Complete the instant taken last."""
        assert self.last is not None
        extra = {"schema": json.dumps(to_avro(self.schema, self.options.name))}
        commit = CommitMetadata(operation, tuple(stats), extra)
        assert Timeline(self.store).complete(self.last, commit.encode())
        markers = self.store.list(slices.markers_folder(self.last), recursive=True)
        self.store.delete(listed.path for listed in markers)

    def upsert(self, rows: pa.RecordBatch, operation: str = "UPSERT") -> str:
        """Put rows; their partitions never change here."""
        rows = align(rows, self.schema)
        generator = KeyGenerator(self.options, self.schema)
        keys, paths = generator.record_keys(rows), generator.partition_paths(rows)
        instant = self.begin()
        stats = []
        for task, path in enumerate(pc.unique(paths).to_pylist()):
            mine = pc.equal(paths, path)
            incoming = pa.Table.from_batches([rows.filter(mine)])
            stats.append(self.write(path, incoming, keys.filter(mine), task))
        self.finish(operation, stats)
        return instant

    def delete(self, path: str, keys: list[str]) -> str:
        """Take keys out of one partition."""
        instant = self.begin()
        gone = pa.array(keys, pa.string())
        nothing = self.schema.empty_table()
        stats = [self.write(path, nothing, pa.array([], pa.string()), 0, gone)]
        self.finish("DELETE", stats)
        return instant

    def write(
        self,
        path: str,
        incoming: pa.Table,
        keys: pa.Array,
        task: int,
        deletes: pa.Array | None = None,
    ) -> WriteStat:
        """One new slice; its instant is the one taken last."""
        assert self.last is not None
        old = self.groups.get(path)
        file_id = old.file_id if old else slices.new_file_id()
        new = DataFile(path, file_id, f"{task}-0-0", self.last)
        merged = self.merged(old, add_meta_columns(incoming, keys, new, task), deletes)
        where = slices.partition_metadata_path(path)
        self.store.create(where, slices.partition_metadata(self.last, path))
        assert self.store.create(
            slices.marker_path(new, new.instant, "MERGE" if old else "CREATE"), b""
        )
        table = with_file_name(merged.table, new.name)
        size, created = write_base_file(self.store, new, table, options=self.options)
        assert created
        new = replace(new, size_bytes=size, row_count=table.num_rows)
        self.groups[path] = new
        return WriteStat.of(new, old.instant if old else None, merged.counts)

    def merged(self, old: DataFile | None, rows: pa.Table, deletes: pa.Array | None) -> Merged:
        schema = with_meta_columns(self.schema)
        stored = (
            read_slice(self.store, FileSlice(old), ReadColumns(schema, None, None))
            if old
            else schema.empty_table()
        )
        gone = pa.array([], pa.string()) if deletes is None else deletes
        return merge_rows(stored, rows, gone, self.options.ordering)
