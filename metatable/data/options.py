"""Options: what a table is and how it is written, said when it is created.

Those in `SETTABLE` may change later (`set_options`), and those of the index change with it
(`adopt`); all others are fixed for the life of the table. They are stored, as JSON, in every
manifest (not in `hoodie.properties`, from which some Hudi versions drop keys that they do not
know). `Options.create` is the one place where the user's words are checked; what it returns is
consistent.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metatable.data.bucket_functions import bucket_functions
from metatable.data.stored_fields import UNKNOWN, decode_fields, encode_fields, stored
from metatable.storage import filters
from metatable.storage.errors import CorruptError, UsageError

__all__ = ["SETTABLE", "Options"]

SCOPES = ("partition", "global")
KEY_FORMS = ("hash", "plain")
BUCKET, HBASE = "bucket", "hbase"
SIMPLE, CONSISTENT, EXTENDIBLE = "simple", "consistent_hashing", "extendible_hashing"
BUCKET_ENGINES = (SIMPLE, CONSISTENT, EXTENDIBLE)
HFILE_CODECS = ("gz", "none", "zstd")
COPY_ON_WRITE, MERGE_ON_READ = TABLE_TYPES = ("cow", "mor")
LOG_FORMATS = ("avro", "parquet")
BASE, LOG = NEW_GROUPS = ("base", "log")
PARQUET_CODECS = ("zstd", "snappy", "gzip", "none")

DEFAULT_BUCKETS = {"files": 1, "bloom_filter": 4, "column_stats": 4, "record_index": 16}
"""Few: a lookup reads what covers its buckets, and a compaction works bucket by bucket."""

DEFAULT_CODECS = {"record_index": "zstd"}
"""Most of the bytes of an index, and of no form that others read; beside it little is gained."""

SETTABLE = (
    *("file_rows", "file_bytes", "small_file_bytes", "cluster_by"),
    *("row_group_rows", "parquet_codec", "log_format"),
    *("hfile_codec", "hfile_codecs", "hfile_block_bytes", "hfile_target_bytes"),
    *("record_filter_fpp",),
    *("upkeep_files", "timeline_commits", "commit_retries"),
)
"""How new files are made, and when services are due: nobody has to know it who reads what was made
before, and two writers may go by different ones."""

LEAST_RATE = 1e-6
"""Of keys that a filter in an index file lets through: below that it would be as large as what it
spares."""

MOST_BUCKETS = 1 << 16

MOST_NODES = 1 << 17
"""Buckets that a ring begins with, at most: each is named in memory."""


def _salts() -> tuple[int, int]:
    """Two random int64, from which the seeds of the record keys' 128-bit hash are derived."""
    return secrets.randbits(64) - (1 << 63), secrets.randbits(64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class Options:
    """A table's options. Sizes are bytes, times are seconds, rates are between 0 and 1.

    Those in `SETTABLE` say how new files are made and when services are due: `set_options` changes
    them. Those of the index change with it, by `adopt`. All others are fixed for life, for what is
    stored goes by them.
    """

    name: str
    """The table's name for Hudi: the last part of its address."""
    key: tuple[str, ...]
    """The columns of the key."""
    partition_by: tuple[str, ...] = ()
    """The columns whose values name a row's partition, a folder of data files; none: one folder."""
    ordering: str | None = None
    """Of two rows with one key, the one with the greater value in this column wins; None: the one
    that was written later."""
    index: str = "metadata_bloom"
    """What finds the file group of a key: `metadata_bloom`, `bloom`, `record`, `hbase`, `bucket`,
    or one that was registered."""
    key_scope: str = "partition"
    """Where a key is unique: in its `partition`, or in the whole table (`global`). `create` takes
    `global` with the indexes `record` and `hbase` unless it is told otherwise."""
    hive_style: bool = True
    """Folders of partitions are called `city=Ulm`, not `Ulm`."""
    # the record index
    record_key_form: str = "hash"
    """What the record index keeps of a key: a `hash` of 128 bits, or the key itself (`plain`)."""
    record_bucket_function: str = "xxh64"
    """Which bucket of the record index a key is in: by the hash `xxh64`, or, for plain keys, by
    `java_string` or a function that was registered."""
    key_salts: tuple[int, int] = stored(required=True, default_factory=_salts)
    """Random numbers that make this table's hashes of keys differ from those of any other."""
    buckets: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_BUCKETS))
    """Parts that each metadata partition is cut into, by its name; a compaction works part by part.
    Not the buckets of `index="bucket"`: those are `bucket_count`."""
    # the index `bucket`
    bucket_engine: str = SIMPLE
    """How a key's hash names its file group: by a fixed number of buckets (`simple`), or by a ring
    of ranges whose buckets are split and merged (`consistent_hashing`, `extendible_hashing`)."""
    bucket_count: int = 256
    """File groups per table partition, as many as Hudi makes by default: for ever where the engine
    is `simple`, else at first."""
    # the index `hbase`
    hbase_table: str = ""
    """The table of HBase that holds the keys."""
    hbase_address: str = ""
    """Host and port of HBase's Thrift gateway; or `sqlite:` and the path of a file."""
    hbase_requests_per_second: float = 0.0
    """Requests that each process sends at most; 0: no limit."""
    # data files
    table_type: str = COPY_ON_WRITE
    """What comes to a file group makes a new file of it (`cow`), or a log on top of it (`mor`)."""
    log_format: str = "avro"
    """How rows are stored in logs: as `avro`, or as `parquet`."""
    new_groups: str = BASE
    """What opens a file group: a `base` file or a `log`. Logs need a merge-on-read table and an
    index that finds keys in them; bulk inserts and overwrites always make base files."""
    file_rows: int = 500_000
    """The most rows that one commit puts into one file group (Hudi's insert split size)."""
    small_file_bytes: int = 100 << 20
    """Files below this size are given inserts before new file groups are made; 0: never."""
    file_bytes: int = 120 << 20
    """The size that new data files are planned for, by how wide the rows are."""
    cluster_by: tuple[str, ...] = ()
    """New files are cut by these columns, each a range of them; none: by the key."""
    row_group_rows: int = 128 << 10
    """The most rows in a row group of a data file."""
    parquet_codec: str = "zstd"
    """How data files are compressed: `zstd`, `snappy`, `gzip` or `none`."""
    footer_bloom_fpp: float = 1e-3
    """How often the filter in a data file's footer may let a key through that is not there. Hudi's
    own bloom writers fail on files without such a filter, so there always is one."""
    stats_columns: int = 32
    """Column statistics are kept of this many columns, the first ones, as in Hudi."""
    # metadata files
    filter_kind: str = "fingerprints"
    """The filters of the index `metadata_bloom`: `fingerprints` or `split_block`."""
    filter_fpp: float = 1e-9
    """How often such a filter may let a key through that is not in its file."""
    hfile_codec: str = "gz"
    """How index files are compressed: `gz`, `zstd` or `none`."""
    hfile_codecs: Mapping[str, str] = field(default_factory=dict)
    """The codec of single metadata partitions, by name; all others have `hfile_codec`."""
    record_filter_fpp: float = 0.0
    """How often a filter in an HFile of the record index may let a key through that is not there;
    0: they have none. For batches of new keys, which then read little more than filters."""
    hfile_block_bytes: int = 64 << 10
    """Size of a block of an index file before compression: the least that a lookup decodes."""
    hfile_target_bytes: int = 8 << 20
    """A commit cuts its entries into files of about this size, at bucket borders."""
    upkeep_files: int = 8
    """After this many commits a writer merges the newest small HFiles of each metadata partition,
    and the pages that list them; 0: never, that is left to operators."""
    timeline_commits: int = 100
    """Commits that stay on Hudi's timeline, at least. Older ones are archived by upkeep and by
    `clean`, and cannot be undone any more; 0: none is archived."""
    # commits
    lease_seconds: float = 60.0
    """A writer that has not renewed its lease for so long is taken for dead."""
    commit_retries: int = 20
    """How often a commit is tried again after another writer was first; then ConflictError."""
    # columns
    hudi_readable: bool = True
    """Every file has the table's columns under their names, for Hudi's readers go by names: a
    change of columns that breaks this writes the files anew."""
    # rings
    hudi_hashing_metadata: bool = False
    """Rings are stored where Hudi's writers look for them, too (`consistent_hashing`,
    merge-on-read)."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Words of a newer version, kept as they are."""

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
            given["cluster_by"] = _names(given["cluster_by"])
        given.setdefault("key_scope", "global" if index in ("record", HBASE) else "partition")
        _check_types({**given, "index": index})
        if index == BUCKET:
            _check_bucketed(given, bool(_names(partition_by)))
        given["buckets"] = DEFAULT_BUCKETS | dict(given.get("buckets", {}))
        if "hfile_codec" not in given:
            given["hfile_codecs"] = DEFAULT_CODECS | dict(given.get("hfile_codecs", {}))
        made = cls(
            name=name,
            key=_names(key),
            partition_by=_names(partition_by),
            ordering=ordering,
            index=index,
            **given,
        )
        made._check(columns)
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
        return made

    def changed(self, given: Mapping[str, Any], columns: Sequence[str]) -> Options:
        """These options with other values of `SETTABLE`, checked for a table of these columns.

        Raises UsageError, naming the option.
        """
        if not isinstance(given, Mapping):
            found, expected = type(given).__name__, "names and values"
            raise UsageError("options are no mapping", found=found, expected=expected)
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
            given["cluster_by"] = _names(given["cluster_by"])
        _check_types(given)
        if self.index == BUCKET:
            _check_bucketed({"key_scope": self.key_scope, **given}, bool(self.partition_by))
        made = dataclasses.replace(self, **given)
        made._check(columns)
        return made.keeping(self.buckets)

    def as_set_in(self, other: Options, columns: Sequence[str]) -> Options:
        """These options with the values that `other` has of `SETTABLE`, as far as a table of these
        columns and this index can have them."""
        kept = {word: getattr(other, word) for word in SETTABLE}
        if self.index == BUCKET or not set(other.cluster_by) <= set(columns):
            del kept["cluster_by"]
        return dataclasses.replace(self, **kept)

    def codec_of(self, partition: str) -> str:
        """How the HFiles of a metadata partition are compressed."""
        return self.hfile_codecs.get(partition, self.hfile_codec)

    @property
    def resizes(self) -> bool:
        """Whether its buckets may be split and merged: each table partition has a ring of them."""
        return self.index == BUCKET and self.bucket_engine != SIMPLE

    @property
    def has_logs(self) -> bool:
        """Whether commits put logs on top of file groups."""
        return self.table_type == MERGE_ON_READ

    @property
    def opens_by_logs(self) -> bool:
        """Whether file groups may begin as logs."""
        return self.new_groups == LOG

    @property
    def may_move(self) -> bool:
        """Whether a row that is written may have its key in another table partition."""
        return self.is_global and bool(self.partition_by)

    @property
    def is_global(self) -> bool:
        """A key lives once in the table, not once in each partition."""
        return self.key_scope == "global"

    def cutting(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Of columns that files are to be cut by, those of which a table partition may have more
        than one value; all of them, where there is none."""
        return tuple(one for one in columns if one not in self.partition_by) or tuple(columns)

    def most_rows(self, width: float) -> int:
        """Rows of this many bytes that one commit puts into one file group."""
        return max(1, min(self.file_rows, int(self.file_bytes / max(width, 1.0))))

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

    def _check(self, columns: Sequence[str]) -> None:
        self._check_columns(columns)
        _one_of("filter_kind", self.filter_kind, filters.kinds())
        _one_of("key_scope", self.key_scope, SCOPES)
        _one_of("bucket_engine", self.bucket_engine, BUCKET_ENGINES)
        _one_of("record_key_form", self.record_key_form, KEY_FORMS)
        _one_of("record_bucket_function", self.record_bucket_function, bucket_functions())
        _one_of("hfile_codec", self.hfile_codec, HFILE_CODECS)
        for partition, codec in self.hfile_codecs.items():
            _one_of(f"hfile_codecs.{partition}", codec, HFILE_CODECS)
        _one_of("table_type", self.table_type, TABLE_TYPES)
        _one_of("log_format", self.log_format, LOG_FORMATS)
        _one_of("new_groups", self.new_groups, NEW_GROUPS)
        if self.opens_by_logs and not self.has_logs:
            raise UsageError(
                "options contradict each other: without logs none can open a file group",
                new_groups=LOG,
                table_type=self.table_type,
                expected=f"table_type={MERGE_ON_READ!r}",
            )
        _one_of("parquet_codec", self.parquet_codec, PARQUET_CODECS)
        self._check_numbers()
        self._check_rings()
        self._check_outside()
        if self.record_key_form == "hash" and self.record_bucket_function != "xxh64":
            raise UsageError(
                "options contradict each other: a hashed record key has its bucket in its hash",
                record_key_form=self.record_key_form,
                record_bucket_function=self.record_bucket_function,
                expected="record_key_form='plain' with this bucket function",
            )

    def _check_columns(self, columns: Sequence[str]) -> None:
        if not self.key:
            raise UsageError("a table needs a key", key=self.key, expected="one column or more")
        ordering = () if self.ordering is None else (self.ordering,)
        named = (*self.key, *self.partition_by, *ordering, *self.cluster_by)
        for column in named:
            if column not in columns:
                raise UsageError("no such column", column=column, expected=list(columns))
        for word in ("key", "partition_by", "cluster_by"):
            names = getattr(self, word)
            if len(set(names)) != len(names):
                raise UsageError("a column is named twice", option=word, found=list(names))
        if self.cluster_by and self.index == BUCKET:
            raise UsageError(
                "options contradict each other: a bucket holds the keys of its hashes",
                cluster_by=list(self.cluster_by),
                index=BUCKET,
                expected="an index that leaves open which file a row goes to",
            )

    def _check_rings(self) -> None:
        if self.hudi_hashing_metadata and not self._is_as_hudi_hashes:
            raise UsageError(
                "options contradict each other: Hudi has no such hashing metadata",
                hudi_hashing_metadata=True,
                expected=f"index={BUCKET!r}, bucket_engine={CONSISTENT!r},"
                f" table_type={MERGE_ON_READ!r}",
                found=[self.index, self.bucket_engine, self.table_type],
            )
        count, least = self.bucket_count, f"1 to {MOST_NODES}"
        if not self.resizes or (count <= MOST_NODES and self.bucket_engine == CONSISTENT):
            return
        by_bits = f"{least}, a power of two" if self.bucket_engine == EXTENDIBLE else least
        if count > MOST_NODES or count & (count - 1):
            raise UsageError(
                "option out of range", option="bucket_count", expected=by_bits, found=count
            )

    @property
    def _is_as_hudi_hashes(self) -> bool:
        return self.resizes and self.bucket_engine == CONSISTENT and self.has_logs

    def _check_outside(self) -> None:
        for word in ("hbase_table", "hbase_address") if self.index == HBASE else ():
            found = getattr(self, word)
            if not _PLACES[word].fullmatch(found):
                raise UsageError(
                    "this index needs a place for its entries",
                    option=word,
                    expected=_EXPECTED[word],
                    found=found,
                )

    def _check_numbers(self) -> None:
        for word, (least, most) in _RANGES.items():
            if not least <= getattr(self, word) <= most:  # nan is nowhere
                expected = f"{least} to {most}"
                raise UsageError(
                    "option out of range", option=word, expected=expected, found=getattr(self, word)
                )
        for word in ("footer_bloom_fpp", "filter_fpp"):
            if not 0 < getattr(self, word) < 1:
                raise UsageError(
                    "option out of range",
                    option=word,
                    expected="0 < p < 1",
                    found=getattr(self, word),
                )
        rate = self.record_filter_fpp
        if rate != 0 and not LEAST_RATE <= rate < 1:
            raise UsageError(
                "option out of range",
                option="record_filter_fpp",
                expected=f"0, or from {LEAST_RATE:g} to less than 1",
                found=rate,
            )
        for partition, count in self.buckets.items():
            if not 1 <= count <= MOST_BUCKETS:
                raise UsageError(
                    "option out of range",
                    option=f"buckets.{partition}",
                    expected=f"1 to {MOST_BUCKETS}",
                    found=count,
                )


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


def _check_bucketed(given: Mapping[str, Any], partitioned: bool) -> None:
    """One file group a bucket: what would cut files in another way contradicts that."""
    for word in ("file_rows", "file_bytes", "small_file_bytes"):
        if word in given:
            raise UsageError(
                "options contradict each other: a bucket is one file group, however large",
                option=word,
                found=given[word],
                expected="more or fewer buckets (bucket_count)",
            )
    if partitioned and given["key_scope"] == "global":
        raise UsageError(
            "options contradict each other: a bucket holds keys of one table partition",
            option="key_scope",
            found="global",
            expected="partition, or a table without partitions",
        )


def _check_types(given: Mapping[str, Any]) -> None:
    """Words of another type are refused here, and not by whoever trips over them one day."""
    for one in dataclasses.fields(Options):
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


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _one_of(option: str, found: str, expected: Sequence[str]) -> None:
    if found not in expected:
        raise UsageError("no such choice", option=option, found=found, expected=list(expected))
