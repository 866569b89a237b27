"""What a commit is given: its rows, their columns, and what they are sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema_changes import needs_rewriting, with_new_columns
from metatable.data.columns.schema_text import TableSchema
from metatable.data.hoodie.operations import DELETE, DELETE_PARTITION
from metatable.data.keys.as_given import given_keys, given_rows
from metatable.data.keys.sort_texts import check_sortable
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.errors import UsageError
from metatable.write.bent_logs import bent_slices

__all__ = ["Given", "adopted_rows", "check_sorting", "no_rows"]


def no_rows(engine: Engine[Any], snapshot: Snapshot) -> Any:
    """What comes where partitions are deleted: it has whatever columns the table has."""
    return engine.rows(snapshot.schema.empty_table())


def adopted_rows(
    engine: Engine[Any], snapshot: Snapshot, data: Any, operation: str, evolve: bool
) -> Any:
    """What a user gives, as the engine's rows."""
    if operation == DELETE_PARTITION:
        return no_rows(engine, snapshot)
    if operation == DELETE:
        return engine.rows(given_keys(data, snapshot.options, snapshot.schema))
    return engine.rows(given_rows(data, snapshot.schema, evolve))


@dataclass(frozen=True, slots=True)
class Given:
    """The columns of the rows as they were given; `evolve`: the table gets those that it lacks."""

    schema: pa.Schema
    evolve: bool

    def columns(self, snapshot: Snapshot) -> TableSchema:
        """What the table is to have. Raises UsageError."""
        if not self.evolve:
            return snapshot.table_schema
        made = with_new_columns(snapshot.table_schema, self.schema, snapshot.options)
        if needs_rewriting(made, snapshot.options):
            raise UsageError(
                "files hold another column of the name of a new one: alter(AddColumn(…)) first",
                found=sorted({*made.arrow.names} - {*snapshot.schema.names}),
            )
        if bent_slices(snapshot, made):
            raise UsageError(
                "logs lack a new field of a struct, or hold rows of their own and lack a column"
                " beside nested ones, and Hudi's readers take no such column from them:"
                " alter(AddColumn(…)) first",
                found=sorted({*made.ids()} - {*snapshot.table_schema.ids()}),
            )
        return made


def check_sorting(snapshot: Snapshot, sort_by: Sequence[str]) -> None:
    """Raises UsageError where rows cannot be sorted by these columns."""
    check_sortable(snapshot.schema, sort_by)
    index = create_index(snapshot.options)
    if index.placement(snapshot) is not None:
        raise UsageError(
            "the index tells which file a row goes to: no order of other columns does",
            sort_by=list(sort_by),
            found=f"index {index.name!r}",
        )
