"""A real HBase for benchmarks, on this machine, and tables that keep their keys in it.

HBase 2.6.1 runs beside whoever asks: master, region server and gateway are taken from the
processors that the client has, too. It is kept with its table between calls, as it was left.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import metatable
from benchmarks.data import Cupboard
from benchmarks.harness import package
from tests.services.hbase_server import HBaseServer
from tests.services.programs import MissingError

__all__ = ["MissingError", "setting", "table_in_hbase"]

STOPPING_S = 120


class _Server(HBaseServer):
    """As it is run for work, not for tests."""

    heap: ClassVar[str] = "3g"
    gateway_heap: ClassVar[str] = "512m"
    flags: ClassVar[Sequence[str]] = ()
    patience: ClassVar[Mapping[str, str]] = {}

    def stop(self) -> None:
        """In order: what is in memory goes to files."""
        if self._master is not None:
            self._master.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._master.wait(STOPPING_S)
        super().stop()


def setting() -> str:
    """How the servers are set, in a few words."""
    return f"HBase's heap {_Server.heap}, its gateway's {_Server.gateway_heap}, one region at first"


@contextmanager
def table_in_hbase(
    cupboard: Cupboard, name: str, make: Callable[[Path, Mapping[str, str]], object]
) -> Iterator[Path]:
    """The folder of a table whose keys are in an HBase that runs until the end; `make` fills it,
    given its place and the index's options. Raises MissingError where HBase cannot be had."""
    _Server.program.path()
    if package("happybase") is None:
        raise MissingError("no happybase: pip install 'metatable[hbase]'")

    def fill(kept: Path) -> None:
        with _Server(kept / "hbase") as server:
            make(kept / "table", {"hbase_table": name, "hbase_address": server.address})

    kept = cupboard.made(name, fill)
    address = metatable.open(kept / "table").options.hbase_address
    server = _Server(kept / "hbase")
    server.port = int(address.rpartition(":")[2])
    try:
        server.start(again=True)
        yield kept / "table"
    finally:
        server.stop()
