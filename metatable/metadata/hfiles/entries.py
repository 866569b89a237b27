"""Entries: looks up and reads the entries of one version, however many HFiles they lie in.

A lookup asks the HFiles that cover a key's place from the newest to the oldest and keeps
the first answer: newest wins by sequence, a tombstone hides what is older. `since(version)`
is the same view over what was published after a version: what a commit must look at to
see whether others got in its way.

They pickle as (address, version, nonce), and a bucket function that is a user's; workers reopen
them through their process's cache, so a task that sees many batches reads the manifest once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.bucket_functions import carried, taken_along
from metatable.data.columns.schema_text import parsed_schema
from metatable.data.config.options import Options
from metatable.metadata.hfiles.asking import Answers, apart, ask, asked_of
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.pages import HFileRef, all_refs
from metatable.metadata.manifests.versions import is_undone, load_newest, load_version, moved
from metatable.storage.arrays import Int32s
from metatable.storage.byte_columns import joined
from metatable.storage.cache import cached
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, StaleError
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading.passes import ALONE_BYTES
from metatable.storage.ordering import as_binary
from metatable.storage.sorted_merge import merge_newest_first
from metatable.storage.store import Store
from metatable.storage.threads import in_order

__all__ = ["Entries", "Found"]

R = TypeVar("R")

WARM_FILES = 48
"""HFiles that are opened before it is known which of them have the keys' places."""


SMALL_ENTRIES = 2000
"""Entries of a partition that are read sooner all at once than some by some."""


@dataclass(frozen=True, slots=True)
class Found:
    """Answers in the order of the questions.

    `values`: stored bytes, null where the key is absent or deleted.
    `sources`: int32, which of `refs` answered (tombstones included), -1 where none did.
    """

    values: pa.Array
    sources: Int32s
    refs: tuple[HFileRef, ...]


class Entries:
    """The metadata table at one version: a consistent view of what is stored by key."""

    def __init__(
        self, store: Store, manifest: Manifest, after: int = 0, columns: str | None = None
    ) -> None:
        self.store = store
        self.manifest = manifest
        self._after = after
        self._columns = columns
        self.table_schema = parsed_schema(columns or manifest.schema, manifest.path)
        self.schema: pa.Schema = self.table_schema.arrow

    @property
    def version(self) -> int:
        return self.manifest.version

    @property
    def options(self) -> Options:
        return self.manifest.options

    @property
    def identity(self) -> tuple[str, int, str, int]:
        """Names this content for caches: equal identities have equal entries."""
        return self.store.uri, self.version, self.manifest.nonce, self._after

    @property
    def era(self) -> tuple[str, tuple[int, int], int]:
        """Names for caches the versions in which entries of a file that stays are not made anew."""
        return self.store.uri, self.options.key_salts, self.manifest.restored_at

    def counting(self, counters: Counters) -> Self:
        """The same view, counting what it reads into `counters`."""
        return type(self)(self.store.counting(counters), self.manifest, self._after, self._columns)

    def with_columns(self, columns: str) -> Self:
        """The same view with the columns that the table is to have from the next version on."""
        return type(self)(self.store, self.manifest, self._after, columns)

    def holding(self) -> Self:
        """The same view, for one operation: it reads no small file twice."""
        return type(self)(self.store.holding(), self.manifest, self._after)

    def since(self, version: int) -> Self:
        """Only what was published after `version`."""
        return type(self)(self.store, self.manifest, max(version, self._after), self._columns)

    def whole(self) -> Self:
        """All of this version, whatever this is a view of."""
        return type(self)(self.store, self.manifest, columns=self._columns) if self._after else self

    def base(self) -> Self | None:
        """The version that `since` named, whole; None for a view of everything."""
        if not self._after:
            return None
        return type(self)(self.store, load_version(self.store, self._after, self.manifest.oldest))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Files may go while they are read, because their commit is undone or their version is not
        kept any more: that is no damage.

        Raises StaleError then.
        """
        try:
            yield
        except CorruptError as error:
            newest = load_newest(self.store)
            if newest is None or not newest.is_of(self.manifest):
                raise moved(self.store, self.version) from error
            if not self._has_gone(newest):
                raise
            raise StaleError(
                "a commit of this version was undone, or its index mended or changed, meanwhile:"
                " try again"
                if newest.keeps(self.version)
                else "this version is not kept any more: try again",
                path=self.store.uri,
                version=self.version,
                newest=newest.version,
            ) from error

    def check_kept(self) -> None:
        """Raises CorruptError where this version was undone or is not kept any more: whoever sees
        to a store that is not ours may have dropped what it needs. In `reading` that is a
        StaleError, in a transaction a ConflictError."""
        newest = load_newest(self.store)
        if newest is None or newest.nonce == self.manifest.nonce:
            return
        if self._has_gone(newest):
            raise CorruptError(
                "this version was undone, or is not kept any more, and so are its entries in a"
                " store of others: open the table again",
                path=self.store.uri,
                version=self.version,
                newest=newest.version,
            )

    def _has_gone(self, newest: Manifest) -> bool:
        """Whether files of this version may be deleted by now."""
        return not newest.keeps(self.version) or is_undone(self.store, newest, self.version)

    def warm(self, *partitions: str) -> None:
        """Fetch what lookups in these partitions begin with: their pages together, then the ends of
        their HFiles together, where they are not many. Near by, whoever asks first fetches."""
        if not self.store.is_distant:
            return
        calls = [partial(self.refs, name) for name in partitions]
        refs = [ref for found in self.store.together(calls) for ref in found]
        if len(refs) <= WARM_FILES:
            self._open(refs)

    def _open(self, refs: Sequence[HFileRef]) -> None:
        """Open HFiles that will be asked, together, where the store is far away."""
        if self.store.is_distant:
            self.store.together([partial(self.reader, ref) for ref in refs])

    def refs(self, partition: str) -> list[HFileRef]:
        """The HFiles of a partition, newest first."""
        pages = self.manifest.pages.get(partition, ())
        recent = [page for page in pages if page.newest_sequence > self._after]
        refs = all_refs(self.store, recent)
        return [ref for ref in refs if ref.sequence > self._after]

    def is_small(self, partition: str) -> bool:
        """Whether all of a partition is read as soon as a part of it: of a whole version."""
        if self._after:
            return False
        return sum(ref.entry_count for ref in self.refs(partition)) <= SMALL_ENTRIES

    def placed(self, partition: MetadataPartition) -> list[HFileRef]:
        """The HFiles of a partition, newest first, with `lo` and `hi` as places whatever the format
        of their page."""
        space, count = partition.space, partition.bucket_count
        return [ref.placed(space, count) for ref in self.refs(partition.name)]

    def reader(self, ref: HFileRef) -> HFileReader:
        """The HFile, opened; its ends are kept in the process's cache."""
        return HFileReader.open(self.store, ref.path, ref.size_bytes)

    def lookup(self, partition: MetadataPartition, keys: pa.Array) -> Found:
        """The stored value of each key (binary, any order, duplicates allowed)."""
        refs, parts = self.ask(partition, keys, lambda answers: answers)
        rows = np.concatenate([np.zeros(0, np.int64), *(part.rows for part in parts)])
        back = np.empty(len(rows), dtype=np.int64)
        back[rows] = np.arange(len(rows))
        values = joined([pa.nulls(0, pa.binary()), *(part.values for part in parts)])
        sources = np.concatenate([np.zeros(0, np.int32), *(part.sources for part in parts)])
        return Found(_hide(partition, values.take(pa.array(back))), sources[back], refs)

    def ask(
        self, partition: MetadataPartition, keys: pa.Array, work: Callable[[Answers], R]
    ) -> tuple[tuple[HFileRef, ...], list[R]]:
        """(HFiles of the partition, newest first, what `work` makes of what they answer). Each key
        is in the answers of one call, of which some are made beside each other."""
        refs = tuple(self.placed(partition))
        if self.store.is_distant:
            self._open(asked_of(partition, refs, keys))
        return refs, list(ask(partition, refs, keys, self.reader, work))

    def values(self, partition: MetadataPartition, keys: pa.Array) -> pa.Array:
        """The stored value of each key (binary), null where it is absent or deleted. A small
        partition is read whole, once per version, and kept by the process: that is sooner than to
        ask each of its HFiles for every few keys."""
        if not self.is_small(partition.name):
            return self.lookup(partition, keys).values
        held = cached(
            ("entries", partition.name, self.identity),
            lambda: self.scan(partition).read_all().combine_chunks(),
            lambda table: table.nbytes + 500,
        )
        return held["value"].take(pc.index_in(keys, value_set=held["key"])).combine_chunks()

    def pieces(
        self,
        partition: MetadataPartition,
        made: Callable[[pa.RecordBatch], R],
        prefix: bytes = b"",
        joined: Callable[[list[R]], R] | None = None,
    ) -> Iterator[R]:
        """What `made` makes of live entries (key, value), those whose key begins with `prefix`:
        piece by piece on a few threads, in no order of keys. HFiles whose places are apart have no
        key in common, so nothing is merged where one pass has written them; what was made of one is
        then `joined`, so that small pieces take their memory from those before."""
        refs = self.placed(partition)
        self._open(refs)
        groups = apart(refs)

        def read(few: Sequence[HFileRef]) -> list[R]:
            found = [*map(made, self._live(partition, few, prefix))]
            found = [joined(found)] if joined and len(found) > 1 else found
            pa.default_memory_pool().release_unused()  # what it took of memory stays this thread's
            return found

        workers = 1 if sum(ref.size_bytes for ref in refs) <= ALONE_BYTES else None
        if len(groups) == 1:
            yield from in_order(made, self._live(partition, groups[0], prefix), workers)
        else:
            yield from chain.from_iterable(in_order(read, groups, workers))

    def _live(
        self, partition: MetadataPartition, refs: Sequence[HFileRef], prefix: bytes
    ) -> Iterator[pa.RecordBatch]:
        """Live entries of some HFiles, newest first, by key, some at a time."""
        streams = [self._stream(partition, ref, prefix) for ref in refs]
        for keys, values, _ in merge_newest_first(streams):
            dead = partition.tombstones(values)
            pair = [as_binary(keys), as_binary(values)]
            batch = pa.RecordBatch.from_arrays(pair, schema=_PAIRS)
            yield batch.filter(pa.array(~dead)) if dead.any() else batch

    def hold(self, partition: MetadataPartition, prefixes: Sequence[bytes]) -> None:
        """Fetch together, from afar, what `pieces` of these prefixes would fetch one prefix after
        the other, as far as there is room for it."""
        if len(prefixes) < 2 or not self.store.is_distant:
            return
        refs = self.placed(partition)
        self._open(refs)
        self.store.together([partial(self.reader(ref).hold, prefixes) for ref in refs])

    def scan(self, partition: MetadataPartition) -> pa.RecordBatchReader:
        """All live entries (key, value) by key; streams, holding a few blocks per file."""
        refs = self.placed(partition)
        self._open(refs)
        return pa.RecordBatchReader.from_batches(_PAIRS, self._live(partition, refs, b""))

    def _stream(
        self, partition: MetadataPartition, ref: HFileRef, prefix: bytes
    ) -> Iterator[pa.RecordBatch]:
        reader = self.reader(ref)
        for batch in reader.scan_prefix(prefix) if prefix else reader.scan():
            yield partition.live(batch, ref.lo, ref.hi)

    def __getstate__(self) -> dict[str, Any]:
        name = self.options.record_bucket_function
        return {
            "store": self.store,
            "identity": self.identity,
            "function": (name, carried(name)),
            "columns": self._columns,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        store, (_, version, nonce, after) = state["store"], state["identity"]
        taken_along(*state["function"])
        manifest = cached(
            ("manifest", store.uri, version, nonce),
            lambda: _reload(store, version, nonce),
            lambda _: 20_000,
        )
        self.__init__(store, manifest, after, state["columns"])  # type: ignore[misc]


_PAIRS = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])


def _reload(store: Store, version: int, nonce: str) -> Manifest:
    manifest = load_version(store, version, 0)
    if manifest.nonce != nonce:  # a void one, where only a savepoint keeps the version by now
        with suppress(StaleError):
            manifest = load_version(store, version, version + 1)
    if manifest.nonce != nonce:
        raise StaleError("table was replaced by another one", path=store.uri, version=version)
    return manifest


def _hide(partition: MetadataPartition, values: pa.Array) -> pa.Array:
    dead = partition.tombstones(values)
    if not dead.any():
        return values
    kept = np.where(dead, -1, np.arange(len(values)))
    return values.take(pa.array(kept, mask=dead))
