"""Options: which there are, what they mean, and what follows from each.

They are said when a table is created (`options.py`), and checked there (`option_checks.py`). Those
in `SETTABLE` may change later (`set_options`), and those of the index change with it (`adopt`); all
others are fixed for the life of the table.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metatable.data.stored_fields import stored

__all__ = ["SETTABLE", "OptionValues"]

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
"""The least share of absent keys that a filter in an index file may let through: below that it
would be as large as what it spares."""

MOST_BUCKETS = 1 << 16

MOST_NODES = 1 << 17
"""Buckets that a ring begins with, at most: each is named in memory."""


def _salts() -> tuple[int, int]:
    """Two random int64, from which the seeds of the record keys' 128-bit hash are derived."""
    return secrets.randbits(64) - (1 << 63), secrets.randbits(64) - (1 << 63)


@dataclass(frozen=True, slots=True)
class OptionValues:
    """The values of a table's options. Sizes are bytes, times are seconds, rates are between 0 and
    1.

    Those in `SETTABLE` say how new files are made and when services are due. All others are what is
    stored goes by.
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
    """Column statistics are kept of this many columns, the first ones, as in Hudi, and of those of
    the key and the ordering wherever they stand; 0: of none."""
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
