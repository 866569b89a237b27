"""`metatable VERB …`, and `python -m metatable VERB …`: the same program.

Exit codes: 0 fine, 1 findings, 2 usage, 3 the table or a file is damaged, missing, not for us
to touch, or kept from us, 4 another writer was first, the store did not answer, or there was not
enough memory (try again), 5 what nobody expected: a fault of metatable, 130 interrupted. Errors go
to standard error, one line each, with `--json` an object; standard output holds the answer and
nothing else. METATABLE_DEBUG=1 shows the traceback of what nobody expected.

How a verb is added: `verb.py`.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import metatable
from metatable.cli import (
    completion,
    create,
    facts,
    hfile,
    log_file,
    read,
    services,
    ways_back,
    write,
)
from metatable.cli.logs import told_on_standard_error
from metatable.cli.no_verb import show_help_of
from metatable.cli.verb import (
    DAMAGED,
    FINDINGS,
    FINE,
    INTERRUPTED,
    RETRY,
    UNEXPECTED,
    USAGE,
    HelpFormatter,
    to_json,
)
from metatable.storage.errors import (
    ConflictError,
    MetatableError,
    StaleError,
    StoreError,
    UsageError,
)
from metatable.storage.system_errors import FULL

__all__ = ["DAMAGED", "FINDINGS", "FINE", "RETRY", "USAGE", "build_parser", "main"]

_VERBS = (create, write, read, facts, services, ways_back, hfile, log_file, completion)
"""Modules of verbs, in the order in which help shows them."""

_EPILOG = f"""\
exit codes:
  {FINE}    fine
  {FINDINGS}    findings, of verify and repair
  {USAGE}    usage: the call, its options or its rows (UsageError)
  {DAMAGED}    a table or file is damaged, missing, kept from us, or not ours to touch
       (CorruptError, NotFoundError, AccessError, UpgradeError)
  {RETRY}    try again: another writer was first, the store did not answer, there was
       not enough memory (ConflictError, StaleError, StoreError, MemoryError)
  {UNEXPECTED}    what nobody expected: a fault of metatable, please report it
  {INTERRUPTED}  interrupted

With --json an error is an object on standard error: error (its class), message,
what, facts, exit_code. Progress is shown where standard error is a terminal, in
colours unless NO_COLOR is set (pip install 'metatable[cli]' brings it). For
object stores METATABLE_STORAGE_REGION=… stands for --storage-option region=…

for example:
  metatable create rides --schema 'id: string, fare: double' --key id
  metatable upsert rides rides.csv
  metatable scan rides --where 'fare > 7.5' --output dear.parquet
  metatable verify s3://bucket/rides --json
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.stdout is None:  # it was closed before we began
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for as long as we run)
    if isinstance(sys.stdout, io.TextIOWrapper):  # keys may be of letters that it does not have
        sys.stdout.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words
    try:
        return _run(words)
    except BrokenPipeError:  # `metatable … | head`
        _end_output()
        return FINE
    except MetatableError as error:
        return _refused(as_json, error)
    except _WrongCall as error:
        _failed(as_json, USAGE, UsageError.__name__, str(error), {"what": str(error), "facts": {}})
        raise SystemExit(USAGE) from None
    except KeyboardInterrupt:
        return _failed(as_json, INTERRUPTED, "KeyboardInterrupt", "interrupted")
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        return _foreign(as_json, error)


class _WrongCall(Exception):  # noqa: N818  (nobody but `main` sees it)
    """What argparse has to say of the words that it was given."""


class _Parser(argparse.ArgumentParser):
    """Tells of a wrong call in one line, as of any other error."""

    def error(self, message: str) -> NoReturn:
        raise _WrongCall(f"{message} (see {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    """All verbs."""
    parser = _Parser(
        prog="metatable",
        description=__doc__.splitlines()[0],
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
    )
    version = f"metatable {metatable.__version__}"
    parser.add_argument("--version", action="version", version=version)
    show_help_of(parser)
    verbs = parser.add_subparsers(metavar="VERB")
    for module in _VERBS:
        module.register(verbs)
    return parser


def _run(words: Sequence[str]) -> int:
    parser = build_parser()
    args = _parsed(parser, words)
    args.program = parser  # for completion, which tells of all verbs
    with told_on_standard_error(getattr(args, "verbose", 0)):
        code = int(args.run(args))
        sys.stdout.flush()
    return code


def _parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """What the words say. argparse takes no files of rows behind an option once it has found some
    before it, or, where there need not be any, none."""
    args, left = parser.parse_known_args(words)
    if "rows" in args:
        options = [word for word in left if word.startswith("-") and word != "-"]
        args.rows, left = [*args.rows, *(word for word in left if word not in options)], options
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return args


def _refused(as_json: bool, error: MetatableError) -> int:
    facts = {"what": error.what, "facts": error.facts}
    return _failed(as_json, _code_of(error), type(error).__name__, str(error), facts)


def _foreign(as_json: bool, error: BaseException) -> int:
    """Tell what is no error of our family."""
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:  # stores tell of theirs
        said = os.strerror(number)
        return _refused(as_json, UsageError("cannot write", file="standard output", found=said))
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        asked = str(error)  # by numpy and Arrow; Python does not tell
        told = MetatableError("not enough memory", **({"found": asked} if asked else {}))
        facts = {"what": told.what, "facts": told.facts}
        return _failed(as_json, RETRY, MemoryError.__name__, str(told), facts)
    return _failed(as_json, UNEXPECTED, type(error).__name__, _report(error))


def _failed(
    as_json: bool, code: int, error: str, message: str, facts: dict[str, Any] | None = None
) -> int:
    """Tell it, once what was printed is out."""
    _end_output()
    if sys.stderr is not None:
        told = {"error": error, "message": message, **(facts or {}), "exit_code": code}
        print(to_json(told) if as_json else f"metatable: {message}", file=sys.stderr)
    return code


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


def _code_of(error: MetatableError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return RETRY if isinstance(error, ConflictError | StaleError | StoreError) else DAMAGED
