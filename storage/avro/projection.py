"""Projection: a record of which only some fields become columns, the others are stepped over.

A field of a field is named "a.b", and so is a branch of a union: of many branches that a schema
allows, a reader asks for those that it understands. A union of null and one type is that type,
and has no name of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from metatable.storage.avro.schema import Node, Record, Skipped, Union
from metatable.storage.errors import UsageError

__all__ = ["projected"]


def projected(record: Record, fields: Sequence[str]) -> Record:
    """`record` with only these `fields`. Raises UsageError for one that is not there."""
    return Record(record.name, _some(record.fields, fields))


def _some(named: Sequence[tuple[str, Node]], fields: Sequence[str]) -> tuple[tuple[str, Node], ...]:
    within: dict[str, list[str]] = {}
    for field in fields:
        name, _, rest = field.partition(".")
        within.setdefault(name, []).append(rest)
    names = [name for name, _ in named]
    for name in within:
        if name not in names:
            raise UsageError("no such field", field=name, expected=names)
    return tuple(
        (name, _of(node, within[name]) if name in within else Skipped(node)) for name, node in named
    )


def _of(node: Node, fields: Sequence[str]) -> Node:
    """The node itself where all of it is asked for, which is written as ""."""
    if "" in fields:
        return node
    if isinstance(node, Record):
        return projected(node, fields)
    if not isinstance(node, Union):
        raise UsageError("no fields in this Avro type", field=fields[0], found=node.name)
    if node.only is not None:
        branches = [
            _of(one, fields) if place == node.only else one
            for place, one in enumerate(node.branches)
        ]
        return Union(tuple(branches), node.names)
    named = [(name or "null", one) for name, one in zip(node.names, node.branches, strict=True)]
    branches = [
        one if name == "null" else some
        for (name, one), (_, some) in zip(named, _some(named, fields), strict=True)
    ]
    return Union(tuple(branches), node.names)
