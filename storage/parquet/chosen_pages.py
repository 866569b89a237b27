"""Chosen pages: rows of paged files by their positions, without their neighbours of other pages.

The pages that hold them are read and checked (`page_cuts.py`). Few rows are taken out of the
decompressed pages as they lie there (`page_values.py`); of columns for which that is not possible,
all that was read goes to pyarrow as one small file (`small_file.py`), whatever files it is from,
and of what comes back the rows are taken.

    memory    some PORTION_BYTES of decoded pages, or those of one row group
    damage    that of pages; a column comes back with as many rows as its pages hold
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.page_cuts import (
    NO_ROWS,
    Cut,
    PageHead,
    Part,
    checked,
    cuts_of,
    read_parts,
)
from metatable.storage.parquet.page_places import KeyPages, Wanted
from metatable.storage.parquet.page_values import (
    Dictionary,
    ValueForm,
    array_of,
    places_of,
    unpacked,
    values_at,
)
from metatable.storage.parquet.paged_file import PagedFile
from metatable.storage.parquet.small_file import small_file
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["find_rows", "read_rows"]

Numbers = npt.NDArray[np.int64]

PORTION_BYTES = 64 << 20
"""Of pages, decoded, that are held at once."""

ROWS_OF_A_PAGE = 32
"""With more of each, decoding all of it takes no longer than taking them one by one."""

TEXTS_OF_A_PAGE = 4
"""The same of texts that are looked for: each takes a pass over the page."""


def read_rows(
    store: Store, asked: Sequence[tuple[PagedFile, Numbers]], names: Sequence[str]
) -> pa.Table:
    """These columns, one at least, of rows of files of one shape: a file and positions in it,
    ascending. Rows come in this order. Raises CorruptError."""
    shape = asked[0][0].shape
    columns = [shape.names.index(name) for name in names]
    schema = pa.schema([shape.schema.field(column) for column in columns])
    tables = [schema.empty_table()]
    for cuts in _portions(cuts_of(store, asked), columns):
        made = in_order(_ColumnPages.rows, _read(store, cuts, columns))
        tables.append(pa.table([*made], schema=schema))
    return pa.concat_tables(tables)


def find_rows(
    store: Store, asked: Sequence[tuple[PagedFile, KeyPages, Wanted]], name: str
) -> list[tuple[Numbers, pa.Array]]:
    """Of each of these files, which are of one shape, rows among which all are whose text in this
    column is wanted of their page, ascending, and the texts that they have. Raises CorruptError."""
    shape = asked[0][0].shape
    columns = [shape.names.index(name)]
    found: list[list[tuple[Numbers, pa.Array]]] = [[] for _ in asked]
    rows = [(file, pages.rows_of([*wanted])) for file, pages, wanted in asked]
    texts = [
        dict(zip(pages.starts[[*wanted]].tolist(), wanted.values(), strict=True))
        for _, pages, wanted in asked
    ]
    for cuts in _portions(cuts_of(store, rows), columns):
        [read] = _read(store, cuts, columns)
        for cut, (own, held) in zip(cuts, read.rows_with(texts), strict=True):
            found[cut.number].append((own + cut.file.starts[cut.group], held))
    none = pa.array([], shape.schema.field(columns[0]).type)
    return [
        (
            np.concatenate([np.empty(0, np.int64), *(one for one, _ in own)]),
            pa.concat_arrays([none, *(held for _, held in own)]),
        )
        for own in found
    ]


def _portions(cuts: Sequence[Cut], columns: Sequence[int]) -> Iterator[list[Cut]]:
    portion: list[Cut] = []
    held = 0
    for cut in cuts:
        size = cut.decoded_bytes(columns)
        if portion and held + size > PORTION_BYTES:
            yield portion
            portion, held = [], 0
        portion.append(cut)
        held += size
    if portion:
        yield portion


def _read(store: Store, cuts: Sequence[Cut], columns: Sequence[int]) -> Iterator[_ColumnPages]:
    """The pages of each column."""
    of_cuts = [cut.parts(columns) for cut in cuts]
    by_column = [[*chain.from_iterable(own)] for own in zip(*of_cuts, strict=True)]
    parts = [*chain.from_iterable(by_column)]
    bodies = read_parts(store, parts)
    sums, heads = checked(parts, bodies)
    start = 0
    for column, own in zip(columns, by_column, strict=True):
        these = slice(start, start := start + len(own))
        told = None if heads is None else heads[these]
        yield _ColumnPages(cuts, column, own, bodies[these], sums[these], told)


@dataclass(frozen=True, slots=True, eq=False)
class _ColumnPages:
    """The pages of a column, of all cuts, checked: `sums` of each part, and heads of its pages."""

    cuts: Sequence[Cut]
    column: int
    parts: Sequence[Part]
    bodies: Sequence[list[bytes]]
    sums: Numbers
    heads: Sequence[list[PageHead]] | None

    def rows(self) -> pa.Array:
        """The rows that are asked for."""
        taken = self._taken()
        if taken is not None:
            return taken
        picked = [cut.picked[self.column] for cut in self.cuts]
        counts = np.array([one.rows for one in picked], np.int64)
        held = self._decoded(counts)
        before = np.cumsum(counts) - counts
        places = np.concatenate([one.places + at for one, at in zip(picked, before, strict=True)])
        is_all = np.array_equal(places, np.arange(len(held)))
        return held if is_all else held.take(pa.array(places))

    def rows_with(
        self, texts: Sequence[dict[int, list[bytes]]]
    ) -> Iterator[tuple[Numbers, pa.Array]]:
        """Of each cut rows of its row group among which all are of these texts, by its number and
        the first row of a page in the file; and their texts."""
        found = self._found(texts)
        if found is not None:
            yield from found
            return
        counts = np.array([cut.picked[self.column].rows for cut in self.cuts], np.int64)
        held, start = self._decoded(counts), 0
        for cut, count in zip(self.cuts, counts.tolist(), strict=True):
            picked = cut.picked[self.column]
            yield np.repeat(picked.begins, picked.asked) + picked.within, held.slice(start, count)
            start += count

    @property
    def _form(self) -> ValueForm | None:
        """How single values are to be had; None: they are not."""
        shape = self.cuts[0].file.shape
        leaves = shape.columns[self.column]
        if self.heads is None or len(leaves) > 1:
            return None
        return ValueForm.of(shape.leaves[leaves[0]], shape.schema.field(self.column).type)

    def _pages(
        self, number: int, form: ValueForm
    ) -> Iterator[tuple[bytes | None, PageHead, Dictionary | None]]:
        """The data pages of a part, decompressed (None: not by this), and their dictionary."""
        part, heads, dictionary = self.parts[number], self.heads or [], None
        for body, head, rows in zip(self.bodies[number], heads[number], part.rows, strict=True):
            raw = unpacked(part.facts[0], memoryview(body)[head[0] :], head[1])
            if rows != NO_ROWS:
                yield raw, head, dictionary
            elif raw is not None:
                dictionary = Dictionary.of(form, raw, head[2])

    def _taken(self) -> pa.Array | None:
        form = self._form
        picked = [cut.picked[self.column] for cut in self.cuts]
        runs = sum(len(one.begins) for one in picked)
        if form is None or sum(len(one.within) for one in picked) > ROWS_OF_A_PAGE * runs:
            return None
        values: list[bytes | None] = []
        for number, (part, one) in enumerate(zip(self.parts, picked, strict=True)):
            if len(part.rows) - part.has_dictionary != len(one.begins):
                return None
            positions = iter(one.within.tolist())
            pages = self._pages(number, form)
            for asked, (raw, head, dictionary) in zip(one.asked.tolist(), pages, strict=True):
                own = [*islice(positions, asked)]
                if raw is None:
                    return None
                taken = values_at(form, raw, head[3], head[2], own, dictionary)
                if taken is None:
                    return None
                values += taken
        return array_of(form, values)

    def _found(
        self, texts: Sequence[dict[int, list[bytes]]]
    ) -> list[tuple[Numbers, pa.Array]] | None:
        form = self._form
        looked = sum(len(own) for one in texts for own in one.values())
        if form is None or form.width or looked > TEXTS_OF_A_PAGE * sum(map(len, texts)):
            return None
        found: list[tuple[Numbers, pa.Array]] = []
        for number, (cut, part) in enumerate(zip(self.cuts, self.parts, strict=True)):
            begins = cut.picked[self.column].begins.tolist()
            if len(part.rows) - part.has_dictionary != len(begins):
                return None
            first = int(cut.file.starts[cut.group])
            rows: list[int] = []
            held: list[bytes] = []
            for begin, (raw, head, _) in zip(begins, self._pages(number, form), strict=True):
                wanted = texts[cut.number][first + begin]
                here = None if raw is None else places_of(form, raw, head[3], head[2], wanted)
                if here is None:
                    return None
                rows += [begin + place for place, _ in here]
                held += [text for _, text in here]
            found.append((np.array(rows, np.int64), array_of(form, held)))
        return found

    def _decoded(self, counts: Numbers) -> pa.Array:
        """All rows that were read, so many of each cut."""
        shape = self.cuts[0].file.shape
        leaves = [shape.leaves[leaf] for leaf in shape.columns[self.column]]
        chunks = self.sums.reshape(len(self.cuts), len(leaves), -1)
        told = counts + (np.arange(len(counts)) == len(counts) - 1)  # one more: all comes back
        raw = small_file(leaves, told, chunks, [*chain.from_iterable(self.bodies)])
        try:
            read = pq.ParquetFile(pa.BufferReader(raw)).read(use_threads=False)[0]
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
