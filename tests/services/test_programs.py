"""How servers come into the cache. Go is a script here; `make services` asks the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import programs
from tests.services.programs import VERSITYGW, MissingError

ROOT = Path(__file__).resolve().parents[2]
GO = """#!/bin/sh
echo "$@" >> "{log}"
[ "$(wc -l < "{log}")" -gt {failures} ] || {{ echo "connection reset" >&2; exit 1; }}
sleep 0.2
mkdir -p "$GOBIN" && touch "$GOBIN/{made}"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools that comes first, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def put_go(tools: Path, failures: int, made: str = "versitygw") -> Path:
    """A Go that fails so often, and the log of its calls."""
    log = tools / "calls"
    (tools / "go").write_text(GO.format(log=log, failures=failures, made=made))
    (tools / "go").chmod(0o755)
    return log


def test_build_that_fails_once_is_tried_again(tools: Path) -> None:
    log = put_go(tools, failures=1)
    where = tools.parent / "cache/metatable/services" / f"versitygw-{VERSITYGW.version}"
    assert VERSITYGW.build() == VERSITYGW.path() == where / "versitygw"
    assert VERSITYGW.build().is_file()
    assert log.read_text().splitlines() == [f"install {VERSITYGW.package}@{VERSITYGW.version}"] * 2


@pytest.mark.parametrize(
    ("failures", "made", "told"),
    [
        (programs.TRIES, "versitygw", "could not build versitygw v[0-9.]+: connection reset"),
        (0, "other", "no program of that name"),
    ],
)
def test_build_that_fails_leaves_nothing_and_says_why(
    tools: Path, failures: int, made: str, told: str
) -> None:
    put_go(tools, failures, made)
    with pytest.raises(MissingError, match=told):
        VERSITYGW.build()
    assert [file.name for file in programs.cache().iterdir()] == ["build.lock"]


def test_two_that_build_at_once_build_once(tools: Path) -> None:
    log = put_go(tools, failures=0)
    code = "from tests.services.programs import VERSITYGW; print(VERSITYGW.build())"
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [one.communicate(timeout=60)[0].strip() for one in both]
    assert told == [str(VERSITYGW.path())] * 2
    assert len(log.read_text().splitlines()) == 1


def test_what_is_missing_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError, match=r"no versitygw v[0-9.]+: make services"):
        VERSITYGW.path()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(MissingError, match="no go on this machine"):
        VERSITYGW.build()
