"""Checks of options as a user gives them: of another type, out of range, no such choice, or in
contradiction to each other. Each raises UsageError, which names the option.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from metatable.data.bucket_functions import bucket_functions
from metatable.data.config.option_values import (
    BUCKET,
    BUCKET_ENGINES,
    CONSISTENT,
    EXTENDIBLE,
    HBASE,
    HFILE_CODECS,
    KEY_FORMS,
    LEAST_RATE,
    LOG,
    LOG_FORMATS,
    MERGE_ON_READ,
    MOST_BUCKETS,
    MOST_NODES,
    NEW_GROUPS,
    PARQUET_CODECS,
    SCOPES,
    TABLE_TYPES,
    OptionValues,
)
from metatable.storage import filters
from metatable.storage.errors import UsageError

__all__ = [
    "below_range",
    "check_bucketed",
    "check_mapping",
    "check_options",
    "check_types",
    "names_of",
]

_PLACES = {
    "hbase_table": re.compile(r"(\w[\w.-]*:)?\w[\w.-]*", re.ASCII),
    "hbase_address": re.compile(r"sqlite:.+|[^:/\s]+(:\d{1,5})?", re.ASCII),
}
_EXPECTED = {
    "hbase_table": "letters, digits, '_', '.' and '-', perhaps a namespace and ':' before them",
    "hbase_address": "host:port of HBase's Thrift gateway, or sqlite:/path/of/a/file",
}
_BYTES = 1 << 40
_RANGES: dict[str, tuple[float, float]] = {
    "file_rows": (1, 1 << 31),
    "small_file_bytes": (0, _BYTES),
    "file_bytes": (1, _BYTES),
    "row_group_rows": (1, 1 << 31),
    "stats_columns": (0, 1 << 20),
    "hfile_block_bytes": (64, 1 << 28),
    "hfile_target_bytes": (1, _BYTES),
    "upkeep_files": (0, 1 << 20),
    "timeline_commits": (0, 1 << 20),
    "bucket_count": (1, 10**8),
    "hbase_requests_per_second": (0, 1 << 20),
    "lease_seconds": (0, 86_400),
    "commit_retries": (0, 1 << 20),
}
"""Least and most of each number. A lease of more than a day keeps a dead writer's traces so long;
beyond 256 MiB a block is taken for damage. The number of a bucket has eight digits."""
_RATES = ("footer_bloom_fpp", "filter_fpp")
"""Between 0 and 1, neither of the two."""


def check_options(options: OptionValues, columns: Sequence[str]) -> None:
    """All that can be wrong with options of the right types, in a table of these columns."""
    _check_columns(options, columns)
    _one_of("filter_kind", options.filter_kind, filters.kinds())
    _one_of("key_scope", options.key_scope, SCOPES)
    _one_of("bucket_engine", options.bucket_engine, BUCKET_ENGINES)
    _one_of("record_key_form", options.record_key_form, KEY_FORMS)
    _one_of("record_bucket_function", options.record_bucket_function, bucket_functions())
    _one_of("hfile_codec", options.hfile_codec, HFILE_CODECS)
    for partition, codec in options.hfile_codecs.items():
        _one_of(f"hfile_codecs.{partition}", codec, HFILE_CODECS)
    _one_of("table_type", options.table_type, TABLE_TYPES)
    _one_of("log_format", options.log_format, LOG_FORMATS)
    _one_of("new_groups", options.new_groups, NEW_GROUPS)
    if options.opens_by_logs and not options.has_logs:
        raise UsageError(
            "options contradict each other: without logs none can open a file group",
            new_groups=LOG,
            table_type=options.table_type,
            expected=f"table_type={MERGE_ON_READ!r}",
        )
    _one_of("parquet_codec", options.parquet_codec, PARQUET_CODECS)
    _check_numbers(options)
    _check_rings(options)
    _check_outside(options)
    if options.record_key_form == "hash" and options.record_bucket_function != "xxh64":
        raise UsageError(
            "options contradict each other: a hashed record key has its bucket in its hash",
            record_key_form=options.record_key_form,
            record_bucket_function=options.record_bucket_function,
            expected="record_key_form='plain' with this bucket function",
        )


def _check_columns(options: OptionValues, columns: Sequence[str]) -> None:
    """Columns that are named are the table's, and none is named twice for one thing."""
    if not options.key:
        raise UsageError("a table needs a key", key=options.key, expected="one column or more")
    ordering = () if options.ordering is None else (options.ordering,)
    named = (*options.key, *options.partition_by, *ordering, *options.cluster_by)
    for column in named:
        if column not in columns:
            raise UsageError("no such column", column=column, expected=list(columns))
    for word in ("key", "partition_by", "cluster_by"):
        names = getattr(options, word)
        if len(set(names)) != len(names):
            raise UsageError("a column is named twice", option=word, found=list(names))
    if options.cluster_by and options.index == BUCKET:
        raise UsageError(
            "options contradict each other: a bucket holds the keys of its hashes",
            cluster_by=list(options.cluster_by),
            index=BUCKET,
            expected="an index that leaves open which file a row goes to",
        )


def _check_rings(options: OptionValues) -> None:
    """What goes together with buckets whose ranges are split and merged, and how many there are."""
    if options.hudi_hashing_metadata and not _is_as_hudi_hashes(options):
        raise UsageError(
            "options contradict each other: Hudi has no such hashing metadata",
            hudi_hashing_metadata=True,
            expected=f"index={BUCKET!r}, bucket_engine={CONSISTENT!r},"
            f" table_type={MERGE_ON_READ!r}",
            found=[options.index, options.bucket_engine, options.table_type],
        )
    count, least = options.bucket_count, f"1 to {MOST_NODES}"
    if not options.resizes or (count <= MOST_NODES and options.bucket_engine == CONSISTENT):
        return
    by_bits = f"{least}, a power of two" if options.bucket_engine == EXTENDIBLE else least
    if count > MOST_NODES or count & (count - 1):
        raise UsageError(
            "option out of range", option="bucket_count", expected=by_bits, found=count
        )


def _check_outside(options: OptionValues) -> None:
    """Where an index outside of the table has its entries."""
    for word in ("hbase_table", "hbase_address") if options.index == HBASE else ():
        found = getattr(options, word)
        if not _PLACES[word].fullmatch(found):
            raise UsageError(
                "this index needs a place for its entries",
                option=word,
                expected=_EXPECTED[word],
                found=found,
            )


def below_range(options: OptionValues) -> dict[str, float]:
    """Numbers that no table can have, whoever wrote it, by their options. None is too large: a
    version to come may go further, and a lease may have no end."""
    low = {word for word, (least, _) in _RANGES.items() if getattr(options, word) < least}
    low |= {word for word in _RATES if getattr(options, word) <= 0}
    return {word: getattr(options, word) for word in sorted(low)}


def _check_numbers(options: OptionValues) -> None:
    """All numbers are in their ranges."""
    for word, (least, most) in _RANGES.items():
        if not least <= getattr(options, word) <= most:  # nan is nowhere
            expected = f"{least} to {most}"
            raise UsageError(
                "option out of range", option=word, expected=expected, found=getattr(options, word)
            )
    for word in _RATES:
        if not 0 < getattr(options, word) < 1:
            raise UsageError(
                "option out of range",
                option=word,
                expected="0 < p < 1",
                found=getattr(options, word),
            )
    rate = options.record_filter_fpp
    if rate != 0 and not LEAST_RATE <= rate < 1:
        raise UsageError(
            "option out of range",
            option="record_filter_fpp",
            expected=f"0, or from {LEAST_RATE:g} to less than 1",
            found=rate,
        )
    for partition, count in options.buckets.items():
        if not 1 <= count <= MOST_BUCKETS:
            raise UsageError(
                "option out of range",
                option=f"buckets.{partition}",
                expected=f"1 to {MOST_BUCKETS}",
                found=count,
            )


def _is_as_hudi_hashes(options: OptionValues) -> bool:
    return options.resizes and options.bucket_engine == CONSISTENT and options.has_logs


def check_bucketed(given: Mapping[str, Any]) -> None:
    """One file group a bucket: what would cut files in another way contradicts that."""
    for word in ("file_rows", "file_bytes", "small_file_bytes"):
        if word in given:
            raise UsageError(
                "options contradict each other: a bucket is one file group, however large",
                option=word,
                found=given[word],
                expected="more or fewer buckets (bucket_count)",
            )


def check_mapping(given: object) -> None:
    """Options come by their names."""
    if not isinstance(given, Mapping):
        found, expected = type(given).__name__, "names and values"
        raise UsageError("options are no mapping", found=found, expected=expected)


def check_types(given: Mapping[str, Any]) -> None:
    """Words of another type are refused here, and not by whoever trips over them one day."""
    for one in dataclasses.fields(OptionValues):
        if one.name not in given:
            continue
        found = given[one.name]
        if one.name in ("buckets", "hfile_codecs"):
            kind = int if one.name == "buckets" else str
            right = isinstance(found, Mapping) and all(type(n) is kind for n in found.values())
        elif one.name == "key_salts":
            right = isinstance(found, Sequence) and len(found) == 2 and all(map(_is_int64, found))
        else:
            wide = (int, float) if one.type == "float" else type(one.default)
            right = isinstance(found, wide) and (one.type == "bool" or type(found) is not bool)
        if not right:
            raise UsageError(
                "option of another type", option=one.name, expected=one.type, found=found
            )


def _is_int64(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """One column or several, as they are given, as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _one_of(option: str, found: str, expected: Sequence[str]) -> None:
    if found not in expected:
        raise UsageError("no such choice", option=option, found=found, expected=list(expected))
