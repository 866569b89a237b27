"""Log files of ours, read by the `hudi` wheel: every sequence of up to three events."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from metatable.data.base_files.base_file import read_base_file
from metatable.data.columns.avro_schema import to_avro
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import with_meta_columns
from metatable.data.config.options import Options
from metatable.data.file_groups.log_names import LogName, log_write_token
from metatable.data.file_groups.slices import DataFile
from metatable.data.hoodie.timeline import next_instant
from metatable.data.logs.log_blocks import LogWriter
from metatable.data.logs.log_merge import SliceLogs, live_blocks
from metatable.storage.hudi_log.block import HeaderKey, LogBlock
from metatable.storage.hudi_log.log_file import LogFile
from tests.data.hudi_table import HudiTable
from tests.data.other_blocks import delete_block, rollback_block

hudi = pytest.importorskip("hudi", reason="the hudi wheel is not installed")

TABLE = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
SCHEMA = with_meta_columns(TABLE)
WRITER = LogWriter(TABLE, "t")

PUT, DELETE = "put", "delete"
STEPS = [*itertools.product((PUT, DELETE), (5, 10, 15)), (DELETE, None)]
SEQUENCES = [seq for size in (1, 2, 3) for seq in itertools.product(STEPS, repeat=size)]
KEYS = {
    f"{stored}-{number}": sequence
    for stored in ("stored", "new")
    for number, sequence in enumerate(SEQUENCES)
}
"""What happens to each key, one event a commit. Those called stored are in the base, with 10."""


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    """Its file group has no logs yet."""
    options = Options.create("t", TABLE.names, key="id", ordering="ts")
    made = HudiTable.create(str(tmp_path / "t"), TABLE, options)
    properties = Path(made.store.uri, ".hoodie/hoodie.properties")
    properties.write_text(properties.read_text().replace("COPY_ON_WRITE", "MERGE_ON_READ"))
    stored = [key for key in KEYS if key.startswith("stored")]
    made.upsert(
        pa.record_batch(
            [pa.array(stored), pa.array([10] * len(stored)), pa.array(["base"] * len(stored))],
            schema=TABLE,
        )
    )
    return made


def events(step: int, instant: str, data_kind: str) -> Iterator[LogBlock]:
    """The blocks of the commit that does the events number `step`."""
    due = [(key, seq[step]) for key, seq in KEYS.items() if len(seq) > step]
    rows = [
        {
            "_hoodie_commit_time": instant,
            "_hoodie_commit_seqno": f"{instant}_0_0",
            "_hoodie_record_key": key,
            "_hoodie_partition_path": "",
            "_hoodie_file_name": "f-0",
            "id": key,
            "ts": ts,
            "v": f"event {step}",
        }
        for key, (kind, ts) in due
        if kind == PUT
    ]
    columns = pa.Table.from_pylist(rows, SCHEMA)
    if data_kind == "avro":
        yield from WRITER.avro_blocks(columns, instant)
    else:
        yield WRITER.parquet_block(columns, instant, "snappy")
    for ordered in (True, False):
        gone = [(key, ts) for key, (kind, ts) in due if kind == DELETE and (ts is None) != ordered]
        values = pa.array([ts for _, ts in gone], pa.int64()) if ordered else None
        yield delete_block(WRITER, pa.array([key for key, _ in gone]), "", instant, values)


def commit(
    table: HudiTable,
    blocks: Callable[[str], Iterable[LogBlock]],
    version: int,
    complete: bool = True,
) -> list[LogBlock]:
    """One more log file, and its delta commit. Its blocks as they are read again."""
    [base] = table.groups.values()
    instant = base.instant
    for _ in range(version):
        instant = next_instant(after=instant)
    name = LogName(
        base.file_id, base.instant, version, log_write_token(uuid.uuid4().hex, 0, True)
    ).name
    body = LogFile.encode([*blocks(instant)])
    table.store.put(f".hoodie/{instant}.deltacommit.requested", b"")
    table.store.put(f".hoodie/{instant}.deltacommit.inflight", b"")
    table.store.put(name, body)
    stat = {"fileId": base.file_id, "path": name, "partitionPath": "", "fileSizeInBytes": len(body)}
    told = {
        "partitionToWriteStats": {"": [stat]},
        "extraMetadata": {"schema": json.dumps(to_avro(TABLE, "t"))},
        "operationType": "UPSERT",
    }
    if complete:
        table.store.put(f".hoodie/{instant}.deltacommit", json.dumps(told).encode())
    return list(LogFile.decode(body, name).blocks)


def by_hudi(table: HudiTable) -> list[tuple[str, int, str]]:
    batches = hudi.HudiTableBuilder.from_base_uri(table.store.uri).build().read()
    return listed(pa.Table.from_batches([pa.record_batch(one) for one in batches]))


def by_us(
    table: HudiTable, blocks: list[LogBlock], ordering: str | None = "ts"
) -> list[tuple[str, int, str]]:
    names = [Path(one.path).name for one in table.store.list(".hoodie")]
    published = {name.partition(".")[0] for name in names if name.endswith("commit")}
    [base] = table.groups.values()
    live = live_blocks(blocks, published.__contains__)
    logs = SliceLogs.of(live, ReadColumns(SCHEMA, None, ordering))
    stored = read_base_file(table.store, DataFile.decode(base.path), SCHEMA)
    return listed(pa.concat_tables(logs.merged([stored])))


def listed(found: pa.Table) -> list[tuple[str, int, str]]:
    rows = found.select(TABLE.names).to_pylist()
    return sorted((row["id"], row["ts"], row["v"]) for row in rows)


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_every_sequence_of_three_events_is_read_as_hudi_reads_it(
    kind: str, table: HudiTable
) -> None:
    blocks: list[LogBlock] = []
    for step in range(3):
        blocks += commit(table, partial(events, step, data_kind=kind), step + 1)
    found = by_us(table, blocks)
    assert found == by_hudi(table)
    assert {value for *_, value in found} == {"base", "event 0", "event 1", "event 2"}
    back = KEYS_THAT_COME_BACK & {key for key, _, value in found if value == "base"}
    assert back == KEYS_THAT_COME_BACK


def test_by_commit_time_the_last_event_wins_as_in_hudi(table: HudiTable) -> None:
    properties = Path(table.store.uri, ".hoodie/hoodie.properties")
    mode = "hoodie.record.merge.mode=COMMIT_TIME_ORDERING\n"
    properties.write_text(properties.read_text() + mode)
    blocks: list[LogBlock] = []
    for step in range(3):
        blocks += commit(table, partial(events, step, data_kind="avro"), step + 1)
    found = by_us(table, blocks, None)
    assert found == by_hudi(table)
    last = {key: sequence[-1] for key, sequence in KEYS.items()}
    assert {key for key, *_ in found} == {key for key, (kind, _) in last.items() if kind == PUT}


KEYS_THAT_COME_BACK = {
    key
    for key, sequence in KEYS.items()
    if key.startswith("stored") and sequence[-2:] == ((DELETE, None), (PUT, 5))
}
"""A delete without an ordering value, then a row that is older than the stored one."""


def test_commits_that_are_not_complete_or_rolled_back_are_passed_over(table: HudiTable) -> None:
    blocks = commit(table, partial(events, 0, data_kind="avro"), 1)
    expected = by_us(table, blocks)
    blocks += commit(table, partial(events, 1, data_kind="avro"), 2, complete=False)
    assert by_us(table, blocks) == by_hudi(table) == expected
    failed = commit(table, partial(events, 1, data_kind="avro"), 3)
    target = failed[0].header[HeaderKey.INSTANT_TIME]
    blocks += failed + commit(table, lambda at: [rollback_block(at, target)], 4)
    assert by_us(table, blocks) == by_hudi(table) == expected
