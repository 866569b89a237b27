"""Where a file system takes other names for the same, two folders of a table would be one."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable import UsageError
from metatable.storage import spelling
from metatable.storage.local_files import LocalFiles

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string())])


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are found whatever the case of their letters, as on macOS."""
    plain = LocalFiles._at

    def at(self: LocalFiles, path: str) -> str:
        found = plain(self, "")
        for name in filter(None, path.split("/")):
            there = os.listdir(found) if os.path.isdir(found) else []
            alike = [one for one in there if one.casefold() == name.casefold()]
            found = os.path.join(found, *(alike or [name]))
        return found

    monkeypatch.setattr(LocalFiles, "_at", at)
    monkeypatch.setattr(spelling.os.path, "lexists", lambda _: True)


def rows(*cities: str) -> pa.Table:
    ids = [f"{city}-{place}" for place, city in enumerate(cities)]
    return pa.table([ids, [*cities]], schema=SCHEMA)


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize("index", ["record", "bucket"])
def test_partitions_that_would_share_a_folder_are_refused(table_uri: str, index: str) -> None:
    table = metatable.create(
        table_uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        storage_options={"durable": "false"},  # files are made one after the other
    )
    table.insert(rows("Ulm", "Köln"))
    table.insert(rows("Bonn"))
    table.upsert(rows("Ulm", "Köln"))
    before = table.version
    for other in ("ulm", "KÖLN"):
        with pytest.raises(UsageError, match=rf"two folders.*city={other}/.*found='city="):
            table.upsert(rows("Essen", other))
    with pytest.raises(UsageError, match="two folders would be one"):
        table.upsert(rows("Aue", "aue"))
    assert table.version == before
    assert table.verify().findings == ()
    assert not list(Path(table_uri).glob("city=[EA]*/*.parquet"))


def test_names_of_a_file_system_that_tells_them_apart_are_as_they_are(table_uri: str) -> None:
    table = metatable.create(table_uri, SCHEMA, key="id", partition_by="city")
    table.insert(rows("Ulm", "ulm"))
    assert sorted(one.name for one in Path(table_uri).glob("city=*")) == ["city=Ulm", "city=ulm"]
