"""Scans of tables in an object store: files are begun together, each being a wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from benchmarks import rounds
from benchmarks.rounds import Distant, Rounds, Sleeping
from metatable import CorruptError
from metatable.storage import cache, portions
from tests.far import DAYS, SCHEMA, data_rounds, far, in_memory, made, rows


@pytest.fixture(params=["cow", "mor"])
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    yield made(in_memory(), request.param)
    cache.clear()


def test_a_scan_waits_for_many_files_together(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, backend = far(uri, Rounds)
    found = table.scan().to_arrow()
    assert found.sort_by("id").equals(metatable.open(uri).scan().to_arrow().sort_by("id"))
    least = -(-DAYS // portions.MOST_TOGETHER)
    waited = data_rounds(backend)
    assert 0 < len(waited) <= 3 * least  # logs, a footer, row groups
    assert max(waited) == portions.MOST_TOGETHER
    monkeypatch.setattr(portions, "TOGETHER_BYTES", 1)
    table, backend = far(uri, Rounds)
    assert table.scan().to_arrow().num_rows == found.num_rows
    assert len(data_rounds(backend)) >= DAYS


def test_a_scan_that_has_a_limit_fetches_no_more_than_it_needs(uri: str) -> None:
    table, backend = far(uri, Rounds)
    assert table.scan(limit=1).to_arrow().num_rows == 1
    assert isinstance(backend, Rounds)
    files = {path for _, _, path in backend.log if path.endswith(".parquet")}
    assert len(files) == 1


def test_a_limit_on_some_of_the_rows_waits_for_more_and_more_files_together(uri: str) -> None:
    table, backend = far(uri, Rounds)
    where = [("v", "==", 3)]
    near = metatable.open(uri).scan(where=where).to_arrow()
    assert table.scan(where=where, limit=5000).to_arrow().equals(near)
    waited = data_rounds(backend)
    assert {*waited} - {0} == {1, 2, 4, 8, DAYS - 15}
    assert len(waited) <= 5 * 3  # logs, a footer, row groups
    table, backend = far(uri, Rounds)
    assert table.scan(where=where, limit=1).to_arrow().num_rows == 1
    assert isinstance(backend, Rounds)
    assert len({path for _, _, path in backend.log if path.endswith(".parquet")}) == 1


def test_rows_come_as_near_by_from_a_store_that_answers_late(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On threads, which wait for each other's logs."""
    monkeypatch.setattr(rounds, "LATENCY_SECONDS", 0.001)
    near = metatable.open(uri).scan().to_arrow()
    for most in (1, 3, 16):
        monkeypatch.setattr(portions, "MOST_TOGETHER", most)
        table, _ = far(uri, Sleeping)
        assert table.scan().to_arrow().equals(near)
        assert table.scan(where=[("v", "<", 1)]).count() == sum(
            v < 1 for v in near["v"].to_pylist()
        )
        batches = table.scan().to_batches()
        assert next(batches).num_rows  # and nobody asks for more
        del batches


@pytest.mark.each_once
@pytest.mark.parametrize("through", [Rounds, Sleeping])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_what_is_wrong_with_a_file_is_told_when_its_turn_comes(
    tmp_path: Path, table_type: str, through: type[Distant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LATENCY_SECONDS", 0.001)
    uri = made(str(tmp_path / "table"), table_type)
    before = metatable.open(uri).scan().to_arrow()
    hurt = metatable.open(uri).files()[6]
    path = Path(uri, hurt.path)
    path.write_bytes(path.read_bytes()[:-9])
    table, _ = far(uri, through)
    found: list[pa.RecordBatch] = []
    with pytest.raises(CorruptError, match=path.name):
        found.extend(table.scan().to_batches())
    told = pa.Table.from_batches(found, SCHEMA)
    assert told.num_rows > 40
    assert told.equals(before.slice(0, told.num_rows))
    path.unlink()
    table, _ = far(uri, through)
    metatable.open(uri).upsert(rows(391, 392, 7))
    with pytest.raises(CorruptError, match=path.name):
        table.scan(version=2 if table_type == "cow" else 5).to_arrow()
