"""What inserts into many table partitions are put into is looked up for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import Table
from metatable.metadata.hfiles import entries
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.write import bins
from tests.far import DAYS, SCHEMA, in_memory, rows

FEW = 4


class Asked:
    """What is asked of snapshots: None for the whole table, else a partition's path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slices, self.stats, self.counts = list[Any](), list[Any](), list[int]()
        slices, stats, counts = Snapshot.slices, Snapshot.stats, Snapshot.row_counts

        def noting_slices(view: Snapshot, path: str | None = None) -> Any:
            self.slices.append(path)
            return slices(view, path)

        def noting_stats(
            view: Snapshot, column: str, type: pa.DataType, paths: Iterable[str] | None = None
        ) -> Any:
            self.stats += [None] if paths is None else [*paths]
            return stats(view, column, type, paths)

        def noting_counts(view: Snapshot, held: Any, at_most: bool = False) -> Any:
            self.counts.append(len(held))
            return counts(view, held, at_most)

        monkeypatch.setattr(Snapshot, "slices", noting_slices)
        monkeypatch.setattr(Snapshot, "stats", noting_stats)
        monkeypatch.setattr(Snapshot, "row_counts", noting_counts)


def _table(*by: str) -> Table:
    """A file for each day, of no small table."""
    table = metatable.create(
        in_memory(), SCHEMA, key="id", partition_by="day", index="record", cluster_by=by
    )
    table.insert(rows(0, 400, 0))
    return table


@pytest.mark.parametrize("by", [(), ("v",)])
@pytest.mark.parametrize("days", [FEW, DAYS])
def test_small_files_of_many_partitions_are_found_together(
    by: tuple[str, ...], days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(*by)
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    asked = Asked(monkeypatch)
    table.insert(rows(1008, 1008 + days, 1))
    assert asked.counts == [days], "one lookup"
    each = [f"day=d{number:02}" for number in range(days)]
    assert asked.slices == (each if days == FEW else [None])
    assert asked.stats == ((each if days == FEW else [None]) if by else [])
    assert len(table.files()) == DAYS, "all of them were filled"
    assert table.verify().findings == ()


def test_many_partitions_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    monkeypatch.setattr(bins, "PARTITIONS_TOGETHER", 10)
    asked = Asked(monkeypatch)
    table.insert(rows(1008, 1008 + DAYS, 1))
    assert asked.counts == [10, 10, 4]
    assert len(table.files()) == DAYS


def test_partitions_without_files_get_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them have small files, others none."""
    table = metatable.create(
        in_memory(), SCHEMA, key="id", partition_by="day", index="record", cluster_by=("v",)
    )
    table.insert(rows(0, 20, 0))
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    table.insert(rows(1008, 1008 + DAYS, 1))
    assert sorted(file.partition_path for file in table.files()) == [
        f"day=d{number:02}" for number in range(DAYS)
    ]
    assert table.verify().findings == ()
