"""Which Java a session is started on, and what a session of ours is like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from metatable.cli.main import main
from metatable.spark import session
from metatable.storage.errors import UsageError
from tests.index.rows import make

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")


def java_home(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java only tells its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2024-01-01' >&2\n""")
    java.chmod(0o755)
    return folder


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(session, "_packaged", lambda: None)
    return monkeypatch


@pytest.mark.parametrize(
    ("told", "version"), [("1.8.0_402", 8), ("11.0.2", 11), ("17.0.15", 17), ("25", 25)]
)
def test_the_major_version_is_read_from_what_java_tells(
    tmp_path: Path, told: str, version: int
) -> None:
    assert session._version(java_home(tmp_path / "jdk", told)) == version


def test_where_there_is_no_java_none_is_found(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert session.find_java() is None
    with pytest.raises(UsageError, match="Spark needs Java 17 or newer"):
        session.local_session("never")


def test_java_home_comes_before_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, found = java_home(tmp_path / "named", "21"), java_home(tmp_path / "found", "17.0.1")
    bare.setenv("PATH", str(found / "bin"), prepend=":")
    bare.setenv("JAVA_HOME", str(named))
    assert session.find_java() == named


def test_a_java_that_is_too_old_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old, new = java_home(tmp_path / "old", "11.0.2"), java_home(tmp_path / "new", "17.0.1")
    bare.setenv("JAVA_HOME", str(old))
    assert session.find_java() is None
    link = tmp_path / "links" / "java"
    link.parent.mkdir()
    link.symlink_to(new / "bin" / "java")
    bare.setenv("PATH", str(link.parent), prepend=":")
    assert session.find_java() == new


def test_the_packaged_java_is_not_given_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = tmp_path / "it's real"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (real / "bin" / "java").chmod(0o755)
    home = session._wrapped(real)
    assert session._wrapped(real) == home
    given = ["--add-modules=jdk.incubator.vector", "-Xmx1g", "a b"]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, check=True)
    assert told.stdout.decode().splitlines() == ["-Xmx1g", "a b"]


def test_workers_run_the_python_that_runs_the_driver(spark: Any) -> None:
    def interpreter(batches: Any) -> Any:
        for batch in batches:
            yield pa.record_batch({"s": [sys.executable] * batch.num_rows})

    told = spark.range(1).selectExpr("'' as s").mapInArrow(interpreter, "s string").collect()
    assert [row.s for row in told] == [sys.executable]


def test_settings_of_the_caller_win_over_ours(spark: Any) -> None:
    assert spark.conf.get("spark.master") == "local[2,2]"
    assert spark.conf.get("spark.ui.enabled") == "false"


class Started:
    """Stands for pyspark's class of sessions where none runs, and for the one that it makes."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.builder = self

    def getActiveSession(self) -> None:  # noqa: N802
        return None

    def appName(self, app: str) -> Started:  # noqa: N802
        self.told.append(app)
        return self

    def config(self, *setting: str) -> Started:
        self.told.append(setting)
        return self

    def getOrCreate(self) -> Started:  # noqa: N802
        self.told.append("started")
        return self

    def stop(self) -> None:
        self.told.append("stopped")


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"])
def test_where_spark_is_to_run_is_not_ours_to_say(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As under `spark-submit --master yarn`: a local master must not take its place."""
    started = Started()
    monkeypatch.setattr(session, "SparkSession", started)
    monkeypatch.setenv(name, "25333")
    with session.borrowed_session("compact") as found:
        assert found is started
    assert started.told == ["compact", "started", "stopped"]


def test_a_service_on_spark_without_java_is_refused(
    bare: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(session, "SparkSession", Started())
    make(str(tmp_path / "table"), "record", "global")
    assert main(["compact", str(tmp_path / "table"), "--engine", "spark"]) == 2
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err


def test_a_session_of_spark_submit_is_where_it_was_told_to_be() -> None:
    code = """if True:
        from metatable.spark import session
        with session.borrowed_session("app") as found:
            print(found.sparkContext.master)"""
    java = str(session.find_java())
    words = "--master local[1] --conf spark.ui.enabled=false pyspark-shell"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": java, "PYSPARK_SUBMIT_ARGS": words},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines()[-1] == "local[1]"
