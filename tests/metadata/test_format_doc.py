"""FORMAT.md and the code say the same; a stored table is read by this page alone."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

import metatable
from metatable import AddColumn, DropColumn, RenameColumn
from metatable.compaction.merging.compaction_plan import CompactionTask
from metatable.compaction.reshaping.resize_plan import ResizeTask
from metatable.data.columns import schema_text
from metatable.data.columns.stored_columns import IDS_ARE_OURS
from metatable.data.config.options import Options
from metatable.data.hoodie.timeline import ACTIONS
from metatable.data.stored_fields import UNKNOWN
from metatable.index.bucket.directory import Directory
from metatable.metadata.commits import steps
from metatable.metadata.hfiles import keys, payload
from metatable.metadata.manifests import leases, manifest, plans
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.pages import (
    PAGE_REFS,
    ROOT_KEY_BYTES,
    ROOT_REFS,
    HFileRef,
    PageRef,
    Part,
)
from metatable.metadata.partitions.bloom_filter import BloomFilterPartition
from metatable.metadata.partitions.column_stats import ColumnStatsPartition
from metatable.metadata.partitions.files import FilesPartition
from metatable.metadata.partitions.outside import OutsidePartition
from metatable.metadata.partitions.record_index import LOCATIONS, RecordIndexPartition
from metatable.metadata.partitions.rings import RingsPartition
from metatable.storage.filters import fingerprints, split_block
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.store import Store
from tests.index.rows import make, rows
from tests.root_refs import SOME_REFS, root_refs

TEXT = (Path(manifest.__file__).parents[1] / "FORMAT.md").read_text("utf-8")
SCHEMA = TEXT.partition("### Schema")[2].partition("### Options")[0]
PAST = {"past_names", "past_stats", "by_id"}
PARTITIONS = (FilesPartition, BloomFilterPartition, ColumnStatsPartition, RecordIndexPartition)
PARTITIONS += (OutsidePartition, RingsPartition)


def documented(head: str) -> list[list[str]]:
    """The rows of the table of FORMAT.md whose first head is `head`, cells without backticks."""
    lines = iter(TEXT.splitlines())
    for line in lines:
        if line.startswith(f"| {head} |"):
            next(lines)
            found = []
            for row in lines:
                if not row.startswith("|"):
                    break
                found.append([cell.strip().strip("`") for cell in row.strip("|").split("|")])
            return found
    raise AssertionError(f"no such table: {head}")


def names(head: str) -> list[str]:
    return [row[0] for row in documented(head)]


@pytest.fixture(scope="module", params=[("record", "global"), ("metadata_bloom", "partition")])
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> metatable.Table:
    table = make(str(tmp_path_factory.mktemp("stored") / "table"), *request.param)
    with root_refs(SOME_REFS):
        table.insert(rows(0, 60))
        table.upsert(rows(10, 20, value=100))
        table.delete(rows(0, 5))
    return table


def unsealed(path: Path) -> dict[str, Any]:
    """The body of a root or a page, its checksum verified as the page says."""
    sealed = json.loads(path.read_bytes())
    assert set(sealed) == {"checksum", "body"}
    compact = json.dumps(
        sealed["body"], sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()
    assert sealed["checksum"] == f"{google_crc32c.value(compact):08x}"
    body: dict[str, Any] = sealed["body"]
    return body


def newest(table: metatable.Table) -> dict[str, Any]:
    home = Path(table.uri, HOME, "manifest")
    root = unsealed(home / f"{table.version:020d}.json")
    assert (home / "latest").read_text() == f"{table.version} {root['nonce']}"
    return root


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("field", manifest.Manifest),
        ("field of a page reference", PageRef),
        ("field of a step", manifest.Step),
        ("field of a savepoint", manifest.Pin),
        ("field of a reference", HFileRef),
        ("field of a lease", leases.StoredLease),
        ("field of a plan", plans.StoredPlan),
        ("field of a task", CompactionTask),
        ("field of a resize", ResizeTask),
        ("field of an input", Part),
    ],
)
def test_documented_fields_are_those_of_the_code(head: str, kind: type) -> None:
    assert names(head) == stored_names(kind)


def stored_names(kind: type) -> list[str]:
    return [one.name for one in dataclasses.fields(kind) if one.name != UNKNOWN]


def test_stored_files_have_the_documented_fields_and_kinds(stored: metatable.Table) -> None:
    root = newest(stored)
    check(root, "field")
    check(root["steps"][0], "field of a step")
    for partition, pages in root["pages"].items():
        for page in pages:
            check(page, "field of a page reference")
            refs = refs_of(stored, partition, page)
            assert len(refs) == page["ref_count"]
            for ref in refs:
                check(ref, "field of a reference")
    kinds = {bool(page["path"]) for pages in root["pages"].values() for page in pages}
    assert kinds == {True, False}


def refs_of(stored: metatable.Table, partition: str, page: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a page, wherever it lies."""
    own: list[dict[str, Any]] = page["refs"]
    if not page["path"]:
        assert page["checksum"] == ""
        return own
    path = Path(stored.uri, page["path"])
    assert f"{google_crc32c.value(path.read_bytes()):08x}" == page["checksum"]
    body = unsealed(path)
    assert set(body) == {"partition", "refs"}
    assert (body["partition"], own) == (partition, [])
    held: list[dict[str, Any]] = body["refs"]
    return held


_KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "text": (str,),
    "object": (dict,),
    "list of texts": (list,),
    "list of objects": (list,),
    "list or null": (list, type(None)),
    "text or object": (str, dict),
    "true or false": (bool,),
}


def check(value: dict[str, Any], head: str) -> None:
    table = {row[0]: row[1] for row in documented(head)}
    assert set(value) == set(table)
    for name, kind in table.items():
        assert isinstance(value[name], _KINDS[kind]), name


def test_options_are_stored_under_their_names(stored: metatable.Table) -> None:
    assert set(newest(stored)["options"]) == set(stored_names(Options))
    sentence = re.search(r"Fixed for the life of a table.*?: (.*?)\. The others", TEXT)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) < set(newest(stored)["options"])


def test_a_stored_schema_is_as_described(stored: metatable.Table) -> None:
    text = json.loads(newest(stored)["schema"])
    assert (
        set(text) == {"fields", "last_column_id"} == set(re.findall(r"`(\w+)`, (?:a|the)", SCHEMA))
    )
    for one in text["fields"]:
        check(one, "field of a column")
    assert f"footer key `{IDS_ARE_OURS}`" in SCHEMA


@pytest.mark.usefixtures("pages_as_files")
def test_a_schema_that_has_changed_is_as_described(tmp_path: Path) -> None:
    table = make(str(tmp_path / "table"), "record", "global", hudi_readable=False)
    table.insert(rows(0, 3))
    assert newest(table)["format"]["reader"] == manifest.LEAST_READER
    table.alter(RenameColumn("note", "words"), DropColumn("value"), AddColumn("value", pa.int8()))
    body = newest(table)
    text = json.loads(body["schema"])
    known = {one["known_as"] for one in text["fields"] if "known_as" in one}
    assert known == {"note", f"value#{text['last_column_id']}"}
    told = {"known_as": "note"} | {name: text[name] for name in text if name in PAST}
    check(told, "field after a change")
    assert body["format"]["reader"] == manifest.READER_BY_ID == 6
    assert f"at most {schema_text.GREATEST_ID};" in SCHEMA


def test_numbers_of_the_text_are_those_of_the_code() -> None:
    assert f"`format.reader` is above {manifest.READER_FORMAT} " in TEXT
    assert f"`format.writer` above {manifest.WRITER_FORMAT}." in TEXT
    assert f"at most {PAGE_REFS} references" in TEXT
    assert f"no more than {ROOT_REFS} references into it" in TEXT
    assert f"more than {ROOT_KEY_BYTES:,} bytes of `first_key` and `last_key`" in TEXT
    assert f"seed 0x{keys.HUDI_SEED:016X}".lower() in TEXT.lower()
    assert f"the same {keys.PREFIX_CHARS} characters" in TEXT
    assert f"the same {keys.COLUMN_PARTITION_CHARS};" in TEXT
    assert f"META block `{LOCATIONS}`" in TEXT
    assert HOME == ".hoodie/metatable"
    assert f"{HOME}/leases" == leases.LEASES
    assert f"{HOME}/clock" == leases.CLOCK


def test_tombstones_and_partitions_are_those_of_the_table() -> None:
    table = {row[0]: row for row in documented("partition")}
    assert list(table) == [one.name for one in PARTITIONS]
    for one in PARTITIONS:
        assert bytes.fromhex(table[one.name][4]) == one.tombstone
    told = {name: row[3] for name, row in table.items()}
    assert told["files"] == f"Avro, type {payload._FILES}"
    assert told["bloom_filter"] == f"Avro, type {payload._BLOOM}"
    assert told["column_stats"] == f"Avro, type {payload._STATS}"


def test_a_ring_is_as_described() -> None:
    first = Directory.first("city=ny", 2).metadata
    told = json.loads(first.encode())
    assert list(told) == names("field of a ring")
    assert list(told["nodes"][0]) == names("field of a node")
    assert f"instant `{first.instant}`" in TEXT
    name = (0).to_bytes(8) + (2**30 - 1).to_bytes(8) + b"city=ny"
    digest = hashlib.md5(name, usedforsecurity=False).digest()
    assert told["nodes"][0]["fileIdPrefix"] == str(uuid.UUID(bytes=digest, version=3))


def test_stored_keys_have_the_documented_lengths(stored: metatable.Table) -> None:
    lengths = {row[0]: row[2].split(",")[0] for row in documented("partition")}
    met = set()
    for path in Path(stored.uri, HOME).rglob("*.hfile"):
        partition = path.parent.name
        met.add(partition)
        for batch in HFileReader.open(Store(path.parent), path.name).scan():
            assert {str(len(key)) for key in batch["key"].to_pylist()} == {lengths[partition]}
    assert met >= {"files", "column_stats"}
    assert len(met) == 3


def test_references_tell_the_truth_about_their_files(stored: metatable.Table) -> None:
    for name, pages in newest(stored)["pages"].items():
        for ref in (ref for page in pages for ref in refs_of(stored, name, page)):
            raw = Path(stored.uri, ref["path"]).read_bytes()
            assert (len(raw), f"{google_crc32c.value(raw):08x}") == (
                ref["size_bytes"],
                ref["checksum"],
            )
            reader = HFileReader.open(Store(stored.uri), ref["path"])
            bounds = tuple(base64.b64decode(ref[name]) for name in ("first_key", "last_key"))
            assert bounds == (reader.first_key, reader.last_key)
            assert reader.entry_count == ref["entry_count"]
            assert Path(ref["path"]).name.startswith(ref["instant"])


def test_a_lease_and_a_staged_commit_are_as_described(stored: metatable.Table) -> None:
    lease = json.loads(leases.StoredLease("n", 5).encode())
    assert lease == {"nonce": "n", "expires_ms": 5, "dead": ""}
    check(lease, "field of a lease")
    step = newest(stored)["steps"][0]
    staged = Path(stored.uri, step["staged"]).read_bytes()
    assert f"{google_crc32c.value(staged):08x}" == step["checksum"]
    assert Path(stored.uri, ".hoodie", f"{step['instant']}.commit").read_bytes() == staged


def test_the_documented_kinds_of_steps_and_their_actions_are_those_of_the_code() -> None:
    assert names("kind of step") == list(steps.KINDS)
    [told] = [row[2] for row in documented("field of a step") if row[0] == "action"]
    assert re.findall(r"`(\w+)`", told.partition("timeline: ")[2] + "`") == list(ACTIONS)


def test_a_stored_plan_is_as_described(stored: metatable.Table) -> None:
    name = stored.compact(schedule=True).plan
    plan = unsealed(Path(stored.uri, plans.PLANS, f"{name}.json"))
    check(plan, "field of a plan")
    assert set(plan["work"]) == {"kind", "tasks"}
    for task in plan["work"]["tasks"]:
        check(task, "field of a task")
        for one in task["inputs"]:
            check(one, "field of an input")


def test_fingerprints_have_the_documented_header() -> None:
    table = documented("offset")
    fixed = [(int(row[0]), int(row[1])) for row in table[:3]]
    assert [offset for offset, _ in fixed] == [0, 1, 2]
    assert sum(fixed[-1]) == int(table[3][0]) == fingerprints._HEADER.size
    assert int(table[4][1]) == fingerprints._CHECKSUM.size
    assert table[0][3] == str(fingerprints.VERSION)
    told = re.findall(
        r"^ +(\S+) +\S+ +(version|width|count|planes|checksum) ", fingerprints.__doc__ or "", re.M
    )
    assert told == [(row[0], row[2]) for row in table]


def test_split_blocks_have_the_documented_header() -> None:
    table = documented("field of `split_block`")
    assert [row[1] for row in table] == ["0", "4", "8", "end"]
    assert split_block._HEADER.size == int(table[2][1])
    assert table[2][2].split()[0] == str(split_block._BLOCK_BYTES)
    assert int(table[3][2]) == split_block._CHECKSUM.size
    assert table[0][3] == str(split_block.VERSION)
    told = re.findall(
        r"^ +(\S+) +\S+ +(version|count|blocks|checksum) ", split_block.__doc__ or "", re.M
    )
    assert told == [(row[1], row[0]) for row in table]
