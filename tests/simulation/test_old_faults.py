"""Faults that were once in the protocol, put back: the simulation finds them again."""

from __future__ import annotations

import pytest

from metatable import CorruptError
from tests.simulation.history import play
from tests.simulation.old_faults import FAULTS

FOUND_BY = {"millisecond": 104, "requested": 187, "withdrawn": 80, "opened": 1, "void": 361}
"""A world that finds the fault; without the fault it ends well. Of worlds 0 to 199 `millisecond` is
found by 104 and 118, `requested` by 187 and 189, `withdrawn` by 80 and 90, `opened` by 1 and 71."""


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_fault_of_old_is_found_by_a_world_that_ends_well_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(FOUND_BY[name])
    FAULTS[name](monkeypatch)
    with pytest.raises((AssertionError, CorruptError)):
        play(FOUND_BY[name])
