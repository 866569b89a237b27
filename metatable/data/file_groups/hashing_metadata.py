"""Hashing metadata: the ring of a table partition, as Hudi stores it.

    .hoodie/.bucket_index/consistent_hashing_metadata/<partition path>/<instant>.hashing_meta
                                                                      /<instant>.commit

The first is JSON, pretty-printed as Jackson does (two blanks, ` : `, no newline at its end):

    version        0
    partitionPath  of the table partition
    instant        of the resize that made it; 00000000000000: nobody has resized it yet
    numBuckets     how many there were at first; how many there are is told by `nodes`
    seqNo          0, 1, 2, …: how often it was resized
    nodes          [{value, fileIdPrefix, tag}], by value, ascending

RFC-42 has the same as `version` 1, `partition_path`, `instant`, `num_buckets` and
`bucket_mappings` [{`hash_value`, `file_group`}], without a number of resizes. Both are read.

A node ends at `value`, its own: it holds the hashes from behind the node before it up to that. The
one before the first is the last. Its file group is `fileIdPrefix` and `-0`; a `tag` other than
NORMAL stands in plans of Hudi alone. The second is empty: the resize counts. Of two
rings Hudi takes the later that has one, or whose instant is complete on its timeline, else that of
00000000000000.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from metatable.data.file_groups.slices import is_file_id
from metatable.storage.errors import CorruptError

__all__ = ["FIRST_INSTANT", "HASHING_FOLDER", "LAST_HASH", "HashingMetadata", "HashingNode"]

HASHING_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
"""Where Hudi's writers look for rings."""

LAST_HASH = 0x7FFFFFFF
"""Hashes are from 0 up to this."""

FIRST_INSTANT = "00000000000000"
"""The instant of rings that nobody has resized."""

_INSTANT = re.compile(r"\d{14}|\d{17}")
_NORMAL = "NORMAL"


@dataclass(frozen=True, slots=True)
class HashingNode:
    """A bucket: the last of its hashes, and the name of its file group."""

    value: int
    file_id_prefix: str

    @property
    def file_id(self) -> str:
        return f"{self.file_id_prefix}-0"


@dataclass(frozen=True, slots=True)
class HashingMetadata:
    """The ring of a table partition."""

    partition_path: str
    instant: str
    num_buckets: int
    seq_no: int
    nodes: tuple[HashingNode, ...]

    @property
    def path(self) -> str:
        """Where Hudi looks for it."""
        return f"{self._stem}.hashing_meta"

    @property
    def mark_path(self) -> str:
        """Where the file is that tells Hudi that the resize counts which made it."""
        return f"{self._stem}.commit"

    @property
    def _stem(self) -> str:
        return "/".join(filter(None, (HASHING_FOLDER, self.partition_path, self.instant)))

    def encode(self) -> bytes:
        """The bytes of the file, in the form that Hudi ships."""
        nodes = ", ".join(
            f'{{\n    "value" : {one.value},\n    "fileIdPrefix" : {_text(one.file_id_prefix)},\n'
            f'    "tag" : "{_NORMAL}"\n  }}'
            for one in self.nodes
        )
        return (
            f'{{\n  "version" : 0,\n  "partitionPath" : {_text(self.partition_path)},\n'
            f'  "instant" : {_text(self.instant)},\n  "numBuckets" : {self.num_buckets},\n'
            f'  "seqNo" : {self.seq_no},\n  "nodes" : [ {nodes} ]\n}}'
        ).encode()

    @classmethod
    def decode(cls, raw: bytes, path: str) -> HashingMetadata:
        """The ring in a file of either form. Raises CorruptError."""
        try:
            stored = json.loads(raw)
        except (ValueError, RecursionError) as error:
            found = str(error)
            raise CorruptError("hashing metadata is damaged", path=path, found=found) from error
        read = _Read(path)
        by_rfc = read.one(read.typed(stored, "", dict), "version", int) == 1
        if not by_rfc and stored["version"] != 0:
            raise read.damaged("version", "0 or 1", stored["version"])
        names = _RFC if by_rfc else _SHIPPED
        listed = read.one(stored, names["nodes"], list)
        made = cls(
            read.one(stored, names["partition_path"], str),
            read.one(stored, "instant", str),
            read.one(stored, names["num_buckets"], int),
            0 if by_rfc else read.one(stored, "seqNo", int),
            tuple(read.node(one, names, by_rfc) for one in listed),
        )
        made._check(read)
        return made

    def _check(self, read: _Read) -> None:
        if not _INSTANT.fullmatch(self.instant):
            raise read.damaged("instant", "14 or 17 digits", self.instant)
        if self.num_buckets < 1 or self.seq_no < 0:
            found = f"{self.num_buckets}, {self.seq_no}"
            raise read.damaged("numBuckets, seqNo", "1, 0 or more", found)
        values = [one.value for one in self.nodes]
        ascending = all(one < other for one, other in pairwise(values))
        if not values or not ascending or values[0] < 0 or values[-1] > LAST_HASH:
            raise read.damaged("nodes", f"ascending values up to {LAST_HASH}", values[:5])
        ids = [one.file_id for one in self.nodes]
        if len(set(ids)) < len(ids) or not all(map(is_file_id, ids)):
            raise read.damaged("nodes", "different names of file groups", sorted(ids)[:5])


_SHIPPED = {
    "partition_path": "partitionPath",
    "num_buckets": "numBuckets",
    "nodes": "nodes",
    "value": "value",
    "file_id_prefix": "fileIdPrefix",
}
_RFC = {
    "partition_path": "partition_path",
    "num_buckets": "num_buckets",
    "nodes": "bucket_mappings",
    "value": "hash_value",
    "file_id_prefix": "file_group",
}


@dataclass(frozen=True, slots=True)
class _Read:
    """Values of one file."""

    path: str

    def one(self, stored: Mapping[str, Any], name: str, kind: type) -> Any:
        return self.typed(stored.get(name), name, kind)

    def typed(self, found: Any, name: str, kind: type) -> Any:
        if type(found) is not kind:
            raise self.damaged(name, kind.__name__, found)
        return found

    def node(self, stored: Any, names: Mapping[str, str], by_rfc: bool) -> HashingNode:
        held = self.typed(stored, names["nodes"], dict)
        if not by_rfc and held.get("tag") != _NORMAL:
            raise self.damaged("tag", _NORMAL, held.get("tag"))
        value = self.one(held, names["value"], int)
        return HashingNode(value, self.one(held, names["file_id_prefix"], str))

    def damaged(self, field: str, expected: str, found: object) -> CorruptError:
        told = {"path": self.path, "field": field, "expected": expected, "found": found}
        return CorruptError("hashing metadata is damaged", **told)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
