"""Runs the suite with every pinned bundle, one JVM after the other, and writes the run down.

    python -m tests.hudi_spark [VERSION …] [-- PYTEST ARGUMENTS]

`make hudi-spark` calls it. Bundles that are missing are fetched by Maven. A run of all of them,
of all tests, replaces LAST_RUN.md, whatever came of it: date, commit, versions, counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.peers.jars import MissingError
from tests.hudi_spark.bundles import BUNDLES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORD = HERE / "LAST_RUN.md"

_PAGE = """# The last run of `make hudi-spark`

{date}, commit {commit}. {machine}.

| Hudi | passed | failed | skipped | seconds |
|---|---|---|---|---|
{lines}

Written by `python -m tests.hudi_spark` at the end of a run of all of it.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What pytest counted with one bundle."""

    version: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.passed > 0 and self.failed == 0

    def __str__(self) -> str:
        counts = f"{self.passed} | {self.failed} | {self.skipped} | {self.seconds:.0f}"
        return f"| {self.version} | {counts} |"


def run(version: str, arguments: Sequence[str]) -> Run:
    """All tests, or those that pytest's arguments choose, with one bundle."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", str(HERE), f"--junitxml={report}", *arguments]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"METATABLE_HUDI": version}, check=False)
        return _counted(version, report)


def _counted(version: str, report: Path) -> Run:
    if not report.is_file():
        return Run(version, 0, 1, 0, 0.0)  # pytest itself has failed
    [suite] = ElementTree.parse(report).getroot().iter("testsuite")
    told = suite.attrib
    failed = int(told["failures"]) + int(told["errors"])
    skipped = int(told["skipped"])
    passed = int(told["tests"]) - failed - skipped
    return Run(version, passed, failed, skipped, float(told["time"]))


def _commit() -> str:
    """The commit that was run, and whether that was all."""
    hash_ = _told("git", "rev-parse", "--short=12", "HEAD")
    changes = _told("git", "status", "--porcelain", "--", ".", f":!{RECORD.relative_to(ROOT)}")
    return f"{hash_} and changes that were not committed" if changes else hash_


def _machine() -> str:
    packages = [f"{name} {metadata.version(name)}" for name in ("pyspark", "pyarrow", "numpy")]
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    version = java.stderr.split('"')[1]
    python = sys.version.split()[0]
    cores = f"{os.cpu_count()} processors"
    return ", ".join([f"Python {python}", f"Java {version}", *packages, cores])


def _told(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 where every test of every bundle passed."""
    given = list(arguments)
    cut = given.index("--") if "--" in given else len(given)
    versions, chosen = given[:cut] or list(BUNDLES), given[cut + 1 :]
    if unknown := [version for version in versions if version not in BUNDLES]:
        print(f"not pinned: {unknown}; there are {', '.join(BUNDLES)}", file=sys.stderr)
        return 2
    commit, runs = _commit(), []
    try:
        for version in versions:
            BUNDLES[version].fetch()
            print(f"Hudi {version}", flush=True)
            runs.append(run(version, chosen))
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    lines = "\n".join(map(str, runs))
    print(lines)
    if versions == list(BUNDLES) and not chosen:
        date = datetime.now(UTC).date().isoformat()
        page = _PAGE.format(date=date, commit=commit, machine=_machine(), lines=lines)
        RECORD.write_text(page, "utf-8")
    return 0 if all(one.is_good for one in runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
