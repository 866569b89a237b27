"""Clock: what time this process believes it is, and waiting.

For names that people can read, and for pauses. Nothing is decided by it: which of two things
came first is told by what a store holds, how old a thing is by the store's own clock. Tests
put other clocks in its place.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["now", "now_ms", "pause"]


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def now_ms() -> int:
    """Epoch milliseconds, UTC."""
    return int(now().timestamp() * 1000)


def pause(seconds: float) -> None:
    """Let others go first."""
    time.sleep(seconds)
