"""What takes a new file: a store, or something that only holds it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Protocol

from metatable.storage.counters import Counters

__all__ = ["Caught", "Sinks"]


class Sinks(Protocol):
    """What whoever writes one new file needs of a store."""

    @property
    def counters(self) -> Counters: ...

    def sink(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file object whose content becomes `path` when the block ends without an exception."""
        ...


class Caught:
    """Holds the file that is written, for somebody else to put."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.body = b""

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        with io.BytesIO() as file:
            yield file
            self.body = file.getvalue()
