"""Bad input: a typed error that says what, where, expected and found; and nothing is written.

Every test compares the whole folder, names and bytes, before and after the refused call.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import metatable
from metatable.metadata.manifests.manifest import READER_FORMAT, WRITER_FORMAT
from metatable.metadata.manifests.sealed import checksum
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from metatable.write import prepare
from tests.index.rows import SCHEMA, make, rows
from tests.root_refs import root_refs

pytestmark = pytest.mark.in_turn("made")

KINDS = [("record", "global"), ("record", "partition"), ("metadata_bloom", "partition")]
FAST = {"durable": "false"}


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty keys, ten updated: two commits. Copied for every test."""
    return _made(tmp_path_factory.mktemp("made") / "table", *request.param)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the record index, for what does not depend on the index."""
    return _made(tmp_path_factory.mktemp("made") / "table", "record", "global")


@pytest.fixture
def table(made: Path, table_uri: str) -> metatable.Table:
    return metatable.open(shutil.copytree(made, table_uri), FAST)


@pytest.fixture
def one(made_once: Path, table_uri: str) -> metatable.Table:
    return metatable.open(shutil.copytree(made_once, table_uri), FAST)


def _made(folder: Path, index: str, scope: str) -> Path:
    table = make(str(folder), index, scope)
    table.insert(rows(0, 60))
    table.upsert(rows(0, 10, value=100))
    return folder


def listing(folder: str | Path) -> dict[str, str]:
    """Every file below `folder`, with a hash of its bytes."""
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextmanager
def refused(
    folder: str | Path, kind: type[metatable.MetatableError], *parts: str, **facts: Any
) -> Iterator[None]:
    """The block raises exactly `kind`, its text has `parts`, and the folder stays as it is."""
    before = listing(folder)
    with pytest.raises(kind) as raised:
        yield
    assert type(raised.value) is kind
    text = str(raised.value)
    for part in parts:
        assert part in text, text
    for name, value in facts.items():
        assert raised.value.facts[name] == value, text
    assert raised.value.facts, "says what, but neither where nor what was found"
    assert listing(folder) == before


def changed(table: pa.Table, name: str, values: Any) -> pa.Table:
    """`table` with another column in the place of `name`."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return table.set_column(table.schema.get_field_index(name), name, column)


# Rows


@pytest.mark.parametrize("verb", ["insert", "upsert", "delete", "tag_locations", "read_keys"])
def test_null_keys_are_refused(table: metatable.Table, verb: str) -> None:
    given = changed(rows(100, 103), "id", ["k1", None, "k3"])
    with refused(table.uri, metatable.UsageError, "null", "'id'"):
        getattr(table, verb)(given)


@pytest.mark.parametrize("verb", ["insert", "upsert"])
def test_empty_keys_are_refused(table: metatable.Table, verb: str) -> None:
    with refused(table.uri, metatable.UsageError, "empty"):
        getattr(table, verb)(changed(rows(100, 103), "id", ["k1", "", "k3"]))


@pytest.mark.parametrize("verb", ["insert", "upsert"])
def test_repeated_keys_without_an_ordering_are_named(table: metatable.Table, verb: str) -> None:
    given = pa.concat_tables([rows(100, 130), rows(103, 120)])
    with refused(table.uri, metatable.UsageError, "keys repeat", "ordering") as raised:
        getattr(table, verb)(given)
    assert raised is None


def test_five_repeated_keys_are_named_not_all(table: metatable.Table) -> None:
    with pytest.raises(metatable.UsageError) as raised:
        table.upsert(pa.concat_tables([rows(100, 130), rows(103, 120)]))
    named = raised.value.facts["keys"]
    assert len(named) == 5
    assert set(named) <= set(rows(103, 120)["id"].to_pylist())


def test_keys_of_equal_hashes_are_told_apart(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "xxh64", lambda column, _: np.zeros(len(column), np.uint64))
    monkeypatch.setattr(prepare, "ROWS_TOGETHER", 7)
    assert table.upsert(rows(100, 130)).inserted == 30
    with pytest.raises(metatable.UsageError, match="keys repeat"):
        table.upsert(pa.concat_tables([rows(130, 160), rows(158, 159)]))


def test_insert_of_existing_keys_names_five(table: metatable.Table) -> None:
    with refused(table.uri, metatable.UsageError, "use upsert", found="20 existing keys"):
        table.insert(rows(40, 80))
    with pytest.raises(metatable.UsageError) as raised:
        table.insert(rows(40, 80))
    assert len(raised.value.facts["keys"]) == 5
    assert set(raised.value.facts["keys"]) <= set(rows(40, 60)["id"].to_pylist())


@pytest.mark.parametrize("verb", ["insert", "upsert"])
def test_extra_columns_are_refused(table: metatable.Table, verb: str) -> None:
    given = rows(100, 103).append_column("surplus", pa.array([1, 2, 3]))
    with refused(table.uri, metatable.UsageError, "surplus"):
        getattr(table, verb)(given)


def test_a_missing_key_column_is_named(table: metatable.Table) -> None:
    for verb in ("insert", "upsert", "delete", "tag_locations", "read_keys", "explain"):
        with refused(table.uri, metatable.UsageError, "'id'"):
            getattr(table, verb)(rows(100, 103).drop_columns(["id"]))


@pytest.mark.each_once
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
@pytest.mark.parametrize("scope", ["partition", "global"])
def test_rows_without_a_key_partition_or_ordering_column_are_refused_not_filled_in(
    tmp_path: Path, index: str, scope: str
) -> None:
    table = metatable.create(
        tmp_path / "t",
        SCHEMA,
        key=["id", "value"],
        partition_by="city",
        ordering="note",
        index=index,
        options={"key_scope": scope},
        storage_options=FAST,
    )
    table.insert(rows(0, 9))
    parts = {"id": "key", "value": "key", "city": "partition", "note": "ordering"}
    for verb in ("insert", "upsert"):
        for given in (rows(0, 3), rows(100, 103), rows(0, 0)):
            for name, part in parts.items():
                message = f"the {part} column is missing"
                with refused(table.uri, metatable.UsageError, message, column=name):
                    getattr(table, verb)(given.drop_columns([name]))
    named = ["id", "value"] if scope == "global" else ["id", "value", "city"]
    for verb in ("delete", "tag_locations", "filter_exists", "read_keys", "explain"):
        for name in named:
            message = f"the {parts[name]} column is missing"
            with refused(table.uri, metatable.UsageError, message, column=name):
                getattr(table, verb)(rows(0, 3).drop_columns([name]))


@pytest.mark.parametrize("column", ["id", "note"])
def test_text_that_is_not_utf8_is_refused_before_anything_is_written(
    table: metatable.Table, column: str
) -> None:
    raw = pa.array([b"k1", b"\xff", b"k3"], pa.binary())
    bad = pa.StringArray.from_buffers(3, *raw.buffers()[1:])
    given = changed(rows(100, 103), column, bad)
    for verb in ("insert", "upsert", *(["delete", "tag_locations"] if column == "id" else [])):
        with refused(table.uri, metatable.UsageError, "not UTF-8", column=column, row=1):
            getattr(table, verb)(given)


@pytest.mark.parametrize("nested", [False, True])
def test_decimals_of_more_digits_than_their_type_are_refused(table_uri: str, nested: bool) -> None:
    narrow = pa.decimal128(5, 2)
    wide = pa.array([Decimal("1.00"), Decimal("99999.00")], pa.decimal128(12, 2))
    bad = pa.Array.from_buffers(narrow, 2, wide.buffers())
    if nested:
        bad = pa.ListArray.from_arrays([0, 1, 2], bad)
    schema = pa.schema([("id", pa.int64()), ("price", bad.type)])
    options = {"stats_columns": 1}  # bounds would show it
    table = metatable.create(table_uri, schema, key="id", options=options, storage_options=FAST)
    given = pa.table([[1, 2], bad], schema=table.schema)
    what = "decimal has more digits than its type"
    for verb in ("insert", "upsert", "merge"):
        with refused(table.uri, metatable.UsageError, what, column="price", row=1):
            getattr(table, verb)(given)
    assert table.insert(given.slice(0, 1)).inserted == 1


def test_times_beyond_a_day_are_refused(table_uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.time64("us"))])
    table = metatable.create(table_uri, schema, key="id", storage_options=FAST)
    given = duckdb.sql("SELECT 1::BIGINT id, TIME '10:00' \"at\" UNION ALL SELECT 2, TIME '24:00'")
    for verb in ("insert", "upsert", "merge"):
        what = "time is not within a day"
        with refused(table.uri, metatable.UsageError, what, column="at", row=1):
            getattr(table, verb)(given.to_arrow_table())


@pytest.mark.parametrize("scope", ["partition", "global"])
def test_keys_too_long_for_the_index_are_refused_before_a_file_is_written(
    table_uri: str, scope: str
) -> None:
    table = make(table_uri, "record", scope, record_key_form="plain")
    room = 32_767 - (0 if scope == "global" else len("city=cairo") + 1)
    given = changed(changed(rows(0, 2), "id", ["a", "b" * room]), "city", ["cairo", "cairo"])
    assert table.insert(given).inserted == 2
    given = changed(given, "id", ["c", "b" * (room + 1)])
    with refused(table.uri, metatable.UsageError, "too long", row=1, found=room + 1):
        table.upsert(given)


LOOKUPS = ("tag_locations", "filter_exists", "read_keys", "explain")
KEY, PATH = "_hoodie_record_key", "_hoodie_partition_path"


def keyed(keys: Any, paths: Any) -> pa.Table:
    """Rows with Hudi's meta columns alone, as a reader of the table has them."""
    return pa.table({KEY: keys, PATH: paths})


@pytest.fixture(params=[*KINDS, ("bucket", "partition")], ids="-".join)
def any_table(request: pytest.FixtureRequest, table_uri: str) -> metatable.Table:
    table = make(table_uri, *request.param)
    table.insert(rows(0, 6))
    return table


@pytest.mark.in_turn("verb", "any_table", one_in=3)
@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        (KEY, pa.array(["k000000", None]), "must not be null"),
        (KEY, pa.array([0, 1]), "another type"),
        (KEY, pa.array([b"k000000", b"k000001"]), "another type"),
        (PATH, pa.array(["city=amsterdam", None]), "must not be null"),
        (PATH, pa.array([0, 1]), "another type"),
    ],
    ids=["null key", "int key", "binary key", "null path", "int path"],
)
@pytest.mark.parametrize("verb", LOOKUPS)
def test_meta_columns_that_name_no_keys_are_refused(
    any_table: metatable.Table, verb: str, column: str, values: pa.Array, told: str
) -> None:
    given = changed(keyed(["k000000", "k000001"], ["city=amsterdam"] * 2), column, values)
    if column == PATH and any_table.options.is_global:
        getattr(any_table, verb)(given)  # goes by keys alone
        return
    with refused(any_table.uri, metatable.UsageError, told, column=column):
        getattr(any_table, verb)(given)


@pytest.mark.each_once
@pytest.mark.parametrize(
    "kind",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=["large", "view", "dictionary"],
)
def test_meta_columns_are_texts_of_any_layout(
    any_table: metatable.Table, kind: pa.DataType
) -> None:
    keys = ["k000000", "k000001", "k000009"]
    paths = ["city=amsterdam", "city=berlin", "city=amsterdam"]
    plain = keyed(keys, paths)
    given = plain.cast(pa.schema([(KEY, kind), (PATH, kind)]))
    for verb in ("tag_locations", "filter_exists"):
        found, expected = (getattr(any_table, verb)(one).to_pylist() for one in (given, plain))
        assert found == expected
    assert any_table.read_keys(given)["value"].to_pylist() == [0, 1]
    assert any_table.explain(given).found == any_table.explain(plain).found


def test_rows_are_looked_up_by_meta_columns_and_deleted_by_key_columns(
    any_table: metatable.Table,
) -> None:
    given = keyed(["k000000"], ["city=amsterdam"])
    given = given.append_column("id", [["k000001"]]).append_column("city", [["berlin"]])
    assert any_table.read_keys(given)["id"].to_pylist() == ["k000000"]
    assert any_table.filter_exists(given.set_column(0, KEY, [["none"]])).num_rows == 0
    assert any_table.delete(given).deleted == 1
    assert "k000001" not in any_table.scan(["id"]).to_arrow()["id"].to_pylist()


@pytest.mark.parametrize("kind", [pa.list_(pa.string_view()), pa.large_list(pa.binary_view())])
def test_lists_of_views_are_rows_like_others(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.string()), ("words", kind)])
    table = metatable.create(tmp_path / "t", schema, key="id", storage_options=FAST)
    value: Any = "word" if kind.value_type == pa.string_view() else b"word"
    words = pa.array([[value, None], None, [value * 9]], kind)
    table.upsert(pa.table({"id": ["a", "b", "c"], "words": words}))
    given = pa.table({"id": ["c", "x"], "words": words.slice(1, 2)})
    assert table.filter_exists(given)["words"].to_pylist() == [None]
    table.upsert(given.slice(0, 1))
    held = {row["id"]: row["words"] for row in table.scan().to_arrow().to_pylist()}
    assert held == {"a": [value, None], "b": None, "c": None}


@pytest.mark.parametrize("index", ["record", "metadata_bloom", "bucket"])
def test_categories_of_any_library_are_texts(tmp_path: Path, index: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    table = metatable.create(
        tmp_path / "t", schema, key=["id", "city"], index=index, storage_options=FAST
    )
    days = [  # of each, pandas has so many bits as its own cities need
        pd.DataFrame({"id": range(100), "city": pd.Categorical([f"{day}-{n}" for n in range(100)])})
        for day in range(2)
    ]
    given = pa.concat_tables([pa.Table.from_pandas(day, preserve_index=False) for day in days])
    assert given["city"].type.index_type == pa.int8()
    assert table.upsert(given.slice(50, 100)).updated in (0, None)
    assert table.filter_exists(given)["city"].to_pylist() == given["city"].to_pylist()[50:150]
    assert table.read_keys(given).num_rows == 100
    assert table.delete(given.slice(0, 100)).deleted == 50
    found = pl.from_arrow(table.scan().to_arrow()).sort("id")  # Polars' categories are views
    for kind in (pl.Categorical(), pl.Enum(found["city"].to_list())):
        known = found.with_columns(pl.col("city").cast(kind))
        assert table.filter_exists(known)["city"].to_pylist() == found["city"].to_list()
        assert table.upsert(known).inserted in (0, None)
    assert table.scan().to_arrow().num_rows == 50


def test_binaries_of_fixed_size_come_back_from_libraries_that_have_none(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.binary(4), "digest": pa.binary(2)})
    table = metatable.create(tmp_path / "t", schema, key="id", storage_options=FAST)
    table.insert(pa.table({"id": [b"aaaa", b"bbbb"], "digest": [b"12", None]}, schema))
    held = table.scan().to_arrow().select(schema.names)
    for frame in (pl.from_arrow(held), held.to_pandas(), duckdb.sql("from held")):
        assert table.upsert(frame).updated == 2
        assert table.read_keys(frame).num_rows == 2
    assert table.scan().to_arrow().select(schema.names).sort_by("id").equals(held.sort_by("id"))
    with pytest.raises(metatable.UsageError, match=r"another size.*column='id' row=1.*4 bytes"):
        table.upsert(pl.DataFrame({"id": [b"aaaa", b"bbbbb"], "digest": [b"12", b"34"]}))


@pytest.mark.parametrize("index", ["record", "metadata_bloom", "bloom", "bucket"])
def test_where_there_are_no_partitions_the_record_key_alone_tells_a_row(
    table_uri: str, index: str
) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = metatable.create(table_uri, schema, key="id", index=index)
    table.insert(pa.table([["a", "b"], [1, 2]], schema=schema))
    keys = pa.table({"_hoodie_record_key": ["b", "x"]})
    assert table.read_keys(keys)["n"].to_pylist() == [2]
    assert table.filter_exists(keys).num_rows == 1
    located = table.tag_locations(keys)["_location"].to_pylist()
    assert index == "bucket" or [one is None for one in located] == [False, True]
    both = keys.append_column("_hoodie_partition_path", pa.array(["", ""]))
    assert table.read_keys(both)["n"].to_pylist() == [2]


def test_a_record_key_without_its_partition_path_is_none(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"), "record", "partition")
    table.insert(rows(0, 3))
    held = table.scan(columns=["_hoodie_record_key", "id", "city"]).to_arrow()
    assert table.read_keys(held).num_rows == 3  # by the columns that are the table's own
    for ask in (table.read_keys, table.tag_locations, table.filter_exists, table.explain):
        with pytest.raises(metatable.UsageError) as told:
            ask(held.select(["_hoodie_record_key"]))
        assert "partition column is missing: column='_hoodie_partition_path'" in str(told.value)


def test_runs_beside_keys_are_rows_like_others(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.string(), "city": pa.string_view()})
    table = metatable.create(tmp_path / "t", schema, key="id", storage_options=FAST)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["Ulm", None]))
    rows = pa.table({"id": ["a", "b", "c"], "city": runs})
    assert table.upsert(rows.slice(0, 2)).inserted == 2
    assert table.filter_exists(rows)["city"].to_pylist() == ["Ulm", None]
    assert table.read_keys(rows).sort_by("id")["city"].to_pylist() == ["Ulm", None]


@pytest.mark.parametrize(
    ("made_by", "offset"), [(pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())]
)
def test_views_of_lists_are_lists_in_any_order(
    tmp_path: Path, made_by: Any, offset: pa.DataType
) -> None:
    offsets, sizes = pa.array([2, 0, 1, 0], offset), pa.array([2, 1, 0, 1], offset)
    words = pa.array(["a", "b", "c", "d"], pa.string_view())
    null = pa.array([False, True, False, False])
    held = made_by.from_arrays(offsets, sizes, words, mask=null)
    rows = pa.table({"id": [0, 1, 2, 3], "v": held})
    made = metatable.create(tmp_path / "t", rows.schema, key="id", storage_options=FAST)
    made.upsert(rows)
    made.upsert(rows.slice(2).append_column("s", pa.array([{"v": ["e"]}, None])), evolve=True)
    inside = pa.StructArray.from_arrays([held], ["v"])
    made.merge(pa.table({"id": [0, 1, 2, 3], "s": inside}).slice(1))
    found = made.scan().to_arrow().sort_by("id")
    assert found["v"].to_pylist() == [["c", "d"], None, [], ["a"]]
    assert found["s"].to_pylist() == [None, {"v": None}, {"v": []}, {"v": ["a"]}]


@pytest.mark.parametrize("name", ["_location", "_metatable_task", "_METATABLE_x"])
def test_columns_of_our_own_names_are_refused(tmp_path: Path, name: str) -> None:
    schema = pa.schema([("id", pa.string()), (name, pa.int64())])
    with pytest.raises(metatable.UsageError, match="taken by metatable") as raised:
        metatable.create(tmp_path / "t", schema, key="id")
    assert raised.value.facts["column"] == name
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
def test_columns_may_have_the_names_that_tasks_once_used(tmp_path: Path, index: str) -> None:
    names = ["_task", "_stale", "_path", "_size", "_keys", "bucket"]
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in names)])
    table = metatable.create(
        tmp_path / "t", schema, key="id", ordering="_stale", index=index, storage_options=FAST
    )
    given = pa.table({"id": ["a", "b", "a"], **{name: [1, 2, 3] for name in names}})
    assert table.upsert(given).inserted == 2
    assert table.upsert(given.slice(0, 1)).stale == 1
    assert table.delete(given.slice(1, 1)).deleted == 1
    assert table.tag_locations(given)["_location"].null_count == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("lease_seconds", value) for value in (float("nan"), float("inf"), 1e300, -1.0)),
        *((name, 0) for name in ("file_rows", "file_bytes", "row_group_rows")),
        *((name, 10**30) for name in ("file_rows", "file_bytes", "small_file_bytes")),
        *((name, 10**12) for name in ("row_group_rows", "hfile_block_bytes", "commit_retries")),
        ("hfile_target_bytes", 10**30),
        ("stats_columns", 10**30),
        ("filter_fpp", float("nan")),
        ("footer_bloom_fpp", float("inf")),
        *(("record_filter_fpp", value) for value in (float("nan"), 1.0, -0.01, 1e-9)),
    ],
)
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, option: str, value: float) -> None:
    with pytest.raises(metatable.UsageError, match="option out of range") as raised:
        metatable.create(tmp_path / "t", SCHEMA, key="id", options={option: value})
    assert raised.value.facts["option"] == option
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("value", ["1", "2", "3"]),
        ("value", [1.5, 2.5, 3.5]),
        ("note", [1, 2, 3]),
        ("note", [date(2020, 1, 1)] * 3),
        ("id", [1, 2, 3]),
    ],
    ids=["text for int", "float for int", "int for text", "date for text", "int for key"],
)
def test_unsafe_types_are_refused(table: metatable.Table, column: str, values: list[Any]) -> None:
    given = changed(rows(100, 103), column, values)
    with refused(table.uri, metatable.UsageError, f"'{column}'", "expected=", "found="):
        table.upsert(given)


def test_a_null_in_a_required_column_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string()), pa.field("must", pa.int64(), nullable=False)])
    table = metatable.create(tmp_path / "t", schema, key="id", storage_options=FAST)
    with refused(table.uri, metatable.UsageError, "'must'"):
        table.insert(pa.table({"id": ["a", "b"], "must": [1, None]}))
    with refused(table.uri, metatable.UsageError, "'must'"):
        table.insert(pa.table({"id": ["a", "b"]}))


@pytest.mark.parametrize("city", ["a/b", "..", ".hoodie", "a\nb"])
def test_partition_values_that_make_no_folder_are_refused(tmp_path: Path, city: str) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    table = metatable.create(
        tmp_path / "t",
        schema,
        key="id",
        partition_by="city",
        options={"hive_style": False},
        storage_options=FAST,
    )
    with refused(table.uri, metatable.UsageError, "city"):
        table.insert(pa.table({"id": ["a"], "city": [city]}))


@pytest.mark.parametrize(
    "data", [5, "rows", None, object(), [1, 2]], ids=["int", "str", "None", "object", "list"]
)
def test_what_is_no_table_of_rows_is_refused(one: metatable.Table, data: Any) -> None:
    for verb in ("insert", "upsert", "delete", "tag_locations"):
        with refused(one.uri, metatable.UsageError, "found="):
            getattr(one, verb)(data)


def test_unknown_columns_and_versions_are_refused(one: metatable.Table) -> None:
    with refused(one.uri, metatable.UsageError, "no such column", "'nope'"):
        one.scan(["id", "nope"])
    with refused(one.uri, metatable.UsageError, "no such column", "'nope'"):
        one.read_keys(rows(0, 3), ["nope"])
    for version in (0, -1, 4, 99):
        with refused(one.uri, metatable.NotFoundError, "no such version", found=version):
            one.scan(version=version)


# Schemas and options


CREATED: list[tuple[dict[str, Any], str]] = [
    ({"key": "nope"}, "'nope'"),
    ({"key": []}, "needs a key"),
    ({"key": ["id", "id"]}, "twice"),
    ({"partition_by": "nope"}, "'nope'"),
    ({"ordering": "nope"}, "'nope'"),
    ({"ordering": "tags"}, "tags"),
    ({"partition_by": "tags"}, "tags"),
    ({"index": "nope"}, "no such index"),
    ({"index": 7}, "another type"),
    ({"key": "weight"}, "weight"),
    ({"options": {"nope": 1}}, "unknown option"),
    ({"options": {"index": "record"}}, "'hudi_readable', 'key_salts'"),
    ({"options": {"key_scope": "galaxy"}}, "key_scope"),
    ({"options": {"hfile_codec": "lzma"}}, "hfile_codec"),
    ({"options": {"parquet_codec": "lzma"}}, "parquet_codec"),
    ({"options": {"filter_kind": "nope"}}, "filter"),
    ({"options": {"filter_fpp": 0}}, "filter_fpp"),
    ({"options": {"footer_bloom_fpp": 1.5}}, "footer_bloom_fpp"),
    ({"options": {"file_rows": 0}}, "file_rows"),
    ({"options": {"file_rows": "many"}}, "file_rows"),
    ({"options": {"file_rows": None}}, "file_rows"),
    ({"options": {"hive_style": "yes"}}, "hive_style"),
    ({"options": {"buckets": {"nope": 4}}}, "'nope'"),
    ({"options": {"buckets": {"files": 0}}}, "buckets.files"),
    ({"options": {"buckets": {"files": "4"}}}, "buckets"),
    ({"options": {"buckets": 4}}, "buckets"),
    ({"options": {"hfile_codecs": {"nope": "gz"}}}, "'nope'"),
    ({"options": {"hfile_codecs": {"files": "lzma"}}}, "hfile_codecs.files"),
    ({"options": {"hfile_codecs": {"files": 4}}}, "hfile_codecs"),
    ({"options": {"hfile_codecs": "gz"}}, "hfile_codecs"),
    ({"options": {"key_salts": (1, 1 << 63)}}, "key_salts"),
    ({"options": {"record_bucket_function": "java_string"}}, "contradict"),
    ({"index": "metadata_bloom", "options": {"record_key_form": "plane"}}, "record_key_form"),
]


@pytest.mark.parametrize(("given", "told"), CREATED, ids=[str(given) for given, _ in CREATED])
def test_bad_options_are_refused_and_leave_nothing(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    schema = SCHEMA.append(pa.field("weight", pa.float64()))
    schema = schema.append(pa.field("tags", pa.list_(pa.string())))
    words = {"key": "id", "partition_by": "city", "index": "record", **given}
    with refused(tmp_path, metatable.UsageError, told):
        metatable.create(tmp_path / "t", schema, storage_options=FAST, **words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "field",
    [
        pa.field("_hoodie_mine", pa.string()),
        pa.field("no-avro-name", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("odd", pa.month_day_nano_interval()),
        pa.field("wide", pa.decimal256(76, 2)),
        pa.field("lasting", pa.duration("us")),
    ],
    ids=str,
)
def test_schemas_that_hudi_could_not_read_are_refused(tmp_path: Path, field: pa.Field) -> None:
    with refused(tmp_path, metatable.UsageError, field.name):
        metatable.create(tmp_path / "t", SCHEMA.append(field), key="id", storage_options=FAST)


def test_create_where_a_table_is_refused(one: metatable.Table) -> None:
    with refused(one.uri, metatable.UsageError, "a table here already", path=one.uri):
        make(one.uri, "metadata_bloom", "partition")


def test_compact_of_unknown_names_is_refused(one: metatable.Table) -> None:
    with refused(one.uri, metatable.UsageError, "no such metadata partition", found="nope"):
        one.compact(partitions=["nope"])
    with refused(one.uri, metatable.UsageError, "no such bucket", found=99):
        one.compact(buckets=[99])


# Tables that are none, damaged, newer, or another's


VERBS: Mapping[str, Callable[[metatable.Table], Any]] = {
    "insert": lambda table: table.insert(rows(100, 103)),
    "upsert": lambda table: table.upsert(rows(0, 3)),
    "delete": lambda table: table.delete(rows(0, 3)),
    "tag_locations": lambda table: table.tag_locations(rows(0, 3)),
    "read_keys": lambda table: table.read_keys(rows(0, 3)),
    "compact": lambda table: table.compact(major=True),
    "rollback": lambda table: table.rollback(),
}
WRITERS = ("insert", "upsert", "delete", "compact", "rollback")


@pytest.mark.parametrize("there", ["nothing", "folder", "file"])
def test_a_path_that_is_no_table_is_refused(tmp_path: Path, there: str) -> None:
    place = tmp_path / "place"
    if there == "folder":
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    if there == "file":
        place.write_text("mine")
    with refused(tmp_path, metatable.NotFoundError, "there is no table here", path=str(place)):
        metatable.open(place)
    assert place.exists() == (there != "nothing")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"checksum":"0","body":{}}', "flip"])
def test_a_damaged_manifest_is_reported(one: metatable.Table, damage: bytes | str) -> None:
    path = manifest_of(one)
    raw = path.read_bytes()
    body = raw.replace(b'"upsert"', b'"upsett"') if isinstance(damage, str) else damage
    assert body != raw
    path.write_bytes(body)
    for verb in VERBS.values():
        with refused(one.uri, metatable.CorruptError, path.name):
            verb(one)
    with refused(one.uri, metatable.CorruptError, path.name):
        metatable.open(one.uri)


def test_a_missing_manifest_is_found_out_by_writers_and_by_verify(one: metatable.Table) -> None:
    """What is left is the version before it; Hudi's timeline has a commit more than that."""
    path = manifest_of(one)
    path.unlink()
    for name, verb in VERBS.items():
        if name in WRITERS:
            with refused(one.uri, metatable.CorruptError, "a version is lost", path.name):
                verb(metatable.open(one.uri, FAST))
    assert [found.code for found in one.verify().findings] == ["foreign-commit"]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_hfile_is_reported(table: metatable.Table, damage: str) -> None:
    hit = [damaged(path, damage) for path in Path(table.uri).rglob("*.hfile")]
    fresh = copied(table)
    for name, verb in VERBS.items():
        if name != "rollback":  # which reads none
            with refused(fresh, metatable.CorruptError, ".hfile"):
                verb(metatable.open(fresh, FAST))
    assert len(hit) > 4


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_a_damaged_page_is_reported(kind: tuple[str, str], damage: str, table_uri: str) -> None:
    with root_refs(0):
        table = metatable.open(_made(Path(table_uri), *kind), FAST)
    for path in Path(table.uri, ".hoodie/metatable/pages").iterdir():
        damaged(path, damage)
    fresh = copied(table)
    for name, verb in VERBS.items():
        if name != "rollback":
            with refused(fresh, metatable.CorruptError, "pages/"):
                verb(metatable.open(fresh, FAST))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_data_file_is_reported_by_whoever_reads_it(
    table: metatable.Table, damage: str
) -> None:
    for file in table.scan().files():
        damaged(Path(table.uri, file.path), damage)
    for name in ("upsert", "delete", "read_keys"):
        with refused(table.uri, metatable.CorruptError, ".parquet"):
            VERBS[name](table)
    with refused(table.uri, metatable.CorruptError, ".parquet"):
        table.scan().to_arrow()


@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_a_damaged_data_file_is_damage_also_where_others_have_committed(
    one: metatable.Table, damage: str
) -> None:
    begun, version = one.scan(), one.version
    one.upsert(rows(100, 103))
    for file in begun.files():
        damaged(Path(one.uri, file.path), damage)
    for scan in (begun, one.scan(version=version), one.scan(version=version, limit=9)):
        with refused(one.uri, metatable.CorruptError, ".parquet"):
            scan.to_arrow()


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"hoodie.table.version=x\n"])
def test_damaged_properties_are_reported(one: metatable.Table, raw: bytes) -> None:
    properties_of(one).write_bytes(raw)
    kinds = (metatable.CorruptError, metatable.UpgradeError)
    before = listing(one.uri)
    for verb in WRITERS:
        with pytest.raises(kinds, match=r"hoodie\.properties"):
            VERBS[verb](one)
    with pytest.raises(kinds, match=r"hoodie\.properties"):
        metatable.open(one.uri)
    assert listing(one.uri) == before


def test_a_newer_reader_format_is_refused_by_all(one: metatable.Table) -> None:
    newer = {"reader": READER_FORMAT + 1, "writer": WRITER_FORMAT + 1}
    reseal(one, format=newer)
    for verb in VERBS.values():
        with refused(one.uri, metatable.UpgradeError, "newer format", "upgrade metatable"):
            verb(one)
    with refused(one.uri, metatable.UpgradeError, found=newer):
        metatable.open(one.uri)


def test_a_newer_writer_format_is_read_and_not_written(one: metatable.Table) -> None:
    reseal(one, format={"reader": 1, "writer": 99})
    for name, verb in VERBS.items():
        if name in WRITERS:
            with refused(one.uri, metatable.UpgradeError, "newer format", "upgrade metatable"):
                verb(one)
    assert metatable.open(one.uri).scan().count() == 60
    assert one.tag_locations(rows(0, 3))["_location"].null_count == 0


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ({"hoodie.table.version": "8", "hoodie.timeline.layout.version": "2"}, "version 8"),
        ({"hoodie.table.version": "9", "hoodie.timeline.layout.version": "2"}, "version 9"),
        ({"hoodie.table.version": "5"}, "version 5"),
        ({"hoodie.table.metadata.partitions": "files,column_stats"}, "files,column_stats"),
        ({"hoodie.table.type": "MERGE_ON_READ"}, "COPY_ON_WRITE"),
    ],
    ids=["version 8", "version 9", "version 5", "metadata table", "merge on read"],
)
def test_a_table_that_hudi_has_changed_is_refused(
    one: metatable.Table, lines: dict[str, str], told: str
) -> None:
    announce(one, lines)
    for name in WRITERS:
        with refused(one.uri, metatable.UpgradeError, "Hudi", told):
            VERBS[name](one)
    with refused(one.uri, metatable.UpgradeError, "Hudi", told):
        metatable.open(one.uri)


@pytest.mark.parametrize("action", ["commit", "deltacommit", "replacecommit"])
def test_a_commit_of_another_writer_is_refused(one: metatable.Table, action: str) -> None:
    Path(one.uri, f".hoodie/29991231235959999.{action}").write_bytes(b"{}")
    for name in WRITERS:
        with refused(one.uri, metatable.UpgradeError, "another writer", "29991231235959999"):
            VERBS[name](one)


def test_a_hudi_table_of_others_is_refused(one: metatable.Table, tmp_path: Path) -> None:
    properties = properties_of(one).read_bytes()
    other = tmp_path / "theirs"
    (other / ".hoodie").mkdir(parents=True)
    (other / ".hoodie/hoodie.properties").write_bytes(properties)
    with refused(other, metatable.UpgradeError, "did not create", path=str(other)):
        metatable.open(other)
    with refused(other, metatable.UsageError, "a table here already"):
        make(str(other), "record", "global")


# Helpers


def manifest_of(table: metatable.Table) -> Path:
    return Path(table.uri, ".hoodie/metatable/manifest", f"{table.version:020d}.json")


def properties_of(table: metatable.Table) -> Path:
    return Path(table.uri, ".hoodie/hoodie.properties")


def reseal(table: metatable.Table, **fields: Any) -> None:
    """Change the newest manifest and seal it as a newer metatable would."""
    path = manifest_of(table)
    body = json.loads(path.read_bytes())["body"] | fields
    compact = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path.write_text(json.dumps({"checksum": checksum(compact.encode()), "body": body}))


def announce(table: metatable.Table, lines: dict[str, str]) -> None:
    """Set properties as Hudi would."""
    path = properties_of(table)
    kept = [line for line in path.read_text().splitlines() if line.split("=")[0] not in lines]
    path.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in lines.items()), ""]))


def damaged(path: Path, damage: str) -> Path:
    """A file with half of its bytes, or bytes turned over in every block, or none."""
    raw = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    else:
        for place in range(60, content_end(path, raw), 40):
            raw[place] ^= 0x55
        path.write_bytes(raw)
    return path


def content_end(path: Path, raw: bytes) -> int:
    """Where what says what the file holds begins."""
    if path.suffix == ".hfile":
        reader = HFileReader.open(Store(path.parent), path.name)
        return reader.trailer.load_on_open_data_offset
    if path.suffix == ".parquet":
        return len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    return len(raw)


def copied(table: metatable.Table) -> str:
    """The same table elsewhere: nothing of it is in this process's caches."""
    return str(Path(table.uri).rename(Path(table.uri).with_name("copy")))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_bytes_for_which_there_is_no_memory_are_not_told_as_damaged(
    table_uri: str, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    given, options = pa.table({"id": ["a", "b"], "n": [1, 2]}), {"log_format": "parquet"}
    table = metatable.create(table_uri, given.schema, key="id", table_type=table_type,
                             options=options, storage_options=FAST)  # fmt: skip
    table.upsert(given)
    table.upsert(given)

    def fails(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", fails)
    monkeypatch.setattr("metatable.data.base_files.parquet.OpenedFile", fails)
    with pytest.raises(MemoryError, match="malloc"):
        table.verify()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("_delta_log/00000000000000000007.json", "a Delta table (_delta_log/)"),
        ("_delta_log/_last_checkpoint", "a Delta table (_delta_log/)"),
        ("metadata/version-hint.text", "an Iceberg table (metadata/)"),
        ("metadata/00003-7c0e.metadata.json", "an Iceberg table (metadata/)"),
        ("metadata/v3.gz.metadata.json", "an Iceberg table (metadata/)"),
    ],
)
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_no_table_is_made_beside_one_of_another_format(
    table_uri: str, place: str, name: str, told: str
) -> None:
    uri = table_uri if place == "disk" else f"memory://{abs(hash(name))}/t"
    store = Store(uri, FAST if place == "disk" else None)
    store.put(name, b"{}")
    schema, options = pa.schema({"id": pa.int64()}), FAST if place == "disk" else None
    with pytest.raises(metatable.UsageError) as refused:
        metatable.create(uri, schema, key="id", storage_options=options)
    assert refused.value.facts["found"] == told
    assert [file.path for file in store.list("", recursive=True)] == [name]
    for way in (metatable.open, partial(metatable.adopt, index="record")):
        with pytest.raises(metatable.NotFoundError) as absent:
            way(uri, storage_options=options)
        assert absent.value.facts["found"] == told


def test_folders_that_only_have_such_names_are_no_tables(table_uri: str) -> None:
    for name in ("_delta_log/notes.txt", "metadata/city.csv", "metadata/more/a.metadata.json"):
        Store(table_uri, FAST).put(name, b"")
    metatable.create(table_uri, pa.schema({"id": pa.int64()}), key="id", storage_options=FAST)
