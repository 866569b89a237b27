"""Plans of resizes: in the form of Hudi's own, in both directions, and hostile ones."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.schema import to_parsing_canonical_form

from metatable.data.file_groups.children import (
    DUAL_WRITE,
    VIRTUAL_LOG,
    WAYS,
    child_of,
    is_virtual,
    node_of,
)
from metatable.data.file_groups.hashing_metadata import HashingNode
from metatable.data.file_groups.slices import DataFile, FileSlice
from metatable.data.hoodie.clustering_plan import BucketsPlan, PlannedTask
from metatable.storage.errors import CorruptError

T = "20260101000000000"
LOW, HIGH = HashingNode(99, "low"), HashingNode(7, "high")
SPLIT = PlannedTask("city=sf", 3, ("a-0",), (LOW, HIGH))
MERGE = PlannedTask("", 0, ("b-0", "c-0"), (LOW,))
PLAN = BucketsPlan(DUAL_WRITE, (SPLIT, MERGE))
PLACES = [("city=sf", "a-0"), ("", "b-0"), ("", "c-0")]
SLICES = {place: FileSlice(DataFile(*place, "0-0-0", T)) for place in PLACES}


def encoded(plan: BucketsPlan) -> bytes:
    return plan.encode("file:/t", SLICES)


def canonical(body: bytes) -> str:
    return to_parsing_canonical_form(fastavro.reader(io.BytesIO(body)).writer_schema)


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_goes_both_ways(way: str) -> None:
    plan = replace(PLAN, way=way)
    assert BucketsPlan.decode(encoded(plan), "plan") == plan


def test_its_schema_is_that_of_hudi(interop: Path) -> None:
    with zipfile.ZipFile(interop / "hudi-spark" / "mor_consistent_2pending.zip") as held:
        [name] = [one for one in held.namelist() if one.endswith("clustering.requested")]
        body = held.read(name)
    assert canonical(encoded(PLAN)) == canonical(body)
    with pytest.raises(CorruptError, match="not readable"):  # of another writer: none of ours
        BucketsPlan.decode(body, "plan")


@pytest.mark.parametrize(
    "wrong",
    [
        replace(PLAN, way="never"),
        *(
            replace(PLAN, tasks=(one,))
            for one in (
                replace(SPLIT, partition_path="../x"),
                replace(SPLIT, nodes=(LOW,)),
                replace(SPLIT, nodes=(LOW, LOW)),
                replace(SPLIT, nodes=(LOW, HashingNode(1 << 31, "x"))),
                replace(SPLIT, nodes=(LOW, HashingNode(-1, "x"))),
                replace(SPLIT, nodes=(LOW, HashingNode(1, "a"))),
                replace(SPLIT, nodes=(LOW, HashingNode(1, "../a"))),
            )
        ),
    ],
)
def test_nonsense_is_damage(wrong: BucketsPlan) -> None:
    slices = {("../x", "a-0"): SLICES["city=sf", "a-0"], **SLICES}
    with pytest.raises(CorruptError, match="plan of a resize is damaged"):
        BucketsPlan.decode(wrong.encode("", slices), "plan")


@pytest.mark.parametrize("body", [b"", b"nonsense", b"Obj\x01"])
def test_what_is_no_plan_is_damage(body: bytes) -> None:
    with pytest.raises(CorruptError, match="not readable"):
        BucketsPlan.decode(body, "plan")


def test_a_child_is_told_by_its_name() -> None:
    low, high = SPLIT.children(VIRTUAL_LOG, T)
    assert (low.name, high.name) == (f"low-0_0-99-1_{T}.parquet", f"high-0_1-7-1_{T}.parquet")
    assert [node_of(DataFile.decode(one.path)) for one in (low, high)] == [LOW, HIGH]
    assert is_virtual(low)
    assert not is_virtual(child_of("", LOW, 0, DUAL_WRITE, T))


@pytest.mark.parametrize(
    "token", ["0-0", "0-x-0", "0-2147483648-0", "0-1-2", "0--1-0", f"0-{'9' * 5000}-0"]
)
def test_a_file_of_another_name_is_no_child(token: str) -> None:
    with pytest.raises(CorruptError, match="not a child"):
        node_of(DataFile("", "a-0", token, T))


def _children(way: str) -> tuple[DataFile, ...]:
    return SPLIT.children(way, T.replace("2026", "2027"))


def test_logs_are_told_apart_by_their_tokens() -> None:
    base = FileSlice(DataFile("city=sf", "a-0", "0-0-0", T, 9))
    before: Any = base.with_logs([base.next_log("1-1-1")])
    low, high = _children(DUAL_WRITE)
    waits = before.split((low, high))
    own, copy, alone = waits.next_log("2-2-2"), low.log(1, "2-2-2"), high.log(1, "3-3-3")
    made = waits.with_logs([copy, own, alone])
    assert [one.write_token for one in made.logs] == ["1-1-1", "2-2-2", "3-3-3"]
    assert (made.copies, made.ahead) == ((copy,), (alone,))
    assert made.planned == before
    assert made.unscheduled.logs == (*before.logs, own)
    assert FileSlice.decode(made.encode()) == made
    assert made.children == (low, high)
    assert made.awaits == low.instant
