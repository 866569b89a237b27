"""The rules of writing: key scope, moves, duplicates, ordering, insert against upsert, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable import col
from metatable.metadata.partitions import record_index
from metatable.storage.errors import UsageError

pytestmark = pytest.mark.in_turn("index")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("at", pa.int64()),
        pa.field("value", pa.string()),
    ]
)
INDEXES = ("record", "metadata_bloom")


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _create(path: Path, index: str, scope: str, ordering: str | None = None) -> metatable.Table:
    return metatable.create(
        path / "table",
        SCHEMA,
        key="id",
        partition_by="city",
        ordering=ordering,
        index=index,
        options={"key_scope": scope, "file_rows": 3, "small_file_bytes": 0},
        storage_options={"durable": "false"},
    )


def _rows(*rows: tuple[Any, ...]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 4
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _held(table: metatable.Table) -> list[tuple[Any, ...]]:
    assert table.verify().findings == ()
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def test_scope_defaults_to_global_for_record_and_partition_for_others(tmp_path: Path) -> None:
    for index, scope in (
        ("record", "global"),
        ("metadata_bloom", "partition"),
        ("bloom", "partition"),
    ):
        table = metatable.create(tmp_path / index, SCHEMA, key="id", index=index)
        assert table.options.key_scope == scope


def test_partition_scope_keeps_one_row_a_partition(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "partition")
    table.insert(_rows(("a", "x", 1, "one")))
    result = table.upsert(_rows(("a", "y", 2, "two")))
    assert (result.inserted, result.updated, result.moved) == (1, 0, 0)
    assert _held(table) == [("a", "x", 1, "one"), ("a", "y", 2, "two")]


def test_global_scope_moves_a_key_to_its_new_partition_in_one_commit(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(("a", "x", 1, "one"), ("b", "x", 1, "stays")))
    version = table.version
    result = table.upsert(_rows(("a", "y", 2, "two")))
    assert (result.inserted, result.updated, result.moved, result.deleted) == (0, 0, 1, 0)
    assert table.version == version + 1
    assert _held(table) == [("a", "y", 2, "two"), ("b", "x", 1, "stays")]
    assert table.upsert(_rows(("a", "x", 3, "back"))).moved == 1
    assert _held(table) == [("a", "x", 3, "back"), ("b", "x", 1, "stays")]


def test_a_row_may_move_while_others_take_its_place(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(("a", "x", 1, ""), ("b", "y", 1, "")))
    table.upsert(_rows(("a", "y", 2, ""), ("b", "x", 2, ""), ("c", "x", 2, "")))
    assert _held(table) == [("a", "y", 2, ""), ("b", "x", 2, ""), ("c", "x", 2, "")]


def test_the_greatest_of_a_batch_wins_ties_go_to_the_later_row_null_is_lowest(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "global", ordering="at")
    table.upsert(
        _rows(
            ("a", "x", 5, "greatest"),
            ("a", "x", 4, "later but less"),
            ("b", "x", 1, "first of a tie"),
            ("b", "x", 1, "second of a tie"),
            ("c", "x", None, "null"),
            ("c", "x", -9, "not null"),
        )
    )
    assert _held(table) == [
        ("a", "x", 5, "greatest"),
        ("b", "x", 1, "second of a tie"),
        ("c", "x", -9, "not null"),
    ]


def test_against_stored_rows_an_older_one_loses_and_an_equal_one_replaces(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "global", ordering="at")
    table.insert(
        _rows(("a", "x", 5, "stored"), ("b", "x", 5, "stored"), ("c", "x", None, "stored"))
    )
    result = table.upsert(
        _rows(("a", "x", 4, "older"), ("b", "x", 5, "equal"), ("c", "x", -1, "not null"))
    )
    assert (result.updated, result.stale) == (2, 1)
    told = table.history(1)[0].summary
    assert (told["updated"], told["stale"]) == (2, 1)
    assert _held(table) == [
        ("a", "x", 5, "stored"),
        ("b", "x", 5, "equal"),
        ("c", "x", -1, "not null"),
    ]


def test_an_older_row_does_not_move_its_key(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global", ordering="at")
    table.insert(_rows(("a", "x", 5, "stored"), ("b", "x", 5, "stored")))
    result = table.upsert(
        _rows(("a", "y", 4, "older"), ("b", "y", 6, "newer"), ("n", "y", 1, "new"))
    )
    assert (result.stale, result.moved, result.inserted) == (1, 1, 1)
    assert _held(table) == [("a", "x", 5, "stored"), ("b", "y", 6, "newer"), ("n", "y", 1, "new")]


def _files(table: metatable.Table) -> set[str]:
    return {str(one) for one in Path(table.uri).rglob("*") if one.is_file()}


@pytest.mark.parametrize("scope", ["partition", "global"])
def test_stale_rows_alone_write_no_file_and_make_no_version(
    tmp_path: Path, index: str, scope: str
) -> None:
    table = _create(tmp_path, index, scope, ordering="at")
    table.insert(_rows(("a", "x", 5, "stored"), ("b", "y", 5, "stored")))
    before, version, held = _files(table), table.version, _held(table)
    result = table.upsert(_rows(("a", "x", 4, "older"), ("b", "y", None, "null is older")))
    assert (result.stale, result.updated, result.inserted, result.files) == (2, 0, 0, 0)
    assert (result.version, result.instant) == (version, None)
    if scope == "global":
        assert table.upsert(_rows(("a", "y", 4, "older"))).stale == 1
    assert _files(table) == before
    assert table.version == version
    assert _held(table) == held


@pytest.mark.parametrize("scope", ["partition", "global"])
def test_a_group_that_only_stale_rows_name_is_not_rewritten(
    tmp_path: Path, index: str, scope: str
) -> None:
    table = _create(tmp_path, index, scope, ordering="at")
    table.insert(_rows(("a", "x", 5, "stored"), ("b", "y", 5, "stored"), ("a1", "x", 5, "")))
    kept = {file.path for file in table.scan().files() if "city=x" in file.path}
    result = table.upsert(
        _rows(("a", "x", 4, "older"), ("b", "y", 6, "newer"), ("c", "z", 1, "new"))
    )
    assert (result.stale, result.updated, result.inserted, result.files) == (1, 1, 1, 2)
    assert kept <= {file.path for file in table.scan().files()}
    assert ("a", "x", 5, "stored") in _held(table)
    if scope == "partition":  # the same key elsewhere is another row
        table.upsert(_rows(("a", "y", 9, "other")))
        result = table.upsert(_rows(("a", "y", 8, "older"), ("a", "x", 8, "newer")))
        assert (result.stale, result.updated, result.files) == (1, 1, 1)


def test_rows_newer_than_all_of_a_file_are_not_held_against_it(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global", ordering="at")
    table.insert(
        _rows(("a", "x", 5, ""), ("b", "x", 7, ""), ("c", "y", None, ""), ("d", "y", 2, ""))
    )

    def opened(*rows: tuple[Any, ...]) -> int:
        result = table.upsert(_rows(*rows))
        assert (result.updated, result.stale) == (len(rows), 0)
        return result.counters["data.files_opened"]

    judged = opened(("a", "x", 6, ""))
    plain = opened(("a", "x", 7, ""))
    assert judged == plain + 1, "a row of the file may be newer"
    assert opened(("c", "y", 2, ""), ("d", "y", 9, "")) == plain
    assert opened(("c", "y", 9, "")) == plain
    assert table.upsert(_rows(("c", "y", None, ""))).stale == 1


def test_duplicates_in_a_batch_without_an_ordering_are_named(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global")
    twice = [(f"k{n}", "x", 1, "") for n in range(8)] * 2
    with pytest.raises(UsageError, match="repeat") as caught:
        table.upsert(_rows(*twice, ("single", "x", 1, "")))
    assert caught.value.facts["keys"] == ["k0", "k1", "k2", "k3", "k4"]
    assert table.version == 1


def test_the_same_key_in_two_partitions_is_a_duplicate_in_global_scope_only(
    tmp_path: Path, index: str
) -> None:
    both = _rows(("a", "x", 1, ""), ("a", "y", 1, ""))
    with pytest.raises(UsageError, match="repeat"):
        _create(tmp_path / "global", index, "global").upsert(both)
    assert _create(tmp_path / "partition", index, "partition").upsert(both).inserted == 2


def test_insert_refuses_existing_keys_and_names_five(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(*[(f"k{n}", "x", 1, "") for n in range(7)]))
    with pytest.raises(UsageError, match="use upsert") as caught:
        table.insert(_rows(*[(f"k{n}", "y", 2, "") for n in range(9)]))
    assert caught.value.facts["keys"] == ["k0", "k1", "k2", "k3", "k4"]
    assert table.version == 2


def test_delete_takes_key_columns_ignores_others_and_counts_absent_keys(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(*[(f"k{n}", "xyz"[n % 3], 1, "") for n in range(9)]))
    given = pa.table({"id": ["k1", "k4", "nobody", "k1"], "unknown": [1, 2, 3, 4]})
    result = table.delete(given)
    assert (result.deleted, result.absent) == (2, 1)
    assert len(_held(table)) == 7


def test_delete_in_partition_scope_needs_the_partition_and_spares_the_others(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "partition")
    table.insert(_rows(("a", "x", 1, ""), ("a", "y", 1, "")))
    with pytest.raises(UsageError, match="column='city'"):
        table.delete(pa.table({"id": ["a"]}))
    result = table.delete(pa.table({"id": ["a"], "city": ["x"]}))
    assert (result.deleted, result.absent) == (1, 0)
    assert _held(table) == [("a", "y", 1, "")]


def test_a_delete_of_absent_keys_is_no_commit(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(("a", "x", 1, "")))
    result = table.delete(pa.table({"id": ["b", "c"]}))
    assert (result.absent, result.version, result.instant) == (2, 2, None)
    assert table.version == 2


def test_deleted_keys_come_back_by_insert(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(("a", "x", 1, "one")))
    table.delete(pa.table({"id": ["a"]}))
    assert _held(table) == []
    assert table.insert(_rows(("a", "y", 2, "two"))).inserted == 1
    assert _held(table) == [("a", "y", 2, "two")]


def test_missing_nullable_columns_become_null_and_narrow_types_widen(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "global")
    table.upsert(pa.table({"city": ["x"], "id": ["a"], "at": pa.array([7], pa.int16())}))
    assert _held(table) == [("a", "x", 7, None)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"id": ["a"], "city": ["x"], "colour": [1]}, "colour"),
        ({"id": ["a"], "city": ["x"], "at": ["not a number"]}, "at"),
        ({"city": ["x"], "at": [1]}, "id"),
        ({"id": [None], "city": ["x"]}, "id"),
    ],
    ids=["extra", "wrong type", "no key", "null key"],
)
def test_rows_that_do_not_fit_are_refused_by_column(
    tmp_path: Path, index: str, given: dict[str, Any], named: str
) -> None:
    table = _create(tmp_path, index, "global")
    with pytest.raises(UsageError, match=named):
        table.upsert(pa.table(given))
    assert table.version == 1


def test_empty_input_is_no_commit(tmp_path: Path, index: str) -> None:
    table = _create(tmp_path, index, "global")
    for verb in (table.insert, table.upsert, table.delete):
        assert verb(_rows()).version == 1


def test_a_key_that_moves_twice_is_where_it_went_last_after_compaction(
    tmp_path: Path, index: str
) -> None:
    table = _create(tmp_path, index, "global")
    table.insert(_rows(("a", "x", 1, "")))
    for city in ("y", "z", "x", "z"):
        table.upsert(_rows(("a", city, 1, "")))
        table.compact()
    table.compact(major=True)
    assert _held(table) == [("a", "z", 1, "")]


def test_memory_stores_hold_tables_too(index: str) -> None:
    uri = f"memory://rules-{index}"
    table = metatable.create(uri, SCHEMA, key="id", partition_by="city", index=index)
    table.insert(_rows(("a", "x", 1, ""), ("b", "y", 1, "")))
    table.delete(pa.table({"id": ["a"], "city": ["x"]}))
    assert _held(metatable.open(uri)) == [("b", "y", 1, "")]
    table.rollback()
    assert len(_held(table)) == 2


def test_a_key_that_the_index_takes_for_another_one_is_a_miss_and_no_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keys of one hash: the row is stored, and counted for what it is."""
    plain = record_index.record_key_hash
    same = pc.replace_substring

    def colliding(keys: pa.Array, salts: tuple[int, int]) -> pa.Array:
        return plain(same(keys, "twin", "a"), salts)

    monkeypatch.setattr(record_index, "record_key_hash", colliding)
    table = _create(tmp_path, "record", "global")
    table.insert(_rows(("a", "x", 1, "first"), ("b", "x", 1, "")))
    result = table.upsert(_rows(("twin", "x", 2, "second"), ("b", "x", 2, "")))
    assert (result.index_misses, result.inserted, result.updated) == (1, 0, 1)
    held = sorted(row["id"] for row in table.scan().to_arrow().to_pylist())
    assert held == ["a", "b", "twin"]


@pytest.mark.both_table_types
def test_binaries_of_a_fixed_size_longer_than_any_bound_are_kept(table_uri: str) -> None:
    schema = pa.schema([("id", pa.string()), ("sig", pa.binary(96))])
    held = {f"k{n}": bytes([n]) * 96 for n in range(4)} | {"last": b"\xff" * 96, "none": None}
    table = metatable.create(
        table_uri, schema, key="id", options={"file_rows": 2}, storage_options={"durable": "false"}
    )
    table.insert(pa.table([pa.array(held), pa.array(held.values())], schema=schema))
    held |= {"k1": b"\1" * 95 + b"\2", "new": bytes(96)}
    changed = {key: held[key] for key in ("k1", "new")}
    table.upsert(pa.table([pa.array(changed), pa.array(changed.values())], schema=schema))

    def found(**how: Any) -> dict[str, Any]:
        return {row["id"]: row["sig"] for row in table.scan(**how).to_arrow().to_pylist()}

    assert table.verify().findings == ()
    assert found() == held
    assert found(where=[("sig", "=", held["k1"])]) == {"k1": held["k1"]}
    assert found(where=[("sig", ">", bytes([3]) * 96)]) == {"last": held["last"]}
    assert found(where=col("sig").is_null()) == {"none": None}
    table.alter(metatable.WidenColumn("sig", pa.binary()))
    assert table.verify().findings == ()
    assert found(where=[("sig", "<", bytes([1]))]) == {"k0": held["k0"], "new": bytes(96)}
