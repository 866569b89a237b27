"""Rings and directories against plain models, and against what Hudi 1.2.0 has done."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.file_groups.hashing_metadata import HashingMetadata, HashingNode
from metatable.index.bucket.directory import Directory
from metatable.index.bucket.ring import Ring, hashes_of
from metatable.storage.errors import CorruptError, UsageError
from tests.data.test_hashing_metadata import STAGES, stored
from tests.long import examples

SPACE = 1 << 31
LAST = SPACE - 1
EDGES = [0, 1, LAST - 1, LAST, SPACE // 2, SPACE // 2 - 1]


def asked(ring: Ring) -> list[int]:
    """Hashes at all borders of a ring, and some between."""
    borders = [one.value + shift for one in ring.nodes for shift in (-1, 0, 1)]
    return [one % SPACE for one in borders + EDGES] + random.Random(7).sample(range(SPACE), 20)


def expected(values: dict[int, str], hashes: list[int]) -> list[str]:
    """By a plain walk: the smallest value that is no less, or the smallest of all."""
    return [values[min((v for v in values if v >= one), default=min(values))] for one in hashes]


def told(ring: Ring, hashes: list[int]) -> list[str]:
    return [ring.nodes[place].file_id_prefix for place in ring.place(np.array(hashes)).tolist()]


def check(ring: Ring) -> None:
    """Every hash has one node: by widths, and by asking."""
    assert int(ring.widths.sum()) == SPACE
    values = {one.value: one.file_id_prefix for one in ring.nodes}
    assert told(ring, asked(ring)) == expected(values, asked(ring))


@given(st.data(), st.integers(1, 9))
@settings(max_examples=examples(20, 60))
def test_a_ring_places_as_a_plain_walk_does_whatever_was_split_and_merged(
    data: st.DataObject, count: int
) -> None:
    ring = Ring.first("p", count)
    values = {one.value: one.file_id_prefix for one in ring.nodes}
    for step in range(data.draw(st.integers(0, 12))):
        number = data.draw(st.integers(0, len(ring.nodes) - 1))
        node = ring.nodes[number]
        if data.draw(st.booleans()) and len(values) > 1:
            following = min((v for v in values if v > node.value), default=min(values))
            ring = ring.resized(*ring.united(number, f"m{step}"), "20260101000000000")
            del values[node.value]
            values[following] = f"m{step}"
        else:
            before = max((v for v in values if v < node.value), default=max(values))
            width = (node.value - before) % SPACE or SPACE
            at = (before + data.draw(st.integers(1, max(width - 1, 1)))) % SPACE
            if width < 2:
                assert not ring.may_split(number, at)
                continue
            ring = ring.resized(
                *ring.cut(number, at, (f"l{step}", f"h{step}")), "20260101000000000"
            )
            values |= {at: f"l{step}", node.value: f"h{step}"}
        assert {one.value: one.file_id_prefix for one in ring.nodes} == values
        check(ring)
    assert ring.metadata.num_buckets == count


@given(st.data(), st.integers(0, 3))
@settings(max_examples=examples(20, 60))
def test_a_directory_places_as_a_plain_one_does_and_doubles_only_when_it_must(
    data: st.DataObject, depth: int
) -> None:
    """The model: bit strings, each a bucket; of one hash exactly one is a prefix."""
    made = Directory.first("p", 1 << depth)
    bits = [format(place, f"0{depth}b") if depth else "" for place in range(1 << depth)]
    model = dict(zip(bits, (one.file_id_prefix for one in made.nodes), strict=True))
    for step in range(data.draw(st.integers(0, 10))):
        number = data.draw(st.integers(0, len(made.nodes) - 1))
        bucket, before = sorted(model)[number], made.depth
        twin = bucket[:-1] + "1"
        if data.draw(st.booleans()) and made.next_of(number) is not None:
            assert bucket.endswith("0")
            made = made.resized(*made.united(number, f"m{step}"), "20260101000000000")
            del model[bucket], model[twin]
            model[bucket[:-1]] = f"m{step}"
        else:
            assert bucket[-1:] != "0" or twin not in model or made.next_of(number) == number + 1
            local = int(made.local_depths[number])
            at = made.middle(number)
            assert at is not None
            made = made.resized(
                *made.cut(number, at, (f"l{step}", f"h{step}")), "20260101000000000"
            )
            del model[bucket]
            model |= {bucket + "0": f"l{step}", bucket + "1": f"h{step}"}
            assert made.depth == (before + 1 if local == before else before)
        assert made.local_depths.tolist() == [len(one) for one in sorted(model)]
        check(made)
        pointed = [made.nodes[one].file_id_prefix for one in made.places().tolist()]
        assert len(pointed) == 1 << made.depth
        for place, name in enumerate(pointed):
            text = format(place, f"0{made.depth}b") if made.depth else ""
            assert name in [model[one] for one in model if text.startswith(one)]


def test_a_directory_is_cut_and_joined_by_bits_alone() -> None:
    made = Directory.first("p", 4)
    with pytest.raises(UsageError, match="not cut there"):
        made.cut(0, 5, ("a", "b"))
    assert [made.next_of(number) for number in range(4)] == [1, None, 3, None]
    halves = made.cut(0, (SPACE >> 3) - 1, ("a", "b"))
    deeper = made.resized(*halves, "20260101000000000")
    assert [deeper.next_of(number) for number in range(5)] == [1, None, None, 4, None]
    with pytest.raises(UsageError, match="without a neighbour"):
        deeper.united(1, "c")


def test_a_single_hash_is_not_cut() -> None:
    nodes = (HashingNode(4, "a"), HashingNode(5, "b"), HashingNode(LAST, "c"))
    ring = Ring.of(HashingMetadata("p", "20260101000000000", 1, 1, nodes))
    assert ring.middle(1) is None
    assert not ring.may_split(1, 4)
    assert not ring.may_split(1, 5)
    assert ring.may_split(0, LAST) is False
    assert ring.may_split(0, 0)


def test_a_ring_that_is_no_directory_is_refused_as_one() -> None:
    with pytest.raises(CorruptError, match="first bits"):
        Directory.of(Ring.first("p", 4).metadata)


@pytest.mark.parametrize("count", [1, 2, 4, 256, 46_342, 100_000, 131_072])
def test_first_rings_hold_every_hash_once(count: int) -> None:
    for made in (Ring, Directory) if count & (count - 1) == 0 else (Ring,):
        ring = made.first("p", count)
        assert int(ring.widths.sum()) == SPACE
        assert len(ring.nodes) == count
        assert ring.nodes[-1].value == LAST


def test_of_buckets_whose_steps_pass_the_end_there_are_fewer() -> None:
    assert len(Ring.first("p", 120_000).nodes) <= 120_000


# As Hudi has it


@pytest.mark.parametrize("stage", STAGES)
def test_first_rings_are_hudi_s_ids_included(interop: Path, stage: str) -> None:
    for path, raw in stored(interop, stage):
        theirs = HashingMetadata.decode(raw, path)
        if theirs.seq_no == 0:
            assert Ring.first(theirs.partition_path, 4).metadata == theirs


def test_hudi_cuts_buckets_where_we_do(interop: Path) -> None:
    """Each value that came in a resize is the middle of a bucket, each that went a neighbour's."""
    rings: dict[str, list[HashingMetadata]] = {}
    for path, raw in sorted(stored(interop, "3done")):
        rings.setdefault(str(Path(path).parent), []).append(HashingMetadata.decode(raw, path))
    cuts = 0
    for before, after in rings.values():
        ring = Ring.of(before)
        middles = {ring.middle(number) for number in range(len(before.nodes))}
        come = {one.value for one in after.nodes} - {one.value for one in before.nodes}
        assert come <= middles
        assert after.seq_no == before.seq_no + 1
        assert after.num_buckets == before.num_buckets
        cuts += len(come)
    assert cuts >= 2
    assert Ring.first("p", 4).middle(0) == 268435455


@pytest.mark.parametrize("stage", STAGES)
def test_hudi_has_put_every_row_into_the_group_that_we_say(interop: Path, stage: str) -> None:
    """Of log files, too: the expected rows name their groups."""
    newest: dict[str, HashingMetadata] = {}
    for path, raw in sorted(stored(interop, stage)):
        ring = HashingMetadata.decode(raw, path)
        newest[ring.partition_path] = ring
    rows = pq.read_table(interop / "hudi-spark" / f"mor_consistent_{stage}.expected.parquet")
    checked = 0
    for folder, metadata in newest.items():
        ours = rows.filter(pc.equal(rows["_hoodie_partition_path"], folder))
        keys = ours["_hoodie_record_key"].combine_chunks()
        ring = Ring.of(metadata)
        found = ring.file_ids.take(pa.array(ring.place(hashes_of(keys, ["key"]))))
        theirs = pc.list_element(pc.split_pattern(ours["_hoodie_file_name"], "_"), 0)
        assert found.to_pylist() == theirs.to_pylist()
        checked += len(found)
    assert checked == rows.num_rows > 1800


def test_texts_of_a_key_of_several_columns_are_joined() -> None:
    keys = pa.array(["a:x,b:1", "a:,b:zz"])
    plain = [xxhash.xxh32_intdigest(text.encode()) & LAST for text in ("x1", "zz")]
    assert hashes_of(keys, ["a", "b"]).tolist() == plain
