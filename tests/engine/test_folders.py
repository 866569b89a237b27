"""Folders of a process are its own, and go with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
