"""Buckets: the file group of a key follows from its hash; nothing is stored for a key."""

from metatable.index.bucket import index, simple

__all__ = ["index", "simple"]
