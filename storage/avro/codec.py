"""RecordCodec: one schema, both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from metatable.storage.avro.decode import decode_records
from metatable.storage.avro.encode import encode_records
from metatable.storage.avro.projection import projected
from metatable.storage.avro.schema import Record, parse
from metatable.storage.byte_columns import Runs

__all__ = ["RecordCodec"]


class RecordCodec:
    """Arrow tables <-> columns of bare Avro datums (no header, no magic) of one record schema.

    `schema` is JSON text or what JSON decodes to; how Avro's types are mapped stands in
    `metatable/storage/avro/schema.py`. `arrow_schema` are the columns of the record. `logical`:
    whether columns are of the types that are meant, or of those that are stored.
    """

    def __init__(self, schema: str | Mapping[str, Any], logical: bool = False) -> None:
        self._record = parse(schema, logical)
        self._projected: dict[tuple[str, ...], Record] = {}
        self.arrow_schema: pa.Schema = pa.schema(list(self._record.type))

    def decode(
        self, values: pa.Array | Runs, fields: Sequence[str] | None = None, path: str = ""
    ) -> pa.Table:
        """One row a datum; only `fields` (in schema order) if they are named, and "a.b" for the
        field, or the branch of a union, b of a. Datums are values of a column, or runs of bytes
        where they lie.

        Every byte of every datum is accounted for, also those of fields not asked for.
        Raises CorruptError for bytes that are no datum of this schema; `path` is named in it.
        """
        datums = values if isinstance(values, Runs) else Runs.of(values)
        if fields is None:
            return decode_records(self._record, datums, path)
        wanted = tuple(fields)
        record = self._projected.get(wanted)
        if record is None:
            record = self._projected[wanted] = projected(self._record, wanted)
        return decode_records(record, datums, path)

    def encode(self, table: pa.Table | pa.RecordBatch) -> pa.Array:
        """A `pa.binary()` array, one datum a row. Columns go by name and must all be there.

        Raises UsageError for a missing column, a type that cannot be cast to the field's
        without loss, and nulls where the schema has none.
        """
        return encode_records(self._record, table)
