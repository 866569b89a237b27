"""Tables that say by which columns new files are cut, and small ones filled."""

from __future__ import annotations

import random
import uuid
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable import DropColumn, RenameColumn, Table, UsageError
from tests.compaction.test_cluster import bounds
from tests.index.test_buckets import FAST
from tests.model import SCHEMA, Model, Row, arrow, check

CITIES = ("ny", "sf")


def made(uri: str, *by: str, index: str = "record", **changed: Any) -> tuple[Table, Model]:
    given = {"key": "id", "partition_by": "city", "ordering": "ts", "index": index} | changed
    options = {"file_rows": 40, **given.pop("options", {})}
    table = metatable.create(
        uri, SCHEMA, cluster_by=by, options=options, storage_options=FAST, **given
    )
    assert metatable.open(uri).options.cluster_by == by
    return table, Model(is_global=table.options.is_global, ordering=True)


def rows(values: list[int], seed: int = 0, ts: int = 1, cities: tuple[str, ...] = ("ny",)) -> Any:
    """Random keys; `v` is these values, in no order."""
    draw = random.Random(seed)
    shuffled = draw.sample(values, len(values))
    return [
        {
            "id": str(uuid.UUID(int=draw.getrandbits(128))),
            "city": cities[at % len(cities)],
            "v": v,
            "ts": ts,
        }
        for at, v in enumerate(shuffled)
    ]


def upsert(table: Table, model: Model, given: list[Row]) -> Any:
    model.upsert(given)
    return table.upsert(arrow(given))


def test_new_files_hold_a_range_and_small_ones_are_filled_within_theirs(table_uri: str) -> None:
    table, model = made(table_uri, "v", index="metadata_bloom")
    upsert(table, model, rows([*range(0, 600, 6)]))
    before = bounds(table, "v")
    assert len(before) == 3, "of a third each"
    assert all(low > high for (_, high), (low, _) in pairwise(before))
    upsert(table, model, rows([*range(1, 600, 40)], 1))
    after = bounds(table, "v")
    assert len(after) == len(before), "all of them had room"
    assert table.describe().depths == {"v": 1.0}
    assert all(low > high for (_, high), (low, _) in pairwise(after))
    upsert(table, model, rows([*range(600, 640)], 2))  # behind all: the last has some room
    assert table.describe().depths == {"v": 1.0}
    assert len(bounds(table, "v")) <= len(after) + 2
    upsert(table, model, rows([*range(2, 600, 3)], 3))  # more than there is room for
    assert max(one.row_count or 0 for one in table.files()) <= 40
    assert 1.5 < table.describe().depths["v"] < 3
    check(table, model)
    assert "to cut by v" in next(one for one in table.due() if one.service == "cluster").reason
    table.cluster()
    assert "cluster" not in {one.service for one in table.due()}
    assert table.describe().depths == {"v": 1.0}
    check(table, model)


def test_rows_beyond_a_small_files_range_do_not_go_into_it(table_uri: str) -> None:
    """A full file lies between."""
    table, model = made(table_uri, "v", options={"file_rows": 40, "file_bytes": 1 << 30})
    upsert(table, model, rows([*range(200, 240)], 1))
    upsert(table, model, rows([*range(100, 120)]))
    upsert(table, model, rows([*range(300, 320)], 2))
    assert bounds(table, "v") == [(100, 119), (200, 239), (300, 319)]
    upsert(table, model, rows([*range(320, 330)], 3))
    assert bounds(table, "v") == [(100, 119), (200, 239), (300, 329)]
    upsert(table, model, rows([*range(210, 215)], 4))
    assert bounds(table, "v") == [(100, 119), (200, 239), (210, 214), (300, 329)]
    check(table, model)


def test_by_two_columns_each_file_holds_a_part_of_both(table_uri: str) -> None:
    table, model = made(table_uri, "v", "id", options={"small_file_bytes": 0})
    given = rows([*range(600)])
    table.insert(arrow(given))
    model.upsert(given)
    count = len(table.files())
    assert count >= 15
    depths = table.describe().depths
    assert all(1 < depth < count * 0.45 for depth in depths.values()), depths
    kept = [len(table.files([("v", ">=", at), ("v", "<", at + 30)])) for at in range(0, 600, 30)]
    assert np.mean(kept) < count * 0.45, kept
    check(table, model)
    assert table.cluster().reason.startswith("nothing to cluster")


def test_two_columns_fill_small_files_of_a_like_range(table_uri: str) -> None:
    table, model = made(table_uri, "v", "id", index="metadata_bloom")
    upsert(table, model, rows([*range(150)]))
    files = len(table.files())
    upsert(table, model, rows([*range(150)], 1)[::15])
    assert len(table.files()) <= files + 1
    check(table, model)


@pytest.mark.filterwarnings("error")
def test_columns_with_nan_have_no_greatest_value_and_are_cut_by_all_the_same(
    table_uri: str,
) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.int64())])
    table = metatable.create(
        table_uri, schema, key="id", cluster_by=["a", "b"], storage_options=FAST
    )
    for first in (0, 100):
        numbers = range(first, first + 100)
        values = [float("nan") if one % 7 == 0 else 500.0 - one for one in numbers]
        table.insert(pa.table([numbers, values, numbers], schema=schema))
    assert table.scan().count() == 200
    assert table.verify().findings == ()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_that_move_updates_and_overwrites_follow_the_columns(
    table_uri: str, table_type: str
) -> None:
    table, model = made(table_uri, "v", table_type=table_type, options={"small_file_bytes": 0})
    first = rows([*range(120)], cities=CITIES)
    upsert(table, model, first)
    moved = [one | {"city": "sf", "ts": 2} for one in first[::3]]
    told = upsert(table, model, moved + rows([*range(50)], 7, cities=CITIES))
    assert told.moved in (20, None)
    table.merge(arrow([first[1] | {"ts": 3}]).select(["id", "city", "v", "ts"]))
    model.upsert([first[1] | {"ts": 3}])
    table.delete(arrow(first[:9]))
    model.delete(first[:9])
    check(table, model, first[:20])
    given = rows([*range(90)], 8)
    table.insert_overwrite(arrow(given))
    model.overwrite(given)
    in_ny = table.scan(["v", "_hoodie_file_name"], where=[("city", "=", "ny")]).to_arrow()
    ends = in_ny.group_by("_hoodie_file_name").aggregate([("v", "min"), ("v", "max")]).to_pylist()
    ends.sort(key=lambda one: one["v_min"])
    assert len(ends) >= 3
    assert all(a["v_max"] < b["v_min"] for a, b in pairwise(ends))
    table.bulk_insert(arrow(rows([*range(200, 290)], 9)))
    model.upsert(rows([*range(200, 290)], 9))
    check(table, model)
    with pytest.raises(UsageError, match=rf"keys=\['{first[30]['id']}'\]"):
        table.insert(arrow([first[30] | {"city": "elsewhere"}]))


def test_rows_that_move_are_cut_by_the_columns_too(table_uri: str) -> None:
    table, model = made(table_uri, "v", options={"small_file_bytes": 0})
    upsert(table, model, rows([*range(120)]))
    upsert(table, model, [one | {"city": "sf", "ts": 2} for one in rows([*range(120)])])
    found = table.files([("city", "=", "sf")])
    assert [one.row_count for one in found] == [40, 40, 40]
    check(table, model)


def test_a_bulk_insert_may_ask_for_another_order(table_uri: str) -> None:
    table, _ = made(table_uri, "v")
    table.bulk_insert(arrow(rows([*range(120)])), sort_by="id")
    found = bounds(table, "id")
    assert all(a[1] < b[0] for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("by", "changed", "told"),
    [
        (("none",), {}, "no such column"),
        (("v", "v"), {}, "named twice"),
        (("v",), {"index": "bucket"}, "a bucket holds the keys of its hashes"),
        (("ts",), {"options": {"stats_columns": 2}}, "no statistics are kept"),
        (("tags",), {}, "column has no order"),
        ((), {"options": {"cluster_by": 5}}, "option of another type"),
    ],
)
def test_what_no_table_can_be_clustered_by_is_refused(
    table_uri: str, by: tuple[str, ...], changed: dict[str, Any], told: str
) -> None:
    schema = pa.schema([*SCHEMA, ("tags", pa.list_(pa.string()))])
    with pytest.raises(UsageError, match=told):
        metatable.create(table_uri, schema, key="id", cluster_by=by, **changed)


def test_its_columns_keep_their_names_and_an_index_made_anew_may_say_them(table_uri: str) -> None:
    table, _ = made(table_uri, "v")
    for change in (DropColumn("v"), RenameColumn("v", "w")):
        with pytest.raises(UsageError, match="the clustering column cannot be"):
            table.alter(change)
    again = metatable.adopt(table_uri, index="bloom")
    assert again.describe().cluster_by == ("v",)
