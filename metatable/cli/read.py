"""`metatable scan|lookup|tag|changes|files|explain TABLE`: rows and files out.

Rows are a grid on a terminal, CSV in a pipe, with `--json` one object per line (`rows_out`).
`files --json` prints one object per file (without a `uri` where logs lie on it, of which readers of
Parquet know nothing), `explain --json` one object.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from metatable.cli import render, terminal
from metatable.cli.progress import at_work
from metatable.cli.row_arguments import (
    add_columns,
    add_keys,
    add_moment,
    add_output,
    add_where,
    chosen,
    parsed_where,
)
from metatable.cli.verb import (
    FINE,
    Verbs,
    add_verb,
    at_least_one,
    open_table,
    print_result,
    to_json,
)
from metatable.storage.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from metatable.table import Table

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs that read rows, and those that tell what would be read."""
    scan = add_verb(
        verbs,
        "scan",
        _scan,
        "the rows of a version for which a condition is true",
        "metatable scan rides --where \"fare > 7.5 and city = 'Ulm'\" --limit 20\n"
        "metatable scan rides --columns id,fare --as-of 2026-01-31 --output out.csv",
    )
    add_where(scan)
    _add_chosen(scan)
    add_moment(scan)
    _add_read_optimized(scan)
    add_output(scan)
    _register_keyed(verbs)
    changes = add_verb(
        verbs,
        "changes",
        _changes,
        "the rows that differ between two versions, with _change_type",
        "metatable changes rides --since 7\n"
        "metatable changes rides --since 2026-01-31 --until 12 --output changes.jsonl",
    )
    changes.add_argument(
        "--since", required=True, metavar="VERSION", help="a number, an instant or a time; 0: all"
    )
    changes.add_argument("--until", metavar="VERSION", help="the newest, unless given")
    _add_chosen(changes)
    add_output(changes)
    files = add_verb(
        verbs,
        "files",
        _files,
        "the data files that may hold such rows",
        'metatable files rides --where "fare > 7.5"\nmetatable files rides --uris | xargs ls -l',
    )
    add_where(files)
    add_moment(files)
    _add_read_optimized(files)
    files.add_argument("--uris", action="store_true", help="print addresses and nothing else")


def _register_keyed(verbs: Verbs[argparse.ArgumentParser]) -> None:
    lookup = add_verb(
        verbs,
        "lookup",
        _lookup,
        "the rows of some keys, from the files that hold them",
        "metatable lookup rides --key b --key c\nmetatable lookup rides keys.csv --json",
    )
    _add_chosen(lookup)
    tag = add_verb(
        verbs,
        "tag",
        _tag,
        "the same rows with _location: the file group that holds each key, null for none",
        "metatable tag rides news.csv --output tagged.parquet\nmetatable tag rides --key b",
    )
    explain = add_verb(
        verbs,
        "explain",
        _explain,
        "what a lookup of keys, or a scan, looks at, and what that costs",
        'metatable explain rides news.csv\nmetatable explain rides --where "fare > 7.5"',
    )
    for verb in (lookup, tag):
        add_keys(verb)
        verb.add_argument("--version", type=at_least_one, metavar="N", help="an older version")
        add_output(verb)
    add_keys(explain)
    add_where(explain)
    add_moment(explain)


def _add_chosen(parser: argparse.ArgumentParser) -> None:
    add_columns(parser, "--columns", "only these columns, in this order")


def _add_read_optimized(parser: argparse.ArgumentParser) -> None:
    told = "base files alone, as the last compaction of logs left them"
    parser.add_argument("--read-optimized", action="store_true", help=told)


def _scan(args: argparse.Namespace) -> int:
    table = open_table(args)
    found = table.scan(
        chosen(args.columns),
        where=_where(args, table),
        version=args.version,
        as_of=args.as_of,
        limit=args.limit,
        read_optimized=args.read_optimized,
    )
    return _print(found.schema, found.to_batches, args)


def _where(args: argparse.Namespace, table: Table) -> Any:
    """The expression of `--where`, which names columns as the version that is asked for does."""
    if args.where is None:
        return None
    schema = table.scan(version=args.version, as_of=args.as_of).schema
    return parsed_where(args.where, schema)


def _changes(args: argparse.Namespace) -> int:
    table = open_table(args)
    since = _version(args.since)
    until = None if args.until is None else _version(args.until)
    found = table.changes(since, until, chosen(args.columns))
    return _print(found.schema, found.to_batches, args)


def _version(text: str) -> int | str:
    """A number, unless it is as long as an instant is."""
    return int(text) if text.isdecimal() and len(text) < 14 else text


def _lookup(args: argparse.Namespace) -> int:
    table, columns = open_table(args), chosen(args.columns)

    def looked_up(chunk: Any, version: int) -> Any:
        return table.read_keys(chunk, columns, version)

    return _print_keyed(args, table, looked_up, keys_only=True)


def _tag(args: argparse.Namespace) -> int:
    table = open_table(args)
    return _print_keyed(args, table, table.tag_locations)


def _print_keyed(
    args: argparse.Namespace,
    table: Table,
    ask: Callable[[Any, int], Any],
    keys_only: bool = False,
) -> int:
    """What `ask` makes of the rows, or of their keys, a chunk at a time, all on one version."""
    from metatable.cli.chunks import chunks  # noqa: PLC0415  (loads pyarrow)
    from metatable.cli.rows_in import Absent, given_rows  # noqa: PLC0415
    from metatable.data.keys.key_texts import identity_columns  # noqa: PLC0415

    how: dict[str, Any] = {"version": args.version or table.version}
    how |= {"told_by": identity_columns} if keys_only else {"absent": Absent.LEFT_OUT}
    with at_work("reading", args) as shown, given_rows(args, table, shown, **how) as rows:
        answers = (ask(chunk, how["version"]) for chunk in chunks(rows, rows.schema))
        first = next(answers)

        def batches() -> Iterator[pa.RecordBatch]:
            yield from first.to_batches()
            for one in answers:
                yield from one.to_batches()

        return _print_shown(first.schema, batches(), args, shown)


def _print(schema: pa.Schema, batches: Callable[[], Any], args: argparse.Namespace) -> int:
    with at_work("reading", args) as shown:
        return _print_shown(schema, batches(), args, shown)


def _print_shown(schema: pa.Schema, batches: Any, args: argparse.Namespace, shown: Any) -> int:
    from metatable.cli.rows_out import print_rows  # noqa: PLC0415  (loads pyarrow)

    def counted() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            if args.output is None and terminal.is_terminal():
                shown.end()
            rows += batch.num_rows
            shown.say(f"{rows:,} rows")
            yield batch

    print_rows(schema, counted(), args)
    return FINE


def _files(args: argparse.Namespace) -> int:
    table = open_table(args)
    files = table.files(_where(args, table), args.version, args.as_of, args.read_optimized)
    if args.json:
        for place, one in enumerate(files):
            has_logs = files.has_logs is not None and bool(files.has_logs[place])
            facts: dict[str, Any] = {
                "path": one.path,
                "uri": None if has_logs else f"{files.root}/{one.path}",
                "partition_path": one.partition_path,
            }
            facts |= {"file_id": one.file_id, "instant": one.instant}
            facts |= {"rows": one.row_count, "size_bytes": one.size_bytes, "has_logs": has_logs}
            print(to_json(facts))
    elif args.uris:
        print("".join(f"{uri}\n" for uri in files.uris), end="")
    else:
        rows = [
            (render.count(one.row_count), render.size(one.size_bytes), one.path) for one in files
        ]
        heads = ("rows", "bytes", "path")
        print(render.columns(heads, rows, left=("path",)))
        told = f"{len(files):,} files, {render.size(files.size_bytes)}"
        print(terminal.dim(told))
    return FINE


def _explain(args: argparse.Namespace) -> int:
    table = open_table(args)
    if not args.rows and not args.key:
        where = _where(args, table)
        found = table.scan(where=where, version=args.version, as_of=args.as_of).explain()
        print_result(found, args)
        return FINE
    if args.where is not None or args.as_of is not None:
        raise UsageError("explain keys or a scan", leave_out="--where, --as-of, or the keys")
    from metatable.cli.rows_in import given_rows  # noqa: PLC0415  (loads pyarrow)
    from metatable.data.keys.key_texts import identity_columns  # noqa: PLC0415

    version = args.version or table.version
    with at_work("explain", args) as shown:
        with given_rows(args, table, shown, version=version, told_by=identity_columns) as rows:
            told = table.explain(rows, version)
    print_result(told, args)
    return FINE
