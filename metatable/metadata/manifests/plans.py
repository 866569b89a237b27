"""Plan: what a service means to do, stored beside the versions.

    plans/<service>-<32 hex digits>.json    JSON with its checksum, as a root; never rewritten

So it can be looked at, carried out later or by another process, and taken up again when that one
died. A plan pins nothing and is named by no version: whoever takes it up asks the newest one
whether it is still right. The version that carries it out has the step `drop_plan`.

What it says is believed only as far as the service can prove it (`work` is the service's own
record). Its name tells no instant and lies in no folder that is swept.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from metatable.data.stored_fields import decode_fields, encode_fields
from metatable.metadata.manifests.home import HOME
from metatable.metadata.manifests.manifest import Manifest, Step
from metatable.metadata.manifests.sealed import seal, unseal
from metatable.storage import clock
from metatable.storage.errors import CorruptError, NotFoundError, UsageError
from metatable.storage.store import Store

__all__ = [
    "PLANS",
    "StoredPlan",
    "drop_plan",
    "dropping",
    "load_plan",
    "put_plan",
    "waiting_plans",
]

PLANS = f"{HOME}/plans"

_NAME = re.compile(r"[a-z_]+-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What a plan file holds."""

    service: str
    version: int
    """The one that it was made on."""
    work: Mapping[str, Any]
    told: str = ""
    """What the service means to do, in a few words, for people."""
    time_ms: int = 0
    """When it was made, epoch milliseconds UTC."""
    unknown: Mapping[str, Any] = field(default_factory=dict)


def put_plan(store: Store, service: str, version: int, work: Mapping[str, Any], told: str) -> str:
    """Store a plan; its name."""
    name = f"{service}-{uuid.uuid4().hex}"
    plan = StoredPlan(service, version, work, told, clock.now_ms())
    store.put(_path(name), seal(encode_fields(plan)))
    return name


def load_plan(store: Store, name: str) -> tuple[str, StoredPlan]:
    """The plan of this name, and its path. Raises UsageError, NotFoundError, CorruptError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "as schedule names it: SERVICE-, 32 hexadecimal digits"
        raise UsageError("not the name of a plan", found=name, expected=expected)
    path = _path(name)
    raw = store.get(path)
    if raw is None:
        what = "there is no such plan: it is carried out, was taken back, or never was"
        raise NotFoundError(what, path=path)
    return path, decode_fields(StoredPlan, unseal(raw, path, "plan"), path, "plan")


def waiting_plans(store: Store) -> list[tuple[str, StoredPlan]]:
    """(name, plan) of all that nobody has carried out yet, the oldest first.

    Raises CorruptError.
    """
    names = [one.name.removesuffix(".json") for one in store.list(PLANS)]
    found = []
    for name in filter(_NAME.fullmatch, names):
        with suppress(NotFoundError):  # carried out since it was listed
            found.append((name, load_plan(store, name)[1]))
    return sorted(found, key=lambda one: (one[1].time_ms, one[0]))


def dropping(path: str) -> Step:
    """The step of a version that has carried out the plan at `path`."""
    return Step("drop_plan", staged=path)


def drop_plan(store: Store, manifest: Manifest, step: Step) -> None:
    """Do this step: delete the plan, and nothing that is none."""
    name = step.staged.removeprefix(f"{PLANS}/").removesuffix(".json")
    if not _NAME.fullmatch(name) or step.staged != _path(name):
        raise CorruptError(
            "step is damaged", path=manifest.path, expected="a plan to drop", found=step.staged
        )
    store.delete([step.staged])


def _path(name: str) -> str:
    return f"{PLANS}/{name}.json"
