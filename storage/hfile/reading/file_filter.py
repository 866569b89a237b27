"""The filter that a file of ours may carry: which keys are certainly not in it.

A META block `metatable.filter` of a kind (FILE_INFO fact of the same name) from
`storage/filters`, over XXH64 (seed 42) of every key. It is asked where reading it is less
than reading the blocks that the keys would touch; of many keys first some, for it spares
nothing where those that it lets through touch nearly all of these blocks anyway.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from metatable.storage.arrays import Int64s
from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.filters import Filter, decode
from metatable.storage.hashing import xxh64
from metatable.storage.hfile.reading.fetch import meta_payload
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.store import Store

__all__ = ["FACT", "META", "filter_of", "might_contain"]

SAMPLE_KEYS = 256
"""So many of more than twice as many keys tell how many it will let through."""
ANYWAY_KEYS = 2
"""So many keys a block leave one of seven blocks unread."""

FACT = b"metatable.filter"
META = "metatable.filter"


def might_contain(
    store: Store, opened: OpenedHFile, wanted: pa.Array, touched_bytes: int, touched: int
) -> Int64s | None:
    """Which of the ascending `wanted` the file may hold; None where its filter is not worth
    asking, or is of a kind that is not known here.

    `touched_bytes`: what would be read without it, in so many blocks.
    """
    place = opened.meta.get(META)
    if place is None or FACT not in opened.file_info or place[1] >= touched_bytes:
        return None
    found = filter_of(store, opened, place)
    if found is None:
        return None
    if len(wanted) > 2 * SAMPLE_KEYS:
        some = np.linspace(0, len(wanted) - 1, SAMPLE_KEYS).astype(np.int64)
        through = found.might_contain(xxh64(wanted.take(pa.array(some))))
        if np.count_nonzero(through) * len(wanted) > ANYWAY_KEYS * touched * SAMPLE_KEYS:
            return None
    return np.flatnonzero(found.might_contain(xxh64(wanted)))


def filter_of(store: Store, opened: OpenedHFile, place: tuple[int, int]) -> Filter | None:
    """The filter in the META block at `place`; None if it is of a kind or version that is not
    known here: the file is read without it. Raises CorruptError."""

    def make() -> tuple[Filter | None]:
        kind = opened.file_info[FACT].decode("utf-8", "backslashreplace")
        try:
            return (decode(kind, meta_payload(store, opened, place), opened.path),)
        except UpgradeError:
            return (None,)
        except CorruptError as error:
            error.facts["offset"] = place[0]
            raise

    key = ("hfile.filter", store.uri, opened.path)
    return cached(key, make, lambda made: made[0].size_bytes if made[0] else 100)[0]
