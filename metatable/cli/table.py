"""`metatable VERB TABLE`: look at a table, keep it in order, take it back in time.

TABLE is a folder or any address that the store takes (`s3://bucket/folder`). With `--json`:
`history`, `due` and a list of savepoints print one object per line; the others print one object.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metatable.cli import terminal
from metatable.cli.progress import at_work
from metatable.cli.render import columns, count, pairs, printable, size, when
from metatable.cli.row_arguments import add_where, parsed_where
from metatable.cli.verb import (
    FINDINGS,
    FINE,
    Verbs,
    add_dry_run,
    add_verb,
    at_least_one,
    open_table,
    print_result,
    to_json,
)
from metatable.storage.errors import ConflictError, StoreError, UsageError

if TYPE_CHECKING:
    from metatable.results import CommitInfo, Description, SavepointInfo, ServiceResult

__all__ = ["register"]

_ONLY = "only this one (may be repeated)"


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs that take a table, and no rows."""
    _register_facts(verbs)
    _register_compact(verbs)
    _register_resize_buckets(verbs)
    _register_cluster(verbs)
    _register_compact_logs(verbs)
    _register_clean(verbs)
    _register_ways_back(verbs)


def _register_facts(verbs: Verbs[argparse.ArgumentParser]) -> None:
    told = add_verb(
        verbs,
        "describe",
        _describe,
        "what the table is, and how much there is of it",
        "metatable describe rides\nmetatable describe s3://bucket/rides --listing --json",
    )
    told.add_argument(
        "--listing", action="store_true", help="list all files: what are the bytes for?"
    )
    buckets = add_verb(
        verbs,
        "buckets",
        _buckets,
        "the buckets of a table that has rings of them: ranges of hashes, bytes, rows",
        "metatable buckets rides --largest 10\nmetatable buckets rides --partition city=Ulm --json",
    )
    buckets.add_argument("--partition", action="append", metavar="PATH", help=_ONLY)
    buckets.add_argument("--largest", type=at_least_one, metavar="N", help="only the N largest")
    buckets.add_argument("--version", type=int, metavar="N", help="an older version")
    history = add_verb(
        verbs,
        "history",
        _history,
        "every version, newest first",
        "metatable history rides --limit 20",
    )
    history.add_argument("--limit", type=at_least_one, metavar="N", help="only the newest N")
    add_verb(
        verbs,
        "verify",
        _verify,
        "hold the index against the data (exit code 1 on findings)",
        "metatable verify rides || echo findings",
    )
    repair = add_verb(
        verbs,
        "repair",
        _repair,
        "say how what verify finds would be mended, and with --apply mend it",
        "metatable repair rides\nmetatable repair rides --apply",
    )
    repair.add_argument("--apply", action="store_true", help="mend it; else nothing is written")
    add_verb(
        verbs,
        "due",
        _due,
        "what services have to do now; nothing of it is done",
        "metatable due rides --json",
    )


def _register_compact(verbs: Verbs[argparse.ArgumentParser]) -> None:
    compact = add_verb(
        verbs,
        "compact",
        _compact,
        "merge the HFiles of the metadata partitions",
        "metatable compact rides --dry-run\n"
        "metatable compact rides --major --partition record_index\n"
        "metatable compact rides --schedule\n"
        "metatable compact rides --plan compact-0f3a",
    )
    compact.add_argument("--major", action="store_true", help="merge all of them, drop tombstones")
    compact.add_argument("--partition", action="append", metavar="NAME", help=_ONLY)
    compact.add_argument("--bucket", action="append", type=int, metavar="N", help=_ONLY)
    _add_planning(compact, "where to merge: in this process, or one task per bucket range on Spark")


def _register_resize_buckets(verbs: Verbs[argparse.ArgumentParser]) -> None:
    resize = add_verb(
        verbs,
        "resize-buckets",
        _resize_buckets,
        "split large buckets and merge small ones, of a table whose buckets have rings",
        "metatable resize-buckets rides --dry-run\n"
        "metatable resize-buckets rides --split-above 500000000 --cut median\n"
        "metatable resize-buckets rides --most-partitions 10 --schedule\n"
        "metatable resize-buckets rides --writers dual_write --schedule\n"
        "metatable resize-buckets rides --plan 20260131134500000",
    )
    for name, told in {
        "--split-above": "split buckets with a larger file (by default 240 MiB)",
        "--merge-below": "merge neighbours that are both smaller (by default 24 MiB)",
        "--most-bytes": "rewrite no more at once",
    }.items():
        resize.add_argument(name, type=int, metavar="BYTES", help=told)
    resize.add_argument("--cut", choices=("middle", "median"), help="where a bucket is cut")
    resize.add_argument("--partition", action="append", metavar="PATH", help=_ONLY)
    most = "no more of them at once"
    resize.add_argument("--most-partitions", type=at_least_one, metavar="N", help=most)
    resize.add_argument(
        "--writers",
        choices=("dual_write", "virtual_log"),
        help="writers go on: rows twice, or once where only metatable finds them until then",
    )
    resize.add_argument(
        "--take-back", action="store_true", help="forget the plan of this instant, while it can be"
    )
    _add_planning(resize, "where to write: in this process, or in tasks on Spark")


def _register_cluster(verbs: Verbs[argparse.ArgumentParser]) -> None:
    cluster = add_verb(
        verbs,
        "cluster",
        _cluster,
        "cut files anew whose rows overlap, so that a value is in few of them",
        "metatable cluster rides --dry-run\n"
        "metatable cluster rides --by at --by fare\n"
        "metatable cluster rides --where \"city = 'Ulm'\" --most-bytes 10000000000",
    )
    cluster.add_argument(
        "--by",
        action="append",
        metavar="COLUMN",
        help="cut by this column (may be repeated; else the table's own, or its key)",
    )
    add_where(cluster)
    cluster.add_argument("--most-bytes", type=int, metavar="BYTES", help="rewrite no more at once")
    where = "where to write: in this process, or one task per file on Spark"
    cluster.add_argument("--engine", choices=("local", "spark"), default="local", help=where)
    add_dry_run(cluster)


def _register_compact_logs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    compact = add_verb(
        verbs,
        "compact-logs",
        _compact_logs,
        "make new base files of base files and their logs, of a merge-on-read table",
        "metatable compact-logs rides --dry-run\n"
        "metatable compact-logs rides --hours 24 --most-bytes 10000000000\n"
        "metatable compact-logs rides --schedule\n"
        "metatable compact-logs rides --plan 20260131134500000",
    )
    compact.add_argument(
        "--ratio", type=float, metavar="R", help="bytes of logs per byte of the base file (0.3)"
    )
    compact.add_argument("--count", type=at_least_one, metavar="N", help="or so many logs (10)")
    compact.add_argument("--hours", type=float, metavar="H", help="or a first log so old")
    compact.add_argument("--partition", action="append", metavar="PATH", help=_ONLY)
    compact.add_argument("--most-bytes", type=int, metavar="BYTES", help="read no more at once")
    compact.add_argument(
        "--take-back", action="store_true", help="forget the plan, while no log lies on top"
    )
    _add_planning(compact, "where to write: in this process, or in tasks on Spark")


def _add_planning(service: argparse.ArgumentParser, where: str) -> None:
    service.add_argument("--engine", choices=("local", "spark"), default="local", help=where)
    service.add_argument(
        "--schedule", action="store_true", help="store what is due as a plan, and say its name"
    )
    service.add_argument("--plan", metavar="PLAN", help="carry out the plan of this name")
    add_dry_run(service)


def _register_clean(verbs: Verbs[argparse.ArgumentParser]) -> None:
    clean = add_verb(
        verbs,
        "clean",
        _clean,
        "delete what only older versions need, and leftovers",
        "metatable clean rides --dry-run\nmetatable clean rides --versions 20 --hours 72",
    )
    clean.add_argument(
        "--versions", type=at_least_one, default=10, metavar="N", help="commits to keep (10)"
    )
    clean.add_argument(
        "--hours", type=float, default=24.0, metavar="H", help="and those of so many hours (24)"
    )
    add_dry_run(clean)


def _register_ways_back(verbs: Verbs[argparse.ArgumentParser]) -> None:
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
    for verb in (rollback, restore, savepoint):
        add_dry_run(verb)


def _describe(args: argparse.Namespace) -> int:
    with at_work("describe", args):
        facts = open_table(args).describe(listing=args.listing)
    print(to_json(facts.to_dict()) if args.json else _description(facts))
    return FINE


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
            (
                "rows",
                "not known before logs are merged" if facts.rows is None else count(facts.rows),
            ),
            ("data files", f"{count(facts.file_groups)} in {count(facts.partitions)} partitions"),
            ("data bytes", size(facts.data_bytes)),
            *([("clustered by", _depths(facts.depths))] if facts.cluster_by else ()),
            *(() if facts.table_type == "cow" else [("logs", _logs(facts))]),
            *(() if facts.buckets is None else [("buckets", _bucket_facts(facts.buckets))]),
            *usage,
        ]
    )
    heads = ("metadata", "buckets", "HFiles", "entries", "tombstones", "bytes")
    rows = [_partition(name, one) for name, one in facts.metadata.items()]
    fields = columns(("column", "type"), facts.columns.items(), left=("column", "type"))
    return "\n\n".join((told, columns(heads, rows, left=("metadata",)), fields))


def _depths(depths: Mapping[str, float]) -> str:
    return ", ".join(f"{name}, a value in {depth:.1f} files" for name, depth in depths.items())


def _logs(facts: Description) -> str:
    return f"{count(facts.log_files)}, {size(facts.log_bytes)} of the data bytes"


_SCOPES = {"global": "the table", "partition": "each partition"}


def _bucket_facts(facts: Mapping[str, float]) -> str:
    counts = f"{count(int(facts['buckets']))}, {count(int(facts['with_files']))} with files"
    return f"{counts}; the largest {size(int(facts['largest_bytes']))}, {facts['skew']} x the mean"


def _buckets(args: argparse.Namespace) -> int:
    with at_work("buckets", args):
        held = open_table(args).buckets(args.partition, args.version)
    sizes = held["bytes"].drop_null().to_pylist()
    if args.largest is not None:
        held = held.sort_by([("bytes", "descending")]).slice(0, args.largest)
    found = held.to_pylist()
    if args.json:
        print("".join(f"{to_json(one)}\n" for one in found), end="")
        return FINE
    mean = sum(sizes) / (len(sizes) or 1)
    heads = ("bytes", "x mean", "rows", "hashes after", "up to", "resized", "partition")
    print(columns(heads, [_bucket(one, mean) for one in found], left=("partition",)))
    print(terminal.dim(f"{count(len(found))} buckets, {size(sum(sizes))}"))
    return FINE


def _bucket(one: Mapping[str, Any], mean: float) -> tuple[str, ...]:
    share = "-" if one["bytes"] is None else f"{one['bytes'] / mean:.2f}"
    rows = "-" if one["rows"] is None or one["rows"] < 0 else count(one["rows"])
    ends = str(one["after"]), str(one["upto"]), count(one["resized"])
    return (size(one["bytes"]), share, rows, *ends, printable(one["partition_path"]) or ".")


def _version(facts: Description) -> str:
    told = f"{facts.version}, commit {facts.instant}" if facts.instant else f"{facts.version}"
    return told if facts.oldest_version == 1 else f"{told}, kept from {facts.oldest_version}"


def _partition(name: str, facts: Mapping[str, int]) -> tuple[str, ...]:
    counts = (count(facts[head]) for head in ("buckets", "hfiles", "entries", "tombstones"))
    return (name, *counts, size(facts["bytes"]))


def _history(args: argparse.Namespace) -> int:
    with at_work("history", args):
        infos = open_table(args).history(args.limit)
    if args.json:
        _print_objects(infos)
        return FINE
    heads = ("version", "time", "operation", "instant", "what")
    rows = [
        (str(one.version), when(one.time_ms), one.operation, one.instant or "-", _summary(one))
        for one in infos
    ]
    print(columns(heads, rows, left=heads[1:], most=terminal.width()))
    return FINE


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
    with at_work("verify", args):
        done = open_table(args).verify()
    print_result(done, args)
    return FINDINGS if done.findings else FINE


def _repair(args: argparse.Namespace) -> int:
    with at_work("repair", args):
        done = open_table(args).repair(dry_run=not args.apply)
    if not args.json:
        for one in done.findings:
            print(terminal.filled(f"{one}: {one.remedy or 'not mended'}"))
        print(terminal.filled(repr(done)))
    else:
        print_result(done, args)
    return FINDINGS if done.unmended or (done.findings and not args.apply) else FINE


def _due(args: argparse.Namespace) -> int:
    with at_work("due", args):
        found = open_table(args).due()
    if args.json:
        _print_objects(found)
    else:
        print("".join(f"{terminal.filled(printable(repr(one)))}\n" for one in found), end="")
    return FINE


def _compact(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("major", *_PLANNING)}
    chosen = {"partitions": args.partition, "buckets": args.bucket, **how}
    return _served(args, "compact", open_table(args).compact, chosen)


def _resize_buckets(args: argparse.Namespace) -> int:
    words = "split_above", "merge_below", "cut", "most_partitions", "most_bytes"
    chosen = {"partitions": args.partition, "writers": args.writers, "take_back": args.take_back}
    chosen |= {name: getattr(args, name) for name in (*words, *_PLANNING)}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return _served(args, "resize-buckets", open_table(args).resize_buckets, chosen)


def _cluster(args: argparse.Namespace) -> int:
    table = open_table(args)
    chosen = {"where": parsed_where(args.where, table.schema), "by": args.by}
    chosen |= {"most_bytes": args.most_bytes, "dry_run": args.dry_run}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return _served(args, "cluster", table.cluster, chosen)


def _compact_logs(args: argparse.Namespace) -> int:
    words = "ratio", "count", "hours", "most_bytes", "take_back"
    chosen = {"partitions": args.partition}
    chosen |= {name: getattr(args, name) for name in (*words, *_PLANNING)}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return _served(args, "compact-logs", open_table(args).compact_logs, chosen)


_PLANNING = ("dry_run", "schedule", "plan")


def _served(
    args: argparse.Namespace, verb: str, serve: Callable[..., Any], chosen: dict[str, Any]
) -> int:
    """On the engine that was asked for."""
    if args.engine == "local":
        with at_work(verb, args):
            done = serve(**chosen)
        print_result(done, args)
        return FINE
    try:
        from metatable.spark.session import borrowed_session  # noqa: PLC0415  (optional)
    except ImportError as error:
        way_out = "pip install 'metatable[spark]'"
        raise UsageError("Spark is not installed", expected=way_out) from error
    with borrowed_session(f"metatable {verb}") as session:
        print_result(serve(engine=session, **chosen), args)
    return FINE


def _clean(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("versions", "hours", "dry_run")}
    with at_work("clean", args):
        done = open_table(args).clean(**how)
    print_result(done, args)
    return FINE


def _rollback(args: argparse.Namespace) -> int:
    table = open_table(args)
    instant = args.instant or table.instant
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
        _print_objects(held)
        return
    heads = ("name", "version", "instant", "since", "note")
    rows = [
        (one.name, str(one.version), one.instant, when(one.time_ms), printable(one.note))
        for one in held
    ]
    left = (heads[0], *heads[2:])
    print(columns(heads, rows, left, terminal.width()) if rows else "no savepoints")


def _print_objects(found: Sequence[CommitInfo | SavepointInfo | ServiceResult]) -> None:
    print("".join(f"{to_json(one.to_dict())}\n" for one in found), end="")
