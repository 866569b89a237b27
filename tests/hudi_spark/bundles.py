"""Bundles of Hudi for Spark 3.5, pinned: all of Hudi in one jar each.

0.15.0 is the last that writes table version 6 by itself. Those of 1.x are told to, else they
upgrade a table with their first write. Spark itself is pinned in requirements.txt.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.jars import Library

__all__ = ["BUNDLES", "jar_of"]

_NAME = "hudi-spark3.5-bundle_2.12"
_VERSIONS = ("0.15.0", "1.1.1", "1.2.0")

BUNDLES = {
    version: Library(
        _NAME, version, "", (f"org.apache.hudi:{_NAME}",), bundled=True, target="hudi-spark"
    )
    for version in _VERSIONS
}


def jar_of(version: str) -> Path:
    """The bundle of a pinned version. Raises MissingError where it was not fetched."""
    [jar] = BUNDLES[version].jars().glob("*.jar")
    return jar
