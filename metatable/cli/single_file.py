"""FILE, an argument of verbs that look into one: a path, or an address that the store takes."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from metatable.cli.named_values import storage_options
from metatable.storage.address import normal
from metatable.storage.errors import UsageError

if TYPE_CHECKING:
    from metatable.storage.store import Store

__all__ = ["place_of"]


def place_of(args: argparse.Namespace) -> tuple[Store, str]:
    """The folder, as a store, and the name of FILE."""
    from metatable.storage.store import Store  # noqa: PLC0415  (loads numpy)

    file, options = args.file, storage_options(args)
    if file.lower().startswith("file://"):
        file = normal(file)
    folder, _, name = file.rpartition("/")
    if not name or folder.endswith(":/") or os.path.isdir(file):
        raise UsageError("not a file", found=file, expected="a path that ends with a file's name")
    return Store(folder or ("/" if file.startswith("/") else "."), options), name
