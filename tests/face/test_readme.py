"""What README and docs/ promise: examples run, commands and links are there, names the code's."""

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
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
}
README = PAGES["README.md"]
FIRST_SCREEN = README.partition("\n---\n")[0]
EXAMPLES = {
    f"{name}, {number}": example
    for name, text in PAGES.items()
    for number, example in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
}


def test_the_first_example_is_ten_lines() -> None:
    first = EXAMPLES["README.md, 0"]
    assert first in FIRST_SCREEN
    assert len(first.splitlines()) <= 12


def test_there_are_as_many_examples_as_ever() -> None:
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))
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
    assert re.findall(r"^make ([\w-]+)", README, re.M) == ["demo", "test"]
    commands = re.findall(r"`make ([\w-]+)", "".join(PAGES.values()))
    assert {"demo", "test", "test-long", "hudi-spark", *commands} <= set(targets)


@pytest.mark.parametrize("name", PAGES)
def test_places_that_a_page_points_to_are_there(name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", _prose(PAGES[name]))
    assert len(links) >= 20 or name != "README.md"
    for link in links:
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.is_file(), link
        assert not anchor or anchor in _anchors(target.read_text("utf-8")), link


def test_the_guide_names_each_page() -> None:
    named = set(re.findall(r"\]\((\S+\.md)\)", PAGES["docs/README.md"]))
    assert named == {"../README.md"} | {path.name for path in ROOT.glob("docs/[a-z]*.md")}


def test_each_decision_is_in_the_contents_once() -> None:
    text = (ROOT / "DECISIONS.md").read_text("utf-8")
    contents = text.partition("\n## Contents\n")[2].partition("\n## 1. ")[0]
    listed = re.findall(r"^- \[(.+)\]\(#(.+)\)$", contents, re.M)
    assert sorted(one for one, _ in listed) == sorted(re.findall(r"^## (\d.+)$", text, re.M))
    assert {anchor for _, anchor in listed} <= _anchors(text)


def _prose(text: str) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def _anchors(text: str) -> set[str]:
    """Of headings, as those who show Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", _prose(text), re.M)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_its_verbs_are_methods_of_a_table() -> None:
    table = re.search(r"^\| verb \| does \|\n(.*?)\n\n", README, re.M | re.S)
    assert table is not None
    verbs = [
        verb
        for row in table[1].splitlines()[1:]
        for verb in re.findall(r"`(\w+)\(", row.split("|")[1])
    ]
    public = {name for name, value in vars(metatable.Table).items() if callable(value)}
    assert set(verbs) == {name for name in public if not name.startswith("_")}


def test_its_options_have_the_defaults_that_it_names() -> None:
    text = PAGES["docs/options.md"] + "\n"
    table = re.search(r"^\| option \| default \| \|\n(.*?)\n\n", text, re.M | re.S)
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
    """The ways in which the page may write a default."""
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
    named = re.search(r"^\| index \| answers by \|\n(.*?)\n\n", README, re.M | re.S)
    assert named is not None
    for index in re.findall(r"^\| `(\w+)`", named[1], re.M):
        options = Options.create("t", ["id"], key="id", index=index, options=fitting(index, {}))
        assert create_index(options).name == index
    errors = {one for text in PAGES.values() for one in re.findall(r"`(\w+Error)`", text)}
    for error in errors:
        assert issubclass(getattr(metatable, error), metatable.MetatableError)


def test_its_command_lines_are_verbs_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGES["docs/command-line.md"]
    named = re.findall(r"metatable (hfile \w+|[\w|-]+) (?:TABLE|FILE)", text)
    verbs = {verb for words in named for verb in words.split("|")}
    assert len(verbs) == 36
    for verb in verbs:
        with pytest.raises(SystemExit) as end:
            program.main([*verb.split(), "--help"])
        assert end.value.code == 0
        assert "--json" in capsys.readouterr().out
    for name in ("FINE", "FINDINGS", "USAGE", "DAMAGED", "RETRY"):
        assert f"{getattr(program, name)} " in text.partition("Exit codes: ")[2].splitlines()[0]
