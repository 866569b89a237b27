"""`metatable VERB TABLE`: look at a table, keep it in order, take it back in time.

TABLE is a folder or any address that the store takes (`s3://bucket/folder`). With `--json`:
`history` and `due` print one object a line; the others print one object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import metatable
from metatable.cli.render import columns, count, pairs, printable, size, when
from metatable.cli.storage_options import add_storage_option, storage_options
from metatable.results import CommitInfo, Description, SavepointInfo, ServiceResult
from metatable.storage.errors import ConflictError, StoreError, UsageError
from metatable.table import Table

__all__ = ["register"]


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that take a table."""
    told = _add(verbs, "describe", _describe, "what the table is, and how much there is of it")
    told.add_argument(
        "--listing", action="store_true", help="list all files: what are the bytes for?"
    )
    history = _add(verbs, "history", _history, "every version, newest first")
    history.add_argument("--limit", type=_at_least_one, metavar="N", help="only the newest N")
    _add(verbs, "verify", _verify, "hold the index against the data (exit code 1 on findings)")
    compact = _add(verbs, "compact", _compact, "merge the HFiles of the metadata partitions")
    compact.add_argument("--major", action="store_true", help="merge all of them, drop tombstones")
    compact.add_argument(
        "--partition", action="append", metavar="NAME", help="only this one (may be repeated)"
    )
    compact.add_argument(
        "--bucket", action="append", type=int, metavar="N", help="only this one (may be repeated)"
    )
    compact.add_argument(
        "--engine",
        choices=("local", "spark"),
        default="local",
        help="where to merge: in this process, or a task a bucket range on Spark",
    )
    compact.add_argument(
        "--schedule", action="store_true", help="store what is due as a plan, and say its name"
    )
    compact.add_argument("--plan", metavar="PLAN", help="carry out the plan of this name")
    _add(verbs, "due", _due, "what services have to do now; nothing of it is done")
    clean = _add(verbs, "clean", _clean, "delete what only older versions need, and leftovers")
    clean.add_argument(
        "--versions", type=_at_least_one, default=10, metavar="N", help="commits to keep (10)"
    )
    clean.add_argument(
        "--hours", type=float, default=24.0, metavar="H", help="and those of so many hours (24)"
    )
    rollback = _add(verbs, "rollback", _rollback, "undo the last data commit, and say which")
    restore = _add(verbs, "restore", _restore, "go back to an older version, over many commits")
    where = restore.add_mutually_exclusive_group(required=True)
    where.add_argument("--version", type=_at_least_one, metavar="N", help="by its number")
    where.add_argument("--as-of", metavar="MOMENT", help="an instant, or a time (UTC)")
    where.add_argument("--savepoint", metavar="NAME", help="by the name of a savepoint")
    savepoint = _add(verbs, "savepoint", _savepoint, "the versions that are kept under a name")
    what = savepoint.add_mutually_exclusive_group()
    what.add_argument("--keep", metavar="NAME", help="keep a version under this name")
    what.add_argument("--drop", metavar="NAME", help="keep it no longer")
    savepoint.add_argument(
        "--version", type=_at_least_one, metavar="N", help="the one to keep, not the newest"
    )
    savepoint.add_argument("--note", default="", metavar="TEXT", help="why, for people")
    for verb in (compact, clean, rollback, restore):
        verb.add_argument("--dry-run", action="store_true", help="say what is due, write nothing")
    rollback.add_argument(
        "--instant",
        metavar="INSTANT",
        help="only if this is the last one; may be repeated where an answer was lost",
    )


def _add(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    told: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=told, description=told)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    add_storage_option(parser)
    parser.set_defaults(run=run)
    return parser


def _open(args: argparse.Namespace) -> Table:
    return metatable.open(args.table, storage_options(args))


def _describe(args: argparse.Namespace) -> int:
    facts = _open(args).describe(listing=args.listing)
    print(_json(facts.to_dict()) if args.json else _description(facts))
    return 0


def _description(facts: Description) -> str:
    usage = [(f"{what} bytes", size(amount)) for what, amount in (facts.usage or {}).items()]
    told = pairs(
        [
            ("table", f"{facts.name}   {facts.uri}"),
            ("version", _version(facts)),
            ("key", ", ".join(facts.key)),
            ("partitioned by", ", ".join(facts.partition_by) or "nothing"),
            ("ordering", facts.ordering or "none"),
            ("index", f"{facts.index}, keys are unique in {_SCOPES[facts.key_scope]}"),
            ("rows", count(facts.rows)),
            ("data files", f"{count(facts.file_groups)} in {count(facts.partitions)} partitions"),
            ("data bytes", size(facts.data_bytes)),
            *usage,
        ]
    )
    heads = ("metadata", "buckets", "HFiles", "entries", "tombstones", "bytes")
    rows = [_partition(name, one) for name, one in facts.metadata.items()]
    fields = columns(("column", "type"), facts.columns.items(), left=("column", "type"))
    return "\n\n".join((told, columns(heads, rows, left=("metadata",)), fields))


_SCOPES = {"global": "the table", "partition": "each partition"}


def _version(facts: Description) -> str:
    told = f"{facts.version}, commit {facts.instant}" if facts.instant else f"{facts.version}"
    return told if facts.oldest_version == 1 else f"{told}, kept from {facts.oldest_version}"


def _partition(name: str, facts: Mapping[str, int]) -> tuple[str, ...]:
    counts = (count(facts[head]) for head in ("buckets", "hfiles", "entries", "tombstones"))
    return (name, *counts, size(facts["bytes"]))


def _history(args: argparse.Namespace) -> int:
    infos = _open(args).history(args.limit)
    if args.json:
        print("\n".join(_json(info.to_dict()) for info in infos))
        return 0
    heads = ("version", "time", "operation", "instant", "what")
    rows = [
        (str(one.version), when(one.time_ms), one.operation, one.instant or "-", _summary(one))
        for one in infos
    ]
    print(columns(heads, rows, left=heads[1:]))
    return 0


def _summary(info: CommitInfo) -> str:
    """Its counts, without those that are zero, and its note."""
    told = []
    for name, amount in info.summary.items():
        if name == "bytes":
            told.append(size(amount))
        elif amount:
            told.append(f"{name.replace('_', ' ')} {count(amount)}")
    told += [printable(f"{name}={text}") for name, text in info.note.items()]
    return ", ".join(told)


def _verify(args: argparse.Namespace) -> int:
    done = _open(args).verify()
    _print_result(done, args)
    return 1 if done.findings else 0


def _due(args: argparse.Namespace) -> int:
    for one in _open(args).due():
        print(_json(one.to_dict()) if args.json else printable(repr(one)))
    return 0


def _compact(args: argparse.Namespace) -> int:
    chosen = {"partitions": args.partition, "buckets": args.bucket}
    chosen |= {name: getattr(args, name) for name in ("major", "dry_run", "schedule", "plan")}
    table = _open(args)
    if args.engine == "local":
        _print_result(table.compact(**chosen), args)
        return 0
    try:
        from metatable.spark.session import borrowed_session  # noqa: PLC0415  (optional)
    except ImportError as error:
        way_out = "pip install 'metatable[spark]'"
        raise UsageError("Spark is not installed", expected=way_out) from error
    with borrowed_session("metatable compact") as session:
        _print_result(table.compact(engine=session, **chosen), args)
    return 0


def _clean(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("versions", "hours", "dry_run")}
    _print_result(_open(args).clean(**how), args)
    return 0


def _rollback(args: argparse.Namespace) -> int:
    table = _open(args)
    instant = args.instant or table.instant
    try:
        _print_result(table.rollback(instant, dry_run=args.dry_run), args)
    except (ConflictError, StoreError) as error:  # whoever repeats it must not undo another one
        if instant is not None:
            error.facts["to_repeat"] = f"metatable rollback {args.table} --instant {instant}"
        raise
    return 0


def _restore(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("version", "as_of", "savepoint", "dry_run")}
    _print_result(_open(args).restore(**how), args)
    return 0


def _savepoint(args: argparse.Namespace) -> int:
    table = _open(args)
    if args.drop is not None:
        _print_result(table.drop_savepoint(args.drop), args)
    elif args.keep is not None:
        _print_result(table.savepoint(args.keep, args.version, note=args.note), args)
    else:
        _print_savepoints(table.savepoints(), args)
    return 0


def _print_savepoints(held: Sequence[SavepointInfo], args: argparse.Namespace) -> None:
    if args.json:
        print("\n".join(_json(one.to_dict()) for one in held))
        return
    heads = ("name", "version", "instant", "since", "note")
    rows = [
        (one.name, str(one.version), one.instant, when(one.time_ms), printable(one.note))
        for one in held
    ]
    print(columns(heads, rows, left=(heads[0], *heads[2:])) if rows else "no savepoints")


def _print_result(done: ServiceResult, args: argparse.Namespace) -> None:
    if args.json:
        print(_json(done.to_dict()))
        return
    print("\n".join([*done.findings, repr(done)]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number
