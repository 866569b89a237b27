"""Programs of others that tests are held against, built by Go or fetched by npm or Maven into the
user's cache.

    ~/.cache/metatable/services/NAME-VERSION/…      XDG_CACHE_HOME is honoured

`python -m tests.services.programs` builds what is missing, with the tools that are there (`make
services` calls it). Nobody else does: where a program is missing, a test skips, and fails under
METATABLE_SERVICES=required, which is what continuous integration says, if its tool is there. A
folder appears whole or not at all; of two that build at once one waits and finds everything there.
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

__all__ = [
    "ALL",
    "AZURITE",
    "GCS_FRONT",
    "HBASE",
    "TOXIPROXY",
    "VERSITYGW",
    "FrontProgram",
    "MavenProgram",
    "MissingError",
    "NpmProgram",
    "Program",
    "cache",
]

TRIES = 2
TIMEOUT_S = 1800
"""A build takes two minutes on two idle cores, and longer beside others."""


class MissingError(Exception):
    """A program cannot be had here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Go program: of `package` at `version` comes a file `made`, or `name`."""

    name: str
    version: str
    package: str
    made: str = ""

    @property
    def tool(self) -> str:
        """What it is built by."""
        return "go"

    @property
    def has_tool(self) -> bool:
        return shutil.which(self.tool) is not None

    @property
    def inside(self) -> str:
        """Where the program is, in its folder."""
        return self.made or self.name

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
        return self.folder / self.inside

    def build(self) -> Path:
        """The program, built if need be. Raises MissingError where that fails."""
        with _lock():
            if not self.folder.is_dir():
                self._build()
        return self.path()

    def _build(self) -> None:
        if not self.has_tool:
            raise MissingError(f"no {self.tool} on this machine")
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            made = Path(work, "bin")
            for tried in range(1, TRIES + 1):
                told = self._make(made)
                if told is None:
                    break
                if tried == TRIES:
                    raise MissingError(f"{self.tool} could not build {self.title}: {told[-500:]}")
            if not (made / self.inside).exists():
                what = f"{self.tool} built {self.title}, but no program of that name came of it"
                raise MissingError(what)
            made.rename(self.folder)

    def _make(self, into: Path) -> str | None:
        """None once the program is in `into`, else what the tool said."""
        command = ["go", "install", f"{self.package}@{self.version}"]
        return _ran(command, into.parent, {"GOBIN": str(into)})


class FrontProgram(Program):
    """A Go program whose source is beside this module; `version` changes with it."""

    def _make(self, into: Path) -> str | None:
        command = ["go", "build", "-o", str(into / self.inside), "."]
        return _ran(command, Path(__file__).parent / self.package, {})


class NpmProgram(Program):
    """A program for node: `package` at `version`, with whatever it needs."""

    @property
    def tool(self) -> str:
        return "npm"

    @property
    def inside(self) -> str:
        return f"node_modules/.bin/{self.made or self.name}"

    def _make(self, into: Path) -> str | None:
        into.mkdir(exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
        named = f"{self.package}@{self.version}"
        return _ran(["npm", "install", *quiet, "--prefix", str(into), named], into, {})


class MavenProgram(Program):
    """Java libraries at `version`, with whatever they need: `package` names them, by blanks."""

    @property
    def tool(self) -> str:
        return "mvn"

    @property
    def has_tool(self) -> bool:
        return all(map(shutil.which, ("mvn", "java")))

    def _make(self, into: Path) -> str | None:
        into.mkdir(exist_ok=True)
        wanted = (DEPENDENCY.format(*one.split(":"), self.version) for one in self.package.split())
        (into / "pom.xml").write_text(POM.format("".join(wanted)), "utf-8")
        (into / self.inside).mkdir(exist_ok=True)
        told = [f"-DoutputDirectory={self.inside}", "-DincludeScope=runtime"]
        return _ran(["mvn", "-q", "-B", COPY, *told], into, {})


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>services</groupId><artifactId>services</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = """<dependency>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency>"""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

VERSITYGW = Program("versitygw", "v1.8.0", "github.com/versity/versitygw/cmd/versitygw")
"""An S3 server over a folder: of those that are one program it keeps its word in races."""

AZURITE = NpmProgram("azurite", "3.35.0", "azurite", "azurite-blob")
"""Microsoft's own stand-in for Azure's blob storage."""

GCS_FRONT = FrontProgram("gcs-front", "2", "gcs_front")
"""fake-gcs-server, with what obstore needs in front of it. The number goes up with its source."""

TOXIPROXY = Program("toxiproxy", "v2.12.0", "github.com/Shopify/toxiproxy/v2/cmd/server", "server")
"""A proxy that delays, cuts and loses what passes."""

HBASE = MavenProgram(
    "hbase", "2.6.1", "org.apache.hbase:hbase-server org.apache.hbase:hbase-thrift", "lib"
)
"""All of HBase, as jars. Many a later release has no Thrift gateway at Maven Central."""

ALL = (VERSITYGW, GCS_FRONT, TOXIPROXY, AZURITE, HBASE)


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


def _ran(command: list[str], folder: Path, settings: dict[str, str]) -> str | None:
    """None after a good end, else what the command said."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {TIMEOUT_S} seconds"
    return (done.stdout + done.stderr) or "no reason given" if done.returncode else None


def main() -> int:
    """Build all that can be built here; what is said and returned is for a Makefile."""
    wrong = 0
    for program in ALL:
        try:
            program.build()
            print(program.title)
        except MissingError as error:
            print(f"{program.title}: {error}", file=sys.stderr)
            wrong += program.has_tool
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
