"""Spark with Delta or with Iceberg: environments of their own, each the newest Spark that it takes.

    .venv-peers-spark/NAME-VERSION/      a Python environment with that Spark and nothing else
    the user's cache (`jars.py`)         its jars

`python -m benchmarks.peers.spark` makes what is missing (`make peers-spark` calls it). Nobody
else does: where something is missing, a benchmark says so. What runs in these environments is
`spark_merge.py`, which needs nothing but pyspark.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.jars import Library, MissingError

__all__ = ["ALL", "DELTA", "ICEBERG", "SparkPeer"]

ENVIRONMENTS = Path(__file__).resolve().parents[2] / ".venv-peers-spark"
_TARGET = "peers-spark"


@dataclass(frozen=True, slots=True)
class SparkPeer:
    """A table format that merges on Spark: its jars, and the Spark that they were built for."""

    name: str
    library: Library
    spark: str

    @property
    def title(self) -> str:
        return f"{self.name.capitalize()} {self.library.version} on Spark {self.spark}"

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / f"{self.name}-{self.spark}" / "bin" / "python"

    def command(self) -> list[str]:
        """What starts it. Raises MissingError where jars or environment are not there."""
        jars = sorted(self.library.jars().glob("*.jar"))
        if not self.python.is_file():
            raise MissingError(f"no Spark {self.spark} for {self.name}: make {_TARGET}")
        classes = ":".join(map(str, jars))
        return [str(self.python), "-m", "benchmarks.peers.spark_merge", self.name, classes]

    def fetch(self) -> None:
        """Fetch the jars and make the environment, if need be. Raises MissingError."""
        self.library.fetch()
        if self.python.is_file():
            return
        folder = self.python.parents[1]
        _run(sys.executable, "-m", "venv", "--clear", str(folder.with_suffix(".draft")))
        # scripts in it name the draft's path, but only its python is called, which does not
        draft = str(folder.with_suffix(".draft") / "bin" / "python")
        _run(draft, "-m", "pip", "install", "--quiet", "--no-compile", f"pyspark=={self.spark}")
        folder.with_suffix(".draft").rename(folder)


# Alone: what else Delta's poms ask for, Spark brings in other versions.
DELTA = SparkPeer(
    "delta",
    Library(
        "delta-spark4.2",
        "4.4.0",
        "",
        (
            "io.delta:delta-spark_4.2_2.13",
            "io.delta:delta-storage",
            "io.delta:delta-kernel-api",
            "io.delta:delta-kernel-defaults",
            "io.delta:delta-kernel-unitycatalog",
        ),
        bundled=True,
        target=_TARGET,
    ),
    "4.2.0",
)
ICEBERG = SparkPeer(
    "iceberg",
    Library(
        "iceberg-spark4.1",
        "1.12.0",
        "",
        ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13",),
        bundled=True,
        target=_TARGET,
    ),
    "4.1.4",
)
ALL = (DELTA, ICEBERG)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{' '.join(command[1:4])} failed: {(done.stdout + done.stderr)[-500:]}")


def main() -> int:
    """Fetch all; what is said and returned is for a Makefile."""
    for peer in ALL:
        try:
            peer.fetch()
        except MissingError as error:
            print(error, file=sys.stderr)
            return 1
        print(peer.title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
