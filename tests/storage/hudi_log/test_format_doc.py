"""FORMAT.md, the tables in docstrings and the code say the same."""

from __future__ import annotations

import re
from enum import IntEnum
from itertools import takewhile
from pathlib import Path

import pytest

from metatable.storage.hudi_log import block

TEXT = (Path(block.__file__).parent / "FORMAT.md").read_text()


def documented(*heads: str) -> list[list[str]]:
    """The rows of the table whose head begins with these cells."""
    lines = iter(TEXT.splitlines())
    for line in lines:
        if cells(line)[: len(heads)] == list(heads):
            next(lines)
            return [cells(row) for row in takewhile(lambda row: row.startswith("|"), lines)]
    raise AssertionError(f"no such table: {heads}")


def cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def test_a_block_has_the_fields_of_the_table() -> None:
    rows = documented("bytes", "field")
    told = re.findall(r"^ +(\d+|var)  (\w+)", block.__doc__ or "", re.M)
    assert told == [(size, name) for size, name, *_ in rows]
    sizes = [int(size) for size, *_ in rows if size != "var"]
    assert sum(sizes[:2]) == block._PREFIX.size
    assert sum(sizes[2:4]) == block._HEAD.size
    assert sum(sizes[2:]) + 2 * block._COUNT.size == block._LEAST
    assert rows[0][2] == block.MAGIC.decode()
    assert rows[2][2] == str(block.FORMAT_VERSION)
    assert sizes[-1] == block.TOTAL_SIZE


@pytest.mark.parametrize(
    ("head", "kinds"), [("kind", block.BlockKind), ("header key", block.HeaderKey)]
)
def test_numbers_are_those_of_the_table(head: str, kinds: type[IntEnum]) -> None:
    found = {row[1]: int(row[0]) for row in documented(head, "name")}
    assert found == {one.name: int(one) for one in kinds}


def test_the_limit_of_contents_is_that_of_the_text() -> None:
    assert block.MAX_CONTENT_SIZE + 1 == 2 << 30
    assert "A content of 2 GiB and more is not written" in TEXT
