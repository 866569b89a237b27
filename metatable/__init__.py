"""metatable: Apache Hudi tables that know which file holds a key. Create, write, look up and skip
files; no server.

    import metatable, pyarrow as pa

    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.float64())])
    table = metatable.create("rides", schema, key="id", partition_by="city", index="record")
    table.insert(pa.table({"id": ["a", "b"], "city": ["Ulm", "Bonn"], "fare": [9.5, 7.0]}))
    news = pa.table({"id": ["b", "c"], "city": ["Bonn", "Ulm"], "fare": [7.9, 6.1]})
    print(table.tag_locations(news)["_location"].is_valid().to_pylist())  # [True, False]
    print(table.upsert(news))  # upsert -> version 3: 1 inserted, 1 updated; 2 files, …
    print(table.read_keys(pa.table({"id": ["b"]}))["fare"].to_pylist())  # [7.9]
    print(table.verify().findings)  # ()

Names are loaded on first use, so that a worker that imports a part of the package loads
nothing else.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metatable.adopting import adopt as adopt
    from metatable.data.bucket_functions import BucketFunction as BucketFunction
    from metatable.data.bucket_functions import (
        register_bucket_function as register_bucket_function,
    )
    from metatable.data.columns.schema_changes import AddColumn as AddColumn
    from metatable.data.columns.schema_changes import DropColumn as DropColumn
    from metatable.data.columns.schema_changes import MakeNullable as MakeNullable
    from metatable.data.columns.schema_changes import MoveColumn as MoveColumn
    from metatable.data.columns.schema_changes import RenameColumn as RenameColumn
    from metatable.data.columns.schema_changes import WidenColumn as WidenColumn
    from metatable.data.config.options import Options as Options
    from metatable.opening import create as create
    from metatable.opening import open_table as open
    from metatable.query.expressions import col as col
    from metatable.storage.errors import AccessError as AccessError
    from metatable.storage.errors import ConflictError as ConflictError
    from metatable.storage.errors import CorruptError as CorruptError
    from metatable.storage.errors import Finding as Finding
    from metatable.storage.errors import MetatableError as MetatableError
    from metatable.storage.errors import NotFoundError as NotFoundError
    from metatable.storage.errors import StaleError as StaleError
    from metatable.storage.errors import StoreError as StoreError
    from metatable.storage.errors import UpgradeError as UpgradeError
    from metatable.storage.errors import UsageError as UsageError
    from metatable.table import Table as Table

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet, unless somebody listens

_ERRORS = "metatable.storage.errors"
_BUCKETS = "metatable.data.bucket_functions"
_CHANGES = "metatable.data.columns.schema_changes"
_WHERE = {
    "AccessError": (_ERRORS, "AccessError"),
    "AddColumn": (_CHANGES, "AddColumn"),
    "BucketFunction": (_BUCKETS, "BucketFunction"),
    "ConflictError": (_ERRORS, "ConflictError"),
    "CorruptError": (_ERRORS, "CorruptError"),
    "DropColumn": (_CHANGES, "DropColumn"),
    "Finding": (_ERRORS, "Finding"),
    "MakeNullable": (_CHANGES, "MakeNullable"),
    "MetatableError": (_ERRORS, "MetatableError"),
    "MoveColumn": (_CHANGES, "MoveColumn"),
    "NotFoundError": (_ERRORS, "NotFoundError"),
    "Options": ("metatable.data.config.options", "Options"),
    "RenameColumn": (_CHANGES, "RenameColumn"),
    "StaleError": (_ERRORS, "StaleError"),
    "StoreError": (_ERRORS, "StoreError"),
    "Table": ("metatable.table", "Table"),
    "UpgradeError": (_ERRORS, "UpgradeError"),
    "UsageError": (_ERRORS, "UsageError"),
    "adopt": ("metatable.adopting", "adopt"),
    "WidenColumn": (_CHANGES, "WidenColumn"),
    "col": ("metatable.query.expressions", "col"),
    "create": ("metatable.opening", "create"),
    "open": ("metatable.opening", "open_table"),
    "register_bucket_function": (_BUCKETS, "register_bucket_function"),
}

__all__ = [
    "AccessError",
    "AddColumn",
    "BucketFunction",
    "ConflictError",
    "CorruptError",
    "DropColumn",
    "Finding",
    "MakeNullable",
    "MetatableError",
    "MoveColumn",
    "NotFoundError",
    "Options",
    "RenameColumn",
    "StaleError",
    "StoreError",
    "Table",
    "UpgradeError",
    "UsageError",
    "WidenColumn",
    "adopt",
    "col",
    "create",
    "open",
    "register_bucket_function",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'metatable' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return [*globals(), *_WHERE]
