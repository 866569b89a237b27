"""`metatable log FILE`: the blocks of a log file of a Hudi table, whoever wrote it.

A block is a line: where it begins, what it is, its rows or keys (`-`: they are not read), the bytes
of its content, and what its header tells, the schema left out. With `--json` it is an object, the
schema included. Bytes behind the last block that a dead writer left are told, too; readers pass
over them.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from metatable.cli.render import printable
from metatable.cli.single_file import place_of
from metatable.cli.verb import FINE, Verbs, add_common
from metatable.storage.errors import UpgradeError

if TYPE_CHECKING:
    from metatable.storage.hudi_log.block import LogBlock

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add `log`."""
    told = "the blocks of a log file of a merge-on-read table"
    parser = verbs.add_parser("log", help=told)
    parser.add_argument("file", metavar="FILE")
    add_common(parser, _log, told, "metatable log .f-0_20260101000000000.log.1_0-1-1")


def _log(args: argparse.Namespace) -> int:
    from metatable.storage.hudi_log.log_file import LogFile  # noqa: PLC0415  (loads pyarrow)

    store, name = place_of(args)
    body = store.fetch(name)
    file = LogFile.decode(body, name)
    for block in file.blocks:
        facts = _facts(block)
        print(json.dumps(facts) if args.json else _line(facts))
    if file.torn_at is not None:
        torn = {"offset": file.torn_at, "torn_bytes": len(body) - file.torn_at}
        told = f"{file.torn_at}\ttorn\t{torn['torn_bytes']} bytes that a dead writer left"
        print(json.dumps(torn) if args.json else told)
    return FINE


def _facts(block: LogBlock) -> dict[str, Any]:
    return {
        "offset": block.offset,
        "kind": block.kind.name.lower(),
        "rows": _rows(block),
        "content_bytes": len(block.content),
        "header": {key.name.lower(): text for key, text in block.header.items()},
    }


def _rows(block: LogBlock) -> int | None:
    """Rows, or keys that are deleted; None for what is not read."""
    from metatable.data.columns.schema import KEY_COLUMN, META_FIELDS  # noqa: PLC0415
    from metatable.data.logs.block_rows import block_rows  # noqa: PLC0415
    from metatable.data.logs.log_blocks import block_deletes  # noqa: PLC0415
    from metatable.storage.hudi_log.block import BlockKind  # noqa: PLC0415

    with suppress(UpgradeError):
        if block.kind is BlockKind.DELETE:
            return len(block_deletes(block, None).keys)
        if block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
            import pyarrow as pa  # noqa: PLC0415  (slow to load)

            # tables of Hudi's may be without meta columns, and of these the key alone is missed
            asked = pa.schema([one for one in META_FIELDS if one.name != KEY_COLUMN])
            return int(block_rows(block, asked, None).num_rows)
    return None


def _line(facts: dict[str, Any]) -> str:
    told = [f"{key}={printable(text)}" for key, text in facts["header"].items() if key != "schema"]
    rows = "-" if facts["rows"] is None else facts["rows"]
    parts = (facts["offset"], facts["kind"], rows, facts["content_bytes"], " ".join(told))
    return "\t".join(map(str, parts))
