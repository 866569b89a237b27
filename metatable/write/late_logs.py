"""Late logs: those on what a scheduled compaction of logs has not made yet.

Their names tell the plan's instant. While that is not complete, Hudi 1.x reads such a log on top of
its group's newest base file, whichever that is: a file written anew meanwhile would be shown with
rows of before it, or without them. Once the plan is carried out they are the logs of its file. So a
group that has some is written anew only behind that; any process may carry out a plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from metatable.data.config.options import Options
from metatable.data.file_groups.slices import FileSlice
from metatable.storage.errors import ConflictError

__all__ = ["CarryOut", "check_none_is_late", "plan_in_the_way"]

CarryOut = Callable[[str], None]
"""Carries out the scheduled compaction of logs of this instant."""

_WHAT = "a file group must be written anew, and has logs on what the compaction {} is to make"
_TOLD = re.compile(_WHAT.format("([0-9]+)"))


def check_none_is_late(options: Options, base: FileSlice) -> None:
    """Raise ConflictError for a slice that cannot be written anew yet. Where Hudi's readers do not
    count none is such."""
    if options.hudi_readable and base.pending is not None and base.ahead:
        late = [one.path for one in base.ahead][:5]
        raise ConflictError(_WHAT.format(base.awaits), expected="carried out first", found=late)


def plan_in_the_way(lost: ConflictError) -> str:
    """The instant of the compaction that it is about, also where another process has told the error
    again; "": of none."""
    told = _TOLD.match(lost.what)
    return told[1] if told else ""
