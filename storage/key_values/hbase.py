"""Cells in an HBase table, through its Thrift gateway (`hbase thrift start`).

    row        the key
    column     "e:" and the cell's name; one version of each
    region     as HBase has cut the table

The gateway's first interface, by `happybase`, which is loaded here and nowhere else. A batch of
gets or puts is one request; HBase answers when its log has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.storage.errors import StoreError, UsageError
from metatable.storage.key_values.protocol import CELLS

__all__ = ["HBaseValues"]

FAMILY = b"e:"
KEPT = {"bloomFilterType": "ROW", "blockCacheEnabled": True}
"""Settings of the family: HBase's defaults anywhere else, and not in this interface."""
TIMEOUT_S = 30
SCANNED_ROWS = 4096
PORT = 9090


class HBaseValues:
    """`address`: host and port of a gateway."""

    def __init__(self, address: str, table: str) -> None:
        try:
            import happybase  # noqa: PLC0415  (only who uses it needs it)
            import Hbase_thrift  # noqa: PLC0415
        except ImportError as error:
            raise UsageError(
                "this index needs the package happybase: pip install 'metatable[hbase]'",
                found=str(error),
            ) from error
        self._thrift, self._address, self._table = Hbase_thrift, address, table.encode()
        host, _, port = address.partition(":")
        with self._translating():
            self._connection = happybase.Connection(
                host, int(port or PORT), timeout=TIMEOUT_S * 1000
            )
        self._client, self._found = self._connection.client, False

    def get_many(self, keys: pa.Array) -> pa.RecordBatch:
        with self._translating():
            if not len(keys) or not self._is_there():
                return _cells([])
            return _cells(self._client.getRows(self._table, keys.to_pylist(), {}))

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array) -> None:
        column, mutation, batch = FAMILY + name, self._thrift.Mutation, self._thrift.BatchMutation
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        rows = [batch(key, [mutation(column=column, value=value)]) for key, value in pairs]
        with self._translating():
            if not self._is_there():
                self._create()
            self._client.mutateRows(self._table, rows, {})

    def delete_many(self, keys: pa.Array, names: pa.Array) -> None:
        mutation, batch = self._thrift.Mutation, self._thrift.BatchMutation
        pairs = zip(keys.to_pylist(), names.to_pylist(), strict=True)
        rows = [batch(key, [mutation(column=FAMILY + name, isDelete=True)]) for key, name in pairs]
        with self._translating():
            self._client.mutateRows(self._table, rows, {})

    def scan(self, first: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        asked = self._thrift.TScan(startRow=first, stopRow=end, caching=SCANNED_ROWS)
        with self._translating():
            if not self._is_there():
                return
            scanner = self._client.scannerOpenWithScan(self._table, asked, {})
        try:
            while True:
                with self._translating():
                    rows = self._client.scannerGetList(scanner, SCANNED_ROWS)
                if not rows:
                    return
                yield _cells(rows)
        finally:
            with suppress(Exception):  # it goes with the connection, or with time
                self._client.scannerClose(scanner)

    def regions(self) -> list[bytes]:
        with self._translating():
            if not self._is_there():
                return [b""]
            told = self._client.getTableRegions(self._table)
        return sorted({b"", *(one.startKey for one in told)})

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()

    def _is_there(self) -> bool:
        """Asked once a connection, and before anything else: of a batch for a table that is not
        there the gateway gives no answer at all (HBase 2.6.1: its handler dies)."""
        self._found = self._found or self._table in self._client.getTableNames()
        return self._found

    def _create(self) -> None:
        family = self._thrift.ColumnDescriptor(name=FAMILY, maxVersions=1, **KEPT)
        try:
            self._client.createTable(self._table, [family])
        except (self._thrift.AlreadyExists, self._thrift.IOError):
            if not self._is_there():  # else another task was first, and HBase says so by either
                raise

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Errors of transport and of the gateway: the next try may go through."""
        from thriftpy2.thrift import TException  # noqa: PLC0415

        try:
            yield
        except self._thrift.IllegalArgument as error:
            raise UsageError("HBase refuses the request", found=_text(error)) from error
        except (TException, OSError, EOFError) as error:
            raise StoreError(
                "HBase did not answer", address=self._address, found=_text(error)
            ) from error


def _cells(rows: list[Any]) -> pa.RecordBatch:
    """Cells of the rows as thriftpy2 has made objects of them: the one loop there has to be."""
    counts = np.array([len(row.columns) for row in rows], np.int64)
    keys = pa.array([row.row for row in rows], pa.binary())
    columns = pa.array([name for row in rows for name in row.columns], pa.binary())
    values = [cell.value for row in rows for cell in row.columns.values()]
    coded = columns.dictionary_encode()
    told = [name.removeprefix(FAMILY) for name in coded.dictionary.to_pylist()]
    names = pa.array(told, pa.binary()).take(coded.indices)
    of_row = pa.array(np.repeat(np.arange(len(rows)), counts))
    return pa.RecordBatch.from_arrays(
        [keys.take(of_row), names, pa.array(values, pa.binary())], schema=CELLS
    )


def _text(error: BaseException) -> str:
    said = getattr(error, "message", None) or str(error) or type(error).__name__
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.splitlines()[0][:300]
