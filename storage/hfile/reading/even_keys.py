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

from metatable.storage.byte_columns import Voids, first_words, words_of
from metatable.storage.hfile.columns import Int64s, UInt64s, common_prefix_size, repeated
from metatable.storage.hfile.key_values import KEY_SUFFIX, MAX_ROW_SIZE, KeyValues
from metatable.storage.hfile.reading.alike import same_keys
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
        """None where these keys cannot be searched so."""
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
        places = _places(payloads, rows, words, wanted, skip)
        if places is None:
            return None
        hits = places >= 0
        self._proven(payloads, rows, values, lasts, offset)
        found = self._proven(payloads, rows, values, places[hits], offset).values()
        if len(found) == len(wanted):
            return found
        return found.take(pa.array(np.cumsum(hits) - 1, mask=~hits))

    def _proven(
        self, payloads: Payloads, rows: Int64s, values: Sizes, chosen: Int64s, offset: int
    ) -> KeyValues:
        """The chosen records. Raises CorruptError unless their bytes say that they are some."""
        count = len(chosen)
        sizes = repeated(values, count) if isinstance(values, int) else values[chosen]
        alike = repeated(self.key_size, count), repeated(len(KEY_SUFFIX), count)
        records = KeyValues(payloads.raw, rows[chosen], *alike, sizes.astype(np.int64))
        check_records(records, self.path, offset)
        return records


def _places(
    payloads: Payloads, rows: Int64s, words: UInt64s, wanted: Voids, skip: int
) -> Int64s | None:
    """The first record of each wanted key, -1 where there is none; None where too many are told
    apart by other bytes than the words, which ascend."""
    sought = words_of(wanted, skip)
    places = np.searchsorted(words, sought)
    np.minimum(places, len(words) - 1, out=places)
    seeming = np.flatnonzero(words[places] == sought)
    found = np.full(len(wanted), -1, np.int64)
    if not len(seeming):
        return found
    landed = places[seeming]
    same = same_keys(payloads.raw, rows[landed], wanted[seeming], skip)
    found[seeming[same]] = landed[same]
    after = np.minimum(landed + 1, len(words) - 1)
    unsure = np.flatnonzero(~same & (after > landed) & (words[after] == words[landed]))
    if not len(unsure):
        return found
    keys = seeming[unsure]
    behind = np.searchsorted(words, sought[keys], "right")
    if int((behind - landed[unsure]).sum()) > MOST_UNSURE:
        return None
    size, raw = wanted.dtype.itemsize, payloads.raw
    for key, first, end in zip(
        keys.tolist(), landed[unsure].tolist(), behind.tolist(), strict=True
    ):
        told = wanted[key].tobytes()
        starts = enumerate(rows[first:end].tolist(), first)
        hits = (place for place, at in starts if raw[at : at + size].tobytes() == told)
        found[key] = next(hits, -1)
    return found
