"""Avro schemas as a tree of nodes, each of which knows its Arrow type.

    Avro                            Arrow
    null boolean int long           null bool int32 int64
    float double bytes string       float double binary string
    fixed(n), enum                  fixed_size_binary(n), string
    array, map                      list<item>, map<string, value>
    record                          struct, a child per field
    [null, T], [T, null]            T, where null is the branch null
    any other union                 struct, a nullable child a branch other than null; in a
                                    row at most one child is valid, and that is the branch.
                                    The branch null is a null struct

A branch is called by its name; named types by the last part of theirs, unless two branches
would then share it. Logical types change nothing, unless they are asked for (`logical.py`):
columns hold what is stored (days, microseconds, unscaled bytes), which is all that the bytes say.

Refused, by UsageError: types that contain themselves, and arrays and maps whose items take
no bytes at all (a few bytes could ask for any number of those); records of which two fields have
one name; and what is nested deeper, or of more types, than any table's: a type that is named may be
told again and again, twice by each of those before, so that a few lines would ask for a billion
columns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from metatable.storage.avro.logical import logical_type
from metatable.storage.errors import UsageError, in_short

__all__ = [
    "Enum",
    "Fixed",
    "Items",
    "Logical",
    "Node",
    "Pairs",
    "Primitive",
    "Record",
    "Skipped",
    "Union",
    "parse",
]

MOST_LEVELS = 128
"""Types within types. Whoever reads a datum goes down as far, by some calls a level."""
MOST_TYPES = 1 << 16
"""Types of a schema, those of a named one counted wherever it is told."""
MOST_FIXED_BYTES = (1 << 31) - 1

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of Avro's eight."""

    name: str

    @property
    def type(self) -> pa.DataType:
        return _PRIMITIVES[self.name]


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many bytes."""

    name: str
    size: int

    @property
    def type(self) -> pa.DataType:
        return pa.binary(self.size)


@dataclass(frozen=True, slots=True)
class Logical:
    """What is stored as one type and meant as another."""

    stored: Primitive | Fixed
    type: pa.DataType

    @property
    def name(self) -> str:
        return self.stored.name


@dataclass(frozen=True, slots=True)
class Enum:
    """One of a list of symbols."""

    name: str
    symbols: tuple[str, ...]

    @property
    def type(self) -> pa.DataType:
        return pa.string()


@dataclass(frozen=True, slots=True)
class Items:
    """Avro's array."""

    item: Node
    name: str = "array"
    type: pa.DataType = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _typed(self, pa.list_(pa.field("item", self.item.type)))


_KEY = Primitive("string")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Avro's map; its keys are strings."""

    value: Node
    name: str = "map"
    type: pa.DataType = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _typed(self, pa.map_(pa.string(), self.value.type))

    @property
    def parts(self) -> tuple[Node, Node]:
        """What an entry is made of, one behind the other."""
        return _KEY, self.value


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields, in order."""

    name: str
    fields: tuple[tuple[str, Node], ...]
    type: pa.DataType = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = [(name, node.type) for name, node in self.fields if not isinstance(node, Skipped)]
        _typed(self, pa.struct([pa.field(name, kind) for name, kind in columns]))


@dataclass(frozen=True, slots=True)
class Union:
    """One of several branches. `names` are those of the struct's children, None for null."""

    branches: tuple[Node, ...]
    names: tuple[str | None, ...]
    name: str = "union"
    null: int | None = field(init=False, repr=False, compare=False)
    """The number of the branch null."""
    only: int | None = field(init=False, repr=False, compare=False)
    """The number of the one branch beside null, where there are just these two."""
    type: pa.DataType = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        null = self.names.index(None) if None in self.names else None
        object.__setattr__(self, "null", null)
        only = 1 - null if null is not None and len(self.names) == 2 else None
        object.__setattr__(self, "only", only)
        many = pa.struct([pa.field(name, node.type) for name, node in self.children])
        _typed(self, many if self.only is None else self.branches[self.only].type)

    @property
    def children(self) -> list[tuple[str, Node]]:
        """(name, branch) of the struct's children."""
        named = zip(self.names, self.branches, strict=True)
        return [(name, node) for name, node in named if name and not isinstance(node, Skipped)]


@dataclass(frozen=True, slots=True)
class Skipped:
    """What is stepped over: a field or a branch that nobody asked for, without a column."""

    node: Node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def type(self) -> pa.DataType:
        return pa.null()


def _typed(node: Node, kind: pa.DataType) -> None:
    """A node's type is asked for at every datum column, so it is made once."""
    object.__setattr__(node, "type", kind)


Node: TypeAlias = Primitive | Fixed | Logical | Enum | Items | Pairs | Record | Union | Skipped


def parse(schema: str | Mapping[str, Any], logical: bool = False) -> Record:
    """The tree of a record schema, given as JSON text or as what JSON decodes to.

    `logical`: whether logical types count.
    Raises UsageError for what is no record schema and for what is refused.
    """
    try:
        words = json.loads(schema) if isinstance(schema, str) else schema
        node = _Parser(logical).node(words, "")
    except RecursionError as error:
        raise UsageError("Avro schema is nested too deeply") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError("not an Avro schema", found=in_short(error)) from error
    if not isinstance(node, Record):
        raise UsageError("not the schema of a record", found=node.name)
    return node


class _Parser:
    """Holds the named types met so far; a type still open maps to None.

    `extents`: of named types how many types they are, and how many levels. `types` and `level` say
    how many there were so far, and how deep it is here; `deepest` how deep it was.
    """

    def __init__(self, logical: bool) -> None:
        self.named: dict[str, Node | None] = {}
        self.extents: dict[str, tuple[int, int]] = {}
        self.logical = logical
        self.types = self.level = self.deepest = 0

    def node(self, words: Any, space: str) -> Node:
        """The node of a schema as JSON has it, within the name space `space`. Raises UsageError."""
        self._count(1, 1)
        self.level += 1
        node = self._node(words, space)
        self.level -= 1
        return node

    def _count(self, types: int, levels: int) -> None:
        """So many more, so many levels below this one."""
        self.types += types
        self.deepest = max(self.deepest, self.level + levels)
        if self.deepest > MOST_LEVELS:
            raise UsageError(
                "Avro schema is nested too deeply", expected=f"at most {MOST_LEVELS} levels"
            )
        if self.types > MOST_TYPES:
            raise UsageError("Avro schema has too many types", expected=f"at most {MOST_TYPES}")

    def _node(self, words: Any, space: str) -> Node:
        if isinstance(words, list):
            return self._union(words, space)
        if isinstance(words, str):
            return self._by_name(words, space)
        kind = words["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(words, kind, space)
        if kind == "array":
            return Items(self._with_bytes(words["items"], space))
        if kind == "map":
            return Pairs(self.node(words["values"], space))
        return self._meant(words, self.node(kind, space))

    def _by_name(self, name: str, space: str) -> Node:
        if name in _PRIMITIVES:
            return Primitive(name)
        full = _full_name(name, space)
        if full not in self.named:
            raise UsageError("unknown Avro type", found=name, expected=sorted(self.named))
        node = self.named[full]
        if node is None:
            raise UsageError("an Avro type that contains itself has no columns", found=full)
        self._count(*self.extents[full])
        return node

    def _define(self, words: Mapping[str, Any], kind: str, space: str) -> Node:
        """The node of a named type, which the schema may name again behind it."""
        full = _full_name(words["name"], words.get("namespace", space))
        self.named[full] = None
        types, deepest, self.deepest = self.types, self.deepest, self.level
        inner = full.rpartition(".")[0]
        node: Node
        if kind == "enum":
            node = Enum(full, _symbols(words["symbols"]))
        elif kind == "fixed":
            node = self._meant(words, Fixed(full, _size(words["size"])))
        else:
            fields = [(f["name"], self.node(f["type"], inner)) for f in words["fields"]]
            names = Counter(name for name, _ in fields)
            if len(names) < len(fields):
                [(found, _)] = names.most_common(1)
                raise UsageError("an Avro record names a field twice", found=found)
            node = Record(full, tuple(fields))
        self.named[full] = node
        self.extents[full] = self.types - types, self.deepest - self.level
        self.deepest = max(self.deepest, deepest)
        return node

    def _meant(self, words: Mapping[str, Any], stored: Node) -> Node:
        """What a stored type means by its `logicalType`, where that is asked for."""
        if not self.logical or "logicalType" not in words:
            return stored
        kind = logical_type(words)
        if kind is None or not isinstance(stored, Primitive | Fixed):
            return stored
        return Logical(stored, kind)

    def _union(self, words: list[Any], space: str) -> Union:
        branches = tuple(self.node(word, space) for word in words)
        if not branches or any(isinstance(branch, Union) for branch in branches):
            raise UsageError("not an Avro union", found=words)
        short = [branch.name.rpartition(".")[2] for branch in branches]
        names = [
            last if short.count(last) == 1 else branch.name
            for last, branch in zip(short, branches, strict=True)
        ]
        if len(set(names)) != len(names):
            raise UsageError("an Avro union names a branch twice", found=names)
        return Union(branches, tuple(None if name == "null" else name for name in names))

    def _with_bytes(self, words: Any, space: str) -> Node:
        item = self.node(words, space)
        if _may_be_empty(item):
            raise UsageError("an Avro array of items without bytes has no bound", found=words)
        return item


def _symbols(words: Any) -> tuple[str, ...]:
    """Those of an enum: texts. Raises TypeError, ValueError."""
    if not isinstance(words, list):
        raise TypeError(f"symbols are a {type(words).__name__}")
    for one in words:
        str.encode(one)
    return tuple(words)


def _size(words: Any) -> int:
    size = int(words)
    if not 0 <= size <= MOST_FIXED_BYTES:
        raise ValueError(f"a fixed type of {size} bytes")
    return size


def _may_be_empty(node: Node) -> bool:
    if isinstance(node, Record):
        return all(_may_be_empty(field) for _, field in node.fields)
    return node.name == "null" or (isinstance(node, Fixed) and node.size == 0)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
