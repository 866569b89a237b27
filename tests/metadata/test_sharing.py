"""Roots that are held together have what they have in common once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import metatable
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.sharing import sharing
from metatable.metadata.manifests.versions import load_version
from metatable.storage.store import Store
from tests.index.rows import make, rows
from tests.root_refs import root_refs


def roots_of(table: metatable.Table) -> list[Manifest]:
    store = Store(table.uri)
    return [load_version(store, version, 0) for version in range(1, table.version + 1)]


@pytest.mark.parametrize("most", [64, 2])
def test_roots_are_as_they_were_and_share_what_is_equal(table_uri: str, most: int) -> None:
    with root_refs(most):
        table = make(table_uri, "record", "global", upkeep_files=0)
        for number in range(6):
            table.upsert(rows(number, number + 1))
        table.compact(major=True)
    every = roots_of(table)
    held = [*sharing(every)]
    assert held == every
    for before, root in pairwise(held):
        assert root.options is before.options
        assert root.schema is before.schema
        known = [page for pages in before.pages.values() for page in pages]
        for page in (page for pages in root.pages.values() for page in pages):
            assert any(page is one for one in known) == (page in known)
    assert sum(len(root.pages) for root in held) > 10


def test_what_differs_stays(table_uri: str) -> None:
    table = make(table_uri, "record", "global")
    table.upsert(rows(1, 2))
    [root] = roots_of(table)[-1:]
    other = replace(root, options=replace(root.options, file_rows=7), note={"job": "x"})
    [page, *_] = root.pages["files"]
    odd = replace(page, unknown={"later": 1})
    other = replace(other, pages={**root.pages, "files": (odd,)})
    assert [*sharing([root, other, root])] == [root, other, root]
