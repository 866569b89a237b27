"""`metatable VERB …`, and `python -m metatable VERB …`: the same program.

Exit codes: 0 fine, 1 findings, 2 usage, 3 the table or a file is damaged, missing, not for us
to touch, or kept from us, 4 another writer was first, or the store did not answer (try again),
5 what nobody expected: a fault of metatable, 130 interrupted. Errors go to standard error, one
line each; standard output holds the answer and nothing else. METATABLE_DEBUG=1 shows the
traceback of what nobody expected.

A module of verbs has `register(subparsers)`, which adds parsers with `set_defaults(run=f)`,
where `f(args)` does the work and returns the exit code.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import metatable
from metatable.cli import hfile, table
from metatable.cli.no_verb import show_help_of
from metatable.storage.errors import (
    ConflictError,
    MetatableError,
    StaleError,
    StoreError,
    UsageError,
)

__all__ = ["main"]

FINE, FINDINGS, USAGE, DAMAGED, RETRY, UNEXPECTED = range(6)
INTERRUPTED = 130
"""As a shell tells of a program that Ctrl-C has ended."""

_VERBS = (table, hfile)
"""Modules of verbs, in the order in which help shows them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.stdout is None:  # it was closed before we began
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for as long as we run)
    if isinstance(sys.stdout, io.TextIOWrapper):  # keys may be of letters that it does not have
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(argv)
    except BrokenPipeError:  # `metatable … | head`
        _end_output()
        return FINE
    except MetatableError as error:
        _end_output()
        _tell(str(error))
        return _code_of(error)
    except KeyboardInterrupt:
        _end_output()
        _tell("interrupted")
        return INTERRUPTED
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        _end_output()
        _tell(_report(error))
        return UNEXPECTED


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    code = int(args.run(args))
    sys.stdout.flush()
    return code


def _tell(line: str) -> None:
    if sys.stderr is not None:
        print(f"metatable: {line}", file=sys.stderr)


def _end_output() -> None:
    """Print what waits, or let it go nowhere, instead of failing at the very end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: BaseException) -> str:
    """One line for what nobody expected; the traceback only where it is asked for."""
    if os.environ.get("METATABLE_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    told = " ".join(str(error).split("\n\n")[0].split())[:300]
    return (
        f"unexpected {type(error).__name__}: {told}: a fault of metatable {metatable.__version__},"
        " please open an issue with the output of METATABLE_DEBUG=1"
    )


class _Parser(argparse.ArgumentParser):
    """Tells of a wrong call in one line, as of any other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="metatable", description=__doc__.splitlines()[0])
    version = f"metatable {metatable.__version__}"
    parser.add_argument("--version", action="version", version=version)
    show_help_of(parser)
    verbs = parser.add_subparsers(metavar="VERB")
    for module in _VERBS:
        module.register(verbs)
    return parser


def _code_of(error: MetatableError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return RETRY if isinstance(error, ConflictError | StaleError | StoreError) else DAMAGED
