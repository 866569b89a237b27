"""Changes of a table's columns: what may change, and what the schema is afterwards.

    AddColumn       a new column, or a new field of a struct: nullable, null in all rows there are
    RenameColumn    another name; the same column
    WidenColumn     a type that holds all values of the one it had (`WIDER`)
    DropColumn      a column is gone; files keep it until they are rewritten
    MoveColumn      another place among the columns beside it
    MakeNullable    a column may be null from now on; never the other way round

A path names a column, or a field in it: `fare`, `driver.name`, `tags.element.word`,
`attributes.value`. Every column keeps its id for life, whatever happens to it, and an id is never
given again; so what a file holds of a column is known by its id (`stored_columns.py`). What columns
were called before, `schema_past.py` tells.

Readers of Hudi tables know columns by their names. For a table that they shall read
(`hudi_readable`) a name must mean one column in every file that there is: where files may hold
another column under it, or the same column under another name, all of them are written anew in the
same commit. Of types these readers are told the newest, and they widen what older files hold; but
the `hudi` wheel widens a float to a double by way of its decimal text, which makes 0.1 of
0.10000000149011612, and Hudi on Spark refuses a struct, list or map in which something has become
another type of Spark's. So files are written anew where a float becomes a double, and where an
integer or a decimal that lies in another column is widened. In logs the wheel widens no more than
an integer, not even that where they lack a column, and else refuses the table. So file groups with
logs are written anew where the type of a column changes, or what lies in it. Where a group has no
base file, it takes no nested column from a log that lacks another one: such groups are written
anew where a column is added beside nested ones.

Key, partition and ordering columns keep their names, for these stand in the table's properties and
in the paths of files. As the text of a key must stay the same, key and partition columns are
widened among integers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from metatable.data.columns.align import is_list, widens
from metatable.data.columns.schema import normal
from metatable.data.columns.schema_past import was_there, with_names
from metatable.data.columns.schema_text import GREATEST_ID, Column, TableSchema, column_of, walk
from metatable.data.config.options import Options
from metatable.storage.errors import UsageError

__all__ = [
    "AddColumn",
    "ColumnChange",
    "DropColumn",
    "MakeNullable",
    "MoveColumn",
    "RenameColumn",
    "WidenColumn",
    "changed",
    "needs_rewriting",
    "with_new_columns",
]


class ColumnChange(Protocol):
    """One change, on its own or among several of one version."""

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        """The schema afterwards. Raises UsageError, naming the column."""
        ...


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a column, which is null in all rows that are there. It is the last one, unless it is put
    `after` another one (`""`: first). A field of a struct is named by its path."""

    path: str
    type: pa.DataType
    after: str | None = None

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        parent, name = _split(self.path)
        if not isinstance(self.type, pa.DataType):
            expected = "a pyarrow type, such as pyarrow.int64()"
            raise UsageError("not a type", column=self.path, expected=expected, found=self.type)
        [field] = normal(pa.schema([pa.field(name, self.type)]))
        added, last = _numbered(column_of(field), schema.last_column_id)

        def add(beside: tuple[Column, ...]) -> tuple[Column, ...]:
            _check_free(name, beside, self.path)
            return _put(beside, added, self.after, self.path)

        made = _within(schema, parent, add)
        again = was_there(self.path, schema)
        return replace(made, last_column_id=last, by_id=made.by_id or again)


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give a column, or a field of a struct, another name (`name` is without its path)."""

    path: str
    name: str

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        parent, old = _split(self.path)
        if not isinstance(self.name, str):
            raise UsageError("not a column name", column=self.path, found=self.name)
        _refuse_fixed(self.path, options, "renamed")
        if self.name == old:
            _column_at(schema, self.path)
            return schema
        [_] = normal(pa.schema([pa.field(self.name, pa.string())]))

        def rename(beside: tuple[Column, ...]) -> tuple[Column, ...]:
            one = _one_of(beside, old, self.path)
            _check_free(self.name, [other for other in beside if other is not one], self.path)
            new = replace(one, name=self.name, known_as=one.first_name)
            return tuple(new if other is one else other for other in beside)

        _refuse_unnamed(schema, self.path)
        made = _within(schema, parent, rename)
        return replace(made, past_names=with_names(schema.past_names, self.path), by_id=True)


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Give a column a wider type: `int32` to `int64` or `float64`, `float32` to `float64`, a
    decimal to one with no fewer digits on either side of the point, milliseconds to microseconds,
    bytes of fixed size to bytes."""

    path: str
    type: pa.DataType

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        if not isinstance(self.type, pa.DataType):
            expected = "a pyarrow type, such as pyarrow.int64()"
            raise UsageError("not a type", column=self.path, expected=expected, found=self.type)
        [field] = normal(pa.schema([pa.field("column", self.type)]))

        def widen(one: Column) -> Column:
            _refuse_narrower(self.path, one, self.type if _is_less(self.type, one) else field.type)
            if self.path in (*options.key, *options.partition_by):
                _refuse_other_text(self.path, one, field.type)
            return replace(one, type=field.type)

        made = _altered(schema, self.path, widen)
        before = _column_at(schema, self.path).type
        bent = options.hudi_readable and before != field.type and _bends(self.path, before)
        return replace(made, by_id=made.by_id or bent)


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drop a column, or a field of a struct. Files keep what they have of it until they are
    rewritten, and older versions still show it."""

    path: str

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        parent, name = _split(self.path)
        _refuse_fixed(self.path, options, "dropped")
        _refuse_unnamed(schema, self.path)
        gone = _column_at(schema, self.path)

        def drop(beside: tuple[Column, ...]) -> tuple[Column, ...]:
            if len(beside) == 1:
                raise UsageError("the only column there is cannot be dropped", column=self.path)
            return tuple(one for one in beside if one.name != name)

        made = _within(schema, parent, drop)
        paths = [path for path, _ in walk([gone], parent)]
        stats = () if parent or pa.types.is_nested(gone.type) else (gone.first_name,)
        return replace(
            made,
            past_names=with_names(schema.past_names, *paths),
            past_stats=with_names(schema.past_stats, *stats),
        )


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column behind another one beside it, `after` (`""`: to the first place)."""

    path: str
    after: str

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        parent, name = _split(self.path)
        _refuse_unnamed(schema, self.path)

        def move(beside: tuple[Column, ...]) -> tuple[Column, ...]:
            one = _one_of(beside, name, self.path)
            return _put([other for other in beside if other is not one], one, self.after, self.path)

        return _within(schema, parent, move)


@dataclass(frozen=True, slots=True)
class MakeNullable:
    """Let a column be null from now on. There is no way back."""

    path: str

    def apply(self, schema: TableSchema, options: Options) -> TableSchema:
        return _altered(schema, self.path, lambda one: replace(one, nullable=True))


def changed(schema: TableSchema, changes: Sequence[ColumnChange], options: Options) -> TableSchema:
    """The schema after all of these, one after the other. Raises UsageError."""
    for one in changes:
        if isinstance(one, type) or not hasattr(one, "apply"):
            expected = "AddColumn, RenameColumn, WidenColumn, DropColumn, MoveColumn, MakeNullable"
            raise UsageError("not a change of a column", expected=expected, found=one)
        schema = one.apply(schema, options)
    return schema


def needs_rewriting(schema: TableSchema, options: Options) -> bool:
    """Whether the files have to be written anew, because the table is read by names, and they may
    have another name, or another column, for one of these."""
    return options.hudi_readable and schema.by_id


def with_new_columns(schema: TableSchema, given: pa.Schema, options: Options) -> TableSchema:
    """The schema with those columns of given rows, and fields of their structs, that it lacks,
    added at the end. Raises UsageError for types that a table cannot have."""
    for path, kind in _new_columns(schema.columns, given, ""):
        schema = AddColumn(path, kind).apply(schema, options)
    return schema


def _new_columns(
    columns: Sequence[Column], given: Sequence[pa.Field], parent: str
) -> Iterator[tuple[str, pa.DataType]]:
    known = {one.name: one for one in columns}
    for field in given:
        path = f"{parent}.{field.name}" if parent else field.name
        one, kind = known.get(field.name), field.type
        if one is None:
            yield path, kind
            continue
        yield from _new_fields(one, kind, path)


def _new_fields(one: Column, kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """Fields that structs of given rows have, in lists and maps too, and the column's lack."""
    t = pa.types
    if is_list(kind) and t.is_list(one.type):
        yield from _new_fields(one.inner[0], kind.value_field.type, f"{path}.element")
    elif t.is_map(kind) and t.is_map(one.type):
        yield from _new_fields(one.inner[0], kind.item_field.type, f"{path}.value")
    elif t.is_struct(kind) and t.is_struct(one.type):
        yield from _new_columns(one.inner, list(kind), path)


# Finding a column


def _split(path: str) -> tuple[str, str]:
    """(path of what it lies in, empty for the table; name)."""
    if not isinstance(path, str) or not path:
        raise UsageError("not a column", expected="a name, or a path such as 'a.b'", found=path)
    parent, _, name = path.rpartition(".")
    return parent, name


def _column_at(schema: TableSchema, path: str) -> Column:
    """The column, or part of one, of this path. Raises UsageError where there is none."""
    _split(path)
    found = next((one for name, one in walk(schema.columns) if name == path), None)
    if found is None:
        names = [name for name, _ in walk(schema.columns)]
        raise UsageError("no such column", column=path, expected=names)
    return found


def _one_of(beside: Sequence[Column], name: str, path: str) -> Column:
    """The one of this name among columns beside each other. Raises UsageError, naming `path`."""
    found = next((one for one in beside if one.name == name), None)
    if found is None:
        raise UsageError("no such column", column=path, expected=[one.name for one in beside])
    return found


def _refuse_unnamed(schema: TableSchema, path: str) -> None:
    """An element and a value have no name, no place, and their column nothing without them."""
    parent, _ = _split(path)
    if parent and not pa.types.is_struct(_column_at(schema, parent).type):
        raise UsageError("only a field of a struct can be changed so", column=path)


def _within(
    schema: TableSchema, parent: str, change: Callable[[tuple[Column, ...]], tuple[Column, ...]]
) -> TableSchema:
    """The schema after a change of what lies in the struct `parent`, or in the table ("")."""
    if not parent:
        return replace(schema, columns=change(schema.columns))

    def inside(one: Column) -> Column:
        if not pa.types.is_struct(one.type):
            raise UsageError("not a struct", column=parent, found=str(one.type))
        return replace(one, inner=change(one.inner))

    return _altered(schema, parent, inside)


def _altered(schema: TableSchema, path: str, change: Callable[[Column], Column]) -> TableSchema:
    """The schema after a change of one column, which alters the types of all that it lies in."""
    _column_at(schema, path)
    return replace(schema, columns=_walked(schema.columns, path.split("."), change))


def _walked(
    columns: Sequence[Column], names: Sequence[str], change: Callable[[Column], Column]
) -> tuple[Column, ...]:
    def altered(one: Column) -> Column:
        if len(names) == 1:
            return _typed(change(one))
        return _typed(replace(one, inner=_walked(one.inner, names[1:], change)))

    return tuple(altered(one) if one.name == names[0] else one for one in columns)


def _bends(path: str, before: pa.DataType) -> bool:
    """Whether Hudi's readers would not widen as we do what files hold of this type: floats, and
    what lies in another column, but for timestamps and bytes, of which Spark has one type each."""
    t = pa.types
    if "." in path:  # no column's own name has one
        return bool(t.is_integer(before) or t.is_floating(before) or t.is_decimal(before))
    return bool(t.is_float32(before))


def _typed(column: Column) -> Column:
    """The column with the type that its parts make."""
    parts = [one.arrow for one in column.inner]
    kind = column.type
    if pa.types.is_struct(kind):
        kind = pa.struct(parts)
    elif is_list(kind):
        kind = pa.list_(parts[0])
    elif pa.types.is_map(kind):
        kind = pa.map_(pa.string(), parts[0])
    return replace(column, type=kind)


def _put(beside: Sequence[Column], one: Column, after: str | None, path: str) -> tuple[Column, ...]:
    """The column put behind another one; last (None), first ("")."""
    names = [other.name for other in beside]
    if after is None:
        return (*beside, one)
    if after and after not in names:
        raise UsageError(
            "no such column to be put behind", column=path, after=after, expected=names
        )
    place = names.index(after) + 1 if after else 0
    return (*beside[:place], one, *beside[place:])


def _numbered(column: Column, last: int) -> tuple[Column, int]:
    """(the column with new ids, behind `last`, and known by them; the last id then)."""
    if last >= GREATEST_ID:
        raise UsageError("there are no more column ids", column=column.name)
    own = last = last + 1
    inner = []
    for one in column.inner:
        made, last = _numbered(one, last)
        inner.append(made)
    name = f"{column.name}#{own}"
    return replace(column, id=own, known_as=name, inner=tuple(inner)), last


# Refusing


def _check_free(name: str, beside: Sequence[Column], path: str) -> None:
    for one in beside:
        if one.name.lower() == name.lower():
            what = "there is a column of this name (Spark does not tell case apart)"
            raise UsageError(what, column=path, found=one.name)


def _refuse_fixed(path: str, options: Options, done: str) -> None:
    ordering = (options.ordering,) if options.ordering else ()
    for part, names in (
        ("key", options.key),
        ("partition", options.partition_by),
        ("ordering", ordering),
        ("clustering", options.cluster_by),
    ):
        if path in names:
            raise UsageError(f"the {part} column cannot be {done}", column=path)


def _refuse_narrower(path: str, one: Column, kind: pa.DataType) -> None:
    if pa.types.is_nested(kind) or one.inner or not widens(one.type, kind):
        what = "values would be lost, or are of another kind: a column is only widened"
        raise UsageError(what, column=path, expected=f"wider than {one.type}", found=str(kind))


def _is_less(kind: pa.DataType, one: Column) -> bool:
    """Whether a type, as it was asked for, holds less than the column: tables have integers of 32
    bits at least, say, and what is narrower becomes the same type."""
    t = pa.types
    if not widens(kind, one.type):
        return False
    if t.is_timestamp(kind) or t.is_time(kind):
        return bool(kind.unit != one.type.unit)
    return bool((t.is_integer(kind) or t.is_floating(kind)) and kind != one.type)


def _refuse_other_text(path: str, one: Column, kind: pa.DataType) -> None:
    """Refuse a type of which keys have another text: one with more digits behind the point, or a
    float."""
    if not (pa.types.is_integer(one.type) and pa.types.is_integer(kind)):
        what = "the text of the stored keys would be another one"
        raise UsageError(what, column=path, expected="int64 for int32", found=str(kind))
