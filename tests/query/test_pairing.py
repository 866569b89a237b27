"""Pairs of rows are those of a dict, in whatever order the rows are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.query import pairing
from metatable.query.pairing import places_in


def _expected(was: list[str], now: list[str]) -> list[int]:
    place = {key: number for number, key in enumerate(was)}
    return [place.get(key, -1) for key in now]


def _texts(keys: list[str]) -> pa.Array:
    return pa.array(keys, pa.string())


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "RUN", 4)
        patch.setattr(pairing, "STEP_ROWS", 1)
        patch.setattr(pairing, "PATIENCE", 3)
        yield


KEYS = st.lists(st.integers(0, 40).map(lambda number: f"k{number}"), unique=True)


@given(was=KEYS, now=KEYS)
def test_any_keys_in_any_order(was: list[str], now: list[str]) -> None:
    assert places_in(_texts(was), _texts(now)).tolist() == _expected(was, now)


@given(was=KEYS, gone=st.sets(st.integers(0, 40)), new=KEYS)
def test_keys_that_stay_after_a_commit_have_the_places_they_had(
    was: list[str], gone: set[int], new: list[str]
) -> None:
    now = [key for place, key in enumerate(was) if place not in gone]
    now += [key for key in new if key not in now]
    assert places_in(_texts(was), _texts(now)).tolist() == _expected(was, now)


def test_rows_that_stay_need_no_hash_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing.pc, "index_in", None)
    was = [f"k{number}" for number in range(50)]
    now = [key for place, key in enumerate(was) if place % 7 not in (3, 4)]
    assert places_in(_texts(was), _texts(now)).tolist() == _expected(was, now)
    assert places_in(_texts([]), _texts(now)).tolist() == [-1] * len(now)


def test_rows_that_are_taken_out_everywhere_are_left_to_the_hash_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, equal = [], pairing.pc.equal
    monkeypatch.setattr(pairing, "STEP_ROWS", 50)
    monkeypatch.setattr(pairing.pc, "equal", lambda *both: steps.append(both) or equal(*both))
    was = [f"k{number}" for number in range(1000)]
    now = was[::2] + was[1::2]
    assert places_in(_texts(was), _texts(now)).tolist() == _expected(was, now)
    assert 3 <= len(steps) < 10
