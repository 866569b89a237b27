"""Where keys are in a partition: by hashes, by a modulo, by a function of a user's own."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable import BucketFunction, register_bucket_function
from metatable.data.bucket_functions import (
    HASH_SPACE,
    bucket_function,
    place_by_hash,
    place_by_text,
)
from metatable.metadata.hfiles.keys import record_key_hash
from metatable.metadata.manifests.pages import border
from metatable.storage.errors import UsageError

SALTS = (-6_000_000_000_000_000_000, 123_456_789)

texts = st.lists(st.text(max_size=40), max_size=20)


def by_length(keys: pa.Array, space: int) -> np.ndarray:
    return np.array([len(key) for key in keys.to_pylist()], dtype=np.int64) % space


@given(texts)
@settings(deadline=None)
def test_places_are_the_top_of_the_hash(keys: list[str]) -> None:
    column = pa.array(keys, pa.string())
    by_text = [xxhash.xxh64_intdigest(key.encode(), 42) >> 32 for key in keys]
    assert place_by_text(column).tolist() == by_text
    assert place_by_text(column, 7).tolist() == [one * 7 >> 32 for one in by_text]
    hashes = record_key_hash(column, SALTS)
    for form in (hashes, hashes.cast(pa.binary())):
        assert place_by_hash(form).tolist() == [
            int.from_bytes(one[:4], "big") for one in hashes.to_pylist()
        ]


@given(st.integers(1, 1 << 16), st.integers(0, HASH_SPACE - 1), st.data())
def test_a_bucket_is_a_range_of_places(count: int, place: int, data: st.DataObject) -> None:
    bucket = place * count // HASH_SPACE  # as tables of format 1 have it
    assert border(HASH_SPACE, count, bucket) <= place < border(HASH_SPACE, count, bucket + 1)
    some = data.draw(st.integers(0, count))
    assert border(count, count, some) == some, "the buckets of a modulo are its places"


def test_places_ascend_with_hashes() -> None:
    hashes = record_key_hash(pa.array([f"key {i}" for i in range(3000)]), SALTS)
    ascending = pa.array(sorted(hashes.to_pylist()), pa.binary(16))
    places = place_by_hash(ascending[5:])
    assert (np.diff(places) >= 0).all()
    assert set((places * 16 // HASH_SPACE).tolist()) == set(range(16))


def test_hashes_of_another_width_have_no_place() -> None:
    with pytest.raises(UsageError, match="128-bit"):
        place_by_hash(pa.array([b"12345678"], pa.binary()))


def test_java_buckets_are_hudis_golden_vectors() -> None:
    golden = {
        "334e26e9-8355-45cc-97c6-c31daf0df330": 4,
        "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa": 3,
        "TXN-009": 0,
        "Uber$": 4,
        "\x00$": 6,
        "19743$": 0,
        "polygenelubricants": 8,
    }
    function = bucket_function("java_string")
    assert function.places(pa.array(list(golden)), 10).tolist() == list(golden.values())
    assert function.space(10) == 10


def test_a_function_of_a_user_is_known_by_its_name_and_goes_along_with_tasks() -> None:
    mine = BucketFunction(by_length, modulo=True)
    register_bucket_function("by_length", mine)
    register_bucket_function("by_length", mine)  # as a module does that is loaded again
    assert bucket_function("by_length") is mine
    assert pickle.loads(pickle.dumps(mine)).places(pa.array(["aaa", ""]), 2).tolist() == [1, 0]
    with pytest.raises(UsageError, match="there already"):
        register_bucket_function("by_length", BucketFunction(by_length))
    with pytest.raises(UsageError, match="no bucket function"):
        register_bucket_function("other", by_length)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="register it"):
        bucket_function("nobody's")


@pytest.mark.parametrize(
    "made", [[0, 1], [0, -1, 0], [0, 4, 0], [0.0, 1.0, 2.0], [[0], [1], [2]]], ids=str
)
def test_places_outside_of_the_partition_are_refused(made: list[object]) -> None:
    function = BucketFunction(lambda keys, space: np.array(made), modulo=True)
    with pytest.raises(UsageError, match="outside of the partition"):
        function.places(pa.array(["a", "b", "c"]), 4)
