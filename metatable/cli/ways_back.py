"""`metatable rollback|restore|savepoint TABLE`: take a table back in time, and keep a version to go
back to. With `--json` a list of savepoints is one object per line; all else is one object.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metatable.cli import terminal
from metatable.cli.progress import at_work
from metatable.cli.render import columns, printable, when
from metatable.cli.verb import (
    FINE,
    Verbs,
    add_dry_run,
    add_verb,
    at_least_one,
    open_table,
    print_objects,
    print_result,
)
from metatable.storage.errors import ConflictError, StoreError

if TYPE_CHECKING:
    from metatable.results import SavepointInfo

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    _register_undoing(verbs)
    _register_savepoint(verbs)


def _register_undoing(verbs: Verbs[argparse.ArgumentParser]) -> None:
    rollback = add_verb(
        verbs,
        "rollback",
        _rollback,
        "undo the last data commit, and say which",
        "metatable rollback rides --dry-run\nmetatable rollback rides --instant 20260131134500000",
    )
    rollback.add_argument(
        "--instant",
        metavar="INSTANT",
        help="only if this is the last one; may be repeated where an answer was lost",
    )
    restore = add_verb(
        verbs,
        "restore",
        _restore,
        "go back to an older version, over many commits",
        "metatable restore rides --savepoint june --dry-run\n"
        "metatable restore rides --as-of '2026-01-31 13:45'",
    )
    where = restore.add_mutually_exclusive_group(required=True)
    where.add_argument("--version", type=at_least_one, metavar="N", help="by its number")
    where.add_argument("--as-of", metavar="MOMENT", help="an instant, or a time (UTC)")
    where.add_argument("--savepoint", metavar="NAME", help="by the name of a savepoint")
    for verb in (rollback, restore):
        add_dry_run(verb)


def _register_savepoint(verbs: Verbs[argparse.ArgumentParser]) -> None:
    savepoint = add_verb(
        verbs,
        "savepoint",
        _savepoint,
        "list the versions that are kept under a name; keep one, or no longer",
        "metatable savepoint rides\n"
        "metatable savepoint rides --keep june --note 'books closed'\n"
        "metatable savepoint rides --drop june",
    )
    what = savepoint.add_mutually_exclusive_group()
    what.add_argument("--keep", metavar="NAME", help="keep a version under this name")
    what.add_argument("--drop", metavar="NAME", help="keep it no longer")
    savepoint.add_argument(
        "--version", type=at_least_one, metavar="N", help="the one to keep, not the newest"
    )
    savepoint.add_argument("--note", default="", metavar="TEXT", help="why, for people")
    add_dry_run(savepoint)


def _rollback(args: argparse.Namespace) -> int:
    table = open_table(args)
    instant = table.instant if args.instant is None else args.instant
    try:
        with at_work("rollback", args):
            done = table.rollback(instant, dry_run=args.dry_run)
    except (ConflictError, StoreError) as error:  # whoever repeats it must not undo another one
        if instant is not None:
            error.facts["to_repeat"] = f"metatable rollback {args.table} --instant {instant}"
        raise
    print_result(done, args)
    return FINE


def _restore(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("version", "as_of", "savepoint", "dry_run")}
    with at_work("restore", args):
        done = open_table(args).restore(**how)
    print_result(done, args)
    return FINE


def _savepoint(args: argparse.Namespace) -> int:
    table = open_table(args)
    dry = args.dry_run
    if args.drop is not None:
        print_result(table.drop_savepoint(args.drop, dry_run=dry), args)
    elif args.keep is not None:
        done = table.savepoint(args.keep, args.version, note=args.note, dry_run=dry)
        print_result(done, args)
    else:
        _print_savepoints(table.savepoints(), args)
    return FINE


def _print_savepoints(held: Sequence[SavepointInfo], args: argparse.Namespace) -> None:
    if args.json:
        print_objects(held)
        return
    heads = ("name", "version", "instant", "since", "note")
    rows = [
        (one.name, str(one.version), one.instant, when(one.time_ms), printable(one.note))
        for one in held
    ]
    left = (heads[0], *heads[2:])
    print(columns(heads, rows, left, terminal.width()) if rows else "no savepoints")
