"""Plans of compactions of slices: those of Hudi, in both directions, and hostile ones."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.schema import to_parsing_canonical_form

from metatable.data.hoodie.slice_compaction_plan import SliceCompaction, SliceCompactionPlan
from metatable.storage.errors import CorruptError, UpgradeError

T = "20260101000000000"
SLICE = SliceCompaction(
    "city=sf", "f-0", T, f"f-0_0-0-0_{T}.parquet", (f".f-0_{T}.log.1_0-0-0",), {"TOTAL_IO_MB": 1.0}
)
PLAN = SliceCompactionPlan((SLICE, replace(SLICE, partition_path="", base_name=None)))


def stored_plans(interop: Path) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of all that the real tables hold, those of Hudi's metadata tables too."""
    for archive in [*interop.glob("hudi-spark/*.zip"), *interop.glob("hudi/*.zip")]:
        with zipfile.ZipFile(archive) as inside:
            for name in inside.namelist():
                if name.endswith("compaction.requested") and not name.startswith("__MACOSX"):
                    yield name, inside.read(name)


def record_of(body: bytes) -> Any:
    [told] = fastavro.reader(io.BytesIO(body))
    return told


def canonical(body: bytes) -> str:
    return to_parsing_canonical_form(fastavro.reader(io.BytesIO(body)).writer_schema)


def changed(**fields: Any) -> bytes:
    """The plan with other fields, of the record or of its first operation."""
    told = record_of(PLAN.encode())
    schema = fastavro.reader(io.BytesIO(PLAN.encode())).writer_schema
    for name, value in fields.items():
        place = told if name in told else told["operations"][0]
        place[name] = value
    with io.BytesIO() as out:
        fastavro.writer(out, schema, [told])
        return out.getvalue()


def test_a_plan_goes_both_ways() -> None:
    for plan in (
        PLAN,
        SliceCompactionPlan(()),
        replace(PLAN, compactor="org.x.Y", preserves_meta_columns=True, extra={"a": "b"}),
    ):
        assert SliceCompactionPlan.decode(plan.encode(), "p") == plan


def test_plans_of_hudi_are_read_and_written_again(interop: Path) -> None:
    plans = list(stored_plans(interop))
    assert len(plans) >= 8
    logs = 0
    for name, body in plans:
        plan = SliceCompactionPlan.decode(body, name)
        again = record_of(plan.encode())
        told = record_of(body)
        expected = {**told, "extraMetadata": told["extraMetadata"] or {}}
        assert again == {"missingSchedulePartitions": []} | expected, name
        logs += sum(len(one.log_names) for one in plan.slices)
        assert (plan.compactor is None) == (".compaction." in name)
    assert logs > 40


def test_the_schema_is_that_of_hudi_s_own_class(interop: Path) -> None:
    """Canonical forms leave out documentation and defaults."""
    theirs = {name: body for name, body in stored_plans(interop) if name.startswith("mor_avro")}
    assert len(theirs) >= 3
    ours = canonical(PLAN.encode())
    assert {canonical(body) for body in theirs.values()} == {ours}
    schema = fastavro.reader(io.BytesIO(PLAN.encode())).writer_schema
    for body in theirs.values():
        written = fastavro.reader(io.BytesIO(body)).writer_schema
        defaults = [(one["name"], one.get("default", ...)) for one in json_of(written)["fields"]]
        assert defaults == [(one["name"], one.get("default", ...)) for one in schema["fields"]]


def json_of(schema: Any) -> Any:
    return json.loads(json.dumps(schema))


@pytest.mark.parametrize("body", [b"", b"Obj\x01", PLAN.encode()[:-9], PLAN.encode()[:200]])
def test_what_is_no_plan_is_damage(body: bytes) -> None:
    with pytest.raises(CorruptError, match=r"compaction plan is not readable: path='a/plan'"):
        SliceCompactionPlan.decode(body, "a/plan")


@pytest.mark.parametrize("name", ["fileId", "baseInstantTime", "partitionPath"])
def test_a_slice_that_is_not_told_is_damage(name: str) -> None:
    with pytest.raises(CorruptError, match="not readable"):
        SliceCompactionPlan.decode(changed(**{name: None}), "a/plan")


def test_a_slice_told_by_numbers_is_damage() -> None:
    """A file tells the schema that it is read by."""
    told = record_of(PLAN.encode())
    schema = json_of(fastavro.reader(io.BytesIO(PLAN.encode())).writer_schema)
    by_name = {one["name"]: one for one in schema["fields"]}
    operation = by_name["operations"]["type"][1]["items"]
    for name in ("fileId", "partitionPath", "deltaFilePaths"):
        kinds = {one["name"]: one for one in json_of(operation["fields"])}
        kind: Any = {"type": "array", "items": "int"} if name[-1] == "s" else "int"
        kinds[name] = {"name": name, "type": kind}
        wrong = {**operation, "fields": list(kinds.values())}
        listed = {"name": "operations", "type": ["null", {"type": "array", "items": wrong}]}
        fields = [*{**by_name, "operations": listed}.values()]
        each = [{**one, name: [5] if name[-1] == "s" else 5} for one in told["operations"]]
        with io.BytesIO() as out:
            fastavro.writer(out, {**schema, "fields": fields}, [{**told, "operations": each}])
            with pytest.raises(CorruptError, match="not readable"):
                SliceCompactionPlan.decode(out.getvalue(), "a/plan")


@pytest.mark.parametrize(
    "fields",
    [
        {"dataFilePath": "../f.parquet"},
        {"dataFilePath": "/etc/passwd"},
        {"deltaFilePaths": ["a", ".."]},
        {"deltaFilePaths": [""]},
        {"deltaFilePaths": ["a\\b"]},
        {"fileId": "a/b"},
        {"partitionPath": "/a"},
        {"partitionPath": "a/../.."},
        {"partitionPath": "a//b"},
    ],
)
def test_names_that_lead_elsewhere_are_damage(fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptError, match="names a file or folder elsewhere"):
        SliceCompactionPlan.decode(changed(**fields), "a/plan")


@pytest.mark.parametrize(
    "fields", [{"version": 3}, {"version": 1}, {"version": None}, {"bootstrapFilePath": "x"}]
)
def test_plans_of_another_form_are_of_another_hudi(fields: dict[str, Any]) -> None:
    with pytest.raises(UpgradeError, match=r"of a form that is not read.*a/plan"):
        SliceCompactionPlan.decode(changed(**fields), "a/plan")


def test_fields_that_are_null_are_empty() -> None:
    nothing = changed(operations=None, extraMetadata=None, preserveHoodieMetadata=None)
    assert SliceCompactionPlan.decode(nothing, "p") == SliceCompactionPlan(())
    [first, _] = SliceCompactionPlan.decode(
        changed(deltaFilePaths=None, metrics=None, dataFilePath=""), "p"
    ).slices
    assert (first.log_names, dict(first.metrics), first.base_name) == ((), {}, None)
