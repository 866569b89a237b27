"""Tables on a real S3 server, over plain http, with storage options and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import AccessError, MetatableError, NotFoundError, StoreError, Table
from metatable.cli.main import main
from tests.cleaned import strange_files
from tests.model import SCHEMA, Model, Row, arrow, check, read_by_hudi, scanned
from tests.services.servers import Bucket, Versitygw

ROOT = Path(__file__).resolve().parents[2]
SHRUNK: dict[str, Any] = {"file_rows": 5, "hfile_block_bytes": 256}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine knows of S3 is no help."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)


def rows(first: int, last: int, v: int, shift: int = 0) -> list[Row]:
    return [
        {"id": f"k{number:02}", "city": ("ny", "sf")[(number + shift) % 2], "v": v, "ts": v}
        for number in range(first, last)
    ]


def created(uri: str, options: Mapping[str, str], index: str = "record") -> Table:
    return metatable.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        options={**SHRUNK, "key_scope": "global"},
        storage_options=dict(options),
    )


def test_a_table_on_s3_is_cleaned_kept_and_gone_back_to(bucket: Bucket) -> None:
    options = {**SHRUNK, "timeline_commits": 3, "key_scope": "global"}
    table = metatable.create(
        bucket.uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index="record",
        options=options,
        storage_options=bucket.storage_options,
    )
    for number in range(6):
        table.upsert(arrow(rows(number, number + 8, number)))
    kept = scanned(table, 4)
    table.savepoint("books", 4)
    table.upsert(arrow(rows(0, 9, 7)))
    expected = scanned(table)
    assert table.clean(versions=1, hours=0).files_deleted > 20
    assert strange_files(table._store) == []
    assert scanned(table) == read_by_hudi(str(bucket.folder)) == expected
    assert scanned(table, 4) == kept
    assert table.describe(listing=True).usage["reclaimable"] == 0  # type: ignore[index]
    table.restore(savepoint="books")
    assert scanned(table) == read_by_hudi(str(bucket.folder)) == kept
    assert table.verify().findings == ()
    table.upsert(arrow(rows(3, 30, 9)))
    table.clean(versions=1, hours=0)
    assert strange_files(table._store) == []
    assert scanned(table) == read_by_hudi(str(bucket.folder))


@pytest.mark.parametrize(
    ("index", "below"), [("record", ""), ("metadata_bloom", "/a folder/deeper")]
)
def test_a_table_lives_on_s3_with_storage_options_alone(
    bucket: Bucket, index: str, below: str
) -> None:
    uri, folder = bucket.uri + below, bucket.folder / below.strip("/")
    table = created(uri, bucket.storage_options, index)
    model = Model(is_global=True, ordering=True)

    def told_to_both(verb: str, given: list[Row]) -> None:
        getattr(table, verb)(arrow(given))
        (model.delete if verb == "delete" else model.upsert)(given)

    told_to_both("insert", rows(0, 20, 1))
    told_to_both("upsert", rows(10, 25, 2))
    told_to_both("upsert", rows(5, 15, 3, shift=1))  # these move
    told_to_both("delete", rows(0, 3, 0) + rows(12, 14, 0, shift=1))
    table.compact()
    told_to_both("upsert", rows(24, 30, 4))
    table.rollback()
    model.rollback()
    told_to_both("upsert", rows(26, 30, 5))
    table.compact(major=True)

    again = metatable.open(uri, storage_options=dict(bucket.storage_options))
    assert again.version == 10
    assert scanned(again) == model.listed()
    assert again.verify().findings == ()
    asked = arrow(rows(0, 30, 0)).select(["id", "city"])
    assert again.filter_exists(asked).num_rows == len(model.rows)
    assert again.read_keys(asked).num_rows == len(model.rows)
    check(metatable.open(str(folder)), model, rows(0, 30, 0) + rows(0, 30, 0, shift=1))


def test_the_command_line_takes_storage_options(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    created(bucket.uri, bucket.storage_options).insert(arrow(rows(0, 20, 1)))
    named = [f"--storage-option={name}={value}" for name, value in bucket.storage_options.items()]

    def told(verb: str, *given: str) -> Any:
        assert main([verb, bucket.uri, "--json", *given, *named]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[0])

    assert told("describe")["rows"] == 20
    assert told("compact", "--major")["service"] == "compact"
    assert told("verify")["findings"] == []
    assert told("rollback")["service"] == "rollback"
    assert told("history")["operation"] == "rollback"
    assert told("describe")["rows"] == 0


def test_processes_of_their_own_see_what_was_published(bucket: Bucket) -> None:
    created(bucket.uri, bucket.storage_options).insert(arrow(rows(0, 20, 1)))
    named = [f"--storage-option={name}={value}" for name, value in bucket.storage_options.items()]
    done = subprocess.run(
        [sys.executable, "-m", "metatable", "describe", bucket.uri, "--json", *named],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 20


def secret_is_wrong(bucket: Bucket) -> tuple[str, dict[str, str]]:
    return bucket.uri, {**bucket.storage_options, "secret_access_key": "another"}


def bucket_is_missing(bucket: Bucket) -> tuple[str, dict[str, str]]:
    return "s3://no-such-bucket", dict(bucket.storage_options)


def table_is_missing(bucket: Bucket) -> tuple[str, dict[str, str]]:
    return f"{bucket.uri}/no-such-table", dict(bucket.storage_options)


@pytest.mark.parametrize(
    ("mistake", "kinds"),
    [
        (secret_is_wrong, (AccessError,)),
        (bucket_is_missing, (AccessError, NotFoundError)),
        (table_is_missing, (NotFoundError,)),
    ],
)
def test_what_the_server_refuses_is_told_in_a_line(
    bucket: Bucket,
    mistake: Callable[[Bucket], tuple[str, dict[str, str]]],
    kinds: tuple[type[MetatableError], ...],
) -> None:
    created(bucket.uri, bucket.storage_options)
    uri, options = mistake(bucket)
    with pytest.raises(kinds) as raised:
        metatable.open(uri, storage_options=options)
    _check_line(raised.value, uri)


@pytest.mark.parametrize("mistake", [secret_is_wrong, bucket_is_missing])
def test_a_table_is_not_made_where_the_server_refuses(
    bucket: Bucket, mistake: Callable[[Bucket], tuple[str, dict[str, str]]]
) -> None:
    uri, options = mistake(bucket)
    with pytest.raises((AccessError, NotFoundError)) as raised:
        created(uri, options)
    _check_line(raised.value, uri)
    assert list(bucket.folder.rglob("*.json")) == []


def test_a_server_that_is_gone_can_be_asked_again_later(
    s3_server: Versitygw, tmp_path: Path
) -> None:
    with Versitygw(tmp_path) as server:
        bucket = server.bucket("tests")
        quick = {"timeout": "2s", "connect_timeout": "2s", "max_retries": "1"}
        table = created(bucket.uri, {**bucket.storage_options, **quick})
        table.insert(arrow(rows(0, 5, 1)))
    for asked in (table.describe, lambda: table.upsert(arrow(rows(0, 9, 2)))):
        with pytest.raises(StoreError) as raised:
            asked()
        _check_line(raised.value, bucket.uri)
    server.start(again=True)
    try:
        assert table.describe().rows == 5
        table.upsert(arrow(rows(0, 9, 2)))
        assert table.verify().findings == ()
    finally:
        server.stop()


def _check_line(error: MetatableError, uri: str) -> None:
    """One line that says where, without what the server or the client says to machines."""
    told = str(error)
    assert uri.removeprefix("s3://").partition("/")[0] in told
    assert "\n" not in told
    for noise in ("<?xml", "<Error>", "source:", "Generic {", "Some("):
        assert noise not in told
