"""What the methods of a `Table` return: counts, files, bytes, seconds; each prints as text that
people can read, and has `to_dict` or is a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from metatable.data.rows.row_counts import RowCounts
from metatable.data_files import DataFiles
from metatable.storage.errors import Finding
from metatable.storage.sizes import size_text

__all__ = [
    "CommitInfo",
    "DataFiles",
    "Description",
    "Explain",
    "Fault",
    "SavepointInfo",
    "ServiceResult",
    "TableFinding",
    "WriteResult",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WriteResult(RowCounts):
    """What a write did: its row counts, the files it wrote, what it cost."""

    operation: str
    version: int
    """The table's version after it."""
    instant: str | None
    """The commit on Hudi's timeline; None: there was nothing to do, and no version was made."""
    files: int = 0
    """Data files written: base files and logs, but not index files."""
    bytes: int = 0
    """The size of these files."""
    attempts: int = 1
    """How often it was tried; each attempt but the last one lost a race against another writer, or
    carried out a compaction of logs that waited."""
    seconds: float = 0.0
    engine: str = "local"
    """Where its files were written: "spark", or "local": in this process."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What it asked of the store, and what it did, by name: `store.requests` and others."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        counts = {
            name: getattr(self, name)
            for name in ("inserted", "updated", "deleted", "moved", "stale", "absent")
            if getattr(self, name)
        }
        told = [f"{count:,} {name}" for name, count in counts.items()]
        if self.inserted is None and not told:
            told = ["rows inserted or updated, which is not known"]
        if self.deleted is None:
            told.append("rows deleted, how many is not known")
        nothing = "nothing to do" if self.instant is None else "no row changed"
        did = ", ".join(told) or nothing
        on = " on Spark" if self.engine == "spark" else ""
        return (
            f"{self.operation} -> version {self.version}: {did}; {self.files} files,"
            f" {size_text(self.bytes)}, {self.seconds:.2f} s{on}"
        )


class Fault(StrEnum):
    """What can be wrong with a table: all kinds of faults that `verify` tells apart.

    docs/repair.md says what each one is, and what `repair` does about it.
    """

    PROPERTIES = "properties"
    FOREIGN_COMMIT = "foreign-commit"
    LATE_COMMIT = "late-commit"
    COMMIT_MISSING = "commit-missing"
    COMMIT_DAMAGED = "commit-damaged"
    TRACES_MISSING = "traces-missing"
    STRAY_INSTANT = "stray-instant"
    SAVEPOINT = "savepoint"
    VERSION = "version"
    PAGE = "page"
    HFILE = "hfile"
    PLAN = "plan"
    PARTITION_METADATA = "partition-metadata"
    FILE_SIZE = "file-size"
    FILE_DAMAGED = "file-damaged"
    COLUMN_TYPE = "column-type"
    PARTITION_PATH = "partition-path"
    PLACEMENT = "placement"
    FOOTER = "footer"
    DUPLICATE_KEYS = "duplicate-keys"
    FILES = "files"
    COLUMN_STATS = "column-stats"
    BLOOM_FILTER = "bloom-filter"
    RECORD_INDEX = "record-index"
    HASHING_METADATA = "hashing-metadata"
    ENTRIES = "entries"
    ENTRY_COUNT = "entry-count"


@dataclass(frozen=True, slots=True)
class TableFinding(Finding):
    """A fault of a table. `code` is its kind, a `Fault`; `where` a path, a metadata partition or a
    name; `detail` says in words what was expected and found there."""

    remedy: str = ""
    """What `repair` does about it; empty: nothing, and the detail names the way out."""
    rows_lost: int = 0
    """Rows that are gone with it; -1: some, and nobody knows how many."""

    @property
    def kind(self) -> Fault:
        """Its `code` as a `Fault`."""
        return Fault(self.code)


@dataclass(frozen=True, slots=True, repr=False)
class ServiceResult:
    """What a table service did, or, as a dry run, would do. Numbers that a service does not count,
    or a dry run does not know, are 0.

                     files_before                  files_after        entries
    compact          all HFiles of the index       the same           entries of the new HFiles
    compact_logs     base files and logs merged    base files made    rows written
    cluster          file groups cut anew          base files made    rows written
    resize_buckets   buckets with files            base files made    rows written
    verify, repair                                                    rows looked at
    """

    service: str
    version: int
    """The table's version after it; of a dry run the one it looked at."""
    files_before: int = 0
    files_after: int = 0
    entries: int = 0
    bytes_read: int = 0
    """Bytes read from the store, the metadata included."""
    bytes_written: int = 0
    """Bytes written to the store, index files and plans included."""
    seconds: float = 0.0
    reason: str = ""
    """In words: what was done, what is due, or why nothing is."""
    findings: tuple[TableFinding, ...] = ()
    """Of `verify` and `repair`: faults, the first hundred of each kind."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What it asked of the store, and what it did, by name."""
    plan: str = ""
    """The name of the stored plan that was made, carried out, or that waits."""
    files_deleted: int = 0
    """Of `clean`: files deleted, of any kind; of its dry run those that would be."""
    bytes_deleted: int = 0
    """The size of these files."""
    finding_counts: Mapping[str, int] = field(default_factory=dict)
    """How many faults there are, by kind; `findings` may name fewer."""
    rows_lost: int = 0
    """Rows of data files that are gone, as far as it is known how many."""
    depth_before: Mapping[str, float] = field(default_factory=dict)
    """Of `cluster`, by column: how many files hold a value, on average
    (`metadata/partitions/overlap.py`)."""
    depth_after: Mapping[str, float] = field(default_factory=dict)

    @property
    def unmended(self) -> tuple[TableFinding, ...]:
        """The findings for which `repair` has no remedy."""
        return tuple(one for one in self.findings if not one.remedy)

    def to_dict(self) -> dict[str, Any]:
        """All fields; the findings twice: as texts, and in `faults` with their own fields."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        faults = [asdict(one) for one in self.findings]
        return told | {"findings": [str(one) for one in self.findings], "faults": faults}

    def __repr__(self) -> str:
        text = f"{self.service} -> version {self.version}: {self.reason or 'done'}"
        if self.files_before or self.files_after:
            text += f"; {self.files_before} -> {self.files_after} files"
        if self.files_deleted:
            text += f"; {self.files_deleted:,} files deleted, {size_text(self.bytes_deleted)}"
        if self.depth_after:
            told = (f"{name} in {depth:.1f}" for name, depth in self.depth_after.items())
            text += f", a value of {', '.join(told)}"
        if self.plan:
            text += f"; plan {self.plan}"
        if self.findings:
            text += f"; {sum(self.finding_counts.values()) or len(self.findings):,} findings"
        if self.rows_lost:
            text += f"; {self.rows_lost:,} rows lost"
        if self.bytes_written:
            text += f"; {size_text(self.bytes_written)} written"
        return f"{text}; {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True, repr=False)
class Explain:
    """What an operation looked at, level by level, and what that cost. None: it has no such
    number."""

    keys: int | None
    """Keys that were asked for."""
    found: int | None
    """Those of them that have a location."""
    seconds: float
    counters: Mapping[str, int] = field(default_factory=dict)
    """What it asked of the store, and what it did, by name."""
    operation: str = "tag_locations"
    files: Mapping[str, int] = field(default_factory=dict)
    """How many files are left after each level, by the level's name, in order; the first number is
    all there are."""
    file_bytes: int | None = None
    """The size of the files left at the end."""
    buckets: BucketSpread | None = None
    """With the index `bucket`: how the keys spread over the buckets."""
    depths: Mapping[str, float] = field(default_factory=dict)
    """Of a scan, by column that its condition names: how many files hold a value, on average."""

    @property
    def requests(self) -> int:
        """Requests to the store, be it a disk or a service."""
        return self.counters.get("store.requests", 0)

    @property
    def bytes(self) -> int:
        """Bytes read from the store."""
        return self.counters.get("store.bytes_read", 0)

    @property
    def blocks(self) -> int:
        """HFile blocks decoded; those that were in memory already are not counted."""
        return self.counters.get("hfile.blocks", 0)

    @property
    def pages(self) -> int:
        """Single pages of data files read; a column that was read whole counts none."""
        return self.counters.get("data.pages", 0)

    def to_dict(self) -> dict[str, Any]:
        cost = {"requests": self.requests, "bytes": self.bytes, "blocks": self.blocks}
        return asdict(self) | cost | {"pages": self.pages}

    def __repr__(self) -> str:
        rows = [("keys", self.keys, ""), ("keys found", self.found, "")]
        rows += [(f"files, {level}", count, "") for level, count in self.files.items()]
        if self.files and self.file_bytes is not None:
            rows[-1] = (*rows[-1][:2], size_text(self.file_bytes))
        rows += self.buckets.rows if self.buckets is not None else []
        rows.append(("HFile blocks", self.blocks, ""))
        if self.pages:
            rows.append(
                ("data pages", self.pages, size_text(self.counters.get("data.page_bytes", 0)))
            )
        rows.append(("requests", self.requests, size_text(self.bytes)))
        rows += self._outside()
        cells = [(name, f"{count:,}", note) for name, count, note in rows if count is not None]
        cells.append(("seconds", f"{self.seconds:.3f}", ""))
        width, digits = (max(len(row[place]) for row in cells) for place in (0, 1))
        lines = [f"  {name:<{width}}  {count:>{digits}}  {note}" for name, count, note in cells]
        for name, depth in self.depths.items():
            lines.append(f"  a value of {name} is in {depth:.1f} files")
        if self.buckets is not None:
            lines.append(f"  the fullest bucket: {self.buckets.of_fullest}")
        return "\n".join([self.operation, *(line.rstrip() for line in lines)])

    def _outside(self) -> list[tuple[str, int | None, str]]:
        """What a key-value store was asked, if one was: retries are among the requests."""
        told = {name: self.counters.get(f"kv.{name}", 0) for name in ("batches", "requests")}
        if not told["requests"]:
            return []
        read, retries = (self.counters.get(f"kv.{name}", 0) for name in ("bytes_read", "retries"))
        return [
            ("key-value batches", told["batches"], ""),
            ("key-value requests", told["requests"], size_text(read)),
            ("key-value retries", retries, ""),
        ]


@dataclass(frozen=True, slots=True)
class BucketSpread:
    """How keys spread over the buckets of their table partitions.

    `buckets` is the number of buckets in these `partitions`. `touched` of them get keys;
    `without_files` of those have no file yet, and `bytes` is the size of the others. The bucket
    `fullest` gets `fullest_keys`, `skew` times the mean of those touched; `fullest_bytes` is its
    size (None: no file yet).
    """

    partitions: int
    buckets: int
    touched: int
    without_files: int
    bytes: int
    fullest_keys: int
    skew: float
    fullest: str
    fullest_bytes: int | None

    @property
    def rows(self) -> list[tuple[str, int | None, str]]:
        """Lines of a table for people: name, number, and what else there is to say."""
        files = f"{size_text(self.bytes)} of files"
        if self.without_files:
            files += f", {self.without_files:,} without one"
        return [
            ("buckets", self.buckets, f"in {self.partitions:,} partitions"),
            ("buckets touched", self.touched, files),
            ("keys in the fullest", self.fullest_keys, f"{self.skew} x the mean"),
        ]

    @property
    def of_fullest(self) -> str:
        """The fullest bucket and its size, for people."""
        held = "no file" if self.fullest_bytes is None else size_text(self.fullest_bytes)
        return f"{self.fullest}, {held}"


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One version of a table: what made it, when, and its counts."""

    version: int
    operation: str
    instant: str
    """The instant on Hudi's timeline, for commits and for services that write data files; empty
    otherwise."""
    time_ms: int
    """When it was published: epoch milliseconds, UTC."""
    summary: Mapping[str, int]
    """Counts by name. Of a write: rows `inserted`, `updated`, `deleted`, `moved` and `stale` (those
    that are not known are left out), index `misses`, `rows` and `bytes` of the data files that it
    wrote. Services have counts of their own."""
    note: Mapping[str, str] = field(default_factory=dict)
    """Names and values that its writer gave as `note`."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """A version that is kept under a name."""

    name: str
    version: int
    instant: str
    """The last data commit that the version holds."""
    time_ms: int
    """When the savepoint was made: epoch milliseconds, UTC."""
    note: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Description:
    """What a table is: its address, its key and other options, and how much it holds in its newest
    version."""

    uri: str
    name: str
    version: int
    instant: str
    """The last data commit; empty: there is none."""
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: str | None
    index: str
    key_scope: str
    columns: Mapping[str, str]
    """The columns and their Arrow types as text, in order, without Hudi's meta columns."""
    file_groups: int
    partitions: int
    """Table partitions that have file groups."""
    rows: int | None
    """None where some file groups have logs: only a scan that merges them can tell."""
    data_bytes: int
    """The size of all live base files and logs."""
    metadata: Mapping[str, Mapping[str, int]]
    """Of each metadata partition, by name: its `buckets`, `hfiles`, `entries`, `tombstones` (marks
    of entries that are gone) and `bytes`."""
    oldest_version: int = 1
    """The oldest version that is kept; savepoints may keep older ones."""
    table_type: str = "cow"
    log_files: int = 0
    log_bytes: int = 0
    """The size of the logs, which is a part of `data_bytes`."""
    cluster_by: tuple[str, ...] = ()
    depths: Mapping[str, float] = field(default_factory=dict)
    """For each column of `cluster_by`: how many files hold a value, on average."""
    usage: Mapping[str, int] | None = None
    """Bytes of all files of the table, with `describe(listing=True)`: `live`, `kept` for older
    versions, `reclaimable` by `clean`, and `others`, which belong to writers at work or are not
    ours to judge."""
    buckets: Mapping[str, float] | None = None
    """Of a table whose buckets have rings: the number of `buckets`, of those `with_files`, and of
    `resized_partitions`; `largest_bytes`, the size of the fullest bucket; and `skew`, how many
    times the mean that is."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
