"""Columns of a data file as the table's: found by id, and in the types that the table has now.

Data files outlive the schema that they were written with. Ours tell Parquet's field ids, at every
depth, and say in the footer that these are the table's column ids (`IDS_ARE_OURS`: some engines put
ids of their own there). In such a file a column is its id, whatever it is called; in one without
it is what the column was first called (`Column.first_name`). Parts of structs, lists and maps
likewise. Meta columns go by name, always.

What the file lacks is null; a narrower type is widened; a field of the file that is no column of
the table any more is passed over. All else is damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.data.columns.align import is_list, null_mask, offsets_of, widens
from metatable.data.columns.nulls import nulls, without_nulls
from metatable.data.columns.schema import KEY_COLUMN, META_COLUMNS, META_FIELDS
from metatable.data.columns.schema_text import FIELD_ID, GREATEST_ID, Column, TableSchema
from metatable.storage.errors import CorruptError

__all__ = ["IDS_ARE_OURS", "AskedColumns", "StoredColumns", "schema_with_ids"]

IDS_ARE_OURS = "metatable.field_ids"
"""Footer key: the field ids of this file are column ids of its table."""

Fit = Callable[[pa.Array], pa.Array]
"""Brings an array of a file into the table's type."""


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """What columns a file has, as Arrow fields; whether they tell ids, or are known by names."""

    fields: tuple[pa.Field, ...]
    by_id: bool
    path: str
    tells_zones: bool = True
    """Whether types are the table's to the last: Avro has one timestamp, with a zone or without."""

    @classmethod
    def of(cls, parquet: Any, path: str) -> StoredColumns:
        """The columns of an open ParquetFile of pyarrow's. Raises CorruptError for wrong ids."""
        return cls.of_schema(parquet.schema_arrow, parquet.metadata.metadata or {}, path)

    @classmethod
    def of_schema(cls, schema: pa.Schema, words: Container[bytes], path: str) -> StoredColumns:
        """The columns of a file with this schema, whose footer tells things under these words.
        Raises CorruptError for wrong ids."""
        by_id = IDS_ARE_OURS.encode() in words
        made = cls(tuple(schema), by_id, path)
        if by_id:
            made._check_ids([one for one in made.fields if one.metadata])
        return made

    @classmethod
    def numbered(cls, fields: Sequence[pa.Field], ids: Sequence[Any], path: str) -> StoredColumns:
        """The columns of an Avro record, whose fields tell names alone. `ids`, in pre-order, are
        those of all fields but meta columns. Raises CorruptError for wrong ids."""
        left = iter(ids)
        try:
            own = [one if one.name in META_COLUMNS else _numbered(one, left) for one in fields]
        except (StopIteration, TypeError, ValueError):
            own = []
        if len(own) < len(fields) or next(left, None) is not None:
            what = "column ids are not those of the columns"
            raise CorruptError(what, path=path, found=list(ids)[:100])
        made = cls(tuple(own), True, path, tells_zones=False)
        made._check_ids([one for one in made.fields if one.metadata])
        return made

    def check_names(self) -> None:
        """Raise CorruptError unless each column can be asked for by its name."""
        names = Counter(one.name for one in self.fields)
        if len(names) < len(self.fields):
            [(found, _)] = names.most_common(1)
            raise CorruptError("two columns of a file have one name", path=self.path, found=found)

    def misfit(self, table: TableSchema) -> str:
        """Why a column that the file has cannot be read as that of the table; "": each can."""
        try:
            for place, one in zip(
                self._places(self.fields, table.columns), table.columns, strict=True
            ):
                if place is not None:
                    self._fit(self.fields[place], one, one.name)
        except CorruptError as error:
            return str(error)
        return ""

    def ids(self) -> dict[str, int]:
        """As `TableSchema.ids`, of the file's own fields; 0 where one tells none."""
        return dict(_walked([one for one in self.fields if one.name not in META_COLUMNS]))

    def find(self, name: str, table: TableSchema | None) -> pa.Field | None:
        """The file's field for the column of this name, a meta column or one of the table's."""
        return self.find_each([name], table)[0]

    def find_each(self, names: Sequence[str], table: TableSchema | None) -> list[pa.Field | None]:
        """`find` for each of some columns. Raises CorruptError for ids of no column ever."""
        if table is not None and self.by_id:
            self._check_given(table.last_column_id)
        columns = [None for _ in names] if table is None else table.named(names)
        places = self._places(self.fields, [one for one in columns if one is not None])
        told = iter(None if place is None else self.fields[place] for place in places)
        by_name = {one.name: one for one in reversed(self.fields)}
        return [
            by_name.get(name) if column is None else next(told)
            for name, column in zip(names, columns, strict=True)
        ]

    def fitted(
        self, held: pa.ChunkedArray, stored: pa.Field, wanted: pa.Field, column: Column | None
    ) -> pa.ChunkedArray:
        """What was read of a field, as the column `wanted`; `column`: that of the table, if it is
        one. Raises CorruptError."""
        if column is not None:
            fit = self._fit(stored, column, column.name)
            if fit is not None:
                held = pa.chunked_array([fit(chunk) for chunk in held.chunks], column.type)
        return held if held.type == wanted.type else held.cast(wanted.type)

    def _places(self, fields: Sequence[pa.Field], columns: Sequence[Column]) -> list[int | None]:
        """Where each column, or part of one, stands among fields of the file."""
        told: list[Any] = [_id_of(one) if self.by_id else one.name for one in fields]
        first = {told[place]: place for place in reversed(range(len(told)))}
        return [first.get(one.id if self.by_id else one.first_name) for one in columns]

    def _fit(self, stored: pa.Field, column: Column, name: str) -> Fit | None:
        """What brings the field into the column's type; None: it is the column as it is."""
        kind, found = column.type, stored.type
        if pa.types.is_struct(kind) and pa.types.is_struct(found):
            return self._fit_struct(found, column, name)
        if is_list(kind) and is_list(found):
            inner = self._fit(found.value_field, column.inner[0], f"{name}.element")
            return None if inner is None and found == kind else partial(_list, kind, inner)
        if pa.types.is_map(kind) and pa.types.is_map(found):
            inner = self._fit(found.item_field, column.inner[0], f"{name}.value")
            return None if inner is None and found == kind else partial(_map, kind, inner)
        if found == kind:
            return None
        if self.by_id and not widens(self._zoned(found, kind), kind):
            self._refuse(name, str(kind), str(found))
        return partial(_cast, kind)

    def _zoned(self, found: pa.DataType, kind: pa.DataType) -> pa.DataType:
        """`found`, in the zone of `kind` where the file tells none."""
        both = pa.types.is_timestamp(found) and pa.types.is_timestamp(kind)
        return pa.timestamp(found.unit, kind.tz) if both and not self.tells_zones else found

    def _fit_struct(self, found: pa.StructType, column: Column, name: str) -> Fit | None:
        """`_fit` of a struct: fields are found as columns are, and may stand in another order."""
        fields = list(found)
        places = self._places(fields, column.inner)
        parts: list[tuple[int | None, pa.Field, Fit | None]] = []
        for place, one in zip(places, column.inner, strict=True):
            path = f"{name}.{one.name}"
            if place is None and not one.nullable:
                self._refuse(path, str(one.type), "nothing")
            fit = None if place is None else self._fit(fields[place], one, path)
            parts.append((place, one.arrow, fit))
        if (
            found == column.type
            and places == [*range(len(fields))]
            and not any(fit for _, _, fit in parts)
        ):
            return None
        return partial(_struct, column.type, parts, self.path, name)

    def _check_ids(self, fields: Sequence[pa.Field]) -> None:
        """Beside each other no two have one id, and each is a number."""
        ids = [_id_of(one) for one in fields]
        known = [one for one in ids if one]
        if len(set(known)) < len(known) or not all(0 <= one <= GREATEST_ID for one in ids):
            what = "column ids of a data file are wrong"
            raise CorruptError(what, path=self.path, found=ids[:100])
        for one in fields:
            inner = [one.type.field(place) for place in range(one.type.num_fields)]
            self._check_ids(inner)

    def _check_given(self, last: int) -> None:
        """A footer has no checksum: with another id a column would be none of the table's, and
        null in all rows."""
        wrong = {path: one for path, one in self.ids().items() if not 0 < one <= last}
        if wrong:
            what = "data file has column ids that its table never gave"
            raise CorruptError(what, path=self.path, expected=f"1 to {last}", found=wrong)

    def _refuse(self, column: str, expected: str, found: str) -> None:
        what = "data file has another type for a column than the table ever had"
        raise CorruptError(what, path=self.path, column=column, expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """Columns that are asked of a file, and which of its fields each one is (None: it lacks it)."""

    stored: StoredColumns
    fields: tuple[pa.Field | None, ...]
    schema: pa.Schema
    columns: TableSchema | None

    @classmethod
    def of(
        cls, stored: StoredColumns, schema: pa.Schema, columns: TableSchema | None
    ) -> AskedColumns:
        """The columns of `schema`, asked of a file of the table with these `columns` (None: they
        are found by their names). Raises CorruptError where names do not tell columns."""
        stored.check_names()
        fields = tuple(stored.find_each(schema.names, columns))
        return cls(stored, fields, schema, columns)

    @property
    def names(self) -> list[str]:
        """The names, in the file, of those columns that it has: what is to be read of it."""
        return [one.name for one in self.fields if one is not None]

    def of_table(self, table: pa.Table) -> pa.Table:
        """What was read of `names`, as the columns that are asked. Raises CorruptError."""
        names = self.schema.names
        columns = [None for _ in names] if self.columns is None else self.columns.named(names)
        asked = zip(self.fields, self.schema, columns, strict=True)
        return pa.table([self._column(table, *one) for one in asked], schema=self.schema)

    def _column(
        self, table: pa.Table, stored: pa.Field | None, field: pa.Field, own: Column | None
    ) -> pa.ChunkedArray:
        path = self.stored.path
        if stored is None and field.nullable and field.name != KEY_COLUMN:
            return nulls(table.num_rows, field.type)
        if stored is None:
            what = "data file lacks a required column"
            raise CorruptError(what, path=path, expected=field.name, found=table.column_names)
        column = table.column(stored.name)
        if column.null_count and not field.nullable:
            raise CorruptError(
                "data file holds nulls in a required column", path=path, found=field.name
            )
        return self.stored.fitted(column, stored, field, own)


def _walked(fields: Iterable[pa.Field], parent: str = "") -> Iterator[tuple[str, int]]:
    for one in fields:
        path, kind = f"{parent}{one.name}", one.type
        yield path, _id_of(one)
        if pa.types.is_struct(kind):
            yield from _walked(kind, f"{path}.")
        elif is_list(kind):
            yield from _walked([kind.value_field.with_name("element")], f"{path}.")
        elif pa.types.is_map(kind):
            yield from _walked([kind.item_field.with_name("value")], f"{path}.")


def schema_with_ids(columns: TableSchema) -> pa.Schema:
    """That of a data file: meta columns, and the table's with their ids at every depth."""
    return pa.schema([*META_FIELDS, *(one.arrow_with_ids for one in columns.columns)])


def _numbered(field: pa.Field, ids: Iterator[Any]) -> pa.Field:
    """`field` with the next ids, as `Column.arrow_with_ids` has them."""
    own, kind = next(ids), field.type
    if type(own) is not int:
        raise TypeError(f"a column id is a {type(own).__name__}")
    metadata = {FIELD_ID: str(own).encode()}
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(one, ids) for one in kind])
    elif is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, ids))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _numbered(kind.item_field, ids))
    return pa.field(field.name, kind, field.nullable, metadata=metadata)


def _id_of(field: pa.Field) -> int:
    """The id that a field of a file tells; 0: none, -1: no number of an id's size."""
    text = (field.metadata or {}).get(FIELD_ID, b"0")
    return int(text) if text.isdigit() and len(text) < 11 else -1


def _cast(kind: pa.DataType, array: pa.Array) -> pa.Array:
    return array.cast(kind)


# Arrays of a file as those of the table's types, one function a nested type. Offsets are made anew,
# for an array may be a slice of a longer one.


def _struct(
    kind: pa.StructType,
    parts: Sequence[tuple[int | None, pa.Field, Fit | None]],
    path: str,
    name: str,
    array: pa.StructArray,
) -> pa.Array:
    columns = []
    for place, field, fit in parts:
        if place is None:
            columns.append(nulls(len(array), field.type))
            continue
        inner = array.field(place)
        if not field.nullable and inner.filter(array.is_valid()).null_count:
            what = "data file holds nulls in a required column"
            raise CorruptError(what, path=path, found=f"{name}.{field.name}")
        inner = inner if fit is None else fit(inner)
        columns.append(inner if field.nullable else without_nulls(inner))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=null_mask(array))


def _list(kind: pa.ListType, inner: Fit | None, array: pa.Array) -> pa.Array:
    offsets, first, last = offsets_of(array)
    values = array.values.slice(first, last - first)
    values = values if inner is None else inner(values)
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=null_mask(array))


def _map(kind: pa.MapType, inner: Fit | None, array: pa.MapArray) -> pa.Array:
    offsets, first, last = offsets_of(array)
    keys = array.keys.slice(first, last - first)
    items = array.items.slice(first, last - first)
    items = items if inner is None else inner(items)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=null_mask(array))
