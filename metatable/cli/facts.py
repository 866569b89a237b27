"""`metatable describe|buckets|history|verify|repair|due TABLE`: what a table is, what is wrong with
it, and what is due.

With `--json` `history`, `buckets` and `due` print one object per line, the others one object.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metatable.cli import terminal
from metatable.cli.progress import at_work
from metatable.cli.render import columns, count, pairs, printable, size, when
from metatable.cli.verb import (
    FINDINGS,
    FINE,
    Verbs,
    add_only,
    add_verb,
    at_least_one,
    open_table,
    print_objects,
    print_result,
    to_json,
)

if TYPE_CHECKING:
    from metatable.results import CommitInfo, Description

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verbs, none of which changes the table but `repair --apply`."""
    _register_facts(verbs)
    _register_checks(verbs)


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
    add_only(buckets, "--partition", "PATH")
    buckets.add_argument("--largest", type=at_least_one, metavar="N", help="only the N largest")
    buckets.add_argument("--version", type=at_least_one, metavar="N", help="an older version")
    history = add_verb(
        verbs,
        "history",
        _history,
        "every version, newest first",
        "metatable history rides --limit 20",
    )
    history.add_argument("--limit", type=at_least_one, metavar="N", help="only the newest N")


def _register_checks(verbs: Verbs[argparse.ArgumentParser]) -> None:
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
    shown = sum(one["bytes"] or 0 for one in found)
    print(terminal.dim(f"{count(len(found))} buckets, {size(shown)}"))
    return FINE


def _bucket(one: Mapping[str, Any], mean: float) -> tuple[str, ...]:
    share = "-" if one["bytes"] is None else f"{one['bytes'] / mean:.2f}"
    ends = str(one["after"]), str(one["upto"]), count(one["resized"])
    told = size(one["bytes"]), share, count(one["rows"])
    return (*told, *ends, printable(one["partition_path"]) or ".")


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
        print_objects(infos)
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
        print_objects(found)
    else:
        print("".join(f"{terminal.filled(printable(repr(one)))}\n" for one in found), end="")
    return FINE
