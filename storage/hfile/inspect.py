"""Looking into an HFile of any writer: its facts for people, and its faults (verify.py)."""

from __future__ import annotations

import base64
from dataclasses import fields
from typing import Any

from metatable.storage.hfile.file_info import LASTKEY, NUMBERS
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.trailer import MAJOR
from metatable.storage.hfile.verify import verify

__all__ = ["meta", "verify"]

_NUMBER_BYTES = (4, 8)


def meta(reader: HFileReader) -> dict[str, Any]:
    """An HFile's facts as JSON values: trailer, file info, counts, first and last key (base64)."""
    opened, trailer = reader.opened, reader.trailer
    facts = {one.name: getattr(trailer, one.name) for one in fields(trailer)}
    return {
        "path": opened.path,
        "size_bytes": opened.size_bytes,
        "version": f"{MAJOR}.{trailer.minor}",
        "codec": trailer.compression_codec.name,
        "comparator": trailer.comparator_class_name,
        "entry_count": reader.entry_count,
        "data_block_count": len(reader.tree.all()),
        "first_key": _base64(reader.first_key),
        "last_key": _base64(reader.last_key),
        "meta_blocks": {name: size for name, (_, size) in sorted(opened.meta.items())},
        "trailer": facts | {"compression_codec": trailer.compression_codec.name},
        "file_info": {
            _name(name): _fact(name, opened.file_info[name]) for name in opened.file_info
        },
    }


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _fact(name: bytes, value: bytes) -> int | str | dict[str, str]:
    """A number where the name is known for one, and it is of a size that one has; text where it is
    text, else base64."""
    if name in NUMBERS and len(value) in _NUMBER_BYTES:
        return int.from_bytes(value, "big", signed=True)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(value)}
    return text if name != LASTKEY and "\0" not in text else {"base64": _base64(value)}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
