"""Rows and keys as users give them, before an engine adopts them.

pandas has columns beside its columns, the levels of an index. A level whose name is a column of the
table, or with `evolve` any named one, is taken as a column; others are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from metatable.data.columns.schema import KEY_COLUMN, PATH_COLUMN

__all__ = ["given_keys", "given_rows"]


def given_rows(data: Any, schema: pa.Schema, evolve: bool = False) -> Any:
    """Rows to be written to a table of these columns. `evolve`: unknown columns are added to it."""
    return _with_index(data, None if evolve else schema.names)


def given_keys(data: Any, schema: pa.Schema) -> Any:
    """Rows whose keys are asked for, or deleted, in a table of these columns."""
    return _with_index(data, [*schema.names, KEY_COLUMN, PATH_COLUMN])


def _with_index(data: Any, known: Collection[str] | None) -> Any:
    """A pandas DataFrame with these levels of its index as columns (None: all that have a name);
    anything else as it is."""
    if not (_is_of("pandas", data) and hasattr(data, "columns")):
        return data
    made = data
    for place, name in enumerate(data.index.names):
        if isinstance(name, str) and (known is None or name in known) and name not in made.columns:
            made = data.copy(deep=False) if made is data else made
            made[name] = data.index.get_level_values(place)
    return made


def _is_of(library: str, data: Any) -> bool:
    """Whether it is an object of this library's; told without loading the library."""
    return library in {one.__module__.partition(".")[0] for one in type(data).__mro__}
