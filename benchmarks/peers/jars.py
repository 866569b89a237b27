"""Jars of the peers, fetched by Maven into the user's cache.

    ~/.cache/metatable/java/NAME-VERSION/*.jar      XDG_CACHE_HOME is honoured

`python -m benchmarks.peers.jars` fetches what is missing (`make peers` calls it). Nobody else
does: where jars are missing, a test skips and a benchmark says so. A folder appears whole or
not at all; of two that fetch at once one waits and finds everything there.
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

__all__ = ["ALL", "HBASE", "HUDI_IO", "Library", "MissingError", "cache"]

TRIES = 3
TIMEOUT_S = 300

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """<dependency>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
</dependency>"""
_ALONE = """
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class MissingError(Exception):
    """A peer cannot be asked here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Library:
    """A Java library, and the program beside this file that asks it, if one does.

    `bundled`: its jar holds all that it needs, so nothing else is fetched. `target`: what make
    is told to fetch it.
    """

    name: str
    version: str
    program: str
    artifacts: tuple[str, ...]
    bundled: bool = False
    target: str = "peers"

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{self.version}"

    def jars(self) -> Path:
        """The folder of its jars. Raises MissingError where it, or a JDK, is not there."""
        _need("java", "javac")
        if not self.folder.is_dir():
            raise MissingError(f"no jars of {self.title}: make {self.target}")
        return self.folder

    def fetch(self) -> Path:
        """The folder of its jars, filled if need be. Raises MissingError where that fails."""
        with _lock():
            if not self.folder.is_dir():
                self._fetch()
        return self.folder

    def _fetch(self) -> None:
        _need("mvn", "java")
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            Path(work, "pom.xml").write_text(self._pom(), "utf-8")
            for tried in range(1, TRIES + 1):
                told = _copy_jars(work)
                if told is None:
                    break
                if tried == TRIES:
                    raise MissingError(f"maven could not fetch {self.title}: {told[-500:]}")
            Path(work, "jars").rename(self.folder)

    def _pom(self) -> str:
        others = _ALONE if self.bundled else ""
        wanted = [
            _DEPENDENCY.format(*one.split(":"), self.version, others) for one in self.artifacts
        ]
        return _POM.format("".join(wanted))


HUDI_IO = Library("hudi-io", "1.2.0", "HudiIo", ("org.apache.hudi:hudi-io",))
HBASE = Library(
    "HBase",
    "2.6.1",
    "HBase",
    ("org.apache.hbase:hbase-server", "org.apache.hbase:hbase-compression-aircompressor"),
)
ALL = (HUDI_IO, HBASE)


def cache() -> Path:
    """The folder for what belongs to Java."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "metatable" / "java"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise MissingError(f"no {tool} on this machine")


@contextmanager
def _lock() -> Iterator[None]:
    """Maven's own repository is not for two at once either, so one lock serves all."""
    with open(cache() / "fetch.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy_jars(work: str) -> str | None:
    """None once the jars are in `work`, else what Maven said."""
    command = ["mvn", "-q", "-B", _COPY, "-DincludeScope=runtime", "-DoutputDirectory=jars"]
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {TIMEOUT_S} seconds"
    return (done.stdout + done.stderr) or "no reason given" if done.returncode else None


def main() -> int:
    """Fetch all; what is said and returned is for a Makefile."""
    for library in ALL:
        try:
            folder = library.fetch()
        except MissingError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{library.title}: {len(list(folder.glob('*.jar')))} jars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
