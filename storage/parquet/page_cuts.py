"""Page cuts: which pages of a row group hold the rows that are asked for, read and checked.

Of each row group and column the pages that hold the rows are read, and what they are decoded by,
the dictionary.

    reads     those of a file together; files far away beside each other
    damage    a page is of the kind, bytes and values that its place tells, and its checksum is
              verified where it has one

Counted: `data.pages`, `data.page_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Page
from metatable.storage.parquet.offset_index import OFFSET, ROW, SIZE
from metatable.storage.parquet.page_headers import WIDTH, Headers
from metatable.storage.parquet.page_places import GroupPages, group_pages
from metatable.storage.parquet.paged_file import CODEC, ENCODINGS, START, UNCOMPRESSED, PagedFile
from metatable.storage.parquet.pages import checked_page
from metatable.storage.parquet.parts import Span
from metatable.storage.store import Store

__all__ = ["NO_ROWS", "Cut", "PageHead", "Part", "Picked", "checked", "cuts_of", "read_parts"]

Numbers = npt.NDArray[np.int64]

PageHead = tuple[int, int, int, int]
"""Of a page: bytes of its header, bytes of what is behind it once decompressed, values, encoding.
"""

NO_ROWS = -1
"""Of a dictionary."""


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """What is read of a column of a row group for some of its rows: `begins` of the runs of rows
    that are read, in the row group, and their `counts`; of each run how many rows are `asked`, and
    `within` their places in it, of all runs."""

    begins: Numbers
    counts: Numbers
    asked: Numbers
    within: Numbers

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def places(self) -> Numbers:
        """Those of the rows asked among all that are read."""
        return np.repeat(np.cumsum(self.counts) - self.counts, self.asked) + self.within

    @classmethod
    def of(cls, starts: Numbers, end: int, rows: Numbers) -> Picked:
        if len(rows) == 1:  # most often
            place = int(starts.searchsorted(rows[0], "right"))
            begin, last = int(starts[place - 1]), int(starts[place]) if place < len(starts) else end
            made = np.array([begin, last - begin, 1, rows[0] - begin], np.int64).reshape(4, 1)
            return cls(*made)
        ends = np.append(starts, end)
        asked = np.diff(rows.searchsorted(ends))  # of each run
        chosen = asked.nonzero()[0]
        begins, asked = starts[chosen], asked[chosen]
        counts = ends[chosen + 1] - begins
        return cls(begins, counts, asked, rows - np.repeat(begins, asked))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Rows that are asked for of one row group, and what is read for them, by column. `number`:
    whose they are, among those who asked."""

    number: int
    file: PagedFile
    group: int
    pages: GroupPages
    picked: tuple[Picked, ...]

    @classmethod
    def of(cls, number: int, file: PagedFile, group: int, pages: GroupPages, rows: Numbers) -> Cut:
        end = int(file.rows[group])
        distinct = {id(one): one for one in pages.starts}
        made = {name: Picked.of(one, end, rows) for name, one in distinct.items()}
        return cls(number, file, group, pages, tuple(made[id(one)] for one in pages.starts))

    def decoded_bytes(self, columns: Sequence[int]) -> int:
        """Of what is read, about."""
        plain, rows = self.file.chunks[self.group, :, UNCOMPRESSED], self.file.rows[self.group]
        of = self.file.shape.columns
        if self.pages.is_even:
            leaves = [leaf for one in columns for leaf in of[one]]
            return int(plain[leaves].sum() * self.picked[0].rows // rows)
        return sum(int(plain[[*of[one]]].sum() * self.picked[one].rows // rows) for one in columns)

    def parts(self, columns: Sequence[int]) -> list[list[Part]]:
        """Of each column those of its leaves."""
        leaves = [leaf for column in columns for leaf in self.file.shape.columns[column]]
        told = self.file.chunks[self.group][leaves]
        facts = told[:, [CODEC, UNCOMPRESSED, ENCODINGS]].tolist()
        firsts = self.pages.pages[self.pages.borders[leaves], OFFSET]
        spans = np.column_stack([told[:, START], firsts - told[:, START]]).tolist()
        chosen = self._chosen(columns, leaves)
        made = map(partial(Part.of, self), leaves, facts, spans, *zip(*chosen, strict=True))
        return [[next(made) for _ in self.file.shape.columns[column]] for column in columns]

    def _chosen(
        self, columns: Sequence[int], leaves: Sequence[int]
    ) -> list[tuple[list[list[int]], list[int]]]:
        """Offset and bytes of the pages of each leaf that are read, and the rows of each."""
        if self.pages.is_even:
            picked = self.picked[columns[0]]
            own = self.pages.starts[0].searchsorted(picked.begins)
            at = self.pages.borders[leaves][:, None] + own
            rows = picked.counts.tolist()
            return [(one, rows) for one in self.pages.pages[at][:, :, [OFFSET, SIZE]].tolist()]
        return [
            self._chosen_of(column, leaf)
            for column in columns
            for leaf in self.file.shape.columns[column]
        ]

    def _chosen_of(self, column: int, leaf: int) -> tuple[list[list[int]], list[int]]:
        starts, begins, pages = self.pages.starts[column], self.picked[column].begins, self.pages
        held = pages.of(leaf)
        if len(held) == len(starts):
            own = np.searchsorted(starts, begins)
        else:
            run = starts[np.searchsorted(starts, held[:, ROW], "right") - 1]
            own = np.flatnonzero(np.isin(run, begins))
        rows = np.append(held[1:, ROW], self.file.rows[self.group]) - held[:, ROW]
        return held[own][:, [OFFSET, SIZE]].tolist(), rows[own].tolist()


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What is read of a column chunk: its pages, and the rows that each should hold. The first page
    is the dictionary, of NO_ROWS, if it has one. `facts`: codec, bytes before compression, and the
    bits of encodings of its chunk."""

    cut: Cut
    leaf: int
    facts: list[int]
    spans: list[Span]
    rows: list[int]

    @classmethod
    def of(
        cls,
        cut: Cut,
        leaf: int,
        facts: list[int],
        dictionary: list[int],
        pages: list[list[int]],
        rows: list[int],
    ) -> Part:
        """`dictionary`: what lies before the first data page, offset and bytes."""
        if dictionary[1]:
            pages, rows = [dictionary, *pages], [NO_ROWS, *rows]
        return cls(cut, leaf, facts, [(at, size) for at, size in pages], rows)

    @property
    def has_dictionary(self) -> bool:
        return self.rows[0] == NO_ROWS

    @property
    def is_repeated(self) -> bool:
        return self.cut.file.shape.leaves[self.leaf].is_repeated

    def checked(self, bodies: Sequence[bytes]) -> tuple[int, int, int, int]:
        """Its codec; values; bytes of the dictionary and of the pages. Raises CorruptError."""
        codec, *facts = self.facts
        values = dictionary = 0
        for (offset, size), body, rows in zip(self.spans, bodies, self.rows, strict=True):
            place = _Place(self, offset)
            kind, count, own = checked_page(place, body, *facts)
            if kind == Page.DICTIONARY:
                dictionary = size
                continue
            values += count
            if (held := own if self.is_repeated else count) not in (None, rows):
                what = "page holds another number of rows than its place says"
                raise place.wrong(what, offset, expected=rows, found=held)
        return codec, values, dictionary, sum(map(len, bodies)) - dictionary


@dataclass(frozen=True, slots=True)
class _Place:
    part: Part
    offset: int

    @property
    def path(self) -> str:
        return self.part.cut.file.path

    def wrong(self, what: str, offset: int, **facts: object) -> CorruptError:
        cut = self.part.cut
        return cut.file.wrong(what, cut.group, self.part.leaf, offset=offset, **facts)


def cuts_of(store: Store, asked: Sequence[tuple[PagedFile, Numbers]]) -> list[Cut]:
    """A file and rows of it, ascending, each. Raises CorruptError."""
    wanted: list[tuple[PagedFile, int]] = []
    rows: list[tuple[int, Numbers]] = []
    for number, (file, positions) in enumerate(asked):
        starts = file.starts
        cuts = positions.searchsorted(starts).tolist()
        for group, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                wanted.append((file, group))
                rows.append((number, positions[low:high] - starts[group]))
    found = group_pages(store, wanted)
    return [
        Cut.of(number, *one, pages, own)
        for one, pages, (number, own) in zip(wanted, found, rows, strict=True)
    ]


def read_parts(store: Store, parts: Sequence[Part]) -> list[list[bytes]]:
    """The pages of each, as they are stored."""
    spans: dict[str, list[Span]] = {}
    for part in parts:
        spans.setdefault(part.cut.file.path, []).extend(part.spans)
    calls = [partial(store.read, path, own) for path, own in spans.items()]
    found = dict(zip(spans, map(iter, store.together(calls)), strict=True))
    store.counters.add("data.pages", sum(map(len, spans.values())))
    store.counters.add("data.page_bytes", sum(size for own in spans.values() for _, size in own))
    return [[next(found[part.cut.file.path]) for _ in part.spans] for part in parts]


def checked(
    parts: Sequence[Part], bodies: Sequence[Sequence[bytes]]
) -> tuple[Numbers, list[list[PageHead]] | None]:
    """(of each part its codec, values, bytes of the dictionary and of the pages, a row each; its
    pages' heads, None where they are not all of one form). Raises CorruptError."""
    found = _checked_together(parts, [*chain.from_iterable(bodies)])
    if found is not None:
        return found
    told = [part.checked(own) for part, own in zip(parts, bodies, strict=True)]
    return np.array(told, np.int64), None


def _checked_together(
    parts: Sequence[Part], bodies: Sequence[bytes]
) -> tuple[Numbers, list[list[PageHead]]] | None:
    """The same, from headers that are read at once; None where one is of another form, or anything
    is not as it should be."""
    counts = [len(part.spans) for part in parts]
    of, first = np.repeat(np.arange(len(parts)), counts), np.cumsum([0, *counts[:-1]])
    facts = np.array([part.facts for part in parts], np.int64)
    rows = np.array([*chain.from_iterable([part.rows for part in parts])], np.int64)
    is_dictionary = rows == NO_ROWS
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
    pages = np.add.reduceat(sizes, first) - dictionaries
    told = (headers.sizes, headers.plain, headers.values, headers.encodings)
    heads = zip(*(one.tolist() for one in told), strict=True)
    own = [[next(heads) for _ in part.spans] for part in parts]
    return np.stack([facts[:, 0], values, dictionaries, pages], axis=1), own
