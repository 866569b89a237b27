"""Programs of others that tests are held against, built by Go into the user's cache.

    ~/.cache/metatable/services/NAME-VERSION/NAME      XDG_CACHE_HOME is honoured

`python -m tests.services.programs` builds what is missing (`make services` calls it). Nobody
else does: where a program is missing, a test skips, and fails under METATABLE_SERVICES=required,
which is what continuous integration says. A folder appears whole or not at all; of two that
build at once one waits and finds everything there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ALL", "VERSITYGW", "MissingError", "Program", "cache"]

TRIES = 2
TIMEOUT_S = 1800
"""A build takes two minutes on two idle cores, and longer beside others."""


class MissingError(Exception):
    """A program cannot be had here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Go program: `package` at `version` is what is built, `name` what comes of it."""

    name: str
    version: str
    package: str

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{self.version}"

    def path(self) -> Path:
        """The program. Raises MissingError where it was not built."""
        if not self.folder.is_dir():
            raise MissingError(f"no {self.title}: make services")
        return self.folder / self.name

    def build(self) -> Path:
        """The program, built if need be. Raises MissingError where that fails."""
        with _lock():
            if not self.folder.is_dir():
                self._build()
        return self.path()

    def _build(self) -> None:
        if shutil.which("go") is None:
            raise MissingError("no go on this machine")
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            bin_folder = Path(work, "bin")
            for tried in range(1, TRIES + 1):
                told = _install(f"{self.package}@{self.version}", bin_folder)
                if told is None:
                    break
                if tried == TRIES:
                    raise MissingError(f"go could not build {self.title}: {told[-500:]}")
            if not (bin_folder / self.name).is_file():
                raise MissingError(f"go built {self.title}, but no program of that name came of it")
            bin_folder.rename(self.folder)


VERSITYGW = Program("versitygw", "v1.8.0", "github.com/versity/versitygw/cmd/versitygw")
"""An S3 server over a folder: of those that are one program it keeps its word in races."""

ALL = (VERSITYGW,)


def cache() -> Path:
    """The folder for what was built."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "metatable" / "services"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _lock() -> Iterator[None]:
    with open(cache() / "build.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(package: str, bin_folder: Path) -> str | None:
    """None once the program is in `bin_folder`, else what Go said."""
    settings = os.environ | {"GOBIN": str(bin_folder)}
    try:
        done = subprocess.run(
            ["go", "install", package],
            cwd=bin_folder.parent,
            env=settings,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {TIMEOUT_S} seconds"
    return (done.stdout + done.stderr) or "no reason given" if done.returncode else None


def main() -> int:
    """Build all; what is said and returned is for a Makefile."""
    for program in ALL:
        try:
            program.build()
        except MissingError as error:
            print(error, file=sys.stderr)
            return 1
        print(program.title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
