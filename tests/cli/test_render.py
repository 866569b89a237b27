"""What people read on a terminal, and what a pipe gets."""

from __future__ import annotations

import io
import sys

import pytest

from metatable.cli.render import heading


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_headings_are_bold_where_they_go_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    bold = "\x1b[1mtext\x1b[0m"
    assert heading("text", Terminal()) == bold
    assert heading("text", io.StringIO()) == "text"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert heading("text") == bold
    assert heading("text", io.StringIO()) == "text"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", ""), ("TERM", "dumb")])
def test_headings_are_plain_where_no_colour_is_wanted(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert heading("text", Terminal()) == "text"
