"""What Hudi keeps of a planned resize: HoodieRequestedReplaceMetadata, an Avro container.

    <instant>.replacecommit.requested    one group per task: slices that go, and nodes that come

as its consistent hashing plans it. How writers go on until then is a word of ours in the plan's
extra metadata. Files are told by addresses, which nobody here goes by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from metatable.data.file_groups.children import WAYS, child_of
from metatable.data.file_groups.hashing_metadata import LAST_HASH, HashingNode
from metatable.data.file_groups.slices import DataFile, FileSlice, is_file_id
from metatable.data.hoodie.timeline_records import (
    TEXT,
    VERSION,
    decoded,
    encoded,
    map_of,
    maybe,
    record,
)
from metatable.data.hoodie.timeline_records import field as stored
from metatable.storage.errors import CorruptError, in_short

__all__ = ["BucketsPlan", "PlannedTask"]

_STRATEGY_CLASS = (
    "org.apache.hudi.client.clustering.run.strategy."
    "SparkConsistentBucketClusteringExecutionStrategy"
)
_WAY = "metatable.writers"
_PARTITION, _SEQUENCE, _CHILDREN = (
    f"clustering.group.{name}" for name in ("partition", "sequence.no", "child.node")
)
_TEXTS = map_of(TEXT)
_SLICE = record(
    "HoodieSliceInfo",
    maybe("dataFilePath", TEXT),
    maybe("deltaFilePaths", {"type": "array", "items": TEXT}),
    stored("fileId", ["null", TEXT]),
    maybe("partitionPath", TEXT),
    maybe("bootstrapFilePath", TEXT),
    VERSION,
)
_GROUP = record(
    "HoodieClusteringGroup",
    maybe("slices", {"type": "array", "items": _SLICE}),
    maybe("metrics", map_of("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    maybe("extraMetadata", _TEXTS),
    VERSION,
)
_STRATEGY = record(
    "HoodieClusteringStrategy",
    maybe("strategyClassName", TEXT),
    maybe("strategyParams", _TEXTS),
    VERSION,
)
_PLAN = record(
    "HoodieClusteringPlan",
    maybe("inputGroups", {"type": "array", "items": _GROUP}),
    maybe("strategy", _STRATEGY),
    maybe("extraMetadata", _TEXTS),
    VERSION,
    maybe("preserveHoodieMetadata", "boolean"),
    maybe("missingSchedulePartitions", {"type": "array", "items": TEXT}),
)
_SCHEMA = fastavro.parse_schema(
    record(
        "HoodieRequestedReplaceMetadata",
        maybe("operationType", TEXT),
        maybe("clusteringPlan", _PLAN),
        maybe("extraMetadata", _TEXTS),
        VERSION,
    )
)


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A split or a merge: the file ids of the buckets that go, and the nodes that come."""

    partition_path: str
    seq_no: int
    """Of the ring that it was made of."""
    parents: tuple[str, ...]
    nodes: tuple[HashingNode, ...]

    def children(self, way: str, instant: str) -> tuple[DataFile, ...]:
        """The base files that it makes."""
        path = self.partition_path
        named = enumerate(self.nodes)
        return tuple(child_of(path, node, number, way, instant) for number, node in named)


@dataclass(frozen=True, slots=True)
class BucketsPlan:
    """All that one instant resizes. `way`: how writers go on, of `WAYS`."""

    way: str
    tasks: tuple[PlannedTask, ...]

    def encode(self, uri: str, slices: Mapping[tuple[str, str], FileSlice]) -> bytes:
        """The bytes of the requested file, of a table at this address; `slices` by partition path
        and file id: those of all parents."""
        groups = []
        for task in self.tasks:
            held = [slices[task.partition_path, one] for one in task.parents]
            groups.append(_group(task, [_slice(uri, one) for one in held]))
        strategy = {"strategyClassName": _STRATEGY_CLASS, "strategyParams": {}, "version": 1}
        plan = {
            "inputGroups": groups,
            "strategy": strategy,
            "extraMetadata": {_WAY: self.way},
            "version": 1,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        }
        told = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}}
        return encoded(_SCHEMA, {**told, "version": 1})

    @classmethod
    def decode(cls, body: bytes, path: str) -> BucketsPlan:
        """Raises CorruptError, also for a plan that is not ours."""
        try:
            plan = decoded(body)["clusteringPlan"]
            way = plan["extraMetadata"][_WAY]
            made = cls(way, tuple(map(_task, plan["inputGroups"])))
            is_sound = way in WAYS and all(map(_is_sound, made.tasks))
        except Exception as error:  # fastavro raises whatever comes, and a file tells its own types
            what = "plan of a resize is not readable"
            raise CorruptError(what, path=path, found=in_short(error)) from error
        if not is_sound:
            raise CorruptError("plan of a resize is damaged", path=path, found=made.tasks[:2])
        return made


def _group(task: PlannedTask, slices: list[dict[str, Any]]) -> dict[str, Any]:
    nodes = [
        {"value": one.value, "fileIdPrefix": one.file_id_prefix, "tag": "REPLACE"}
        for one in task.nodes
    ]
    return {
        "slices": slices,
        "metrics": {},
        "numOutputFileGroups": len(task.nodes),
        "extraMetadata": {
            _SEQUENCE: str(task.seq_no),
            _CHILDREN: json.dumps(nodes),
            _PARTITION: task.partition_path,
        },
        "version": 1,
    }


def _slice(uri: str, one: FileSlice) -> dict[str, Any]:
    return {
        "dataFilePath": f"{uri}/{one.base.path}" if one.has_base else "",
        "deltaFilePaths": [f"{uri}/{log.path}" for log in one.logs],
        "fileId": one.file_id,
        "partitionPath": one.partition_path,
        "bootstrapFilePath": "",
        "version": 1,
    }


def _task(group: Mapping[str, Any]) -> PlannedTask:
    extra = group["extraMetadata"]
    nodes = [HashingNode(one["value"], one["fileIdPrefix"]) for one in json.loads(extra[_CHILDREN])]
    parents = tuple(one["fileId"] for one in group["slices"])
    return PlannedTask(extra[_PARTITION], int(extra[_SEQUENCE]), parents, tuple(nodes))


def _is_sound(task: PlannedTask) -> bool:
    """Names are joined to paths: none may lead elsewhere."""
    values = [one.value for one in task.nodes]
    ids = [*task.parents, *(one.file_id for one in task.nodes)]
    folders = task.partition_path.split("/") if task.partition_path else []
    return (
        (len(task.parents), len(task.nodes)) in ((1, 2), (2, 1))
        and all(type(one) is int and 0 <= one <= LAST_HASH for one in values)
        and all(map(is_file_id, ids))
        and len(set(ids)) == len(ids)
        and not any(one in ("", ".", "..") or "\\" in one for one in folders)
    )
