"""Which tables an engine can work on whose tasks run in other processes."""

from __future__ import annotations

from metatable.storage.errors import UsageError
from metatable.storage.store import Store

__all__ = ["check_shared"]


def check_shared(store: Store) -> None:
    """Raises UsageError for a store that lies in the memory of this process (`memory://`)."""
    if store.uri.startswith("memory:"):
        what = "Spark does not see the memory of this process"
        raise UsageError(what, expected="a table in a folder or an object store", found=store.uri)
