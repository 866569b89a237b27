"""Manifest: our log of versions. The put of version N+1 is the commit.

    manifest/<version, 20 digits>.json   root of one version, put-if-absent, never rewritten
    manifest/latest                      a hint: some version that exists, and its root's nonce;
                                         readers probe forward
    savepoints/<version>.json            the root of a version that is kept by a name
    pages/<id>.json                      immutable list of at most 256 HFile references

Root and pages are JSON objects `{"checksum": …, "body": …}`; the checksum is the CRC32C of the
body's compact form with sorted keys, in hex. Fields: metadata/FORMAT.md. Readers refuse a
root that asks for a newer reader, writers one that asks for a newer writer. Within the number
records may grow: `data/stored_fields.py` has the rule.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import google_crc32c

from metatable.data.options import Options
from metatable.data.stored_fields import (
    Kind,
    decode_fields,
    encode_fields,
    many,
    mapping_of,
    one_of,
    stored,
)
from metatable.data.timeline import CLUSTERING, COMPACTION
from metatable.storage.cache import cached, shared
from metatable.storage.errors import CorruptError, StaleError, UpgradeError, in_short
from metatable.storage.listing import Listed
from metatable.storage.store import Store

__all__ = [
    "HFileRef",
    "Manifest",
    "PageRef",
    "Part",
    "Pin",
    "Planned",
    "Step",
    "all_refs",
    "border",
    "checksum",
    "gone_since",
    "know_root",
    "least_reader",
    "list_roots",
    "load_newest",
    "load_version",
    "made_pages",
    "put_files",
    "put_hint",
    "read_page",
    "saved_path",
    "seal",
    "unseal",
    "version_path",
]

HOME = ".hoodie/metatable"
COMMITS = f"{HOME}/commits"
READER_FORMAT = 10
WRITER_FORMAT = 10
"""What those of a number do and those below it do not: FORMAT.md, "Formats"."""
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
"""Where slices may have nothing else."""
PAGE_REFS = 256
"""A page is read whole: this bounds it to some 100 kB."""


@dataclass(frozen=True, slots=True)
class HFileRef:
    """One HFile as a version sees it: of its places, those in [lo, hi) are still live."""

    path: str
    lo: int
    hi: int
    sequence: int
    """The version that published it: the newest wins by this, never by instant."""
    instant: str
    entry_count: int
    tombstone_count: int
    first_key: bytes
    last_key: bytes
    size_bytes: int
    checksum: str
    space: int = 0
    """How many places there are (`data/bucket_functions.py`). 0, in pages of format 1: `lo` and
    `hi` number the buckets of the partition."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def encode(self) -> dict[str, Any]:
        return encode_fields(self)

    @classmethod
    def decode(cls, body: Any, path: str = "") -> HFileRef:
        return decode_fields(cls, body, path, "reference")

    def placed(self, space: int, buckets: int) -> HFileRef:
        """The same in places. Raises CorruptError where they are those of another space."""
        if self.space == space:
            return self
        if self.space:
            raise CorruptError(
                "reference is in another space", path=self.path, expected=space, found=self.space
            )
        lo, hi = (border(space, buckets, bucket) for bucket in (self.lo, self.hi))
        return replace(self, lo=lo, hi=hi, space=space)

    def covers(self, lo: int, hi: int) -> bool:
        """Whether any of the places [lo, hi) are its own."""
        return self.lo < hi and lo < self.hi

    def without(self, lo: int, hi: int) -> list[HFileRef]:
        """What stays live of this reference when places [lo, hi) are taken over."""
        left = replace(self, hi=min(self.hi, lo))
        right = replace(self, lo=max(self.lo, hi))
        return [one for one in (left, right) if one.lo < one.hi]


@dataclass(frozen=True, slots=True)
class Part:
    """What an HFile holds in places [lo, hi)."""

    path: str
    lo: int
    hi: int
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, ref: HFileRef, lo: int, hi: int) -> Part:
        """What still counts of it there."""
        return cls(ref.path, max(ref.lo, lo), min(ref.hi, hi))


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page as a root names it."""

    path: str
    checksum: str
    ref_count: int
    newest_sequence: int
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """What has to be done after the put, before the next version may be put: `steps.py` does it.

    Which fields count is a matter of the kind.
    """

    kind: str
    instant: str
    staged: str
    """What lies ready for it: the path of a finished Hudi commit, of a plan."""
    checksum: str
    action: str = "commit"
    """What the instant is on Hudi's timeline."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Pin:
    """A savepoint: this version is kept."""

    version: int
    """Made by the data commit `instant`."""
    instant: str
    time_ms: int = 0
    """When it was pinned, epoch milliseconds UTC."""
    note: str = ""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Planned:
    """A compaction of logs, or a resize of buckets, that is scheduled, and was not carried out yet.

    Its file groups tell it, too: each names the base files that are to come (`files`).
    """

    plan: str
    """Where Hudi's plan of it lies, and its checksum."""
    checksum: str
    group_count: int = 0
    size_bytes: int = 0
    """Of the files that it reads."""
    time_ms: int = 0
    """When it was scheduled, epoch milliseconds UTC."""
    action: str = COMPACTION
    """What it is on Hudi's timeline: of a resize a clustering."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)


_OPTIONS = Kind("options", Options.encode, lambda body: Options.decode(body, ""))


@dataclass(frozen=True, slots=True)
class _Page:
    """What a page file holds."""

    partition: str
    refs: tuple[HFileRef, ...] = stored(many(HFileRef, "reference"))
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The root of one version. `time_ms` is when it was put, epoch milliseconds UTC."""

    version: int
    operation: str
    schema: str
    options: Options = stored(_OPTIONS, required=True)
    instant: str = ""
    """Of the data commit that this version publishes; empty for services."""
    time_ms: int = 0
    parent: int = 0
    nonce: str = stored(required=True, default_factory=lambda: uuid.uuid4().hex)
    latest_instant: str = ""
    """The greatest instant that any version has used or withdrawn: new ones are greater."""
    pages: Mapping[str, tuple[PageRef, ...]] = stored(
        mapping_of(many(PageRef, "page reference")), default_factory=dict
    )
    withdrawn: tuple[str, ...] = ()
    """Instants of dead or rolled-back writers: they can never be published (again)."""
    restored_at: int = 0
    """The newest version made by a rollback, or by a change of the index: writers begun before it
    must start again."""
    last_commit: tuple[int, str] | None = None
    """(version, instant) of the newest data commit in this content: what a rollback undoes."""
    steps: tuple[Step, ...] = stored(many(Step, "step"), default=())
    summary: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)
    """What whoever made this version wanted to be remembered with it."""
    format: Mapping[str, int] = field(
        default_factory=lambda: {"reader": LEAST_READER, "writer": WRITER_FORMAT}
    )
    """The least reader and the least writer that understand this version."""
    commits: str = ""
    """Sum of the data commits in this content (`CommitSum`): who else writes on the timeline
    is found by it. Empty in roots of writers that did not keep it."""
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
    """Of another writer's table: data commits on Hudi's timeline that were there before us."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> str:
        return version_path(self.version)

    @property
    def data(self) -> tuple[Any, ...]:
        """Equal of two versions of one history: the same slices, and none has come to wait."""
        return self.last_commit, self.commits, {**self.compactions}

    def keeps(self, version: int) -> bool:
        """Whether this (newest) version still keeps that one."""
        return version >= self.oldest or any(one.version == version for one in self.pins.values())

    @property
    def border(self) -> str:
        """No instant below it is published any more: of the timeline's first commit, and of the
        latest savepoint."""
        return max([self.archived, *(one.instant for one in self.pins.values())])

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
        """Raises CorruptError, also where the file is another version's, and UpgradeError."""
        body = unseal(raw, path)
        _check_format(body, path)
        made = decode_fields(cls, body, path, "manifest")
        if made.path != path:
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
        return made


def least_reader(
    options: Options, misleads: bool = False, waiting: Collection[Planned] = ()
) -> int:
    """Whom a version with these options asks for; `misleads`: by name a wrong column is found;
    `waiting`: what is scheduled in it."""
    if options.opens_by_logs:
        return READER_OF_LOGS_ALONE
    if any(one.action == CLUSTERING for one in waiting):
        return READER_OF_CHILDREN
    if options.has_logs:
        return READER_OF_LOGS
    if options.resizes:
        return READER_OF_RINGS
    return READER_BY_ID if misleads else LEAST_READER


def border(space: int, buckets: int, bucket: int) -> int:
    """The first place of a bucket: place p is in bucket `p * buckets // space`."""
    return -(-space * bucket // buckets)


def version_path(version: int) -> str:
    return f"{HOME}/manifest/{version:020d}.json"


def saved_path(version: int) -> str:
    """Where the root of a savepoint's version lies, too: roots go from the oldest, without gaps."""
    return f"{HOME}/savepoints/{version:020d}.json"


def load_newest(store: Store) -> Manifest | None:
    """The newest version, or None where there is no table. Three small requests: the hint, the root
    that it names and the one behind it; in one round where this process has seen that root before,
    else in two.

    The hint saves a listing; one that is lost, garbage, or names no version costs one. One of a
    version that was cleaned may name what a writer who slept has put there in its place (which is
    void, `commit.py`): so it tells the nonce of the root that it means.
    """
    seen: int | None = shared.get(("seen", store.uri))
    hint: Callable[[], Any] = partial(_hinted, store)
    (version, nonce), *pair = store.together([hint, *_pair(store, seen)])
    if version is not None and version != seen:
        pair = list(store.together(_pair(store, version)))
    if version is None or pair[0] is None or nonce not in pair[0]:
        version = max(list_roots(store), default=None)
        pair = list(store.together(_pair(store, version)))
    if version is None:
        return None
    raw, later = pair
    if raw is None:
        raise CorruptError("manifest vanished while it was read", path=version_path(version))
    while later is not None:
        version, raw = version + 1, later
        later = store.get(version_path(version + 1))
    shared.replace(("seen", store.uri), version, 200)
    return _decoded(store, raw, version)


def _decoded(store: Store, raw: bytes, version: int) -> Manifest:
    """A root; that which this process has met last is not parsed again while its bytes are the
    same."""
    known, name = shared.get(("root", store.uri)), version_path(version)
    if known is None or known[0] != (name, raw):
        known = (name, raw), Manifest.decode(raw, name)
        shared.replace(("root", store.uri), known, 10 * len(raw))
    newest: Manifest = known[1]
    return newest


def _pair(store: Store, version: int | None) -> list[Callable[[], Any]]:
    """Calls for a root and the one behind it."""
    if version is None:
        return []
    return [partial(store.get, version_path(one)) for one in (version, version + 1)]


def load_version(store: Store, version: int) -> Manifest:
    """The root of one version. Raises StaleError where it is not there (any more)."""
    raw = store.get(version_path(version))
    if raw is None:
        raw = store.get(saved_path(version))
    if raw is None:
        raise StaleError(
            "no such version, or it is not kept any more",
            path=version_path(version),
            version=version,
        )
    return Manifest.decode(raw, version_path(version))


def gone_since(store: Store, version: int) -> Manifest | None:
    """The newest version, if files that `version` names may have been deleted: by a rollback after
    it, or because it is not kept any more."""
    newest = load_newest(store)
    if newest is None or (newest.restored_at <= version and newest.keeps(version)):
        return None
    return newest


def know_root(store: Store, manifest: Manifest, raw: bytes) -> None:
    """This process has put that root: it is not parsed when it is met with these bytes."""
    shared.replace(("root", store.uri), ((manifest.path, raw), manifest), 10 * len(raw))


def put_hint(store: Store, manifest: Manifest) -> None:
    """Tell readers where to begin probing; a hint may be old, lost or garbage without harm. This
    process knows by then, and asks for the root itself next time."""
    shared.replace(("seen", store.uri), manifest.version, 200)
    hint = f"{manifest.version} {manifest.nonce}".encode()
    store.put(f"{HOME}/manifest/latest", hint, lasting=False)


def made_pages(
    partition: str, refs: Sequence[HFileRef], prefix: str
) -> tuple[tuple[PageRef, ...], dict[str, bytes]]:
    """New pages holding `refs`, and what has to be put for them (`put_files`) before a root that
    names them is; `prefix` tells their owner."""
    chunks = [refs[start : start + PAGE_REFS] for start in range(0, len(refs), PAGE_REFS)]
    made = [_made_page(partition, chunk, prefix) for chunk in chunks]
    return tuple(page for page, _ in made), {page.path: raw for page, raw in made}


def put_files(store: Store, files: Mapping[str, bytes]) -> None:
    """Put files that no version names yet, by path, together."""
    puts = [partial(store.put, path, body) for path, body in files.items()]
    store.together(puts, writes=True)


def read_page(store: Store, page: PageRef) -> tuple[HFileRef, ...]:
    """The references of one page; kept in the process's cache, for a page never changes."""
    return cached(
        ("page", store.uri, page.path, page.checksum),
        lambda: _read_page(store, page),
        lambda refs: 600 * len(refs) + 200,
    )


def checksum(raw: bytes) -> str:
    """CRC32C in hex, as manifests name it."""
    return f"{google_crc32c.value(raw):08x}"


def _made_page(partition: str, refs: Sequence[HFileRef], prefix: str) -> tuple[PageRef, bytes]:
    raw = seal(encode_fields(_Page(partition, tuple(refs))))
    path = f"{HOME}/pages/{prefix}{uuid.uuid4().hex}.json"
    return PageRef(path, checksum(raw), len(refs), max(ref.sequence for ref in refs)), raw


def _read_page(store: Store, page: PageRef) -> tuple[HFileRef, ...]:
    raw = store.fetch(page.path)
    if checksum(raw) != page.checksum:
        raise CorruptError(
            "page is not the one that the manifest names",
            path=page.path,
            expected=page.checksum,
            found=checksum(raw),
        )
    return decode_fields(_Page, unseal(raw, page.path), page.path, "page").refs


def _hinted(store: Store) -> tuple[int | None, bytes]:
    """(version, nonce) as the hint has them; writers below format 5 tell no nonce."""
    version, _, nonce = (store.get(f"{HOME}/manifest/latest") or b"").partition(b" ")
    return int(version) if version.isdigit() and len(version) <= 20 else None, nonce


def list_roots(store: Store) -> dict[int, Listed]:
    """The roots that are there, by version: one listing."""
    listed = store.list(f"{HOME}/manifest")
    return {
        int(one.name[:20]): one
        for one in listed
        if one.name[:20].isdigit() and one.name[20:] == ".json"
    }


def _compact(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def seal(body: Mapping[str, Any]) -> bytes:
    """A body with its checksum, as roots, pages and plans are stored: all on one line."""
    compact = _compact(body)
    return b'{"body":%s,"checksum":"%s"}' % (compact, checksum(compact).encode())


def unseal(raw: bytes, path: str, what: str = "manifest") -> dict[str, Any]:
    """The body. Raises CorruptError."""
    try:
        sealed = json.loads(raw)
        body, expected = sealed["body"], sealed["checksum"]
        found = checksum(_compact(body))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"not a {what} file", path=path, found=in_short(error)) from error
    if found != expected or not isinstance(body, dict):
        raise CorruptError("checksum mismatch", path=path, expected=expected, found=found)
    return body


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


def all_refs(store: Store, pages: Iterable[PageRef]) -> list[HFileRef]:
    """The references of many pages, newest first."""
    read = store.together([partial(read_page, store, page) for page in pages])
    refs = [ref for held in read for ref in held]
    return sorted(refs, key=lambda ref: (-ref.sequence, ref.lo, ref.path))
