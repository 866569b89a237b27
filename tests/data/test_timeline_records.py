"""Containers of Hudi's timeline that ask for more than their bytes are worth."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from metatable.data.hoodie.clustering_plan import BucketsPlan
from metatable.data.hoodie.savepoint_metadata import saved_files
from metatable.data.hoodie.slice_compaction_plan import SliceCompactionPlan
from metatable.data.hoodie.undo_metadata import undo_plan
from metatable.storage.avro.one_long import encoded_long
from metatable.storage.errors import CorruptError

READERS: list[Callable[[bytes], object]] = [
    lambda body: BucketsPlan.decode(body, "a/plan"),
    lambda body: SliceCompactionPlan.decode(body, "a/plan"),
    lambda body: list(saved_files(body, "a/plan")),
    lambda body: undo_plan("rollback", body, "a/plan"),
    lambda body: undo_plan("restore", body, "a/plan"),
]


def sized(raw: bytes) -> bytes:
    return encoded_long(len(raw)) + raw


def container(schema: Any, datum: bytes, count: int = 1, codec: bytes = b"null") -> bytes:
    sync, told = b"s" * 16, sized(b"avro.schema") + sized(json.dumps(schema).encode())
    head = b"Obj\x01" + encoded_long(2) + told + sized(b"avro.codec") + sized(codec) + b"\0" + sync
    return head + encoded_long(count) + sized(datum) + sync


def record(name: str = "r", **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def again_and_again(levels: int) -> Any:
    kind: Any = record("r0", a="null", b="null")
    for level in range(1, levels):
        kind = record(f"r{level}", a=kind, b=f"r{level - 1}")
    return kind


def within(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return record(version=kind)


MANY = bytes(1 << 20)
TEXT = record(version="string")


@pytest.mark.parametrize(
    "body",
    [
        container(record(a=["null", "r"]), b"\x02" * 100_000 + b"\0"),
        container(record(a={"type": "array", "items": "r"}), b"\x02" * 100_000),
        container(record(operations={"type": "array", "items": "null"}), encoded_long(1 << 40)),
        container(again_and_again(40), b""),
        container(within(900), b"\0"),
        container(record(version="null"), b"", 1 << 40),
        container(TEXT, zlib.compress(MANY)[2:-4], codec=b"deflate"),
        container(TEXT, lzma.compress(MANY), codec=b"xz"),
        container(TEXT, encoded_long(1 << 40)),
        container("int", b"\x02"),
        b"Obj\x01" + encoded_long(1) + encoded_long(1 << 40),
        b"Obj\x01" + encoded_long(1 << 40),
        b"Obj\x01\0" + b"s" * 16,
    ],
    ids=range(13),
)
@pytest.mark.parametrize("read", READERS)
def test_what_asks_for_more_than_it_is_worth_is_damage(
    body: bytes, read: Callable[[bytes], object]
) -> None:
    """It ended the interpreter, or went on for hours, by the schema that it tells itself."""
    with pytest.raises(CorruptError, match="not readable"):
        read(body)
