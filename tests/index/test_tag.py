"""What every index must answer: held against a brute-force join, in process."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import metatable
from metatable.index import record
from metatable.index.bloom_lookup import key_slices
from metatable.index.protocol import LOCATION
from metatable.metadata import record_index
from metatable.storage.errors import CorruptError, UsageError
from tests.index.rows import SCHEMA, expected_tags, make, rows, told_tags

INDEXES = ("record", "metadata_bloom")
SCOPES = ("partition", "global")


@pytest.fixture(params=[(index, scope) for index in INDEXES for scope in SCOPES], ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture
def table(table_uri: str, kind: tuple[str, str]) -> metatable.Table:
    """300 keys in over 15 file groups, some rewritten, some deleted, some gone and back."""
    made = make(table_uri, *kind)
    made.insert(rows(0, 300))
    made.upsert(rows(150, 200, value=1000))
    made.delete(rows(50, 90))
    made.insert(rows(60, 70))
    return made


def _agrees(
    table: metatable.Table, asked: pa.Table, tagged: pa.Table, kind: tuple[str, str]
) -> None:
    index, scope = kind
    expected = expected_tags(table, asked, scope)
    told = told_tags(tagged)
    if index == "record":
        expected = [place and (*place[:3], None) for place in expected]
    assert told == expected


def test_tags_equal_a_brute_force_join(table: metatable.Table, kind: tuple[str, str]) -> None:
    asked = rows(0, 400)
    tagged = table.tag_locations(asked)
    _agrees(table, asked, tagged, kind)
    assert sum(place is not None for place in told_tags(tagged)) == 270


def test_rows_leave_as_they_came_with_the_location_behind_them(
    table: metatable.Table, kind: tuple[str, str]
) -> None:
    asked = rows(10, 40).take(pa.array([5, 5, 29, 0, 7]))
    tagged = table.tag_locations(asked)
    assert tagged.schema.names == [*SCHEMA.names, "_location"]
    assert tagged.schema.field("_location").type == LOCATION
    assert tagged.drop_columns(["_location"]).equals(asked)
    _agrees(table, asked, tagged, kind)


def test_a_key_in_another_partition_is_found_in_global_scope_only(
    table: metatable.Table, kind: tuple[str, str]
) -> None:
    asked = pa.table({"id": ["k000000"], "city": ["berlin"]})
    found = table.tag_locations(asked)["_location"][0].as_py()
    assert (found is not None) == (kind[1] == "global")


def test_key_columns_are_enough(table: metatable.Table, kind: tuple[str, str]) -> None:
    asked = rows(100, 110)
    wanted = ["id"] if kind[1] == "global" else ["city", "id"]
    _agrees(table, asked, table.tag_locations(asked.select(wanted)), kind)


@pytest.mark.parametrize("form", ["pandas", "polars", "reader", "batch"])
def test_anything_arrow_like_is_tagged(
    table: metatable.Table, kind: tuple[str, str], form: str
) -> None:
    asked = rows(140, 320)
    given = {
        "pandas": asked.to_pandas,
        "polars": lambda: pl.from_arrow(asked),
        "reader": lambda: asked.to_reader(max_chunksize=17),
        "batch": lambda: asked.combine_chunks().to_batches()[0],
    }[form]()
    _agrees(table, asked, table.tag_locations(given), kind)


def test_no_rows_are_no_rows(table: metatable.Table) -> None:
    assert table.tag_locations(rows(0, 0)).num_rows == 0


def test_a_table_without_rows_knows_no_key(table_uri: str, kind: tuple[str, str]) -> None:
    empty = make(table_uri, *kind)
    assert empty.tag_locations(rows(0, 5))["_location"].null_count == 5


def test_an_older_version_answers_as_it_did(table_uri: str, kind: tuple[str, str]) -> None:
    table = make(table_uri, *kind)
    table.insert(rows(0, 30))
    version = table.version
    before = told_tags(table.tag_locations(rows(0, 40)))
    table.upsert(rows(20, 40))
    assert told_tags(table.tag_locations(rows(0, 40), version=version)) == before


def test_a_missing_key_column_is_named(table: metatable.Table) -> None:
    with pytest.raises(UsageError, match="column='id'"):
        table.tag_locations(pa.table({"city": ["cairo"]}))


def test_what_is_no_rows_is_refused(table: metatable.Table) -> None:
    with pytest.raises(UsageError):
        table.tag_locations(17)


def test_filter_exists_keeps_the_rows_whose_key_is_there(table: metatable.Table) -> None:
    kept = table.filter_exists(rows(40, 100))
    assert kept.equals(
        pa.concat_tables([rows(40, 50), rows(60, 70), rows(90, 100)]).combine_chunks()
    )


def test_read_keys_gives_the_rows_of_present_keys(table: metatable.Table) -> None:
    found = table.read_keys(rows(48, 52), columns=["id", "value"]).sort_by("id")
    assert found.to_pylist() == [{"id": "k000048", "value": 48}, {"id": "k000049", "value": 49}]


def test_a_null_and_an_empty_partition_value_name_the_same_key(
    table_uri: str, kind: tuple[str, str]
) -> None:
    table = make(table_uri, *kind)
    table.insert(rows(0, 9))
    cities: list[str | None] = [None, "", None, "", "cairo", "nowhere"]
    asked = pa.table({"id": ["k000099"] * 6, "city": pa.array(cities, pa.string())})
    stored = asked.slice(0, 1).append_column("value", pa.array([1])).append_column("note", [["n"]])
    table.insert(stored)
    there = [True] * 4 + [kind[1] == "global"] * 2
    assert [one is not None for one in told_tags(table.tag_locations(asked))] == there
    assert table.filter_exists(asked).num_rows == sum(there)
    assert table.explain(asked).found == sum(there)
    assert table.read_keys(asked).num_rows == 1
    assert table.upsert(changed_city(stored, "")).updated == 1
    assert table.delete(asked.slice(0, 4)).deleted == 1
    assert table.scan().count() == 9


def test_a_repeated_key_is_asked_for_once(table_uri: str, kind: tuple[str, str]) -> None:
    table = make(table_uri, *kind)
    table.insert(rows(0, 30))
    asked = pa.concat_tables([rows(0, 30).select(["id", "city"])] * 3)
    coded = asked.set_column(1, "city", asked["city"].dictionary_encode())
    for given in (asked, coded):
        assert table.explain(given).found == 90
        if kind[0] == "metadata_bloom":
            assert table.explain(given).counters["tag.candidates"] == 30
    assert table.explain(coded.set_column(1, "city", nulled(coded))).found == (
        90 if kind[1] == "global" else 60
    )


def nulled(given: pa.Table) -> pa.Array:
    """The cities, the first of them null, as a dictionary whose codes are null."""
    cities = [None if city == "amsterdam" else city for city in given["city"].to_pylist()]
    return pa.array(cities).dictionary_encode()


def changed_city(given: pa.Table, city: str) -> pa.Table:
    return given.set_column(1, "city", pa.array([city] * given.num_rows))


KEYS: list[tuple[pa.DataType, list[object]]] = [
    (pa.int64(), [-5, 0, 7, 1 << 60]),
    (pa.int8(), [-5, 0, 7, 100]),
    (
        pa.date32(),
        [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 1, 1)],
    ),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    ),
    (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-0.01"), Decimal("0.00")]),
    (pa.binary(), [b"\x00\xff", b"abc"]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["plain", "\u00fcml\u00e4ut", "\U0001f600", "a\x00b", "x" * 300]),
]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(("type_", "values"), KEYS, ids=[str(one[0]) for one in KEYS])
def test_keys_of_every_type_are_found_again(
    tmp_path: Path, index: str, type_: pa.DataType, values: list[object]
) -> None:
    schema = pa.schema([("key", type_), ("value", pa.int32())])
    table = metatable.create(tmp_path / "t", schema, key="key", index=index)
    given = pa.table([pa.array(values, type_), range(len(values))], schema=schema)
    table.insert(given)
    assert table.tag_locations(given)["_location"].null_count == 0
    assert table.upsert(given).updated == len(values)
    assert table.scan().count() == len(values)


@pytest.mark.parametrize("index", INDEXES)
def test_composite_keys_tell_their_parts_apart(tmp_path: Path, index: str) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("value", pa.int32())])
    table = metatable.create(tmp_path / "t", schema, key=["a", "b"], index=index)
    given = pa.table({"a": ["x", "x", "y"], "b": [1, 2, 1], "value": [1, 2, 3]}, schema=schema)
    table.insert(given)
    asked = pa.table({"a": ["x", "y", "y"], "b": pa.array([2, 2, 1], pa.int32())})
    assert [place is not None for place in told_tags(table.tag_locations(asked))] == [
        True,
        False,
        True,
    ]


def test_a_pandas_frame_keeps_working_as_rows(table_uri: str) -> None:
    table = make(table_uri, "record", "global")
    frame = pd.DataFrame(
        {"id": ["a", "b"], "city": ["cairo", "berlin"], "value": [1, 2], "note": ["x", None]}
    )
    assert table.insert(frame).inserted == 2
    assert table.scan().to_arrow().sort_by("id")["note"].to_pylist() == ["x", None]


def test_a_file_without_key_bounds_may_hold_every_key() -> None:
    keys = pa.array(["a", "b", "c", "d"])
    minimum, maximum = pa.array([None, "b", None, "e"]), pa.array([None, "c", "z", None])
    first, last = key_slices(keys, minimum, maximum)
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == [(0, 4), (1, 3), (0, 4), (0, 4)]


def test_a_group_that_the_record_index_names_and_that_is_not_there_is_told(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 9))
    monkeypatch.setattr(record, "current_slices", lambda *given: [None] * len(given[1]))
    with pytest.raises(CorruptError, match="index names a file group that is not there"):
        table.tag_locations(rows(0, 9))


def test_an_entry_that_names_no_location_is_told(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record", "global", buckets={"record_index": 1})
    table.insert(rows(0, 9))
    all_but_last = record_index._locations
    monkeypatch.setattr(record_index, "_locations", lambda reader: all_but_last(reader)[:-1])
    with pytest.raises(CorruptError, match="entry names no location"):
        table.tag_locations(rows(0, 9))
