"""What an installed metatable consists of: a wheel, built from a copy of the tree, looked into."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("metatable", "storage", "index", "compaction", "pyproject.toml", "LICENSE", "README.md")
LEAST_SETUPTOOLS = 77
"""The first that knows `license = "Apache-2.0"`; pyproject.toml asks for it."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    if int(metadata.version("setuptools").partition(".")[0]) < LEAST_SETUPTOOLS:
        pytest.skip(f"building needs setuptools {LEAST_SETUPTOOLS} or newer in this environment")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("out")
    for part in PARTS:
        _copy(ROOT / part, tree / part)
    build = "from setuptools import build_meta; build_meta.build_wheel({out!r})"
    told = subprocess.run(
        [sys.executable, "-c", build.format(out=str(out))],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    [path] = out.glob("*.whl")
    return zipfile.ZipFile(path)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(source, target, symlinks=True, ignore=skipped)
    else:
        shutil.copy(source, target)


def expected_files() -> set[str]:
    """Every file of the package that is more than a build's leavings."""
    kinds = (".py", ".md", ".avsc", ".properties")
    folders = [ROOT / "metatable", *(ROOT / name for name in ("storage", "index", "compaction"))]
    found = {path for folder in folders for path in folder.rglob("*") if path.suffix in kinds}
    under = {path.relative_to(ROOT) for path in found | {ROOT / "metatable/py.typed"}}
    linked = {path for path in under if path.parts[0] != "metatable"}
    return {str(path) for path in under - linked} | {f"metatable/{path}" for path in linked}


def test_nothing_is_installed_beside_the_package(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"metatable"}


def test_links_become_files_and_nothing_is_left_out(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if name.startswith("metatable/")}
    assert inside == expected_files()
    assert {
        "metatable/py.typed",
        "metatable/storage/store.py",
        "metatable/storage/hfile/FORMAT.md",
        "metatable/metadata/hfiles/metadata_record.avsc",
        "metatable/spark/log4j2.properties",
    } <= inside
    assert not any(stat.S_ISLNK(wheel.getinfo(name).external_attr >> 16) for name in inside)


def test_the_license_and_the_command_come_along(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    [commands] = [name for name in names if name.endswith("entry_points.txt")]
    assert "metatable = metatable.cli.main:main" in wheel.read(commands).decode()


def test_the_wheel_alone_can_be_imported(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.meta_path = [one for one in sys.meta_path if "editable" not in getattr(one, "__module__", "")]
import metatable, metatable.table
print(metatable.__file__, metatable.table.execute.__module__)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == [
        str(tmp_path / "metatable" / "__init__.py"),
        "metatable.compaction.service",
    ]
