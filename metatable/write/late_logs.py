"""Late logs: those on what a scheduled compaction of logs has not made yet.

Their names tell the plan's instant. While that is not complete, Hudi 1.x reads such a log on top of
its group's newest base file, whichever that is: a file written anew meanwhile would be shown with
rows of before it, or without them. Once the plan is carried out they are the logs of its file. So a
group that has some is written anew only behind that; any process may carry out a plan.
"""

from __future__ import annotations

from metatable.data.file_groups.slices import FileSlice
from metatable.storage.errors import ConflictError

__all__ = ["check_none_is_late", "is_about_late_logs"]

_WHAT = "a file group must be written anew, and has logs on what a scheduled compaction is to make"


def check_none_is_late(base: FileSlice) -> None:
    """Raise ConflictError for a slice that cannot be written anew yet."""
    if base.pending is not None and base.ahead:
        late = [one.path for one in base.ahead][:5]
        raise ConflictError(_WHAT, expected=f"compaction {base.awaits} carried out", found=late)


def is_about_late_logs(lost: ConflictError) -> bool:
    """Whether it is that error, be it told again by another process."""
    return lost.what.startswith(_WHAT)
