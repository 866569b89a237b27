"""`metatable VERB …`, and `python -m metatable VERB …`: the same program.

Exit codes: 0 fine, 1 findings, 2 usage, 3 the table or a file is damaged or missing, or is
in a form that must not be touched, 4 another writer was first (try again). Errors go to
standard error, one line each; standard output holds the answer and nothing else.

A module of verbs has `register(subparsers)`, which adds parsers with `set_defaults(run=f)`,
where `f(args)` does the work and returns the exit code.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from obstore.exceptions import BaseError

from metatable.cli import hfile, table
from metatable.storage.errors import ConflictError, MetatableError, StaleError, UsageError

__all__ = ["main"]

FINE, FINDINGS, USAGE, DAMAGED, RETRY = range(5)

_VERBS = (table, hfile)
"""Modules of verbs, in the order in which help shows them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = _parser().parse_args(argv)
    if sys.stdout is None:  # it was closed before we began
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for as long as we run)
    if isinstance(sys.stdout, io.TextIOWrapper):  # keys may be of letters that it does not have
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = int(args.run(args))
        sys.stdout.flush()
    except BrokenPipeError:  # `metatable … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except (MetatableError, OSError, BaseError) as error:
        told = str(error) if isinstance(error, MetatableError) else str(error).splitlines()[0]
        print(f"metatable: {told}", file=sys.stderr)
        return _code_of(error)
    return code


class _Parser(argparse.ArgumentParser):
    """Tells of a wrong call in one line, as of any other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="metatable", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for module in _VERBS:
        module.register(verbs)
    return parser


def _code_of(error: Exception) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return RETRY if isinstance(error, ConflictError | StaleError) else DAMAGED
