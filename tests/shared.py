"""What tests share and nobody changes: made once a run, by whichever process comes first."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["made_once"]


def made_once(tables: pytest.TempPathFactory, name: str, make: Callable[[str], object]) -> Path:
    """Where `make` has made it, of this name: in a folder of all workers of a run."""
    own = tables.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    shared.mkdir(exist_ok=True)
    folder, path = shared / name, shared / name / "table"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "is_made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(str(path))
            (folder / "is_made").touch()
    return path
