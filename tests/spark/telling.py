"""A source of rows that tells how often it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = ["telling"]


def telling(source: Any, log: Path) -> Any:
    """The same DataFrame; each batch with rows adds a line to `log` whenever it is worked out."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                with log.open("a") as file:
                    file.write("once\n")
            yield batch

    return source.mapInArrow(told, source.schema)
