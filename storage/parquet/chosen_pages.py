"""Chosen pages: rows of paged files by their positions, without their neighbours of other pages.

Of each row group and column the pages that hold the rows are read, and what they are decoded by,
the dictionary. All that was read of one column goes to pyarrow as one small file (`small_file.py`),
whatever files it is from, and of what comes back the rows are taken.

    reads     those of a file together; files far away beside each other
    memory    some PORTION_BYTES of decoded pages, or those of one row group
    damage    a page is of the kind, bytes and values that its place tells, and its checksum is
              verified where it has one; a column comes back with as many rows as its pages hold

Counted: `data.pages`, `data.page_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from isal.isal_zlib import crc32

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Page
from metatable.storage.parquet.offset_index import OFFSET, ROW, SIZE
from metatable.storage.parquet.page_headers import WIDTH, Headers
from metatable.storage.parquet.page_places import GroupPages, group_pages
from metatable.storage.parquet.paged_file import CODEC as KEPT_CODEC
from metatable.storage.parquet.paged_file import ENCODINGS, START, UNCOMPRESSED, PagedFile
from metatable.storage.parquet.pages import checked_page
from metatable.storage.parquet.parts import Span
from metatable.storage.parquet.small_file import small_file
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["read_rows"]

Numbers = npt.NDArray[np.int64]

_NO_ROWS = -1
"""Of a dictionary."""

PORTION_BYTES = 64 << 20
"""Of pages, decoded, that are held at once."""


def read_rows(
    store: Store, asked: Sequence[tuple[PagedFile, Numbers]], names: Sequence[str]
) -> pa.Table:
    """These columns, one at least, of rows of files of one shape: a file and positions in it,
    ascending. Rows come in this order. Raises CorruptError."""
    shape = asked[0][0].shape
    columns = [shape.names.index(name) for name in names]
    cuts = _cuts(store, asked)
    tables = [_read(store, some, columns) for some in _portions(cuts, columns)]
    none = pa.schema([shape.schema.field(column) for column in columns]).empty_table()
    return pa.concat_tables([none, *tables])


@dataclass(frozen=True, slots=True, eq=False)
class _Picked:
    """What is read of a column of a row group for some of its rows: `begins` of the runs of rows
    that are read, in the row group, and their `counts`; `places` of the rows asked among them."""

    begins: Numbers
    counts: Numbers
    places: Numbers

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def of(cls, starts: Numbers, end: int, rows: Numbers) -> _Picked:
        ends = np.append(starts, end)
        asked = np.diff(np.searchsorted(rows, ends))  # of each run
        chosen = np.flatnonzero(asked)
        begins = starts[chosen]
        counts = ends[chosen + 1] - begins
        moved = np.cumsum(counts) - counts - begins
        return cls(begins, counts, np.repeat(moved, asked[chosen]) + rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """Rows that are asked for of one row group, and what is read for them, by column."""

    file: PagedFile
    group: int
    pages: GroupPages
    picked: tuple[_Picked, ...]

    @classmethod
    def of(cls, file: PagedFile, group: int, pages: GroupPages, rows: Numbers) -> _Cut:
        end = int(file.rows[group])
        distinct = {id(one): one for one in pages.starts}
        made = {name: _Picked.of(one, end, rows) for name, one in distinct.items()}
        return cls(file, group, pages, tuple(made[id(one)] for one in pages.starts))

    def chosen(self, column: int, leaf: int) -> Numbers:
        """Numbers of the pages of a leaf that are read."""
        starts, begins = self.pages.starts[column], self.picked[column].begins
        firsts = self.pages.of(leaf)[:, ROW]
        if len(firsts) == len(starts):
            return np.searchsorted(starts, begins)
        run = starts[np.searchsorted(starts, firsts, "right") - 1]
        return np.flatnonzero(np.isin(run, begins))

    def dictionary(self, leaf: int) -> Span:
        """What lies before the first data page."""
        start = int(self.file.chunks[self.group, leaf, START])
        return start, int(self.pages.of(leaf)[0, OFFSET]) - start

    def decoded_bytes(self, columns: Sequence[int]) -> int:
        """Of what is read, about."""
        plain, rows = self.file.chunks[self.group, :, UNCOMPRESSED], self.file.rows[self.group]
        of = self.file.shape.columns
        return sum(int(plain[[*of[one]]].sum() * self.picked[one].rows // rows) for one in columns)


def _cuts(store: Store, asked: Sequence[tuple[PagedFile, Numbers]]) -> list[_Cut]:
    wanted: list[tuple[PagedFile, int]] = []
    rows: list[Numbers] = []
    for file, positions in asked:
        cuts = np.searchsorted(positions, file.starts)
        for group in np.flatnonzero(np.diff(cuts)).tolist():
            wanted.append((file, group))
            rows.append(positions[cuts[group] : cuts[group + 1]] - file.starts[group])
    found = group_pages(store, wanted)
    return [_Cut.of(*one, pages, own) for one, pages, own in zip(wanted, found, rows, strict=True)]


def _portions(cuts: Sequence[_Cut], columns: Sequence[int]) -> Iterator[list[_Cut]]:
    portion: list[_Cut] = []
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


def _read(store: Store, cuts: Sequence[_Cut], columns: Sequence[int]) -> pa.Table:
    shape = cuts[0].file.shape
    parts = [
        [_Part.of(cut, column, leaf) for cut in cuts for leaf in shape.columns[column]]
        for column in columns
    ]
    spans: dict[str, list[Span]] = {}
    for part in chain.from_iterable(parts):
        spans.setdefault(part.cut.file.path, []).extend(part.spans)
    calls = [partial(store.read, path, own) for path, own in spans.items()]
    found = dict(zip(spans, map(iter, store.together(calls)), strict=True))
    bodies = [
        [[next(found[part.cut.file.path]) for _ in part.spans] for part in own] for own in parts
    ]
    store.counters.add("data.pages", sum(map(len, spans.values())))
    store.counters.add("data.page_bytes", sum(size for own in spans.values() for _, size in own))
    made = in_order(lambda given: _column(cuts, *given), zip(columns, parts, bodies, strict=True))
    return pa.table(list(made), schema=pa.schema(map(shape.schema.field, columns)))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is read of a column chunk: its pages, and the rows that each should hold. The first page
    is the dictionary, of _NO_ROWS, if it has one."""

    cut: _Cut
    leaf: int
    spans: list[Span]
    rows: list[int]

    @classmethod
    def of(cls, cut: _Cut, column: int, leaf: int) -> _Part:
        pages, chosen = cut.pages.of(leaf), cut.chosen(column, leaf)
        ends = np.append(pages[1:, ROW], cut.file.rows[cut.group])
        rows = (ends - pages[:, ROW])[chosen].tolist()
        spans = [(at, size) for at, size in pages[chosen][:, [OFFSET, SIZE]].tolist()]
        dictionary = cut.dictionary(leaf)
        if not dictionary[1]:
            return cls(cut, leaf, spans, rows)
        return cls(cut, leaf, [dictionary, *spans], [_NO_ROWS, *rows])

    @property
    def facts(self) -> list[int]:
        """Codec, bytes before compression, and the bits of encodings of its chunk."""
        told = self.cut.file.chunks[
            self.cut.group, self.leaf, [KEPT_CODEC, UNCOMPRESSED, ENCODINGS]
        ]
        facts: list[int] = told.tolist()
        return facts

    @property
    def is_repeated(self) -> bool:
        return self.cut.file.shape.leaves[self.leaf].is_repeated

    def checked(self, bodies: Sequence[bytes]) -> tuple[int, int, int, int]:
        """Its numbers from CODEC to PAGES. Raises CorruptError."""
        codec, *facts = self.facts
        values = dictionary = 0
        for (offset, size), body, rows in zip(self.spans, bodies, self.rows, strict=True):
            place = _Place(self, offset)
            kind, count, own = checked_page(place, body, *facts)
            if (kind == Page.DICTIONARY) != (rows == _NO_ROWS):
                raise place.wrong("page is of another kind than its place says", offset, found=kind)
            if kind == Page.DICTIONARY:
                dictionary = size
                continue
            values += count
            if (held := own if self.is_repeated else count) not in (None, rows):
                what = "page holds another number of rows than its place says"
                raise place.wrong(what, offset, expected=rows, found=held)
        return codec, values, dictionary, sum(map(len, bodies)) - dictionary


def _checked(parts: Sequence[_Part], bodies: Sequence[Sequence[bytes]]) -> Numbers:
    """What `checked` tells of each part, a row each. Raises CorruptError."""
    found = _checked_together(parts, [*chain.from_iterable(bodies)])
    if found is not None:
        return found
    return np.array([part.checked(own) for part, own in zip(parts, bodies, strict=True)], np.int64)


def _checked_together(parts: Sequence[_Part], bodies: Sequence[bytes]) -> Numbers | None:
    """The same, from headers that are read at once; None where one is of another form, or anything
    is not as it should be."""
    counts = [len(part.spans) for part in parts]
    of, first = np.repeat(np.arange(len(parts)), counts), np.cumsum([0, *counts[:-1]])
    facts = np.array([part.facts for part in parts], np.int64)
    rows = np.array([*chain.from_iterable(part.rows for part in parts)], np.int64)
    is_dictionary = rows == _NO_ROWS
    raw = b"".join([body[:WIDTH].ljust(WIDTH, b"\0") for body in bodies])
    headers = Headers.of(np.frombuffer(raw, np.uint8).reshape(-1, WIDTH), is_dictionary)
    sizes = np.array([len(body) for body in bodies], np.int64)
    has_rows = is_dictionary | (headers.values == rows)
    has_rows |= np.array([part.is_repeated for part in parts])[of]
    is_sound = headers.fill(sizes) & headers.are_encoded(facts[of, 2]) & has_rows
    if not (is_sound & (headers.plain <= facts[of, 1])).all():
        return None
    starts = zip(bodies, headers.sizes.tolist(), strict=True)
    if [crc32(memoryview(body)[start:]) for body, start in starts] != headers.sums:
        return None
    values, dictionaries = (
        np.add.reduceat(np.where(is_dictionary == is_it, one, 0), first)
        for one, is_it in ((headers.values, False), (sizes, True))
    )
    return np.stack(
        [facts[:, 0], values, dictionaries, np.add.reduceat(sizes, first) - dictionaries], axis=1
    )


@dataclass(frozen=True, slots=True)
class _Place:
    part: _Part
    offset: int

    @property
    def path(self) -> str:
        return self.part.cut.file.path

    def wrong(self, what: str, offset: int, **facts: object) -> CorruptError:
        cut = self.part.cut
        return cut.file.wrong(what, cut.group, self.part.leaf, offset=offset, **facts)


def _column(
    cuts: Sequence[_Cut], column: int, parts: Sequence[_Part], bodies: Sequence[Sequence[bytes]]
) -> pa.Array:
    """The rows that are asked for."""
    shape = cuts[0].file.shape
    picked = [cut.picked[column] for cut in cuts]
    counts = np.array([one.rows for one in picked], np.int64)
    leaves = [shape.leaves[leaf] for leaf in shape.columns[column]]
    chunks = _checked(parts, bodies).reshape(len(cuts), len(leaves), -1)
    told = counts + (np.arange(len(counts)) == len(counts) - 1)  # one more: all there is comes back
    raw = small_file(leaves, told, chunks, [*chain.from_iterable(bodies)])
    try:
        read = pq.ParquetFile(pa.BufferReader(raw)).read(use_threads=False)[0]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _undecoded(cuts, column, str(error)) from error
    if len(read) != counts.sum() or read.type != shape.schema.field(column).type:
        raise _undecoded(cuts, column, f"{len(read)} rows of {counts.sum()}, {read.type}")
    before = np.cumsum(counts) - counts
    places = np.concatenate([one.places + at for one, at in zip(picked, before, strict=True)])
    held = read.chunk(0) if read.num_chunks == 1 else read.combine_chunks()
    return held if np.array_equal(places, np.arange(len(held))) else held.take(pa.array(places))


def _undecoded(cuts: Sequence[_Cut], column: int, found: str) -> CorruptError:
    paths = sorted({cut.file.path for cut in cuts})
    name = cuts[0].file.shape.names[column]
    return CorruptError("pages are not readable", path=", ".join(paths), column=name, found=found)
