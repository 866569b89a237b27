"""Demands: what metatable needs of a Spark, and what it says where that is not so.

    pyspark, and the Spark of the session      4.1 or newer
    the Python of the workers                  the driver's version, with metatable in it
    the session's Hadoop                       a file system for the table's store (to_spark)

Spark starts `python3` from PATH for its workers, unless PYSPARK_PYTHON named another when the
session was made. A venv that is not activated is not on PATH, so on the machine of the driver
our functions are planned for the driver's own Python (`planning`). Elsewhere nobody can tell
before a task has failed: `mendable` then says what is to be done about it.

Nothing here imports pyspark, so that one that is too old can be told so.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metatable.storage.errors import UsageError

__all__ = ["check_session", "check_version", "is_connect", "is_session", "mendable", "planning"]

LEAST_VERSION = (4, 1)
"""Iterator UDFs over Arrow and `repartitionById` came with it."""

PACKAGES = "metatable|pyarrow|numpy|fastavro|xxhash|obstore|isal|google_crc32c|pyspark|py4j"
"""Without these our tasks do not begin; a missing package of the user's is the user's."""

_CHOOSE = "set PYSPARK_PYTHON before the session is made"
_ONE_AT_A_TIME = threading.Lock()


def check_version(found: str, of: str) -> None:
    """Raises UsageError for a Spark older than ours needs."""
    numbers = [int(number) for number in re.findall(r"\d+", found)[:2]]
    if tuple(numbers) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise UsageError(
            f"{of} is too old for metatable", expected=f"{least} or newer", found=found
        )


def check_session(session: Any) -> None:
    """Raises UsageError where the session was stopped, or the Spark behind it is too old."""
    if session.is_stopped if is_connect(session) else session.sparkContext._jsc is None:
        raise UsageError("the Spark session was stopped", expected="one that runs")
    check_version(session.version, "the session's Spark")


def is_session(value: Any) -> bool:
    """Whether it is a Spark session, classic or of Connect, and not another thing of pyspark's."""
    return hasattr(type(value), "createDataFrame")


def is_connect(session: Any) -> bool:
    """Whether the session is a Spark Connect client: no JVM can be asked."""
    return type(session).__module__.startswith("pyspark.sql.connect")


@contextmanager
def planning(session: Any) -> Iterator[None]:
    """Python functions that are planned in this block run in a Python like the driver's.

    Where all workers are on the driver's machine, and nobody chose a Python for them, it is the
    driver's own. The session is afterwards as it was.
    """
    context = None if is_connect(session) else session.sparkContext
    if context is None or not _python_is_ours_to_choose(context.master):
        yield
        return
    with _ONE_AT_A_TIME:
        before = context.pythonExec
        context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def _python_is_ours_to_choose(master: str) -> bool:
    if not master.startswith("local") or os.environ.get("PYSPARK_PYTHON") or not sys.executable:
        return False
    found = shutil.which("python3")
    return found is None or Path(found).parent.resolve() != Path(sys.executable).parent.resolve()


def mendable(error: Exception) -> UsageError | None:
    """What the user can do about this failure of Spark's; None where we do not know."""
    text = str(error)
    if found := re.search(rf"ModuleNotFoundError: No module named '({PACKAGES})\b", text):
        what = f"a Python of Spark's workers lacks {found[1]}: {_CHOOSE}"
        return UsageError(what, expected=f"one with metatable, here {sys.executable}")
    if found := re.search(r"in worker has different version: (\S+) than that in driver", text):
        what = f"Spark's workers run another Python than the driver: {_CHOOSE}"
        driver = ".".join(map(str, sys.version_info[:2]))
        return UsageError(what, expected=driver, found=found[1])
    if found := re.search(r'Cannot run program "([^"]+)": error=\d+, ([^\n]*)', text):
        what = f"Spark cannot start a Python for its workers: {_CHOOSE}"
        expected = f"one with metatable, here {sys.executable}"
        return UsageError(what, expected=expected, found=found[1], reason=found[2])
    if found := re.search(r"(\w+ >= [\d.]+) must be installed; however, ([^\n]*)", text):
        return UsageError("Spark lacks a package", expected=found[1], found=found[2].rstrip("."))
    if found := re.search(r"\[AMBIGUOUS_REFERENCE\] Reference `(.+?)` is ambiguous", text):
        what = "a column is there twice (this session does not tell case apart)"
        expected = "another name, or spark.sql.caseSensitive=true"
        return UsageError(what, column=found[1], expected=expected)
    return None
