"""Home: the folder in a table's that is ours. What lies in it: metadata/FORMAT.md."""

from __future__ import annotations

__all__ = ["COMMITS", "HOME"]

HOME = ".hoodie/metatable"
COMMITS = f"{HOME}/commits"
