"""Folders of a process are its own, and go with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from metatable.engine import folders
from metatable.engine.folders import folder_of


class Owner:
    """What a folder is for."""


def test_a_folder_is_private_not_made_yet_and_goes_with_its_owner() -> None:
    owner = Owner()
    folder = Path(folder_of(owner))
    assert not folder.exists()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert folder.parent == Path(folder_of(owner)).parent
    folder.mkdir()
    del owner
    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such rights there")
@pytest.mark.parametrize("change", ["gone", "made by others", "a link"])
def test_a_folder_that_is_not_there_any_more_or_open_to_others_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Cleaners of temporary folders take what is old, and the name is free then."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    owners = [Owner(), Owner()]
    before = Path(folder_of(owners[0])).parent
    assert Path(folder_of(owners[0])).parent == before
    shutil.rmtree(before)
    if change == "made by others":
        before.mkdir(0o755)
    elif change == "a link":
        (tmp_path / "elsewhere").mkdir(0o700)
        before.symlink_to("elsewhere")
    folder = Path(folder_of(owners[1]))
    os.makedirs(folder)
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert not folder.parent.is_symlink()
    assert Path(folder_of(owners[1])).parent == folder.parent


FORKS = """
import os, sys
from metatable.engine.folders import folder_of
class Owner: pass
owner = Owner()
folder = folder_of(owner)
os.mkdir(folder)
if os.fork() == 0:
    print(os.path.dirname(folder_of(owner)) != os.path.dirname(folder))
    sys.exit()
os.wait()
print(os.path.isdir(folder), folder)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_its_own_and_leaves_its_parents() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=60
    )
    own, (left, folder) = done.stdout.split()[0], done.stdout.split()[1:]
    assert (own, left) == ("True", "True")
    assert not Path(folder).parent.exists()


WORKERS = """
import multiprocessing, os, tempfile
from metatable.engine.folders import folder_of
class Owner: pass
def work():
    owner = Owner()
    os.mkdir(folder_of(owner))
    os._exit(len(os.listdir(tempfile.gettempdir())) - 1)
def end():
    owner = Owner()
    os.mkdir(folder_of(owner))
for task in (work, end):
    process = multiprocessing.get_context("fork").Process(target=task)
    process.start()
    process.join()
    print(process.exitcode, len(os.listdir(tempfile.gettempdir())))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_folder_of_a_forked_worker_goes_with_it_unless_it_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKERS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.stdout.splitlines() == ["0 1", "0 1"]


LIVES = """
import os, sys, time
from metatable.engine.folders import folder_of
class Owner: pass
owner = Owner()
folder = folder_of(owner)
os.mkdir(folder)
open(os.path.join(folder, "rows"), "wb").write(b"many")
print(os.path.dirname(folder), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of that kind there")
def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", LIVES],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (lives, kept), (dies, left) = begun(), begun()
    strange = [tmp_path / "metatable-of-others", tmp_path / "others"]
    for folder in strange:
        folder.mkdir()
    os.symlink(left, tmp_path / "metatable-link")
    try:
        dies.kill()
        dies.wait()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        own = Owner()
        folder_of(own)
        assert left.is_dir()  # it is too young to be sure of
        monkeypatch.setattr(folders, "YOUNG_SECONDS", 0)
        monkeypatch.setattr(folders, "_of_processes", {})
        again = Owner()
        mine = Path(folder_of(again)).parent
        assert not left.exists()
        assert (next(kept.glob("*/rows"))).read_bytes() == b"many"
        assert mine.is_dir()
        assert all(folder.is_dir() for folder in strange)
    finally:
        lives.kill()
        lives.wait()
