"""Mistakes of users: each is told in one line of ours, says what to do, and changes nothing.

A row is a name, the call, the class, and words that its message must hold. `place` is a folder
with a table of sixty rows below `t` (key `id`, partitioned by `city`, ordered by `value`); the
whole of it must be after the call what it was before. The file is long because it is one table.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable.cli.main import main
from metatable.storage.errors import (
    AccessError,
    CorruptError,
    MetatableError,
    NotFoundError,
    StoreError,
    UpgradeError,
    UsageError,
)
from metatable.storage.store import Store
from tests.index.rows import SCHEMA, make, rows
from tests.shared import made_once
from tests.storage.s3_server import serving

FAST = {"durable": "false"}
NOWHERE = {
    "endpoint": "http://127.0.0.1:1",
    "allow_http": "true",
    "region": "x",
    "access_key_id": "x",
    "secret_access_key": "x",
    "max_retries": "0",
}
Call = Callable[[Path], Any]


class Mistake(NamedTuple):
    name: str
    call: Call
    kind: type[MetatableError]
    words: tuple[str, ...]


def of(name: str, call: Call, kind: type[MetatableError], *words: str) -> Mistake:
    return Mistake(name, call, kind, words)


# What the calls are made of


def opened(place: Path) -> metatable.Table:
    return metatable.open(place / "t", FAST)


def create(place: Path, schema: Any = SCHEMA, uri: Any = None, **words: Any) -> metatable.Table:
    words = {"key": "id", "partition_by": "city", "storage_options": FAST} | words
    return metatable.create(place / "new" if uri is None else uri, schema, **words)


def verb(name: str, *given: Any, **words: Any) -> Call:
    return lambda place: getattr(opened(place), name)(*given, **words)


def scan(**words: Any) -> Call:
    return lambda place: opened(place).scan(**words).to_arrow()


def with_option(name: str, value: Any, uri: str = "s3://lake/t") -> Call:
    return lambda place: metatable.open(uri, {**NOWHERE, name: value})


def table_of(**columns: Any) -> pa.Table:
    return pa.table(columns)


def fake_dataframe() -> Any:
    """What looks like a DataFrame of Spark's from outside."""
    return type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})()


def damaged(path: str, body: bytes, call: Call = opened) -> Call:
    """The call, after a file below the table was replaced."""

    def run(place: Path) -> Any:
        (place / "t" / path).write_bytes(body)
        return call(place)

    return run


def announced(key: str, value: str, call: Call = opened) -> Call:
    """The call, after a line of the properties was set."""

    def run(place: Path) -> Any:
        path = place / "t/.hoodie/hoodie.properties"
        lines = [one for one in path.read_text().splitlines() if one.split("=")[0] != key]
        path.write_text("\n".join([*lines, f"{key}={value}", ""]))
        return call(place)

    return run


NEWEST = ".hoodie/metatable/manifest/00000000000000000002.json"
ID = ["k000"]


MISTAKES = [
    # places
    of(
        "open: no such path",
        lambda place: metatable.open(place / "typo"),
        NotFoundError,
        "there is no table here",
        "typo",
    ),
    of("open: a folder above the table", metatable.open, NotFoundError, "there is no table here"),
    of(
        "open: a file",
        lambda place: metatable.open(place / "notes.txt"),
        NotFoundError,
        "there is no table here",
    ),
    of(
        "open: nothing",
        lambda place: metatable.open(""),
        UsageError,
        "not an address",
        "s3://bucket/folder",
    ),
    of("open: blanks", lambda place: metatable.open("  "), UsageError, "not an address"),
    of("open: None", lambda place: metatable.open(None), UsageError, "not an address", "NoneType"),
    of(
        "open: a table",
        lambda place: metatable.open(opened(place)),
        UsageError,
        "not an address",
        "Table",
    ),
    of("open: bytes", lambda place: metatable.open(b"t"), UsageError, "not an address", "bytes"),
    of("open: a NUL", lambda place: metatable.open("a\0b"), UsageError, "not an address"),
    of(
        "open: hdfs",
        lambda place: metatable.open("hdfs://host/t"),
        UsageError,
        "no store for such an address",
        "hdfs://host/t",
        "s3",
    ),
    of("open: no bucket", lambda place: metatable.open("s3://"), UsageError, "not an address"),
    of(
        "open: a port that is none",
        lambda place: metatable.open("s3://lake:99999999/t"),
        UsageError,
        "s3://lake:99999999/t",
    ),
    of(
        "open: a file of another host",
        lambda place: metatable.open("file://host/t"),
        UsageError,
        "file:///folder",
    ),
    of("open: brackets", lambda place: metatable.open("s3://[x/t"), UsageError, "not an address"),
    of(
        "open: an empty memory",
        lambda place: metatable.open(f"memory://{place.name}"),
        NotFoundError,
        "there is no table here",
    ),
    of(
        "open: nobody listens",
        lambda place: metatable.open("s3://lake/t", NOWHERE),
        StoreError,
        "Connection refused",
        "s3://lake/t",
        "try again",
    ),
    of(
        "open: plain http",
        with_option("allow_http", "false"),
        UsageError,
        "plain http is not allowed",
        "allow_http=true",
    ),
    of(
        "Table of a path",
        lambda place: metatable.Table(str(place / "t")),
        UsageError,
        "metatable.open(uri)",
    ),
    of(
        "Table of an empty store",
        lambda place: metatable.Table(Store(place / "x")),
        metatable.StaleError,
        "the table is gone",
    ),
    # storage options
    of(
        "option: mistyped",
        with_option("reigon", "eu"),
        UsageError,
        "unknown storage option",
        "reigon",
        "['region'",
    ),
    of(
        "option: of another service",
        with_option("account_key", "x"),
        UsageError,
        "unknown storage option",
    ),
    of(
        "option: a word that is no flag",
        with_option("allow_http", "maybe"),
        UsageError,
        "allow_http",
        "true or false",
        "maybe",
    ),
    of(
        "option: a text that is no time",
        with_option("timeout", "soon"),
        UsageError,
        "timeout",
        "seconds",
        "soon",
    ),
    of(
        "option: a text that is no number",
        with_option("max_retries", "many"),
        UsageError,
        "max_retries",
        "a whole number",
    ),
    of(
        "option: an address without its scheme",
        with_option("endpoint", "localhost:9000"),
        UsageError,
        "endpoint",
        "https://host:9000",
    ),
    of(
        "option: None",
        with_option("region", None),
        UsageError,
        "bad storage option",
        "region",
        "NoneType",
    ),
    of(
        "option: a line end in a secret",
        with_option("secret_access_key", "x\n"),
        UsageError,
        "secret_access_key",
        "one line",
    ),
    of(
        "options: a text",
        lambda place: metatable.open("s3://lake/t", "region=eu"),
        UsageError,
        "storage options are no mapping",
    ),
    of(
        "option: of S3 for a folder",
        lambda place: metatable.open(place / "t", {"region": "eu"}),
        UsageError,
        "unknown storage option",
        "durable",
    ),
    of(
        "option: durable=no",
        lambda place: metatable.open(place / "t", {"durable": "no"}),
        UsageError,
        "durable",
        "true or false",
    ),
    # create
    of(
        "create: a table for a schema",
        lambda place: create(place, rows(0, 3)),
        UsageError,
        "created from a schema",
        "Table",
    ),
    of(
        "create: a dict for a schema",
        lambda place: create(place, {"id": pa.string()}),
        UsageError,
        "created from a schema",
        "dict",
    ),
    of(
        "create: no columns",
        lambda place: create(place, pa.schema([])),
        UsageError,
        "needs columns",
    ),
    of(
        "create: where a table is",
        lambda place: create(place, uri=place / "t"),
        UsageError,
        "a table here already",
    ),
    of(
        "create: below a file",
        lambda place: create(place, uri=place / "notes.txt/t"),
        UsageError,
        "there can be no such file",
        "notes.txt",
    ),
    of(
        "create: at a file",
        lambda place: create(place, uri=place / "notes.txt"),
        UsageError,
        "there can be no such file",
        "notes.txt",
    ),
    of(
        "create: nowhere",
        lambda place: create(place, uri="hdfs://host/t"),
        UsageError,
        "hdfs://host/t",
    ),
    of(
        "create: a key that is no column",
        lambda place: create(place, key="ID"),
        UsageError,
        "no such column",
        "'ID'",
    ),
    of(
        "create: a number for a key",
        lambda place: create(place, key=5),
        UsageError,
        "option='key'",
        "str",
    ),
    of(
        "create: numbers for a key",
        lambda place: create(place, key=[0]),
        UsageError,
        "option='key'",
        "[0]",
    ),
    of(
        "create: None for a key",
        lambda place: create(place, key=None),
        UsageError,
        "a table needs a key",
    ),
    of(
        "create: a number for a partition",
        lambda place: create(place, partition_by=5),
        UsageError,
        "partition_by",
        "str",
    ),
    of(
        "create: a list for options",
        lambda place: create(place, options=[1]),
        UsageError,
        "options are no mapping",
        "list",
    ),
    of(
        "create: a text for options",
        lambda place: create(place, options="x"),
        UsageError,
        "options are no mapping",
        "str",
    ),
    of("create: no key", lambda place: create(place, key=[]), UsageError, "a table needs a key"),
    of(
        "create: a partition that is no column",
        lambda place: create(place, partition_by="town"),
        UsageError,
        "no such column",
        "'town'",
    ),
    of(
        "create: an ordering that is no column",
        lambda place: create(place, ordering="ts"),
        UsageError,
        "no such column",
        "'ts'",
    ),
    of(
        "create: an unknown index",
        lambda place: create(place, index="btree"),
        UsageError,
        "no such index",
        "btree",
    ),
    of(
        "create: an unknown option",
        lambda place: create(place, options={"file_row": 5}),
        UsageError,
        "unknown option",
        "file_row",
    ),
    of(
        "create: an option of another type",
        lambda place: create(place, options={"file_rows": "5"}),
        UsageError,
        "file_rows",
        "'5'",
    ),
    of(
        "create: an option out of range",
        lambda place: create(place, options={"file_rows": 0}),
        UsageError,
        "file_rows",
        "expected='1 to",
    ),
    of(
        "create: a column of Hudi's",
        lambda place: create(place, SCHEMA.append(pa.field("_hoodie_x", pa.string()))),
        UsageError,
        "_hoodie_x",
    ),
    of(
        "create: a column twice",
        lambda place: create(place, SCHEMA.append(SCHEMA.field(0))),
        UsageError,
        "id",
    ),
    of(
        "create: a key of floats",
        lambda place: create(place, SCHEMA.append(pa.field("f", pa.float64())), key="f"),
        UsageError,
        "f",
    ),
    of(
        "create: an empty text for an ordering",
        lambda place: create(place, ordering=""),
        UsageError,
        "no such column",
        "column=''",
    ),
    of(
        "create: a list for an index",
        lambda place: create(place, index=["record"]),
        UsageError,
        "option='index'",
        "expected='str'",
        "['record']",
    ),
    of(
        "adopt: a list for an index",
        lambda place: metatable.adopt(place / "t", index=["record"]),
        UsageError,
        "option='index'",
        "['record']",
    ),
    of(
        "adopt: a number of buckets",
        lambda place: metatable.adopt(place / "t", options={"buckets": 4}),
        UsageError,
        "option='buckets'",
        "found=4",
    ),
    of(
        "alter: a kind of change",
        verb("alter", metatable.AddColumn),
        UsageError,
        "not a change of a column",
        "AddColumn",
    ),
    of(
        "create: a set for a key",
        lambda place: create(place, key={"id", "value"}),
        UsageError,
        "a set has no order",
        "option='key'",
        "a list",
    ),
    # rows
    of(
        "insert: of keys that exist",
        verb("insert", rows(0, 3)),
        UsageError,
        "use upsert",
        "3 existing keys",
    ),
    of("insert: a number", verb("insert", 5), UsageError, "these are no rows", "int"),
    of("insert: a path", verb("insert", "rows.parquet"), UsageError, "these are no rows", "str"),
    of("insert: a list of dicts", verb("insert", [{"id": "x"}]), UsageError, "list"),
    of("upsert: None", verb("upsert", None), UsageError, "these are no rows"),
    of(
        "upsert: a column too many",
        lambda place: opened(place).upsert(rows(0, 3).append_column("more", pa.array([1, 2, 3]))),
        UsageError,
        "'more'",
    ),
    of(
        "upsert: a column twice",
        lambda place: opened(place).upsert(
            rows(0, 3).append_column("id", pa.array(["a", "b", "c"]))
        ),
        UsageError,
        "twice",
    ),
    of(
        "upsert: a null key",
        verb("upsert", table_of(id=pa.array([None], pa.string()), city=["Ulm"], value=[1])),
        UsageError,
        "null",
    ),
    of(
        "upsert: an empty key",
        verb("upsert", table_of(id=[""], city=["Ulm"], value=[1])),
        UsageError,
        "empty",
    ),
    of(
        "upsert: texts for numbers",
        verb("upsert", table_of(id=ID, city=["Ulm"], value=["many"])),
        UsageError,
        "value",
    ),
    of("upsert: a table as a row", verb("upsert", {"id": "x"}), UsageError, "dict"),
    of("delete: without the key", verb("delete", table_of(name=ID)), UsageError, "id"),
    of("delete: a list of keys", verb("delete", ["k000"]), UsageError, "list"),
    of(
        "tag: a column that is there already",
        lambda place: opened(place).tag_locations(opened(place).tag_locations(rows(0, 3))),
        UsageError,
        "_location",
    ),
    of(
        "tag: a version that is not there",
        verb("tag_locations", rows(0, 3), version=99),
        NotFoundError,
        "no such version",
        "99",
        "1 to 2",
    ),
    of(
        "explain: a version as text",
        verb("explain", rows(0, 3), version="1"),
        UsageError,
        "a version is a number",
        "'1'",
    ),
    of(
        "read_keys: a DataFrame",
        verb("read_keys", fake_dataframe()),
        UsageError,
        "read_keys reads in this process",
        "toArrow()",
    ),
    of(
        "read_keys: an unknown column",
        verb("read_keys", rows(0, 3), ["nope"]),
        UsageError,
        "no such column",
        "nope",
    ),
    of("read_keys: no column", verb("read_keys", rows(0, 3), []), UsageError, "no column is asked"),
    of("scan: no column", scan(columns=[]), UsageError, "no column is asked"),
    of(
        "scan: a column twice",
        scan(columns=["id", "id"]),
        UsageError,
        "a column is named twice",
        "['id', 'id']",
    ),
    of(
        "read_keys: a column twice",
        verb("read_keys", rows(0, 3), ["id", "id"]),
        UsageError,
        "a column is named twice",
        "['id', 'id']",
    ),
    of(
        "changes: a column twice",
        verb("changes", 0, columns=["id", "id"]),
        UsageError,
        "a column is named twice",
        "['id', 'id']",
    ),
    of(
        "scan: lists of columns",
        scan(columns=[["id"]]),
        UsageError,
        "columns are named",
        "found=['id']",
    ),
    of(
        "read_keys: lists of columns",
        verb("read_keys", rows(0, 3), [["id"]]),
        UsageError,
        "columns are named",
        "found=['id']",
    ),
    of(
        "changes: lists of columns",
        verb("changes", 0, columns=[["id"]]),
        UsageError,
        "columns are named",
        "found=['id']",
    ),
    of(
        "scan: a number of columns",
        scan(columns=5),
        UsageError,
        "columns are named",
        "found='int'",
    ),
    of(
        "read_keys: a number of columns",
        verb("read_keys", rows(0, 3), 5),
        UsageError,
        "columns are named",
        "found='int'",
    ),
    of(
        "changes: a number of columns",
        verb("changes", 0, columns=5),
        UsageError,
        "columns are named",
        "found='int'",
    ),
    # reads
    of("scan: a version as text", scan(version="2"), UsageError, "a version is a number", "'2'"),
    of("scan: a version as a flag", scan(version=True), UsageError, "a version is a number"),
    of("scan: a version as a float", scan(version=2.0), UsageError, "a version is a number"),
    of("scan: version 0", scan(version=0), NotFoundError, "no such version", "1 to 2"),
    of("scan: a version below 0", scan(version=-1), NotFoundError, "no such version", "1 to 2"),
    of("scan: a version to come", scan(version=3), NotFoundError, "no such version", "1 to 2"),
    of("scan: an unknown column", scan(columns=["nope"]), UsageError, "no such column", "nope"),
    of("scan: where of an unknown column", scan(where=[("nope", "=", 1)]), UsageError, "nope"),
    of("scan: where of an unknown operator", scan(where=[("value", "~", 1)]), UsageError, "~"),
    of("scan: where of another type", scan(where=[("value", "=", "x")]), UsageError, "value"),
    of("scan: where as SQL", scan(where="value > 5"), UsageError, "not a predicate", "value > 5"),
    of("files: a version to come", verb("files", version=99), NotFoundError, "no such version"),
    # savepoints
    of(
        "savepoint: a note that is not UTF-8",
        verb("savepoint", "n", note="\ud800"),
        UsageError,
        "a note is not UTF-8",
        "'\\ud800'",
    ),
    of(
        "savepoint: a note as long as data",
        verb("savepoint", "n", note="n" * (16 << 10) + "n"),
        UsageError,
        "a note is short",
        "16385 bytes",
    ),
    of(
        "restore: a list of savepoints",
        verb("restore", savepoint=["a"]),
        UsageError,
        "no such savepoint",
        "['a']",
    ),
    of(
        "drop_savepoint: a list of them",
        verb("drop_savepoint", ["a"]),
        UsageError,
        "no such savepoint",
        "['a']",
    ),
    of(
        "set_options: a number",
        verb("set_options", 5),
        UsageError,
        "options are no mapping",
        "found='int'",
    ),
    of("set_options: None", verb("set_options", None), UsageError, "options are no mapping"),
    # services
    of(
        "compact: an unknown partition",
        verb("compact", partitions="nope"),
        UsageError,
        "no such metadata partition",
        "'nope'",
        "files",
    ),
    of(
        "compact: a partition as a number",
        verb("compact", partitions=5),
        UsageError,
        "partitions",
        "str",
    ),
    of(
        "compact: an unknown bucket",
        verb("compact", buckets=99),
        UsageError,
        "no such bucket",
        "99",
    ),
    of("compact: a bucket as text", verb("compact", buckets="0"), UsageError, "buckets", "int"),
    of(
        "compact: a bucket as a flag", verb("compact", buckets=[True]), UsageError, "buckets", "int"
    ),
    of(
        "compact: an engine by name",
        verb("compact", engine="spark"),
        UsageError,
        "no such engine",
        "a Spark session",
    ),
    of(
        "compact: a plan that is not there",
        verb("compact", plan=f"compact-{'0' * 32}"),
        NotFoundError,
        "there is no such plan",
        ".hoodie/metatable/plans/compact-000",
    ),
    of(
        "compact: a plan as a path",
        verb("compact", plan="../compact"),
        UsageError,
        "not the name of a plan",
        "'../compact'",
        "32 hexadecimal digits",
    ),
    of("compact: a plan as a number", verb("compact", plan=5), UsageError, "the name of a plan"),
    of("compact: a plan without a name", verb("compact", plan=""), UsageError, "name of a plan"),
    of(
        "resize_buckets: a plan as a number",
        verb("resize_buckets", plan=20260131134500000),
        UsageError,
        "the name of a plan",
    ),
    of(
        "compact_logs: a plan as a number",
        verb("compact_logs", plan=20260131134500000),
        UsageError,
        "the name of a plan",
        "an instant",
    ),
    of(
        "compact_logs: a plan to be taken back, and no name",
        verb("compact_logs", take_back=True),
        UsageError,
        "which plan?",
    ),
    of(
        "compact: a plan, and what it says already",
        verb("compact", plan=f"compact-{'0' * 32}", major=True, buckets=[0]),
        UsageError,
        "plan stands alone",
        "['major', 'buckets']",
    ),
    of(
        "compact: a plan to be scheduled",
        verb("compact", plan=f"compact-{'0' * 32}", schedule=True),
        UsageError,
        "schedule stands alone",
        "['plan']",
    ),
    of(
        "compact: scheduled without being stored",
        verb("compact", schedule=True, dry_run=True),
        UsageError,
        "schedule stands alone",
        "['dry_run']",
    ),
    of(
        "compact: an unknown partition, scheduled",
        verb("compact", partitions="nope", schedule=True),
        UsageError,
        "no such metadata partition",
    ),
    of(
        "rollback: of an empty table",
        lambda place: create(
            Path(f"memory://{place.name}"), uri=f"memory://{place.name}", storage_options=None
        ).rollback(),
        UsageError,
        "no commit to roll back",
    ),
    # what others did to the files
    of(
        "properties: of merge-on-read",
        announced("hoodie.table.type", "MERGE_ON_READ"),
        UpgradeError,
        "COPY_ON_WRITE",
        "MERGE_ON_READ",
    ),
    of(
        "properties: another key",
        announced("hoodie.table.recordkey.fields", "value"),
        CorruptError,
        "hoodie.table.recordkey.fields",
        "'id'",
        "'value'",
    ),
    of(
        "properties: another partitioning",
        announced("hoodie.table.partition.fields", ""),
        CorruptError,
        "hoodie.table.partition.fields",
        "'city'",
    ),
    of(
        "properties: another name",
        announced("hoodie.table.checksum", "x", announced("hoodie.table.name", "u")),
        CorruptError,
        "properties checksum mismatch",
    ),
    of(
        "properties: another key, then an upsert",
        announced(
            "hoodie.table.recordkey.fields",
            "value",
            lambda place: metatable.Table(Store(place / "t", FAST)).upsert(rows(0, 3)),
        ),
        CorruptError,
        "hoodie.table.recordkey.fields",
    ),
    of(
        "properties: upgraded by Hudi",
        announced("hoodie.table.version", "8"),
        UpgradeError,
        "Hudi has upgraded this table",
        "version 8",
    ),
    of(
        "properties: a version of 5000 digits",
        announced("hoodie.table.version", "6" * 5000),
        CorruptError,
        "tells no table version",
    ),
    of(
        "properties: a version that is no number",
        announced("hoodie.table.version", "abc"),
        CorruptError,
        "tells no table version",
        "'abc'",
    ),
    of(
        "properties: empty",
        damaged(".hoodie/hoodie.properties", b""),
        CorruptError,
        "empty or damaged",
    ),
    of(
        "set_options: an option that there is not",
        verb("set_options", {"nope": 1}),
        UsageError,
        "unknown option",
        "'nope'",
    ),
    of(
        "properties: no text",
        damaged(".hoodie/hoodie.properties", b"\xff\xfe"),
        CorruptError,
        "not a properties file",
    ),
    of("manifest: empty", damaged(NEWEST, b""), CorruptError, "manifest", NEWEST),
    of("manifest: no JSON", damaged(NEWEST, b"{"), CorruptError, "manifest", NEWEST),
    of("manifest: no object", damaged(NEWEST, b"[]"), CorruptError, "manifest", NEWEST),
    of(
        "manifest: no text",
        damaged(NEWEST, b'"\xff' + 9_000 * b"?"),
        CorruptError,
        "manifest",
        NEWEST,
        "can't decode byte 0xff",
    ),
    of(
        "a data file is gone",
        lambda place: (
            sorted((place / "t").rglob("*.parquet"))[0].unlink(),
            opened(place).scan().to_arrow(),
        ),
        CorruptError,
        "file is missing",
        ".parquet",
    ),
]


@pytest.fixture
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = made_once(tmp_path_factory, "mistaken", _made)
    shutil.copytree(made, tmp_path / "t")
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def _made(uri: str) -> None:
    make(uri, "metadata_bloom", "partition").insert(rows(0, 60))


def contents(place: Path) -> dict[str, str]:
    """Every file's checksum."""
    return {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def test_the_list_is_long_and_its_names_are_its_own() -> None:
    assert len(MISTAKES) >= 60
    assert len({one.name for one in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.name)
def test_mistake_is_told_in_one_line_and_changes_nothing(
    place: Path, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = contents(place)
    with pytest.raises(MetatableError) as caught:
        mistake.call(place)
    told = str(caught.value)
    assert type(caught.value) is mistake.kind, told
    assert [word for word in mistake.words if word not in told] == [], told
    assert len(told) < 1_500
    for strange in ("\n", "Traceback", "Debug source", " { ", "<?xml", "<Error", "object at 0x"):
        assert strange not in told
    changed = {name for name, sum_ in contents(place).items() if before.get(name) != sum_}
    touched = ("hoodie.properties", "latest", NEWEST)  # by the rows that damage them first
    assert [name for name in changed if not name.endswith(touched)] == []
    assert (before.keys() - contents(place).keys()) <= {
        name for name in before if name.endswith(".parquet")
    }


COMMANDS = [
    ("describe typo", 3, "there is no table here"),
    ("describe", 2, "required: TABLE"),
    ("descrbe t", 2, "invalid choice: 'descrbe'"),
    ("describe t u", 2, "unrecognized arguments: u"),
    ("describe t --jason", 2, "unrecognized arguments: --jason"),
    ("describe hdfs://host/t", 2, "no store for such an address"),
    ("describe s3://", 2, "not an address"),
    ("describe ''", 2, "not an address"),
    ("describe t --storage-option durable", 2, "NAME=VALUE"),
    ("describe t --storage-option durabel=false", 2, "unknown storage option"),
    ("describe s3://lake/t --storage-option timeout=soon", 2, "timeout"),
    ("describe s3://lake/t --storage-option allow_http=maybe", 2, "true or false"),
    (
        "describe s3://lake/t --storage-option endpoint=http://127.0.0.1:1"
        " --storage-option allow_http=true --storage-option max_retries=0"
        " --storage-option access_key_id=x --storage-option secret_access_key=x",
        4,
        "Connection refused",
    ),
    ("history t --limit none", 2, "--limit"),
    ("history t --limit -5", 2, "must be a whole number, 1 or more"),
    ("compact t --partition nope", 2, "no such metadata partition"),
    ("compact t --bucket 99", 2, "no such bucket"),
    ("compact t --bucket x", 2, "invalid int value"),
    ("compact t --engine flink", 2, "invalid choice: 'flink'"),
    ("compact t --plan", 2, "--plan"),
    ("compact t --plan nope", 2, "not the name of a plan"),
    (f"compact t --plan compact-{'0' * 32}", 3, "there is no such plan"),
    ("compact t --schedule --dry-run", 2, "schedule stands alone"),
    ("rollback notes.txt", 3, "there is no table here"),
    ("verify .", 3, "there is no table here"),
    ("hfile meta none.hfile", 3, "file is missing"),
    ("hfile meta t", 2, "not a file"),
    ("hfile meta notes.txt", 3, "notes.txt"),
    ("hfile get notes.txt", 2, "required: KEY"),
    ("hfile scan hdfs://host/a.hfile", 2, "no store for such an address"),
    ("hfile verify s3:///a.hfile", 2, "s3:"),
]


@pytest.mark.parametrize(("words", "code", "told"), COMMANDS, ids=[words for words, *_ in COMMANDS])
def test_mistake_at_the_command_line_is_one_line_and_a_code(
    place: Path,
    words: str,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    before = contents(place)
    try:
        found = main(shlex.split(words))
    except SystemExit as end:
        found = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (found, out) == (code, ""), err
    assert err.count("\n") == 1
    assert err.startswith("metatable")
    assert told in err
    assert "Traceback" not in err
    assert contents(place) == before


def test_a_tilde_stands_for_the_home_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    assert metatable.open("~/t", FAST).uri == os.path.join(place, "t")


def test_versions_and_limits_may_be_any_whole_number(place: Path) -> None:
    assert opened(place).scan(version=np.int64(2), limit=np.int64(2)).count() == 2
    assert [one.version for one in opened(place).history(np.int64(1))] == [2]


def test_one_name_and_one_number_may_be_compacted(place: Path) -> None:
    opened(place).upsert(rows(0, 3))
    done = opened(place).compact(partitions="files", buckets=0, major=True)
    assert done.files_after < done.files_before


def test_wrong_secret_is_told_without_the_services_words() -> None:
    with serving() as server:
        server.always = 403, "SignatureDoesNotMatch"
        with pytest.raises(AccessError, match="SignatureDoesNotMatch") as caught:
            metatable.open(f"{server.uri}/t", server.options)
    assert "\n" not in str(caught.value)
    assert "<" not in str(caught.value)


def test_a_store_that_overwrites_what_it_may_not_holds_no_table() -> None:
    with serving() as server:
        server.overwrites = True
        with pytest.raises(UsageError, match="overwrites what it was told not to"):
            metatable.create(f"{server.uri}/t", SCHEMA, key="id", storage_options=server.options)
        assert not server.objects
