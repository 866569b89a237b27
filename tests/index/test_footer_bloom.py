"""`bloom`: what of the footers is read, when, and what stands in for filters that are not there."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metatable
from benchmarks.rounds import Rounds
from metatable.data.base_files import key_footer
from metatable.index import footer_bloom
from metatable.index.footer_bloom import FooterBloomIndex, FooterSource
from metatable.index.key_filters import AskedKeys, HashFilters, HudiKeyFilter, NoFilter
from metatable.index.metadata_bloom import MetadataSource
from metatable.metadata.hfiles import entries
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store
from metatable.write import new_slice
from tests import far
from tests.index.rows import make, rows, told_tags

KEY = "_hoodie_record_key"


def snapshot_of(table: metatable.Table) -> Snapshot:
    store = Store(table.uri)
    newest = load_newest(store)
    assert newest is not None
    return Snapshot(store, newest)


def cost(table: metatable.Table, asked: pa.Table) -> Counters:
    before = dict(table.counters)
    table.tag_locations(asked)
    return Counters(table.counters.since(before))


@pytest.fixture
def table(table_uri: str) -> metatable.Table:
    """60 keys in three partitions, two files each."""
    made = make(table_uri, "bloom", "partition", file_rows=10)
    made.insert(rows(0, 60))
    assert len(made.files()) == 6
    cache.clear()
    return made


def test_a_footer_is_read_once_by_one_request(table: metatable.Table) -> None:
    first = cost(table, rows(0, 60))
    assert first["data.footers_read"] == 6
    assert first["tag.files_opened"] == 6
    before = cost(table, rows(0, 60))
    assert before["data.footers_read"] == 0
    table.upsert(rows(0, 3, value=7))  # a new version, three new files, four footers as they were
    again = cost(table, rows(0, 60))
    assert again["data.footers_read"] == 3


def test_only_footers_of_the_partitions_asked_for_are_read(table: metatable.Table) -> None:
    asked = rows(0, 60).filter(pa.compute.equal(rows(0, 60)["city"], "berlin"))
    assert cost(table, asked)["data.footers_read"] == 2


def test_absent_keys_cost_footers_alone(table: metatable.Table) -> None:
    odd = rows(0, 60).set_column(0, "id", pa.array([f"k{n:06d}x" for n in range(60)]))
    cold, warm = table.explain(odd), table.explain(odd)
    for told in (cold, warm):
        assert list(told.files.values()) == [6, 6, 0, 0]
        assert "data.files_opened" not in told.counters
    assert cold.counters["data.footers_read"] == 6
    assert "data.footers_read" not in warm.counters
    sizes = sum(file.size_bytes for file in table.files())  # less than a tail: read whole
    assert warm.requests == warm.bytes == 0
    assert cold.requests >= 6
    assert cold.bytes >= sizes


def test_keys_outside_of_every_range_ask_no_filter(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footer_bloom, "_make_filter", None)
    told = table.explain(rows(100, 160))
    assert (told.found, list(told.files.values())) == (0, [6, 0, 0, 0])


def test_levels_are_those_of_metadata_bloom(table_uri: str) -> None:
    asked = rows(590, 610)
    levels = {}
    for index in ("metadata_bloom", "bloom"):
        table = make(f"{table_uri}-{index}", index, "partition")
        table.insert(rows(0, 600))
        told = table.explain(asked)
        levels[index] = (told.found, dict(told.files), told.counters["tag.false_positives"])
        assert told.requests > 0 < told.bytes
    assert levels["bloom"] == levels["metadata_bloom"]


def test_a_bloom_table_keeps_no_metadata_of_its_own(table: metatable.Table) -> None:
    assert set(table.describe().metadata) == {"files", "column_stats"}
    assert FooterBloomIndex(table.options).partitions == ()
    assert table.verify().findings == ()


def test_filters_that_were_driven_out_are_read_again_with_their_footers(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost(table, rows(0, 60))
    monkeypatch.setattr(cache, "blocks", cache.Cache(0))
    assert cost(table, rows(0, 60))["data.footers_read"] == 6
    found = table.tag_locations(rows(0, 60))["_location"]
    assert found.null_count == 0


def test_a_filter_is_decoded_once(table: metatable.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    cost(table, rows(0, 60))
    monkeypatch.setattr(key_footer.HudiFilter, "decode", None)
    assert table.tag_locations(rows(0, 60))["_location"].null_count == 0


def test_memory_holds_few_filters_at_once(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = snapshot_of(table)
    files = list(snapshot.slices())
    made: list[str] = []

    def spy(store: Store, file: Any) -> Any:
        made.append(file.path)
        return NoFilter()

    monkeypatch.setattr(footer_bloom, "_filter", spy)
    monkeypatch.setattr("metatable.storage.threads.WORKERS", 2)
    given = FooterSource().filters(snapshot, files)
    assert made == []
    next(given)
    assert len(made) <= 3


def test_filters_grow_with_their_files_and_deny_no_key(table_uri: str) -> None:
    table = make(table_uri, "bloom", "partition", small_file_bytes=1 << 20, file_rows=10_000)
    table.insert(rows(0, 3000))
    for number in range(4):
        table.upsert(rows(2990 + 10 * number, 3010 + 10 * number, value=number))
        table.delete(rows(100 * number, 100 * number + 5))
    cache.clear()
    for file, filter_ in zip(table.files(), filters_of(table), strict=True):
        keys = pq.read_table(Path(table.uri, file.path), columns=[KEY])[KEY].combine_chunks()
        text = pq.read_metadata(Path(table.uri, file.path)).metadata
        held = key_footer.sound_filter(text)
        assert held is not None
        assert held.might_contain(keys).all()
        assert held.keys_a_row == 1000 < held.keys_in_last_row
        assert not isinstance(filter_, NoFilter)


def test_a_filter_that_has_lost_a_bit_ends_with_its_file(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(monkeypatch, {key_footer._FILTER: _denying(), key_footer._TYPE_CODE: "DYNAMIC_V0"})
    table = make(table_uri, "record", "partition")
    table.insert(rows(0, 30))
    monkeypatch.undo()
    table.upsert(rows(0, 30, value=1))
    for file in table.files():
        parquet = pq.ParquetFile(Path(table.uri, file.path))
        held = key_footer.sound_filter(parquet.metadata.metadata)
        assert held is not None
        assert held.might_contain(parquet.read([KEY])[KEY].combine_chunks()).all()


def _denying() -> str:
    others = pa.array([f"other {number}" for number in range(10)])
    return key_footer.HudiBloom.build(others, 1e-3).to_base64().decode()


# what a file may have instead of Hudi's filter


def rewritten(
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, str] | None = None,
    **options: Any,
) -> None:
    """From now on base files have these words in their footers (None: as they are), and Parquet's
    options of a writer."""

    def encode(table: pa.Table, *told: Any) -> bytes:
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
            writer.write_table(table, row_group_size=4)
            writer.add_key_value_metadata(
                key_footer.footer_of(table.column(KEY), 1e-3) if words is None else words
            )
        return sink.getvalue()

    monkeypatch.setattr(new_slice, "encoded_base_file", encode)


def filters_of(table: metatable.Table) -> list[Any]:
    snapshot = snapshot_of(table)
    return list(FooterSource().filters(snapshot, list(snapshot.slices())))


PARQUETS = {"bloom_filter_options": {KEY: {"ndv": 20, "fpp": 1e-6}}}


@pytest.mark.parametrize(
    ("words", "options", "kind", "candidates"),
    [
        (None, {}, HudiKeyFilter, 0),
        (None, PARQUETS, HudiKeyFilter, 0),
        ({}, PARQUETS, HashFilters, 0),
        ({}, {}, NoFilter, 60),
        ({"org.apache.hudi.bloomfilter": "AAAA", "hoodie_bloom_filter_type_code": "NEW"}, PARQUETS,
         HashFilters, 0),
        ({"org.apache.hudi.bloomfilter": "AAAA", "hoodie_bloom_filter_type_code": "NEW"}, {},
         NoFilter, 60),
        ({}, {"write_statistics": False}, NoFilter, 60),
    ],
)  # fmt: skip
def test_the_best_filter_that_a_file_has_is_asked(
    table_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, str] | None,
    options: dict[str, Any],
    kind: type,
    candidates: int,
) -> None:
    rewritten(monkeypatch, words, **options)
    table = make(table_uri, "bloom", "partition", file_rows=20)
    table.insert(rows(0, 60))
    assert {type(one) for _, one in filters_of(table)} == {kind}
    assert table.tag_locations(rows(0, 60))["_location"].null_count == 0
    odd = rows(0, 60).set_column(0, "id", pa.array([f"k{n:06d}x" for n in range(-1, 59)]))
    told = table.explain(odd)
    assert told.found == 0
    near = range(candidates - 3, candidates + 1) if candidates else [0]
    assert told.counters["tag.candidates"] in near  # the last key of a city is behind its range


def test_a_damaged_filter_is_told(table_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = {"org.apache.hudi.bloomfilter": "AA=", "hoodie_bloom_filter_type_code": "SIMPLE"}
    rewritten(monkeypatch, damaged)
    table = make(table_uri, "bloom", "global")
    table.insert(rows(0, 9))
    with pytest.raises(CorruptError, match="bloom filter is not base64"):
        table.tag_locations(rows(0, 9))


def test_a_file_that_is_gone_is_told(table: metatable.Table) -> None:
    Path(table.uri, table.files()[0].path).unlink()
    with pytest.raises(CorruptError, match="file is missing"):
        table.tag_locations(rows(0, 60))


# many table partitions


@pytest.mark.parametrize("late", [False, True])
def test_files_of_many_partitions_are_listed_and_footers_read_together(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, backend = far.far(far.made(far.in_memory(), "cow", "bloom"), Rounds)
    monkeypatch.setattr(entries, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(footer_bloom, "READ_TOGETHER", 4)
    monkeypatch.setattr(footer_bloom, "FILES_TOGETHER", 20)
    view = table._snapshot(None)
    view = view.since(1) if late else view
    asked, slices = [], Snapshot.slices

    def noting(held: Snapshot, path: str | None = None) -> Any:
        asked.append(path)
        return slices(held, path)

    monkeypatch.setattr(Snapshot, "slices", noting)
    source, paths = FooterSource(late), [f"day=d{n:02}" for n in range(1, far.DAYS + 3)]
    source.fetch(view, paths)
    found = [source.ranges(view, path) for path in paths]
    assert asked == [None]
    assert sum(far.data_rounds(backend)) == far.DAYS - 1, "of the partitions that are asked for"
    assert len(far.data_rounds(backend)) <= 6
    cache.clear()
    for path, one in zip(paths, found, strict=True):
        alone = source.ranges(view, path)
        assert one.files.paths.equals(alone.files.paths)
        assert (one.minimum, one.maximum) == (alone.minimum, alone.maximum)


# what came since


def test_of_a_view_since_a_version_only_later_slices_are_asked(table_uri: str) -> None:
    """A compaction lifts all that there is into what was published since."""
    table = make(table_uri, "bloom", "global", file_rows=10)
    table.insert(rows(0, 60))
    base, before = table.version, {file.path for file in table.files()}
    table.upsert(rows(0, 1, value=9))
    table.insert(rows(60, 66))
    table.compact(major=True)
    late = {file.path for file in table.files()} - before
    since = snapshot_of(table).since(base)
    files = since.slices()
    mask = since.came(files)
    assert {file.path for file, came in zip(files, mask, strict=True) if came} == late
    assert len(files) > len(late) == 4
    cache.clear()
    counted = since.counting(Counters())
    for source in (FooterSource(late=True), MetadataSource(late=True)):
        assert {file.path for file in source.ranges(counted, None).files} == late
    assert counted.store.counters["data.footers_read"] == len(late)


def test_in_a_view_of_everything_all_slices_came_since(table: metatable.Table) -> None:
    snapshot = snapshot_of(table)
    assert snapshot.base() is None
    assert snapshot.came(snapshot.slices()).all()


def test_only_keys_of_later_slices_are_held(table: metatable.Table) -> None:
    base = table.version
    table.insert(rows(60, 66))
    table.compact(major=True)
    since = snapshot_of(table).since(base)
    asked = [(3, "amsterdam"), (60, "amsterdam"), (60, "berlin"), (61, "cairo"), (99, "berlin")]
    keys = pa.array([f"k{number:06d}" for number, _ in asked])
    paths = pa.array([f"city={city}" for _, city in asked])
    held = FooterBloomIndex(table.options).holds(since, keys, paths)
    assert held.tolist() == [False, True, False, False, False]  # elsewhere it is another key


# filters asked with a part of the keys


def test_filters_answer_for_the_part_that_they_are_asked_for() -> None:
    texts = pa.array(sorted(f"k{n}" for n in range(40)))
    asked, parts = AskedKeys(texts), texts.slice(10, 5)
    bloom = key_footer.HudiBloom.build(parts, 1e-9)
    for one in (HudiKeyFilter(bloom), NoFilter()):
        answer = one.might_contain(asked, 8, 20)
        expected = np.isin(np.arange(8, 20), np.arange(10, 15)) | isinstance(one, NoFilter)
        assert answer.tolist() == expected.tolist()


def test_tags_of_both_scopes_are_those_of_metadata_bloom(table_uri: str) -> None:
    for scope in ("partition", "global"):
        found = []
        for index in ("metadata_bloom", "bloom"):
            table = make(f"{table_uri}-{index}-{scope}", index, scope)
            table.insert(rows(0, 90))
            places = told_tags(table.tag_locations(rows(30, 120)))
            found.append([place and (place[0], place[3]) for place in places])
        assert found[0] == found[1]
