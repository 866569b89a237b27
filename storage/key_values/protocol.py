"""What is asked of a key-value store: rows of cells, by key.

    key     binary   of a row, which lies with its neighbours in a region
    name    binary   of a cell in its row; one name is put with one value, for ever
    value   binary

So everything may be repeated: a put and a delete whose answers were lost are sent again, and one
that comes late does what was done. A row is read whole, as it is at that moment; rows are not read
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

__all__ = ["CELLS", "KeyValues"]

CELLS = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("name", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


class KeyValues(Protocol):
    """One connection to one table of a store, used by one thread at a time. What is not there yet
    is made by the first put, and has no cells before it.

    Raises StoreError for what may be asked again, on another connection; anything else is final.
    """

    def get_many(self, keys: pa.Array) -> pa.RecordBatch:
        """All cells of these rows (`CELLS`), by row in any order; rows without cells are absent."""
        ...

    def put_many(self, keys: pa.Array, name: bytes, values: pa.Array) -> None:
        """A cell of this name in each of these rows; durable when it returns."""
        ...

    def delete_many(self, keys: pa.Array, names: pa.Array) -> None:
        """One cell of each row; absent ones are passed over."""
        ...

    def scan(self, first: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        """All cells of the rows in [first, end), by key; a row is in one batch, no batch without
        one."""
        ...

    def regions(self) -> list[bytes]:
        """The first key of each region, ascending, `b""` first."""
        ...

    def close(self) -> None: ...
