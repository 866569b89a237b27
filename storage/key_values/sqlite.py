"""Cells in a file of SQLite: for those who want no server, and for tests.

    table  "<name>"  (key BLOB, name BLOB, value BLOB), PRIMARY KEY (key, name), WITHOUT ROWID
           each capital letter of the name as "^" and the small one: SQLite takes both for the same

The file is for processes of one machine (its log is shared memory): not for a file system of
others. Where it was deleted, and made again, who has opened it before is told to open it anew.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from metatable.storage.errors import CorruptError, StoreError
from metatable.storage.key_values.protocol import CELLS

__all__ = ["SqliteValues"]

PATIENCE_S = 30.0
"""So long a writer waits for another one."""

PARAMETERS = 900
"""How many a statement has at most: older builds of SQLite take 999."""

SCANNED_ROWS = 4096


class SqliteValues:
    """`path`: of the file, made if it is not there."""

    def __init__(self, path: str, table: str) -> None:
        self._path, self._table = path, f'"{_told_apart(table)}"'
        with self._translating():
            self._sql = sqlite3.connect(
                path, PATIENCE_S, isolation_level=None, check_same_thread=False
            )
            self._file = _file_at(path)
            self._sql.execute("PRAGMA journal_mode = WAL")
            self._sql.execute("PRAGMA synchronous = FULL")
            self._rename_older(table)
            self._sql.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (key BLOB, name BLOB, value BLOB,"
                " PRIMARY KEY (key, name)) WITHOUT ROWID"
            )

    def _rename_older(self, table: str) -> None:
        """Earlier releases called it as it is."""
        named = self._rows("SELECT name FROM sqlite_master WHERE type = 'table'", [])
        own = _told_apart(table)
        if own != table and (table,) in named and (own,) not in named:
            with suppress(sqlite3.OperationalError):  # another process was first
                self._sql.execute(f'ALTER TABLE "{table}" RENAME TO "{own}"')

    def get_many(self, keys: pa.Array) -> pa.RecordBatch:
        asked, found = keys.to_pylist(), []
        for start in range(0, len(asked), PARAMETERS):
            some = asked[start : start + PARAMETERS]
            marks = ",".join("?" * len(some))
            found += self._rows(
                f"SELECT key, name, value FROM {self._table} WHERE key IN ({marks})", some
            )
        return self._cells(found)

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array) -> None:
        rows = zip(keys.to_pylist(), [name] * len(keys), values.to_pylist(), strict=True)
        self._change(f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?)", [*rows])

    def delete_many(self, keys: pa.Array, names: pa.Array) -> None:
        rows = zip(keys.to_pylist(), names.to_pylist(), strict=True)
        self._change(f"DELETE FROM {self._table} WHERE key = ? AND name = ?", [*rows])

    def scan(self, first: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        border, bounds = ("", []) if end is None else (" AND key < ?", [end])
        comparison = ">="
        while True:
            keys = self._rows(
                f"SELECT DISTINCT key FROM {self._table} WHERE key {comparison} ?{border}"
                f" ORDER BY key LIMIT {SCANNED_ROWS}",
                [first, *bounds],
            )
            if not keys:
                return
            rows = self._rows(
                f"SELECT key, name, value FROM {self._table} WHERE key BETWEEN ? AND ?"
                " ORDER BY key, name",
                [keys[0][0], keys[-1][0]],
            )
            if rows:  # else another process has deleted all of them meanwhile
                yield self._cells(rows)
            first, comparison = keys[-1][0], ">"

    def regions(self) -> list[bytes]:
        return [b""]

    def close(self) -> None:
        self._sql.close()

    def _rows(self, statement: str, given: Sequence[bytes]) -> list[tuple[Any, ...]]:
        with self._translating():
            found = self._sql.execute(statement, given).fetchall()
        self._check_file()
        return found

    def _change(self, statement: str, rows: Sequence[tuple[bytes, ...]]) -> None:
        with self._translating():
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                self._sql.executemany(statement, rows)
                self._sql.execute("COMMIT")
            except BaseException:
                self._sql.execute("ROLLBACK")
                raise
        self._check_file()

    def _check_file(self) -> None:
        """Raises StoreError where what was just done went with its file: SQLite goes on with one
        that was deleted as long as it is open."""
        if _file_at(self._path) != self._file:
            raise StoreError("the file of SQLite is not the one that was opened", path=self._path)

    def _cells(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """Raises CorruptError: SQLite puts values of any type into a column of bytes."""
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        what = "a cell in SQLite holds other things than bytes"
        try:
            arrays = [pa.array(column, pa.binary()) for column in columns]
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise CorruptError(what, path=self._path, found=str(error)) from error
        if any(one.null_count for one in arrays):
            raise CorruptError(what, path=self._path, found="null")
        return pa.RecordBatch.from_arrays(arrays, schema=CELLS)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError("SQLite did not do it", path=self._path, found=str(error)) from error
        except sqlite3.DatabaseError as error:
            raise CorruptError("not a file of SQLite", path=self._path, found=str(error)) from error


def _file_at(path: str) -> tuple[int, int] | None:
    """What tells a file from others: one that is open keeps its number though it was deleted."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _told_apart(table: str) -> str:
    return "".join(f"^{sign.lower()}" if sign.isupper() else sign for sign in table)
