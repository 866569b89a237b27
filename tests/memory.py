"""How much memory Arrow has held at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

__all__ = ["watched_memory"]

_POOLS: list[pa.ProxyMemoryPool] = []
"""Never let go: what is allocated from a pool may be given back to it at any later time."""


@contextmanager
def watched_memory() -> Iterator[pa.ProxyMemoryPool]:
    """A pool whose `max_memory` counts what is allocated within the block."""
    usual = pa.default_memory_pool()
    _POOLS.append(pa.proxy_memory_pool(usual))
    pa.set_memory_pool(_POOLS[-1])
    try:
        yield _POOLS[-1]
    finally:
        pa.set_memory_pool(usual)
