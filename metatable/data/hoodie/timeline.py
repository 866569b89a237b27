"""Timeline: Hudi's log of what was done to a table, layout 1 (flat in `.hoodie/`).

An action goes through three states, each a file that is made once and never rewritten:

    <instant>.<action>.requested      empty, before any data file is written; of a rollback its plan
    <instant>.<action>.inflight       empty; a commit's is `<instant>.inflight`, without its action
    <instant>.<action>                commit metadata; a completed action

A compaction of logs is planned (requested), long before it is carried out, and is completed as a
`commit`: `completed_path` says so, and `load` calls such a commit a compaction. A resize of buckets
that is planned is a clustering, as Hudi has it: a `replacecommit` whose `.requested` holds a plan.

An instant is 17 digits, `yyyyMMddHHmmssSSS` in UTC (14 in old tables), and is a time of the
calendar: readers ignore, without a word, one that is not. Files that exist but were never
completed are hidden from Hudi's readers only as long as their `.requested` is there. A savepoint
has no `.requested`, and the instant of the commit that it keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal, cast

from metatable.storage import clock
from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.store import Store

__all__ = [
    "ACTIONS",
    "CLUSTERING",
    "COMPACTION",
    "DATA_ACTIONS",
    "FAR",
    "PLANNED",
    "REPLACING",
    "TRANSACTED",
    "Instant",
    "State",
    "Timeline",
    "completed_of",
    "completed_path",
    "filed_as",
    "inflight_path",
    "instant_of",
    "is_moment",
    "later_of",
    "next_instant",
    "requested_path",
    "to_the_millisecond",
]

State = Literal["requested", "inflight", "completed"]

FOLDER = ".hoodie"

COMPACTION, CLUSTERING = "compaction", "clustering"
PLANNED = (COMPACTION, CLUSTERING)
"""Those that are planned long before they are carried out."""
REPLACING = ("replacecommit", CLUSTERING)
"""Those that take file groups away."""
DATA_ACTIONS = ("commit", "deltacommit", *REPLACING, COMPACTION)
TRANSACTED = ("commit", "deltacommit", "replacecommit")
"""Those that a writer of ours begins before it writes data files."""
ACTIONS = (*DATA_ACTIONS, "clean", "savepoint", "rollback", "restore")
UNREQUESTED = ("savepoint",)
"""Hudi begins these in flight."""

_NAME = re.compile(r"([0-9]{17}|[0-9]{14})(?:\.([a-z]+))?(?:\.(requested|inflight))?")
_PLAN = "replacecommit", "requested"
_PROGRESS = {"requested": 0, "inflight": 1, "completed": 2}
_TICK = timedelta(milliseconds=1)
FAR = timedelta(days=1)
"""More than clocks that are right differ by."""


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """An action and how far it came."""

    time: str
    action: str
    state: State

    @property
    def changes_data(self) -> bool:
        """Whether its rows are there for Hudi's readers: a completed commit of any kind."""
        return self.state == "completed" and self.action in DATA_ACTIONS


def completed_of(actions: Iterable[Instant]) -> set[str]:
    """Instants of those that change data and are completed."""
    return {one.time for one in actions if one.changes_data}


def filed_as(action: str) -> str:
    """What names of files call an action."""
    return "replacecommit" if action == CLUSTERING else action


def requested_path(instant: str, action: str = "commit") -> str:
    """The first file of an action."""
    return f"{FOLDER}/{instant}.{filed_as(action)}.requested"


def inflight_path(instant: str, action: str = "commit") -> str:
    """The second file of an action."""
    return f"{FOLDER}/{instant}{'' if action == 'commit' else '.' + filed_as(action)}.inflight"


def completed_path(instant: str, action: str = "commit") -> str:
    """The last file of an action: with it, the action is done."""
    return f"{FOLDER}/{instant}.{'commit' if action == COMPACTION else filed_as(action)}"


def instant_of(moment: str | date) -> str:
    """An instant as it is written, or a moment as one: a date or time (UTC unless it says another
    zone), as such or as ISO text. An instant of old, to the second, is the moment at which its
    second begins, and no earlier one than all of that second. Raises UsageError."""
    try:
        if isinstance(moment, str) and re.fullmatch(r"\d{14}|\d{17}", moment):
            _moment(moment)
            return to_the_millisecond(moment)
        told = datetime.fromisoformat(moment if isinstance(moment, str) else moment.isoformat())
        return next_instant(told if told.tzinfo else told.replace(tzinfo=UTC))
    except (CorruptError, ValueError, AttributeError, OverflowError) as error:
        expected = "yyyyMMddHHmmssSSS, a datetime, or a time as 2026-03-01T12:00:00"
        raise UsageError("not a moment", found=moment, expected=expected) from error


def to_the_millisecond(instant: str) -> str:
    """An instant with 17 digits; one of old has 14, and as a text sorts before its whole second."""
    return instant.ljust(17, "0")


def later_of(latest: str, told: Iterable[str]) -> str:
    """The last of the instants that were used: a table's `latest` ("": none), and those that names
    of files tell. New ones are later, or Hudi's readers would take those files for newer; what is
    no time does not count, for none is later, and a file that is nobody's may tell any digits."""
    return max([latest, *(one for one in told if one > latest and is_moment(one))])


def is_moment(instant: str) -> bool:
    """Whether it is a time, and one behind which there are others: names of files may tell any."""
    try:
        _later(instant, FAR)
    except CorruptError:
        return False
    return True


def next_instant(now: datetime | None = None, after: str | None = None) -> str:
    """The current time as an instant, or a millisecond after `after`, whichever is later."""
    moment = clock.now() if now is None else now.astimezone(UTC)
    if after is not None:
        moment = max(moment, _later(after, _TICK))
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}".rjust(17, "0")


class Timeline:
    """The timeline of one table. Only the commit protocol and recovery complete or withdraw."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def load(self) -> list[Instant]:
        """Every action in its furthest state, by time: one listing. Names of other kinds are
        passed over."""
        furthest: dict[tuple[str, str], Instant] = {}
        clusterings = set()
        for name, size_bytes in self.store.names(FOLDER, sized=_may_be_a_plan):
            instant = _read_name(name)
            if instant is not None:
                if size_bytes and (instant.action, instant.state) == _PLAN:
                    clusterings.add(instant.time)
                key = instant.time, instant.action
                known = furthest.get(key)
                if known is None or _PROGRESS[instant.state] > _PROGRESS[known.state]:
                    furthest[key] = instant
        for time in [time for time, action in furthest if action == COMPACTION]:
            done = furthest.pop((time, "commit"), None)
            if done is not None:
                furthest[time, COMPACTION] = replace(done, action=COMPACTION)
        for time in clusterings:
            done = furthest.pop((time, "replacecommit"))
            furthest[time, CLUSTERING] = replace(done, action=CLUSTERING)
        return sorted(furthest.values())

    def completed(self) -> set[str]:
        """Instants of the completed actions that change data: one listing."""
        return completed_of(self.load())

    def request(
        self, instant: str, action: str = "commit", plan: bytes = b"", *, soon: bool = False
    ) -> bool:
        """Take an instant. False: it is taken already. `soon`: durable as `Store.create` says."""
        return self.store.create(requested_path(instant, action), plan, soon=soon)

    def inflight(self, instant: str, action: str = "commit", *, soon: bool = False) -> bool:
        """Say that data files are being written. False: said already."""
        return self.store.create(inflight_path(instant, action), b"", soon=soon)

    def begin(self, instant: str, action: str, plan: bytes = b"") -> None:
        """All states before the last, where they are not there yet. `plan`: what is requested."""
        if action not in UNREQUESTED:
            self.request(instant, action, plan)
        self.inflight(instant, action)

    def complete(self, instant: str, body: bytes, action: str = "commit") -> bool:
        """Publish to Hudi's readers. True also where the same bytes are there already."""
        return self.store.create(completed_path(instant, action), body)

    def is_complete(self, instant: str, action: str = "commit") -> bool:
        """Whether the completed file is there."""
        return self.store.size(completed_path(instant, action)) is not None

    def is_requested(self, instant: str, action: str) -> bool:
        """Whether the first file is there."""
        return self.store.size(requested_path(instant, action)) is not None

    def withdraw(
        self,
        instant: str,
        states: tuple[State, ...] = ("completed", "inflight", "requested"),
        action: str = "commit",
    ) -> None:
        """Delete an action's files, in the order given: what hides its data files goes last."""
        paths = {
            "completed": completed_path(instant, action),
            "inflight": inflight_path(instant, action),
            "requested": requested_path(instant, action),
        }
        self.store.delete([paths[state] for state in states])


def _may_be_a_plan(name: str) -> bool:
    return name.endswith(".replacecommit.requested")


@lru_cache(1 << 12)
def _read_name(name: str) -> Instant | None:
    cut = _NAME.fullmatch(name)
    if cut is None:
        return None
    time, action, state = cut.groups()
    if action in ("requested", "inflight") and state is None:  # `T.inflight` is a commit's
        return Instant(time, "commit", "inflight") if action == "inflight" else None
    return None if action is None else Instant(time, action, cast(State, state or "completed"))


def _later(instant: str, by: timedelta) -> datetime:
    try:
        return _moment(instant) + by
    except OverflowError as error:
        raise CorruptError("no instant is later", found=instant) from error


def _moment(instant: str) -> datetime:
    milliseconds = instant[14:] or "0"
    try:
        moment = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        return moment + timedelta(milliseconds=int(milliseconds))
    except (ValueError, OverflowError) as error:
        raise CorruptError("not an instant", found=instant, expected="yyyyMMddHHmmssSSS") from error
