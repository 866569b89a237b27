"""`metatable hfile meta|scan|get|verify FILE`: look into an HFile of any writer.

FILE is a path or any address that the store takes (`s3://bucket/folder/name.hfile`). With
`--json`: `meta` prints one object; `scan` and `get` one object a line, `{"key": base64,
"value": base64}`, null for the value of an absent key; `verify` one list of findings.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import os

import pyarrow as pa

from metatable.storage.errors import UsageError
from metatable.storage.hfile import inspect
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store

__all__ = ["register"]


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `hfile` and what it can do."""
    parser = verbs.add_parser("hfile", help="look into an HFile")
    kinds = parser.add_subparsers(metavar="WHAT", required=True)
    for name, run, told in (
        ("meta", _meta, "trailer, file info, counts, codec, comparator, first and last key"),
        ("scan", _scan, "all entries, in file order"),
        ("get", _get, "the values of some keys"),
        ("verify", _verify, "read everything and report what is wrong (exit code 1)"),
    ):
        kind = kinds.add_parser(name, help=told, description=told)
        kind.add_argument("file", metavar="FILE")
        if name == "get":
            kind.add_argument("keys", metavar="KEY", nargs="+")
            kind.add_argument("--key-base64", action="store_true", help="keys are base64")
        kind.add_argument("--json", action="store_true", help="print JSON and nothing else")
        kind.set_defaults(run=run)


def _meta(args: argparse.Namespace) -> int:
    facts = inspect.meta(_reader(args.file))
    if args.json:
        print(json.dumps(facts))
        return 0
    facts["first_key"], facts["last_key"] = map(_unbase64, (facts["first_key"], facts["last_key"]))
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for inner, told in value.items():
                print(f"  {inner}: {_short(told)}")
        else:
            print(f"{name}: {_shown(value) if isinstance(value, bytes) else value}")
    return 0


def _scan(args: argparse.Namespace) -> int:
    for batch in _reader(args.file).scan():
        _print_entries(batch["key"].to_pylist(), batch["value"].to_pylist(), args.json)
    return 0


def _get(args: argparse.Namespace) -> int:
    keys = [_unbase64(key) if args.key_base64 else os.fsencode(key) for key in args.keys]
    values = _reader(args.file).find(pa.array(keys, pa.binary()))
    _print_entries(keys, values.to_pylist(), args.json)
    return 0


def _verify(args: argparse.Namespace) -> int:
    findings = inspect.verify(*_place(args.file))
    if args.json:
        parts = [{"code": one.code, "where": one.where, "detail": one.detail} for one in findings]
        print(json.dumps(parts))
    else:
        print("\n".join(map(str, findings)) or f"{args.file}: nothing wrong")
    return 1 if findings else 0


def _reader(file: str) -> HFileReader:
    return HFileReader.open(*_place(file))


def _place(file: str) -> tuple[Store, str]:
    """The folder, as a store, and the name of FILE."""
    folder, _, name = file.rpartition("/")
    if not name:
        raise UsageError("not a file", found=file, expected="a path that ends with a name")
    return Store(folder or ("/" if file.startswith("/") else ".")), name


def _print_entries(keys: list[bytes], values: list[bytes | None], as_json: bool) -> None:
    text = "\n".join(map(_json_line if as_json else _text_line, keys, values))
    if text:
        print(text)


def _json_line(key: bytes, value: bytes | None) -> str:
    encoded = None if value is None else base64.b64encode(value).decode()
    return json.dumps({"key": base64.b64encode(key).decode(), "value": encoded})


def _text_line(key: bytes, value: bytes | None) -> str:
    return f"{_shown(key)}\t{'(absent)' if value is None else _shown(value)}"


def _shown(raw: bytes) -> str:
    """Text where it is printable text, else a Python literal."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return repr(raw)
    return text if text.isprintable() else repr(raw)


def _short(told: object, most: int = 200) -> str:
    text = str(told)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UsageError("key is not base64", found=text, expected=str(error)) from error
