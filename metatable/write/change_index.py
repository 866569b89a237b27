"""Another index for a table of ours: one new version, whose metadata has the partitions of the new
index and no longer those of the old. No data file is touched; `files` and `column_stats` stay.

Older versions keep the index that they had, and answer by it until they are cleaned; so going
back behind the change (rollback, restore) goes back to it, too. Whoever began before the change
starts again: what he would publish are entries of the index that was.

Entries are made of the data files of one version. A commit that comes meanwhile takes others of
their places: then all is done again, a few times; a table that is written without a pause keeps
its index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metatable.data.config.option_checks import check_types
from metatable.data.config.options import Options
from metatable.engine.protocol import Engine
from metatable.index import create_index
from metatable.index.build import build_hfiles
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import RowsUnchanged
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.commits.updates import ChangeOptions
from metatable.metadata.hfiles.entry_files import drop_runs
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write.adopt import OPERATION, enough_buckets
from metatable.write.attempts import attempts
from metatable.write.stored_entries import runs_of
from metatable.write.stored_files import StoredFiles

__all__ = ["change_index"]

OF_THE_INDEX = (
    "record_key_form",
    "record_bucket_function",
    "buckets",
    "bucket_engine",
    "bucket_count",
    "filter_kind",
    "filter_fpp",
    "hbase_table",
    "hbase_address",
    "hbase_requests_per_second",
    "new_groups",
)
"""Options that may be others with another index."""

RETRIES = 5


def change_index(
    store: Store, engine: Engine[Any], index: str, given: Mapping[str, Any]
) -> Manifest:
    """The version with this index, which is the newest one where it has it already.

    Raises UsageError, ConflictError after lost races.
    """

    def attempt(_: int) -> Manifest:
        with Transaction.begin(store) as transaction:
            return _changed(transaction, engine, index, given)

    return attempts(OPERATION, RETRIES, attempt)


def _changed(
    transaction: Transaction, engine: Engine[Any], index: str, given: Mapping[str, Any]
) -> Manifest:
    base, snapshot = transaction.base, transaction.snapshot
    options = _other_options(snapshot, index, given)
    if options == base.options:
        return base
    if base.compactions:  # who goes back to where it waited needs its files by the index of then
        raise UsageError(
            "something is scheduled: carry it out, or take it back, before the index changes",
            index=index,
            found=sorted(base.compactions),
        )
    store = snapshot.store
    other = create_index(options)
    if not other.indexes_logs and snapshot.slices().alone.any():
        raise UsageError(
            "file groups are logs alone, whose keys this index does not find: compact the logs"
            " first",
            index=index,
        )
    view = Snapshot(store, replace(base, options=options))  # for what its index asks of it
    made = StoredFiles.of(view, other, other.partitions, {}, foreign=False)
    owner = transaction.serve(OPERATION)
    scratch = engine.scratch(store, owner.name)
    reads = bool(other.partitions) or made.placement is not None
    slices = [one for one in snapshot.slices() if reads or (made.asks_footers and one.logs)]
    runs = runs_of(engine, made, scratch, slices)
    options = enough_buckets(options, other.partitions, runs, given.get("buckets", {}))
    partitions = create_index(options).partitions
    refs, files = build_hfiles(engine, store, scratch, partitions, runs, owner)
    drop_runs(scratch, runs)
    change = Change(
        operation=OPERATION,
        requires=(RowsUnchanged(),),
        updates=(ChangeOptions(options, _dropped(base, options, partitions)), AddFiles(refs)),
        summary={"files": len(slices)},
        files=files,
    )
    return transaction.publish(change)


def _dropped(
    base: Manifest, options: Options, partitions: tuple[MetadataPartition, ...]
) -> tuple[str, ...]:
    """Metadata partitions that go, those among them that are made anew."""
    every = {one.name for one in partitions_of(options, create_index(options))}
    anew = {one.name for one in partitions}
    return tuple(sorted(name for name in base.pages if name in anew or name not in every))


def _other_options(snapshot: Snapshot, index: str, given: Mapping[str, Any]) -> Options:
    """The table's options with another index, checked as for a new table. Raises UsageError."""
    held = snapshot.options
    check_types(given)
    words = {one.name: one for one in dataclasses.fields(held)}
    for word, value in given.items():
        if word not in OF_THE_INDEX and (word not in words or getattr(held, word) != value):
            raise UsageError(
                "this option does not change with the index",
                option=word,
                expected=list(OF_THE_INDEX),
            )
    set_before = {
        word: getattr(held, word)
        for word, one in words.items()
        if word not in _SET_APART and getattr(held, word) != one.default
    }
    buckets = {**held.buckets, **given.get("buckets", {})}
    made = Options.create(
        held.name,
        snapshot.schema.names,
        key=held.key,
        partition_by=held.partition_by,
        ordering=held.ordering,
        index=index,
        options={**set_before, **given, "key_scope": held.key_scope, "buckets": buckets},
    )
    kept = partitions_of(made, create_index(made))
    counts = {one.name: one.bucket_count for one in kept} | buckets
    _check_buckets(
        held, given.get("buckets", {}), [one.name for one in create_index(made).partitions]
    )
    chosen = {word: getattr(made, word) for word in OF_THE_INDEX}
    return replace(held, index=index, **(chosen | {"buckets": counts}))


_SET_APART = ("name", "key", "partition_by", "ordering", "index", "key_scope", "buckets", "unknown")


def _check_buckets(held: Options, given: Mapping[str, int], anew: list[str]) -> None:
    for name, count in given.items():
        if name not in anew and held.buckets.get(name) != count:
            raise UsageError(
                "buckets of a metadata partition that stays as it is",
                found=name,
                expected=anew,
            )
