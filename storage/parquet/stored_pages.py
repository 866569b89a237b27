"""Stored pages: those of cuts, as they are read and checked.

Of each row group and column the pages that hold the rows are read, and what they are decoded by,
the dictionary.

    reads     those of a file together; files far away beside each other
    damage    a page is of the kind, bytes and values that its place tells, and its checksum is
              verified where it has one

Counted: `data.pages`, `data.page_bytes`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32

from metatable.storage.arrays import Bools, Int64s, UInt8s
from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Page
from metatable.storage.parquet.offset_index import ROW, SIZE
from metatable.storage.parquet.page_cuts import NO_ROWS, Cut
from metatable.storage.parquet.page_headers import WIDTH, Headers
from metatable.storage.parquet.paged_file import CODEC, ENCODINGS, UNCOMPRESSED
from metatable.storage.parquet.pages import checked_page
from metatable.storage.parquet.parts import Span
from metatable.storage.store import Store
from metatable.storage.threads import in_order, shared, workers_here

__all__ = ["Bodies", "Pages", "checked", "read_pages"]

BESIDE_BYTES = 4 << 20
"""Bytes of pages from which on more than one thread reads them, or makes their checksums."""

LARGE_PAGE = 16 << 10
"""Bytes of a page, on average, from which on that is so: with smaller ones threads wait for the
interpreter's lock."""

_FACTS = [CODEC, UNCOMPRESSED, ENCODINGS]

_CUT, _COLUMN, _LEAF, _CODEC, _PLAIN, _WAYS = range(6)
"""Numbers of a part: of a cut, of a column among those asked, of a leaf, and the facts of its
chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """What is read of columns: parts, which are chunks, by column, cut and leaf; and their pages.

    The first page of a part is its dictionary, of NO_ROWS, if it has one.
    """

    cuts: Sequence[Cut]
    parts: Int64s
    """(part, number): those from _CUT to _WAYS."""
    numbers: Int64s
    """(page, number): its offset, its bytes, and the rows that it should hold."""
    of: Int64s
    """The part that each page is of, by number."""

    @classmethod
    def of_cuts(cls, cuts: Sequence[Cut], columns: Sequence[int]) -> Pages:
        """What has to be read of these columns for these cuts, of files of one shape."""
        shape = cuts[0].file.shape
        leaves = np.array([leaf for column in columns for leaf in shape.columns[column]])
        column_of = [place for place, one in enumerate(columns) for _ in shape.columns[one]]
        places, counts, numbers = zip(*[cut.parts(columns, leaves) for cut in cuts], strict=True)
        of_leaf, of_cut = np.stack(places), np.arange(len(cuts))[:, None]
        parts = np.empty((len(cuts), len(leaves), _WAYS + 1), np.int64)
        parts[:, :, _CUT] = of_cut
        parts[:, :, _COLUMN], parts[:, :, _LEAF] = np.array(column_of)[of_leaf], leaves[of_leaf]
        chunks = np.array([cut.file.chunks[cut.group] for cut in cuts])
        parts[:, :, _CODEC:] = chunks[of_cut[:, :, None], leaves[of_leaf][:, :, None], _FACTS]
        many = np.concatenate(counts)
        turn = ((parts[:, :, _COLUMN] * len(cuts) + of_cut) * len(leaves) + of_leaf).reshape(-1)
        order = np.argsort(turn, kind="stable")
        rows = np.argsort(np.repeat(turn, many), kind="stable")
        of = np.repeat(np.arange(len(many)), many[order])
        return cls(cuts, parts.reshape(-1, _WAYS + 1)[order], np.concatenate(numbers)[rows], of)

    def parted(self, part: int) -> tuple[Pages, Pages]:
        """The pages of the parts before this one, and the others."""
        page = int(self.of.searchsorted(part))
        before = Pages(self.cuts, self.parts[:part], self.numbers[:page], self.of[:page])
        behind = self.parts[part:], self.numbers[page:], self.of[page:] - part
        return before, Pages(self.cuts, *behind)

    @property
    def is_dictionary(self) -> Bools:
        """For each page whether it is a dictionary."""
        return np.asarray(self.numbers[:, ROW] == NO_ROWS)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all pages, as they are stored."""
        return int(self.numbers[:, SIZE].sum())

    @property
    def laid(self) -> Int64s:
        """The pages as they lie in memory, by number: dictionaries of a column before its other
        pages, as they are decompressed."""
        return np.lexsort((~self.is_dictionary, self.parts[self.of, _COLUMN]))

    @property
    def codecs(self) -> Int64s:
        """The codec of each page, by Parquet's number."""
        return np.asarray(self.parts[self.of, _CODEC])

    def checked(self, part: int, bodies: Sequence[memoryview]) -> tuple[int, int, int, int]:
        """Check the pages of one part, with `bodies` as they are stored. Returns its codec, how
        many values it has, bytes of its dictionary, and of its other pages. Raises CorruptError."""
        cut, _, leaf, codec, *facts = self.parts[part].tolist()
        cut = self.cuts[cut]
        values = dictionary = 0
        told = self.numbers[self.of == part].tolist()
        for (offset, size, rows), body in zip(told, bodies, strict=True):
            place = _Place(cut, leaf, offset)
            kind, count, own = checked_page(place, bytes(body), *facts)
            if kind == Page.DICTIONARY:
                dictionary = size
                continue
            values += count
            is_repeated = cut.file.shape.leaves[leaf].is_repeated
            if (held := own if is_repeated else count) not in (None, rows):
                what = "page holds another number of rows than its place says"
                raise place.wrong(what, offset, expected=rows, found=held)
        return codec, values, dictionary, sum(map(len, bodies)) - dictionary


@dataclass(frozen=True, slots=True)
class _Place:
    cut: Cut
    leaf: int
    offset: int

    @property
    def path(self) -> str:
        return self.cut.file.path

    def wrong(self, what: str, offset: int, **facts: object) -> CorruptError:
        return self.cut.file.wrong(what, self.cut.group, self.leaf, offset=offset, **facts)


@dataclass(frozen=True, slots=True, eq=False)
class Bodies:
    """Pages as they are stored: of each where it begins in `memory`, and its bytes."""

    memory: memoryview
    begins: Int64s
    sizes: Int64s

    def __len__(self) -> int:
        return len(self.begins)

    def of(self, pages: slice | Int64s, skip: Int64s | int = 0) -> list[memoryview]:
        """These pages, without so many bytes at the beginning of each."""
        begins, memory = self.begins[pages], self.memory
        spans = zip((begins + skip).tolist(), (begins + self.sizes[pages]).tolist(), strict=True)
        return [memory[begin:end] for begin, end in spans]

    def heads(self, width: int) -> UInt8s:
        """The first bytes of each, with zeros behind one that is shorter."""
        within = np.arange(width)
        held = np.frombuffer(self.memory, np.uint8)
        found = held.take(self.begins[:, None] + within, mode="clip")
        found[within >= self.sizes[:, None]] = 0
        return np.asarray(found)


def read_pages(store: Store, pages: Pages) -> Bodies:
    """Each page, as it is stored. All are in one piece of memory, which is Arrow's, as that is kept
    for the next ones: a system clears what it gives, which takes longer than reading does."""
    paths = [cut.file.path for cut in pages.cuts]
    names = dict.fromkeys(paths)
    number = {path: place for place, path in enumerate(names)}
    of = np.array([number[path] for path in paths])[pages.parts[pages.of, _CUT]]
    order = np.argsort(of, kind="stable")
    borders = np.searchsorted(of[order], np.arange(len(names) + 1)).tolist()
    sizes, laid = pages.numbers[:, 1], pages.laid
    ends = np.cumsum(sizes[laid])
    begins = np.empty_like(sizes)
    begins[laid] = ends - sizes[laid]
    memory = memoryview(pa.allocate_buffer(int(ends[-1]))).cast("B")
    spans: list[Span] = [*zip(*pages.numbers[order, :2].T.tolist(), strict=True)]
    places = begins[order].tolist()
    calls = [
        partial(store.read_into, path, spans[low:high], memory, places[low:high])
        for path, (low, high) in zip(names, pairwise(borders), strict=True)
    ]
    if store.is_distant or not _are_large(int(ends[-1]), len(spans)):
        store.together(calls)
    else:
        deque(in_order(_called, calls), maxlen=0)
    store.counters.add("data.pages", len(spans))
    store.counters.add("data.page_bytes", int(ends[-1]))
    return Bodies(memory, begins, sizes)


def checked(pages: Pages, bodies: Bodies) -> tuple[Int64s, Headers | None]:
    """(of each part its codec, values, bytes of the dictionary and of the pages, a row each; its
    pages' headers, None where they are not all of one form). Raises CorruptError."""
    first = np.searchsorted(pages.of, np.arange(len(pages.parts)))
    found = _checked_together(pages, bodies, first)
    if found is not None:
        return found
    borders = pairwise([*first.tolist(), len(bodies)])
    told = [
        pages.checked(part, bodies.of(slice(low, high))) for part, (low, high) in enumerate(borders)
    ]
    return np.array(told, np.int64), None


def _are_large(size_bytes: int, pages: int) -> bool:
    return size_bytes >= max(BESIDE_BYTES, LARGE_PAGE * pages)


def _called(call: Callable[[], None]) -> None:
    call()


def _sums(bodies: Bodies, headers: Headers) -> list[int]:
    """CRC32 of each page without its header."""
    many = bodies.of(slice(None), headers.sizes)
    if not _are_large(sum(map(len, many)), len(many)):
        return [*map(crc32, many)]
    step = -(-len(many) // workers_here())
    parts = [many[start : start + step] for start in range(0, len(many), step)]
    return [*chain.from_iterable(shared(_sums_of, parts))]


def _sums_of(pages: Sequence[memoryview]) -> list[int]:
    return [*map(crc32, pages)]


def _checked_together(pages: Pages, bodies: Bodies, first: Int64s) -> tuple[Int64s, Headers] | None:
    """`checked` from headers that are all read at once; None where one is of another form, or
    anything is not as it should be."""
    is_dictionary, facts = pages.is_dictionary, pages.parts[pages.of]
    headers = Headers.of(bodies.heads(WIDTH), is_dictionary)
    sizes = pages.numbers[:, 1]
    leaves = pages.cuts[0].file.shape.leaves
    has_rows = is_dictionary | (headers.values == pages.numbers[:, ROW])
    has_rows |= np.array([leaf.is_repeated for leaf in leaves])[facts[:, _LEAF]]
    is_sound = headers.fill(sizes) & headers.are_encoded(facts[:, _WAYS]) & has_rows
    if not (is_sound & (headers.plain <= facts[:, _PLAIN])).all():
        return None
    if _sums(bodies, headers) != headers.sums:
        return None
    values, dictionaries = (
        np.add.reduceat(np.where(is_dictionary == is_it, one, 0), first)
        for one, is_it in ((headers.values, False), (sizes, True))
    )
    stored = np.add.reduceat(sizes, first) - dictionaries
    return np.stack([pages.parts[:, _CODEC], values, dictionaries, stored], axis=1), headers
