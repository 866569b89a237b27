"""How jars of peers come into the cache. Maven is a script here; `make peers` asks the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.peers import jars, spark
from benchmarks.peers.jars import HUDI_IO, Library, MissingError
from benchmarks.peers.program import put_entries, put_keys
from benchmarks.peers.spark import DELTA

ROOT = Path(jars.__file__).parents[2]
MAVEN = """#!/bin/sh
echo called >> "{log}"
[ "$(wc -l < "{log}")" -gt {failures} ] || {{ echo "connection reset"; exit 1; }}
sleep 0.2
cp pom.xml "{log}.pom"
mkdir jars && touch jars/one.jar
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools that comes first, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def put_tool(place: Path, text: str) -> None:
    place.write_text(text)
    place.chmod(0o755)


def put_maven(tools: Path, failures: int) -> Path:
    """A Maven that fails so often, and the log of its calls."""
    log = tools / "calls"
    put_tool(tools / "mvn", MAVEN.format(log=log, failures=failures))
    for name in ("java", "javac"):
        put_tool(tools / name, "#!/bin/sh\n")
    return log


def calls(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_download_that_fails_twice_is_tried_again(tools: Path) -> None:
    log = put_maven(tools, failures=2)
    assert [file.name for file in HUDI_IO.fetch().iterdir()] == ["one.jar"]
    assert HUDI_IO.jars() == HUDI_IO.folder == tools.parent / "cache/metatable/java/hudi-io-1.2.0"
    assert calls(log) == 3


def test_download_that_fails_three_times_leaves_nothing_and_says_why(tools: Path) -> None:
    log = put_maven(tools, failures=3)
    with pytest.raises(MissingError, match=r"could not fetch hudi-io 1.2.0: connection reset"):
        HUDI_IO.fetch()
    assert calls(log) == jars.TRIES
    assert [file.name for file in jars.cache().iterdir()] == ["fetch.lock"]


def test_two_that_fetch_at_once_download_once(tools: Path) -> None:
    log = put_maven(tools, failures=0)
    code = "from benchmarks.peers.jars import HUDI_IO; print(HUDI_IO.fetch())"
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [one.communicate(timeout=60)[0].strip() for one in both]
    assert told == [str(HUDI_IO.folder)] * 2
    assert calls(log) == 1


@pytest.mark.parametrize("bundled", [False, True])
def test_a_bundle_comes_without_what_it_holds_already(tools: Path, bundled: bool) -> None:
    log = put_maven(tools, failures=0)
    library = Library("all", "1", "", ("org:all",), bundled=bundled, target="all")
    with pytest.raises(MissingError, match="no jars of all 1: make all"):
        library.jars()
    library.fetch()
    asked = Path(f"{log}.pom").read_text()
    assert "<artifactId>all</artifactId><version>1</version>" in asked
    assert ("<exclusion>" in asked) is bundled


def test_what_is_missing_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_maven(tools, failures=0)
    with pytest.raises(MissingError, match=r"no jars of hudi-io 1.2.0: make peers"):
        HUDI_IO.jars()
    monkeypatch.setenv("PATH", str(tools))
    (tools / "javac").unlink()
    with pytest.raises(MissingError, match="no javac on this machine"):
        HUDI_IO.jars()
    (tools / "mvn").unlink()
    with pytest.raises(MissingError, match="no mvn on this machine"):
        HUDI_IO.fetch()


def test_a_spark_of_a_peer_is_asked_for_by_the_name_of_its_target(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_maven(tools, failures=0)
    monkeypatch.setattr(spark, "ENVIRONMENTS", tools / "environments")
    with pytest.raises(MissingError, match=r"no jars of delta-spark4.2 4.4.0: make peers-spark"):
        DELTA.command()
    DELTA.library.fetch()
    with pytest.raises(MissingError, match=r"no Spark 4.2.0 for delta: make peers-spark"):
        DELTA.command()
    DELTA.python.parent.mkdir(parents=True)
    DELTA.python.touch()
    python, *_, name, classes = DELTA.command()
    assert (python, name) == (str(DELTA.python), "delta")
    assert classes == str(DELTA.library.folder / "one.jar")


def test_files_for_peers_name_the_size_of_each_part(tmp_path: Path) -> None:
    keys, values = pa.array([b"a", b"bc"], pa.binary()), pa.array([b"", b"v"], pa.binary())
    assert put_keys(tmp_path / "k", keys).read_bytes() == b"\0\0\0\1a\0\0\0\2bc"
    told = put_entries(tmp_path / "e", keys, values).read_bytes()
    assert told == b"\0\0\0\1a\0\0\0\0\0\0\0\2bc\0\0\0\1v"
