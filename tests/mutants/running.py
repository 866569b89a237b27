"""A copy of the tree, in which a mutant meets the tests."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.mutants.making import Mutant

__all__ = ["Copy", "Outcome"]

MEMORY_KB = 12 << 20
"""An endless loop that fills memory ends here, and not with the machine."""

_LIMITED = ("sh", "-c", f'ulimit -v {MEMORY_KB}; exec "$@"', "sh")
_LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv*", ".demo", "__pycache__", ".*_cache", "build", "dist", "*.egg-info"
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went, which test said so (or the end of what pytest said), and how long it took."""

    end: Literal["killed", "timeout", "survived"]
    by: str
    seconds: float


class Copy:
    """The tree under `folder`; one mutant at a time."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(root, folder, symlinks=True, ignore=_LEFT_BEHIND)

    def meet(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> Outcome:
        """Put the fault in, run the tests up to the first that fails, take it out again."""
        module = self.folder / mutant.path
        source = module.read_bytes()
        try:
            self._put(module, mutant.apply(source))
            return self.run(tests, limit_s)
        finally:
            self._put(module, source)

    def failing(self, tests: Sequence[str]) -> tuple[list[str], float]:
        """Those that fail without a mutant, and how many seconds all of them take."""
        outcome = self.run(tests, limit_s=3600, first=False)
        return outcome.by.split() if outcome.end != "survived" else [], outcome.seconds

    def run(self, tests: Sequence[str], limit_s: float, first: bool = True) -> Outcome:
        """The tests, up to the first that fails unless all are to be run."""
        quiet = ["-q", "--tb=no", "-rfE", "--no-header", "-p", "no:cacheprovider"]
        quiet += ["-x"] if first else []
        words = [word for one in tests for word in one.split()]
        began = time.monotonic()
        settings = os.environ | {"PYTHONPATH": str(self.folder), "PYTEST_ADDOPTS": ""}
        with subprocess.Popen(
            [*_LIMITED, sys.executable, "-m", "pytest", *quiet, *words],
            cwd=self.folder,
            env=settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return Outcome("timeout", f"no end after {limit_s:.0f} s", limit_s)
        return _outcome(process.returncode, said, time.monotonic() - began)

    def _put(self, module: Path, source: bytes) -> None:
        """What was compiled of it goes: one of the same size and second is taken for it."""
        module.write_bytes(source)
        Path(importlib.util.cache_from_source(str(module))).unlink(missing_ok=True)


def _outcome(code: int, said: str, seconds: float) -> Outcome:
    if code == pytest.ExitCode.OK:
        return Outcome("survived", "", seconds)
    found = _FAILED.findall(said)
    unfit = code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    if unfit and "while loading conftest" not in said:  # which a fault can bring about
        raise RuntimeError(f"the tests cannot be run: {said[-2000:]}")
    return Outcome("killed", " ".join(found) or said.strip()[-200:], seconds)
