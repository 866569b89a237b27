"""Many keys of a file at once: each block that can hold one is read, and searched for all of them.

Keys of one size, in a file that says one size for all of its keys and one for its values, are
searched as pieces of so many bytes (`alike.py`, `packed.py`), where that tells them apart. Any
other are looked up in records, whose places the file tells (`record_sizes.py`), or a walk does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.byte_columns import Voids, from_voids, of_one_size, voids
from metatable.storage.errors import UsageError
from metatable.storage.hfile.block_index import BlockIndex
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.columns import bound
from metatable.storage.hfile.key_values import KeyValues
from metatable.storage.hfile.reading.alike import FEW_KEYS, Alike, Hits
from metatable.storage.hfile.reading.data_blocks import Payloads
from metatable.storage.hfile.reading.even_keys import EvenKeys
from metatable.storage.hfile.reading.file_filter import META as FILTER
from metatable.storage.hfile.reading.file_filter import might_contain
from metatable.storage.hfile.reading.index_tree import IndexTree
from metatable.storage.hfile.reading.one_block import first_value
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.hfile.reading.packed import StoredBlocks
from metatable.storage.hfile.reading.passes import Pass, worthy_sizes
from metatable.storage.hfile.reading.searching import find_any
from metatable.storage.hfile.record_sizes import RecordSizes, Sizes
from metatable.storage.store import Store

__all__ = ["ManyKeys"]

LEAST_ALIKE = 8
"""Bytes of keys of one size whose blocks are found by words."""


class ManyKeys:
    """Looks up ascending keys in an opened file; keys may repeat."""

    __slots__ = ("_opened", "_store", "_tree")

    def __init__(self, store: Store, opened: OpenedHFile, tree: IndexTree) -> None:
        self._store, self._opened, self._tree = store, opened, tree

    def values(self, wanted: pa.Array) -> pa.Array:
        """The values of the keys `wanted` (n, binary), null where absent. Raises CorruptError."""
        pieces = of_one_size(wanted)
        if len(wanted) and pa.types.is_fixed_size_binary(pieces.type):
            hits = self.find_alike(voids(pieces))
            if hits is not None:
                return from_voids(hits[1], hits[0]).cast(pa.binary())
        index = self._tree.of_keys(wanted)
        blocks, cuts = _touched(index, wanted)
        kept = self._let_through(index, blocks, wanted)
        if kept is None:
            return self._spread(index, wanted, self._answers(index, blocks, cuts, wanted))
        rest = wanted.take(pa.array(kept))
        found = self._answers(index, *_touched(index, rest), rest)
        places = np.full(len(wanted), -1, np.int64)
        places[kept] = np.arange(len(kept))
        return found.take(pa.array(places, mask=places < 0))

    def find_alike(self, wanted: Voids, *, keep: bool = True) -> Hits | None:
        """`HFileReader.find_alike`, without counting. Raises CorruptError."""
        sizes = self._opened.record_sizes
        if sizes is None or wanted.dtype.itemsize != sizes[0]:
            return None
        alike = Alike(*sizes, self._opened.path)
        if not alike.can_be_searched:
            return None
        index = self._tree.of_keys(from_voids(wanted))
        touched = index.touched_alike(wanted)
        if touched is None:
            return None
        kept = self._let_through(index, touched[0], from_voids(wanted))
        if kept is None:
            return self._search_alike(alike, index, wanted, *touched, keep=keep)
        found, values = alike.nothing(len(wanted))
        rest = wanted[kept]
        touched = index.touched_alike(rest)
        hits = touched and self._search_alike(alike, index, rest, *touched, keep=keep)
        if hits is None:
            return None
        found[kept], values[kept] = hits
        return found, values

    def _let_through(self, index: BlockIndex, blocks: Int64s, wanted: pa.Array) -> Int64s | None:
        """Which of ascending keys, which touch these blocks, the file's filter lets through; None
        where there is none, or it is not worth asking."""
        if FILTER not in self._opened.meta:
            return None
        stored = int(index.sizes[blocks].sum())
        kept = might_contain(self._store, self._opened, wanted, stored, len(blocks))
        if kept is not None:
            self._store.counters.add("hfile.filtered", len(wanted) - len(kept))
        return kept

    def _search_alike(
        self,
        alike: Alike,
        index: BlockIndex,
        wanted: Voids,
        blocks: Int64s,
        cuts: Int64s,
        *,
        keep: bool,
    ) -> Hits | None:
        """`find_alike` of the blocks that the keys touch."""
        are_few = len(wanted) <= FEW_KEYS * len(blocks)
        if self._opened.trailer.compression_codec is Codec.ZSTD:
            places = index.offsets[blocks], index.sizes[blocks]
            stored = StoredBlocks(self._store, self._opened, alike, places, keep=keep)
            hits = (stored.find_few if are_few else stored.find_many)(wanted, cuts)
            if hits is not None:
                return hits
        found, values = alike.nothing(len(wanted))
        one_pass = Pass(self._store, self._opened, index, blocks, keep=keep, for_search=True)

        def put(hits: Hits | None, start: int, stop: int) -> bool:
            here = slice(int(cuts[start]), int(cuts[stop]))
            if hits is not None:
                found[here], values[here] = hits
            return hits is not None

        def search(payloads: Payloads, start: int, stop: int) -> bool:
            mine = wanted[cuts[start] : cuts[stop]]
            borders = cuts[start : stop + 1] - cuts[start]
            [offset] = one_pass.offsets_of(start, start + 1)
            return put(alike.find(payloads, offset, mine, borders), start, stop)

        def bisect(parts: Sequence[bytes | UInt8s], start: int, stop: int) -> bool:
            offsets = one_pass.offsets_of(start, stop)
            return put(alike.find_few(parts, offsets, wanted, cuts[start : stop + 1]), start, stop)

        made = one_pass.each_part(bisect) if are_few else one_pass.each_payloads(search)
        return (found, values) if all(made) else None

    def _spread(self, index: BlockIndex, wanted: pa.Array, found: pa.Array) -> pa.Array:
        """`found`, with the first entry of keys that open a block and may lie in the one before."""
        if not self._opened.may_spread_rows or not len(index) or not len(wanted):
            return found
        # the first of these blocks, too: of some levels only what was asked for is here
        firsts = bound(wanted, index.keys).tolist()
        stops = bound(wanted, index.keys, right=True).tolist()
        mask, values = np.zeros(len(wanted), bool), []
        for first, stop in sorted({*zip(firsts, stops, strict=True)}):
            if first < stop:
                mask[first:stop] = True
                value = first_value(self._store, self._opened, self._tree, wanted[first].as_py())
                values += [value] * (stop - first)
        return pc.replace_with_mask(found, pa.array(mask), pa.array(values, pa.binary()))

    def _answers(
        self, index: BlockIndex, blocks: Int64s, cuts: Int64s, wanted: pa.Array
    ) -> pa.Array:
        """The values of ascending keys; those from `cuts[i]` on can be in block `blocks[i]`."""
        is_complete = index is self._tree.complete
        sizes = worthy_sizes(self._store, self._opened, index, blocks) if is_complete else None
        even = sizes and self._even_answers(index, blocks, cuts, wanted, sizes)
        if even is not None:
            return even
        one_pass = Pass(
            self._store,
            self._opened,
            index,
            blocks,
            keep=True,
            proven=False,
            sizes=sizes,
            for_search=True,
        )

        def search(records: KeyValues, start: int, stop: int) -> pa.Array:
            mine = wanted[int(cuts[start]) : int(cuts[stop])]
            hits = find_any(records, mine, lambda all_of_them: one_pass.check(all_of_them, start))
            one_pass.check(hits.records, start, hits.there)
            values = hits.records.values()
            if len(values) == len(mine):
                return values
            found = hits.places >= 0
            order = np.cumsum(found) - 1
            return values.take(pa.array(order, mask=~found))

        before = pa.nulls(int(cuts[0]), pa.binary())
        return _one_array([before, *one_pass.each(search)], self._opened.path)

    def _even_answers(
        self, index: BlockIndex, blocks: Int64s, cuts: Int64s, wanted: pa.Array, sizes: RecordSizes
    ) -> pa.Array | None:
        """`_answers` where all keys have one size, None where they have not, or eight bytes of them
        do not tell them apart."""
        pieces = of_one_size(wanted)
        if not pa.types.is_fixed_size_binary(pieces.type):
            return None
        keys = voids(pieces)
        even = EvenKeys.of(sizes.key_sizes, keys, self._opened.path)
        if even is None:
            return None
        one_pass = Pass(
            self._store, self._opened, index, blocks, keep=True, sizes=sizes, for_search=True
        )

        def search(
            payloads: Payloads, counts: Int64s, values: Sizes, start: int, stop: int
        ) -> pa.Array | None:
            [offset] = one_pass.offsets_of(start, start + 1)
            mine = keys[int(cuts[start]) : int(cuts[stop])]
            return even.find(payloads, counts, values, offset, mine)

        parts = [pa.nulls(int(cuts[0]), pa.binary())]
        for part in one_pass.each_sized(search):
            if part is None:
                return None
            parts.append(part)
        return _one_array(parts, self._opened.path)


def _touched(index: BlockIndex, wanted: pa.Array) -> tuple[Int64s, Int64s]:
    """`BlockIndex.touched`, by words where the keys have one size and are told apart so."""
    pieces = of_one_size(wanted)
    if pa.types.is_fixed_size_binary(pieces.type) and pieces.type.byte_width >= LEAST_ALIKE:
        touched = index.touched_alike(voids(pieces))
        if touched is not None:
            return touched
    return index.touched(wanted)


def _one_array(parts: list[pa.Array], path: str) -> pa.Array:
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:  # 32-bit offsets
        raise UsageError(
            "values are too large for one answer: ask for fewer keys at a time",
            path=path,
            expected="less than 2 GiB",
            found=str(error),
        ) from error
