"""What an error says, and what it holds."""

from __future__ import annotations

import pickle

from metatable.storage.errors import UsageError


def test_what_was_given_is_told_but_no_more_of_it_than_anybody_reads() -> None:
    path, text = "/" + "p" * 4095, "x" * 1_000_000
    error = UsageError("no such thing", path=path, found=text)
    assert str(error).startswith(f"no such thing: path='{path}' found='xxx")
    assert str(error).endswith("x… (1,000,002 characters)")
    assert len(str(error)) < 10_000
    assert error.facts == {"path": path, "found": text}
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
