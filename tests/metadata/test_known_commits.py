"""Sums of instants: few are summed one by one, many as a column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.metadata.commits import known_commits
from metatable.metadata.commits.known_commits import CommitSum

INSTANTS = st.sets(st.text(min_size=14, max_size=17))


@given(INSTANTS, INSTANTS)
def test_the_sum_of_few_instants_is_that_of_many(some: set[str], others: set[str]) -> None:
    few = CommitSum.of(some)
    assert few.plus(others - some) == CommitSum.of(some | others)
    assert few.plus(others).minus(others) == few
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_commits, "_KNOWN_HASHES", -4)
        assert CommitSum.of(some) == few
