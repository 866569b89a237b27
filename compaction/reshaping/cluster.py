"""Cluster: rows of file groups that overlap are cut anew, so that a value is in few files.

    plan      which slices (`cluster_plan.py`)
    sample    a task some slices: what their rows are in order by (`row_order.py`), every n-th; and
              before it, where there are several columns, what their ranks are
    write     a task a new file: the rows of its range, in order, as they are; logs are merged in
    publish   one `replacecommit`: the old groups leave, the new ones come

No row changes: each keeps its commit, and readers of changes see none. Where the index keeps keys,
all of them are told where they are now, by the same put. In memory are the rows of some files a
slot, and of the others what is within the engine's budget; the rest waits on disk. Killed before
the put nothing has changed, and what was written goes, as of any commit. A writer whose slices were
cut meanwhile tries again; so does this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from metatable.compaction.given_numbers import is_number
from metatable.compaction.reshaping.cluster_plan import ClusterPlan, chosen
from metatable.compaction.reshaping.new_files import (
    Receipt,
    entry_receipts,
    file_receipt,
    new_base,
    sorted_out,
    staged_commit,
    tasks_for,
)
from metatable.compaction.service import NothingDue, Outcome, Service
from metatable.data.base_files.base_file_writer import columns_with_nan
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.file_system_view import FileSystemView
from metatable.data.file_groups.slices import DataFile, FileSlice, marker_path, new_file_id
from metatable.data.hoodie.commit_metadata import WriteStat, ids_by_path
from metatable.data.hoodie.operations import CLUSTER
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.keys.row_order import COLUMN_SAMPLES, RowOrder, sample_columns
from metatable.data.reading.slices_ahead import slices_ahead
from metatable.data.rows.row_counts import RowCounts
from metatable.data.rows.samples import FILE_TEXTS, Sample, every
from metatable.data.rows.taking import grouped, piece_rows, taker, whole
from metatable.engine.jobs import run_rows
from metatable.engine.protocol import TASK_COLUMN, Engine
from metatable.index import create_index
from metatable.index.build import build_hfiles
from metatable.metadata.commits.change import Change
from metatable.metadata.commits.page_updates import AddFiles
from metatable.metadata.commits.requirements import SchemaIsBase, SlicesCurrent
from metatable.metadata.hfiles.entry_files import Run, drop_runs, write_run
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.partitions.overlap import check_clustered, mean_depths
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.partitions.stored import partitions_of
from metatable.metadata.view import read_columns
from metatable.metadata.written import WrittenSlice, every_stats_column
from metatable.storage.counters import Counters
from metatable.storage.errors import UsageError
from metatable.storage.ordering import PrefixIndex, sort_order
from metatable.storage.store import Store

__all__ = ["MOST_BYTES", "Cluster", "may_cut"]

MOST_BYTES = 8 << 30
"""Bytes of data files that one run rewrites, at most: what is left is due again."""

TASK_BYTES = 16 << 20
"""Bytes of slices that one task reads, where there are many; a larger one is alone. In memory its
rows are many times as much, and so are those of the tasks ahead of it."""

PIECE_BYTES = 16 << 20
"""Rows of a task that pass to a file at once."""

FILES_TOGETHER = 1024
"""Slices whose entries are deleted at once: of 32 columns these are 33,000 keys."""

_FILE = "_metatable_file"
_SLICES = pa.schema([("slice", pa.string()), (TASK_COLUMN, pa.int32())])
_FILES = pa.schema([(_FILE, pa.int32())])
_SAMPLED = pa.schema(
    [("path", pa.string()), ("rows", pa.int64()), ("texts", pa.list_(pa.string()))]
)


@dataclass(frozen=True, slots=True)
class Cluster(Service[ClusterPlan]):
    """Cut what overlaps most by the columns `by`; none: as the table says, or by its key.

    `files`: of a version, those that may be cut.
    """

    by: tuple[str, ...] = ()
    files: Callable[[Snapshot], FileSystemView] = Snapshot.slices
    most_bytes: int = MOST_BYTES
    name: ClassVar[str] = CLUSTER
    action: ClassVar[str] = "replacecommit"

    def plan(self, snapshot: Snapshot) -> ClusterPlan | NothingDue:
        """Raises UsageError where the index tells which file a row goes to, and for columns without
        an order or statistics."""
        options = snapshot.options
        asked = self.by or options.cluster_by or options.key
        _check(snapshot, asked)
        by = options.cutting(asked)
        if not is_number(self.most_bytes, 1):
            raise UsageError("a bound is 1 or more", option="most_bytes", found=self.most_bytes)
        depths = mean_depths(snapshot, by)
        slices = chosen(snapshot, self.files(snapshot), by, self.most_bytes)
        if slices:
            return ClusterPlan(by, slices, depths)
        told = ", ".join(f"{name} in {depth:.1f} files" for name, depth in depths.items())
        return NothingDue(f"nothing to cluster: a value of {told}", {"depth_before": depths})

    def work(
        self, engine: Engine[Any], snapshot: Snapshot, plan: ClusterPlan, owner: Owner
    ) -> Outcome:
        store, instant, slices = snapshot.store, owner.instant, plan.slices
        scratch = engine.scratch(store, owner.name)
        partitions = tuple(partitions_of(snapshot.options, create_index(snapshot.options)))
        files = _cut(engine, snapshot, plan, instant)
        markers = [marker_path(one, instant, "CREATE") for one in files.targets]
        store.together(store.marking(markers), writes=True)
        rows = _rows(engine, snapshot, slices, with_meta_columns(snapshot.schema))
        inputs = list(dict.fromkeys([KEY, PATH, *plan.by]))
        routed = engine.extend(rows, inputs, partial(_route, files), _FILES)
        count = max(len(files.targets), 1)  # logs may have deleted all rows
        spread = engine.exchange(routed, _FILE, count)
        work = partial(_write, snapshot, files, partitions, scratch)
        made, runs = sorted_out(run_rows(engine, spread, work, Receipt))
        runs += (*_retired(scratch, snapshot, partitions, slices),)
        adds, index_files = build_hfiles(engine, store, scratch, partitions, runs, owner)
        drop_runs(scratch, runs)
        replaced = ids_by_path((one.partition_path, one.file_id) for one in slices)
        step, staged = staged_commit(snapshot, self.name, instant, made, self.action, replaced)
        change = Change(
            operation=self.name,
            instant=instant,
            requires=(SlicesCurrent(slices), SchemaIsBase()),
            updates=(AddFiles(adds),),
            steps=(step,),
            summary={
                "files": len(slices),
                "rows": sum(one.row_count for one in made),
                "bytes": sum(one.size_bytes for one in made),
            },
            note={"by": ", ".join(plan.by)},
            files={**index_files, **staged},
        )
        counts = {"files_after": len(made), "entries": sum(one.row_count for one in made)}
        return Outcome(change, {**plan.facts, **counts}, partial(_measured, plan.by))


def may_cut(snapshot: Snapshot) -> bool:
    """Whether rows may go by their columns: the index does not tell which file each goes to."""
    return create_index(snapshot.options).placement(snapshot) is None


def _check(snapshot: Snapshot, by: Sequence[str]) -> None:
    options = snapshot.options
    if not may_cut(snapshot):
        raise UsageError(
            "the index tells which file a row goes to: no order of other columns does",
            index=options.index,
            expected="a table whose index is another one (adopt makes one)",
        )
    check_clustered(snapshot.table_schema, options, by)


def _measured(
    by: Sequence[str], store: Store, published: Manifest
) -> tuple[int, Mapping[str, Any]]:
    return published.version, {"depth_after": mean_depths(Snapshot(store, published), by)}


# Which row goes to which file


@dataclass(frozen=True, slots=True)
class _Files:
    """The new files. `cuts`, by partition path: texts between its files, and the first of these."""

    order: RowOrder
    targets: tuple[DataFile, ...]
    cuts: Mapping[str, tuple[tuple[str, ...], int]]


def _retired(
    scratch: Store,
    snapshot: Snapshot,
    partitions: Sequence[MetadataPartition],
    slices: Sequence[FileSlice],
) -> Iterator[Run]:
    """What partitions lose with these slices, which may be very many: some at a time."""
    columns = every_stats_column(snapshot.table_schema, snapshot.options)
    for start in range(0, len(slices), FILES_TOGETHER):
        some = slices[start : start + FILES_TOGETHER]
        gone = ((one.name, one.retired(some, columns)) for one in partitions)
        yield from (write_run(scratch, name, held) for name, held in gone if held.num_rows)


def _cut(engine: Engine[Any], snapshot: Snapshot, plan: ClusterPlan, instant: str) -> _Files:
    """The files that are to be, and between which rows of each folder they are cut: told by a
    sample of the rows, in their order."""
    by, slices, options = plan.by, plan.slices, snapshot.options
    held = snapshot.row_counts(slices, at_most=True)
    count = int(held.clip(0).sum())
    width = plan.size_bytes / max(count, 1)
    most = options.most_rows(width)
    schema = with_meta_columns(snapshot.schema)
    names = dict.fromkeys([KEY, PATH, *by])
    rows = _rows(engine, snapshot, slices, pa.schema([schema.field(name) for name in names]))
    order = RowOrder(by)
    if len(by) > 1:
        told = engine.run(rows, partial(sample_columns, by, count), COLUMN_SAMPLES)
        order = RowOrder.fitted(by, told)
    found = engine.run(rows, partial(_sample, order, max(1, most // FILE_TEXTS)), _SAMPLED)
    samples: dict[str, Sample] = {}
    for one in found.to_pylist():
        samples.setdefault(one["path"], Sample()).add(one["rows"], one["texts"])
    targets: list[DataFile] = []
    cuts = {}
    for path, sample in sorted(samples.items()):
        count = -(-sample.rows // most)
        between, _ = sample.cut([sample.rows * number // count for number in range(count)])
        cuts[path] = between, len(targets)
        targets += (
            DataFile(path, new_file_id(), f"{len(targets) + place}-0-0", instant)
            for place in range(len(between) + 1)
        )
    return _Files(order, tuple(targets), cuts)


def _rows(
    engine: Engine[Any], snapshot: Snapshot, slices: Sequence[FileSlice], schema: pa.Schema
) -> Any:
    """The rows of slices, in these columns."""
    size_bytes = sum(one.size_bytes for one in slices)
    tasks = min(len(slices), tasks_for(engine, snapshot.store, size_bytes, TASK_BYTES))
    dealt = [place % tasks for place in range(len(slices))]
    table = pa.table([[one.encode() for one in slices], dealt], schema=_SLICES)
    spread = engine.exchange(engine.rows(table), TASK_COLUMN, tasks)
    return engine.map(spread, _SLICES.names[:1], partial(_read, snapshot, schema), schema)


def _read(
    view: Snapshot, schema: pa.Schema, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the rows of some slices."""
    read = read_columns(view, schema)
    texts = (text for batch in batches for text in batch[_SLICES.names[0]].to_pylist())
    slices = map(FileSlice.decode, texts)
    for _, begin in slices_ahead(view.counting(counters).store, slices, read):
        for piece in begin():
            yield from piece.to_batches()


def _sample(
    order: RowOrder, step: int, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: some texts of the rows of each table partition, in `_SAMPLED`."""
    for batch in batches:
        texts = order.texts(batch)
        paths, rows = grouped({"path": whole(batch[PATH])})
        picked = [every(texts.take(pa.array(here)), step) for here in rows]
        columns = [whole(paths["path"]), pa.array([len(here) for here in rows], pa.int64())]
        columns.append(pa.array(picked, _SAMPLED.types[2]))
        yield pa.RecordBatch.from_arrays(columns, schema=_SAMPLED)


def _route(
    files: _Files, batches: Iterator[pa.RecordBatch], counters: Counters
) -> Iterator[pa.RecordBatch]:
    """Task: the number of each row's file."""
    for batch in batches:
        texts, number = files.order.texts(batch), np.zeros(batch.num_rows, np.int32)
        paths, rows = grouped({"path": whole(batch[PATH])})
        for path, here in zip(paths["path"].to_pylist(), rows, strict=True):
            between, first = files.cuts[path]
            place = PrefixIndex(pa.array(between, pa.string())).place
            number[here] = first + place(texts.take(pa.array(here)), "right")
        yield pa.RecordBatch.from_arrays([pa.array(number)], schema=_FILES)


# Writing


def _write(
    view: Snapshot,
    files: _Files,
    partitions: Sequence[MetadataPartition],
    scratch: Store,
    batches: Iterator[pa.RecordBatch],
    counters: Counters,
) -> Iterator[Receipt]:
    """Task: one file, and its entries. A second attempt adopts the file of the first."""
    view, scratch = view.holding().counting(counters), scratch.counting(counters)
    rows = pa.Table.from_batches(list(batches))
    target = files.targets[rows[_FILE][0].as_py()]
    schema = with_meta_columns(view.schema)
    rows = rows.select(schema.names).cast(schema)
    new = new_base(view, target, _pieces(rows, files.order), columns_with_nan(rows))
    written = WrittenSlice(new.made, keys=new.keys, arrived=new.keys, stats=new.stats)
    counts = RowCounts(inserted=len(new.keys))
    yield file_receipt(WriteStat.of(new.made.base, None, counts))
    yield from entry_receipts([written], partitions, scratch, len(files.targets))


def _pieces(rows: pa.Table, order: RowOrder) -> Iterator[pa.Table]:
    places, take = sort_order(order.texts(rows)), taker(rows)
    step = piece_rows(rows, PIECE_BYTES)
    for start in range(0, len(places), step):
        yield take(pa.array(places[start : start + step]))
