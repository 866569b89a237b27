"""Sealed: JSON that lies beside its checksum, as roots, pages and plans are stored.

    {"body":<an object>,"checksum":"<8 hex digits>"}

The checksum is the CRC32C of the body's compact form with sorted keys: whoever looks at one may
format it otherwise, but a digit that has changed is found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import google_crc32c

from metatable.storage.errors import CorruptError, in_short

__all__ = ["checksum", "seal", "unseal"]


def seal(body: Mapping[str, Any]) -> bytes:
    """A body with its checksum, as roots, pages and plans are stored: all on one line."""
    compact = _compact(body)
    return b'{"body":%s,"checksum":"%s"}' % (compact, checksum(compact).encode())


def unseal(raw: bytes, path: str, what: str = "manifest") -> dict[str, Any]:
    """The body. Raises CorruptError."""
    try:
        sealed = json.loads(raw)
        body, expected = sealed["body"], sealed["checksum"]
        found = checksum(_compact(body))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"not a {what} file", path=path, found=in_short(error)) from error
    if found != expected or not isinstance(body, dict):
        raise CorruptError("checksum mismatch", path=path, expected=expected, found=found)
    return body


def checksum(raw: bytes) -> str:
    """CRC32C in hex, as manifests name it."""
    return f"{google_crc32c.value(raw):08x}"


def _compact(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
