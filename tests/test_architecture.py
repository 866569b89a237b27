"""The shape of the house: who may import whom, and what comes in with what.

    storage <- engine, data <- metadata <- index <- compaction, write, query <- the face
    (metatable/*.py, cli/); spark/ knows only engine and storage, and query knows spark too;
    results.py, what verbs give back, with its data_files.py, is the one module of the face that
    the rooms above the index know too

Read off the source by `ast`, so that an import inside a function counts too.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import metatable
from metatable.data.file_groups.slices import DataFile, marker_path
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.leases import LEASES
from metatable.storage import store

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "metatable"
LINKED = ("storage", "index", "compaction")

MAY_IMPORT: dict[str, set[str]] = {
    "storage": set(),
    "engine": {"storage"},
    "data": {"storage"},
    "metadata": {"storage", "data"},
    "index": {"storage", "engine", "data", "metadata"},
    "compaction": {"storage", "engine", "data", "metadata", "index", "results"},
    "write": {"storage", "engine", "data", "metadata", "index", "results"},
    "query": {"storage", "engine", "data", "metadata", "index", "results", "spark"},
    "spark": {"storage", "engine"},
    "results": {"storage", "data", "data_files"},
    "data_files": {"storage", "data"},
}
MAY_IMPORT["face"] = MAY_IMPORT["cli"] = {*MAY_IMPORT, "cli", "face"}
"""Folder: the folders whose modules it may import, besides its own."""

WITHIN: dict[str, tuple[str, ...]] = {
    "data": (
        "file_groups",
        "config",
        "columns",
        "rows",
        "hoodie",
        "keys",
        "base_files",
        "logs",
        "reading",
    ),
    "metadata": ("manifests", "hfiles", "partitions", "commits"),
    "compaction": ("reshaping", "merging", "ways_back", "checks", "cleaning"),
}
"""Folder: the folders in it. A module imports from its own and from those before it, besides the
modules that lie in the folder itself, which import from none of them."""

INDEX_NAMES = {"metadata_bloom", "bloom", "record", "bucket", "hbase"}
"""To be compared with only where an index is chosen or checked."""

MAY_NAME_AN_INDEX = ("index/", "data/config/option")

SLOW_TO_LOAD = {"pyspark", "pandas", "polars", "duckdb", "pyarrow", "numpy", "fastavro"}
"""What `import metatable` leaves to those who use it."""


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the package by its path in it, the linked folders included."""
    folders = [PACKAGE, *(PACKAGE / name for name in LINKED)]
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    names = {str(path.relative_to(PACKAGE)): path for path in paths}
    return {name: ast.parse(path.read_text(), name) for name, path in sorted(names.items())}


def folder_of(name: str) -> str:
    """The folder that a module (by its path or dotted name) stands in; the face has none."""
    dotted = name.removesuffix(".py").replace("/", ".").removeprefix("metatable.")
    first = dotted.partition(".")[0]
    return first if first in MAY_IMPORT else "face"


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of whatever a module imports, `from a import b` as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_the_tree_is_all_there() -> None:
    found = {folder_of(name) for name in sources()}
    assert found == set(MAY_IMPORT)
    assert len(sources()) > 40


def test_imports_run_one_way() -> None:
    strange = [
        f"{name}:{line} imports {target}"
        for name, tree in sources().items()
        for line, target in imported(tree)
        if target.split(".")[0] == "metatable"
        and target != "metatable.__version__"
        and folder_of(target) not in MAY_IMPORT[folder_of(name)] | {folder_of(name)}
    ]
    assert strange == []


@pytest.mark.parametrize("folder", WITHIN)
def test_rooms_within_a_room_are_those_that_are_told(folder: str) -> None:
    held = {name.split("/")[1] for name in sources() if name.startswith(f"{folder}/")}
    assert {one for one in held if not one.endswith(".py")} == set(WITHIN[folder])


@pytest.mark.parametrize("folder", WITHIN)
def test_imports_within_a_room_run_one_way(folder: str) -> None:
    order, strange = WITHIN[folder], []
    for name, tree in sources().items():
        own = name.removeprefix(f"{folder}/").partition("/")[0]
        for line, target in imported(tree) if name.startswith(f"{folder}/") else ():
            room = target.removeprefix(f"metatable.{folder}.").partition(".")[0]
            place = order.index(own) if own in order else -1
            if room in order and order.index(room) > place:
                strange.append(f"{name}:{line} imports {target}")
    assert strange == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    modules = {
        "metatable." + name.removesuffix(".py").replace("/", "."): name for name in sources()
    }
    modules = {dotted.removesuffix(".__init__"): name for dotted, name in modules.items()}
    needs = {
        dotted: {
            target if target in modules else target.rpartition(".")[0]
            for node in sources()[name].body  # at load time only
            for _, target in imported(ast.Module([node], []))
            if target.startswith("metatable.")
        }
        - {dotted, dotted.rpartition(".")[0]}
        for dotted, name in modules.items()
    }
    while free := [dotted for dotted, needed in needs.items() if not needed & needs.keys()]:
        for dotted in free:
            del needs[dotted]
    assert needs == {}


def test_only_the_spark_folder_imports_pyspark() -> None:
    users = {
        folder_of(name)
        for name, tree in sources().items()
        for _, target in imported(tree)
        if target.split(".")[0] in ("pyspark", "py4j")
    }
    assert users == {"spark"}


def test_modules_are_imported_by_their_one_name() -> None:
    strange = [
        f"{name}:{line} imports {target}"
        for name, tree in sources().items()
        for line, target in imported(tree)
        if target.split(".")[0] in (*LINKED, "tests", "benchmarks")
    ]
    assert strange == []


def test_folders_that_storage_keeps_are_those_of_markers_and_leases() -> None:
    markers = marker_path(
        DataFile("", "a-0", "0-0-0", "20260101000000000"), "20260101000000000", "CREATE"
    )
    assert (str(Path(markers).parent.parent), LEASES) == store.KEPT
    assert store.TEMPORARY.startswith(f"{HOME}/")


def test_no_index_is_told_by_its_name_outside_of_index() -> None:
    strange = [
        f"{name}:{node.lineno}"
        for name, tree in sources().items()
        if not name.startswith(MAY_NAME_AN_INDEX)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and _touches_an_index(node)
    ]
    assert strange == []


def test_no_index_is_told_by_its_class_outside_of_index() -> None:
    classes = {
        node.name
        for name, tree in sources().items()
        if folder_of(name) == "index"
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Index")
    }
    assert {"BucketIndex", "KeyedIndex"} <= classes
    strange = [
        f"{name}:{node.lineno}"
        for name, tree in sources().items()
        if folder_of(name) != "index"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and classes & set(re.findall(r"\w+", ast.unparse(node.args[1])))
    ]
    assert strange == []


def _touches_an_index(node: ast.Compare) -> bool:
    """`….index == "record"` and the like: both a name and something called index."""
    parts = list(ast.walk(node))
    named = {one.value for one in parts if isinstance(one, ast.Constant)} & INDEX_NAMES
    about = {one.attr for one in parts if isinstance(one, ast.Attribute)}
    about |= {one.id for one in parts if isinstance(one, ast.Name)}
    return bool(named) and any("index" in word or word == "name" for word in about)


def test_a_comparison_with_an_index_name_is_noticed() -> None:
    def told(source: str) -> bool:
        return any(
            isinstance(node, ast.Compare) and _touches_an_index(node)
            for node in ast.walk(ast.parse(source))
        )

    assert told("if options.index == 'record': pass")
    assert told("x = index in ('bucket', 'hbase')")
    assert told("x = 'metadata_bloom' != self.index.name")
    assert not told("x = kind in ('record', 'enum')")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter at the root of the repository."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_import_metatable_loads_nothing_heavy() -> None:
    told = python("-c", "import sys, metatable; print(*sys.modules)")
    assert told.returncode == 0, told.stderr
    loaded = {name.split(".")[0] for name in told.stdout.split()}
    assert sorted(loaded & SLOW_TO_LOAD) == []


def test_everything_outside_of_spark_loads_without_pyspark_and_other_peoples_rows() -> None:
    modules = [
        "metatable." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for name in sources()
        if folder_of(name) != "spark" and not name.endswith(("__main__.py", "__init__.py"))
    ]
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
print(*sys.modules)
"""
    told = python("-c", code)
    assert told.returncode == 0, told.stderr
    loaded = {name.split(".")[0] for name in told.stdout.split()}
    # pandas is not named: pyarrow itself looks for it when it makes its first array of a list
    assert sorted(loaded & {"pyspark", "py4j", "polars", "duckdb", "hudi"}) == []


@pytest.mark.parametrize("folder", LINKED)
def test_a_linked_folder_refuses_any_other_name(folder: str) -> None:
    assert (PACKAGE / folder).resolve() == ROOT / folder
    told = python("-c", f"import {folder}")
    assert told.returncode == 1
    assert f"ImportError: import metatable.{folder}, not {folder}" in told.stderr


@pytest.mark.parametrize("name", ["open", "UsageError"])
def test_the_face_gives_its_names_on_first_use(name: str) -> None:
    told = python("-c", f"import metatable; print(metatable.{name}.__name__)")
    assert told.returncode == 0, told.stderr


def test_the_face_gives_all_its_names() -> None:
    assert {name for name in metatable.__all__ if not hasattr(metatable, name)} == set()
    assert set(metatable.__all__) <= set(dir(metatable))


def test_a_module_opens_with_its_contract() -> None:
    silent = [name for name, tree in sources().items() if not ast.get_docstring(tree)]
    assert silent == []


@pytest.mark.parametrize("room", ["storage", "index", "compaction"])
def test_a_room_that_lies_at_the_root_is_imported_by_its_one_name(room: str) -> None:
    with pytest.raises(ImportError, match=f"import metatable.{room}, not {room}"):
        importlib.import_module(room)
