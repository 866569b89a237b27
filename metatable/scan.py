"""Scan: rows of one version, column by column.

A scan reads the current slices of its version and nothing else. It holds one file at a time
for each worker; `to_batches` streams, `to_arrow` gathers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from metatable.data.schema import META_FIELDS
from metatable.data.slice_reader import read_slice
from metatable.data.slices import DataFile, FileSlice
from metatable.metadata.column_stats import row_counts
from metatable.metadata.files import slices_of_table
from metatable.metadata.manifest import load_newest
from metatable.metadata.snapshot import Snapshot
from metatable.storage.errors import CorruptError, StaleError, UsageError

__all__ = ["Scan"]


class Scan:
    """Rows of a version; runs when it is asked for them."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[str] | None = None) -> None:
        self._snapshot = snapshot
        self.schema = _chosen(snapshot.schema, columns)

    def files(self) -> list[DataFile]:
        """The data files that hold the rows, by partition path and file id."""
        return slices_of_table(self._snapshot)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a file at a time."""
        for file in self.files():
            yield from self._read(file).to_batches()

    def to_arrow(self) -> pa.Table:
        """The rows as one table. Raises StaleError where the version's files are gone."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def count(self) -> int:
        """How many rows there are, from the metadata; no data file is opened."""
        counts = row_counts(self._snapshot, self.files())
        if (counts < 0).any():
            raise CorruptError("a live slice has no statistics", path=self._snapshot.store.uri)
        return int(counts.sum())

    def _read(self, file: DataFile) -> pa.Table:
        store = self._snapshot.store
        try:
            return read_slice(store, FileSlice(file), self.schema)
        except CorruptError as error:
            newest = load_newest(store)
            if newest is not None and newest.version > self._snapshot.version:
                raise StaleError(
                    "a file of this version is gone: open the table again",
                    path=file.path,
                    version=self._snapshot.version,
                    newest=newest.version,
                ) from error
            raise


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    if not columns:
        raise UsageError("a scan needs a column", expected=schema.names)
    every = {field.name: field for field in (*META_FIELDS, *schema)}
    for name in columns:
        if name not in every:
            raise UsageError("no such column", column=name, expected=list(every))
    return pa.schema([every[name] for name in columns])
