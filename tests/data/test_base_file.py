"""Parquet files with Hudi's footer: what is in them, what of them is read."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metatable.data.base_files import base_file, base_file_writer, encoding, key_footer, statistics
from metatable.data.base_files.base_file_writer import PAGE_ROWS, FileForm, encoded_columns
from metatable.data.base_files.encoding import Encoding
from metatable.data.base_files.key_footer import GrownFilter
from metatable.data.base_files.meta_columns import add_meta_columns, with_file_name
from metatable.data.columns.schema import META_COLUMNS, META_FIELDS
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile
from metatable.storage.errors import CorruptError, StoreError
from metatable.storage.filters.hudi import DYNAMIC, HudiBloom
from metatable.storage.parquet.fields import Element, Footer
from metatable.storage.parquet.offset_index import ROW, decode_offset_indexes
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.store import Store
from tests.data.test_schema import EVERY_TYPE, FULL_ROW
from tests.long import one_in
from tests.storage.parquet.files import footer_of, with_footer

T = "20250102030405006"
FILE = DataFile("city=sf", "f-0", "0-0-0", T)
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("val", pa.float64())])


def options(**words: Any) -> Options:
    given = {"row_group_rows": 10, **words}
    return Options.create("t", SCHEMA.names, key="id", partition_by="city", options=given)


def rows(count: int) -> pa.Table:
    """Keys k00000, k00001, …, in order."""
    table = pa.table(
        [list(range(count)), ["sf"] * count, [float(row) for row in range(count)]], schema=SCHEMA
    )
    keys = pa.array([f"k{row:05}" for row in range(count)], pa.string())
    return add_meta_columns(table, keys, FILE, task=3)


@pytest.fixture
def store(table_uri: str) -> Iterator[Store]:
    return Store(table_uri, {"durable": "false"})


def written(store: Store, table: pa.Table, **words: Any) -> DataFile:
    size, created = base_file_writer.write_base_file(store, FILE, table, options=options(**words))
    assert created
    return DataFile(FILE.partition_path, FILE.file_id, FILE.write_token, FILE.instant, size)


FEW_VALUES = (META_COLUMNS[0], *META_COLUMNS[3:], "city")
"""Which no codec makes smaller: of a file's rows they are the same, but for the commits."""


def codecs(parquet: pq.FileMetaData) -> dict[str, str]:
    chunks = [parquet.row_group(0).column(leaf) for leaf in range(parquet.num_columns)]
    return {one.path_in_schema: one.compression for one in chunks}


def test_each_leaf_of_a_nested_column_has_the_codec(store: Store) -> None:
    kind = pa.struct([("city", pa.string()), ("l", pa.list_(pa.map_(pa.string(), pa.int64())))])
    nested = pa.table({"city": ["sf"], "n": pa.array([{"city": "sf", "l": [[("a", 1)]]}], kind)})
    body = encoded_columns(nested, FileForm(options(), None))
    told = codecs(pq.read_metadata(pa.BufferReader(body)))
    assert len(told) == 4
    assert told.pop("city") == "UNCOMPRESSED"
    assert {*told.values()} == {"ZSTD"}


def odd_rows(count: int) -> pa.Table:
    """Numbers in no order (`any_…`), and in one (`in_…`)."""
    chance, number = np.random.default_rng(5), np.arange(count)
    some, cents = chance.integers(0, 100, count), chance.integers(-(10**18), 10**18, count)
    words = np.array([f"a city of some renown, number {one}" for one in range(100)])
    columns = {
        "id": [f"k{one:07}" for one in number],
        "any_code": some.astype(np.int32),
        "any_word": words[some],
        "any_real": chance.random(count),
        "any_bit": some % 2 == 0,
        "any_cents": pa.array([Decimal(one) for one in cents.tolist()], pa.decimal128(18, 0)),
        "in_steps": number,
        "in_turn": words[number % 100],
        "in_halves": np.where(some < 97, 0, some).astype(np.int32),
        "in_lists": [[one] for one in some.tolist()],
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def test_columns_that_no_codec_makes_smaller_have_none() -> None:
    """Whether they are dictionaries or not; what comes in some order has one."""
    table, form = odd_rows(encoding._LEAST_ROWS), FileForm(options(row_group_rows=1 << 20), None)
    body = encoded_columns(table, form)
    told = codecs(pq.read_metadata(pa.BufferReader(body)))
    plain = {name for name, codec in told.items() if codec == "UNCOMPRESSED"}
    assert plain == {name for name in table.column_names if name.startswith("any_")}
    assert pq.read_table(pa.BufferReader(body)).equals(table)
    every = encoded_columns(table, form, Encoding(encoding._worth_a_dictionary(table)))
    assert body.size * 16 < every.size * 17


@pytest.mark.parametrize(("group_rows", "has_codec"), [(1 << 20, False), (4096, True)])
def test_of_a_dictionary_what_it_takes_counts_once_a_row_group(
    group_rows: int, has_codec: bool
) -> None:
    table = odd_rows(encoding._LEAST_ROWS).select(["any_word"])
    told = Encoding.of(table, options(row_group_rows=group_rows)).plain
    assert ("any_word" not in told) == has_codec


@pytest.mark.parametrize("words", [{"parquet_codec": "none"}, {}])
def test_of_few_rows_and_without_a_codec_none_is_asked(
    words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(encoding, "_sizes", asked.append)
    count = encoding._LEAST_ROWS - (not words)
    assert Encoding.of(odd_rows(count), options(**words)).plain == frozenset()
    assert asked == []


def test_meta_columns_tell_commit_number_key_partition_and_file() -> None:
    table = rows(2)
    assert tuple(table.column_names[:5]) == META_COLUMNS
    assert list(table.schema)[:5] == META_FIELDS
    assert list(table.slice(1).to_pylist()[0].values())[:5] == [
        T, f"{T}_3_1", "k00001", "city=sf", FILE.name,
    ]  # fmt: skip


def test_rows_that_are_copied_name_their_new_file_and_keep_the_rest() -> None:
    later = DataFile("city=sf", "f-0", "0-0-0", "20260102030405006")
    copied = with_file_name(rows(2), later.name)
    assert copied["_hoodie_file_name"].to_pylist() == [later.name] * 2
    assert copied.drop_columns("_hoodie_file_name").equals(
        rows(2).drop_columns("_hoodie_file_name")
    )
    assert copied.schema == rows(2).schema


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
def test_rows_come_back_from_every_codec(store: Store, codec: str) -> None:
    data_file = written(store, rows(25), parquet_codec=codec)
    assert base_file.read_base_file(store, data_file, rows(0).schema).equals(rows(25))
    parquet = pq.read_metadata(f"{store.uri}/{FILE.path}")
    assert parquet.num_row_groups == 3
    expected = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    told = codecs(parquet)
    assert {told.pop(name) for name in FEW_VALUES} == {"UNCOMPRESSED"}
    assert {*told.values()} == {expected}


def test_footer_holds_what_the_writers_of_hudi_look_for(store: Store) -> None:
    data_file = written(store, rows(25), footer_bloom_fpp=1e-6)
    footer = pq.read_metadata(f"{store.uri}/{data_file.path}").metadata
    assert footer[b"hoodie_min_record_key"] == b"k00000"
    assert footer[b"hoodie_max_record_key"] == b"k00024"
    code = footer[b"hoodie_bloom_filter_type_code"].decode()
    bloom = HudiBloom.from_base64(footer[b"org.apache.hudi.bloomfilter"], code)
    assert bloom == HudiBloom.build(rows(25)["_hoodie_record_key"].combine_chunks(), 1e-6)
    assert b"ARROW:schema" not in footer


def test_a_filter_passes_on_only_as_it_was_written(store: Store) -> None:
    data_file = written(store, rows(25))
    keys = rows(25)["_hoodie_record_key"].combine_chunks()
    held = base_file.read_filter(store, data_file)
    assert held == HudiBloom.build(keys, options().footer_bloom_fpp)
    words = key_footer.footer_of(pa.chunked_array([keys]), 1e-3)
    raw = {name.encode(): text.encode() for name, text in words.items()}
    assert key_footer.sound_filter(raw) == held
    name = b"org.apache.hudi.bloomfilter"
    flipped = base64.b64decode(raw[name])[:-1] + bytes([base64.b64decode(raw[name])[-1] ^ 1])
    for other in ({**raw, name: base64.b64encode(flipped)}, {name: raw[name]}, {}, None):
        assert key_footer.sound_filter(other) is None


def test_a_filter_is_made_anew_where_most_of_its_keys_went_or_too_many_came() -> None:
    held = pa.array([f"k{row}" for row in range(100)])
    bloom = HudiBloom.build(held, 1e-3)
    for left, come, grows in ((100, 5, True), (100, 20, False), (80, 0, False)):
        new = pa.array([f"n{row}" for row in range(come)], pa.string())
        now = pa.concat_arrays([held.slice(0, left), new])
        words = key_footer.footer_of(pa.chunked_array([now]), 1e-3, GrownFilter(bloom, new))
        found = HudiBloom.from_base64(words["org.apache.hudi.bloomfilter"], DYNAMIC)
        assert found.might_contain(now).all()
        assert (found == bloom.with_keys(new, 1e-3, 2)) is grows


def test_a_footer_is_kept_where_it_is_to_be_believed_and_its_filter_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = pa.array([f"k{row:03}" for row in range(100)])
    words = key_footer.footer_of(pa.chunked_array([keys]), 1e-3)
    name, checksum = "org.apache.hudi.bloomfilter", "metatable.bloomfilter_crc32"

    def kept(told: dict[str, str], fpp: float = 1e-3, stored: pa.Array = keys) -> Any:
        body = io.BytesIO()
        table = pa.table({"_hoodie_record_key": stored})
        with pq.ParquetWriter(body, table.schema) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(told)
        return key_footer.kept_footer(pq.read_metadata(body), fpp)

    assert kept(words) == words
    assert kept(words, fpp=1e-4) is None
    assert kept(words | {name: words[name][:-8] + "AAAA" + words[name][-4:]}) is None
    assert kept(words | {checksum: "0"}) is None
    assert kept(words | {"hoodie_min_record_key": "k"}) is None
    assert kept(words | {"hoodie_max_record_key": "k090"}, stored=keys[:91]) is not None
    assert kept(words | {"hoodie_max_record_key": "k089"}, stored=keys[:90]) is None
    monkeypatch.setattr(key_footer, "MOST_KEYS", 0.9)
    assert kept(words) is None


def test_ends_of_keys_are_believed_where_a_footer_tells_them_twice(store: Store) -> None:
    data_file = written(store, rows(10))
    raw = store.fetch(data_file.path)
    for old, new, sound in ((b"", b"", True), (b"_max_record_key", b"_Max_record_key", False)):
        file = pq.ParquetFile(io.BytesIO(raw.replace(old, new)))
        keys = file.read(["_hoodie_record_key"])["_hoodie_record_key"].to_pylist()
        found = key_footer.sound_ends(file.metadata)
        assert found == ((min(keys), max(keys)) if sound else None)


def test_a_file_without_rows_has_a_filter_and_no_bounds(store: Store) -> None:
    data_file = written(store, rows(0))
    footer = pq.read_metadata(f"{store.uri}/{data_file.path}").metadata
    assert b"org.apache.hudi.bloomfilter" in footer
    assert b"hoodie_min_record_key" not in footer
    assert base_file.read_base_file(store, data_file, rows(0).schema).equals(rows(0))
    keys, positions = base_file.read_record_keys(store, data_file, "a", "z")
    assert (len(keys), len(positions)) == (0, 0)


def test_dictionaries_are_made_only_where_values_repeat(store: Store) -> None:
    written(store, rows(25), row_group_rows=100)
    group = pq.read_metadata(f"{store.uri}/{FILE.path}").row_group(0)
    has = {}
    for leaf in range(group.num_columns):
        column = group.column(leaf)
        has[column.path_in_schema] = column.has_dictionary_page
    assert has["city"]
    assert has["_hoodie_commit_time"]
    assert not has["id"]
    assert not has["_hoodie_record_key"]


def test_nested_leaves_have_dictionaries(store: Store) -> None:
    kind = pa.struct([("x", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.string()))])
    column = pa.array([{"x": ["v"], "m": [("k", "v")]}] * 50, kind)
    written(store, rows(50).append_column("s", column))
    group = pq.read_metadata(f"{store.uri}/{FILE.path}").row_group(0)
    leaves = [group.column(leaf) for leaf in range(group.num_columns)]
    nested = [leaf for leaf in leaves if leaf.path_in_schema.startswith("s.")]
    assert len(nested) == 3
    assert all(leaf.has_dictionary_page for leaf in nested)


def test_the_same_rows_are_the_same_bytes_and_belong_to_both_attempts(store: Store) -> None:
    first = base_file_writer.write_base_file(store, FILE, rows(25), options=options())
    second = base_file_writer.write_base_file(store, FILE, rows(25), options=options())
    assert first == second == (store.size(FILE.path), True)


def test_another_attempts_file_is_adopted(store: Store) -> None:
    size, created = base_file_writer.write_base_file(store, FILE, rows(25), options=options())
    assert created
    assert base_file_writer.write_base_file(store, FILE, rows(3), options=options()) == (
        size,
        False,
    )
    assert base_file.read_base_file(store, FILE, rows(0).schema).num_rows == 25


def test_of_many_attempts_at_once_one_file_stays(store: Store) -> None:
    results: list[tuple[int, bool]] = []

    def attempt(count: int) -> None:
        results.append(
            base_file_writer.write_base_file(store, FILE, rows(count), options=options())
        )

    threads = [threading.Thread(target=attempt, args=(count,)) for count in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created for _, created in results) == [False] * 7 + [True]
    assert {size for size, _ in results} == {store.size(FILE.path)}


def test_a_full_temporary_folder_is_told_as_such(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = partial(open, "/dev/full", "r+b")
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    how: dict[str, Any] = {"options": options(), "columns": None, "with_nan": ()}
    with pytest.raises(StoreError, match=r"temporary folder .*No space left on device"):
        base_file_writer.stream_to_base_file(store, FILE, iter([rows(3), rows(3)]), **how)
    assert not list(store.list(FILE.partition_path))


def test_columns_are_read_as_asked(store: Store) -> None:
    data_file = written(store, rows(12))
    wanted = pa.schema([("val", pa.float64()), ("new", pa.list_(pa.int32())), ("id", pa.int64())])
    found = base_file.read_base_file(store, data_file, wanted)
    assert found.schema == wanted
    assert found["id"].to_pylist() == list(range(12))
    assert found["new"].null_count == 12


def test_a_schema_of_new_columns_alone_has_the_rows_of_the_file(store: Store) -> None:
    data_file = written(store, rows(12))
    found = base_file.read_base_file(store, data_file, pa.schema([("new", pa.int32())]))
    assert found.num_rows == 12


def test_narrower_types_in_the_file_are_widened(store: Store) -> None:
    data_file = written(store, rows(3).set_column(5, "id", pa.array([1, 2, 3], pa.int32())))
    found = base_file.read_base_file(store, data_file, pa.schema([("id", pa.int64())]))
    assert found["id"].type == pa.int64()


def test_required_columns_must_be_there_and_full(store: Store) -> None:
    data_file = written(store, rows(3).append_column("n", pa.nulls(3, pa.int32())))
    for name, message in (("n", "nulls in a required column"), ("z", "lacks a required column")):
        required = pa.schema([pa.field(name, pa.int32(), nullable=False)])
        with pytest.raises(CorruptError, match=message):
            base_file.read_base_file(store, data_file, required)


def test_every_type_comes_back_without_a_stored_arrow_schema(store: Store) -> None:
    empty = dict.fromkeys(EVERY_TYPE.names) | {"id": 2}
    table = pa.Table.from_pylist([FULL_ROW, empty], schema=EVERY_TYPE)
    whole = add_meta_columns(table, pa.array(["a", "b"]), FILE)
    data_file = written(store, whole)
    assert base_file.read_base_file(store, data_file, whole.schema).equals(whole)


@pytest.mark.parametrize(
    ("first", "last", "groups"),
    [
        (None, None, [0, 1, 2]),
        ("k00010", "k00010", [1]),
        ("k00009", "k00010", [0, 1]),
        ("k00020", None, [2]),
        (None, "k00009", [0]),
        (None, "a", []),
        ("k00009z", "k00009zz", []),
        ("z", None, []),
    ],
)
def test_row_groups_that_cannot_hold_a_key_are_not_read(
    store: Store, first: str | None, last: str | None, groups: list[int]
) -> None:
    data_file = written(store, rows(25))
    before = dict(store.counters)
    keys, positions = base_file.read_record_keys(store, data_file, first, last)
    moved = store.counters.since(before)
    expected = [row for group in groups for row in range(10 * group, min(10 * group + 10, 25))]
    assert positions.tolist() == expected
    assert positions.dtype == np.int64
    assert keys.to_pylist() == [f"k{row:05}" for row in expected]
    assert keys.type == pa.string()
    assert moved.get("data.row_groups", 0) == len(groups)
    assert moved["data.files_opened"] == 1


def test_keys_beyond_what_statistics_hold_are_still_found(store: Store) -> None:
    table = rows(25)
    long = pa.array(["x" * 10_000 + key for key in table["_hoodie_record_key"].to_pylist()])
    data_file = written(store, table.set_column(2, META_FIELDS[2], long))
    keys, positions = base_file.read_record_keys(store, data_file, long[3].as_py(), long[3].as_py())
    assert long[3].as_py() in keys.to_pylist()
    assert len(positions) == len(keys)


def test_reading_keys_costs_a_few_requests_and_not_the_payload(store: Store) -> None:
    table = rows(2000)
    noise = pa.array([bytes(np.random.default_rng(row).bytes(200)) for row in range(2000)])
    data_file = written(store, table.append_column("noise", noise), row_group_rows=1000)
    before = dict(store.counters)
    base_file.read_record_keys(store, data_file)
    moved = store.counters.since(before)
    assert moved["store.requests"] <= 5
    assert moved["store.bytes_read"] < data_file.size_bytes // 3


def test_a_null_key_is_damage(store: Store) -> None:
    table = rows(3).set_column(2, META_FIELDS[2], pa.array(["a", None, "c"]))
    body = pa.BufferOutputStream()
    pq.write_table(table, body)
    store.put(FILE.path, body.getvalue().to_pybytes())
    with pytest.raises(CorruptError, match="key is null"):
        base_file.read_record_keys(store, FILE)


def test_damaged_files_are_reported_with_their_path(store: Store) -> None:
    data_file = written(store, rows(25))
    body = store.fetch(data_file.path)
    for damaged in (b"", b"PAR1", body[: len(body) // 2], body[:-20] + body[-8:], b"x" * 500):
        store.put(FILE.path, damaged)
        with pytest.raises(CorruptError) as raised:
            base_file.read_base_file(store, FILE, rows(0).schema)
        assert raised.value.facts["path"] == FILE.path


def test_a_flipped_byte_in_the_data_is_found_by_the_page_checksum(store: Store) -> None:
    data_file = written(store, rows(25), parquet_codec="none")
    body = bytearray(store.fetch(data_file.path))
    body[body.index(b"k00013") + 5] ^= 1
    store.put(FILE.path, bytes(body))
    with pytest.raises(CorruptError, match="not readable"):
        base_file.read_record_keys(store, data_file)


@pytest.mark.parametrize("column", ["s", "n.m"])
def test_row_groups_are_streamed_together_by_the_bytes_of_what_is_asked(
    store: Store, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr(base_file, "STEP_BYTES", 1000)
    texts = [f"{number} " * 100 for number in range(20)]
    structs = [{"x": one, "y": 1} for one in texts]
    table = pa.table({"id": [*range(20)], "s": structs, "n.m": texts, "sx": texts})
    body = pa.BufferOutputStream()
    pq.write_table(table, body, row_group_size=5, use_dictionary=False)
    store.put(FILE.path, bytes(body.getvalue()))
    for names, expected in ((["id"], [20]), (["id", column], [5] * 4)):
        pieces = base_file.stream_base_file(store, FILE, table.select(names).schema)
        assert [one.num_rows for one in pieces] == expected


@pytest.mark.parametrize("step_bytes", [base_file.STEP_BYTES, 1])
@pytest.mark.parametrize("column", ["_hoodie_record_key", "val"])
def test_one_bit_of_a_schema_ends_no_process(
    store: Store, monkeypatch: pytest.MonkeyPatch, column: str, step_bytes: int
) -> None:
    """A column that may be null may not: its chunks tell sizes of the one that might."""
    monkeypatch.setattr(base_file, "STEP_BYTES", step_bytes)
    data_file = written(store, rows(25))
    body = store.fetch(data_file.path)
    footer = footer_of(body)
    [element] = [one for one in footer[Footer.SCHEMA] if one[Element.NAME] == column.encode()]
    assert element[Element.REPETITION] == 1
    element[Element.REPETITION] = 0
    store.put(data_file.path, with_footer(body, footer))
    with pytest.raises(CorruptError):
        [*base_file.stream_base_file(store, data_file, rows(0).schema)]
    with pytest.raises(CorruptError):
        statistics.of_file(store, data_file, ["id"])
    if column == "_hoodie_record_key":
        with pytest.raises(CorruptError):
            base_file.read_record_keys(store, data_file, "k00003", "k00005")
        with pytest.raises(CorruptError):
            key_footer.read_key_footer(store, data_file)


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_damage_anywhere_in_the_footer_is_reported_or_harmless(store: Store, seed: int) -> None:
    body = bytearray(store.fetch(written(store, rows(25)).path))
    random = np.random.default_rng(seed)
    body[int(random.integers(len(body) // 2, len(body)))] ^= 1 << int(random.integers(8))
    store.put(FILE.path, bytes(body))
    with suppress(CorruptError):
        assert base_file.read_base_file(store, FILE, rows(0).schema).schema == rows(0).schema


def test_a_missing_file_is_damage(store: Store) -> None:
    with pytest.raises(CorruptError, match="file is missing"):
        base_file.read_record_keys(store, FILE)
    with pytest.raises(CorruptError, match="file is missing"):
        base_file.read_record_keys(store, DataFile("", "f", "0", T, size_bytes=100))


def test_statistics_of_a_file_are_those_of_its_rows(store: Store) -> None:
    table = rows(25)
    data_file = written(store, table)
    names = ["val", "_hoodie_record_key", "city"]
    of_rows = statistics.of_table(table, names)
    of_file = statistics.of_file(store, data_file, [*names, "absent"])
    assert [(one.column, one.minimum, one.maximum, one.value_count) for one in of_file] == [
        (one.column, one.minimum, one.maximum, one.value_count) for one in of_rows
    ]
    assert all(one.size_bytes > 0 for one in of_file)


def test_a_column_with_a_nan_has_no_bounds_in_the_footer(tmp_path: Any) -> None:
    schema = pa.schema([("id", pa.string()), ("with", pa.float64()), ("without", pa.float64())])
    rows = pa.table({"id": ["a", "b"], "with": [1.0, float("nan")], "without": [1.0, 2.0]}, schema)
    file = DataFile("", "group-0", "0-0-0", "20260101000000000")
    store = Store(tmp_path)
    table = add_meta_columns(rows, rows["id"].combine_chunks(), file)
    base_file_writer.write_base_file(
        store, file, table, options=Options.create("t", schema.names, key="id")
    )
    held = pq.read_metadata(tmp_path / file.name).row_group(0)
    columns = [held.column(place) for place in range(held.num_columns)]
    told = {column.path_in_schema: column.is_stats_set for column in columns}
    assert (told["with"], told["without"]) == (False, True)


def test_pages_end_by_rows_or_by_bytes() -> None:
    """Keys of 36 characters have half as many rows a page as numbers and what is short."""
    count = 3 * PAGE_ROWS
    texts = pa.array([f"{number:036d}" for number in range(count)])
    piece = pa.table({"id": texts, "n": range(count), "short": pc.utf8_slice_codeunits(texts, 28)})
    raw = encoded_columns(piece, FileForm(Options("t", ("id",)), None), Encoding(()))
    chunks = ParquetParts.of_bytes(raw).chunks(0)
    pages = {
        one.leaf.name: decode_offset_indexes(one.parts.read(one.page_index)[1:])[1][:, ROW].tolist()
        for one in chunks
    }
    assert pages["n"] == pages["short"] == [*range(0, count, PAGE_ROWS)]
    assert pages["id"] == [*range(0, count, PAGE_ROWS // 2)]


def test_pieces_without_rows_leave_no_trace(store: Store) -> None:
    """As where a commit takes away all of the first rows of a large file."""
    table, nothing = rows(25), rows(25).slice(0, 0)
    pieces = iter([nothing, nothing, table, nothing])
    told = {"options": options(), "columns": None, "with_nan": ()}
    base_file_writer.stream_to_base_file(store, FILE, pieces, **told)
    body = store.get(FILE.path)
    assert body == base_file_writer.encoded_base_file(table, options(), None)
    footer = pq.read_metadata(io.BytesIO(body))
    assert [footer.row_group(one).num_rows for one in range(footer.num_row_groups)] == [10, 10, 5]
