"""Key footers: what the Parquet footer of a base file says of its record keys.

Footer keys, as Hudi's writers and ours set them:

    org.apache.hudi.bloomfilter         base64 bloom filter over the record keys (filters/hudi.py);
                                        com.uber.hoodie.bloomfilter in old files
    hoodie_bloom_filter_type_code       DYNAMIC_V0 or SIMPLE; absent: SIMPLE
    hoodie_min_record_key, hoodie_max_record_key     absent in a file without rows
    metatable.bloomfilter_crc32         ours: of the filter's text, as a decimal number

Ours are in byte order. Those of Hudi's Avro writers are in Java's, which is that of UTF-16: it
puts U+E000 to U+FFFF behind what lies beyond them. So a minimum with a character beyond U+FFFF,
or a maximum with one from U+E000 to U+FFFF, says nothing of the order of bytes. Where a bound is
missing or says nothing, both are taken from the row groups' statistics of the key column: these
are in byte order, and may be wider than the keys (cut off, the maximum raised), never narrower.

Filters that Parquet itself defines lie outside of the footer, one per row group; a file that
has some in all of its row groups has a `column_filter` (`storage/parquet/bloom_filter.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from metatable.data.columns.schema import KEY_COLUMN
from metatable.data.file_groups.slices import DataFile
from metatable.storage.errors import CorruptError
from metatable.storage.filters.hudi import DYNAMIC, SIMPLE, FilterForm, HudiBloom
from metatable.storage.parquet.bloom_filter import Place
from metatable.storage.parquet.footer import ToldChunk, damaged, read_footer
from metatable.storage.parquet.sound_chunks import check_chunks
from metatable.storage.store import Store

__all__ = [
    "GrownFilter",
    "HudiFilter",
    "KeyFooter",
    "footer_of",
    "grown_footer",
    "kept_footer",
    "read_key_footer",
    "sound_ends",
    "sound_filter",
]

_FILTER = "org.apache.hudi.bloomfilter"
_OLD_FILTER = "com.uber.hoodie.bloomfilter"
_TYPE_CODE = "hoodie_bloom_filter_type_code"
_CHECKSUM = "metatable.bloomfilter_crc32"
_MINIMUM, _MAXIMUM = "hoodie_min_record_key", "hoodie_max_record_key"

MOST_KEYS = 1.1
"""A filter holds so many times the keys that it was made for, at most, or that are left in its
file: twice as many as asked then pass it in error."""

Bounds = tuple[str | None, str | None]
_UNKNOWN: Bounds = (None, None)


@dataclass(frozen=True, slots=True)
class HudiFilter:
    """Hudi's filter as it stands in a footer; decoded when it is asked."""

    text: bytes
    type_code: str

    def decode(self, path: str) -> HudiBloom:
        """Raises CorruptError, and UpgradeError for a family that is not known."""
        return HudiBloom.from_base64(self.text, self.type_code, path)


@dataclass(frozen=True, slots=True)
class KeyFooter:
    """Bounds of a file's record keys, and what filters it has.

    `minimum` and `maximum`: no key of the file lies outside, in byte order; None: not known.
    `column_filter`: where Parquet's filters of the key column lie, one for each row group that
    has rows; None where one of them has none.
    """

    minimum: str | None
    maximum: str | None
    has_hudi_filter: bool
    column_filter: tuple[Place, ...] | None

    @property
    def size_bytes(self) -> int:
        """Bytes held in memory, about."""
        return 300 + len(self.minimum or "") + len(self.maximum or "")


@dataclass(frozen=True, slots=True)
class GrownFilter:
    """The filter of a file that is written anew, and the keys (strings) that it does not know."""

    bloom: HudiBloom
    new_keys: pa.Array
    ends: tuple[str, str] | None = None
    """The least and the greatest of all of its keys, where they are known."""

    def for_keys(self, count: int, fpp: float) -> HudiBloom | None:
        """The filter over the old keys and the new ones, for a file in which `count` keys are left;
        None where one made anew is better: it would let too many others through."""
        grown = self.bloom.with_keys(self.new_keys, fpp, MOST_KEYS)
        return grown if grown and grown.keys_in_last_row <= count * MOST_KEYS else None


def footer_of(
    record_keys: pa.ChunkedArray, fpp: float, grown: GrownFilter | None = None
) -> dict[str, str]:
    """The footer keys of a file with these record keys (strings)."""
    bloom = grown and grown.for_keys(len(record_keys), fpp)
    bloom = bloom or HudiBloom.build(record_keys.combine_chunks(), fpp)
    ends = grown.ends if grown else None
    if len(record_keys) and not ends:
        least, most = pc.min_max(record_keys).as_py().values()
        ends = least, most
    return _footer_keys(bloom.to_base64(), ends if len(record_keys) else None)


def grown_footer(grown: GrownFilter, count: int, fpp: float) -> dict[str, str] | None:
    """`footer_of` of a file of so many keys, one at least, that follows another, without a look at
    them; None: it takes one."""
    bloom = grown.for_keys(count, fpp) if grown.ends else None
    return None if bloom is None else _footer_keys(bloom.to_base64(), grown.ends)


def kept_footer(footer: pq.FileMetaData, fpp: float) -> dict[str, str] | None:
    """`footer_of` of a file that has the keys of another, whose footer this is; None: what that
    tells is not to be believed, or a filter made anew is better. The filter's bits are not looked
    at: what they are is known by their checksum."""
    ends, text = sound_ends(footer), _sound_text(footer.metadata)
    form = text and FilterForm.of_base64(text)
    if not ends or not text or not form or not form.holds(0, fpp, MOST_KEYS):
        return None
    return _footer_keys(text, ends) if form.keys <= footer.num_rows * MOST_KEYS else None


def _footer_keys(text: bytes, ends: tuple[str, str] | None) -> dict[str, str]:
    """The footer keys of this filter (base64), and the least and the greatest key."""
    footer = {_FILTER: text.decode(), _TYPE_CODE: DYNAMIC, _CHECKSUM: str(isal_zlib.crc32(text))}
    if ends:
        footer[_MINIMUM], footer[_MAXIMUM] = ends
    return footer


def sound_ends(footer: pq.FileMetaData) -> tuple[str, str] | None:
    """The least and the greatest key of a file of ours. A footer has no checksum, so they are told
    only where it says the same twice: under names, and of its row groups."""
    words = footer.metadata or {}
    least, most = _bounds_of_groups(_key_chunks(footer, _key_leaf(footer, "")))
    if least is None or most is None:
        return None
    told = words.get(_MINIMUM.encode()), words.get(_MAXIMUM.encode())
    return (least, most) if told == (least.encode(), most.encode()) else None


def sound_filter(words: Mapping[bytes, bytes] | None) -> HudiBloom | None:
    """The filter in a footer, if we wrote it and it is as we wrote it. A footer has no checksum,
    and a bit that got lost would pass on from file to file."""
    text = _sound_text(words)
    return None if text is None else HudiBloom.from_base64(text, DYNAMIC)


def _sound_text(words: Mapping[bytes, bytes] | None) -> bytes | None:
    text = (words or {}).get(_FILTER.encode())
    told = (words or {}).get(_CHECKSUM.encode(), b"").decode("ascii", "replace")
    return text if text is not None and told == str(isal_zlib.crc32(text)) else None


def read_key_footer(store: Store, file: DataFile) -> tuple[KeyFooter, HudiFilter | None]:
    """What a stored file's footer says of its keys, by reading the footer alone.

    The filter is given beside, because it is large. Counts `data.footers_read`. Raises
    CorruptError: missing, not Parquet, without a key column, bounds that contradict each other.
    """
    store.counters.add("data.footers_read")
    size_bytes = file.size_bytes or store.size(file.path) or 0
    raw, parquet = read_footer(store, file.path, size_bytes)
    try:
        words = parquet.metadata or {}
        leaf = _key_leaf(parquet, file.path)
        check_chunks(raw, parquet, file.path, [leaf])
        chunks = _key_chunks(parquet, leaf)
        hudi = _hudi_filter(words)
        minimum, maximum = _bounds(words, chunks, file.path)
        places = _places(chunks)
    except MemoryError:  # of Arrow, too
        raise
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise damaged(file.path, error) from error
    return KeyFooter(minimum, maximum, hudi is not None, places), hudi


def _key_leaf(parquet: pq.FileMetaData, path: str) -> int:
    """The number of the key column among the leaf columns. Raises CorruptError."""
    leaves = [parquet.schema.column(leaf).path for leaf in range(parquet.num_columns)]
    if KEY_COLUMN not in leaves:
        raise CorruptError("data file has no key column", path=path, expected=KEY_COLUMN)
    return leaves.index(KEY_COLUMN)


def _key_chunks(parquet: pq.FileMetaData, leaf: int) -> list[ToldChunk]:
    """The key column's chunk in each row group that has rows."""
    groups = range(parquet.num_row_groups)
    own = [group for group in groups if parquet.row_group(group).num_rows]
    return [ToldChunk.of(parquet, group, leaf) for group in own]


def _hudi_filter(words: Mapping[bytes, bytes]) -> HudiFilter | None:
    text = words.get(_FILTER.encode(), words.get(_OLD_FILTER.encode()))
    if text is None:
        return None
    return HudiFilter(text, words.get(_TYPE_CODE.encode(), SIMPLE.encode()).decode())


def _bounds(words: Mapping[bytes, bytes], chunks: list[ToldChunk], path: str) -> Bounds:
    raw = words.get(_MINIMUM.encode()), words.get(_MAXIMUM.encode())
    minimum, maximum = _believed(*(None if one is None else one.decode() for one in raw))
    if minimum is None or maximum is None:
        minimum, maximum = _bounds_of_groups(chunks)
    if minimum is not None and maximum is not None and minimum > maximum:
        what = "bounds of the record keys contradict each other"
        raise CorruptError(what, path=path, minimum=minimum, maximum=maximum)
    return minimum, maximum


def _believed(minimum: str | None, maximum: str | None) -> Bounds:
    """Those bounds that hold in byte order whoever wrote them."""
    if minimum is None or maximum is None:
        return _UNKNOWN
    if max(minimum, default="") > "\uffff" or any("\ue000" <= one <= "\uffff" for one in maximum):
        return _UNKNOWN
    return minimum, maximum


def _bounds_of_groups(chunks: list[ToldChunk]) -> Bounds:
    """The least and the greatest bound of all; unknown where a row group has none."""
    known = [chunk.statistics for chunk in chunks]
    told = [one for one in known if one is not None and one.has_min_max]
    if not told or len(told) < len(known):
        return _UNKNOWN
    try:
        ends = [(_text(one.min_raw), _text(one.max_raw)) for one in told]
    except UnicodeDecodeError:  # cut in the middle of a character
        return _UNKNOWN
    return min(least for least, _ in ends), max(most for _, most in ends)


def _text(bound: bytes | str) -> str:
    return bound if isinstance(bound, str) else bound.decode()


def _places(chunks: list[ToldChunk]) -> tuple[Place, ...] | None:
    """Where pyarrow says that they lie; older ones do not, and then nothing is asked."""
    offsets = [getattr(one.chunk, "bloom_filter_offset", None) for one in chunks]
    lengths = [getattr(one.chunk, "bloom_filter_length", None) for one in chunks]
    places = [(at, size) for at, size in zip(offsets, lengths, strict=True) if at is not None]
    return tuple(places) if chunks and len(places) == len(chunks) else None
