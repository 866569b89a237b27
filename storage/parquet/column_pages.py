"""Column pages: the pages of a column, of several files, and what is asked of them.

Few rows are taken out of the decompressed pages as they lie there, and few texts found in them, a
block of pages at a time (`page_values.py`); those of several columns are decompressed together
(`pages_together.py`). Where that is not possible, all that was read goes to pyarrow as one small
file (`small_file.py`), whatever files it is from, and of what comes back the rows are taken.

    memory    a block of each thread; or all that was read, decoded
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.storage.arrays import Int64s, UInt8s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.page_cuts import Cut
from metatable.storage.parquet.page_headers import Headers
from metatable.storage.parquet.page_runs import Runs
from metatable.storage.parquet.page_values import Block, ValueForm, places_of, values_at
from metatable.storage.parquet.small_file import small_file
from metatable.storage.parquet.stored_pages import Bodies, Pages
from metatable.storage.parquet.unpacked_pages import Packed, begun_each, unpacked_each
from metatable.storage.threads import in_order, workers_here

__all__ = ["TEXTS_OF_A_PAGE", "ColumnPages", "Group", "Unpacked"]

_S = TypeVar("_S")
_T = TypeVar("_T")

BLOCK_BYTES = 2 << 20
"""Bytes of pages that are decompressed together, about: enough that steps of numpy weigh little,
and few enough that two threads have some of a hundred pages of keys."""

ALONE_BYTES = 8 << 20
"""Bytes of pages that are decompressed together, at most, where one thread has all of them, others
having other files', or there are so many of keys that each thread has several blocks: some 20 steps
of numpy a block then weigh nothing."""

FEW_BYTES = 16 << 20
"""Bytes of pages of keys that are all decompressed before one is looked into. More would not stay
in a processor's cache until then."""

ROWS_OF_A_PAGE = 32
"""With more of each, decoding all of it takes no longer than taking them one by one."""

TEXTS_OF_A_PAGE = 32
"""With more texts of each that are looked for, decoding all of it takes no longer: each takes a
pass over a word of each text of a page."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Pages that are decompressed together."""

    first: int
    """The first run of which there are pages."""
    data: Int64s
    """The numbers of pages of values, one a run."""
    dictionaries: Int64s
    """The numbers of the dictionaries that they have."""


Unpacked: TypeAlias = tuple[Sequence[Group], Sequence[UInt8s | None]]
"""Blocks of a column, and what is in each; None where it is not decompressed yet."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The pages of a column, of all cuts, checked: `own` among those that were read, with their
    `headers`, None where they were not understood; `sums` of its parts (`stored_pages.checked`)."""

    cuts: Sequence[Cut]
    column: int
    runs: Runs
    pages: Pages
    headers: Headers | None
    bodies: Bodies
    own: slice
    sums: Int64s

    def groups(self) -> list[Group]:
        """What has to be decompressed for single rows to be taken; none where they cannot be."""
        form, runs = self._form, self.runs
        if form is None or len(runs.within) > ROWS_OF_A_PAGE * len(runs.begins):
            return []
        return self._groups(BLOCK_BYTES if workers_here() > 1 else ALONE_BYTES)

    def taken(self, groups: Sequence[Group], raws: Iterable[UInt8s | None]) -> pa.Array | None:
        """The rows that are asked for, of these pages; None where they are not to be had so."""
        form = self._form
        if form is None or not groups:
            return None
        found = _all_or_none(map(partial(self._taken_of, form), groups, raws))
        return None if found is None else _joined(found)

    def rows_alone(self) -> pa.Array:
        """The rows that are asked for, decompressed without other columns, a block at a time.
        Raises CorruptError."""
        groups = self.groups()
        taken = self.taken(groups, (self.packed(group).unpacked() for group in groups))
        return self.rows() if taken is None else taken

    def rows(self) -> pa.Array:
        """The rows that are asked for, decoded with all their neighbours. Raises CorruptError."""
        held, places = self._decoded(), self.runs.places
        is_all = np.array_equal(places, np.arange(len(held)))
        return held if is_all else held.take(pa.array(places))

    def rows_with(
        self, texts: Sequence[dict[int, list[bytes]]]
    ) -> Iterator[tuple[Int64s, pa.Array]]:
        """For each cut (rows of its row group, their texts): all rows are among them that have one
        of `texts`, which are told by the number of whose the cut is, and by the first row of a page
        in the file. Raises CorruptError."""
        found = self._found(texts)
        if found is not None:
            of, rows, held = found
            ends = np.searchsorted(of, np.cumsum(self.runs.of_cut))
        else:
            rows, held = self.runs.rows, self._decoded()
            ends = np.cumsum(self.runs.rows_of_cuts)
        for low, high in pairwise([0, *ends.tolist()]):
            yield rows[low:high], held.slice(low, high - low)

    def found(
        self,
        texts: Sequence[dict[int, list[bytes]]],
        unpacked: Unpacked | None = None,
    ) -> tuple[Runs, pa.Array]:
        """These runs with those rows asked that have one of the texts, and their texts; no row is
        given twice. `unpacked`: the column's pages, where they are. Raises CorruptError."""
        found = self._found(texts, unpacked)
        if found is not None:
            of, rows, held = found
        else:
            decoded = self._decoded().cast(pa.binary())
            wanted = {text for one in texts for own in one.values() for text in own}
            is_asked = pc.is_in(decoded, value_set=pa.array(wanted, pa.binary()))
            own = np.flatnonzero(is_asked)
            of = np.repeat(np.arange(len(self.runs.counts)), self.runs.counts)[own]
            rows, held = self.runs.rows[own], decoded.take(pa.array(own))
        return replace(self.runs, of=of, within=rows - self.runs.begins[of]), held

    def begun(self) -> Callable[[], Unpacked]:
        """Pages of keys: few are decompressed from now on, by other threads."""
        if self._form is None:
            return lambda: ((), ())
        if self._block_bytes != BLOCK_BYTES:
            return self._key_blocks
        groups = self._groups(BLOCK_BYTES)
        ended = begun_each([self.packed(group) for group in groups], 0.0)
        return lambda: (groups, ended())

    def _taken_of(self, form: ValueForm, group: Group, raw: UInt8s | None) -> pa.Array | None:
        if raw is None:
            return None
        end = group.first + len(group.data)
        own = slice(*self.runs.of.searchsorted([group.first, end]).tolist())
        of, within = self.runs.of[own] - group.first, self.runs.within[own]
        return values_at(form, self._block(group, raw), of, within)

    def _found(
        self,
        texts: Sequence[dict[int, list[bytes]]],
        unpacked: Unpacked | None = None,
    ) -> tuple[Int64s, Int64s, pa.Array] | None:
        """The run of each row that has one of the texts, the row in its row group, the text."""
        form, runs = self._form, self.runs
        looked = sum(len(own) for one in texts for own in one.values())
        if form is None or form.width or looked > TEXTS_OF_A_PAGE * sum(map(len, texts)):
            return None
        cuts = [(texts[cut.number], int(cut.file.starts[cut.group])) for cut in self.cuts]
        of = np.repeat(np.arange(len(cuts)), runs.of_cut).tolist()
        begins = zip(of, runs.begins.tolist(), strict=True)
        wanted = [cuts[cut][0][cuts[cut][1] + begin] for cut, begin in begins]
        groups, raws = self._key_blocks() if unpacked is None else unpacked
        if not groups:
            return None
        find = partial(self._found_of, form, wanted)
        pairs = zip(groups, raws, strict=True)
        is_done = all(raw is not None for raw in raws)  # then threads would wait for each other
        found = _all_or_none(map(find, pairs)) if is_done else _all_or_none_together(find, pairs)
        if found is None:
            return None
        pages, places, held = zip(*found, strict=True)
        page = np.concatenate(pages)
        return page, runs.begins[page] + np.concatenate(places), _joined(held)

    def _key_blocks(self) -> Unpacked:
        """All of its pages, where few are decompressed; others are where they are looked into: of
        the first block by half, so that while one thread holds the interpreter's lock for its steps
        of numpy the other one decompresses, and they do not come back to it together."""
        size = self._block_bytes
        if size == BLOCK_BYTES:
            groups = self._groups(size)
            return groups, unpacked_each([self.packed(group) for group in groups])
        groups = self._groups(size, size // 2 if workers_here() > 1 else 0)
        return groups, [None] * len(groups)

    def _found_of(
        self, form: ValueForm, wanted: Sequence[list[bytes]], unpacked: tuple[Group, UInt8s | None]
    ) -> tuple[Int64s, Int64s, pa.Array] | None:
        group, raw = unpacked
        raw = self.packed(group).unpacked() if raw is None else raw
        if raw is None:
            return None
        block = self._block(group, raw)
        found = places_of(form, block, wanted[group.first : group.first + len(group.data)])
        return None if found is None else (found[0] + group.first, *found[1:])

    @property
    def _form(self) -> ValueForm | None:
        """How single values are to be had; None: they are not."""
        shape = self.cuts[0].file.shape
        leaves = shape.columns[self.column]
        data = np.count_nonzero(~self.pages.is_dictionary[self.own])
        if self.headers is None or len(leaves) > 1 or data != len(self.runs.begins):
            return None
        return ValueForm.of(shape.leaves[leaves[0]], shape.schema.field(self.column).type)

    @property
    def _block_bytes(self) -> int:
        """Bytes of pages of keys that are decompressed together. Each thread has as many blocks,
        where they are decompressed where they are looked into."""
        workers, total = workers_here(), int(self._known.plain[self.own].sum())
        if workers == 1:
            return ALONE_BYTES
        if total <= FEW_BYTES:
            return BLOCK_BYTES
        return -(-total // (workers * -(-total // (workers * ALONE_BYTES))))

    def _groups(self, size: int, less: int = 0) -> list[Group]:
        """The pages in groups of so many bytes, the first one of so many `less`; where a part is in
        two of them, its dictionary is in both."""
        plain = self._known.plain[self.own]
        is_dictionary, of = self.pages.is_dictionary[self.own], self.pages.of[self.own]
        numbers = np.arange(self.own.start, self.own.stop)
        data, dictionaries = numbers[~is_dictionary], numbers[is_dictionary]
        owners, whose = of[~is_dictionary], of[is_dictionary]
        turn = (np.cumsum(plain) - plain + less)[~is_dictionary] // size
        borders = [0, *(np.diff(turn).nonzero()[0] + 1).tolist(), len(data)]
        these = (
            whose.searchsorted(owners[borders[:-1]]),
            whose.searchsorted(owners[np.array(borders[1:]) - 1], "right"),
        )
        spans = zip(pairwise(borders), *(one.tolist() for one in these), strict=True)
        return [
            Group(low, data[low:high], dictionaries[first:last])
            for (low, high), first, last in spans
        ]

    @property
    def _known(self) -> Headers:
        assert self.headers is not None, "pages in groups have known headers"
        return self.headers

    def packed(self, group: Group) -> Packed:
        headers = self._known
        every = np.concatenate([group.dictionaries, group.data])
        begins, sizes = self.bodies.begins[every], headers.sizes[every]
        ends = begins + self.bodies.sizes[every]
        codecs, plain = self.pages.codecs[every], headers.plain[every]
        return Packed(codecs, plain, self.bodies.memory, sizes, begins + sizes, ends)

    def _block(self, group: Group, raw: UInt8s) -> Block:
        headers = self._known
        every = np.concatenate([group.dictionaries, group.data])
        whose, of = self.pages.of[group.dictionaries], self.pages.of[group.data]
        numbers = np.where(np.isin(of, whose), whose.searchsorted(of), -1)
        borders = np.cumsum(np.append(0, headers.plain[every]))
        return Block(raw, borders, headers.values[every], headers.encodings[every], numbers)

    def _decoded(self) -> pa.Array:
        """All rows that were read."""
        counts = self.runs.rows_of_cuts
        shape = self.cuts[0].file.shape
        leaves = [shape.leaves[leaf] for leaf in shape.columns[self.column]]
        chunks = self.sums.reshape(len(self.cuts), len(leaves), -1)
        told = counts + (np.arange(len(counts)) == len(counts) - 1)  # one more: all comes back
        raw = small_file(leaves, told, chunks, self.bodies.of(self.own))
        try:
            read = pq.ParquetFile(pa.BufferReader(raw)).read(use_threads=False)[0]
        except MemoryError:  # of Arrow, too
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._undecoded(str(error)) from error
        if len(read) != counts.sum() or read.type != shape.schema.field(self.column).type:
            raise self._undecoded(f"{len(read)} rows of {counts.sum()}, {read.type}")
        return read.chunk(0) if read.num_chunks == 1 else read.combine_chunks()

    def _undecoded(self, found: str) -> CorruptError:
        paths = sorted({cut.file.path for cut in self.cuts})
        name = self.cuts[0].file.shape.names[self.column]
        return CorruptError(
            "pages are not readable", path=", ".join(paths), column=name, found=found
        )


def _all_or_none(found: Iterable[_T | None]) -> list[_T] | None:
    """What is found before one is None is for nothing; what would come behind is not begun."""
    every = []
    for one in found:
        if one is None:
            return None
        every.append(one)
    return every


def _all_or_none_together(call: Callable[[_S], _T | None], items: Iterable[_S]) -> list[_T] | None:
    """The same, of calls on threads. None of them is under way afterwards: while it decompresses
    pages, headers between them are no headers (`unpacked_pages`), which who decodes them needs."""
    over: list[Exception | None] = []

    def told(item: _S) -> _T | None:
        if over:
            return None
        try:
            made = call(item)
        except Exception as error:
            over.append(error)
            return None
        if made is None:
            over.append(None)
        return made

    every = [*in_order(told, items)]
    for error in filter(None, over):
        raise error
    return None if over else [one for one in every if one is not None]


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
