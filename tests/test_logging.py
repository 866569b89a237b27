"""Logging: one logger a room, silent unless somebody listens, nothing secret in it."""

from __future__ import annotations

import ast
import logging
import re

import pytest

import metatable
from metatable.engine.local import LocalEngine
from tests.index.rows import make, rows
from tests.test_architecture import folder_of, sources


def test_a_room_has_one_logger_of_its_name() -> None:
    strange, rooms = [], set()
    for name, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                told = ast.unparse(node.args[0]).strip("'")
                rooms.add(told)
                if told not in (f"metatable.{folder_of(name)}", "__name__", "ROOT"):
                    strange.append(f"{name}: {told}")
                if told in ("__name__", "ROOT") and folder_of(name) not in ("face", "cli"):
                    strange.append(f"{name}: {told}")
    assert strange == []
    assert len(rooms) >= 7


def test_the_library_is_silent_by_default(
    table_uri: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert any(
        isinstance(one, logging.NullHandler) for one in logging.getLogger("metatable").handlers
    )
    make(table_uri, "record", "global").upsert(rows(0, 5))
    assert capfd.readouterr() == ("", "")


def test_each_room_tells_of_what_it_did(table_uri: str, caplog: pytest.LogCaptureFixture) -> None:
    table = make(table_uri, "record", "global")
    with caplog.at_level(logging.DEBUG, "metatable"):
        table.upsert(rows(0, 90))
        table.upsert(rows(0, 9, value=5))
        table.scan(where=metatable.col("value") > 80).count()
        table.compact(major=True)
        table.verify()
    told = {(one.name, re.sub(r"\d+", "N", one.getMessage())) for one in caplog.records}
    assert ("metatable.metadata", "version N is published: upsert") in told
    assert ("metatable.write", "writing N rows to N files as N") in told
    assert ("metatable.query", "N files, N after partitions, N after statistics") in told
    assert ("metatable.compaction", "verify version N: reading N files") in told
    assert ("metatable.engine", "task N of N") in told
    assert all(one.levelno < logging.WARNING for one in caplog.records)


def test_a_lost_race_is_told(
    table_uri: str, caplog: pytest.LogCaptureFixture, between: object
) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 9))
    between(lambda: metatable.open(table_uri).upsert(rows(0, 9, value=7)))  # type: ignore[operator]
    with caplog.at_level(logging.INFO, "metatable"):
        assert table.upsert(rows(0, 9, value=8)).attempts == 2
    assert any("attempt 1 was lost" in one.getMessage() for one in caplog.records)


def test_keys_do_not_reach_the_log(
    table_uri: str, caplog: pytest.LogCaptureFixture, between: object
) -> None:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 9))
    between(lambda: metatable.open(table_uri).upsert(rows(20, 25)))  # type: ignore[operator]
    with caplog.at_level(logging.DEBUG, "metatable"):
        assert table.upsert(rows(20, 25)).attempts == 2
    assert "another commit inserted the same keys: retry: base=2 newest=3" in caplog.text
    assert "k0000" not in caplog.text


def test_a_task_tells_how_far_the_run_is(caplog: pytest.LogCaptureFixture) -> None:
    engine = LocalEngine(1)
    table = rows(0, 40)
    spread = engine.exchange(
        engine.rows(table.append_column("t", [[n % 3 for n in range(40)]])), "t", 3
    )
    with caplog.at_level(logging.DEBUG, "metatable.engine"):
        engine.run(spread, lambda batches, counters: iter(list(batches)), spread.schema)
    assert [(one.done, one.of) for one in caplog.records] == [(1, 3), (2, 3), (3, 3)]  # type: ignore[attr-defined]


def test_credentials_do_not_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    secret = "do-not-tell-4711"
    options = {
        "endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "access_key_id": secret,
        "secret_access_key": secret,
        "max_retries": "0",
        "timeout": "1",
    }
    with caplog.at_level(logging.DEBUG), pytest.raises(metatable.StoreError):
        metatable.open("s3://nowhere/table", options)
    assert [one.name for one in caplog.records if one.name.startswith("metatable")] == [
        "metatable.storage"
    ]
    assert secret not in caplog.text
