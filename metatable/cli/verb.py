"""A verb: its parser, with what all verbs have in common.

To add one, write its function and say it in the `register` of a module of verbs (`services.py`,
`facts.py`, `ways_back.py`, `write.py`, `read.py`), which `main._VERBS` names:

    def register(verbs: Verbs) -> None:
        mend = add_verb(verbs, "mend", _mend, "mend what verify finds", "metatable mend rides")
        add_dry_run(mend)  # where it destroys

    def _mend(args: argparse.Namespace) -> int:
        with at_work("mend", args):                        # progress, on a terminal
            done = open_table(args).mend(dry_run=args.dry_run)
        print_result(done, args)                           # text, or the object of --json
        return FINE

and name it in docs/command-line.md and its test. `metatable --help` has to be fast: a module of
verbs imports nothing that loads pyarrow, but in its functions (`metatable.open` loads what it
needs).
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import metatable
from metatable.cli import terminal
from metatable.cli.named_values import add_storage_option, storage_options

if TYPE_CHECKING:
    from metatable.table import Table

__all__ = [
    "DAMAGED",
    "FINDINGS",
    "FINE",
    "INTERRUPTED",
    "RETRY",
    "UNEXPECTED",
    "USAGE",
    "HelpFormatter",
    "Verbs",
    "add_common",
    "add_dry_run",
    "add_only",
    "add_verb",
    "at_least_one",
    "open_table",
    "print_objects",
    "print_result",
    "to_json",
]

FINE, FINDINGS, USAGE, DAMAGED, RETRY, UNEXPECTED = range(6)
INTERRUPTED = 130
"""As a shell tells of a program that Ctrl-C has ended."""

Verbs = argparse._SubParsersAction  # of parsers; argparse has no public name for it


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """As argparse's, with room for verbs and options before what they do."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=27)


Run = Callable[[argparse.Namespace], int]


def add_verb(
    verbs: Verbs[argparse.ArgumentParser], name: str, run: Run, told: str, example: str
) -> argparse.ArgumentParser:
    """A verb that takes a table. `run` does the work and returns the exit code.

    `told`: what it does, in a line. `example`: command lines.
    """
    parser = verbs.add_parser(name, help=told)
    parser.add_argument("table", metavar="TABLE", help="a folder, or s3://bucket/folder")
    add_common(parser, run, told, example)
    return parser


def add_common(parser: argparse.ArgumentParser, run: Run, told: str, example: str) -> None:
    """What every verb has: `--json`, options of the store, how much is said; an example."""
    parser.formatter_class = HelpFormatter
    parser.description = textwrap.fill(f"{told[0].upper()}{told[1:]}.", 79)
    lines = textwrap.indent(textwrap.dedent(example).strip(), "  ")
    parser.epilog = f"for example:\n{lines}\n\nExit codes: metatable --help"
    parser.add_argument("--json", action="store_true", help="print JSON, also of errors")
    add_storage_option(parser)
    said = parser.add_mutually_exclusive_group()
    said.add_argument("-q", "--quiet", action="store_true", help="no progress, no remarks")
    said.add_argument(
        "-v", "--verbose", action="count", default=0, help="log to standard error; -vv: all of it"
    )
    parser.set_defaults(run=run)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, write nothing"
    )


def add_only(parser: argparse.ArgumentParser, option: str, metavar: str, kind: type = str) -> None:
    """An option that names things, each by itself; where it is not given all are meant."""
    told = "only this one (may be repeated)"
    parser.add_argument(option, action="append", type=kind, metavar=metavar, help=told)


def open_table(args: argparse.Namespace) -> Table:
    return metatable.open(args.table, storage_options(args))


def print_result(done: Any, args: argparse.Namespace) -> None:
    """A result of the library, as text or as one object; its findings before it."""
    if args.json:
        print(to_json(done.to_dict()))
        return
    for finding in getattr(done, "findings", ()):
        print(finding)
    print(terminal.filled(repr(done)))


def print_objects(found: Sequence[Any]) -> None:
    """Results of the library, an object of JSON each a line."""
    print("".join(f"{to_json(one.to_dict())}\n" for one in found), end="")


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def at_least_one(text: str) -> int:
    """For `type=` of an argument."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError("must be a whole number, 1 or more")
    return number
