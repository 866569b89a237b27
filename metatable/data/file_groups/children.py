"""Children: the file groups that a scheduled resize makes of a bucket, as names tell them.

    <file id>_<number>-<value>-<way>_<instant>.parquet

is the base file to come of one, in the entries of its parents in `files`: the node of the new ring
has that value and file id; a split has the numbers 0, for the lower hashes, and 1. The way is what
writers do until the resize is carried out:

    0  dual write   rows go to a log of the parent, and, as copies, to logs of its children
    1  virtual log  rows go to logs of the children alone

So a slice says by itself where its rows go, to writers and readers alike.
"""

from __future__ import annotations

from typing import Final

from metatable.data.file_groups.hashing_metadata import LAST_HASH, HashingNode
from metatable.data.file_groups.slices import DataFile
from metatable.storage.errors import CorruptError

__all__ = ["DUAL_WRITE", "VIRTUAL_LOG", "WAYS", "child_of", "is_virtual", "node_of"]

DUAL_WRITE: Final = "dual_write"
VIRTUAL_LOG: Final = "virtual_log"
WAYS = (DUAL_WRITE, VIRTUAL_LOG)

_MOST_DIGITS = 10
"""A name that is only told in an entry may be of any length."""


def child_of(
    partition_path: str, node: HashingNode, number: int, way: str, instant: str
) -> DataFile:
    """The base file that a resize makes of a node of the new ring."""
    token = f"{number}-{node.value}-{WAYS.index(way)}"
    return DataFile(partition_path, node.file_id, token, instant)


def is_virtual(child: DataFile) -> bool:
    """Whether writers put no copy into the parent. Raises CorruptError."""
    return _numbers(child)[2] == 1


def node_of(child: DataFile) -> HashingNode:
    """Its node of the new ring. Raises CorruptError."""
    return HashingNode(_numbers(child)[1], child.file_id.removesuffix("-0"))


def _numbers(child: DataFile) -> list[int]:
    told = child.write_token.split("-")
    numbers = [int(one) for one in told if one.isdecimal() and len(one) <= _MOST_DIGITS]
    if len(told) != 3 or len(numbers) != 3 or numbers[1] > LAST_HASH or numbers[2] > 1:
        expected = "<number>-<value>-<way>"
        raise CorruptError("not a child", path=child.path, expected=expected, found=told)
    return numbers
