"""A session that is set otherwise for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["settings"]


@contextmanager
def settings(session: Any, chosen: Mapping[str, str]) -> Iterator[None]:
    """The session's settings are these while the context lasts, and then what they were."""
    before = {name: session.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.unset(name) if value is None else session.conf.set(name, value)
