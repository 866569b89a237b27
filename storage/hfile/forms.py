"""What differs between those who write HFiles, as values: a form for each of them.

    OURS   read by HBase, hudi-io and hudi-rs alike, with hints for our own reader; the default
    HUDI   byte for byte what Hudi's own Java writer makes (1.1 and later)
    HBASE  byte for byte what HBase 2 makes, as Hudi 1.0 and earlier use it

The writer asks a form wherever they part; nothing else knows of them. What does not follow
from the entries is said with `replace`: `replace(HUDI, create_time_ms=…)`. The rules, side by
side: FORMAT.md, "Forms".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from metatable.storage.hfile.block import CHUNK_BYTES
from metatable.storage.hfile.checksum import Checksum
from metatable.storage.hfile.key_values import KEY_SUFFIX
from metatable.storage.hfile.trailer import COMPARATOR
from metatable.storage.java_hash import java_string_hash

__all__ = ["HBASE", "HUDI", "OURS", "Form", "java_order"]

_HBASE_CHUNK_BYTES = (16 << 10,)


def _byte_order(names: Iterable[bytes]) -> list[bytes]:
    return sorted(names)


def java_order(names: Iterable[bytes]) -> list[bytes]:
    """As a Java HashMap lists them that was given them in this order."""
    given = list(names)
    if not given:
        return []
    buckets = 16
    while len(given) > buckets * 3 // 4:
        buckets *= 2
    hashes = java_string_hash(pa.array([name.decode() for name in given])).astype("uint32")
    places = (hashes ^ hashes >> 16) % buckets
    return [given[at] for at in places.argsort(kind="stable")]


@dataclass(frozen=True)
class Form:
    """How one writer's files look. The defaults are HBase's ways."""

    name: str
    # data blocks
    overfills_blocks: bool = True
    """A block takes the record that reaches its size; otherwise none that would pass it."""
    java_deflate: bool = True
    """GZ in zlib's bytes."""
    checksum: Checksum = Checksum.CRC32C
    chunk_bytes: tuple[int, ...] = _HBASE_CHUNK_BYTES
    """Bytes of one checksum: the first that no reader stumbles over, or else the last."""
    links_blocks: bool = True
    """Blocks name the one of their kind before them; otherwise data blocks name themselves."""
    # index
    key_suffix: bytes = KEY_SUFFIX
    """What follows the row in index keys and LASTKEY."""
    shortens_keys: bool = False
    """An index key is the shortest one between two blocks, not the first of its block."""
    has_levels: bool = True
    # FILE_INFO
    fact_order: Callable[[Iterable[bytes]], list[bytes]] = _byte_order
    create_time_ms: int = 0
    key_overhead: int = 2 + len(KEY_SUFFIX)
    """Counted into AVG_KEY_LEN beside the row."""
    names_no_last_key: bool = False
    """LASTKEY is there in a file without entries, and empty."""
    has_hints: bool = False
    """Record sizes and, if asked for, a filter."""
    # trailer
    minor: int = 3
    comparator: str = COMPARATOR
    sums_indexes: bool = True
    """Fields 3 and 4 are the sums of indexes and of all; otherwise that of data, and none."""
    last_block_of_none: int = -1
    """Field 10 in a file without entries."""


OURS = Form(
    "ours",
    overfills_blocks=False,
    java_deflate=False,
    chunk_bytes=CHUNK_BYTES,
    has_hints=True,
)

HUDI = Form(
    "hudi",
    overfills_blocks=False,
    checksum=Checksum.NULL,
    links_blocks=False,
    key_suffix=b"",
    has_levels=False,
    fact_order=java_order,
    key_overhead=0,
    names_no_last_key=True,
    minor=0,
    comparator="org.apache.hudi.io.storage.HoodieHBaseKVComparator",
    sums_indexes=False,
    last_block_of_none=0,
)

HBASE = Form("hbase", shortens_keys=True)
