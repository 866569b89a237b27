"""The README's promises: its ten lines run, its commands exist, its names are the code's."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

import metatable
from metatable.cli import main as program
from metatable.data.config.options import Options
from metatable.index import create_index
from tests.index.rows import fitting

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
FIRST_SCREEN = TEXT.partition("\n---\n")[0]


EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


def test_the_first_example_is_ten_lines() -> None:
    assert EXAMPLES[0] in FIRST_SCREEN
    assert len(EXAMPLES[0].splitlines()) <= 12


@pytest.mark.parametrize(
    "example",
    EXAMPLES,
    ids=["a table", "columns", "merge-on-read", "an index", "buckets", "adopted", "an hfile"],
)
def test_examples_run_and_print_what_they_say(tmp_path: Path, example: str) -> None:
    lines = example.splitlines()
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = [line.partition("  # ")[2] for line in lines if line.startswith("print")]
    printed = ran.stdout.splitlines()
    assert len(told) == len(printed) >= 4
    for expected, found in zip(told, printed, strict=True):
        beginning, cut, _ = expected.partition("…")
        assert found.startswith(beginning) if cut else found == expected


def test_the_first_screen_is_one() -> None:
    assert len(FIRST_SCREEN.splitlines()) <= 45
    assert "It is not a query engine, a catalog, a lock service or a server." in FIRST_SCREEN
    assert len(re.findall(r"^\d\. \*\*", FIRST_SCREEN, re.M)) == 3


def test_its_make_commands_are_targets() -> None:
    targets = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
    commands = re.findall(r"^make ([\w-]+)", TEXT, re.M)
    assert commands == ["demo", "test"]
    assert set(commands) <= set(targets)


def test_files_that_it_points_to_are_there() -> None:
    places = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(places) >= 4
    assert [place for place in places if not (ROOT / place).is_file()] == []


def test_its_verbs_are_methods_of_a_table() -> None:
    table = re.search(r"^\| verb \| does \|\n(.*?)\n\n", TEXT, re.M | re.S)
    assert table is not None
    verbs = [
        verb
        for row in table[1].splitlines()[1:]
        for verb in re.findall(r"`(\w+)\(", row.split("|")[1])
    ]
    public = {name for name, value in vars(metatable.Table).items() if callable(value)}
    assert set(verbs) == {name for name in public if not name.startswith("_")}


def test_its_options_have_the_defaults_that_it_names() -> None:
    table = re.search(r"^\| option \| default \| \|\n(.*?)\n\n", TEXT, re.M | re.S)
    assert table is not None
    fields = {one.name: one for one in dataclasses.fields(Options)}
    made = Options.create("t", ["id"], key="id")
    for row in table[1].splitlines()[1:]:
        names, defaults = (cell.strip() for cell in row.strip("|").split("|")[:2])
        for name in re.findall(r"`(\w+)`", names):
            assert name in fields
            if name != "key_scope":
                assert _written(getattr(made, name)) & set(_parts(defaults)), name


def _written(value: object) -> set[str]:
    """The ways in which the README may write a default."""
    if isinstance(value, str):
        return {f'`"{value}"`'}
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = int(value)
        units = {f"{number >> 20} MiB", f"{number >> 10} KiB", f"{number:,}", f"{value:g}"}
        return units | {str(value).replace("e-0", "e-")}
    return {f"`{value}`".replace("'", '"')}


def _parts(cell: str) -> list[str]:
    return [cell, *(part.strip() for part in re.split(r", (?=[\d`])", cell))]


def test_its_indexes_and_errors_are_the_codes() -> None:
    named = re.search(r"^\| index \| answers by \|\n(.*?)\n\n", TEXT, re.M | re.S)
    assert named is not None
    for index in re.findall(r"^\| `(\w+)`", named[1], re.M):
        options = Options.create("t", ["id"], key="id", index=index, options=fitting(index, {}))
        assert create_index(options).name == index
    for error in set(re.findall(r"`(\w+Error)`", TEXT)):
        assert issubclass(getattr(metatable, error), metatable.MetatableError)


def test_its_command_lines_are_verbs_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    named = re.findall(r"metatable (hfile \w+|[\w|-]+) (?:TABLE|FILE)", TEXT)
    verbs = {verb for words in named for verb in words.split("|")}
    assert len(verbs) == 36
    for verb in verbs:
        with pytest.raises(SystemExit) as end:
            program.main([*verb.split(), "--help"])
        assert end.value.code == 0
        assert "--json" in capsys.readouterr().out
    for name in ("FINE", "FINDINGS", "USAGE", "DAMAGED", "RETRY"):
        assert f"{getattr(program, name)} " in TEXT.partition("Exit codes: ")[2].splitlines()[0]
