"""Placement: which file group a row goes to, where the index decides it.

Most indexes leave that open (`Index.placement` is None): a row whose key is stored stays in its
group, and the write's plan fills small files and opens new ones. Where a key's group follows
from the key, as in buckets, rows are placed by this instead, stored or not.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from metatable.storage.arrays import Int64s

__all__ = ["Placement"]


class Placement(Protocol):
    """Names the file group of each row. It must pickle, and say the same to everyone who asks at
    one version."""

    def place(self, keys: pa.Array, partition_paths: pa.Array) -> tuple[Int64s, pa.Array]:
        """Pairs of a row's number (ascending) and the id of a file group in its partition.

        Every row comes at least once. One that goes to two groups comes twice. A group that
        is not there yet is opened under this id: of two writers that open it one is first.
        """
        ...
