"""A table's schema as JSON text, for the manifest: exact, and a person can read it.

    {"fields": [{"id": 1, "name": "key", "type": "int64", "nullable": true}, ...],
     "last_column_id": 7}

A type is Arrow's own word for it (`int32`, `string`, `timestamp[us, tz=UTC]`,
`decimal128(10, 2)`, `fixed_size_binary[16]`), or an object with one entry:

    {"list": ELEMENT}    {"map": VALUE} (keys are strings)    {"struct": [FIELD, ...]}

ELEMENT and VALUE are fields without a name. Every field at every depth has an id: a positive
integer of 32 bits, unique in the table, never given out again; `last_column_id` is the greatest
ever given. A new table's ids count from 1 in pre-order: a field, then what is in it, then the
next. A text of before there were ids (it has no `last_column_id` either) is read as if it had
these. What is unknown in a field or beside `fields` is kept, as in all records
(`stored_fields.py`). Refused are types that are not known here, and ids that are lost, bent or
given twice.

A schema that has changed (`schema_changes.py`) also says

    "known_as"     of a field that was added or renamed: what it is called in statistics, and in
                   data files without field ids: its first name, or `name#id` of one that was added
    "past_names"   paths by which files may hold what is no column now, or another one
    "past_stats"   top-level columns that are gone, as they were `known_as`
    "by_id"        true: some file has another name, or another column, for one of these
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pyarrow as pa

from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError, UpgradeError

__all__ = [
    "FIELD_ID",
    "GREATEST_ID",
    "Column",
    "TableSchema",
    "column_of",
    "decode_schema",
    "encode_schema",
    "parsed_schema",
    "walk",
]

GREATEST_ID = (1 << 31) - 1
"""Parquet's field ids and Iceberg's column ids have 32 bits."""

_PLAIN: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.time64("us"),
        *(pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in (None, "UTC")),
    )
}
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    pa.ArrowException,
)
_DECIMAL = re.compile(r"decimal128\((\d{1,2}), (\d{1,2})\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,9})\]")
_UNNAMED = {"list": "element", "map": "value"}
_OWN = {"id", "name", "type", "nullable", "known_as"}
_PAST = ("past_names", "past_stats")

FIELD_ID = b"PARQUET:field_id"
"""How Arrow's metadata of a field has Parquet's field id."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or what lies in one: a field of a struct, a list's element, a map's value."""

    name: str
    type: pa.DataType
    nullable: bool
    inner: tuple[Column, ...] = ()
    """Of a nested type: its fields, its one element or value. Their types are in `type` too."""
    id: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    known_as: str = ""
    """Empty: by its name."""

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.type, self.nullable)

    @property
    def first_name(self) -> str:
        """What it is called in statistics, and in data files without field ids."""
        return self.known_as or self.name

    @property
    def arrow_with_ids(self) -> pa.Field:
        """The field as data files have it: with Parquet's field ids, at every depth."""
        kind, inner = self.type, [one.arrow_with_ids for one in self.inner]
        if pa.types.is_struct(kind):
            kind = pa.struct(inner)
        elif pa.types.is_list(kind):
            kind = pa.list_(inner[0])
        elif pa.types.is_map(kind):
            kind = pa.map_(pa.string(), inner[0])
        metadata = {FIELD_ID: str(self.id).encode()}
        return pa.field(self.name, kind, self.nullable, metadata=metadata)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table with their ids. `arrow` is all of it that data files are told."""

    columns: tuple[Column, ...]
    last_column_id: int
    """The greatest id that was ever given, to a column that may be gone."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    past_names: tuple[str, ...] = ()
    past_stats: tuple[str, ...] = ()
    by_id: bool = False

    @classmethod
    def of(cls, schema: pa.Schema) -> TableSchema:
        """The schema of a new table, from one that `metatable.data.columns.schema.normal` made."""
        return _numbered(map(column_of, schema), {})

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([column.arrow for column in self.columns])

    @property
    def misleads(self) -> bool:
        """Whether who goes by names would take one column for another: in files, or, where one has
        the name that another is known as, in statistics."""
        known = {one.first_name: one.name for one in self.columns}
        return self.by_id or any(known.get(one.name, one.name) != one.name for one in self.columns)

    def column(self, name: str) -> Column | None:
        """A column of the table itself, by its name."""
        return next((one for one in self.columns if one.name == name), None)

    def named(self, names: Sequence[str]) -> list[Column | None]:
        """`column` of each of these names: one look for all."""
        known = {one.name: one for one in reversed(self.columns)}
        return [known.get(name) for name in names]

    def ids(self) -> dict[str, int]:
        """The id of every field by its path (`a`, `a.b`, `tags.element`, `attrs.value`), in
        pre-order."""
        return {path: column.id for path, column in walk(self.columns)}

    def encode(self) -> str:
        fields = [_body(column) for column in self.columns]
        own = {"fields": fields, "last_column_id": self.last_column_id}
        past = {name: list(getattr(self, name)) for name in _PAST if getattr(self, name)}
        return json.dumps(
            {**self.unknown, **own, **past, **({"by_id": True} if self.by_id else {})}
        )

    @classmethod
    def decode(cls, text: str, path: str) -> TableSchema:
        """Read back; ids are filled in where there are none.

        Raises CorruptError, and UpgradeError for a type that is not known here.
        """
        try:
            body = json.loads(text)
            columns = tuple(_read_field(one, "", path) for one in body["fields"])
            unknown = _without(body, {"fields", "last_column_id", "by_id", *_PAST})
            if "last_column_id" not in body and not any(one.id for _, one in walk(columns)):
                return _numbered(columns, unknown)
        except _UNREADABLE as error:
            raise CorruptError("schema is not readable", path=path, found=str(error)) from error
        names, stats = (_read_past(body, name, path) for name in _PAST)
        by_id = body.get("by_id", False)
        if type(by_id) is not bool:
            raise CorruptError("schema is not readable", path=path, field="by_id", found=by_id)
        made = cls(columns, body.get("last_column_id"), unknown, names, stats, by_id)
        _check_ids(made, path)
        _check_names(made.columns, path)
        return made


def parsed_schema(text: str, path: str) -> TableSchema:
    """`TableSchema.decode`, once a process for each text."""
    return cached(
        ("schema", text), lambda: TableSchema.decode(text, path), lambda _: 10 * len(text)
    )


def encode_schema(schema: pa.Schema) -> str:
    """The text of a new table's schema, which `metatable.data.columns.schema.normal` made."""
    return TableSchema.of(schema).encode()


def decode_schema(text: str, path: str) -> pa.Schema:
    """The Arrow schema of a text. Raises as `TableSchema.decode`."""
    return TableSchema.decode(text, path).arrow


def column_of(arrow: pa.Field) -> Column:
    """The column, and what lies in it, without ids."""
    kind = arrow.type
    inner: Iterable[pa.Field] = ()
    if pa.types.is_list(kind):
        inner = [kind.value_field]
    elif pa.types.is_map(kind):
        inner = [kind.item_field]
    elif pa.types.is_struct(kind):
        inner = kind
    return Column(arrow.name, kind, arrow.nullable, tuple(map(column_of, inner)))


def _numbered(columns: Iterable[Column], unknown: Mapping[str, Any]) -> TableSchema:
    """A schema of these columns with ids from 1, in pre-order."""
    ids = count(1)
    made = tuple(_with_ids(column, ids) for column in columns)
    return TableSchema(made, next(ids) - 1, unknown)


def _with_ids(column: Column, ids: Iterator[int]) -> Column:
    ours = next(ids)
    return replace(column, id=ours, inner=tuple(_with_ids(one, ids) for one in column.inner))


def walk(columns: Iterable[Column], parent: str = "") -> Iterator[tuple[str, Column]]:
    """Every field with its path, in pre-order."""
    for column in columns:
        path = _joined(parent, column.name)
        yield path, column
        yield from walk(column.inner, path)


def _joined(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _check_ids(schema: TableSchema, path: str) -> None:
    """Raises CorruptError where a column has no id, another's, or one that was never given."""
    greatest = schema.last_column_id
    if not _is_id(greatest, least=0):
        raise CorruptError(
            "schema does not tell the greatest column id", path=path, found=_shown(greatest)
        )
    seen: dict[int, str] = {}
    for name, column in walk(schema.columns):
        facts = {"path": path, "column": name, "found": column.id}
        if not column.id:
            raise CorruptError("column has no id, in a schema that has ids", **facts)
        if column.id in seen:
            raise CorruptError("two columns have one id", **facts, other=seen[column.id])
        if column.id > greatest:
            expected = f"{greatest} or less"
            raise CorruptError("column id was never given out", **facts, expected=expected)
        seen[column.id] = name


def _check_names(columns: Iterable[Column], path: str, parent: str = "") -> None:
    """Columns beside each other differ in their names, and in what they are known as."""
    columns = tuple(columns)
    for told in ("name", "first_name"):
        names = [getattr(one, told) for one in columns]
        if len(set(names)) < len(names):
            raise CorruptError("two columns have one name", path=path, column=parent, found=names)
    for one in columns:
        _check_names(one.inner, path, _joined(parent, one.name))


def _read_past(body: Mapping[str, Any], name: str, path: str) -> tuple[str, ...]:
    found = body.get(name, [])
    if type(found) is not list or not all(type(one) is str for one in found):
        expected = "a list of texts"
        raise CorruptError("schema is not readable", path=path, field=name, expected=expected)
    return tuple(found)


def _is_id(value: Any, least: int = 1) -> bool:
    return type(value) is int and least <= value <= GREATEST_ID


def _without(body: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def _shown(value: Any) -> Any:
    """What a message says of a wrong id: the number, or else its type."""
    return value if isinstance(value, int) else type(value).__name__


def _body(column: Column) -> dict[str, Any]:
    own = {"id": column.id, "name": column.name, "type": _type_body(column)}
    past = {"known_as": column.known_as} if column.known_as else {}
    return {**column.unknown, **own, "nullable": column.nullable, **past}


def _type_body(column: Column) -> Any:
    inner = [_body(one) for one in column.inner]
    if pa.types.is_struct(column.type):
        return {"struct": inner}
    if not inner:
        return str(column.type)
    del inner[0]["name"]
    return {"list" if pa.types.is_list(column.type) else "map": inner[0]}


def _read_field(stored: dict[str, Any], parent: str, path: str) -> Column:
    """A field that lies in the column `parent` ("": in the table), with all that lies in it. `path`
    is the file. Raises CorruptError, UpgradeError, and whatever `_UNREADABLE` has."""
    name = stored["name"]
    place = _joined(parent, name)
    kind, inner = _read_type(stored["type"], place, path)
    if "id" in stored and not _is_id(stored["id"]):
        raise CorruptError(
            "column id is not a positive integer of 32 bits",
            path=path,
            column=place,
            found=_shown(stored["id"]),
        )
    made = Column(
        name,
        kind,
        stored["nullable"],
        inner,
        stored.get("id", 0),
        _without(stored, _OWN),
        stored.get("known_as", ""),
    )
    _ = made.arrow, made.known_as.encode()  # names that Arrow refuses are damage
    return made


def _read_type(stored: Any, place: str, path: str) -> tuple[pa.DataType, tuple[Column, ...]]:
    if isinstance(stored, dict):
        return _read_nested(stored, place, path)
    if stored in _PLAIN:
        return _PLAIN[stored], ()
    if numbers := _DECIMAL.fullmatch(stored):
        return pa.decimal128(int(numbers[1]), int(numbers[2])), ()
    if numbers := _FIXED.fullmatch(stored):
        return pa.binary(int(numbers[1])), ()
    raise UpgradeError("unknown column type", path=path, found=stored)


def _read_nested(
    stored: dict[str, Any], place: str, path: str
) -> tuple[pa.DataType, tuple[Column, ...]]:
    [(word, held)] = stored.items()
    if word == "struct":
        fields = tuple(_read_field(one, place, path) for one in held)
        return pa.struct([one.arrow for one in fields]), fields
    if word not in _UNNAMED:
        raise UpgradeError("unknown column type", path=path, found=word)
    inner = _read_field(held | {"name": _UNNAMED[word]}, place, path)
    kind = pa.list_(inner.arrow) if word == "list" else pa.map_(pa.string(), inner.arrow)
    return kind, (inner,)
