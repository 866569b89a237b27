"""Table partitions as users name them: by paths, or by the values of all partition columns.

A value is refused that Arrow would make another one of: a number that it would cut, a time that it
would drop. A path is refused that no row of the table could have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from metatable.data.config.options import Options
from metatable.data.keys.keygen import KeyGenerator
from metatable.storage.errors import UsageError

__all__ = ["named_paths"]


def named_paths(options: Options, schema: pa.Schema, named: Any) -> tuple[str, ...]:
    """The partition paths that a user has named, one or several: as paths (`city=Ulm`), or by the
    values of all partition columns (`{"city": "Ulm"}`). Raises UsageError."""
    expected = "paths, or values such as " + str(dict.fromkeys(options.partition_by, "…"))
    if not options.partition_by:
        raise UsageError("the table has no partitions", expected="insert_overwrite(…, by='table')")
    several = [named] if isinstance(named, str | Mapping) else named
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        raise UsageError("not what names partitions", found=named, expected=expected)
    return tuple(dict.fromkeys(_path(options, schema, one, expected) for one in several))


def _path(options: Options, schema: pa.Schema, named: Any, expected: str) -> str:
    if isinstance(named, str):
        return _checked(options, named.strip("/"))
    if not isinstance(named, Mapping) or set(named) != set(options.partition_by):
        raise UsageError("not what names a partition", found=named, expected=expected)
    columns = pa.schema([schema.field(name) for name in options.partition_by])
    try:
        row = pa.Table.from_pylist([dict(named)], columns)
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = {field.name: str(field.type) for field in columns}
        raise UsageError("not a partition's values", found=dict(named), expected=kinds) from error
    for name, made in row.to_pylist()[0].items():
        kind = columns.field(name).type
        if named[name] is not None and not _is_same(named[name], made, kind):
            what = "not a partition's value: it would be rounded, or taken for another one"
            raise UsageError(what, column=name, found=named[name], expected=str(kind))
    path: str = KeyGenerator(options).partition_paths(row)[0].as_py()
    return path


def _is_same(given: Any, made: Any, kind: pa.DataType) -> bool:
    """Whether Arrow has made of a value what it is: it cuts numbers, and drops times and zones."""
    if isinstance(given, np.generic):
        given = given.item()
    if pa.types.is_float32(kind) and isinstance(given, float):
        given = float(np.float32(given))
    alike = isinstance(given, type(made)) or isinstance(made, int | float | Decimal)
    for one in (bool, datetime, date):  # truth values are numbers, too, and moments are days
        alike = alike and isinstance(given, one) == isinstance(made, one)
    if isinstance(made, datetime):
        alike = alike and (given.tzinfo is None) == (made.tzinfo is None)
    return bool(alike and given == made)


def _checked(options: Options, path: str) -> str:
    """A path that may be one of the table's partitions. Raises UsageError."""
    begins = [f"{name}=" if options.hive_style else "" for name in options.partition_by]
    folders = path.split("/")
    fits = len(folders) == len(begins) and not {"", ".", ".."}.intersection(folders)
    named = zip(folders, begins, strict=False)
    if not fits or any(one == begin or not one.startswith(begin) for one, begin in named):
        expected = "/".join(f"{begin}…" for begin in begins)
        raise UsageError("not what names a partition", found=path, expected=expected)
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError("not what names a partition", found=path, expected="UTF-8") from error
    return path
