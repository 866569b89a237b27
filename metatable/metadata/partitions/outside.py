"""Partition `outside`: record keys in a key-value store, believed by their commits.

Where each key lives is put into a store that is not ours, before the version is. A row there has
a cell for each commit that has put one:

    key     as in the record index: 16 bytes of hash, or the key's text
    name    of the commit: `<instant>-<nonce of its lease>`; of a service (an index made anew)
            `<greatest instant before it>.<version before it>-<nonce>`
    value   JSON [partition path, file id]; empty: deleted

Cells are never changed: so what a commit puts hides nothing that was there before. What is believed
stands in HFiles of this partition, which are published with the version:

    key     the name of a commit; `latest`
    value   one byte; the name of the commit that was published last

At any version the cell counts that has the greatest name among those believed there. One key is
never put by two commits that do not know of each other, of which one would have lost the race for
a slice or an absent key, also where that was deleted again; and who knows of another one has a
greater instant. So a writer that died, a lost race and what was undone are not looked for: nobody
believes them. Two writers with one instant have two nonces.

    seal    a row for each commit, `ff ff ff ff` and its name, empty: by that of the last one a
            store that was emptied, restored, or is another one, is told from one without keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.bucket_functions import HASH_SPACE, place_by_text
from metatable.data.config.options import Options
from metatable.metadata.hfiles.entries import Entries
from metatable.metadata.hfiles.partition import ENTRIES, MetadataPartition, Rewriter, Storer
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.key_values import Client, client_of
from metatable.storage.ordering import as_binary
from metatable.storage.sinks import Sinks

__all__ = [
    "DELETED",
    "OutsidePartition",
    "client_for",
    "latest_commit",
    "published",
    "seal_key",
]

DELETED = b""
"""The value of a cell that says that its key is deleted."""
LATEST = b"latest"
"""The key of the mark that names the last commit which has put cells."""
SEAL = b"\xff\xff\xff\xff"
"""What keys of seals begin with. No others are like them: texts are UTF-8, hashes have 16 bytes."""
MARK = b"\x01"
"""The value of the mark of a commit whose cells count."""


class OutsidePartition(RecordIndexPartition):
    """Entries go out; what is kept as a file are marks."""

    name: ClassVar[str] = "outside"
    default_buckets: ClassVar[int] = 16
    """The most tasks that put the entries of a commit."""

    @property
    def space(self) -> int:
        return HASH_SPACE

    def places(self, keys: pa.Array) -> Int64s:
        return place_by_text(keys)

    def key_range(self, lo: int, hi: int) -> None:
        return None

    @property
    def takes_pieces(self) -> bool:
        return True

    def storer(self) -> Storer:
        return MetadataPartition.storer(self)

    def rewriter(self, readers: Sequence[HFileReader]) -> Rewriter:
        return MetadataPartition.rewriter(self, readers)

    def store_pieces(
        self, store: Sinks, lo: int, hi: int, pieces: Iterator[pa.Table], owner: Owner
    ) -> HFileRef | None:
        """Put the entries. Of the first places, that a commit with entries always has, comes the
        file with its mark."""
        client, name = client_for(self.options), commit_name(owner)
        for piece in pieces:
            keys = as_binary(piece["key"].combine_chunks())
            client.put_many(keys, name, _values(piece["value"]), store.counters)
        if lo:
            return None
        seal = pa.array([seal_key(name)], pa.binary())
        client.put_many(seal, name, pa.array([DELETED]), store.counters)
        marks = pa.array([name, LATEST], pa.binary())
        columns = [pa.array(self.places(marks)), marks, pa.array([MARK, name])]
        table = pa.table(columns, schema=ENTRIES)
        return super().store_pieces(store, 0, self.space, iter([table]), owner)


def commit_name(owner: Owner) -> bytes:
    """What the cells of a commit are called: of any two that put a key the later has the greater
    name."""
    return (owner.name if owner.instant else f"{owner.after}-{owner.nonce}").encode()


def seal_key(name: bytes) -> bytes:
    """The row that says that a commit has been here."""
    return SEAL + name


def client_for(options: Options) -> Client:
    """A client of the key-value store that a table's options name."""
    return client_of(options.hbase_address, options.hbase_table, options.hbase_requests_per_second)


def published(entries: Entries, names: pa.Array) -> Bools:
    """Which of these commits (binary) have put entries that count at this version."""
    found = entries.values(OutsidePartition(entries.options), names)
    return np.asarray(found.is_valid().to_numpy(zero_copy_only=False))


def latest_commit(entries: Entries) -> bytes | None:
    """The last of them; None: there is none."""
    asked = pa.array([LATEST], pa.binary())
    found: bytes | None = entries.values(OutsidePartition(entries.options), asked)[0].as_py()
    return found


def _values(column: pa.ChunkedArray) -> pa.Array:
    """Locations as they are put; null: deleted."""
    whole = column.unify_dictionaries().combine_chunks()
    coded = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    texts = coded.dictionary.cast(pa.binary()).take(coded.indices)
    return pc.fill_null(texts, DELETED)
