"""What is read of file slices: which columns, and what decides between rows of one key.

A base file has its columns by the ids, or the names, that the table's schema tells; where logs lie
on it, the key and the ordering column are needed besides those that are asked for. All of this is
the same for every slice of a call, so it travels as one value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.columns.schema_text import TableSchema

__all__ = ["KEY_FIELD", "ReadColumns"]

KEY_FIELD = pa.field(KEY_COLUMN, pa.string())
"""Hudi's own column of record keys, as it is read."""


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns that are asked of slices, and how their rows are told apart."""

    schema: pa.Schema
    """Exactly the columns of the answer, in this order; meta columns where they are named."""
    table: TableSchema | None
    """The table's columns, by whose ids files are read. None: files are read by names alone, as
    where only meta columns are asked for, or a table has no ids."""
    ordering: str | None
    """The table's ordering column: of two rows of one key the greater value lives, whether this
    column is asked for or not. None: the row that came last."""
    key: str = KEY_COLUMN
    """The column that has the texts of the record keys: Hudi's own, or one of those asked for that
    has the same texts (`key_texts.key_column`), so that Hudi's need not be read."""

    @classmethod
    def of_keys(cls, table: TableSchema | None, ordering: str | None) -> ReadColumns:
        """The record keys alone."""
        return cls(pa.schema([KEY_FIELD]), table, ordering)

    @property
    def deciding(self) -> pa.Schema:
        """The columns that are asked for, and behind them those that decide which row of a key
        lives: what has to be read where logs are merged."""
        needed = [KEY_FIELD] if self.key == KEY_COLUMN else []
        if self.ordering is not None and self.table is not None:
            needed.append(self.table.arrow.field(self.ordering))
        names = self.schema.names
        return pa.schema([*self.schema, *(one for one in needed if one.name not in names)])

    def with_key(self) -> ReadColumns:
        """The same with Hudi's own column of keys, in front where it is not asked for already."""
        asked = KEY_COLUMN in self.schema.names
        schema = self.schema if asked else pa.schema([KEY_FIELD, *self.schema])
        return replace(self, schema=schema, key=KEY_COLUMN)
