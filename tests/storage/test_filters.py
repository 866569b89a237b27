"""Filters: never a no for a key that is in the file, and no more wrong yesses than promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.errors import CorruptError, UpgradeError, UsageError
from metatable.storage.filters import build, decode, kinds
from metatable.storage.filters.fingerprints import Fingerprints

hashes = st.lists(st.integers(0, (1 << 64) - 1), max_size=60).map(
    lambda numbers: np.array(numbers, np.uint64)
)
rates = st.floats(1e-12, 0.5)


@pytest.mark.parametrize("kind", kinds())
@given(given_hashes=hashes, fpp=rates)
@settings(deadline=None)
def test_a_filter_never_denies_a_key_it_was_given(
    kind: str, given_hashes: np.ndarray, fpp: float
) -> None:
    made = build(kind, given_hashes, fpp)
    assert made.might_contain(given_hashes).all()
    again = decode(kind, made.encode())
    assert again.kind == kind
    assert again.might_contain(given_hashes).all()


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("fpp", [0.05, 1e-3, 1e-9])
def test_wrong_yesses_stay_below_the_rate_asked_for(kind: str, fpp: float) -> None:
    rng = np.random.default_rng(3)
    made = build(kind, rng.integers(0, 1 << 64, 20_000, np.uint64), fpp)
    found = made.might_contain(rng.integers(0, 1 << 64, 100_000, np.uint64))
    assert found.mean() <= fpp * 1.3


@given(hashes, hashes, rates)
@settings(deadline=None)
def test_fingerprints_answer_as_a_set_of_cut_hashes(
    held: np.ndarray, asked: np.ndarray, fpp: float
) -> None:
    made = Fingerprints.build(held, fpp)
    made.check_invariants()
    cut = 64 - 8 * made.width
    members = {int(one) >> cut for one in held}
    for queries in (asked, np.sort(asked)):
        expected = [int(one) >> cut in members for one in queries]
        assert made.might_contain(queries).tolist() == expected
    again = Fingerprints.decode(made.encode())
    assert again.values.tolist() == made.values.tolist()
    assert again.width == made.width


def test_fingerprints_are_stored_in_planes() -> None:
    made = Fingerprints.build(np.array([1 << 63, 2, 1, 2], np.uint64), 1e-18)
    body = made.encode()
    assert body[:6].hex() == "010803000000"
    assert body[6:-4].hex() == "000080" + 6 * "000000" + "010200"


@pytest.mark.parametrize(
    ("count", "fpp", "width"),
    [(0, 0.1, 1), (25, 0.1, 1), (26, 0.1, 2), (50_000, 1e-9, 6), (50_000, 1e-3, 4), (10, 1e-30, 8)],
)
def test_fingerprints_are_as_wide_as_the_rate_needs(count: int, fpp: float, width: int) -> None:
    assert Fingerprints.build(np.arange(count, dtype=np.uint64) << 48, fpp).width == width


@given(hashes, st.data())
@settings(deadline=None)
def test_any_flipped_bit_of_fingerprints_is_reported(held: np.ndarray, data: st.DataObject) -> None:
    body = bytearray(Fingerprints.build(held, 1e-9).encode())
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((CorruptError, UpgradeError), match="p/f"):
        decode("fingerprints", bytes(body), "p/f")


@given(hashes, st.integers(0, 40))
@settings(deadline=None)
def test_cut_off_fingerprints_are_reported(held: np.ndarray, kept: int) -> None:
    body = Fingerprints.build(held, 1e-9).encode()
    with pytest.raises(CorruptError):
        decode("fingerprints", body[: min(kept, len(body) - 1)])


def test_unknown_kinds_are_told_apart_by_who_asks() -> None:
    with pytest.raises(UsageError, match="fingerprints"):
        build("magic", np.zeros(0, np.uint64), 0.1)
    with pytest.raises(UpgradeError, match="magic"):
        decode("magic", b"", "p")


@pytest.mark.parametrize("fpp", [0.0, 1.0, -1.0])
def test_impossible_rates_are_refused(fpp: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        build("fingerprints", np.zeros(0, np.uint64), fpp)


def test_no_queries_get_no_answers() -> None:
    made = build("fingerprints", np.array([5], np.uint64), 0.1)
    assert made.might_contain(np.zeros(0, np.uint64)).tolist() == []
