"""The past of a table's columns, as the schema tells it: what files may hold that is no column now.

Files stay as they were when columns are renamed, dropped or gone back behind. So the schema keeps
the paths and names that meant something else once (`past_names`, `past_stats`) and whether files
are read by ids alone (`by_id`); `schema_text.py` tells how they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from metatable.data.columns.schema_text import Column, TableSchema, walk

__all__ = [
    "back_behind",
    "begun_anew",
    "having_passed",
    "holds_all",
    "rewritten",
    "was_there",
    "with_names",
]


def holds_all(written: TableSchema, asked: TableSchema) -> bool:
    """Whether what is written with one schema has every column of the other, of its type."""
    there = {one.id: one for _, one in walk(written.columns)}
    return all(
        one.id in there and (pa.types.is_nested(one.type) or there[one.id].type == one.type)
        for _, one in walk(asked.columns)
    )


def rewritten(schema: TableSchema) -> TableSchema:
    """The schema when all files have been written with it: none holds anything of the past."""
    return replace(schema, past_names=(), past_stats=(), by_id=False)


def back_behind(schema: TableSchema, since: TableSchema) -> TableSchema:
    """The schema of an older version, gone back to, where files written with those up to `since`
    may stay. Once a name has meant something else they are found by ids alone: it may have got its
    own back meanwhile, so names are not compared."""
    paths, known = schema.ids(), {one.first_name for one in schema.columns}
    flat = [one.first_name for one in since.columns if not pa.types.is_nested(one.type)]
    names = [one for one in (*since.past_names, *since.ids()) if one not in paths]
    stats = [one for one in (*since.past_stats, *flat) if one not in known]
    return replace(
        schema,
        past_names=with_names(schema.past_names, *names),
        past_stats=with_names(schema.past_stats, *stats),
        by_id=schema.by_id or since.by_id,
    )


def having_passed(schema: TableSchema, others: Mapping[str, int]) -> TableSchema:
    """The schema of a table whose files have these fields beside its columns, by path, with their
    ids: none of the ids is given out again, and a name that is, is another column."""
    last = max([schema.last_column_id, *others.values()])
    past = with_names(schema.past_names, *sorted(others))
    return replace(schema, last_column_id=last, past_names=past)


def begun_anew(schema: TableSchema) -> TableSchema:
    """The schema of a table without a past but its files, which have all columns under their names
    of now: statistics are made by these, and so are files found that tell no ids."""
    columns = tuple(map(_by_its_name, schema.columns))
    return replace(schema, columns=columns, past_stats=())


def _by_its_name(column: Column) -> Column:
    return replace(column, known_as="", inner=tuple(map(_by_its_name, column.inner)))


def was_there(path: str, schema: TableSchema) -> bool:
    """Whether files may hold something else by this path, or by one in it: it was a column's.
    Spark does not tell case apart."""
    return any(f"{one}.".lower().startswith(f"{path}.".lower()) for one in schema.past_names)


def with_names(names: tuple[str, ...], *added: str) -> tuple[str, ...]:
    """The names, and those added to them, each once."""
    return tuple(dict.fromkeys((*names, *added)))
