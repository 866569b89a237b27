"""What somebody at a terminal sees, and what a pipe is spared: colours, progress, widths, help."""

from __future__ import annotations

import argparse
import errno
import fcntl
import io
import logging
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable.cli import progress, rows_out
from metatable.cli.grid import Grid
from metatable.cli.main import build_parser, main
from metatable.cli.render import columns
from metatable.cli.terminal import cut, width_of
from tests.index.rows import make, rows
from tests.shared import made_once

ROOT = Path(__file__).resolve().parent.parent.parent
FAST = ["--storage-option", "durable=false"]
ESCAPE = "\x1b["


class Terminal(io.TextIOWrapper):
    """A pty in the place of standard output and error; `seen` is what came out of it."""

    def __init__(self, wide: int) -> None:
        self._reading, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, wide, 0, 0))
        super().__init__(os.fdopen(inner, "wb", buffering=0), "utf-8", write_through=True)
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while part := os.read(self._reading, 1 << 16):
                self._parts.append(part)
        except OSError:  # the other end is closed
            pass

    def seen(self) -> str:
        self.close()
        self._reader.join()
        os.close(self._reading)
        return b"".join(self._parts).decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ninety rows with notes that are wider than a terminal."""

    def noted(uri: str) -> None:
        table = make(uri, "record", "global")
        table.insert(rows(0, 90), note={"why": "words that go on " * 6})

    return str(made_once(tmp_path_factory, "terminal", noted))


@pytest.fixture
def coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def at_terminal(patch: pytest.MonkeyPatch, wide: int, *words: str) -> str:
    terminal = Terminal(wide)
    patch.setenv("COLUMNS", str(wide))
    with patch.context() as inner:
        inner.setattr(sys, "stdout", terminal)
        inner.setattr(sys, "stderr", terminal)
        main([*words, *FAST])
    return terminal.seen()


def lines_of(seen: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in seen.splitlines()]


@pytest.mark.usefixtures("coloured")
@pytest.mark.parametrize("wide", [80, 200])
def test_a_terminal_gets_a_grid_that_fits_heads_bold_and_progress(
    uri: str, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    monkeypatch.setattr(rows_out, "SHOWN_ROWS", 20)
    seen = at_terminal(monkeypatch, wide, "scan", uri)
    assert f"{ESCAPE}1mid" in seen
    assert f"{ESCAPE}?25l" in seen, "the cursor is hidden beside a bar"
    assert "the first 20 rows" in seen
    told = lines_of(seen)
    assert max(map(len, told)) <= wide
    assert sum("note " in line for line in told) == 20
    history = lines_of(at_terminal(monkeypatch, wide, "history", uri, "-q"))
    assert max(map(len, history)) <= wide
    assert (len(history) > 3) == (wide == 80), "notes go on below themselves"


def test_a_terminal_asks_for_no_more_rows_than_it_shows(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rows_out, "SHOWN_ROWS", 5)
    monkeypatch.setattr(rows_out.terminal, "is_terminal", lambda out=None: True)
    asked = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(9):
            asked.append(number)
            yield pa.record_batch({"n": [number, number, number]})

    args = argparse.Namespace(output=None, format=None, json=False, limit=None, quiet=False)
    rows_out.print_rows(pa.schema({"n": pa.int64()}), batches(), args)
    told = capfd.readouterr()
    assert asked == [0, 1]
    assert len(told.out.splitlines()) == 6
    assert "the first 5 rows" in told.err


@pytest.mark.usefixtures("coloured")
def test_no_color_means_none_and_still_tells_of_progress(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    seen = at_terminal(monkeypatch, 80, "scan", uri)
    colours = set(re.findall(r"\x1b\[([0-9;]*)m", seen)) - {"", "0"}
    assert colours <= {"1", "2"}, "no colour"
    assert f"{ESCAPE}1mid" not in seen


@pytest.mark.usefixtures("coloured")
@pytest.mark.parametrize("how", ["--quiet", "-v", "dumb", "no rich"])
def test_no_progress_where_it_is_not_wanted(
    uri: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    words = ["history", uri]
    if how == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    elif how == "no rich":
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    else:
        words.append(how)
    assert f"{ESCAPE}?25l" not in at_terminal(monkeypatch, 80, *words)


@pytest.mark.usefixtures("coloured")
def test_a_pipe_gets_neither_colours_nor_progress(
    uri: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (("scan", uri), ("history", uri), ("verify", uri), ("files", uri)):
        main([*words, *FAST])
        told = capfd.readouterr()
        assert told.err == ""
        assert ESCAPE not in told.out


def test_progress_says_what_is_logged_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    class Shown(progress.Progress):
        def advance(self, done: float, of: float | None) -> None:
            told.append((done, of))

        def say(self, text: str) -> None:
            told.append(text)

    listener = progress._Listener(Shown())
    log = logging.getLogger("metatable.write")
    with progress.listening(listener, logging.DEBUG):
        log.info("looking")
        log.debug("task %d", 1, extra={"done": 1, "of": 4})
    log.info("nobody hears")
    assert told == ["looking", (1, 4)]
    assert logging.getLogger("metatable").level == logging.NOTSET


def test_verbose_logs_to_standard_error(uri: str, capfd: pytest.CaptureFixture[str]) -> None:
    main(["verify", uri, "-v", *FAST])
    assert re.search(r"^\d\d:\d\d:\d\d INFO +metatable.compaction: verify version 2: reading",
                     capfd.readouterr().err, re.M)  # fmt: skip
    main(["scan", uri, "--where", "value > 5", "-vv", *FAST])
    assert "DEBUG   metatable.query: 6 files, 6 after partitions" in capfd.readouterr().err


def test_a_grid_gives_way_by_its_widest_columns_and_then_leaves_out() -> None:
    def grid(wide: int) -> list[str]:
        made = Grid(["id", "text", "n"], [False, False, True], wide)
        lines = list(made.add([("a\n", "word " * 9, "1"), ("東京", None, "22")]))
        return lines + list(made.end())

    assert grid(99)[2] == "東京  null" + " " * 43 + "22"
    assert [width_of(line) for line in grid(30)[:2]] == [30, 30]
    assert "…" in grid(30)[1]
    narrow = grid(15)
    assert narrow[0] == "id    text"
    assert narrow[-1].startswith("left out: n;")
    assert "a\\n" in narrow[1]
    assert cut("東京都", 5) == "東京…"


def test_words_of_a_last_column_go_on_below_it() -> None:
    told = columns(("a", "what"), [("1", "some words that go on")], left=("what",), most=20)
    assert told.splitlines() == ["a  what", "1  some words that", "   go on"]
    assert len(columns(("a", "what"), [("1", "w" * 30)], left=("what",), most=10).splitlines()) == 2


def verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                inner = list(verbs(one))
                yield from [(f"{name} {rest}", deep) for rest, deep in inner] or [(name, one)]


def test_each_verb_has_an_example_that_its_parser_takes_and_a_help_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = build_parser()
    assert max(map(len, parser.format_help().splitlines())) <= 80
    for name, one in verbs(parser):
        told = one.format_help()
        assert max(map(len, told.splitlines())) <= 80, name
        assert "--json" in told
        examples = told.partition("for example:\n")[2]
        assert f"metatable {name} " in examples, name
        for line in examples.replace("\\\n", "").splitlines():
            if line.startswith(f"  metatable {name} ") and name != "completion":
                command = line.partition(" || ")[0].partition(" | ")[0]
                parser.parse_args(shlex.split(command)[1:])


SHELL = """
eval "$(cat {script})"
complete -p metatable
ask() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _metatable; echo "${{COMPREPLY[*]}}"; }}
ask metatable ver
ask metatable hfile ''
ask metatable scan rides --wh
ask metatable scan rides --format ''
ask metatable completion ''
ask metatable scan --output ''
"""  # noqa: E501


def test_completion_completes_in_a_bash(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = tmp_path / "script"
    script.write_text(capfd.readouterr().out)
    asked = SHELL.format(script=script)
    ran = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    registered, *told = ran.stdout.splitlines()
    assert registered.startswith("complete -o ")
    assert registered.endswith("-F _metatable metatable")
    assert told == [
        "verify",
        "meta keys scan get verify",
        "--where",
        "csv jsonl parquet table",
        "bash zsh fish",
        "",
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_is_there_for_other_shells(
    shell: str, capfd: pytest.CaptureFixture[str]
) -> None:
    main(["completion", shell])
    told = capfd.readouterr().out
    assert {"zsh": "bashcompinit", "fish": "complete -c metatable"}[shell] in told
    assert "rollback" in told


def test_help_and_the_library_load_nothing_heavy_nor_rich(uri: str) -> None:
    code = f"""
import io, sys
from metatable.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
heavy = {{"pyarrow", "numpy", "obstore", "rich"}} & {{name.split(".")[0] for name in sys.modules}}
main(["scan", {uri!r}, "--limit", "1"])
late = "rich" in sys.modules
print(sorted(heavy), late, file=sys.stderr)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.stderr == "[] False\n"
    assert metatable.open(uri).version == 2


class Gone(io.RawIOBase):
    """An output that takes nothing: by default, a pipe that nobody reads any more."""

    def __init__(self, why: int = errno.EPIPE) -> None:
        super().__init__()
        self._why = why

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(self._why, os.strerror(self._why))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_an_output_that_takes_no_more_is_told(
    uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(["scan", uri, "--format", form, *FAST]) == 2
        patch.setattr(sys, "stdout", io.StringIO())  # what is left in `full` goes nowhere
    told = "metatable: cannot write: file='standard output' found='No space left on device'"
    assert capfd.readouterr().err.splitlines() == [told]


@pytest.mark.parametrize("why", [errno.EFBIG, errno.EDQUOT], ids=errno.errorcode.get)
def test_an_output_that_may_not_grow_is_told_as_a_full_one(
    uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], why: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(Gone(why), write_through=True))
        assert main(["scan", uri, *FAST]) == 2
    told = f"metatable: cannot write: file='standard output' found='{os.strerror(why)}'"
    assert capfd.readouterr().err.splitlines() == [told]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_reader_that_goes_away_ends_quietly(
    uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(Gone(), write_through=True))
        assert main(["scan", uri, "--format", form, *FAST]) == 0
    assert capfd.readouterr().err == ""
