"""`bloom`: ranges and filters from the footers of the data files; no metadata of its own.

Level 1 takes the bounds of the record key from footers, level 2 the filter that Hudi's writers
leave there, else Parquet's own filters of the key column; a file that has neither is left for
level 3. A footer is read once per process, a few side by side, and kept: files never change. What
is kept of one is small; filters wait among the blocks, so that however many there are they drive
nothing else out, and one that was driven out is read again with its footer.

Counted, besides the levels: `data.footers_read`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from metatable.data.base_files.key_footer import HudiFilter, KeyFooter, read_key_footer
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.index.bloom_lookup import BloomIndex, Ranges, keep_apart, kept_ranges, key_slices
from metatable.index.key_filters import AskedKeys, HashFilters, HudiKeyFilter, KeyFilter, NoFilter
from metatable.index.protocol import register
from metatable.metadata.view import FEW_PARTITIONS, TableView
from metatable.storage import cache
from metatable.storage.errors import UpgradeError
from metatable.storage.filters.hudi import HudiBloom
from metatable.storage.ordering import sort_order
from metatable.storage.parquet.bloom_filter import SEED, read_bloom_filters
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["FooterBloomIndex", "FooterSource", "denied_by_footer"]

READ_TOGETHER = 64
"""Footers that are read from afar at once."""

FILES_TOGETHER = 4096
"""Files of which footers are held until their bounds are columns."""


@dataclass(frozen=True, slots=True)
class FooterSource:
    """Ranges and filters from footers. `late`: of a view since a version, only slices that came
    after it."""

    late: bool = False

    def fetch(self, view: TableView, partition_paths: Sequence[str | None]) -> None:
        """The files of many table partitions are listed as one, and their footers read together. Of
        those of a few the first are fetched together, from afar."""
        keys = {path: self._key(view, path) for path in partition_paths}
        unknown = {path: key for path, key in keys.items() if cache.shared.get(key) is None}
        if len(unknown) > FEW_PARTITIONS:
            every = view.slices()
            asked = every.take(every.within([path for path in unknown if path is not None]))
            keep_apart(self._read(view, asked), unknown)
        elif view.store.is_distant and not self.late:
            _hold(view.store, (one.base for path in unknown for one in view.slices(path)))

    def ranges(self, view: TableView, partition_path: str | None) -> Ranges:
        key = self._key(view, partition_path)
        return kept_ranges(key, lambda: self._read(view, view.slices(partition_path)))

    def _key(self, view: TableView, partition_path: str | None) -> Hashable:
        return "footer-ranges", view.identity, partition_path, self.late

    def _read(self, view: TableView, files: FileSystemView) -> Ranges:
        came = files.take(np.flatnonzero(view.came(files))) if self.late else files
        return _ranges(view.store, came)

    def filters(
        self, view: TableView, slices: Sequence[FileSlice]
    ) -> Iterator[tuple[int, KeyFilter]]:
        return enumerate(in_order(partial(_filter, view.store), [one.base for one in slices]))


def denied_by_footer(store: Store, file: DataFile, record_keys: pa.Array) -> int:
    """How many of a file's keys its own footer would leave out: 0, unless it is damaged.

    Reads the footer as it is stored, and keeps nothing. Raises CorruptError.
    """
    footer, hudi = read_key_footer(store, file)
    asked = AskedKeys(record_keys.take(pa.array(sort_order(record_keys))))
    ends = [pa.array([bound], pa.string()) for bound in (footer.minimum, footer.maximum)]
    first, last = (int(place[0]) for place in key_slices(asked.texts, *ends))
    body, _ = _best(store, file, footer, hudi)
    return len(asked) - int(body.might_contain(asked, first, last).sum())


def _ranges(store: Store, slices: FileSystemView) -> Ranges:
    """The ranges of these slices; footers that are not known are read."""
    rows = np.arange(len(slices))
    starts = range(0, max(len(rows), 1), FILES_TOGETHER)
    parts = (slices.take(rows[start : start + FILES_TOGETHER]) for start in starts)
    bounds = zip(*(_bounds(store, part) for part in parts), strict=True)
    return Ranges(slices, *map(pa.concat_arrays, bounds))


def _bounds(store: Store, slices: Sequence[FileSlice]) -> tuple[pa.Array, pa.Array]:
    """The least and the greatest key of each of these."""
    files = [one.base for one in slices]
    kept = [cache.shared.get(_footer_key(store, file)) for file in files]
    missing = [files[place] for place, one in enumerate(kept) if one is None]
    _hold(store, missing)
    read = _all_read(store, missing)
    footers = [next(read)[0] if one is None else one for one in kept]
    minimum = pa.array([one.minimum for one in footers], pa.string())
    maximum = pa.array([one.maximum for one in footers], pa.string())
    return minimum, maximum


def _all_read(
    store: Store, files: Sequence[DataFile]
) -> Iterator[tuple[KeyFooter, HudiFilter | None]]:
    """`_read` of each, a few side by side, or, far away, many at once."""
    if not store.is_distant:
        yield from in_order(partial(_read, store), files)
        return
    for start in range(0, len(files), READ_TOGETHER):
        some = files[start : start + READ_TOGETHER]
        yield from store.together([partial(_read, store, file) for file in some])


def _hold(store: Store, files: Iterable[DataFile]) -> None:
    """The first of those whose footers are not known: a small file is looked into next."""
    missing = (one for one in files if cache.shared.get(_footer_key(store, one)) is None)
    store.hold((one.path, one.size_bytes) for one in islice(missing, READ_TOGETHER))


def _read(store: Store, file: DataFile) -> tuple[KeyFooter, HudiFilter | None]:
    """A footer from the store, kept with its filter from now on."""
    footer, hudi = read_key_footer(store, file)
    footer = cache.shared.offer(_footer_key(store, file), footer, footer.size_bytes)
    if hudi is not None:
        cache.blocks.offer(_text_key(store, file), hudi, len(hudi.text))
    return footer, hudi


def _filter(store: Store, file: DataFile) -> KeyFilter:
    """The filter of a file, kept from now on."""
    key = ("footer-filter", store.uri, file.path)
    kept: KeyFilter | None = cache.blocks.get(key)
    if kept is not None:
        return kept
    made, size_bytes = _make_filter(store, file)
    return cache.blocks.offer(key, made, size_bytes)


def _make_filter(store: Store, file: DataFile) -> tuple[KeyFilter, int]:
    """(the filter of a file, its bytes); its footer is read again where it was driven out."""
    footer: KeyFooter | None = cache.shared.get(_footer_key(store, file))
    hudi: HudiFilter | None = cache.blocks.get(_text_key(store, file))
    if footer is None or (footer.has_hudi_filter and hudi is None):
        footer, hudi = _read(store, file)
    return _best(store, file, footer, hudi)


def _best(
    store: Store, file: DataFile, footer: KeyFooter, hudi: HudiFilter | None
) -> tuple[KeyFilter, int]:
    """The best filter that a file has, and the bytes of it."""
    bloom = None if hudi is None else _decoded(hudi, file)
    if bloom is not None:
        return HudiKeyFilter(bloom), sum(len(row) for row in bloom.rows)
    if footer.column_filter is not None:
        parts = read_bloom_filters(store, file.path, file.size_bytes, footer.column_filter)
        if parts is not None:
            return HashFilters(tuple(parts), SEED), sum(one.words.nbytes for one in parts)
    return NoFilter(), 100


def _decoded(hudi: HudiFilter, file: DataFile) -> HudiBloom | None:
    """None for a family or form that is not known: the file is asked without."""
    try:
        return hudi.decode(file.path)
    except UpgradeError:
        return None


def _footer_key(store: Store, file: DataFile) -> tuple[str, str, str]:
    return "footer", store.uri, file.path


def _text_key(store: Store, file: DataFile) -> tuple[str, str, str]:
    return "footer-text", store.uri, file.path


class FooterBloomIndex(BloomIndex):
    """`index="bloom"`: asks the footers of the data files."""

    name = "bloom"
    asks_footers = True
    _source = FooterSource()
    _late = FooterSource(late=True)


register(FooterBloomIndex.name, FooterBloomIndex)
