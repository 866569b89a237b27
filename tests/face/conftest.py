"""Something that happens between two steps of a writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metatable.metadata import transaction


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """`between(act)`: the next one to publish first waits until `act` is done."""
    put = transaction.publish
    waiting: list[Callable[[], Any]] = []

    def act_first(*given: Any) -> Any:
        if waiting:
            waiting.pop()()
        return put(*given)

    monkeypatch.setattr(transaction, "publish", act_first)
    return waiting.append
