"""`metatable insert|upsert|merge|delete|… TABLE ROWS…`: rows in, one commit.

Several files are one commit; partitions are overwritten, or go, in one as well. With `--json` they
print one object: the result, as the library's.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from metatable.cli import terminal
from metatable.cli.named_values import named_value
from metatable.cli.progress import at_work
from metatable.cli.render import count
from metatable.cli.row_arguments import add_columns, add_keys, add_rows, chosen
from metatable.cli.verb import (
    FINE,
    Verbs,
    add_dry_run,
    add_verb,
    open_table,
    print_result,
    to_json,
)

if TYPE_CHECKING:
    from metatable.table import Table

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs that write rows."""
    for name, told, example in (
        ("insert", "add rows; refuses keys that exist", "metatable insert rides rides.parquet"),
        (
            "upsert",
            "add rows, or replace those of the same keys",
            "metatable upsert rides monday.csv tuesday.csv --note job=nightly\n"
            "zcat rides.jsonl.gz | metatable upsert rides - --from jsonl",
        ),
        (
            "merge",
            "set some columns of rows; what is left out stays as it is",
            "metatable merge rides fares.csv",
        ),
    ):
        verb = add_verb(verbs, name, partial(_write, name), told, example)
        add_rows(verb)
        _add_note(verb)
    bulk = add_verb(
        verbs,
        "bulk-insert",
        partial(_write, "bulk_insert"),
        "add many rows, in new files of which each holds a range",
        "metatable bulk-insert rides rides.parquet --sort-by day,city",
    )
    add_rows(bulk)
    add_columns(bulk, "--sort-by", "the order of rows over all files; else that of the key")
    _add_note(bulk)
    _register_overwrites(verbs)
    delete = add_verb(
        verbs,
        "delete",
        _delete,
        "delete rows by their keys; other columns are ignored",
        "metatable delete rides gone.csv --dry-run\nmetatable delete rides --key b --key c",
    )
    add_keys(delete)
    _add_note(delete)
    add_dry_run(delete)


def _register_overwrites(verbs: Verbs[argparse.ArgumentParser]) -> None:
    overwrite = add_verb(
        verbs,
        "insert-overwrite",
        _insert_overwrite,
        "replace whole partitions, those of the rows, or all of them",
        "metatable insert-overwrite rides ulm.parquet --dry-run\n"
        "metatable insert-overwrite rides all.parquet --by table",
    )
    add_rows(overwrite)
    overwrite.add_argument(
        "--by", choices=("partition", "table"), default="partition", help="what (partition)"
    )
    gone = add_verb(
        verbs,
        "delete-partition",
        _delete_partition,
        "delete all rows of partitions",
        "metatable delete-partition rides city=Ulm city=Bonn --dry-run",
    )
    gone.add_argument("partitions", metavar="PARTITION", nargs="+", help="such as city=Ulm")
    for verb in (overwrite, gone):
        _add_note(verb)
        add_dry_run(verb)


def _add_note(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for history to tell (repeatable)",
    )


def _note(args: argparse.Namespace) -> dict[str, str]:
    return dict(named_value(given, "note") for given in args.note)


def _write(operation: str, args: argparse.Namespace) -> int:
    from metatable.cli.rows_in import Absent, given_rows  # noqa: PLC0415  (loads pyarrow)

    table, how = open_table(args), dict[str, Any](note=_note(args))
    if "sort_by" in args:
        how["sort_by"] = chosen(args.sort_by)
    absent = Absent.NOT_GIVEN if operation == "merge" else Absent.NULL
    with at_work(operation, args) as shown:
        with given_rows(args, table, shown, absent) as rows:
            done = getattr(table, operation)(rows, **how)
    print_result(done, args)
    return FINE


def _insert_overwrite(args: argparse.Namespace) -> int:
    from metatable.cli.partitions import paths_of  # noqa: PLC0415  (loads pyarrow)
    from metatable.cli.rows_in import given_rows  # noqa: PLC0415

    table, note = open_table(args), _note(args)
    with at_work("insert-overwrite", args) as shown:
        with given_rows(args, table, shown, replaces=args.by == "table") as rows:
            if not args.dry_run:
                done: Any = table.insert_overwrite(rows, by=args.by, note=note)
            else:
                done = paths_of(rows, table) if args.by == "partition" else None
    if args.dry_run:
        return _told_what_goes("insert_overwrite", table, done, args)
    print_result(done, args)
    return FINE


def _delete_partition(args: argparse.Namespace) -> int:
    table, note = open_table(args), _note(args)
    if args.dry_run:
        from metatable.cli.partitions import named  # noqa: PLC0415  (loads pyarrow)

        return _told_what_goes("delete_partition", table, named(args.partitions, table), args)
    with at_work("delete-partition", args):
        done = table.delete_partition(args.partitions, note=note)
    print_result(done, args)
    return FINE


def _told_what_goes(
    operation: str, table: Table, paths: Collection[str] | None, args: argparse.Namespace
) -> int:
    from metatable.cli.partitions import held  # noqa: PLC0415  (loads pyarrow)

    done = {"operation": operation, "dry_run": True, **held(table, paths)}
    rows = "an unknown number of" if done["rows"] is None else count(done["rows"])
    told = (
        "dry run, nothing was done: {partitions:,} partitions of {files:,} files and {counted} rows"
        " would go at version {version}"
    )
    print(to_json(done) if args.json else terminal.filled(told.format(**done, counted=rows)))
    return FINE


def _delete(args: argparse.Namespace) -> int:
    from metatable.cli.rows_in import given_rows  # noqa: PLC0415  (loads pyarrow)
    from metatable.data.keys.key_texts import own_identity_columns  # noqa: PLC0415

    table, note = open_table(args), _note(args)
    with at_work("delete", args) as shown:
        with given_rows(args, table, shown, told_by=own_identity_columns) as rows:
            if not args.dry_run:
                done: Any = table.delete(rows, note=note)
            else:
                done = _counted(table, rows)
    if isinstance(done, dict):
        told = (
            "dry run, nothing was done: {deleted:,} of {keys:,} keys would go at version {version}"
        )
        print(to_json(done) if args.json else told.format(**done))
    else:
        print_result(done, args)
    return FINE


def _counted(table: Table, rows: Any) -> dict[str, Any]:
    """What a delete would find; a key that is given again far behind counts again."""
    from metatable.cli.chunks import distinct_keys  # noqa: PLC0415  (loads pyarrow)

    version, keys, found = table.version, 0, 0
    for chunk in distinct_keys(rows, table):
        keys += chunk.num_rows
        found += table.filter_exists(chunk).num_rows
    told = {"operation": "delete", "dry_run": True, "version": version}
    return {**told, "keys": keys, "deleted": found}
