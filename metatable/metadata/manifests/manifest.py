"""Manifest: the log of a table's versions. The put of version N+1 is the commit.

    manifest/<version, 20 digits>.json   root of one version, put-if-absent, never rewritten
    savepoints/<version>.json            the same bytes, where a version is kept by a name

A root is sealed JSON (`sealed.py`), and names pages (`pages.py`). Which roots there are:
`versions.py`. Fields: metadata/FORMAT.md. Readers refuse a root that asks for a newer reader,
writers one that asks for a newer writer. Within the number records may grow:
`data/stored_fields.py` has the rule.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from metatable.data.config.options import Options
from metatable.data.hoodie.timeline import CLUSTERING, COMPACTION
from metatable.data.stored_fields import (
    Kind,
    decode_fields,
    encode_fields,
    many,
    mapping_of,
    one_of,
    stored,
)
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.pages import HFileRef, PageRef
from metatable.metadata.manifests.sealed import seal, unseal
from metatable.storage.errors import CorruptError, UpgradeError

__all__ = [
    "LEAST_READER",
    "READER_BY_ID",
    "READER_FORMAT",
    "READER_OF_CHILDREN",
    "READER_OF_LOGS",
    "READER_OF_LOGS_ALONE",
    "READER_OF_OWN_REFS",
    "READER_OF_RINGS",
    "WRITER_FORMAT",
    "Manifest",
    "Pin",
    "Planned",
    "Step",
    "least_reader",
    "saved_path",
    "version_path",
]

READER_FORMAT = 11
WRITER_FORMAT = 11
"""The formats that this library reads and writes; what each number stands for is in FORMAT.md,
"Formats"."""
LEAST_READER = 2
"""Whom a version asks for, if nothing of what follows is so."""
READER_BY_ID = 6
"""Where columns have to be found by their ids."""
READER_OF_RINGS = 7
"""Where keys have to be found by rings."""
READER_OF_LOGS = 8
"""Where slices have logs."""
READER_OF_CHILDREN = 9
"""Where those lie in other groups, too: a resize waits."""
READER_OF_LOGS_ALONE = 10
"""The reader that is asked for where slices may have logs and no base file."""
READER_OF_OWN_REFS = 11
"""Where the root itself has references."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do after a version was put, and before the next one may be: `steps.py` does it.

    Which fields count depends on the kind.
    """

    kind: str
    """The name of what is to be done, of `steps.KINDS`."""
    instant: str = stored(required=True, default="")
    """The instant on Hudi's timeline that it is about; empty where it is about none."""
    staged: str = stored(required=True, default="")
    """The path of the file that lies ready for it: a finished Hudi commit, or a plan."""
    checksum: str = stored(required=True, default="")
    """That of the bytes of this file (`sealed.checksum`); empty where none is compared."""
    action: str = "commit"
    """What the instant is on Hudi's timeline."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Pin:
    """A savepoint: this version is kept."""

    version: int
    """The version that the data commit `instant` has made, or a service's behind it."""
    instant: str
    time_ms: int = 0
    """When it was pinned, epoch milliseconds UTC."""
    note: str = ""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Planned:
    """A compaction of logs, or a resize of buckets, that is scheduled and not yet carried out.

    The entries of its file groups tell it, too: each names the base files to come (`files`).
    """

    plan: str
    """The path of Hudi's plan of it."""
    checksum: str
    group_count: int = 0
    size_bytes: int = 0
    """The size of the files that it reads."""
    time_ms: int = 0
    """When it was scheduled, epoch milliseconds UTC."""
    action: str = COMPACTION
    """What it is on Hudi's timeline: a compaction, or, for a resize, a clustering."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


_OPTIONS = Kind("options", Options.encode, lambda body: Options.decode(body, ""))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The root of one version: what made it, the table's schema and options, and its index files.

    `time_ms` is when it was put, in epoch milliseconds UTC.
    """

    version: int
    operation: str
    schema: str
    options: Options = stored(_OPTIONS, required=True)
    instant: str = ""
    """The instant on Hudi's timeline, for commits and for services that write data files; empty
    otherwise."""
    time_ms: int = 0
    parent: int = 0
    nonce: str = stored(required=True, default_factory=lambda: uuid.uuid4().hex)
    latest_instant: str = ""
    """The greatest instant that any version has used or withdrawn; new ones are greater."""
    pages: Mapping[str, tuple[PageRef, ...]] = stored(
        mapping_of(many(PageRef, "page reference")), default_factory=dict
    )
    withdrawn: tuple[str, ...] = ()
    """Instants of dead or rolled-back writers: they can never be published (again)."""
    restored_at: int = 0
    """The newest version made by a rollback, a change of the index, or a repair of its entries:
    writers begun before it must start again."""
    last_commit: tuple[int, str] | None = None
    """(version, instant) of the newest data commit in this content: what a rollback undoes."""
    steps: tuple[Step, ...] = stored(many(Step, "step"), default=())
    summary: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)
    """Names and values that the maker of this version gave to be kept with it."""
    format: Mapping[str, int] = field(
        default_factory=lambda: {"reader": LEAST_READER, "writer": WRITER_FORMAT}
    )
    """The least reader and the least writer that understand this version."""
    commits: str = ""
    """Sum of the data commits in this content (`CommitSum`), by which other writers on the timeline
    are found. Empty in roots of writers that did not keep it."""
    oldest: int = 0
    """Versions below it are not kept: their files may be gone."""
    archived: str = ""
    """Hudi's timeline begins here: what is older was taken off it, and counts as committed. No
    instant below it can be published any more, or Hudi's readers would lose those rows."""
    fenced: Mapping[str, int] = field(default_factory=dict)
    """Services that were taken for dead, by the version that did: they publish nothing more."""
    pins: Mapping[str, Pin] = stored(mapping_of(one_of(Pin, "savepoint")), default_factory=dict)
    """Savepoints, by name."""
    compactions: Mapping[str, Planned] = stored(
        mapping_of(one_of(Planned, "what is scheduled")), default_factory=dict
    )
    """Scheduled compactions of logs, and resizes of buckets, by instant."""
    adopted: tuple[str, ...] = ()
    """In a table that was adopted: data commits of the other writer on Hudi's timeline, and always
    its last one, which tells its files from ours."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> str:
        return version_path(self.version)

    @property
    def is_commit(self) -> bool:
        """Whether it publishes a commit of rows: those of services have an instant, too, where they
        are on Hudi's timeline."""
        return bool(self.instant) and self.last_commit == (self.version, self.instant)

    @property
    def data(self) -> tuple[Any, ...]:
        """Equal for two versions of one history if these have the same slices, and the same
        scheduled services wait."""
        return self.last_commit, self.commits, {**self.compactions}

    @property
    def page_files(self) -> Iterator[PageRef]:
        """Of the pages of all metadata partitions those that are files."""
        return (page for pages in self.pages.values() for page in pages if page.path)

    @property
    def own_refs(self) -> Iterator[HFileRef]:
        """The references of all other pages."""
        return (ref for pages in self.pages.values() for page in pages for ref in page.refs)

    def keeps(self, version: int) -> bool:
        """Whether this (newest) version still keeps that one."""
        return version >= self.oldest or any(one.version == version for one in self.pins.values())

    def is_of(self, other: Manifest) -> bool:
        """Whether both are versions of one table, or of a copy of it: the salts are drawn when a
        table is made, and stay."""
        return self.options.key_salts == other.options.key_salts

    @property
    def border(self) -> str:
        """The instant below which none is published any more: that of the timeline's first commit,
        or of the latest savepoint."""
        return max([self.archived, *(one.instant for one in self.pins.values())])

    @property
    def held(self) -> frozenset[str]:
        """Instants that Hudi's timeline is not archived past: of savepoints, and of what waits."""
        return frozenset([*(one.instant for one in self.pins.values()), *self.compactions])

    def encode(self) -> bytes:
        return seal(encode_fields(self))

    def check_writable(self) -> None:
        """Refuse to write a table whose format asks for a newer writer."""
        if self.format.get("writer", 0) > WRITER_FORMAT:
            raise UpgradeError(
                "table has a newer format: upgrade metatable to write it",
                path=self.path,
                expected=f"writer format {WRITER_FORMAT} or less",
                found=dict(self.format),
            )

    @classmethod
    def decode(cls, raw: bytes, path: str) -> Manifest:
        """From its place, or from a savepoint's copy. Raises CorruptError, also where the file is
        another version's, and UpgradeError."""
        body = unseal(raw, path)
        _check_format(body, path)
        made = decode_fields(cls, body, path, "manifest")
        if path not in (made.path, saved_path(made.version)):
            raise CorruptError(
                "manifest is another version's",
                path=path,
                expected=int(path[-25:-5]),
                found=made.version,
            )
        if not 0 <= made.parent < made.version:
            raise CorruptError(
                "manifest has no version before it", path=path, expected="less", found=made.parent
            )
        if made.last_commit is not None and not 0 < made.last_commit[0] <= made.version:
            raise CorruptError(  # whoever goes back by it would go in a circle
                "manifest names a commit that is no version yet",
                path=path,
                expected=f"1 to {made.version}",
                found=made.last_commit,
            )
        return made


def least_reader(
    options: Options,
    misleads: bool = False,
    waiting: Collection[Planned] = (),
    pages: Mapping[str, Sequence[PageRef]] = MappingProxyType({}),
) -> int:
    """The reader that a version with these options asks for. `misleads`: by name a wrong column is
    found; `waiting`: what is scheduled in the version; `pages`: those of its root."""
    if any(page.refs for held in pages.values() for page in held):
        return READER_OF_OWN_REFS
    if options.opens_by_logs:
        return READER_OF_LOGS_ALONE
    if any(one.action == CLUSTERING for one in waiting):
        return READER_OF_CHILDREN
    if options.has_logs:
        return READER_OF_LOGS
    if options.resizes:
        return READER_OF_RINGS
    return READER_BY_ID if misleads else LEAST_READER


def version_path(version: int) -> str:
    """Where the root of a version lies."""
    return f"{HOME}/manifest/{version:020d}.json"


def saved_path(version: int) -> str:
    """The path of a second copy of a savepoint's root, because roots are deleted from the oldest
    on, without gaps."""
    return f"{HOME}/savepoints/{version:020d}.json"


def _check_format(body: Mapping[str, Any], path: str) -> None:
    found = body.get("format")
    reader = found.get("reader") if isinstance(found, dict) else None
    if type(reader) is not int or reader > READER_FORMAT:
        raise UpgradeError(
            "table has a newer format: upgrade metatable",
            path=path,
            expected=f"reader format {READER_FORMAT} or less",
            found=found,
        )
