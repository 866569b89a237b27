"""A real S3 server keeps the contract of stores, at the root of a bucket and below it."""

from __future__ import annotations

import time

import pytest

from metatable.storage.store import Store
from tests.services.servers import Bucket
from tests.storage.store_contract import Place, StoreContract


class TestS3Server(StoreContract):
    @pytest.fixture(params=["", "/some folder/table"])
    def place(self, request: pytest.FixtureRequest, bucket: Bucket) -> Place:
        return bucket.uri + request.param, dict(bucket.storage_options)

    def test_list_tells_when_a_file_was_written(self, store: Store) -> None:
        """In whole seconds, as S3 does."""
        store.put("a", b"1")
        [first] = store.list("")
        time.sleep(1.1)
        store.put("a", b"1")
        [second] = store.list("")
        assert first.modified < second.modified
        assert abs(second.modified - time.time()) < 60
