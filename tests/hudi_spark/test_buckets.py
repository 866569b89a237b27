"""BUCKET on both sides: Hudi puts a key where our code says, and finds the groups that we made."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable.data.config.options import Options
from metatable.data.keys.keygen import KeyGenerator
from metatable.index.bucket.simple import bucket_numbers, file_id_of
from metatable.storage.arrays import Int64s
from tests.hudi_spark.histories import FAST, Kind, rows
from tests.hudi_spark.session import HudiOnSpark
from tests.hudi_spark.writing import (
    BUCKETS,
    check_that_it_is_refused,
    options_for,
    writer_options,
)
from tests.model import arrow, listed, scanned

COUNT = 7

DAY, MOMENT = date(1969, 12, 1), datetime(1969, 12, 31, 23, tzinfo=UTC)
NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), *range(1000, 1060)]
LONG_NUMBERS = [*NUMBERS, 2**63 - 1, -(2**63), *range(10**15, 10**15 + 40)]
TEXTS = [
    *(f"k{number:04}" for number in range(60)),
    *("a", "A", " ", "a b", "a,b", "é", "日本", "\U0001f600", "\U0010ffff\ue000", "x" * 500),
]
"""Without colons, which versions of Hudi see differently: below."""

ONE_COLUMN: dict[str, pa.Array] = {
    "string": pa.array(TEXTS),
    "int": pa.array(NUMBERS, pa.int32()),
    "long": pa.array(LONG_NUMBERS, pa.int64()),
    "bool": pa.array([True, False]),
    "date": pa.array([DAY + timedelta(days=number) for number in range(60)]),
    "timestamp": pa.array(
        [MOMENT + timedelta(minutes=number, microseconds=number) for number in range(90)],
        pa.timestamp("us", "UTC"),
    ),
    "decimal": pa.array([Decimal(number - 40) / 100 for number in range(90)], pa.decimal128(9, 2)),
}
PLAIN_TEXTS = [word for word in TEXTS if "," not in word]
COMPOSITE: dict[str, dict[str, pa.Array]] = {
    "string-int": {
        "a": pa.array(PLAIN_TEXTS),
        "b": pa.array(NUMBERS[: len(PLAIN_TEXTS)] + [7] * len(PLAIN_TEXTS))[: len(PLAIN_TEXTS)],
    },
    "int-date-string": {
        "b": pa.array(range(-30, 30), pa.int32()),
        "c": pa.array([DAY + timedelta(days=number % 9) for number in range(60)]),
        "a": pa.array(PLAIN_TEXTS[:60]),
    },
}


def with_values(keys: dict[str, pa.Array]) -> pa.Table:
    """The keys' columns, then `v`, `ts` and a column to partition by."""
    count = len(next(iter(keys.values())))
    cities = [("ny", "sf", "la")[number % 3] for number in range(count)]
    more = {"v": pa.array(range(count)), "ts": pa.array([1] * count), "city": pa.array(cities)}
    return pa.table(keys | more)


def ours(found: pa.Table, key: tuple[str, ...]) -> tuple[pa.Array, Int64s]:
    """Record keys and bucket numbers of rows, as our code makes them of the key's columns."""
    options = Options.create("t", found.schema.names, key=key, index="bucket")
    [batch] = found.select(list(key)).combine_chunks().to_batches()
    keys = KeyGenerator(options).record_keys(batch)
    return keys, bucket_numbers(keys, key, COUNT)


def theirs(found: pa.Table) -> list[int]:
    """The number of the bucket in which Hudi has put each row."""
    return [int(name[:8]) for name in found["_hoodie_file_name"].to_pylist()]


def bucketed(
    hudi: HudiOnSpark, uri: str, keys: dict[str, pa.Array], *by: str, **more: str
) -> pa.Table:
    """What Hudi reads of a table that it made of these keys, in COUNT buckets a partition."""
    options = writer_options("t", tuple(keys), by, **more) | BUCKETS
    options["hoodie.bucket.index.num.buckets"] = str(COUNT)
    given = with_values(keys)
    hudi.write(given, uri, options)
    found = hudi.read(uri)
    assert found.num_rows == given.num_rows
    return found


def check_places(found: pa.Table, key: tuple[str, ...]) -> None:
    """Hudi's key texts are ours, and so are its buckets; one file group each."""
    keys, buckets = ours(found, key)
    assert found["_hoodie_record_key"].to_pylist() == keys.to_pylist()
    assert theirs(found) == buckets.tolist()
    groups = set(zip(found["_hoodie_partition_path"].to_pylist(), buckets, strict=True))
    assert len(set(found["_hoodie_file_name"].to_pylist())) == len(groups)


@pytest.mark.parametrize("kind", ONE_COLUMN)
def test_hudi_puts_a_key_of_one_column_where_our_code_says(
    hudi: HudiOnSpark, table_uri: str, kind: str
) -> None:
    check_places(bucketed(hudi, table_uri, {"id": ONE_COLUMN[kind]}), ("id",))


@pytest.mark.parametrize("kind", COMPOSITE)
@pytest.mark.parametrize("by", [(), ("city",)], ids=["whole", "partitioned"])
def test_hudi_puts_a_key_of_several_columns_where_our_code_says(
    hudi: HudiOnSpark, table_uri: str, kind: str, by: tuple[str, ...]
) -> None:
    keys = COMPOSITE[kind]
    check_places(bucketed(hudi, table_uri, keys, *by), tuple(keys))


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_hudi_s_other_ways_to_write_use_the_same_buckets(
    hudi: HudiOnSpark, table_uri: str, operation: str
) -> None:
    more = {"hoodie__datasource__write__operation": operation}
    found = bucketed(hudi, table_uri, {"id": ONE_COLUMN["string"]}, "city", **more)
    check_places(found, ("id",))
    assert set(found["_hoodie_partition_path"].to_pylist()) == {"city=ny", "city=sf", "city=la"}


def test_a_key_of_one_column_is_whole_in_1_x(hudi: HudiOnSpark, table_uri: str) -> None:
    """In a text with a colon 0.15.0 looks for `id:`; where there is none it hashes nothing."""
    found = bucketed(hudi, table_uri, {"id": pa.array(["a:b", "http://x/y", "a:", "a:b,c:d"])})
    if hudi.is_old:
        assert set(theirs(found)) == {1}, "the hash of an empty list"
    else:
        check_places(found, ("id",))


def test_a_comma_is_part_of_the_text_around_it_in_1_x(hudi: HudiOnSpark, table_uri: str) -> None:
    found = bucketed(hudi, table_uri, {"a": pa.array(["x,y", "x,"]), "b": pa.array([1, 2])})
    if hudi.is_old:
        assert theirs(found) != ours(found, ("a", "b"))[1].tolist()
    else:
        check_places(found, ("a", "b"))


def test_a_comma_and_a_colon_behind_it_begin_another_part_for_hudi(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    """Of `a:x,z:y,b:1` all versions hash x and 1; we hash `x,z:y` and 1, which is what was given.

    So this is a table that Hudi and we do not divide alike.
    """
    found = bucketed(hudi, table_uri, {"a": pa.array(["x,z:y"]), "b": pa.array([1])})
    keys, numbers = ours(found, ("a", "b"))
    assert found["_hoodie_record_key"].to_pylist() == keys.to_pylist() == ["a:x,z:y,b:1"]
    cut = bucket_numbers(pa.array(["a:x,b:1"]), ("a", "b"), COUNT)
    assert theirs(found) == cut.tolist()
    assert theirs(found) != numbers.tolist()


# Tables of ours


def groups_of(uri: str, hudi: HudiOnSpark) -> dict[tuple[str, str], str]:
    """(partition path, record key) -> file id, as Hudi reads it. A key is there once."""
    found = hudi.read(uri)
    keys = zip(
        found["_hoodie_partition_path"].to_pylist(),
        found["_hoodie_record_key"].to_pylist(),
        strict=True,
    )
    counted = Counter(keys)
    assert {key: count for key, count in counted.items() if count > 1} == {}
    names = found["_hoodie_file_name"].to_pylist()
    return {key: name.partition("_")[0] for key, name in zip(counted, names, strict=True)}


def in_our_buckets(**more: str) -> dict[str, str]:
    """Of a writer that must find the groups of `Kind("bucket")`."""
    return BUCKETS | {"hoodie.bucket.index.num.buckets": "4"} | more


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("by", [("city",), ()], ids=["partitioned", "whole"])
def test_hudi_writes_into_the_groups_that_we_made(
    hudi: HudiOnSpark, table_uri: str, by: tuple[str, ...], operation: str
) -> None:
    kind = Kind("bucket", partition_by=by)
    table, model = kind.create(table_uri), kind.model
    for given in (rows(0, 60), rows(40, 80, 1)):
        table.upsert(arrow(given))
        model.upsert(given)
    before = groups_of(table_uri, hudi)
    assert set(before.values()) == {file_id_of(bucket) for bucket in range(4)}
    properties = Path(table_uri, ".hoodie", "hoodie.properties").read_bytes()
    theirs = [*rows(20, 50, 5), *([] if operation == "delete" else rows(80, 120, 5))]
    options = options_for(table, hoodie__datasource__write__operation=operation)
    hudi.write(arrow(theirs), table_uri, options | in_our_buckets())
    (model.delete if operation == "delete" else model.upsert)(theirs)
    assert listed(hudi.read(table_uri).to_pylist()) == model.listed()
    after = groups_of(table_uri, hudi)
    assert {key: group for key, group in after.items() if key in before} == {
        key: group for key, group in before.items() if key in after
    }
    assert set(after.values()) == set(before.values())
    numbers = bucket_numbers(pa.array([key for _, key in after]), ["id"], 4)
    assert list(after.values()) == [file_id_of(number) for number in numbers.tolist()]
    assert Path(table_uri, ".hoodie", "hoodie.properties").read_bytes() == properties
    check_that_it_is_refused(table, rows(0, 1, 9), "another writer has committed to this table")


def test_hudi_writes_into_our_groups_by_keys_of_several_columns(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    given = with_values(COMPOSITE["int-date-string"])
    table = metatable.create(
        table_uri,
        given.schema,
        key=("b", "c", "a"),
        partition_by="city",
        ordering="ts",
        index="bucket",
        options={"bucket_count": COUNT},
        storage_options=FAST,
    )
    table.insert(given.slice(0, 40))
    before = groups_of(table_uri, hudi)
    count = {"hoodie.bucket.index.num.buckets": str(COUNT)}
    hudi.write(given.slice(20), table_uri, options_for(table) | BUCKETS | count)
    after = groups_of(table_uri, hudi)
    assert len(before) == 40
    assert len(after) == given.num_rows
    assert {key: after[key] for key in before} == before
    check_places(hudi.read(table_uri), table.options.key)


def test_a_bucket_that_hudi_opens_in_our_table_has_our_number(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    """Its id is not ours: eight digits of the number, and chance behind them."""
    table = Kind("bucket").create(table_uri)
    table.insert(arrow(rows(0, 4)))
    before = groups_of(table_uri, hudi)
    options = options_for(table) | in_our_buckets()
    hudi.write(arrow([*rows(0, 60, 1), *rows(60, 90, 1, "la")]), table_uri, options)
    after = groups_of(table_uri, hudi)
    assert {key: after[key] for key in before} == before
    numbers = bucket_numbers(pa.array([key for _, key in after]), ["id"], 4)
    assert [int(group[:8]) for group in after.values()] == numbers.tolist()
    opened = {(path, group) for (path, _), group in after.items()}
    assert len(opened) == 12, "four buckets in each of three partitions"
    assert any(group not in {file_id_of(bucket) for bucket in range(4)} for _, group in opened)


def test_with_another_number_of_buckets_hudi_writes_keys_a_second_time(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    """Nothing in a Hudi table says how many there are: who writes has to know."""
    table = Kind("bucket", partition_by=()).create(table_uri)
    table.insert(arrow(rows(0, 40)))
    wrong = in_our_buckets() | {"hoodie.bucket.index.num.buckets": "8"}
    hudi.write(arrow(rows(0, 40, 1)), table_uri, options_for(table) | wrong)
    counted = Counter(hudi.read(table_uri)["id"].to_pylist())
    assert len(counted) == 40
    assert set(counted.values()) == {1, 2}
    assert len(scanned(table)) == 40
