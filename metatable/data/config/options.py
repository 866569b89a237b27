"""Options: what a table is and how it is written, said when it is created.

Which options there are: `option_values.py`. They are stored, as JSON, in every manifest (not in
`hoodie.properties`, from which some Hudi versions drop keys that they do not know).
`Options.create` is the one place where the user's words are checked (`option_checks.py`); what it
returns is consistent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metatable.data.config.option_checks import (
    below_range,
    check_bucketed,
    check_mapping,
    check_options,
    check_types,
    names_of,
)
from metatable.data.config.option_values import (
    BUCKET,
    COPY_ON_WRITE,
    DEFAULT_BUCKETS,
    DEFAULT_CODECS,
    EXTENDIBLE,
    HBASE,
    LOG_FORMATS,
    MERGE_ON_READ,
    MOST_BUCKETS,
    SETTABLE,
    TABLE_TYPES,
    OptionValues,
)
from metatable.data.stored_fields import UNKNOWN, decode_fields, encode_fields
from metatable.storage.errors import CorruptError, UsageError

__all__ = [
    "BUCKET",
    "COPY_ON_WRITE",
    "EXTENDIBLE",
    "LOG_FORMATS",
    "MERGE_ON_READ",
    "MOST_BUCKETS",
    "SETTABLE",
    "TABLE_TYPES",
    "Options",
]


@dataclass(frozen=True, slots=True)
class Options(OptionValues):
    """A table's options. Sizes are bytes, times are seconds, rates are between 0 and 1.

    Those in `SETTABLE` say how new files are made and when services are due: `set_options` changes
    them. Those of the index change with it, by `adopt`. All others are fixed for life, for what is
    stored goes by them.
    """

    @classmethod
    def create(
        cls,
        name: str,
        columns: Sequence[str],
        *,
        key: str | Sequence[str],
        partition_by: str | Sequence[str] = (),
        ordering: str | None = None,
        index: str = "metadata_bloom",
        table_type: str = COPY_ON_WRITE,
        cluster_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Options:
        """Checked options for a new table. Raises UsageError, naming the option."""
        given = dict(options or {})
        known = {one.name for one in dataclasses.fields(cls)}
        known -= {"name", "key", "partition_by", "ordering", "index", UNKNOWN}
        for word in given:
            if word not in known:
                raise UsageError("unknown option", option=word, expected=sorted(known))
        given.setdefault("table_type", table_type)
        given.setdefault("cluster_by", cluster_by)
        if isinstance(given["cluster_by"], str | list):
            given["cluster_by"] = names_of(given["cluster_by"])
        given.setdefault("key_scope", "global" if index in ("record", HBASE) else "partition")
        check_types({**given, "index": index})
        if index == BUCKET:
            check_bucketed(given)
        given["buckets"] = DEFAULT_BUCKETS | dict(given.get("buckets", {}))
        if "hfile_codec" not in given:
            given["hfile_codecs"] = DEFAULT_CODECS | dict(given.get("hfile_codecs", {}))
        made = cls(
            name=name,
            key=names_of(key),
            partition_by=names_of(partition_by),
            ordering=ordering,
            index=index,
            **given,
        )
        check_options(made, columns)
        return made

    def encode(self) -> dict[str, Any]:
        """The options as JSON values."""
        return encode_fields(self)

    @classmethod
    def decode(cls, body: Any, path: str) -> Options:
        """Options from JSON values; words of a newer version are kept. Raises CorruptError."""
        made = decode_fields(cls, body, path, "options")
        if not all(1 <= count <= MOST_BUCKETS for count in made.buckets.values()):
            expected = f"1 to {MOST_BUCKETS} buckets"
            raise CorruptError(
                "options are damaged", path=path, expected=expected, found=made.buckets
            )
        if low := below_range(made):
            raise CorruptError("options are damaged: numbers are too low", path=path, found=low)
        return made

    def changed(self, given: Mapping[str, Any], columns: Sequence[str]) -> Options:
        """These options with other values of `SETTABLE`, checked for a table of these columns.

        Raises UsageError, naming the option.
        """
        check_mapping(given)
        known = {one.name for one in dataclasses.fields(self)} - {UNKNOWN}
        for word in given:
            if word not in known:
                raise UsageError("unknown option", option=word, expected=list(SETTABLE))
            if word not in SETTABLE:
                raise UsageError(
                    "this option is not set again: files and entries that are there go by it",
                    option=word,
                    expected=list(SETTABLE),
                )
        given = dict(given)
        if isinstance(given.get("cluster_by"), str | list):
            given["cluster_by"] = names_of(given["cluster_by"])
        check_types(given)
        if self.index == BUCKET:
            check_bucketed(given)
        made = dataclasses.replace(self, **given)
        check_options(made, columns)
        return made.keeping(self.buckets)

    def as_set_in(self, other: Options, columns: Sequence[str]) -> Options:
        """These options with the values that `other` has of `SETTABLE`, as far as a table of these
        columns and this index can have them."""
        kept = {word: getattr(other, word) for word in SETTABLE}
        if self.index == BUCKET or not set(other.cluster_by) <= set(columns):
            del kept["cluster_by"]
        return dataclasses.replace(self, **kept)

    def keeping(self, partitions: Mapping[str, int]) -> Options:
        """These options with the numbers of buckets of all metadata partitions that the table keeps
        (by name), where none are given. So they name all that sweeps look through.

        Raises UsageError where buckets or a codec are given of a partition that is not kept.
        """
        known = DEFAULT_BUCKETS | dict(partitions)
        for partition in (*self.buckets, *self.hfile_codecs):
            if partition not in known:
                raise UsageError(
                    "unknown metadata partition", found=partition, expected=sorted(known)
                )
        return dataclasses.replace(self, buckets=dict(partitions) | dict(self.buckets))
