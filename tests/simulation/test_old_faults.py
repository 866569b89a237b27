"""Faults that were once in the protocol, put back: the simulation finds them again."""

from __future__ import annotations

import pytest

from metatable import CorruptError
from tests.simulation.history import play
from tests.simulation.old_faults import FAULTS

FOUND_BY = {"millisecond": 3, "requested": 63, "withdrawn": 87, "opened": 256, "void": 451}
"""A world that finds the fault; without the fault it ends well. The first worlds that find
`millisecond` are 3 and 14, `requested` 63 and 192, `withdrawn` 87 and 88."""


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_fault_of_old_is_found_by_a_world_that_ends_well_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(FOUND_BY[name])
    FAULTS[name](monkeypatch)
    with pytest.raises((AssertionError, CorruptError)):
        play(FOUND_BY[name])
