"""Field ids of Parquet's Thrift structs, those that have a meaning here.

Others are kept as they are (`thrift.py`). All stand in parquet.thrift of the Parquet project.
"""

from __future__ import annotations

__all__ = [
    "Bounds",
    "Column",
    "Element",
    "Footer",
    "Group",
    "Location",
    "Meta",
    "Page",
    "Sizes",
    "Statistics",
    "Word",
]


class Footer:
    """FileMetaData."""

    VERSION = 1
    SCHEMA, ROWS, GROUPS, WORDS, CREATED_BY, ORDERS, ENCRYPTION, SIGNATURE = range(2, 10)


class Element:
    """SchemaElement."""

    TYPE = 1
    REPETITION, NAME, CHILDREN = 3, 4, 5


class Word:
    """KeyValue."""

    KEY, VALUE = 1, 2


class Group:
    """RowGroup."""

    COLUMNS, UNCOMPRESSED, ROWS = 1, 2, 3
    OFFSET, STORED = 5, 6


class Column:
    """ColumnChunk."""

    FILE, OFFSET, META = 1, 2, 3
    OFFSET_INDEX, OFFSET_INDEX_SIZE, COLUMN_INDEX, COLUMN_INDEX_SIZE = 4, 5, 6, 7
    CRYPTO, ENCRYPTED_META = 8, 9


class Meta:
    """ColumnMetaData."""

    TYPE = 1
    ENCODINGS, PATH, CODEC, VALUES, UNCOMPRESSED, STORED = range(2, 8)
    DATA_PAGE, INDEX_PAGE, DICTIONARY, STATISTICS, WAYS = 9, 10, 11, 12, 13
    BLOOM, BLOOM_SIZE, SIZES = 14, 15, 16
    SHAPES = LAST = 17


class Statistics:
    """Statistics of a column chunk."""

    OLD_GREATEST, OLD_LEAST, NULLS = 1, 2, 3
    GREATEST, LEAST, GREATEST_IS_EXACT, LEAST_IS_EXACT = 5, 6, 7, 8


class Sizes:
    """SizeStatistics of a column chunk: two lists, a number a level."""

    UNENCODED, REPETITION, DEFINITION = 1, 2, 3


class Page:
    """PageHeader, and the headers that each kind of data page has in it."""

    KIND, UNCOMPRESSED, STORED, CRC = 1, 2, 3, 4
    VALUES, ENCODING, ROWS, V2_ENCODING = range(1, 5)
    DATA, DICTIONARY, DATA_V2 = 0, 2, 3
    DATA_HEADER, DICTIONARY_HEADER, DATA_V2_HEADER = 5, 7, 8


class Bounds:
    """ColumnIndex: lists of an element a page."""

    IS_NULL, LEAST, GREATEST, ORDER, NULLS = 1, 2, 3, 4, 5
    LAST = 7


class Location:
    """PageLocation, and OffsetIndex, which is a list of them."""

    OFFSET, SIZE = 1, 2
    ALL = 1
