"""Filters: whether a file may hold a key, told by 64-bit hashes. Two families of them."""

from metatable.storage.filters import fingerprints, split_block
from metatable.storage.filters.protocol import Filter, build, decode, kinds, register

__all__ = ["Filter", "build", "decode", "kinds", "register"]

register(fingerprints.KIND, fingerprints.Fingerprints.build, fingerprints.Fingerprints.decode)
register(split_block.KIND, split_block.SplitBlock.build, split_block.SplitBlock.decode)
