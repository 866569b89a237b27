"""What every index must answer, in process; and what only some of them can get wrong."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import metatable
from metatable.index.bloom_lookup import key_slices
from metatable.index.locations import LOCATION, known_locations
from metatable.index.record import RecordIndex, place_batches
from metatable.metadata.partitions import record_index
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.hfile.reader import HFileReader
from tests.index.index_contract import (
    INDEXES,
    OPENS_NO_FILE,
    IndexContract,
    Kind,
    RaceContract,
    every_other,
)
from tests.index.rows import SCHEMA, expected_tags, fitting, make, rows, told_tags


class TestHistories(RaceContract):
    """In process."""


class TestTags(IndexContract):
    """In process, where the order of rows is kept."""

    def checked(self, table: metatable.Table, asked: pa.Table, tagged: pa.Table, kind: Kind) -> int:
        expected = expected_tags(table, asked, kind[1])
        if kind[0] in OPENS_NO_FILE:
            expected = [place and (*place[:3], None) for place in expected]
        found = told_tags(tagged)
        if not self.proves(table):  # where absent keys would be is no matter here
            found = [place if there else None for place, there in zip(found, expected, strict=True)]
        assert found == expected
        return sum(place is not None for place in expected)

    def test_rows_leave_as_they_came_with_the_location_behind_them(
        self, table: metatable.Table, kind: Kind
    ) -> None:
        asked = rows(10, 40).take(pa.array([5, 5, 29, 0, 7]))
        tagged = table.tag_locations(asked)
        assert tagged.schema.names == [*SCHEMA.names, "_location"]
        assert tagged.schema.field("_location").type == LOCATION
        assert tagged.drop_columns(["_location"]).equals(asked)
        assert self.checked(table, asked, tagged, kind) == 5

    @pytest.mark.each_once
    @pytest.mark.parametrize("form", ["pandas", "polars", "reader", "batch"])
    def test_anything_arrow_like_is_tagged(
        self, table: metatable.Table, kind: Kind, form: str
    ) -> None:
        asked = rows(140, 320)
        given = {
            "pandas": asked.to_pandas,
            "polars": lambda: pl.from_arrow(asked),
            "reader": lambda: asked.to_reader(max_chunksize=17),
            "batch": lambda: asked.combine_chunks().to_batches()[0],
        }[form]()
        assert self.checked(table, asked, table.tag_locations(given), kind) == 160

    def test_what_is_no_rows_is_refused(self, table: metatable.Table) -> None:
        with pytest.raises(UsageError):
            table.tag_locations(17)

    def test_filter_exists_keeps_the_order_of_rows(self, table: metatable.Table) -> None:
        kept = table.filter_exists(rows(40, 100))
        expected = pa.concat_tables([rows(40, 50), rows(60, 70), rows(90, 100)])
        assert kept.equals(expected.combine_chunks())

    @every_other
    def test_a_repeated_key_is_asked_for_once(self, table_uri: str, kind: Kind) -> None:
        table = make(table_uri, *kind)
        table.insert(rows(0, 30))
        asked = pa.concat_tables([rows(0, 30).select(["id", "city"])] * 3)
        coded = asked.set_column(1, "city", asked["city"].dictionary_encode())
        for given in (asked, coded):
            assert table.explain(given).found == 90
            if kind[0] not in OPENS_NO_FILE:
                assert table.explain(given).counters["tag.candidates"] == 30
        assert table.explain(coded.set_column(1, "city", nulled(coded))).found == (
            90 if kind[1] == "global" else 60
        )


def nulled(given: pa.Table) -> pa.Array:
    """The cities, the first of them null, as a dictionary whose codes are null."""
    cities = [None if city == "amsterdam" else city for city in given["city"].to_pylist()]
    return pa.array(cities).dictionary_encode()


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


@pytest.mark.each_once
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(("type_", "values"), KEYS, ids=[str(one[0]) for one in KEYS])
def test_keys_of_every_type_are_found_again(
    tmp_path: Path, index: str, type_: pa.DataType, values: list[object]
) -> None:
    schema = pa.schema([("key", type_), ("value", pa.int32())])
    table = metatable.create(
        tmp_path / "t", schema, key="key", index=index, options=fitting(index, {})
    )
    given = pa.table([pa.array(values, type_), range(len(values))], schema=schema)
    table.insert(given)
    assert table.tag_locations(given)["_location"].null_count == 0
    assert table.upsert(given).updated == len(values)
    assert table.scan().count() == len(values)


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
    monkeypatch.setattr(Snapshot, "current", lambda *given: [None] * len(given[2]))
    with pytest.raises(CorruptError, match="index names a file group that is not there"):
        table.tag_locations(rows(0, 9))


def test_an_entry_that_names_no_location_is_told(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record", "global", buckets={"record_index": 1})
    table.insert(rows(0, 9))
    all_but_last = record_index._locations
    monkeypatch.setattr(record_index, "_locations", lambda reader: all_but_last(reader)[:-1])
    table.insert(rows(9, 12))
    for asked in (lambda: table.tag_locations(rows(0, 9)), lambda: table.compact(major=True)):
        with pytest.raises(CorruptError, match=r"entry names no location: path='\.hoodie/.*hfile'"):
            asked()


def test_lists_of_locations_are_decoded_once_a_lookup(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(table_uri, "record", "global", buckets={"record_index": 2})
    table.insert(rows(0, 60))
    table.insert(rows(60, 90))
    files = len(table._snapshot(None).refs("record_index"))
    decoded, decode = Counter[str](), record_index._decode_locations

    def noting(reader: HFileReader) -> list[tuple[str, str]]:
        decoded[reader.path] += 1
        return decode(reader)

    monkeypatch.setattr(record_index, "_decode_locations", noting)
    cache.clear()
    monkeypatch.setattr(cache.shared, "budget_bytes", 0)  # as where they are larger than it
    assert table.tag_locations(rows(0, 99))["_location"].null_count == 9
    assert sorted(decoded.values()) == [1] * files


def test_a_group_that_the_known_locations_lack_is_damage(tmp_path: Path) -> None:
    """As where slices are looked up: no row is told to be nowhere because of it."""
    table = make(str(tmp_path / "t"), "record", "global")
    table.insert(rows(0, 60))
    view = table._snapshot(None)
    known, asked = known_locations(view, 1024), rows(0, 70)
    assert known is not None
    assert known_locations(view, len(known) - 1) is None

    def placed(values: pa.Array) -> pa.Array:
        batches = iter(asked.to_batches())
        found = place_batches(RecordIndex.locate, view, batches, Counters(), values)
        return pa.concat_arrays([batch["_location"] for batch in found])

    told = table.tag_locations(asked)["_location"].combine_chunks()
    assert known.take(placed(known)).to_pylist() == told.to_pylist()
    assert placed(known).null_count == 10
    with pytest.raises(CorruptError, match="not there"):
        placed(known.slice(1))
