"""A table as a plain dict, and the ways to look at a real one that owe nothing to its index.

    rows       {identity: row}; the identity is the key, in partition scope (partition, key)
    commits    the rows before each data commit, for rollback

`stored` reads the data files by Hudi's own rule (of each file group the slice of the greatest
completed instant) with nothing but pyarrow, `read_by_hudi` by the `hudi` wheel.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiTableBuilder

from metatable import Table
from metatable.index import create_index
from metatable.index.bloom_lookup import BloomIndex

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("ts", pa.int64()),
    ]
)

Row = dict[str, Any]
Identity = tuple[str, ...]

_DATA_FILE = re.compile(r"(?P<group>[^_/]+)_(?P<token>\d+-\d+-\d+)_(?P<instant>\d+)\.parquet")
_LOG_FILE = re.compile(r"\.(?P<group>[^_/]+)_(?P<instant>\d+)\.log\.\d+_(?P<token>\d+-\d+-\d+)")


@dataclass(slots=True)
class Counts:
    """What a commit is to report."""

    inserted: int = 0
    updated: int = 0
    moved: int = 0
    stale: int = 0
    deleted: int = 0
    absent: int = 0


NOT_KNOWN = ("inserted", "updated", "deleted")
"""Counts that a commit may leave open which puts logs on file groups, or overwrites such."""


def check_counts(table: Table, result: Any, counts: Counts) -> None:
    """A commit reports what the model counted."""
    for name in Counts.__slots__:
        found = getattr(result, name)
        if found is None:
            assert table.options.has_logs, name
            assert name in NOT_KNOWN, name
        else:
            assert found == getattr(counts, name), name


@dataclass(slots=True)
class Model:
    """What the table must hold. `ordering`: the column `ts` decides which row is newer."""

    is_global: bool
    ordering: bool
    rows: dict[Identity, Row] = field(default_factory=dict)
    commits: list[dict[Identity, Row]] = field(default_factory=list)

    def identity(self, row: Row) -> Identity:
        return (row["id"],) if self.is_global else (row["city"], row["id"])

    def distinct(self, rows: Iterable[Row]) -> dict[Identity, Row]:
        """One row a key: the greatest by the ordering, of equal ones the later."""
        kept: dict[Identity, Row] = {}
        for row in rows:
            identity = self.identity(row)
            if identity not in kept or not self._is_older(row, kept[identity]):
                kept[identity] = row
        return kept

    def upsert(self, rows: Iterable[Row]) -> Counts:
        counts, after = Counts(), dict(self.rows)
        for identity, row in self.distinct(rows).items():
            held = self.rows.get(identity)
            if held is None:
                counts.inserted += 1
            elif self._is_older(row, held):
                counts.stale += 1
                continue
            elif held["city"] != row["city"]:
                counts.moved += 1
            else:
                counts.updated += 1
            after[identity] = row
        self._commit(after)
        return counts

    def delete(self, rows: Iterable[Row]) -> Counts:
        asked = {self.identity(row) for row in rows}
        gone = asked & self.rows.keys()
        self._commit({name: row for name, row in self.rows.items() if name not in gone})
        return Counts(deleted=len(gone), absent=len(asked) - len(gone))

    def overwrite(self, rows: Iterable[Row], cities: Iterable[str] | None = None) -> Counts:
        """Of these partitions nothing stays but `rows`; None: of those that occur in `rows`."""
        given = self.distinct(rows)
        cities = {row["city"] for row in given.values()} if cities is None else set(cities)
        old = {name for name, row in self.rows.items() if row["city"] in cities}
        assert not given.keys() & (self.rows.keys() - old), "a row would have to move"
        stays = {name: row for name, row in self.rows.items() if name not in old}
        self._commit(stays | given)
        return Counts(
            inserted=len(given.keys() - old),
            updated=len(given.keys() & old),
            deleted=len(old - given.keys()),
        )

    def rollback(self) -> None:
        self.rows = self.commits.pop()

    def forget_commit(self) -> None:
        """The last one wrote nothing, so there is nothing to roll back."""
        assert self.rows == self.commits.pop()

    def listed(self) -> list[tuple[Any, ...]]:
        return listed(self.rows.values())

    def _commit(self, after: dict[Identity, Row]) -> None:
        self.commits.append(self.rows)
        self.rows = after

    def _is_older(self, row: Row, than: Row) -> bool:
        if not self.ordering or than["ts"] is None:
            return False
        return row["ts"] is None or row["ts"] < than["ts"]


def listed(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Rows in a form in which equal tables are equal."""
    found = [tuple(row[name] for name in SCHEMA.names) for row in rows]
    return sorted(found, key=lambda row: tuple((one is not None, one) for one in row))


def arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def scanned(table: Table, version: int | None = None) -> list[tuple[Any, ...]]:
    return listed(table.scan(version=version).to_arrow().to_pylist())


def read_by_hudi(uri: str) -> list[tuple[Any, ...]]:
    """The rows as the `hudi` wheel reads them, in a table object of its own."""
    return listed(_rows_of_hudi(uri))


def _rows_of_hudi(uri: str) -> list[Row]:
    batches = HudiTableBuilder.from_base_uri(uri).build().read()
    return [row for batch in batches for row in batch.to_pylist()]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row lies."""

    partition_path: str
    file_id: str
    instant: str
    position: int


DONE = (".commit", ".deltacommit", ".replacecommit")


def completed(uri: str) -> set[str]:
    """Instants of the commits on Hudi's timeline, those that replace file groups among them."""
    names = map(os.path.splitext, os.listdir(Path(uri) / ".hoodie"))
    return {name for name, action in names if action in DONE}


def replaced(uri: str) -> set[tuple[str, str]]:
    """File groups (partition path, file id) that replacecommits have taken out of the table."""
    commits = map(json.loads, map(Path.read_text, Path(uri, ".hoodie").glob("*.replacecommit")))
    return {
        (path, file_id)
        for commit in commits
        for path, ids in commit["partitionToReplaceFileIds"].items()
        for file_id in ids
    }


def data_files(uri: str) -> list[Path]:
    """Every data file of the table, live or not: Parquet files and logs."""
    found = (path for form in ("*.parquet", ".*.log.*") for path in Path(uri).rglob(form))
    return sorted(path for path in found if ".hoodie" not in path.parts)


def has_logs(uri: str) -> bool:
    """Whether the table is of merge-on-read."""
    return "MERGE_ON_READ" in Path(uri, ".hoodie/hoodie.properties").read_text()


def stored(uri: str) -> list[tuple[Row, Place]]:
    """Every live row and its place, by reading all files; of merge-on-read as `hudi` merges them,
    who tells the file group in a meta column and no position (-1)."""
    if has_logs(uri):
        files, rows = newest_files(uri), _rows_of_hudi(uri)
        groups = [_group(row) for row in rows]
        return [
            (row, Place(*group, files[group][0], -1))
            for row, group in zip(rows, groups, strict=True)
        ]
    return [
        (row, Place(*group, instant, position))
        for group, (instant, path) in newest_files(uri).items()
        for position, row in enumerate(pq.ParquetFile(path).read().to_pylist())
    ]


def _group(row: Row) -> tuple[str, str]:
    return row["_hoodie_partition_path"], row["_hoodie_file_name"].partition("_")[0]


def newest_files(uri: str) -> dict[tuple[str, str], tuple[str, Path]]:
    """A file of each live slice, the base file if it has one, and the slice's instant."""
    done = completed(uri)
    first, gone = min(done, default=""), replaced(uri)
    newest: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in data_files(uri):
        is_base = path.suffix == ".parquet"
        name = (_DATA_FILE if is_base else _LOG_FILE).fullmatch(path.name)
        assert name is not None, f"not a data file's name: {path}"
        folder = path.parent.relative_to(uri).as_posix()
        group = ("" if folder == "." else folder, name["group"])
        if group in gone:
            continue
        if name["instant"] in done or name["instant"] < first:  # archived
            best = newest.get(group, ("", path))
            if best[0] < name["instant"] or (is_base and best[0] == name["instant"]):
                newest[group] = name["instant"], path
    return newest


def places(uri: str, model: Model) -> dict[Identity, Place]:
    """Where each key is, from the data files alone; no key may be there twice."""
    found: dict[Identity, Place] = {}
    for row, place in stored(uri):
        identity = model.identity(row)
        assert identity not in found, f"{identity} lives twice: {found[identity]} and {place}"
        found[identity] = place
    return found


def check_tags(table: Table, model: Model, probe: Sequence[Row]) -> None:
    """`tag_locations` answers what a brute-force join over the data files answers."""
    where = places(table.uri, model)
    index = create_index(table.options)
    knows_position, proves = isinstance(index, BloomIndex), index.proves_presence
    keys = arrow(probe).select(["id", "city"])
    there = [model.identity(row) in where for row in probe]
    assert table.filter_exists(keys).equals(keys.filter(pa.array(there, pa.bool_())))
    tagged = table.tag_locations(keys)
    assert tagged.column_names == ["id", "city", "_location"]
    assert tagged.drop_columns(["_location"]).equals(keys), "rows or their order have changed"
    for row, found in zip(probe, tagged["_location"].to_pylist(), strict=True):
        place = where.get(model.identity(row))
        if place is None and not proves:
            continue  # where it would be
        if found and place and place.position < 0:
            found["position"] = None
        expected = place and {
            "partition_path": place.partition_path,
            "file_id": place.file_id,
            "instant": place.instant,
            "position": place.position if knows_position and place.position >= 0 else None,
        }
        assert found == expected, f"{row['id']!r} in {row['city']!r}"


def check(table: Table, model: Model, probe: Sequence[Row] = ()) -> None:
    """The table, its index and what Hudi reads are what the model says."""
    expected = model.listed()
    assert scanned(table) == expected
    assert table.verify().findings == ()
    assert read_by_hudi(table.uri) == expected
    if probe:
        check_tags(table, model, probe)
