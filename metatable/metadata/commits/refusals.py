"""Refusals: tables that we must not touch, told by their properties and by Hudi's timeline.

The properties tell who keeps the table, and how: an older Hudi, a newer one, or one with a metadata
table of its own. The timeline tells who has committed to it: what no version of ours knows, another
engine has written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from metatable.data.config.options import Options
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.hoodie.timeline import REPLACING, Instant, Timeline, completed_path
from metatable.data.hoodie.undo_metadata import UNDOING
from metatable.metadata.commits.known_commits import foreign_commits
from metatable.metadata.commits.lost_savepoints import is_lost, own_bodies, unpinned
from metatable.metadata.commits.other_formats import other_format
from metatable.metadata.commits.steps import drop_savepoint, staged_path
from metatable.metadata.manifests.manifest import Manifest, version_path
from metatable.storage.cache import cached
from metatable.storage.errors import CorruptError, MetatableError, NotFoundError, UpgradeError
from metatable.storage.store import Store

__all__ = ["check_properties", "check_timeline", "no_table"]


def check_properties(store: Store) -> TableProperties:
    """The table's properties, if it is one that we may read and write.

    Raises NotFoundError where there is no table, UpgradeError for one that is not for us.
    """
    raw = store.get(PROPERTIES_PATH)
    if raw is None:
        raise no_table(store)
    properties = cached(
        ("properties", raw),
        lambda: TableProperties.decode(raw, PROPERTIES_PATH),
        lambda _: 10 * len(raw),
    )
    if not properties.version:
        raise CorruptError(
            "hoodie.properties tells no table version: it is empty or damaged",
            path=PROPERTIES_PATH,
            expected="hoodie.table.version=6",
            found=properties.values.get("hoodie.table.version", "")[:40],
        )
    if properties.version < 6:
        raise UpgradeError(
            "an older Hudi keeps this table: metatable writes table version 6. Upgrade it with Hudi"
            " 0.14 or 0.15",
            path=PROPERTIES_PATH,
            expected="version 6, timeline layout 1",
            found=f"version {properties.version}, timeline layout {properties.layout}",
        )
    if properties.version != 6 or properties.layout != 1:
        raise UpgradeError(
            "Hudi has upgraded this table: metatable writes table version 6. Downgrade it with"
            " Hudi's own tools, and write with hoodie.write.auto.upgrade=false",
            path=PROPERTIES_PATH,
            expected="version 6, timeline layout 1",
            found=f"version {properties.version}, timeline layout {properties.layout}",
        )
    if properties.metadata_partitions:
        raise UpgradeError(
            "Hudi keeps a metadata table of its own here, which our commits would leave behind."
            " One Spark write with hoodie.metadata.enable=false removes it",
            path=PROPERTIES_PATH,
            found=",".join(properties.metadata_partitions),
        )
    return properties


def check_timeline(store: Store, base: Manifest, timeline: Collection[Instant]) -> None:
    """Hold Hudi's timeline, as it was listed, against the newest version.

    What a late hand has put there goes again. Raises UpgradeError where another engine has
    committed, because our index would not know its rows; CorruptError where a commit of ours has no
    version any more.
    """
    done = _without_late(store, base, timeline)
    foreign = foreign_commits(store, base, done.keys())
    if not foreign:
        return
    if store.size(staged_path(foreign[0])) is not None:
        raise CorruptError(
            "a version is lost: its commit is on the timeline, and no root names it. Restore the"
            " file, or take the commit off the timeline with the data files of its instant",
            path=version_path(base.version + 1),
            instant=foreign[0],
        )
    raise UpgradeError(
        "another writer has committed to this table, and the index does not hold its rows."
        f" {_way_out(base.options, {done[one] for one in foreign})}",
        path=completed_path(foreign[0], done[foreign[0]]),
        instant=foreign[0],
        newest_of_ours=base.latest_instant,
    )


def _way_out(options: Options, actions: set[str]) -> str:
    """What can be done about another writer's commits. `repair` does not undo what has replaced
    groups; tables with logs are not adopted, and rings are lost by it."""
    keeps = "create one from its rows"
    if not (options.has_logs or options.resizes):
        keeps = f"delete the folder .hoodie/metatable and adopt the table again, or {keeps}"
    if not actions.isdisjoint(REPLACING):
        return keeps.capitalize()
    undone = "`repair` undoes the commit, if the files from before it are there"
    return f"{undone}. To keep its rows, {keeps}"


def _without_late(store: Store, base: Manifest, timeline: Collection[Instant]) -> Mapping[str, str]:
    """Take off the timeline what late hands have put there: a completed commit of a withdrawn
    instant, or an archived one; a record of an undoing that is archived; a savepoint of ours that
    was dropped. Returns the actions of the data commits that are left, by instant."""
    for instant, body in own_bodies(store, unpinned(base, timeline)):
        if not is_lost(store, base, instant, body):  # else it is kept, or the base is old
            drop_savepoint(store, instant)
    for one in timeline:
        if one.action in UNDOING and one.time < base.archived:
            Timeline(store).withdraw(one.time, action=one.action)
    done = {one.time: one.action for one in timeline if one.changes_data}
    withdrawn = frozenset(base.withdrawn)
    for instant in sorted(one for one in done if one in withdrawn or one < base.archived):
        Timeline(store).withdraw(instant, ("completed",), done.pop(instant))
    return done


def no_table(store: Store) -> NotFoundError:
    """The error that is raised where no table is, or one of another format."""
    other = None
    with suppress(MetatableError):  # that there is no table stays true
        other = other_format(store)
    facts = {} if other is None else {"found": other}
    return NotFoundError(
        "there is no table here", path=store.uri, expected=PROPERTIES_PATH, **facts
    )
