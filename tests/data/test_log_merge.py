"""Merging slices: against a model that goes event by event, and Hudi's own tables and readings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.columns.read_columns import ReadColumns
from metatable.data.columns.schema import META_COLUMNS, with_meta_columns
from metatable.data.logs import log_merge
from metatable.data.logs.log_blocks import LogWriter
from metatable.data.logs.log_merge import SliceLogs, live_blocks
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from tests.data.mor_tables import read_table, unpacked
from tests.data.other_blocks import delete_block, rollback_block
from tests.long import examples

KEY = "_hoodie_record_key"
TABLE = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
SCHEMA = with_meta_columns(TABLE)
ALL = ReadColumns(SCHEMA, None, "ts")
WRITER = LogWriter(TABLE, "t")

Event = tuple[str, str, int | None, str]
"""("put" or "delete", key, ordering value, value)."""


def table(rows: list[tuple[str, int | None, str]]) -> pa.Table:
    listed = [{KEY: key, "id": key, "ts": ts, "v": value} for key, ts, value in rows]
    return pa.Table.from_pylist(listed, SCHEMA)


def run_of(event: Event) -> tuple[str, bool]:
    kind, _, ts, _ = event
    return kind, kind == "delete" and ts is None


def blocks_of(instant: str, events: list[Event], parquet: bool = False) -> Iterator[LogBlock]:
    """One block for each run of events of a kind; deletes have ordering values, or have none."""
    runs: list[list[Event]] = []
    for event in events:
        if runs and run_of(runs[-1][0]) == run_of(event):
            runs[-1].append(event)
        else:
            runs.append([event])
    for run in runs:
        if run[0][0] == "delete":
            keys = pa.array([key for _, key, _, _ in run])
            values = pa.array([ts for _, _, ts, _ in run], pa.int64())
            yield delete_block(WRITER, keys, "p", instant, None if values.null_count else values)
            continue
        rows = table([event[1:] for event in run])
        if parquet:
            yield WRITER.parquet_block(rows, instant, "none")
        else:
            yield from WRITER.avro_blocks(rows, instant)


def merged(
    base: list[pa.Table], blocks: list[LogBlock], ordering: str | None = "ts"
) -> list[tuple[str, int | None, str]]:
    """In place; in any order it is the same, and by a column of the same texts, of some columns."""
    logs = SliceLogs.of(blocks, ReadColumns(SCHEMA, None, ordering))
    in_place = list(logs.merged(base))
    in_any_order = list(logs.merged(map(copied, base), in_place=False))
    assert all(part.schema == SCHEMA for part in (*in_place, *in_any_order))
    own = SliceLogs.of(blocks, ReadColumns(TABLE, None, ordering, key="id"))
    assert not base or KEY in base[0].column_names
    selected = [copied(piece.select(TABLE.names)) for piece in base]
    by_own = list(own.merged(selected, in_place=False, columns=["v", "id"]))
    assert all(part.column_names == ["v", "id"] for part in by_own)
    rows, others = (
        [(row["id"], row["ts"], row["v"]) for part in parts for row in part.to_pylist()]
        for parts in (in_place, in_any_order)
    )
    assert sorted(rows, key=str) == sorted(others, key=str)
    few = [(row["id"], row["v"]) for part in by_own for row in part.to_pylist()]
    assert few == [(key, value) for key, _, value in others]
    return rows


def copied(piece: pa.Table) -> pa.Table:
    """In memory that nobody else holds, for that is written on."""
    return piece.take(pa.array(range(piece.num_rows), pa.int64()))


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    """Bases are looked through in parts, by several threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_merge, "PART_ROWS", 2)
        patch.setattr(log_merge, "WORKERS", 3)
        yield


# The model


@dataclass
class Held:
    """What a key came to in the logs: a value of None is a delete."""

    ts: int | None
    value: str | None
    is_natural: bool = False


def lowest(ts: int | None) -> float:
    return float("-inf") if ts is None else ts


def after(held: Held | None, event: Event, by_event: bool) -> Held:
    """As Hudi's record buffer takes one event after the other."""
    kind, _, ts, value = event
    new = Held(ts, None if kind == "delete" else value, kind == "delete" and ts is None)
    if held is None or not by_event or new.is_natural:
        return new
    if held.is_natural:
        return held if kind == "delete" else new
    return new if lowest(ts) >= lowest(held.ts) else held


def model(
    base: dict[str, tuple[int | None, str]], events: list[Event], by_event: bool
) -> dict[str, tuple[int | None, str]]:
    logs: dict[str, Held] = {}
    for event in events:
        logs[event[1]] = after(logs.get(event[1]), event, by_event)
    rows = dict(base)
    for key, held in logs.items():
        old = base.get(key)
        stays = old and by_event and not held.is_natural and lowest(old[0]) > lowest(held.ts)
        if stays:
            continue
        rows.pop(key, None)
        if held.value is not None:
            rows[key] = (held.ts, held.value)
    return rows


KEYS = st.sampled_from([f"{one}-0000-{one}" for one in "abcdef"])  # long enough for `KeyPlaces`
TIMES = st.none() | st.integers(-2, 3)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete"]), KEYS, TIMES, st.text("xyz", max_size=3)),
    max_size=12,
)
BASE = st.dictionaries(KEYS, st.tuples(TIMES, st.just("base")))


@given(BASE, st.lists(EVENTS, max_size=4), st.booleans(), st.booleans(), st.integers(1, 7))
@settings(max_examples=examples(80, 250), deadline=None)
def test_a_slice_is_what_the_model_makes_of_it(
    base: dict[str, tuple[int | None, str]],
    commits: list[list[Event]],
    by_event: bool,
    parquet: bool,
    step: int,
) -> None:
    blocks = [
        block
        for number, events in enumerate(commits)
        for block in blocks_of(str(number), events, parquet)
    ]
    stored = table([(key, *row) for key, row in base.items()])
    pieces = [stored.slice(at, step) for at in range(0, stored.num_rows, step)]
    found = merged(pieces, live_blocks(blocks, lambda _: True), "ts" if by_event else None)
    events = [event for commit in commits for event in commit]
    assert {key: row for key, *row in ((k, t, v) for k, t, v in found)} == {
        key: list(row) for key, row in model(base, events, by_event).items()
    }
    assert len({key for key, *_ in found}) == len(found)
    kept = [key for key, *_ in found if key in base]
    assert kept == [key for key in base if key in {*kept}]


def test_a_delete_without_a_value_stays_one_under_deletes_that_have_one() -> None:
    """Also where it is the first of all events."""
    stored = table([("a", 9, "base")])
    events: list[Event] = [("delete", "a", None, ""), ("delete", "a", 1, "")]
    assert merged([stored], [*blocks_of("1", events)]) == []
    assert merged([stored], [*blocks_of("1", [("put", "b", 1, "n"), *events])]) == [("b", 1, "n")]
    events.append(("put", "a", 0, "late"))
    assert merged([stored], [*blocks_of("1", events)]) == [("a", 9, "base")]
    assert merged([], [*blocks_of("1", events)]) == [("a", 0, "late")]


def test_new_rows_follow_in_the_order_of_their_keys_and_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_merge, "STEP_BYTES", 1)
    events: list[Event] = [("put", key, 1, "n") for key in "fbdac"]
    logs = SliceLogs.of([*blocks_of("1", events)], ALL)
    parts = list(logs.merged([table([("d", 0, "base"), ("z", 0, "base")])]))
    assert [part.num_rows for part in parts] == [2, 1, 1, 1, 1]
    keys = [row[KEY] for part in parts for row in part.to_pylist()]
    assert keys == ["d", "z", "f", "b", "a", "c"]


def test_rows_of_logs_are_found_whatever_their_order_and_however_many_have_one_key() -> None:
    stored = table([("a-key-00", 0, "base"), ("b-key-00", 0, "base")])
    events: list[Event] = [("put", "b-key-00", 1, "b"), ("put", "a-key-00", 1, "a")]
    expected = [("a-key-00", 1, "a"), ("b-key-00", 1, "b")]
    assert merged([stored], [*blocks_of("1", events)]) == expected
    events += [("put", f"{number:08}", 1, "n") for number in range(100)]
    events += [("put", "00000007", 2, "last")]  # few enough to have a place in `KeyPlaces`
    found = merged([stored], [*blocks_of("1", events)])
    assert found[:2] == expected
    assert [one for one in found if one[0] == "00000007"] == [("00000007", 2, "last")]
    assert len(found) == 102


def test_a_slice_without_logs_is_its_base() -> None:
    stored = table([("a", 1, "x")])
    assert list(SliceLogs.of([], ALL).merged([stored])) == [stored]


def test_the_base_comes_and_goes_piece_by_piece() -> None:
    taken: list[str] = []

    def base() -> Iterator[pa.Table]:
        for key in "abc":
            taken.append(key)
            yield table([(key, 1, "base")])

    logs = SliceLogs.of([*blocks_of("1", [("put", "b", 2, "n")])], ALL)
    rows = logs.merged(base())
    assert taken == []
    for key, value in (("a", "base"), ("b", "n"), ("c", "base")):
        assert next(rows).column("v").to_pylist() == [value]
        assert taken[-1] == key
    assert next(rows, None) is None


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_key_that_the_base_holds_twice_is_damage(cut: int, in_place: bool) -> None:
    stored = table([("a", 1, "x"), ("b", 1, "x"), ("a", 1, "y")])
    logs = SliceLogs.of([*blocks_of("1", [("put", "a", 2, "n")])], ALL)
    with pytest.raises(CorruptError, match="a key is stored twice in one file: key='a'"):
        list(logs.merged([copied(stored.slice(0, cut)), copied(stored.slice(cut))], in_place))


def test_a_row_without_a_key_is_damage() -> None:
    [block] = WRITER.avro_blocks(
        table([("a", 1, "x")]).set_column(2, KEY, pa.nulls(1, pa.string())), "1"
    )
    with pytest.raises(CorruptError, match="a row in a log file has no key"):
        SliceLogs.of([block], ALL)


def test_not_a_number_is_the_greatest_and_text_is_ordered_too() -> None:
    for kind, low, high in ((pa.float64(), 9.0, float("nan")), (pa.string(), "9", "x")):
        columns = pa.schema([("ts", kind), ("v", pa.string())])
        schema, writer = with_meta_columns(columns), LogWriter(columns, "t")

        def row(value: Any, schema: pa.Schema = schema) -> pa.Table:
            return pa.Table.from_pylist([{KEY: "a", "ts": value}], schema)

        for base, log, expected in ((low, high, high), (high, low, high)):
            blocks = [*writer.avro_blocks(row(log), "1")]
            logs = SliceLogs.of(blocks, ReadColumns(schema, None, "ts"))
            [found] = logs.merged([row(base)])
            assert str(found.column("ts").to_pylist()) == str([expected])


# Which blocks count


def names(blocks: list[LogBlock], published: str = "123456789") -> str:
    return "".join(
        block.header[HeaderKey.INSTANT_TIME]
        for block in live_blocks(blocks, published.__contains__)
    )


def put(instant: str, compacts: str = "") -> LogBlock:
    header = {HeaderKey.INSTANT_TIME: instant}
    if compacts:
        header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(compacts)
    return LogBlock(BlockKind.AVRO_DATA, header, b"")


def test_blocks_of_commits_that_are_not_published_are_passed_over() -> None:
    assert names([put("1"), put("2"), put("3")], "13") == "13"


def test_blocks_come_in_the_order_in_which_their_commits_appear() -> None:
    assert names([put("2"), put("1"), put("2"), put("1")]) == "2211"


def test_a_rollback_takes_away_what_came_before_it() -> None:
    rolled = rollback_block("9", "2")
    assert names([put("1"), put("2"), put("2"), rolled, put("3")]) == "13"
    assert names([put("1"), rolled, put("2")]) == "12"
    assert names([put("1"), put("2"), rollback_block("0", "2")]) == "1"


def test_a_log_compaction_stands_where_the_newest_of_its_blocks_stood() -> None:
    assert names([put("1"), put("2"), put("3"), put("4", "12")]) == "43"
    assert names([put("1"), put("2"), put("3"), put("4", "13")]) == "24"
    assert names([put("1"), put("2"), put("3"), put("4", "12"), put("4", "12")]) == "443"
    assert names([put("1"), put("2"), put("3", "12"), put("4"), put("5", "34")]) == "5"
    assert names([put("1"), put("2"), put("3", "12")], "12") == "12"
    assert names([put("1"), put("2"), put("3", "12"), rollback_block("4", "3")]) == "12"


def test_a_log_compaction_of_blocks_that_are_gone_stands_where_it_is() -> None:
    assert names([put("3", "12"), put("4")]) == "34"
    assert names([put("1"), put("2"), put("3", "3")]) == "123"


def test_damage_that_hudi_has_seen_is_passed_over() -> None:
    assert names([LogBlock(BlockKind.CORRUPT, {HeaderKey.INSTANT_TIME: "1"}, b""), put("2")]) == "2"


def test_a_block_that_tells_no_instant_and_an_unknown_command_are_refused() -> None:
    with pytest.raises(CorruptError, match=r"lacks a header.*INSTANT_TIME"):
        names([LogBlock(BlockKind.AVRO_DATA, {}, b"")])
    command = {HeaderKey.INSTANT_TIME: "1", HeaderKey.COMMAND_BLOCK_TYPE: "1"}
    with pytest.raises(UpgradeError, match=r"unknown command.*found='1'"):
        names([LogBlock(BlockKind.COMMAND, command, b"")])


# Hudi's own tables


@pytest.mark.parametrize(
    "name",
    [
        "mor_avro_logs_v6",
        "mor_bucket_simple",
        "mor_consistent_1initial",
        "mor_consistent_2pending",
        "mor_consistent_3done",
    ],
)
def test_tables_of_hudi_on_spark_are_read_as_it_reads_them(
    name: str, interop: Path, tmp_path: Path
) -> None:
    folder = interop / "hudi-spark"
    expected = pq.read_table(folder / f"{name}.expected.parquet").replace_schema_metadata(None)
    columns = pa.schema([one for one in expected.schema if one.name not in META_COLUMNS])
    root = unpacked(folder / f"{name}.zip", tmp_path)
    found = read_table(root, with_meta_columns(columns), "ts").select(expected.column_names)
    assert found.num_rows == expected.num_rows > 1400
    assert found.sort_by(KEY).to_pylist() == expected.sort_by(KEY).to_pylist()


@pytest.mark.parametrize(
    ("archive", "ordering"),
    [
        ("quickstart_trips_table__mor__avro__v8_trips_8i3u1d.zip", "ts"),
        ("sample_table__mor__avro__v9_txns_nonpart_meta.zip", None),
    ],
)
def test_tables_of_other_versions_are_read_as_the_wheel_reads_them(
    archive: str, ordering: str | None, interop: Path, tmp_path: Path
) -> None:
    hudi = pytest.importorskip("hudi", reason="the hudi wheel is not installed")
    root = unpacked(interop / "hudi" / archive, tmp_path)
    batches = hudi.HudiTableBuilder.from_base_uri(str(root)).build().read()
    expected = pa.Table.from_batches([pa.record_batch(one) for one in batches])
    schema = pa.schema([pa.field(one.name, one.type) for one in expected.schema])
    found = read_table(root, schema, ordering)
    assert found.num_rows == expected.num_rows > 0
    assert found.sort_by(KEY).to_pylist() == expected.sort_by(KEY).to_pylist()
