"""HFiles of a range merged into one: held against a dict, and byte for byte."""

from __future__ import annotations

import json
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.compaction.merging import merge
from metatable.compaction.merging.merge import merge_hfiles
from metatable.data.config.options import Options
from metatable.metadata.hfiles.partition import MetadataPartition
from metatable.metadata.manifests.owner import Owner
from metatable.metadata.manifests.pages import HFileRef
from metatable.metadata.partitions.record_index import RecordIndexPartition
from metatable.storage import sorted_merge
from metatable.storage.errors import CorruptError
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import passes
from metatable.storage.store import Store
from tests.long import examples

OWNER = Owner("compact", "a")
OPTIONS = Options(
    name="rides",
    key=("id",),
    buckets={"record_index": 1},
    hfile_block_bytes=128,
    hfile_codec="none",  # a codec may have several forms of a block
    key_salts=(1, 2),
)
INDEX = RecordIndexPartition(OPTIONS)
GROUPS = [f'["p", "g{number}"]' for number in range(5)]
HASHES = st.builds(
    lambda high, low: high.to_bytes(8) + low.to_bytes(8),
    st.sampled_from([0, 1, 255, 1 << 62, (1 << 62) + 1, (1 << 64) - 1]),
    st.integers(0, 5) | st.just((1 << 64) - 1),
)
"""Many agree in their first eight bytes, or in all but the last of them."""
LIVES = st.dictionaries(HASHES, st.none() | st.integers(0, 4), min_size=1, max_size=40)


class Plain(MetadataPartition):
    """Entries of any size, as they are."""

    name = "plain"
    tombstone = b"gone"


PLAIN = Plain(OPTIONS)
SIZED = st.dictionaries(HASHES, st.sampled_from([None, b"1234", b"abcd"]), min_size=1, max_size=40)
MIXED = st.dictionaries(
    st.binary(min_size=1, max_size=3), st.none() | st.binary(max_size=5), min_size=1, max_size=40
)


def index_file(store: Store, held: dict[bytes, int | None]) -> HFileRef:
    numbers = pa.array(list(held.values()), pa.int32())
    values = pa.DictionaryArray.from_arrays(numbers, pa.array(GROUPS))
    return _stored(store, INDEX, list(held), values)


def plain_file(store: Store, held: dict[bytes, bytes | None]) -> HFileRef:
    return _stored(store, PLAIN, list(held), pa.array(list(held.values()), pa.binary()))


def _stored(
    store: Store, partition: MetadataPartition, keys: list[bytes], values: pa.Array
) -> HFileRef:
    columns = [pa.array([0] * len(keys)), pa.array(keys, pa.binary()), values]
    entries = pa.table(columns, schema=partition.schema)
    made = partition.store(store, 0, partition.space, entries, OWNER)
    assert made is not None
    return made


def merged(
    store: Store,
    partition: MetadataPartition,
    inputs: list[HFileRef],
    keep_tombstones: bool,
    round_entries: int,
    step_bytes: int,
) -> HFileRef | None:
    with (
        patch.object(sorted_merge, "ROUND_ENTRIES", round_entries),
        patch.object(merge, "LEAST_STEP_BYTES", 1),
        patch.object(merge, "STEPS_BYTES", step_bytes),
    ):
        everything = (0, partition.space)
        return merge_hfiles(
            store, partition, inputs, *everything, OWNER, keep_tombstones=keep_tombstones
        )


def newest(streams: list[dict[bytes, object]], keep_tombstones: bool) -> list[tuple[bytes, object]]:
    held = {key: value for one in reversed(streams) for key, value in one.items()}
    return sorted(
        (key, value) for key, value in held.items() if keep_tombstones or value is not None
    )


def pairs_of(store: Store, made: HFileRef | None) -> list[tuple[bytes, bytes]]:
    if made is None:
        return []
    batches = HFileReader.open(store, made.path).scan()
    columns = [[one.to_pylist() for one in batch.columns] for batch in batches]
    return [pair for keys, values in columns for pair in zip(keys, values, strict=True)]


ROUNDS = st.sampled_from([1, 7, 1 << 20])
STEPS = st.sampled_from([1, 1000, 1 << 20])


@settings(max_examples=examples(20, 60), deadline=None)
@given(st.lists(LIVES, min_size=1, max_size=4), st.booleans(), ROUNDS, STEPS)
def test_newest_location_of_each_key_stays(
    streams: list[dict[bytes, int | None]], keep: bool, round_entries: int, step_bytes: int
) -> None:
    store = Store("memory://merge")
    inputs = [index_file(store, one) for one in streams]
    made = merged(store, INDEX, inputs, keep, round_entries, step_bytes)
    told: list[str | None] = [None]
    if made is not None:
        raw = HFileReader.open(store, made.path).meta("locations") or b""
        told += [name for _, name in json.loads(raw)]
    found = [(key, told[int.from_bytes(value)]) for key, value in pairs_of(store, made)]
    expected = newest([dict(one) for one in streams], keep)
    assert found == [(key, None if one is None else f"g{one}") for key, one in expected]
    used = [name for _, name in found if name is not None]
    assert told[1:] == list(dict.fromkeys(used)), "numbers are given in the order of first use"


@settings(max_examples=examples(20, 60), deadline=None)
@given(
    st.lists(SIZED, min_size=1, max_size=4) | st.lists(SIZED | MIXED, min_size=1, max_size=4),
    st.booleans(),
    ROUNDS,
    STEPS,
)
def test_newest_value_of_each_key_stays_whatever_sizes_they_have(
    streams: list[dict[bytes, bytes | None]], keep: bool, round_entries: int, step_bytes: int
) -> None:
    store = Store("memory://merge")
    inputs = [plain_file(store, one) for one in streams]
    made = merged(store, PLAIN, inputs, keep, round_entries, step_bytes)
    expected = newest([dict(one) for one in streams], keep)
    assert pairs_of(store, made) == [
        (key, PLAIN.tombstone if one is None else one) for key, one in expected
    ]


@settings(max_examples=examples(20, 60), deadline=None)
@given(st.lists(LIVES, min_size=1, max_size=4), st.booleans(), ROUNDS, STEPS)
def test_bytes_of_a_file_follow_from_its_entries_alone(
    streams: list[dict[bytes, int | None]], keep: bool, round_entries: int, step_bytes: int
) -> None:
    """Neither from rounds and steps, nor from whether columns are of fixed size."""
    store = Store("memory://merge")
    inputs = [index_file(store, one) for one in streams]
    made = merged(store, INDEX, inputs, keep, round_entries, step_bytes)
    with patch.object(passes, "fixed_batch", lambda *_: None):
        other = merged(store, INDEX, inputs, keep, 1 << 20, 1 << 20)
    assert (made and made.checksum) == (other and other.checksum)


def test_a_number_without_a_location_in_its_own_file_is_refused() -> None:
    store = Store("memory://merge")
    few = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(GROUPS[:1]))
    paths = [
        _stored(store, INDEX, [bytes(16)], few).path,
        index_file(store, {bytes(16): 0}).path,
    ]
    rewriter = INDEX.rewriter([HFileReader.open(store, path) for path in paths])
    numbers = pa.array([(2).to_bytes(4)] * 2, pa.binary(4))
    with pytest.raises(CorruptError, match=f"names no location: path='{paths[0]}'"):
        rewriter.values(numbers, np.array([1, 0], np.int32))
