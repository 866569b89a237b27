"""Indexes: which file group holds a key. One class per index, behind one small protocol."""

if __name__ != "metatable.index":  # a second copy would have other error classes
    raise ImportError(f"import metatable.index, not {__name__}")

from metatable.index import bucket, footer_bloom, hbase, metadata_bloom, record
from metatable.index.locations import LOCATION, LOCATION_COLUMN
from metatable.index.placed import PlacedIndex
from metatable.index.placement import Placement
from metatable.index.protocol import Index, create_index, register

__all__ = [
    "LOCATION",
    "LOCATION_COLUMN",
    "Index",
    "PlacedIndex",
    "Placement",
    "bucket",
    "create_index",
    "footer_bloom",
    "hbase",
    "metadata_bloom",
    "record",
    "register",
]
