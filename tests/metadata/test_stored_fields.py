"""Whatever is stored can grow: what is absent takes its default, what is unknown stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import CorruptError, Options, Table, UpgradeError
from metatable.data.stored_fields import decode_fields, encode_fields, many, mapping_of, stored
from metatable.metadata.manifests.leases import StoredLease
from metatable.metadata.manifests.manifest import (
    LEAST_READER,
    WRITER_FORMAT,
    Manifest,
    version_path,
)
from metatable.metadata.manifests.pages import HFileRef, read_page
from metatable.metadata.manifests.sealed import checksum, seal
from metatable.metadata.manifests.versions import load_newest
from metatable.storage.cache import shared
from metatable.storage.store import Store
from tests.index.rows import make, rows


@dataclass(frozen=True, slots=True)
class Leaf:
    number: int
    raw: bytes = b""
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Root:
    name: str
    leaves: tuple[Leaf, ...] = stored(many(Leaf, "leaf"), default=())
    by_name: Mapping[str, tuple[Leaf, ...]] = stored(
        mapping_of(many(Leaf, "leaf")), default_factory=dict
    )
    pair: tuple[int, str] | None = None
    texts: tuple[str, ...] = ("a",)
    salts: tuple[int, int] = stored(required=True, default_factory=lambda: (1, 2))
    anything: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


WHOLE = Root(
    "r", (Leaf(1, b"\0x"), Leaf(-5)), {"a": (Leaf(3),)}, (7, "i"), ("b", "c"), (8, 9), {"x": [1]}
)


def test_a_record_comes_back_as_it_was() -> None:
    assert decode_fields(Root, json.loads(json.dumps(encode_fields(WHOLE))), "p", "root") == WHOLE


def test_an_absent_field_takes_its_default() -> None:
    made = decode_fields(Root, {"name": "r", "salts": [3, 4]}, "p", "root")
    assert made == Root("r", salts=(3, 4))


@pytest.mark.parametrize("lost", ["name", "salts"])
def test_a_field_without_a_default_for_old_records_must_be_there(lost: str) -> None:
    body = encode_fields(WHOLE)
    del body[lost]
    with pytest.raises(CorruptError, match=f"root is incomplete: path='p' expected='{lost}'"):
        decode_fields(Root, body, "p", "root")


def test_unknown_fields_are_kept_at_every_depth_and_written_again() -> None:
    body = encode_fields(WHOLE)
    body["new"] = {"any": [1, None]}
    body["leaves"][0]["tag"] = "x"
    body["by_name"]["a"][0]["tag"] = "y"
    made = decode_fields(Root, body, "p", "root")
    assert encode_fields(made) == body
    assert encode_fields(replace(made, name="other")) == {**body, "name": "other"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("name", 5, "a text"),
        ("name", None, "a text"),
        ("pair", [1], "\\[integer, text\\] or null"),
        ("pair", ["1", "2"], "\\[integer, text\\] or null"),
        ("texts", "abc", "a list of texts"),
        ("texts", ["a", 5], "a list of texts"),
        ("salts", [1, 2, 3], "two integers"),
        ("salts", [1, True], "two integers"),
        ("salts", [1, 1 << 64], "two integers"),
        ("leaves", {}, "a list of leafs"),
        ("by_name", [], "an object of a list of leafs"),
        ("anything", [1], "an object"),
    ],
)
def test_a_field_of_another_kind_is_damage(name: str, value: Any, expected: str) -> None:
    body = encode_fields(WHOLE) | {name: value}
    told = f"root is damaged: path='p' field='{name}' expected='?\"?{expected}"
    with pytest.raises(CorruptError, match=told):
        decode_fields(Root, body, "p", "root")


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        ({"number": 1.5}, "leaf is damaged: path='p' field='number' expected='an integer'"),
        ({"number": 1, "raw": "ä"}, "leaf is damaged: path='p' field='raw' expected='base64'"),
        ({}, "leaf is incomplete: path='p' expected='number'"),
        (7, "leaf is damaged: path='p' expected='an object' found='7'"),
    ],
)
def test_damage_inside_of_a_record_names_the_file(leaf: Any, told: str) -> None:
    with pytest.raises(CorruptError, match=told):
        decode_fields(Root, encode_fields(WHOLE) | {"leaves": [leaf]}, "p", "root")


@pytest.fixture
def table(table_uri: str) -> Table:
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 30))
    return table


def changed(table: Table, change: Any, version: int | None = None) -> None:
    """Rewrite a root (the newest) after `change` to its body, with a right checksum."""
    path = Path(table.uri, version_path(version or table.version))
    body = json.loads(path.read_bytes())["body"]
    change(body)
    path.write_bytes(seal(body))


def newest(table: Table) -> Manifest:
    found = load_newest(Store(table.uri))
    assert found is not None
    return found


def grow(body: dict[str, Any]) -> None:
    body["future"] = {"a": 1}
    body["options"]["future_option"] = [True]
    for pages in body["pages"].values():
        pages[0]["future_page"] = 5


def test_a_root_of_a_newer_version_keeps_its_fields_through_every_kind_of_commit(
    table: Table,
) -> None:
    changed(table, grow)
    table.upsert(rows(20, 40))
    for act in (lambda: None, lambda: table.compact(partitions=["files"]), table.rollback):
        act()
        found = newest(table)
        assert found.unknown == {"future": {"a": 1}}
        assert found.options.unknown == {"future_option": [True]}
        kept = [page.unknown for page in found.pages["record_index"]]
        assert kept[0] == {"future_page": 5}
    assert table.verify().findings == ()


@pytest.mark.usefixtures("pages_as_files")
def test_a_reference_of_a_newer_version_keeps_its_fields_when_a_compaction_narrows_it(
    table: Table,
) -> None:
    def narrow(body: dict[str, Any]) -> None:
        [page] = body["pages"]["record_index"]
        path = Path(table.uri, page["path"])
        held = json.loads(path.read_bytes())["body"]
        held["refs"][0]["future"] = "kept"
        path.write_bytes(seal(held))
        page["checksum"] = checksum(path.read_bytes())

    table.delete(rows(0, 5))
    table.compact(major=True, partitions=["record_index"])
    changed(table, narrow)
    table.upsert(rows(3, 9))
    table.compact(major=True, partitions=["record_index"], buckets=[4])
    [page] = [one for one in newest(table).pages["record_index"] if one.ref_count > 1]
    refs = read_page(Store(table.uri), page)
    assert {ref.unknown.get("future") for ref in refs} == {"kept", None}


def test_a_step_and_a_lease_of_a_newer_version_are_read(table: Table) -> None:
    changed(table, lambda body: body["steps"][0].update(future=1))
    assert newest(table).steps[0].unknown == {"future": 1}
    lease = StoredLease.decode(b'{"nonce": "n", "expires_ms": 5, "future": 1}', "p")
    assert json.loads(lease.encode())["future"] == 1


def test_absent_fields_of_a_root_take_their_defaults(table: Table) -> None:
    def shrink(body: dict[str, Any]) -> None:
        for name in ("restored_at", "summary", "commits", "time_ms"):
            del body[name]
        del body["options"]["filter_fpp"]

    changed(table, shrink)
    found = newest(table)
    assert (found.restored_at, found.summary, found.commits) == (0, {}, "")
    assert found.options.filter_fpp == 1e-9
    table.upsert(rows(20, 40))
    assert newest(table).commits.startswith("2:")


@pytest.mark.parametrize("part", ["reader", "writer"])
def test_a_newer_number_is_refused_by_readers_or_by_writers_alone(table: Table, part: str) -> None:
    changed(table, lambda body: body["format"].update({part: 99}))
    if part == "reader":
        with pytest.raises(UpgradeError, match="newer format: upgrade metatable: "):
            table.scan()
        with pytest.raises(UpgradeError):
            metatable.open(table.uri)
        return
    assert table.scan().count() == 30
    for act in (lambda: table.upsert(rows(0, 3)), table.compact, table.rollback):
        with pytest.raises(UpgradeError, match="newer format: upgrade metatable to write it"):
            act()
    assert table.version == 2


@pytest.mark.usefixtures("pages_as_files")
def test_a_commit_by_us_raises_the_number_of_writers_and_never_lowers_any(table: Table) -> None:
    changed(table, lambda body: body.update(format={"reader": 1, "writer": 1, "later": 3}))
    table.upsert(rows(20, 40))
    ours = {"reader": LEAST_READER, "writer": WRITER_FORMAT}
    assert newest(table).format == {**ours, "later": 3}


@pytest.mark.parametrize(
    "hostile",
    [
        lambda body: body.update(version="2"),
        lambda body: body.update(version=10**30),
        lambda body: body.update(parent=2),
        lambda body: body.update(parent=-1),
        lambda body: body.update(summary=[1]),
        lambda body: body.update(pages={"files": [{"path": 5}]}),
        lambda body: body.update(pages=[]),
        lambda body: body["pages"]["files"][0].update(path="elsewhere"),
        lambda body: body["pages"]["files"][0].update(refs=[]),
        lambda body: body["pages"]["files"][0].update(ref_count=9),
        lambda body: body["pages"]["files"][0]["refs"][0].update(lo="0"),
        lambda body: body["pages"]["files"][0]["refs"][0].update(hi=-1),
        lambda body: body.update(options=None),
        lambda body: body["options"].update(buckets={"files": "many"}),
        lambda body: body["options"].update(buckets={"files": 0}),
        lambda body: body["options"].update(buckets={"files": 10**12}),
        lambda body: body["options"].update(row_group_rows=-1),
        lambda body: body["options"].update(file_rows=0),
        lambda body: body["options"].update(filter_fpp=0.0),
        lambda body: body["options"].pop("key_salts"),
        lambda body: body.update(steps=[["complete"]]),
        lambda body: body.update(steps=["complete"]),
        lambda body: body.update(last_commit=[1]),
        lambda body: body.update(schema="{"),
        lambda body: body.update(schema="[" * 100_000),
        lambda body: body.update(schema='{"fields": [1]}'),
    ],
)
def test_a_crafted_root_is_told_as_damage(table: Table, hostile: Any) -> None:
    changed(table, hostile)
    with pytest.raises(CorruptError) as told:
        table.scan().to_arrow()
    assert told.value.facts["path"].endswith(".json")


@pytest.mark.parametrize("raw", [b"", b"[" * 200_000, b'{"body": 1}', b"\xff", b"7", b'{"a":NaN}'])
def test_a_root_of_garbage_is_told_as_damage(table: Table, raw: bytes) -> None:
    path = version_path(table.version)
    Path(table.uri, path).write_bytes(raw)
    with pytest.raises(CorruptError) as told:
        table.scan()
    assert told.value.facts["path"] == path


def test_options_and_references_come_back_as_they_were(table: Table) -> None:
    options = table.options
    assert Options.decode(json.loads(json.dumps(options.encode())), "p") == options
    for ref in read_page(Store(table.uri), newest(table).pages["files"][0]):
        assert HFileRef.decode(json.loads(json.dumps(ref.encode()))) == ref


def test_a_number_that_no_double_can_be_is_damage(table: Table) -> None:
    told = table.options.encode()
    assert Options.decode({**told, "lease_seconds": 7}, "p").lease_seconds == 7
    for wrong in (10**400, 1 << 63, True, "7"):
        with pytest.raises(CorruptError, match="lease_seconds"):
            Options.decode({**told, "lease_seconds": wrong}, "p")


def test_a_root_that_was_put_is_the_one_that_is_read(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "v": [1, 2]})
    durable = {"durable": "false"}
    table = metatable.create(tmp_path, rows.schema, key="id", storage_options=durable)
    changes: list[Callable[[], object]] = [
        lambda: table.upsert(rows),
        lambda: table.savepoint("kept"),
        lambda: table.delete(rows.slice(1)),
        lambda: table.compact(major=True),
        lambda: table.alter(metatable.AddColumn("w", pa.float64())),
    ]
    for change in changes:
        change()
        (name, raw), kept = shared.get(("root", table.uri))
        assert Manifest.decode(raw, name) == kept == load_newest(Store(table.uri))
