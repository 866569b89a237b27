"""Upkeep: writers merge small index files now and then, so that a table of many small commits stays
as fast as one of few.

Every commit leaves an HFile and a page for each metadata partition. Where more than
`upkeep_files` of them have come together, the writer of about every fourth version merges the
newest small files and folds the pages, in a version of its own behind its commit. A merge takes
the next older file in while that is no larger than twice what it has, so that a byte is merged
again only when what it lies in has about doubled; and no more than MOST_BYTES, which bounds what a
commit can be made to wait for. Larger merges are left to operators (`compact`).

The same version archives what Hudi's timeline has beyond `timeline_commits`, but not past an
instant that was withdrawn (only `clean` looks whether a late hand has left a file of it), nor past
that of a writer under way.

It never speaks up: the commit is acknowledged before, and whatever goes wrong, a race that is
lost, a store that does not answer, leaves the table as it was, for the next writer to keep up.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from metatable.compaction.merging.compact import Compact
from metatable.compaction.service import NothingDue
from metatable.data.hoodie.timeline import Timeline, completed_of
from metatable.engine.protocol import Engine
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.known_commits import CommitSum
from metatable.metadata.commits.page_updates import FoldPages
from metatable.metadata.commits.retention import (
    Archive,
    NoneBelow,
    archivable,
    archived_by,
    archiving,
    first_part,
)
from metatable.metadata.commits.steps import settle
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.leases import leased
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.errors import ConflictError
from metatable.storage.store import Store

__all__ = ["MOST_BYTES", "due", "keep_up", "looks_after"]

MOST_BYTES = 32 << 20
"""What is merged at most for one range of buckets of a metadata partition: a second or so."""

EVERY = 4
"""Versions of which one looks whether something is due."""

_GOLDEN, _ROUND = 0x9E3779B9, 1 << 32
"""Multiples of the golden part of a round lie spread over it, however far apart these are."""

LEAST_FILES = 4
"""Fewer are not worth a version's writing; their pages are."""

SMALL_PAGE_REFS = 64
"""A page of more references was folded before, or came from a large commit."""

MOST_ARCHIVED = 16
"""Commits beyond `timeline_commits` are let come together: each is taken off by four requests, of
which one is waited for."""

_log = logging.getLogger("metatable.compaction")


def looks_after(version: int) -> bool:
    """Whether it falls to the writer of this version to look what is due: of many writers at
    once one does, and the others go without a request. Commits between which services make
    versions, however regularly, are met as often: of even numbers alone none would be odd."""
    return version * _GOLDEN % _ROUND < _ROUND // EVERY


def due(manifest: Manifest) -> tuple[str, ...]:
    """Metadata partitions that have enough small pages, as the version's root tells."""
    bound = manifest.options.upkeep_files
    if not bound:
        return ()
    small = {
        name: sum(page.ref_count < SMALL_PAGE_REFS for page in pages)
        for name, pages in manifest.pages.items()
    }
    return tuple(sorted(name for name, count in small.items() if count > bound))


def keep_up(store: Store, engine: Engine[Any]) -> int | None:
    """Do what is due on the newest version; the version that was made, or None."""
    store = store.counting(engine.counters)
    try:
        newest = load_newest(store)
        if newest is None or not (due(newest) or archives(newest)):
            return None
        settle(store, newest)
        _log.debug("upkeep on version %d", newest.version)
        with Transaction(store, newest) as transaction:
            return _kept_up(transaction, engine)
    except ConflictError as lost:
        _log.debug("upkeep was done by another writer: %s", lost)
    except Exception as error:  # the commit that was asked for is there
        _log.warning("upkeep is left to the next writer: %s", error)
    return None


def archives(manifest: Manifest) -> bool:
    """Whether enough has come together on Hudi's timeline, as the version's root tells."""
    options, held = manifest.options, CommitSum.decode(manifest.commits)
    if not (options.upkeep_files and options.timeline_commits) or held is None:
        return False
    return held.count >= options.timeline_commits + MOST_ARCHIVED


def _kept_up(transaction: Transaction, engine: Engine[Any]) -> int | None:
    """The version that does what is due, None where nothing is."""
    border, instants = _border(transaction)
    partitions = due(transaction.base)
    if not border and not partitions:
        return None
    owner = transaction.serve("compact")
    change = _folded(transaction, engine, partitions, owner)
    if border:
        change = replace(
            change,
            requires=(*change.requires, NoneBelow(border)),
            updates=(*change.updates, Archive(border, instants)),
            steps=(archiving(border),),
        )
    return transaction.publish(change).version


def _border(transaction: Transaction) -> tuple[str, tuple[str, ...]]:
    """Where Hudi's timeline is to begin, "" if it stays; the data commits that leave it."""
    base = transaction.base
    if not archives(base):
        return "", ()
    timeline = Timeline(transaction.store).load()
    writers = leased(transaction.store)  # no file of theirs is live
    if writers & completed_of(timeline):  # who may delete nothing leaves one, and cannot archive
        return "", ()
    ends = {*base.withdrawn, *base.held, *writers}
    border = first_part(timeline, archivable(timeline, base.options.timeline_commits, ends))
    return border, archived_by(timeline, border)


def _folded(
    transaction: Transaction, engine: Engine[Any], partitions: tuple[str, ...], owner: Owner
) -> Change:
    service = Compact(partitions=partitions, least_files=LEAST_FILES, most_bytes=MOST_BYTES)
    plan = service.plan(transaction.snapshot) if partitions else NothingDue("no files")
    if isinstance(plan, NothingDue):
        return Change(operation=owner.operation, updates=(FoldPages(partitions),))
    change = service.work(engine, transaction.snapshot, plan, owner).change
    merged = {task.partition for task in plan.tasks}
    left = FoldPages(tuple(name for name in partitions if name not in merged))
    return replace(change, updates=(*change.updates, left))
