"""Keys in a real HBase: what lookups cost beside the client's own multi-get.

HBase 2.6.1 runs on this machine, beside whoever asks: master, region server and gateway are taken
from the processors that the client has, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import metatable
from benchmarks.harness import FLOOR, Case, Peer, Setup, left_out, package, run_module, timed
from metatable import Table
from metatable.metadata.record_index import index_keys
from tests.services.hbase_server import HBaseServer
from tests.services.programs import MissingError

QUESTION = (
    "Where keys are in HBase: how long do 1,000 and a million of them take, beside the same rows "
    "asked of HBase by the client alone?"
)

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("value", pa.int64())])
AT_MOST = 1.5
"""So many times as long as the floor, at most."""

FLOOR_ROWS = 1000
"""Rows of a multi-get: of 1,000, 2,000 and 5,000 the first is the fastest."""

INSERTED_ROWS = 1_000_000


class _Server(HBaseServer):
    heap: ClassVar[str] = "3g"
    gateway_heap: ClassVar[str] = "512m"
    flags: ClassVar[Sequence[str]] = ()
    patience: ClassVar[Mapping[str, str]] = {}


def cases(setup: Setup) -> Iterator[Case]:
    """Keys that are there, chosen by chance."""
    count = 10_000_000 if setup.full else 200_000
    asked = (1_000, 1_000_000 if setup.full else 50_000)
    happybase = package("happybase")
    with ExitStack() as stack:
        server = _Server(setup.cupboard.scratch())
        try:
            if happybase is None:
                raise MissingError("no happybase: pip install 'metatable[hbase]'")
            stack.enter_context(server)
        except MissingError as error:
            yield left_out("keys in HBase", str(error))
            return
        table = _made(str(setup.cupboard.scratch() / "table"), server.address, count)
        for number in asked:
            keys = _ids(np.random.default_rng(number).choice(count, number, replace=False))
            yield Case(
                f"{number:,} keys into {count:,}",
                f"random keys, all there; HBase's heap {server.heap}, its gateway's "
                f"{server.gateway_heap}, one region at first; tag_locations; warm",
                timed(partial(table.tag_locations, keys), check=_all_found),
                [
                    Peer(
                        f"{FLOOR}happybase's rows()",
                        _floor(happybase, table, keys),
                        "",
                        1 / AT_MOST,
                    )
                ],
                "four requests are under way at a time, where the client alone has one",
            )


def _made(uri: str, address: str, count: int) -> Table:
    place = {"hbase_table": f"b_{uuid.uuid4().hex}", "hbase_address": address}
    table = metatable.create(
        uri, SCHEMA, key="id", index="hbase", options=place, storage_options={"durable": "false"}
    )
    for start in range(0, count, INSERTED_ROWS):
        numbers = np.arange(start, min(start + INSERTED_ROWS, count))
        table.insert(_ids(numbers).append_column("value", pa.array(numbers)))
    return table


def _ids(numbers: npt.NDArray[np.int64]) -> pa.Table:
    return pa.table({"id": [f"k{number:012d}" for number in numbers.tolist()]})


def _all_found(tagged: pa.Table) -> None:
    assert tagged["_location"].null_count == 0


def _floor(happybase: Any, table: Table, keys: pa.Table) -> Any:
    """The rows as they are stored, in their order, by a connection that is open."""
    options = table.options
    stored = index_keys(options, keys["id"].combine_chunks(), pa.scalar(""))
    rows = sorted(stored.to_pylist())
    host, _, port = options.hbase_address.partition(":")
    client = happybase.Connection(host, int(port)).table(options.hbase_table)

    def ask() -> int:
        starts = range(0, len(rows), FLOOR_ROWS)
        return sum(len(client.rows(rows[start : start + FLOOR_ROWS])) for start in starts)

    return timed(ask, check=lambda found: _same(found, len(rows)))


def _same(found: int, expected: int) -> None:
    assert found == expected, (found, expected)


if __name__ == "__main__":
    run_module(globals())
