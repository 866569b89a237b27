"""The filter that a file of ours may carry: which keys are certainly not in it.

A META block `metatable.filter` of a kind (FILE_INFO fact of the same name) from
`storage/filters`, over XXH64 (seed 42) of every key. It is asked where reading it is less
than reading the blocks that the keys would touch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.filters import Filter, decode
from metatable.storage.hashing import xxh64
from metatable.storage.hfile.columns import Int64s
from metatable.storage.hfile.reading.fetch import meta_payload
from metatable.storage.hfile.reading.opened import OpenedHFile
from metatable.storage.store import Store

__all__ = ["FACT", "META", "filter_of", "might_contain"]

FACT = b"metatable.filter"
META = "metatable.filter"


def might_contain(
    store: Store, opened: OpenedHFile, wanted: pa.Array, touched_bytes: int
) -> Int64s | None:
    """Which of `wanted` the file may hold; None where its filter is not worth asking, or is of
    a kind that is not known here.

    `touched_bytes`: what would be read without it.
    """
    place = opened.meta.get(META)
    if place is None or FACT not in opened.file_info or place[1] >= touched_bytes:
        return None
    found = filter_of(store, opened, place)
    if found is None:
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
    return cached(key, make, lambda _: 4 * place[1])[0]
