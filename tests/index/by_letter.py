"""An index as a user writes one: where a key's first letter names its file group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.index import PlacedIndex, register
from metatable.metadata.view import TableView
from metatable.storage.arrays import Int64s

__all__ = ["ByLetter"]


class Letters:
    def place(self, keys: pa.Array, partition_paths: pa.Array) -> tuple[Int64s, pa.Array]:
        return np.arange(len(keys)), pc.utf8_slice_codeunits(keys, 0, 1)


class ByLetter(PlacedIndex):
    name = "by_letter"
    where: Any = Letters()

    def placement(self, view: TableView) -> Any:
        return self.where


register(ByLetter.name, ByLetter)
