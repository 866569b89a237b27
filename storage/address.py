"""What users name a store by: a folder or a URL, and options.

An address never tells a password: it would stand in every message, and in the log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from metatable.storage.errors import UsageError

__all__ = ["normal", "texts"]

_ADDRESS = "a folder, or an address such as s3://bucket/folder"

_PASSWORD = re.compile(r"(?<=://)[^/:]*:(?!\d+(?:/|$)).*@")
"""What an address may have before its host; `abfs://container@account` has none, nor a port."""

_ONE_SLASH = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE)
"""What pathlib makes of the beginning of an address. Taken for a folder, rows would go to this
machine."""

_BEHIND = re.compile(r"(?<=://)([^?#]*)[?#].*", re.DOTALL)
"""What clients of stores leave out of an address without a word; a signed link has its secret
there."""


def normal(uri: str | os.PathLike[str]) -> str:
    """A folder as an absolute path, an address without its last slash. Raises UsageError."""
    if not isinstance(uri, str | os.PathLike) or not isinstance(os.fspath(uri), str):
        raise UsageError("not an address", found=type(uri).__name__, expected=_ADDRESS)
    text = os.fspath(uri)
    told = _without_secrets(text)
    if not _is_unicode(text):
        expected = "UTF-8; where the locale is another, PYTHONUTF8=1"
        raise UsageError("not an address: it is not UTF-8", found=told, expected=expected)
    if not text.strip() or "\0" in text:
        raise UsageError("not an address", found=told, expected=_ADDRESS)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError("not an address", found=told, expected=_ADDRESS) from error
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            expected = "file:///folder, with %3F for ? and %23 for #"
            raise UsageError("not an address", found=told, expected=expected)
        return os.path.abspath(unquote(parts.path))
    if "://" in text:
        if not parts.netloc:
            raise UsageError("not an address", found=told, expected=_ADDRESS)
        expected = "storage_options, or the environment"
        if _PASSWORD.search(text):
            raise UsageError("an address tells no password", found=told, expected=expected)
        if told != text:
            raise UsageError("an address ends before ? and #", found=told, expected=expected)
        return text.rstrip("/")
    if _ONE_SLASH.match(text):
        what = "an address has two slashes (a pathlib.Path drops one): give it as a text"
        raise UsageError(what, found=told, expected=_ADDRESS)
    return os.path.abspath(os.path.expanduser(text))


def _without_secrets(text: str) -> str:
    return _BEHIND.sub(r"\1…", _PASSWORD.sub("…@", text))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def texts(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options as texts: a caller may well say True or 5. Raises UsageError."""
    if not isinstance(options, Mapping | None):
        found = type(options).__name__
        raise UsageError("storage options are no mapping", expected="names and texts", found=found)
    told = {}
    for name, value in (options or {}).items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            kind = type(value).__name__
            raise UsageError("bad storage option", option=name, expected="a text", found=kind)
        told[name] = _text(value)
    return told


def _text(value: str | int | float) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # that of an enumeration prints its name
    return str(value).lower() if isinstance(value, bool) else str(value)
