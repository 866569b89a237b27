"""Which tests are likely to notice a fault of a module, the likeliest first.

A mutant that its own tests let live is then held against `WIDE`, before it is called a survivor.
Left out are the room of Spark, whose tests take half a minute to begin, and the demo, which tells
a story.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOMS", "WIDE", "Room", "modules"]


@dataclass(frozen=True, slots=True)
class Room:
    """Modules (patterns from the root of the tree) and the tests that are near to them."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


SLOW_OF_HFILES = tuple(
    f"--ignore=tests/storage/hfile/test_{name}.py"
    for name in ("big_files", "damage", "fuzz", "java_readers")
)
"""Minutes, for what the others nearly always notice first."""

ROOMS = (
    Room("hfile", ("storage/hfile/**/*.py",), ("tests/storage/hfile", *SLOW_OF_HFILES)),
    Room("avro", ("storage/avro/*.py",), ("tests/storage/test_avro.py", "tests/metadata")),
    Room(
        "filters",
        ("storage/filters/*.py", "storage/hashing.py"),
        (
            "tests/storage/test_filters.py",
            "tests/storage/test_split_block.py",
            "tests/storage/test_hudi_filter.py",
            "tests/storage/test_hashing.py",
            "tests/metadata",
        ),
    ),
    Room(
        "parquet",
        ("storage/parquet/*.py",),
        ("tests/storage/parquet", "tests/data/test_key_footer.py"),
    ),
    Room("storage", ("storage/*.py",), ("tests/storage --ignore=tests/storage/hfile",)),
    Room("data", ("metatable/data/*.py",), ("tests/data",)),
    Room(
        "metadata",
        ("metatable/metadata/*.py",),
        ("tests/metadata", "tests/simulation", "tests/face/test_kill.py"),
    ),
    Room("engine", ("metatable/engine/*.py",), ("tests/engine",)),
    Room("index", ("index/**/*.py",), ("tests/index",)),
    Room("compaction", ("compaction/*.py",), ("tests/compaction",)),
    Room(
        "write",
        ("metatable/write/*.py", "metatable/table.py"),
        ("tests/face/test_rules.py", "tests/face/test_writers.py", "tests/index"),
    ),
    Room(
        "query",
        ("metatable/query/*.py", "metatable/results.py"),
        ("tests/face/test_where.py", "tests/face/test_skipping.py", "tests/face/test_scan.py"),
    ),
    Room(
        "cli",
        ("metatable/cli/*.py",),
        ("tests/face/test_cli_table.py", "tests/face/test_cli_hfile.py"),
    ),
)

WIDE = (
    "tests/face",
    "tests/data",
    "tests/metadata",
    "tests/index",
    "tests/compaction",
    "tests/engine",
    "tests/golden",
    "tests/storage",
    "tests/services",
    "tests/simulation",
    "tests/spark",
    "tests/test_architecture.py",
    "--ignore=tests/face/test_demo.py",
    "--ignore=tests/spark/test_spark_demo.py",
    "--ignore=tests/face/test_processes.py",
    "--ignore=tests/storage/hfile/test_big_files.py",
)


def modules(root: Path, room: Room) -> list[str]:
    """Paths of its modules; one that two rooms could have belongs to the first."""
    return sorted(set(_found(root, room)) - set(_taken(root, room)))


def _taken(root: Path, room: Room) -> Iterator[str]:
    for other in ROOMS[: ROOMS.index(room)]:
        yield from _found(root, other)


def _found(root: Path, room: Room) -> Iterator[str]:
    for pattern in room.modules:
        for path in root.glob(pattern):
            yield path.relative_to(root).as_posix()
