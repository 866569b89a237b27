"""`metatable hfile meta|keys|scan|get|verify FILE`: look into an HFile of any writer.

FILE is a path or any address that the store takes (`s3://bucket/folder/name.hfile`). With
`--json`: `meta` prints one object; `scan` and `get` one object per line, `{"key": base64,
"value": base64}`, null for the value of an absent key; `keys` the same without values;
`verify` one list of findings. `keys` and `scan` print while they read, a few megabytes of the
file at a time; `--prefix` begins where such keys begin and ends behind the last of them.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from metatable.cli.no_verb import show_help_of
from metatable.cli.render import printable
from metatable.cli.single_file import place_of
from metatable.cli.verb import FINDINGS, FINE, Verbs, add_common
from metatable.storage.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from metatable.storage.hfile.reader import HFileReader

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add `hfile` and what it can do."""
    told = "look into an HFile of any writer"
    parser = verbs.add_parser("hfile", help=told, description=told)
    show_help_of(parser)
    kinds = parser.add_subparsers(metavar="WHAT")
    for name, run, told, example in (
        ("meta", _meta, "trailer, file info, counts, codec, comparator, first and last key", ""),
        ("keys", _keys, "all keys, in file order", " --prefix user/ --limit 10"),
        ("scan", _scan, "all entries, in file order", " --limit 10 --json"),
        ("get", _get, "the values of some keys", " key-1 key-2"),
        ("verify", _verify, "read everything and report what is wrong (exit code 1)", ""),
    ):
        kind = kinds.add_parser(name, help=told)
        kind.add_argument("file", metavar="FILE")
        if name == "get":
            kind.add_argument("keys", metavar="KEY", nargs="+")
            kind.add_argument("--key-base64", action="store_true", help="keys are base64")
        if name in ("keys", "scan"):
            kind.add_argument("--prefix", metavar="KEY", help="only keys that begin so")
            kind.add_argument("--key-base64", action="store_true", help="the prefix is base64")
            kind.add_argument("--limit", metavar="N", type=int, help="no more than so many")
        add_common(kind, run, told, f"metatable hfile {name} a.hfile{example}")


def _meta(args: argparse.Namespace) -> int:
    from metatable.storage.hfile import inspect  # noqa: PLC0415  (loads pyarrow)

    facts = inspect.meta(_reader(args))
    if args.json:
        print(json.dumps(facts))
        return FINE
    facts["first_key"], facts["last_key"] = map(_unbase64, (facts["first_key"], facts["last_key"]))
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for inner, told in value.items():
                print(f"  {printable(inner)}: {_short(told)}")
        else:
            told = _shown(value) if isinstance(value, bytes) else printable(str(value))
            print(f"{name}: {told}")
    return FINE


def _keys(args: argparse.Namespace) -> int:
    for batch in _batches(args):
        _print_lines(map(_json_key if args.json else _shown, batch["key"].to_pylist()))
    return FINE


def _scan(args: argparse.Namespace) -> int:
    for batch in _batches(args):
        _print_entries(batch["key"].to_pylist(), batch["value"].to_pylist(), args.json)
    return FINE


def _batches(args: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    """The entries that are asked for, as they are read."""
    if args.limit is not None and args.limit < 0:
        raise UsageError("limit is negative", found=args.limit, expected="0 or more")
    prefix = None if args.prefix is None else _key(args.prefix, args.key_base64)
    left = sys.maxsize if args.limit is None else args.limit
    for batch in _reader(args).scan(prefix, views=True):
        wanted = batch if prefix is None else _begun(batch, prefix)
        yield wanted[:left]
        left -= len(wanted)
        if left <= 0 or len(wanted) < len(batch):
            return


def _begun(batch: pa.RecordBatch, prefix: bytes) -> pa.RecordBatch:
    """Of a batch whose keys are `prefix` or above it, those that begin with it."""
    begins = [key.startswith(prefix) for key in batch["key"].to_pylist()]
    return batch[: begins.index(False) if False in begins else len(begins)]


def _get(args: argparse.Namespace) -> int:
    import pyarrow as pa  # noqa: PLC0415  (slow to load)

    keys = [_key(key, args.key_base64) for key in args.keys]
    values = _reader(args).find(pa.array(keys, pa.binary()))
    _print_entries(keys, values.to_pylist(), args.json)
    return FINE


def _verify(args: argparse.Namespace) -> int:
    from metatable.storage.hfile import inspect  # noqa: PLC0415  (loads pyarrow)

    findings = inspect.verify(*place_of(args))
    if args.json:
        parts = [{"code": one.code, "where": one.where, "detail": one.detail} for one in findings]
        print(json.dumps(parts))
    else:
        print("\n".join(map(str, findings)) or f"{args.file}: nothing wrong")
    return FINDINGS if findings else FINE


def _reader(args: argparse.Namespace) -> HFileReader:
    from metatable.storage.hfile.reader import HFileReader  # noqa: PLC0415  (loads pyarrow)

    return HFileReader.open(*place_of(args))


def _print_entries(keys: list[bytes], values: list[bytes | None], as_json: bool) -> None:
    _print_lines(map(_json_line if as_json else _text_line, keys, values))


def _print_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _json_key(key: bytes) -> str:
    return json.dumps({"key": base64.b64encode(key).decode()})


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
    shown = printable(text[:most])
    return shown if len(text) <= most else f"{shown}… ({len(text)} characters)"


def _key(word: str, is_base64: bool) -> bytes:
    """A key as it was typed; bytes that are no text arrive as they are."""
    return _unbase64(word) if is_base64 else os.fsencode(word)


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii.Error is one
        raise UsageError(f"key is not base64: {error}", found=text) from error
