"""Avro in columns: binary datums of one record schema <-> Arrow, many rows at a time."""

from metatable.storage.avro.codec import RecordCodec

__all__ = ["RecordCodec"]
