"""Rows that come out otherwise, worked out again, are not published: neither those that a task is
given, nor those that another attempt of it has stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.data.hoodie.commit_metadata import WriteStat
from metatable.data.hoodie.operations import DELETE, UPSERT
from metatable.data.rows.row_counts import RowCounts
from metatable.engine.local import LocalEngine
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from metatable.write.receipts import FileReceipt
from metatable.write.same_rows import key_sum, refuse_other_rows
from tests.index.rows import make, rows


class Overtaken(Store):
    """Another attempt is always first, with bytes of its own."""

    other: ClassVar[Callable[[bytes], bytes]]

    def create(self, path: str, body: Any, **how: Any) -> bool:
        if path.endswith(".parquet") or ".log." in path:
            super().create(path, type(self).other(body), **how)
        return super().create(path, body, **how)


def _without_the_first(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(body)).slice(1), sink)
    return sink.getvalue().to_pybytes()


def _one_key_otherwise(body: bytes) -> bytes:
    held = pq.read_table(pa.BufferReader(body))
    at = held.schema.get_field_index("_hoodie_record_key")
    keys = ["k999999", *held["_hoodie_record_key"].to_pylist()[1:]]
    sink = pa.BufferOutputStream()
    pq.write_table(held.set_column(at, held.schema.field(at), pa.array(keys)), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.each_once
@pytest.mark.parametrize("index", ["record", "metadata_bloom"])
@pytest.mark.parametrize("other", [_without_the_first, _one_key_otherwise])
def test_a_file_of_other_rows_is_not_adopted(
    tmp_path: Path, index: str, other: Callable[[bytes], bytes]
) -> None:
    table = make(str(tmp_path / "table"), index, "global")
    Overtaken.other = staticmethod(other)  # type: ignore[assignment]
    store = Overtaken(table.uri, {"durable": "false"})
    with pytest.raises(UsageError, match=r"came out otherwise .*\.parquet"):
        write(store, LocalEngine(1), rows(0, 9), UPSERT)
    assert table.version == 1
    assert table.upsert(rows(0, 9)).inserted == 9
    assert table.verify().findings == ()


def test_a_file_of_the_same_rows_is_adopted(tmp_path: Path) -> None:
    table = make(str(tmp_path / "table"), "record", "global")

    def in_another_order(body: bytes) -> bytes:
        held = pq.read_table(pa.BufferReader(body))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables([held.slice(1), held.slice(0, 1)]), sink)
        return sink.getvalue().to_pybytes()

    Overtaken.other = staticmethod(in_another_order)  # type: ignore[assignment]
    store = Overtaken(table.uri, {"durable": "false"})
    assert write(store, LocalEngine(1), rows(0, 9), UPSERT).inserted == 9
    assert table.scan().count() == 9


@pytest.mark.parametrize(
    ("operation", "others", "ours"),
    [
        (UPSERT, [0], [3]),
        (UPSERT, [0, 3, 9], [0, 6, 9]),
        (DELETE, [0, 3], [0, 6]),
    ],
    ids=["of other bounds", "of the same bounds", "of other deletes"],
)
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_a_log_of_other_rows_is_not_adopted(
    tmp_path: Path, operation: str, others: list[int], ours: list[int], log_format: str
) -> None:
    how = {"table_type": "mor", "log_format": log_format}
    table = make(str(tmp_path / "table"), "record", "global", **how)
    table.insert(rows(0, 12))
    stored: list[bytes] = []

    def entering(numbers: list[int], value: int) -> pa.Table:
        made = rows(0, 12, value=value).take(numbers)
        return made.select(["id"]) if operation == DELETE else made

    def remembered(body: bytes) -> bytes:
        stored.append(body)
        return body

    Overtaken.other = staticmethod(remembered)  # type: ignore[assignment]
    store = Overtaken(table.uri, {"durable": "false"})
    write(store, LocalEngine(1), entering(others, 7), operation)
    Overtaken.other = staticmethod(lambda _: stored[0])  # type: ignore[assignment]
    table.upsert(rows(0, 12, value=9))
    before = table.scan().to_arrow().sort_by("id")
    with pytest.raises(UsageError, match=r"came out otherwise .*\.log\."):
        write(store, LocalEngine(1), entering(ours, 8), operation)
    assert table.scan().to_arrow().sort_by("id").equals(before)


def _receipt(path: str, *keys: str) -> FileReceipt:
    stat = WriteStat(path, "f", f"{path}/f", None, len(keys), 0, 0, 0, 1)
    return FileReceipt(stat, RowCounts(), key_sum(pa.array(keys, pa.string())))


def _profile(column: str, told: dict[str, list[str]]) -> pa.Table:
    sums = [key_sum(pa.array(keys)) for keys in told.values()]
    return pa.table({column: [*told], "key_sum": sums})


@pytest.mark.parametrize(
    ("operation", "column"), [(UPSERT, "partition_path"), (DELETE, "located_path")]
)
def test_keys_are_added_up_by_table_partition_in_any_order(operation: str, column: str) -> None:
    planned = _profile(column, {"a": ["x", "y", "z"], "b": ["x"]})
    written = [_receipt("a", "z"), _receipt("a", "y", "x"), _receipt("b", "x")]
    for receipts in (written, [FileReceipt.decode(one.encode()) for one in written]):
        refuse_other_rows(planned, receipts, operation)
    for strange in (
        written[1:],
        [*written, _receipt("a", "x")],
        [*written, _receipt("c", "x")],
        [_receipt("a", "z", "x"), _receipt("b", "y", "x")],
    ):
        with pytest.raises(UsageError, match="came out otherwise"):
            refuse_other_rows(planned, strange, operation)


def test_a_key_that_is_given_twice_is_told() -> None:
    with pytest.raises(UsageError, match=r"came out otherwise .*found=\['b'\]"):
        key_sum(pa.array(["a", "b", "c", "b"]), once=True)
    assert key_sum(pa.array(["a", "b"]), once=True) == key_sum(pa.array(["b", "a"]))
