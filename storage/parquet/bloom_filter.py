"""Parquet's own bloom filters: one per column chunk, a header in Thrift and the bits behind it.

    field  of the header
        1  i32    bytes of the bits, whole blocks of 32
        2  union  algorithm     1: BLOCK (split block, `filters/split_block.py`)
        3  union  hash          1: XXHASH (XXH64, seed 0, of the value's plain bytes)
        4  union  compression   1: UNCOMPRESSED

Other algorithms, hashes and compressions are no damage: who does not know them does without.
There is no checksum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metatable.storage.errors import CorruptError
from metatable.storage.filters.split_block import SplitBlock
from metatable.storage.parquet.thrift import Struct, decode_struct
from metatable.storage.store import Store

__all__ = ["SEED", "Place", "read_bloom_filters"]

SEED = 0
"""The seed of the XXH64 that these filters are asked with."""

Place = tuple[int, int | None]
"""Offset and length in the file; some writers do not say the length."""

_BYTES, _ALGORITHM, _HASH, _COMPRESSION = 1, 2, 3, 4
_KNOWN = 1
"""The one member of each union that there is."""

_HEADER_BYTES = 64
"""A header takes some 15; what follows are bits, which are read again where there was no length."""
_BLOCK_BYTES = 32
_MOST_BYTES = 128 << 20
"""What Parquet's writers refuse to go beyond."""


def read_bloom_filters(
    store: Store, path: str, size_bytes: int, places: Sequence[Place]
) -> list[SplitBlock] | None:
    """The filters that lie at `places` of a file. None: one of them is of an unknown kind.

    Raises CorruptError.
    """
    spans = _spans(store, path, size_bytes, places)
    if spans is None:
        return None
    raws = store.read(path, spans)
    decoded = [_decode(raw, path, offset) for raw, (offset, _) in zip(raws, spans, strict=True)]
    filters = [one for one in decoded if one is not None]
    return filters if len(filters) == len(decoded) else None


def _spans(
    store: Store, path: str, size_bytes: int, places: Sequence[Place]
) -> list[tuple[int, int]] | None:
    """Offset and size of each; the heads of those without a length are read for it."""
    unknown = [offset for offset, length in places if length is None]
    for offset, length in places:
        _check_within(path, size_bytes, offset, 1 if length is None else length)
    heads = store.read(path, [(at, min(_HEADER_BYTES, size_bytes - at)) for at in unknown])
    sizes: dict[int, int] = {}
    for offset, head in zip(unknown, heads, strict=True):
        header, end = decode_struct(head, path)
        if not _is_known(header):
            return None
        sizes[offset] = end + _bits(header, path, offset)
        _check_within(path, size_bytes, offset, sizes[offset])
    spans = [(at, sizes[at] if length is None else length) for at, length in places]
    if sum(size for _, size in spans) > size_bytes:  # each becomes bytes of its own
        what = "bloom filters lie over each other"
        raise CorruptError(what, path=path, expected=f"within {size_bytes} bytes", found=spans[:5])
    return spans


def _decode(raw: bytes, path: str, offset: int) -> SplitBlock | None:
    header, end = decode_struct(raw, path)
    if not _is_known(header):
        return None
    size = _bits(header, path, offset)
    if end + size > len(raw):
        expected, found = f"{end + size} bytes", f"{len(raw)} bytes"
        what = "bloom filter is cut short"
        raise CorruptError(what, path=path, offset=offset, expected=expected, found=found)
    words = np.frombuffer(raw, "<u4", size // 4, end).reshape(-1, _BLOCK_BYTES // 4)
    return SplitBlock(words.astype(np.uint32, copy=False))


def _is_known(header: Struct) -> bool:
    unions = (header.get(field) for field in (_ALGORITHM, _HASH, _COMPRESSION))
    return all(isinstance(one, dict) and set(one) == {_KNOWN} for one in unions)


def _bits(header: Struct, path: str, offset: int) -> int:
    size = header.get(_BYTES)
    if type(size) is not int or size % _BLOCK_BYTES or not _BLOCK_BYTES <= size <= _MOST_BYTES:
        what, expected = "bloom filter of an impossible size", f"blocks of {_BLOCK_BYTES} bytes"
        raise CorruptError(what, path=path, offset=offset, expected=expected, found=size)
    return size


def _check_within(path: str, size_bytes: int, offset: int, length: int) -> None:
    if offset < 0 or length < 1 or offset + length > size_bytes:
        what, expected = "bloom filter lies outside of its file", f"within {size_bytes} bytes"
        raise CorruptError(what, path=path, expected=expected, found=(offset, length))
