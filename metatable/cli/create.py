"""`metatable create TABLE`: an empty table, its columns told in text or by a file of rows;
`metatable adopt TABLE`: an index for a table that another writer has made, or another index; and
`metatable set-options TABLE`: how new files are made from now on.

With `--json` the first two print one object, that of `describe`, the third one that of a service.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

import metatable
from metatable.cli import terminal
from metatable.cli.named_values import named_value, storage_options
from metatable.cli.progress import at_work
from metatable.cli.row_arguments import FORMS_IN, add_columns, chosen
from metatable.cli.verb import FINE, Verbs, add_verb, open_table, print_result, to_json
from metatable.storage.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    for verb in (_register_create(verbs), _register_adopt(verbs)):
        verb.add_argument(
            "--index", default="metadata_bloom", metavar="NAME", help="(metadata_bloom)"
        )
        verb.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="such as key_scope=global, file_rows=100000, buckets='{\"files\": 2}'"
            " (repeatable)",
        )
    _register_set_options(verbs)


def _register_create(verbs: Verbs[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    create = add_verb(
        verbs,
        "create",
        _create,
        "make an empty table",
        "metatable create rides --schema 'id: string, city: string, fare: double' \\\n"
        "    --key id --partition-by city --index record\n"
        "metatable create s3://bucket/rides --like rides.parquet --key id \\\n"
        "    --option file_rows=100000",
    )
    columns = create.add_mutually_exclusive_group(required=True)
    columns.add_argument(
        "--schema",
        metavar="COLUMNS",
        help="'id: string, at: timestamp[us, UTC], fare: decimal(10, 2) not null, tags:"
        " list<string>', or a file of such lines",
    )
    columns.add_argument("--like", metavar="FILE", help="the columns of this file of rows")
    create.add_argument(
        "--from", dest="given_format", choices=FORMS_IN, help="the form of --like's file"
    )
    add_columns(create, "--key", "the key's columns", required=True)
    add_columns(create, "--partition-by", "the partition's columns")
    create.add_argument(
        "--ordering", metavar="COLUMN", help="of two rows with one key, the greater value wins"
    )
    add_columns(create, "--cluster-by", "new files are cut by these columns; else by the key")
    create.add_argument(
        "--table-type",
        choices=("cow", "mor"),
        default="cow",
        help="copy-on-write (cow) or merge-on-read",
    )
    return create


def _register_adopt(verbs: Verbs[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    return add_verb(
        verbs,
        "adopt",
        _adopt,
        "make an index for another writer's Hudi table, or change that of a table",
        "metatable adopt s3://bucket/rides --index record\nmetatable adopt rides --index bloom",
    )


def _register_set_options(verbs: Verbs[argparse.ArgumentParser]) -> None:
    settings = add_verb(
        verbs,
        "set-options",
        _set_options,
        "make new files, and do services, in another way",
        "metatable set-options rides file_rows=1000000 upkeep_files=16\n"
        'metatable set-options rides \'cluster_by=["at", "city"]\' --dry-run',
    )
    settings.add_argument(
        "options", nargs="+", metavar="NAME=VALUE", help="an option, and its value from now on"
    )
    settings.add_argument("--dry-run", action="store_true", help="only say what would change")


def _create(args: argparse.Namespace) -> int:
    key, partition_by = chosen(args.key) or (), chosen(args.partition_by) or ()
    table = metatable.create(
        args.table,
        _schema(args),
        key=key,
        partition_by=partition_by,
        ordering=args.ordering,
        index=args.index,
        table_type=args.table_type,
        cluster_by=chosen(args.cluster_by) or (),
        options=dict(map(_option, args.option)),
        storage_options=storage_options(args),
    )
    if args.json:
        print(to_json(table.describe().to_dict()))
        return FINE
    told = f"created {table.uri}: key {','.join(key)}"
    told += f", partitioned by {','.join(partition_by)}" if partition_by else ""
    print(terminal.filled(f"{told}, index {args.index}"))
    return FINE


def _adopt(args: argparse.Namespace) -> int:
    with at_work("adopt", args):
        table = metatable.adopt(
            args.table,
            index=args.index,
            options=dict(map(_option, args.option)),
            storage_options=storage_options(args),
        )
        facts = table.describe()
    if args.json:
        print(to_json(facts.to_dict()))
        return FINE
    told = f"adopted {table.uri}: {facts.file_groups:,} files, index {facts.index}"
    print(terminal.filled(f"{told}, version {facts.version}"))
    return FINE


def _set_options(args: argparse.Namespace) -> int:
    options = dict(map(_option, args.options))
    print_result(open_table(args).set_options(options, dry_run=args.dry_run), args)
    return FINE


def _schema(args: argparse.Namespace) -> pa.Schema:
    if args.like is not None:
        from metatable.cli.rows_in import inferred_schema  # noqa: PLC0415  (loads pyarrow)

        return inferred_schema(args.like, args.given_format)
    from metatable.cli.column_types import parse_columns  # noqa: PLC0415

    return parse_columns(_text(args.schema))


def _text(given: str) -> str:
    """The text, or that of the file of this name."""
    if ":" in given and not os.path.isfile(given):
        return given
    try:
        with open(given, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        what = "neither columns nor a file of them"
        expected = "'id: string, fare: double'"
        raise UsageError(what, found=given, expected=expected) from error


def _option(given: str) -> tuple[str, Any]:
    """A value is JSON where it can be, else a text."""
    name, text = named_value(given, "option")
    try:
        return name, json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return name, text
    except RecursionError as error:
        raise UsageError("the value of an option is nested too deep", option=name) from error
