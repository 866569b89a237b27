"""Hudi's schema on read: columns of another writer's table that were renamed, or came again.

    .hoodie/.schema/<instant>.schemacommit     JSON, {"schemas": [each schema that there was]}

Hudi keeps these where `hoodie.schema.on.read.enable` is set and a column is altered. Each column,
and each part of one, has an id there, by which Hudi finds in a data file what was called otherwise
when the file was written. The files themselves tell names alone, and so our readers go by these.
So a path (`city`, `at.x`, `tags.element`) must have meant one id all the time, and an id one path;
a table of which that is not so is refused. Widened, added, dropped and moved columns are no matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from metatable.storage.errors import CorruptError, UpgradeError, in_short
from metatable.storage.store import Store

__all__ = ["FOLDER", "refuse_renamed"]

FOLDER = ".hoodie/.schema"

_DONE = ".schemacommit"


def refuse_renamed(store: Store) -> None:
    """Raises UpgradeError, naming the column, where a name has not meant one column all the time.

    The newest file tells all schemas. Raises CorruptError where it is not readable.
    """
    done = [name for name, _ in store.names(FOLDER, lambda _: False) if name.endswith(_DONE)]
    if not done:
        return
    path = f"{FOLDER}/{max(done)}"
    try:
        schemas = json.loads(store.fetch(path))["schemas"]
        told = [pair for one in schemas for pair in _ids(one, "")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptError("schema is not readable", path=path, found=in_short(error)) from error
    columns: dict[int, str] = {}
    ids: dict[str, int] = {}
    for column, number in told:
        if columns.setdefault(number, column) != column:
            raise _refused(path, columns[number], column)
        if ids.setdefault(column, number) != number:
            raise _refused(path, column, "another column of this name")


def _ids(kind: Any, parent: str) -> Iterator[tuple[str, int]]:
    """(path, id) of all parts of a type. One without parts is a text."""
    if isinstance(kind, str):
        return
    word = kind["type"]
    if word == "record":
        for field in kind["fields"]:
            path = f"{parent}.{field['name']}" if parent else field["name"]
            yield path, int(field["id"])
            yield from _ids(field["type"], path)
    elif word == "array":
        yield f"{parent}.element", int(kind["element_id"])
        yield from _ids(kind["element"], f"{parent}.element")
    elif word == "map":
        yield f"{parent}.value", int(kind["value_id"])
        yield from _ids(kind["value"], f"{parent}.value")


def _refused(path: str, column: str, found: str) -> UpgradeError:
    return UpgradeError(
        "this table cannot be adopted, a column was renamed, or a name came again, by Hudi's schema"
        " on read, and its files still have the columns of before: create one from its rows",
        path=path,
        column=column,
        found=found,
    )
