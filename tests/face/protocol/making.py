"""Tables, deaths and looks for the tests of the commit protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import metatable
from metatable import Table
from metatable.compaction.merging.compact import Compact
from metatable.engine.local import LocalEngine
from metatable.metadata.commits.transaction import Transaction
from metatable.metadata.manifests.leases import LEASES
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_newest, load_version
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage.store import Store
from metatable.write.commit_pass import write
from tests.faults import dying
from tests.model import SCHEMA, Row, arrow

FAST = {"durable": "false"}


class CompactOnce(Compact):
    """Gives up where it loses a race."""

    retries: ClassVar[int] = 0


def rows(first: int, last: int, v: int, city: str | None = None) -> list[Row]:
    return [
        {"id": f"k{number:02}", "city": city or ("ny", "sf")[number % 2], "v": v, "ts": None}
        for number in range(first, last)
    ]


def made(uri: str, index: str = "record", **options: Any) -> Table:
    """`index`: behind a dash the format of logs, of a merge-on-read table."""
    index, _, log_format = index.partition("-")
    cut = {} if index == "bucket" else {"file_rows": 5}
    if log_format:
        options |= {"table_type": "mor", "log_format": log_format}
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        options={**cut, "key_scope": "global", "hfile_codec": "none", **options},
        storage_options=FAST,
    )


def newest(table: Table) -> Manifest:
    found = load_newest(Store(table.uri, FAST))
    assert found is not None
    return found


def recover(table: Table) -> None:
    with Transaction.begin(Store(table.uri, FAST)):
        pass


def age_leases(table: Table, seconds: float) -> None:
    for path in Path(table.uri, LEASES).iterdir():
        before = path.stat().st_mtime - seconds
        os.utime(path, (before, before))


def dies(table: Table, given: list[Row], where: str) -> None:
    """An upsert that dies at the first call (verb and path) that `where` matches."""
    with dying(table.uri, where) as store:
        write(store, LocalEngine(1), arrow(given), "upsert")


BEFORE_PUT = r"create .*/manifest/\d+\.json"


def every_file_is_there(table: Table) -> None:
    store = Store(table.uri, FAST)
    for version in range(1, table.version + 1):
        held = Snapshot(store, load_version(store, version, 0))
        for name in held.manifest.pages:
            for ref in held.refs(name):
                assert store.size(ref.path) == ref.size_bytes, (version, ref.path)
