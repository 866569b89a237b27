"""Writers, services, readers and recoveries, interleaved by seeds, on a store that misbehaves.

`world.py` is the model, `history.py` what must hold in the end. METATABLE_SEED replays one world
and prints its steps; METATABLE_LONG=1 plays 20,000 instead of 40.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.long import LONG
from tests.simulation.history import play

SEED = os.environ.get("METATABLE_SEED")

WORLDS = 20_000 if LONG else 40
PORTIONS = 100 if LONG else 10
"""Of so many worlds each is one test, so that workers share them."""


FOUND_SOMETHING = (15223, 4960, 23928, 2046)
"""A version that holds an undone commit was called damaged, where its index files were gone; of two
recoveries side by side the second swept for the last time right after the first; a replacecommit
that was undone while a clean looked at it was called damage; the ring of a partition without rows,
whose buckets had been merged, was called one without a group."""


@pytest.mark.parametrize("seed", FOUND_SOMETHING)
def test_a_world_that_once_found_a_fault_ends_well(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_in_every_world_no_commit_is_lost_or_half_there(portion: int) -> None:
    if SEED is not None:
        if portion == 0:
            print("\n".join(play(int(SEED)).log))
        return
    began = time.perf_counter()
    told: dict[str, int] = {}
    for seed in range(portion, WORLDS, PORTIONS):
        try:
            world = play(seed)
        except BaseException as error:
            error.add_note(f"METATABLE_SEED={seed}")
            raise
        for what, count in world.told.items():
            told[what] = told.get(what, 0) + count
    print(f"{WORLDS // PORTIONS} worlds, {time.perf_counter() - began:.1f} s: {told}")
