"""Which tests are likely to notice a fault of a module, the likeliest first.

A mutant meets the phases of its room one after the other, seconds before minutes. One that all of
them let live is then held against `WIDE`, before it is called a survivor.
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
    """Modules (patterns from the root of the tree) and the tests near to them, in phases."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]


def _files(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names)


HFILE = "tests/storage/hfile"
FACE = "tests/face"

ROOMS = (
    Room(
        "hfile",
        ("storage/hfile/**/*.py",),
        (
            _files(HFILE, "reader", "writer", "parts", "access", "order", "runs", "verify")
            + _files(HFILE, "round_trip", "index_writer", "bounds"),
            _files(HFILE, "codec", "zstd_frames", "forms", "interop_files", "hudi_wheel", "damage")
            + _files("tests/cli", "hfile"),
        ),
    ),
    Room(
        "hudi_log",
        ("storage/hudi_log/*.py",),
        (("tests/storage/hudi_log",), _files("tests/data", "log_blocks")),
    ),
    Room(
        "avro",
        ("storage/avro/*.py",),
        (_files("tests/storage", "avro", "avro_logical"), ("tests/metadata",)),
    ),
    Room(
        "filters",
        ("storage/filters/*.py", "storage/*hash*.py", "storage/xxh32.py"),
        (
            _files("tests/storage", "filters", "split_block", "hudi_filter", "hashing", "xxh32"),
            ("tests/metadata", *_files("tests/index", "footer_bloom", "buckets")),
        ),
    ),
    Room(
        "parquet",
        ("storage/parquet/*.py",),
        (
            ("tests/storage/parquet", "tests/data/test_key_footer.py"),
            ("tests/index/test_footer_bloom.py",),
        ),
    ),
    Room(
        "key_values",
        (
            "storage/key_values/*.py",
            "index/hbase.py",
            "metatable/metadata/partitions/outside.py",
            "compaction/cleaning/outside_cells.py",
        ),
        (
            _files("tests/storage", "key_values") + _files("tests/index", "outside"),
            _files("tests/compaction", "outside_cells"),
        ),
    ),
    Room(
        "storage",
        ("storage/*.py",),
        (
            ("tests/storage --ignore=tests/storage/hfile",),
            ("tests/services", *_files(FACE, "mistakes"), "tests/compaction"),
        ),
    ),
    Room(
        "logs",
        (
            "metatable/data/logs/*.py",
            "metatable/data/file_groups/log_names.py",
            "metatable/data/hoodie/slice_compaction_plan.py",
        ),
        (
            _files("tests/data", "log_names", "log_blocks", "log_merge", "slice_compaction_plan"),
            (*_files("tests/data", "log_hudi_reads"), *_files("tests/cli", "log")),
        ),
    ),
    Room(
        "data",
        ("metatable/data/**/*.py",),
        (
            ("tests/data", *_files(FACE, "point_reads")),
            _files(FACE, "rules", "bad_input", "file_sizes", "evolution"),
        ),
    ),
    Room(
        "metadata",
        ("metatable/metadata/**/*.py",),
        (
            ("tests/metadata", "tests/face/protocol"),
            ("tests/compaction", *_files(FACE, "rules"), *_files("tests/index", "buckets", "cost")),
        ),
    ),
    Room("engine", ("metatable/engine/*.py",), (("tests/engine",), _files(FACE, "rules"))),
    Room(
        "index",
        ("index/**/*.py",),
        (
            _files("tests/index", "rings", "ring_buckets", "own_index", "buckets", "footer_bloom"),
            ("tests/index/test_tag.py", "tests/compaction/test_verify.py"),
        ),
    ),
    Room(
        "compaction",
        ("compaction/**/*.py",),
        (("tests/compaction",), ("tests/face/protocol", "tests/index/test_buckets.py")),
    ),
    Room(
        "write",
        (
            "metatable/write/*.py",
            "metatable/table.py",
            "metatable/engine_choice.py",
            "metatable/kept_version.py",
            "metatable/opening.py",
            "metatable/adopting.py",
            "metatable/arguments.py",
            "metatable/due_work.py",
        ),
        (
            _files(FACE, "rules", "notes", "held_rows", "file_sizes", "overwrite", "bulk_insert"),
            (
                "tests/write",
                *_files(FACE, "bad_input", "writers", "mistakes", "cluster_by"),
                *_files("tests/index", "buckets", "footer_bloom", "own_index"),
            ),
        ),
    ),
    Room(
        "query",
        ("metatable/query/*.py", "metatable/results.py", "metatable/data_files.py"),
        (
            ("tests/query", *_files(FACE, "where", "scan", "changes", "point_reads")),
            _files(FACE, "skipping", "rules", "bad_input"),
        ),
    ),
    Room(
        "cli",
        ("metatable/cli/*.py",),
        (
            ("tests/cli",),
            _files(FACE, "mistakes", "demo"),
        ),
    ),
)

WIDE = (
    "tests/face",
    "tests/cli",
    "tests/query",
    "tests/write",
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
