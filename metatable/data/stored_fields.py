"""Stored fields: how a record becomes JSON values and comes back, whoever wrote it.

A record is a frozen dataclass. Whatever is stored can grow, so one rule holds for all of them:

    a field that is absent    takes its default; without one the record is damaged
    a field of a wrong kind   is damage, told with where, which field, expected and found
    a field that is unknown   is kept in `unknown`, and written again with the record

Whether a reader may pass over what it does not know is said by the format number of the root
(`metadata/FORMAT.md`), not here. Kinds go by annotation; a field of records, or one that is
required although it has a default, says so with `stored`.
"""

from __future__ import annotations

import dataclasses
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from metatable.storage.errors import CorruptError

__all__ = [
    "NATURAL",
    "UNKNOWN",
    "Kind",
    "decode_fields",
    "encode_fields",
    "many",
    "mapping_of",
    "stored",
]

UNKNOWN = "unknown"
"""The field in which a record keeps what it does not know."""

T = TypeVar("T")


class Kind(NamedTuple):
    """One kind of value: into JSON, and back. `decode` raises ValueError or TypeError."""

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def stored(kind: Kind | None = None, *, required: bool = False, **how: Any) -> Any:
    """A dataclass field of this kind. `required`: its default is for new records alone."""
    return dataclasses.field(metadata={"kind": kind, "required": required}, **how)


def encode_fields(record: Any) -> dict[str, Any]:
    """The record as JSON values, with the fields that it carries for others."""
    own = {
        name: kind.encode(getattr(record, name))
        for name, kind in _fields_of(type(record)).kinds.items()
        if kind is not None
    }
    return {**getattr(record, UNKNOWN, {}), **own}


def decode_fields(cls: type[T], body: Any, path: str, what: str) -> T:
    """A record from JSON values. Raises CorruptError naming `what`, the file and the field."""
    if not isinstance(body, dict):
        raise CorruptError(
            f"{what} is damaged", path=path, expected="an object", found=_short(body)
        )
    kinds, required = _fields_of(cls)
    values = {}
    for name, kind in kinds.items():
        if kind is None:
            values[name] = {key: value for key, value in body.items() if key not in kinds}
        elif name in body:
            values[name] = _decoded(name, kind, body[name], path, what)
        elif name in required:
            raise CorruptError(
                f"{what} is incomplete", path=path, expected=name, found=sorted(body)
            )
    return cls(**values)


def many(cls: type[Any], what: str) -> Kind:
    """A list of records; their errors name the file of the record that holds them."""

    def decode(body: Any) -> tuple[Any, ...]:
        return tuple(decode_fields(cls, one, "", what) for one in _list(body))

    return Kind(f"a list of {what}s", lambda held: [encode_fields(one) for one in held], decode)


def one_of(cls: type[Any], what: str) -> Kind:
    """One record."""
    return Kind(f"a {what}", encode_fields, lambda body: decode_fields(cls, body, "", what))


def mapping_of(kind: Kind) -> Kind:
    """An object whose values are of one kind."""

    def decode(body: Any) -> dict[str, Any]:
        return {name: kind.decode(value) for name, value in _dict(body).items()}

    def encode(held: Mapping[str, Any]) -> dict[str, Any]:
        return {name: kind.encode(value) for name, value in held.items()}

    return Kind(f"an object of {kind.name}", encode, decode)


def _decoded(name: str, kind: Kind, value: Any, path: str, what: str) -> Any:
    """The value of a field; `path` and `what` are the file and the record that hold it. Raises
    CorruptError."""
    try:
        return kind.decode(value)
    except CorruptError as error:  # of a record inside of this one
        error.facts["path"] = path
        raise
    except (ValueError, TypeError) as error:
        raise CorruptError(
            f"{what} is damaged",
            path=path,
            field=name,
            expected=kind.name,
            found=_short(value),
        ) from error


class _Fields(NamedTuple):
    """What is asked of a class of records again and again."""

    kinds: dict[str, Kind | None]
    """By name; None: of what a record keeps for others."""
    required: frozenset[str]


_fields: dict[type[Any], _Fields] = {}


def _fields_of(cls: type[Any]) -> _Fields:
    known = _fields.get(cls)
    if known is None:
        fields = dataclasses.fields(cls)
        kinds = {one.name: None if one.name == UNKNOWN else _kind_of(one) for one in fields}
        required = frozenset(one.name for one in fields if _has_no_default(one))
        known = _fields[cls] = _Fields(kinds, required)
    return known


def _has_no_default(one: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return bool(
        one.metadata.get("required") or (one.default is missing and one.default_factory is missing)
    )


def _kind_of(one: dataclasses.Field[Any]) -> Kind:
    return one.metadata.get("kind") or _KINDS[str(one.type)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _same(value: Any) -> Any:
    return value


def _of(*kinds: type) -> Callable[[Any], Any]:
    """A check of the value's very type: a bool is no integer here."""

    def decode(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(type(value).__name__)
        return value

    return decode


_INT64 = range(-(1 << 63), 1 << 63)
_dict, _list = _of(dict), _of(list)


def _int(value: Any) -> int:
    if _of(int)(value) not in _INT64:
        raise ValueError("beyond 64 bits")
    return int(value)


def _number(value: Any) -> int | float:
    """Also one without a point, which is no larger than what a double can be."""
    return _int(value) if type(value) is int else float(_of(float)(value))


def _bytes(value: Any) -> bytes:
    return b64decode(_of(str)(value), validate=True)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_of(str)(one) for one in _list(value))


def _pair(*kinds: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What decodes a list of as many values, each by its own function."""

    def decode(value: Any) -> tuple[Any, ...]:
        return tuple(kind(one) for kind, one in zip(kinds, _list(value), strict=True))

    return decode


def _or_none(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else decode(value)


def _natural(value: Any) -> int:
    if (found := _int(value)) < 0:
        raise ValueError("below 0")
    return found


_INTEGER = Kind("an integer", _same, _int)
NATURAL = Kind("an integer from 0 on", _same, _natural)
_TEXT = Kind("a text", _same, _of(str))

_KINDS: dict[str, Kind] = {
    "int": _INTEGER,
    "str": _TEXT,
    "bool": Kind("true or false", _same, _of(bool)),
    "float": Kind("a number", _same, _number),
    "bytes": Kind("base64", lambda held: b64encode(held).decode(), _bytes),
    "str | None": Kind("a text or null", _same, _or_none(_of(str))),
    "tuple[str, ...]": Kind("a list of texts", list, _texts),
    "tuple[int, int]": Kind("two integers", list, _pair(_int, _int)),
    "tuple[int, str] | None": Kind(
        "[integer, text] or null",
        lambda held: held and list(held),
        _or_none(_pair(_int, _of(str))),
    ),
    "Mapping[str, int]": mapping_of(_INTEGER),
    "Mapping[str, str]": mapping_of(_TEXT),
    "Mapping[str, Any]": Kind("an object", dict, _dict),
}
