"""The calendar of a file that Spark wrote: of days before 1582-10-15 and moments before 1900, whose
numbers meant others in Spark 2, and mean them still where a session asks for it.

Such a file says so in its footer, and Spark reads it by that. Whoever goes by the numbers alone, as
we do and most readers, finds other days; and the same numbers in a file of ours are other days for
Spark as well. Rules: Spark's `datetimeRebaseModeInWrite` and `int96RebaseModeInWrite`.
"""

from __future__ import annotations

import pyarrow.parquet as pq

from metatable.storage.parquet.footer import ToldChunk

__all__ = ["by_old_calendar"]

_VERSION = b"org.apache.spark.version"
_DAYS = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"

_SECONDS = -2_208_988_800  # 1900-01-01, from when on zones count in whole minutes
_FIRST = {
    "DATE": -141_427,  # 1582-10-15
    "TIMESTAMP_MILLIS": _SECONDS * 1_000,
    "TIMESTAMP_MICROS": _SECONDS * 1_000_000,
}
"""From when on both calendars agree, by the type of a column as Parquet converts it."""


def by_old_calendar(footer: pq.FileMetaData) -> str | None:
    """A column, by its path, that may hold days or moments of which the two calendars differ; None
    where there is none, or the file goes by today's."""
    told = footer.metadata or {}
    is_old = told.get(_VERSION, b"3") < b"3"
    for leaf in range(footer.num_columns):
        column = footer.schema.column(leaf)
        is_int96 = column.physical_type == "INT96"
        if not (is_old or (_INT96 if is_int96 else _DAYS) in told):
            continue
        if is_int96 or _reaches_back(footer, leaf, _FIRST.get(column.converted_type)):
            return str(column.path)
    return None


def _reaches_back(footer: pq.FileMetaData, leaf: int, first: int | None) -> bool:
    """Whether a value may be before the first one that is the same in both calendars."""
    if first is None:
        return False
    for number in range(footer.num_row_groups):
        chunk = ToldChunk.of(footer, number, leaf)
        told = chunk.statistics
        if told is not None and told.has_null_count and told.null_count == chunk.num_values:
            continue
        if told is None or not told.has_min_max or told.min_raw < first:
            return True
    return False
