"""What another writer's Hudi table is: which slices are live, what its properties and commits say.

By Hudi's own rules for version 6, copy-on-write. A file counts as committed if its instant is a
completed commit on the timeline, or older than the first one (history that was archived). A group
is live with its latest committed slice, unless a completed replacecommit has replaced it. What is
neither committed nor older was left by a writer that failed.

Whatever cannot be told for sure is refused: an index of the wrong rows is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from metatable.data.columns.avro_schema import from_avro, in_avro
from metatable.data.columns.schema_text import TableSchema
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.commit_metadata import COLUMNS, SCHEMA, CommitMetadata
from metatable.data.hoodie.operations import SERVING
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.hoodie.timeline import REPLACING, Instant, Timeline, completed_path, is_moment
from metatable.storage.errors import ConflictError, CorruptError, UpgradeError
from metatable.storage.listing import Listed
from metatable.storage.portions import in_order_far
from metatable.storage.store import Store

__all__ = [
    "LiveSlices",
    "OtherTimeline",
    "Written",
    "columns_of_ours",
    "live_slices",
    "schema_of",
    "written_as",
]

GENERATORS = ("Simple", "Complex", "Nonpartitioned", "GlobalDelete")
_BUCKETS = "hoodie.bucket.index.num.buckets"
_ORDERING = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
"""What Hudi 1.x calls the ordering columns, also in tables of version 6; and before."""
_MODELS = "org.apache.hudi.common.model."
_ORDER_DECIDES = {
    "hoodie.compaction.payload.class": {
        f"{_MODELS}DefaultHoodieRecordPayload": True,
        f"{_MODELS}EventTimeAvroPayload": True,
        f"{_MODELS}OverwriteWithLatestAvroPayload": False,
    },
    "hoodie.record.merge.mode": {"EVENT_TIME_ORDERING": True, "COMMIT_TIME_ORDERING": False},
}
"""Whether the greater value in the ordering column wins against what is stored, or whatever comes
later: by the first of these that is told. 0.15.0 tells neither of a copy-on-write table; then the
greater one does, for so nothing that is newer is lost."""
_HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
_TYPES = ("SIMPLE", "COMPLEX", "NON_PARTITION", "GLOBAL_DELETE")

_MUST_BE = {
    "hoodie.table.type": ("COPY_ON_WRITE", "only copy-on-write tables are adopted"),
    "hoodie.populate.meta.fields": ("true", "its files lack record keys"),
    "hoodie.datasource.write.partitionpath.urlencode": ("false", "partition paths are escaped"),
    "hoodie.datasource.write.drop.partition.columns": (
        "false",
        "its files lack the partition columns",
    ),
    "hoodie.table.base.file.format": ("PARQUET", "its files are not Parquet"),
    "hoodie.partition.metafile.use.base.format": (
        "false",
        "what tells its partitions are Parquet files, which we do not write",
    ),
    "hoodie.table.cdc.enabled": ("false", "its readers expect change logs, which we do not write"),
}
"""Where another value stands, what is wrong with it. Where nothing stands, all is well."""


@dataclass(frozen=True, slots=True)
class Written:
    """How the table's rows are written, as its properties say."""

    name: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: str | None
    hive_style: bool
    buckets: int | None
    """Into how many file groups a partition is cut, in a table whose keys tell theirs; else None.
    """


def written_as(properties: TableProperties) -> Written:
    """How rows are written, by a table's properties. Raises UpgradeError, naming the property, for
    what our writers would not go on with."""
    values = properties.values
    for name, (expected, wrong) in _MUST_BE.items():
        found = values.get(name) or expected
        if found.lower() != expected.lower():
            raise _refused(wrong, name, expected, found)
    for name in ("hoodie.table.metadata.partitions.inflight", "hoodie.bootstrap.base.path"):
        if values.get(name):
            raise _refused("somebody else's work is under way here", name, "", values[name])
    _check_generator(values)
    called = next((one for one in _ORDERING if values.get(one)), _ORDERING[-1])
    ordering = _names(values.get(called, "")) if _order_decides(values) else ()
    key = _names(values.get("hoodie.table.recordkey.fields", ""))
    if len(ordering) > 1 or not key:
        name = called if key else "hoodie.table.recordkey.fields"
        expected = "one column, or none" if key else "the columns of the key"
        raise _refused("our writers could not go on with it", name, expected, values.get(name, ""))
    return Written(
        name=values.get("hoodie.table.name", ""),
        key=key,
        partition_by=_names(values.get("hoodie.table.partition.fields", "")),
        ordering=ordering[0] if ordering else None,
        hive_style=values.get(_HIVE_STYLE, "").lower() == "true",
        buckets=int(buckets) if (buckets := values.get(_BUCKETS, "")).isdecimal() else None,
    )


def _check_generator(values: Mapping[str, str]) -> None:
    name = "hoodie.table.keygenerator.class"
    found = values.get(name, "").rpartition(".")[2].removesuffix("KeyGenerator")
    told = values.get("hoodie.table.keygenerator.type", "")
    wrong = "its keys and partitions are made in a way of its own"
    if found and found.removesuffix("Avro") not in GENERATORS:
        raise _refused(wrong, name, " ".join(GENERATORS), values[name])
    if told and told not in _TYPES:
        raise _refused(wrong, "hoodie.table.keygenerator.type", " ".join(_TYPES), told)


def _order_decides(values: Mapping[str, str]) -> bool:
    told = [
        _verdict(name, values[name], known)
        for name, known in _ORDER_DECIDES.items()
        if values.get(name)
    ]
    return told[0] if told else True


def _verdict(name: str, found: str, known: Mapping[str, bool]) -> bool:
    if found not in known:
        wrong = "its rows are merged with what is stored in a way of its own"
        raise _refused(wrong, name, " ".join(known), found)
    return known[found]


def _refused(wrong: str, name: str, expected: str, found: str) -> UpgradeError:
    return UpgradeError(
        f"this table cannot be adopted, {wrong}: create one from its rows",
        path=PROPERTIES_PATH,
        property=name,
        expected=expected,
        found=found,
    )


def _names(value: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in value.split(","))))


@dataclass(frozen=True, slots=True)
class OtherTimeline:
    """Another writer's timeline on which nothing is under way."""

    actions: tuple[Instant, ...]

    @classmethod
    def load(cls, store: Store) -> OtherTimeline:
        """The timeline as it is now. Raises ConflictError where an action is under way,
        CorruptError for one at no time, behind which nobody could commit."""
        made = cls(tuple(Timeline(store).load()))
        for one in made.actions:
            if not is_moment(one.time):
                path = completed_path(one.time, one.action)
                expected = "yyyyMMddHHmmssSSS"
                raise CorruptError("an action at no time", path=path, expected=expected)
        pending = [one for one in made.actions if one.state != "completed"]
        if pending:
            raise ConflictError(
                "another writer is at work here, or has died at it: let it finish, or have Hudi"
                " roll it back, and adopt the table then",
                path=store.uri,
                found=[f"{one.time}.{one.action}.{one.state}" for one in pending[:5]],
            )
        return made

    @property
    def commits(self) -> tuple[Instant, ...]:
        """Those that change data, oldest first."""
        return tuple(one for one in self.actions if one.changes_data)

    @property
    def instants(self) -> tuple[str, ...]:
        """The instants of its commits, oldest first."""
        return tuple(one.time for one in self.commits)

    @property
    def latest(self) -> str:
        """The greatest instant of any action; "" where there is none."""
        return max((one.time for one in self.actions), default="")

    @property
    def first(self) -> str:
        """Where the timeline begins: what is older was archived; "" where nothing is committed."""
        return min(self.instants, default="")

    @property
    def unsure(self) -> str:
        """The first instant from which on the timeline is whole. Before it savepoints may have kept
        commits where those between them were archived: a file of no commit is nobody's there, or
        committed, and nobody can tell."""
        kept = {one.time for one in self.actions if one.action == "savepoint"}
        return min((one for one in self.instants if one not in kept), default=self.first)


@dataclass(frozen=True, slots=True)
class LiveSlices:
    """The live slices, by path, and instants of files that were never committed."""

    slices: tuple[FileSlice, ...]
    left: tuple[str, ...]


def live_slices(store: Store, timeline: OtherTimeline) -> LiveSlices:
    """One listing. Memory: the live slices. Raises CorruptError where a group has two slices of one
    instant, UpgradeError where it cannot be told what is committed."""
    done, left = frozenset(timeline.instants), set[str]()
    replaced = frozenset(_replaced(store, timeline.commits))
    live: dict[tuple[str, str], DataFile] = {}
    twins: dict[tuple[str, str], DataFile] = {}
    for file in _data_files(store.walk()):
        group = file.partition_path, file.file_id
        if file.instant not in done and not file.instant < timeline.first:
            _check_sure(file, timeline)
            left.add(file.instant)
        elif group in replaced or (group in live and live[group].instant > file.instant):
            continue
        elif group in live and live[group].instant == file.instant:
            twins[group] = file
        else:
            live[group] = file
    _check_single(live, twins)
    files = sorted(live.values(), key=lambda one: one.path)
    return LiveSlices(tuple(FileSlice(one) for one in files), tuple(sorted(left)))


def _check_single(
    live: Mapping[tuple[str, str], DataFile], twins: Mapping[tuple[str, str], DataFile]
) -> None:
    for group, one in twins.items():
        if live[group].instant == one.instant:
            raise CorruptError(
                "a file group has two slices of one instant: which are its rows? Delete the one"
                " that its commit does not list",
                path=one.path,
                found=live[group].path,
            )


def _data_files(listed: Iterable[Listed]) -> Iterable[DataFile]:
    for one in listed:
        if one.path.startswith(".hoodie/"):
            continue
        try:
            file = DataFile.decode(one.path, one.size_bytes)
        except CorruptError:  # no data file of Hudi's
            continue
        if "\\" in one.path:
            raise UpgradeError(
                "this table cannot be adopted, no path of ours has a backslash: create one from its"
                " rows",
                path=one.path,
            )
        yield file


def _check_sure(file: DataFile, timeline: OtherTimeline) -> None:
    if file.instant < timeline.unsure:
        raise UpgradeError(
            "whether this file is committed cannot be told: savepoints have kept older commits on"
            " the timeline than it has been archived to. Drop them, have Hudi commit once"
            " more, so that it archives what they have kept, and adopt the table then",
            path=file.path,
            expected=f"an instant of the timeline, or from {timeline.unsure} on",
            found=file.instant,
        )


def _replaced(store: Store, commits: Sequence[Instant]) -> Iterable[tuple[str, str]]:
    """(partition path, file id) of every group that a replacecommit has replaced."""
    for one in commits:
        if one.action in REPLACING:
            replaced = _metadata(store, one).replaced or {}
            yield from ((path, group) for path, groups in replaced.items() for group in groups)


def schema_of(store: Store, timeline: OtherTimeline, properties: TableProperties) -> pa.Schema:
    """The table's columns: those of the latest commit of a writer that tells them, else of a
    service, else those that it was created with. Raises CorruptError, UpgradeError where nothing
    tells them."""
    by_services = list[tuple[str, str]]()
    for one in reversed(timeline.commits):
        body = _metadata(store, one)
        told, path = body.extra.get(SCHEMA), completed_path(one.time, one.action)
        if not told:
            continue
        is_sure = one.time >= timeline.unsure or not by_services  # or a newer one may be archived
        if body.operation not in SERVING and is_sure:
            return from_avro(told, path)
        by_services.append((told, path))
    if by_services:
        return from_avro(*by_services[0])
    told = properties.values.get("hoodie.table.create.schema")
    if not told:
        raise UpgradeError(
            "nothing tells the columns of this table, which has no commit: create one in another"
            " place",
            path=PROPERTIES_PATH,
            expected="hoodie.table.create.schema",
        )
    return from_avro(told, PROPERTIES_PATH)


def columns_of_ours(store: Store, timeline: OtherTimeline, told: pa.Schema) -> TableSchema | None:
    """The table's columns with their ids, as the latest commit that tells them does: one of ours,
    from an earlier life of the table. None where no commit does, other columns are `told` by now,
    or files may have them under other names."""
    commits = timeline.commits[::-1]
    bodies = in_order_far(store, partial(_metadata, store), commits)
    for one, body in zip(commits, bodies, strict=True):
        if COLUMNS in body.extra:
            path = completed_path(one.time, one.action)
            held = TableSchema.decode(body.extra[COLUMNS], path)
            return None if held.by_id or in_avro(held.arrow) != told else held
    return None


def _metadata(store: Store, one: Instant) -> CommitMetadata:
    path = completed_path(one.time, one.action)
    return CommitMetadata.decode(store.fetch(path), path)
