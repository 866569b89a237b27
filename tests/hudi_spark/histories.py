"""Tables of every index with a history in steps, and a model of what they must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import metatable
from metatable import Table
from tests.model import SCHEMA, Model, Row, arrow

__all__ = ["KINDS", "STEPS", "Kind", "Step", "history", "rows"]

FAST = {"durable": "false"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A table: its index, where a key is unique, and its partitions. Several files a partition."""

    index: str
    scope: str = "partition"
    partition_by: tuple[str, ...] = ("city",)
    hive_style: bool = True

    def __str__(self) -> str:
        style = "" if self.hive_style else "-plain-paths"
        return f"{self.index}-{self.scope}-by-{'-'.join(self.partition_by) or 'nothing'}{style}"

    @property
    def model(self) -> Model:
        return Model(is_global=self.scope == "global" or not self.partition_by, ordering=True)

    def create(self, uri: str, **more: Any) -> Table:
        options: dict[str, Any] = {"hive_style": self.hive_style, "row_group_rows": 8, **more}
        if self.index == "bucket":
            options["bucket_count"] = 4
        else:
            options |= {"key_scope": self.scope, "file_rows": 16, "small_file_bytes": 0}
        return metatable.create(
            uri,
            SCHEMA,
            key="id",
            partition_by=self.partition_by,
            ordering="ts",
            index=self.index,
            options=options,
            storage_options=FAST,
        )


KINDS = [
    Kind("record", "global"),
    Kind("record", "global", ()),
    Kind("record"),
    Kind("metadata_bloom", "global"),
    Kind("metadata_bloom"),
    Kind("metadata_bloom", partition_by=()),
    Kind("metadata_bloom", hive_style=False),
    Kind("bloom", "global"),
    Kind("bloom", partition_by=()),
    Kind("bucket"),
    Kind("bucket", partition_by=()),
]


def rows(first: int, last: int, v: int = 0, city: str | None = None) -> list[Row]:
    """Keys k000, …: the even ones in ny, the odd ones in sf, or all in `city`."""
    return [
        {"id": f"k{number:03}", "city": city or ("ny", "sf")[number % 2], "v": v, "ts": v}
        for number in range(first, last)
    ]


Step = Callable[[Table, Model], None]


def _insert(table: Table, model: Model) -> None:
    table.insert(arrow(rows(0, 60)))
    model.upsert(rows(0, 60))


def _upsert(table: Table, model: Model) -> None:
    """Some keys change, some are new, some name another city: in global scope they move."""
    given = [*rows(10, 20, 1), *rows(60, 80, 1), *rows(20, 30, 1, "la")]
    told, expected = table.upsert(arrow(given)), model.upsert(given)
    if table.options.is_global and table.options.partition_by:
        assert told.moved == expected.moved == 10
    if told.inserted is not None and told.updated is not None:
        assert told.inserted + told.updated + told.moved == len(given)


def _delete(table: Table, model: Model) -> None:
    """Some of many, and all that a partition, and so its file groups, held."""
    gone = [*rows(0, 6), *rows(20, 30, 0, "la")]
    told, expected = table.delete(arrow(gone).select(["id", "city"])), model.delete(gone)
    assert told.deleted == expected.deleted == len(gone)


def _compact(table: Table, model: Model) -> None:
    table.upsert(arrow(rows(5, 15, 2)))
    model.upsert(rows(5, 15, 2))
    told = table.compact(major=True)
    assert told.files_after < told.files_before


def _roll_back(table: Table, model: Model) -> None:
    given = [*rows(50, 90, 3), *rows(40, 45, 3, "rome")]
    told = table.upsert(arrow(given))
    model.upsert(given)
    assert told.instant is not None
    table.rollback(told.instant)
    model.rollback()


def _write_again(table: Table, model: Model) -> None:
    table.upsert(arrow(rows(70, 95, 4)))
    model.upsert(rows(70, 95, 4))


STEPS: dict[str, Step] = {
    "insert": _insert,
    "upsert": _upsert,
    "delete": _delete,
    "compact": _compact,
    "rollback": _roll_back,
    "upsert again": _write_again,
}


def history(table: Table, model: Model) -> Iterator[str]:
    """The steps one after the other, each named when it is done."""
    for name, step in STEPS.items():
        step(table, model)
        yield name
