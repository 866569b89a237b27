"""How much of a test is played: what a run of some minutes has room for, or all of it.

METATABLE_LONG=1 (`make test-long`) plays all. In the short run each kind of case is there, and of
cases that are alike some.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

LONG = os.environ.get("METATABLE_LONG") == "1"


def one_in(count: int, cases: Sequence[T], turn: int = 0) -> Sequence[T]:
    """Every `count`-th of these, and of the first ones that of `turn`: tests that are alike take
    different ones. In a long run all."""
    return cases if LONG else cases[turn % count :: count]
