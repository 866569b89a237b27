"""`metatable compact|resize-buckets|cluster|compact-logs|clean TABLE`: services, which keep a table
in order. They print what they did or, with `--dry-run`, would do; with `--json` one object.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from metatable.cli.progress import at_work
from metatable.cli.row_arguments import add_columns, add_where, chosen, parsed_where
from metatable.cli.verb import (
    FINE,
    Verbs,
    add_dry_run,
    add_only,
    add_verb,
    at_least_one,
    open_table,
    print_result,
)
from metatable.storage.errors import UsageError

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    _register_compact(verbs)
    _register_resize_buckets(verbs)
    _register_cluster(verbs)
    _register_compact_logs(verbs)
    _register_clean(verbs)


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
    add_only(compact, "--partition", "NAME")
    add_only(compact, "--bucket", "N", int)
    compact.add_argument("--take-back", action="store_true", help="forget the plan of this name")
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
    add_only(resize, "--partition", "PATH")
    most = "no more of them at once"
    resize.add_argument("--most-partitions", type=at_least_one, metavar="N", help=most)
    resize.add_argument(
        "--writers",
        choices=("dual_write", "virtual_log"),
        help="writers go on: rows twice, or once where only metatable finds them until then",
    )
    resize.add_argument(
        "--take-back", action="store_true", help="forget the plan of this name, while it can be"
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
    add_columns(cluster, "--by", "cut by these columns; else by the table's own, or its key")
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
    add_only(compact, "--partition", "PATH")
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


def _compact(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("major", "take_back", *_PLANNING)}
    chosen = {"partitions": args.partition, "buckets": args.bucket, **how}
    return _served(args, "compact", open_table(args).compact, chosen)


def _resize_buckets(args: argparse.Namespace) -> int:
    words = "split_above", "merge_below", "cut", "most_partitions", "most_bytes"
    chosen = {"partitions": args.partition, "writers": args.writers, "take_back": args.take_back}
    chosen |= {name: getattr(args, name) for name in (*words, *_PLANNING)}
    return _served(args, "resize-buckets", open_table(args).resize_buckets, chosen)


def _cluster(args: argparse.Namespace) -> int:
    table = open_table(args)
    how = {"where": parsed_where(args.where, table.schema), "by": chosen(args.by)}
    how |= {"most_bytes": args.most_bytes, "dry_run": args.dry_run}
    return _served(args, "cluster", table.cluster, how)


def _compact_logs(args: argparse.Namespace) -> int:
    words = "ratio", "count", "hours", "most_bytes", "take_back"
    chosen = {"partitions": args.partition}
    chosen |= {name: getattr(args, name) for name in (*words, *_PLANNING)}
    return _served(args, "compact-logs", open_table(args).compact_logs, chosen)


_PLANNING = ("dry_run", "schedule", "plan")


def _served(
    args: argparse.Namespace, verb: str, serve: Callable[..., Any], chosen: dict[str, Any]
) -> int:
    """Call `serve` with those arguments that were given, on the engine that was asked for."""
    given = {name: value for name, value in chosen.items() if value is not None}
    if args.engine == "local":
        with at_work(verb, args):
            done = serve(**given)
        print_result(done, args)
        return FINE
    try:
        from metatable.spark.session import borrowed_session  # noqa: PLC0415  (optional)
    except ImportError as error:
        way_out = "pip install 'metatable[spark]'"
        raise UsageError("Spark is not installed", expected=way_out) from error
    with borrowed_session(f"metatable {verb}") as session:
        print_result(serve(engine=session, **given), args)
    return FINE


def _clean(args: argparse.Namespace) -> int:
    how = {name: getattr(args, name) for name in ("versions", "hours", "dry_run")}
    with at_work("clean", args):
        done = open_table(args).clean(**how)
    print_result(done, args)
    return FINE
