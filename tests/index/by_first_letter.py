"""An index with a metadata partition of its own: which first letters the keys of a file have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.config.options import Options
from metatable.index import register
from metatable.index.metadata_bloom import MetadataBloomIndex
from metatable.metadata.hfiles.keys import file_group_keys
from metatable.metadata.hfiles.partition import ENTRIES, MetadataPartition
from metatable.metadata.written import WrittenSlice

__all__ = ["LettersIndex", "LettersPartition"]


class LettersPartition(MetadataPartition):
    name: ClassVar[str] = "letters"
    tombstone: ClassVar[bytes] = b"-"
    default_buckets: ClassVar[int] = 2

    def entries(self, written: Sequence[WrittenSlice]) -> pa.Table:
        paths = pa.array([one.made.partition_path for one in written])
        keys = file_group_keys(paths, pa.array([one.made.file_id for one in written]))
        letters = (pc.unique(pc.utf8_slice_codeunits(one.keys, 0, 1)) for one in written)
        values = ["".join(sorted(one.to_pylist())).encode() for one in letters]
        values = pa.array(values, pa.binary())
        return pa.table([pa.array(self.places(keys)), keys, values], schema=ENTRIES)


class LettersIndex(MetadataBloomIndex):
    name = "letters"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.partitions = (*self.partitions, LettersPartition(options))


register(LettersIndex.name, LettersIndex)
