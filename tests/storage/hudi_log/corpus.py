"""The log files of real tables that Hudi on Spark has written."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["log_files", "tables"]

_LOG = re.compile(r"(.*/)?\.[^./][^/]*\.log\.\d+_[^/.]+")


def tables(interop: Path) -> list[Path]:
    """Archives of merge-on-read tables."""
    found = [*interop.glob("hudi-spark/mor_*.zip"), *interop.glob("hudi/*__mor__*.zip")]
    assert len(found) >= 7
    return sorted(found)


def log_files(table: Path) -> Iterator[tuple[str, bytes]]:
    """(path in the archive, bytes), those of Hudi's own metadata table included."""
    with zipfile.ZipFile(table) as archive:
        for name in archive.namelist():
            if _LOG.fullmatch(name) and not name.startswith("__MACOSX"):
                yield name, archive.read(name)
