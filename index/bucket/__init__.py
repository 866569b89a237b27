"""Buckets: the file group of a key follows from its hash; nothing is stored, nothing looked up."""

from metatable.index.bucket import simple

__all__ = ["simple"]
