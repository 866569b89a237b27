"""Logs of many groups made together are those that each group would be given alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable.data.base_files.meta_columns import add_meta_columns, with_file_name
from metatable.data.base_files.statistics import of_all
from metatable.data.columns.schema import with_meta_columns
from metatable.data.file_groups.children import VIRTUAL_LOG, WAYS, child_of
from metatable.data.file_groups.hashing_metadata import LAST_HASH, HashingNode
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.logs.log_blocks import LogWriter
from metatable.index.bucket.ring import hashes_of
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import TableView
from metatable.metadata.written import stats_columns, stats_of_rows
from metatable.storage.hudi_log import log_file
from metatable.storage.store import Store
from metatable.write import new_log
from metatable.write.new_log import LoggedGroup, LogMaker, NewLog
from metatable.write.plan import GroupPlan
from tests.data.other_blocks import delete_block
from tests.data.test_schema import EVERY_TYPE, FULL_ROW
from tests.long import one_in

BEFORE, INSTANT = "20260101000000000", "20260102000000000"
MIDDLE = LAST_HASH // 3
SIZES: dict[str, Any] = {"size_bytes": 0, "uncompressed_bytes": 0}
OTHERS: dict[str, list[Any]] = {
    "f": [float("nan"), float("-inf"), -0.5],
    "d": [float("nan"), 1e300],
    "s": ["", "é" * 65, "\U0010ffff" * 70],
    "b": [b"", b"\xff" * 70],
    "i": list(range(-300, 300, 7)),
    "tags": [[]],
    "flag": [False],
}


def some_rows(rng: random.Random, count: int) -> pa.Table:
    """Of every type, with nulls; some columns are all nulls, or have no NaN."""
    calm = {name for name in EVERY_TYPE.names if rng.random() < 0.3}
    rows = []
    for number in range(count):
        told = {
            name: rng.choice([value, *([] if name in calm else [*OTHERS.get(name, []), None])])
            for name, value in FULL_ROW.items()
        }
        rows.append(told | {"id": number})
    return pa.Table.from_pylist(rows, EVERY_TYPE)


def some_groups(rng: random.Random, count: int) -> list[LoggedGroup]:
    """Of 0, 1 or more rows; some are being split, either way."""
    numbers, groups = list(range(count)), []
    rng.shuffle(numbers)
    for place in range(rng.randrange(1, 12)):
        cuts = sorted(rng.choice([0, 1, 2, 20]) for _ in "ab")
        here, gone, numbers = numbers[: cuts[0]], numbers[cuts[0] : cuts[1]], numbers[cuts[1] :]
        base = FileSlice(DataFile(f"p={place % 3}", f"f{place}-0", "0-0-0", BEFORE, 100))
        if rng.random() < 0.5 and (here or gone):
            way, path = rng.choice(WAYS), base.partition_path
            nodes = [HashingNode(MIDDLE, f"lo{place}"), HashingNode(LAST_HASH, f"hi{place}")]
            told = [child_of(path, node, n, way, INSTANT) for n, node in enumerate(nodes)]
            base = base.split(told)
        token = f"{place * 2 + 1}-7-8"
        forwards = tuple(child.log(1, token) for child in base.children)
        rows = np.array(sorted(here), np.int64), np.array(gone, np.int64)
        groups.append(LoggedGroup(place, base.next_log(token), base, forwards, *rows))
    return groups


def alone(
    view: TableView, columns: pa.Table, keys: pa.Array, group: LoggedGroup, file: LogFile
) -> NewLog | None:
    """What a log of the group says: all of its rows, or those of one child, row by row."""
    schema, codec = with_meta_columns(view.schema), view.options.parquet_codec
    on_child, low = file.file_id != group.base.file_id, file.file_id.startswith("lo")

    def ours(rows: Sequence[int]) -> list[int]:
        hashes = hashes_of(keys, ("id",))
        return [n for n, row in enumerate(rows) if not on_child or (hashes[row] <= MIDDLE) == low]

    numbers = ours(group.here)
    here = pa.array(group.here[numbers], pa.int64())
    going = keys.take(pa.array(group.gone[ours(group.gone)], pa.int64()))
    if on_child and not numbers and not len(going):
        return None
    target = DataFile(file.partition_path, group.base.file_id, "", INSTANT)
    told = keys.take(here), target, group.place, np.array(numbers, np.int64)
    rows = with_file_name(add_meta_columns(columns.take(here), *told).cast(schema), file.file_id)
    writer = LogWriter(view.schema, view.options.name, view.table_schema)
    blocks = [delete_block(writer, going, file.partition_path, INSTANT)] if len(going) else []
    if view.options.log_format == "avro":
        blocks += writer.avro_blocks(rows, INSTANT)
    elif rows.num_rows:
        blocks.append(writer.parquet_block(rows, INSTANT, codec))
    stats = stats_of_rows(rows, stats_columns(view.table_schema, view.options))
    return NewLog.of(file, log_file.LogFile.encode(blocks), stats)


def all_alone(
    view: TableView, columns: pa.Table, keys: pa.Array, group: LoggedGroup
) -> list[NewLog]:
    files = group.forwards or (group.target,)
    logs = [one for file in files if (one := alone(view, columns, keys, group, file))]
    if group.base.children and group.base.children[0].write_token.endswith("-0"):  # dual write
        body, stats = b"".join(one.body for one in logs), of_all([one.stats for one in logs])
        return [NewLog.of(group.target, body, stats), *logs]
    return logs


@pytest.fixture(params=["avro", "parquet"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> TableView:
    options = {"log_format": request.param, "stats_columns": len(EVERY_TYPE)}
    storage = {"durable": "false"}
    metatable.create(
        tmp_path,
        EVERY_TYPE,
        key="id",
        index="record",
        table_type="mor",
        options=options,
        storage_options=storage,
    )
    store = Store(str(tmp_path), storage)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


@pytest.mark.each_once
@pytest.mark.parametrize("seed", one_in(2, range(6)))
def test_logs_made_together_are_those_made_alone(
    view: TableView, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(new_log, "PIECE_BYTES", rng.choice([1, 4_000, 1 << 20]))
    monkeypatch.setattr(
        "metatable.data.logs.log_blocks.BLOCK_BYTES", rng.choice([2_000, 128 << 20])
    )
    columns = some_rows(rng, 400)
    keys = columns["id"].cast(pa.string()).combine_chunks()
    groups = some_groups(rng, 400)
    made = [*LogMaker(view, INSTANT, columns, keys).logs(groups)]
    expected = [all_alone(view, columns, keys, group) for group in groups]
    assert len(made) == len(groups)
    for ours, theirs in zip(made, expected, strict=True):
        assert [one.file for one in ours] == [one.file for one in theirs]
        assert [one.body for one in ours] == [one.body for one in theirs]
        told = [[stats for one in logs for stats in one.stats] for logs in (ours, theirs)]
        bounds = [[replace(one, **SIZES) for one in stats] for stats in told]
        assert bounds[0] == bounds[1]
        sizes = [(one.size_bytes, other.size_bytes) for one, other in zip(*told, strict=True)]
        assert all(abs(one - other) <= 2 for one, other in sizes)  # of bits that begin in a byte


@pytest.mark.parametrize("way", WAYS)
def test_only_copies_stand_beside_a_log_of_the_group_itself(way: str) -> None:
    base = FileSlice(DataFile("p", "f-0", "0-0-0", BEFORE, 100))
    children = [child_of("p", HashingNode(MIDDLE, "lo"), 0, way, INSTANT)]
    token, of_base = "1-7-8", base.next_log("1-7-8")
    forwards = tuple(child.log(1, token) for child in children)
    planned = GroupPlan(of_base, base.split(children), 0, forwards)
    assert planned.targets == (forwards if way == VIRTUAL_LOG else (of_base, *forwards))
