"""Records whose keys have one size and whose values have several, searched where they lie.

The file says the sizes of all values, so that where a record is, is a sum. Nothing but these places
and eight bytes of every key is made of the records: wanted keys of the same size are searched in
those words, compared as words where they landed, and only the records that are answered with are
proven by their bytes (finding.py), besides the last one of each block.

Where eight bytes do not order the keys of some blocks, or leave more than some undecided, `find`
says None, and the records are found and searched as those of any size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s, UInt8s, UInt64s
from metatable.storage.byte_columns import Voids, first_words, words_of
from metatable.storage.hfile.columns import (
    common_prefix_size,
    repeated,
)
from metatable.storage.hfile.key_values import KEY_SUFFIX, MAX_ROW_SIZE, KeyValues
from metatable.storage.hfile.reading.alike import proven, same_keys
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.reading.finding import check_records, rows_of_sizes
from metatable.storage.hfile.record_sizes import Sizes

__all__ = ["EvenKeys"]

_WORD = 8
MOST_UNSURE = 64
"""Records of a group that are compared one by one, because several have a wanted key's word."""


@dataclass(frozen=True, slots=True)
class EvenKeys:
    """The size of all keys of a file, which is at `path`, by its own word."""

    key_size: int
    path: str

    @classmethod
    def of(cls, keys: Sizes, wanted: Voids, path: str) -> EvenKeys | None:
        """What these keys are searched by; None where they cannot be searched so."""
        size = wanted.dtype.itemsize
        fits = isinstance(keys, int) and keys == size and _WORD <= size <= MAX_ROW_SIZE
        return cls(size, path) if fits else None

    def find(
        self, payloads: Payloads, counts: Int64s, values: Sizes, offset: int, wanted: Voids
    ) -> pa.Array | None:
        """The value of each of the ascending `wanted`, null where it is not there.

        `counts`: records of each block, which have passed `check_counts`; `values`: the sizes of
        their values; `offset`: of the first block in the file. None where eight bytes do not order
        the keys, or tell too few apart. Raises CorruptError.
        """
        size, raw = self.key_size, payloads.raw
        rows, lasts = rows_of_sizes(payloads, counts, size, values, self.path, offset)
        ends = (raw[at : at + size].tobytes() for at in rows[[0, -1]].tolist())
        skip = min(common_prefix_size(*ends), size - _WORD)
        words = first_words(raw, rows + skip, repeated(_WORD, len(rows)))
        if (words[1:] < words[:-1]).any():
            return None
        check_records(self._records(raw, rows, values, lasts), self.path, offset)
        sought = words_of(wanted, skip)
        places = np.searchsorted(words, sought)
        np.minimum(places, len(words) - 1, out=places)
        seeming = np.flatnonzero(words[places] == sought)
        if not len(seeming):
            return pa.nulls(len(wanted), pa.binary())
        landed, keys = places[seeming], wanted[seeming]
        if not _part_ties(raw, rows, words, landed, keys, skip):
            return None
        there = self._records(raw, rows, values, landed)
        same, records = proven(there, keys, skip, self.path, offset)
        seeming = seeming[same]
        found = records.values()
        if len(found) == len(wanted):
            return found
        order = np.full(len(wanted), -1, np.int64)
        order[seeming] = np.arange(len(seeming))
        return found.take(pa.array(order, mask=order < 0))

    def _records(self, raw: UInt8s, rows: Int64s, values: Sizes, chosen: Int64s) -> KeyValues:
        count = len(chosen)
        sizes = repeated(values, count) if isinstance(values, int) else values[chosen]
        alike = repeated(self.key_size, count), repeated(len(KEY_SUFFIX), count)
        return KeyValues(raw, rows[chosen], *alike, sizes.astype(np.int64, copy=False))


def _part_ties(
    raw: UInt8s, rows: Int64s, words: UInt64s, landed: Int64s, keys: Voids, skip: int
) -> bool:
    """Move keys that landed at another's record, of the same word as those behind it, to their
    own, if it is there. Words ascend. False where too many are told apart by other bytes."""
    after = np.minimum(landed + 1, len(words) - 1)
    tied = np.flatnonzero((after > landed) & (words[after] == words[landed]))
    if not len(tied):
        return True
    unsure = tied[~same_keys(raw, rows[landed[tied]], keys[tied], skip)]
    firsts = landed[unsure]
    behind = np.searchsorted(words, words[firsts], "right")
    if int((behind - firsts).sum()) > MOST_UNSURE:
        return False
    size = keys.dtype.itemsize
    for key, first, end in zip(unsure.tolist(), firsts.tolist(), behind.tolist(), strict=True):
        told = keys[key].tobytes()
        starts = enumerate(rows[first:end].tolist(), first)
        hits = (place for place, at in starts if raw[at : at + size].tobytes() == told)
        landed[key] = next(hits, first)
    return True
