"""Faults that were once in the protocol, put back: the simulation finds them again."""

from __future__ import annotations

import pytest

from metatable import CorruptError
from tests.simulation.history import play
from tests.simulation.old_faults import FAULTS

FOUND_BY = {"millisecond": 76, "requested": 45, "withdrawn": 22, "opened": 371, "void": 1196}
"""A world that finds the fault, every time, though names of files are random; without the fault it
ends well."""


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_fault_of_old_is_found_by_a_world_that_ends_well_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(FOUND_BY[name])
    FAULTS[name](monkeypatch)
    with pytest.raises((AssertionError, CorruptError)):
        play(FOUND_BY[name])
