"""Buckets of the record index: a user's own function, and another number of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table, UsageError
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.manifests.pages import border
from metatable.metadata.manifests.sealed import checksum, seal
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.store import Store
from tests.index.by_customer import BY_CUSTOMER
from tests.model import SCHEMA, Model, Row, arrow, check

FAST = {"durable": "false"}


def rows(first: int, last: int, v: int = 0) -> list[Row]:
    return [
        {"id": f"c{number % 5}-{number}", "city": "ny", "v": v, "ts": None}
        for number in range(first, last)
    ]


def made(uri: str, function: str, **options: Any) -> Table:
    chosen = {"record_key_form": "plain", "record_bucket_function": function, "file_rows": 20}
    chosen |= {"buckets": {"record_index": 4}, "hfile_target_bytes": 600, **options}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options=chosen,
        storage_options=FAST,
    )


def lived(table: Table) -> Model:
    """A table that has been written, compacted and written again."""
    model = Model(is_global=True, ordering=False)
    for v, (first, last) in enumerate([(0, 40), (30, 60), (10, 20)]):
        table.upsert(arrow(rows(first, last, v)))
        model.upsert(rows(first, last, v))
        if v == 1:
            table.compact(major=True, partitions=["record_index"])
    table.delete(arrow(rows(0, 4)))
    model.delete(rows(0, 4))
    return model


def held_in(table: Table, bucket: tuple[int, int]) -> set[str]:
    """The keys in the HFiles of one bucket."""
    snapshot = snapshot_of(table)
    partition = RecordIndexPartition(table.options)
    refs = [ref for ref in snapshot.placed(partition) if (ref.lo, ref.hi) == bucket]
    batches = [batch for ref in refs for batch in snapshot.reader(ref).scan()]
    return {key.decode() for batch in batches for key in batch["key"].to_pylist()}


def snapshot_of(table: Table) -> Snapshot:
    store = Store(table.uri, FAST)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


def test_keys_that_a_function_of_a_user_puts_together_are_in_one_file(table_uri: str) -> None:
    table = made(table_uri, "by_customer")
    model = lived(table)
    check(table, model, rows(0, 70))
    table.compact(major=True, partitions=["record_index"], buckets=list(range(4)))
    check(table, model, rows(0, 70))
    partition = RecordIndexPartition(table.options)
    for number in range(4):
        lo, hi = partition.bucket(number)
        keys = held_in(table, (lo, hi))
        ours = {
            customer
            for customer in (f"c{one}" for one in range(5))
            if lo <= BY_CUSTOMER.places(pa.array([customer]), partition.space)[0] < hi
        }
        assert {key[:2] for key in keys} == ours


def test_a_function_that_nobody_registered_is_told_with_those_that_are(table_uri: str) -> None:
    with pytest.raises(UsageError, match=r"record_bucket_function.*by_custom.*java_string"):
        made(table_uri, "by_custom")
    assert not Path(table_uri).exists()


def with_buckets(table: Table, count: int) -> Table:
    """The same table, as if it had been made for another number of buckets."""
    path = Path(table.uri, version_path(table.version))
    body = json.loads(path.read_bytes())["body"]
    body["options"]["buckets"]["record_index"] = count
    path.write_bytes(seal(body))
    cache.clear()
    return metatable.open(table.uri, FAST)


@pytest.mark.each_once
@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("form", ["plain", "hash"])
def test_the_number_of_buckets_is_only_how_files_are_cut(
    table_uri: str, count: int, form: str
) -> None:
    table = made(table_uri, "xxh64", record_key_form=form)
    model = lived(table)
    table = with_buckets(table, count)
    check(table, model, rows(0, 70))
    table.upsert(arrow(rows(50, 65, 9)))
    model.upsert(rows(50, 65, 9))
    check(table, model, rows(0, 70))
    table.compact(major=True, partitions=["record_index"], buckets=[count - 1])
    check(table, model, rows(0, 70))
    table.compact(major=True, partitions=["record_index"])
    check(table, model, rows(0, 70))


@pytest.mark.usefixtures("pages_as_files")
def test_references_of_format_1_are_read_as_buckets(table_uri: str) -> None:
    table = made(table_uri, "xxh64")
    model = lived(table)
    partition = RecordIndexPartition(table.options)
    refs = snapshot_of(table).placed(partition)
    assert any(ref.lo for ref in refs)
    space, count = partition.space, partition.bucket_count
    for ref in refs:
        old = [ref.lo * count // space, ref.hi * count // space]
        assert [border(space, count, one) for one in old] == [ref.lo, ref.hi]
    _as_format_1(table, count, space)
    check(table, model, rows(0, 70))
    table.upsert(arrow(rows(60, 63, 9)))
    model.upsert(rows(60, 63, 9))
    assert {ref.space for ref in snapshot_of(table).refs("record_index")} == {0, space}
    table.compact(partitions=["record_index"])
    check(table, model, rows(0, 70))
    table.compact(major=True)
    check(table, model, rows(0, 70))
    assert {ref.space for ref in snapshot_of(table).refs("record_index")} == {space}


def _as_format_1(table: Table, count: int, space: int) -> None:
    """Write pages as format 1 had them, and all roots that name them."""
    made: dict[str, str] = {}
    for version in range(1, table.version + 1):
        root = Path(table.uri, version_path(version))
        body = json.loads(root.read_bytes())["body"]
        for page in body["pages"].get("record_index", ()):
            if page["path"] not in made:
                made[page["path"]] = _page_as_format_1(Path(table.uri, page["path"]), count, space)
            page["checksum"] = made[page["path"]]
        root.write_bytes(seal(body))
    cache.clear()


def _page_as_format_1(path: Path, count: int, space: int) -> str:
    """Its checksum, when it is written."""
    held = json.loads(path.read_bytes())["body"]
    for ref in held["refs"]:
        del ref["space"]
        ref["lo"], ref["hi"] = (ref[one] * count // space for one in ("lo", "hi"))
    sealed = seal(held)
    path.write_bytes(sealed)
    return checksum(sealed)
