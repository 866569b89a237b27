"""Index: answers which file group holds a key.

An index is given an engine and a view, and adds a column `_location` to rows (`locations.py`): the
file group that holds the row's key, null where none does. What it needs to know it keeps in
metadata partitions, which every commit fills, or finds in the data files. One class per index;
`register` gives it a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from metatable.data.config.options import Options
from metatable.engine.protocol import Engine
from metatable.index.placement import Placement
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.view import TableView
from metatable.storage.arrays import Bools
from metatable.storage.errors import UsageError

__all__ = ["Index", "create_index", "register"]


class Index(Protocol):
    """Answers which file group holds a key, at one version of a table."""

    name: str
    """The name that `create(index=…)` takes."""
    partitions: tuple[MetadataPartition, ...]
    """The metadata partitions that it reads: every commit fills them, and services compact and
    verify them."""
    proves_presence: bool
    """Whether a location says that the key is there; else only that it is nowhere else."""
    asks_footers: bool
    """Whether it believes the footers of data files; then these are verified, too."""
    indexes_logs: bool
    """Whether it finds keys that only a log holds; else new keys go to new base files."""

    def tag(self, engine: Engine[Any], rows: Any, view: TableView) -> Any:
        """`rows` with the column `_location`, in the engine's own type and lazy. Rows have the
        key's columns, or its texts."""
        ...

    def placement(self, view: TableView) -> Placement | None:
        """Tells which file group a row goes to; None where it may be any of its partition."""
        ...

    def holds(self, view: TableView, keys: pa.Array, partition_paths: pa.Array) -> Bools:
        """Which of these record keys (texts) the view holds. Asked where another writer was first,
        of keys that are to be inserted."""
        ...


_INDEXES: dict[str, Callable[[Options], Index]] = {}


def register(name: str, make: Callable[[Options], Index]) -> None:
    """Make an index known by the name that `create(index=…)` takes."""
    _INDEXES[name] = make


def create_index(options: Options) -> Index:
    """The index of a table. Raises UsageError for a name that nobody registered, and where file
    groups shall begin as logs whose keys it would not find."""
    make = _INDEXES.get(options.index)
    if make is None:
        raise UsageError("no such index", found=options.index, expected=sorted(_INDEXES))
    made = make(options)
    if options.opens_by_logs and not made.indexes_logs:
        raise UsageError(
            "this index finds no keys that only logs hold: none may open a file group",
            index=options.index,
            new_groups=options.new_groups,
            expected="new_groups='base', or an index such as 'bucket' or 'record'",
        )
    return made
