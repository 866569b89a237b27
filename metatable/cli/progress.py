"""Progress: a line on standard error while a verb is at work, where that is a terminal.

What it says is what the library logs; how far it is, bytes of the files that are read, or what a
record brings as `done` and `of`. The line goes when the work is done. Needs `rich` (the extra
`cli`), which is loaded only where something will be shown: without it, in a pipe, on a dumb
terminal, with `--quiet` or `-v` there is none.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from metatable.cli import terminal
from metatable.cli.logs import listening

__all__ = ["Progress", "at_work"]


class Progress:
    """Nothing is shown. Safe to be called by any thread."""

    def advance(self, done: float, of: float | None) -> None:
        """So much of so much is done; `of` is None where nobody knows."""

    def say(self, text: str) -> None:
        """What is being done now."""

    def end(self) -> None:
        """Show nothing any more: from now on the terminal is needed."""


class _Bar(Progress):
    """One task of a bar of rich's."""

    def __init__(self, bar: Any, title: str) -> None:
        self._bar, self._title = bar, title
        self._task = bar.add_task(title, total=None, step="")

    def advance(self, done: float, of: float | None) -> None:
        self._bar.update(self._task, completed=done, total=of)

    def say(self, text: str) -> None:
        task = self._bar.tasks[0]
        if task.finished:  # what is behind the rows, or the tasks, takes its time as well
            task.total = task.finished_time = None
        self._bar.update(self._task, step=text)

    def end(self) -> None:
        self._bar.stop()


class _Listener(logging.Handler):
    """Turns what is logged into what is shown."""

    def __init__(self, shown: Progress) -> None:
        super().__init__()
        self._shown = shown

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "of"):
            self._shown.advance(record.done, record.of)  # type: ignore[attr-defined]
        else:
            self._shown.say(record.getMessage())


@contextmanager
def at_work(title: str, args: argparse.Namespace) -> Iterator[Progress]:
    """Show a line for as long as the block lasts, or nothing."""
    rich = _rich() if _is_wanted(args) else None
    if rich is None:
        yield Progress()
        return
    console = import_module("rich.console").Console(
        stderr=True, no_color=not terminal.is_coloured(sys.stderr) or None
    )
    # narrow terminals lose the end of the step's text, never the bar
    text = import_module("rich.table").Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=24),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.fields[step]}", style="dim", markup=False, table_column=text),
    )
    how = {"transient": True, "expand": True, "redirect_stdout": False, "redirect_stderr": False}
    with rich.Progress(*columns, console=console, **how) as bar:
        shown = _Bar(bar, title)
        with listening(_Listener(shown), logging.DEBUG):
            yield shown


def _is_wanted(args: argparse.Namespace) -> bool:
    told = args.quiet or args.verbose
    return not told and os.environ.get("TERM") != "dumb" and terminal.is_terminal(sys.stderr)


def _rich() -> Any:
    try:
        return import_module("rich.progress")
    except ImportError:
        return None
