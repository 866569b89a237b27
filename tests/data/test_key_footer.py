"""What footers say of keys: ours, those of Hudi's own tables, and Parquet's own statistics."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metatable.data.base_files.base_file import read_record_keys
from metatable.data.base_files.footer_statistics import of_footer
from metatable.data.base_files.key_footer import KeyFooter, footer_of, read_key_footer, sound_ends
from metatable.data.base_files.parquet import open_parquet
from metatable.data.file_groups.slices import DataFile
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.filters.hudi import DYNAMIC, SIMPLE, HudiBloom
from metatable.storage.parquet.fields import Column, Footer, Group, Meta, Statistics
from metatable.storage.parquet.footer import read_footer
from metatable.storage.parquet.thrift import BINARY
from metatable.storage.parquet.told_bounds import ToldBounds
from metatable.storage.store import Store
from tests.storage.parquet.files import footer_of as footer_struct
from tests.storage.parquet.files import with_footer, with_statistics

FILE = DataFile("city=sf", "f-0", "0-0-0", "20250102030405006")
MIN, MAX = "hoodie_min_record_key", "hoodie_max_record_key"
FILTER, CODE = "org.apache.hudi.bloomfilter", "hoodie_bloom_filter_type_code"


def write(
    tmp_path: Path, keys: Sequence[str], words: dict[str, Any] | None = None, **options: Any
) -> tuple[Store, DataFile]:
    """A file of these keys, three a row group, with these words in its footer."""
    path = tmp_path / FILE.path
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema({"other": pa.int64(), "_hoodie_record_key": pa.string()})
    table = pa.table([range(len(keys)), pa.array(keys, pa.string())], schema=schema)
    with pq.ParquetWriter(path, schema, **options) as writer:
        writer.write_table(table, row_group_size=3)
        writer.add_key_value_metadata(words or {})
    store = Store(tmp_path, {"durable": "false"})
    return store, DataFile.decode(FILE.path, path.stat().st_size)


def read(*given: Any, **options: Any) -> KeyFooter:
    return read_key_footer(*write(*given, **options))[0]


def bounds(*given: Any, **options: Any) -> tuple[str | None, str | None]:
    footer = read(*given, **options)
    return footer.minimum, footer.maximum


KEYS = [f"k{number:02}" for number in (5, 3, 9, 7, 1, 8, 4)]


def test_what_we_write_is_read_back(tmp_path: Path) -> None:
    words = footer_of(pa.chunked_array([KEYS]), 1e-3)
    footer, hudi = read_key_footer(*write(tmp_path, KEYS, words))
    assert (footer.minimum, footer.maximum) == ("k01", "k09")
    assert footer.has_hudi_filter
    assert footer.column_filter is None
    assert hudi is not None
    assert hudi.decode("f") == HudiBloom.build(pa.array(KEYS), 1e-3)


def test_only_the_footer_is_read(tmp_path: Path) -> None:
    keys = [f"{number:040}" for number in range(20_000)]
    store, file = write(tmp_path, keys, {}, use_dictionary=False, compression="none")
    read_key_footer(store, file)
    assert file.size_bytes > 800_000
    assert store.counters["store.bytes_read"] < 4 * file.size_bytes // 5
    assert store.counters["data.footers_read"] == 1
    assert store.counters["store.requests"] <= 2


def test_bounds_in_the_footer_come_before_those_of_row_groups(tmp_path: Path) -> None:
    assert bounds(tmp_path, KEYS, {MIN: "a", MAX: "z"}) == ("a", "z")


@pytest.mark.parametrize("words", [{}, {MIN: "a"}, {MAX: "z"}])
def test_where_a_bound_is_missing_those_of_all_row_groups_count(
    tmp_path: Path, words: dict[str, str]
) -> None:
    assert bounds(tmp_path, KEYS, words) == ("k01", "k09")


def test_without_statistics_nothing_is_known(tmp_path: Path) -> None:
    assert bounds(tmp_path, KEYS, {}, write_statistics=False) == (None, None)
    assert bounds(tmp_path, KEYS, {}, write_statistics=["other"]) == (None, None)


def test_one_row_group_without_statistics_makes_both_bounds_unknown(tmp_path: Path) -> None:
    """pyarrow leaves statistics out where a bound is longer than 4 KiB."""
    assert bounds(tmp_path, ["b", "c", "d", "a" * 5000, "e", "f"], {}) == (None, None)


def test_a_file_without_rows_has_no_bounds_and_a_filter_that_denies(tmp_path: Path) -> None:
    words = footer_of(pa.chunked_array([[]], pa.string()), 1e-3)
    footer, hudi = read_key_footer(*write(tmp_path, [], words))
    assert (footer.minimum, footer.maximum) == (None, None)
    assert hudi is not None
    assert not hudi.decode("f").might_contain(pa.array(KEYS)).any()


# Java compares the halves of surrogate pairs: what lies beyond U+FFFF comes before U+E000

ODD = ["\ue000", "\uffff", "\U0001f600", "\U00010000", "z", "é", "a\uffffb", "a\U0001f600b", "a"]


def as_java(key: str) -> bytes:
    return key.encode("utf-16-be")


def test_bounds_in_javas_order_deny_no_key(tmp_path: Path) -> None:
    draw = random.Random(1)
    unlike = 0
    for _ in range(40):
        keys = draw.sample(ODD, draw.randint(1, 4))
        words = {MIN: min(keys, key=as_java), MAX: max(keys, key=as_java)}
        unlike += (words[MIN], words[MAX]) != (min(keys), max(keys))
        for options in ({}, {"write_statistics": False}):
            least, most = bounds(tmp_path, keys, words, **options)
            assert least is None or least <= min(keys)
            assert most is None or most >= max(keys)
    assert unlike >= 5


@pytest.mark.parametrize(
    ("least", "most", "believed"),
    [
        ("a", "zé\ud7ff", True),
        ("a\uffff", "z\U0001f600", True),
        ("a\U00010000", "z", False),
        ("a", "z\ue000", False),
        ("a", "z\uffff", False),
    ],
)
def test_bounds_are_believed_where_java_and_bytes_agree(
    tmp_path: Path, least: str, most: str, believed: bool
) -> None:
    told = bounds(tmp_path, ["b"], {MIN: least, MAX: most}, write_statistics=False)
    assert told == ((least, most) if believed else (None, None))


# statistics that are wider than the keys


class _Chunk:
    """A column chunk as pyarrow tells it; `bounds` None: without statistics."""

    def __init__(self, bounds: tuple[bytes, bytes] | None) -> None:
        self.statistics = self if bounds else None
        self.has_min_max = True
        self.min_raw, self.max_raw = bounds or (b"", b"")


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([(b"ab", b"b")], ("ab", "b")),  # cut off, the maximum raised
        ([(b"ab", b"b"), (b"aa", b"ac")], ("aa", "b")),
        ([(b"\xc3", b"b")], (None, None)),  # in the middle of a character
        ([(b"a", b"b\xff")], (None, None)),
        ([(b"a", b"b"), None], (None, None)),
        ([], (None, None)),
    ],
)
def test_cut_statistics_are_bounds_or_say_nothing(chunks: list[Any], expected: Any) -> None:
    from metatable.data.base_files.key_footer import _bounds_of_groups  # noqa: PLC0415

    assert _bounds_of_groups([_Chunk(one) for one in chunks]) == expected


# filters


def test_an_old_name_and_no_type_code_are_a_simple_filter(tmp_path: Path) -> None:
    built = HudiBloom.build(pa.array(KEYS), 1e-3, type_code=SIMPLE)
    words = {"com.uber.hoodie.bloomfilter": built.to_base64().decode()}
    footer, hudi = read_key_footer(*write(tmp_path, KEYS, words))
    assert footer.has_hudi_filter
    assert hudi is not None
    assert hudi.decode("f") == built


def test_a_filter_of_an_unknown_family_is_told_when_it_is_asked(tmp_path: Path) -> None:
    _, hudi = read_key_footer(*write(tmp_path, KEYS, {FILTER: "AAAA", CODE: "CUCKOO"}))
    assert hudi is not None
    with pytest.raises(UpgradeError, match="unknown bloom filter"):
        hudi.decode("f")


def test_parquets_own_filters_are_found_where_every_row_group_has_one(tmp_path: Path) -> None:
    chosen = {"bloom_filter_options": {"_hoodie_record_key": {"ndv": 3, "fpp": 0.01}}}
    footer = read(tmp_path, KEYS, {}, **chosen)
    assert footer.column_filter is not None
    assert len(footer.column_filter) == 3
    assert read(tmp_path, KEYS, {}).column_filter is None
    assert read(tmp_path, [], {}, **chosen).column_filter is None


# damage


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({MIN: "z", MAX: "a"}, "contradict each other: .*minimum='z' maximum='a'"),
        ({MIN: b"\xff", MAX: "z"}, "footer is not readable"),
        ({FILTER: "AAAA", CODE: b"\xff"}, "footer is not readable"),
    ],
)
def test_words_of_nonsense_are_damage(tmp_path: Path, words: dict[str, Any], told: str) -> None:
    with pytest.raises(CorruptError, match=told):
        read(tmp_path, KEYS, words)


def test_a_file_without_a_key_column_is_damage(tmp_path: Path) -> None:
    store, file = write(tmp_path, KEYS)
    pq.write_table(pa.table({"a": [1]}), tmp_path / file.path)
    other = DataFile.decode(file.path, (tmp_path / file.path).stat().st_size)
    with pytest.raises(CorruptError, match="no key column"):
        read_key_footer(store, other)


def test_flipped_bytes_of_a_footer_are_damage_or_an_answer(tmp_path: Path) -> None:
    words = footer_of(pa.chunked_array([KEYS]), 1e-3)
    store, file = write(tmp_path, KEYS, words)
    sound = store.fetch(file.path)
    length = int.from_bytes(sound[-8:-4], "little")
    draw = random.Random(7)
    damaged = 0
    for _ in range(300):
        raw = bytearray(sound)
        for _ in range(draw.choice([1, 1, 2, 5])):
            raw[len(raw) - 8 - draw.randrange(1, length + 1)] = draw.randrange(256)
        store.put(file.path, bytes(raw))
        try:
            read_key_footer(store, file)
        except CorruptError:
            damaged += 1
    assert damaged > 30


# Hudi's own tables


def files_of_hudi(interop: Path, tmp_path: Path) -> Iterator[tuple[Store, DataFile, pa.Array]]:
    """Every base file of copy-on-write tables that Hudi wrote, with its keys."""
    archives = sorted((interop / "hudi").glob("*cow__v6*.zip"))
    archives += [interop / "hudi-spark" / f"{name}.zip" for name in ("cow_bloom_footer",)]
    store = Store(tmp_path, {"durable": "false"})
    for number, archive in enumerate(archives):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if not name.endswith(".parquet") or "/.hoodie/" in name or "MACOSX" in name:
                    continue
                raw = opened.read(name)
                path = f"{number}/{name}"
                store.put(path, raw)
                keys = pq.read_table(pa.BufferReader(raw), columns=["_hoodie_record_key"])
                yield store, DataFile.decode(path, len(raw)), keys[0].combine_chunks()


def test_footers_of_hudi_have_the_bounds_of_their_keys_and_pass_them(
    interop: Path, tmp_path: Path
) -> None:
    codes = set()
    absent = pa.array([f"absent-{number}" for number in range(1000)])
    count = 0
    for store, file, keys in files_of_hudi(interop, tmp_path):
        footer, hudi = read_key_footer(store, file)
        ends = pc.min_max(keys)
        assert (footer.minimum, footer.maximum) == (ends["min"].as_py(), ends["max"].as_py())
        assert footer.has_hudi_filter
        assert hudi is not None
        codes.add(hudi.type_code)
        bloom = hudi.decode(file.path)
        assert bloom.might_contain(keys).all()
        assert not bloom.might_contain(absent).any()
        count += 1
    assert count >= 15
    assert DYNAMIC in codes


def test_statistics_of_hudis_files_are_the_bounds_in_their_footers(
    interop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metatable.data.base_files.key_footer._believed", lambda *_: (None, None))
    for store, file, keys in files_of_hudi(interop, tmp_path):
        footer, _ = read_key_footer(store, file)
        ends = pc.min_max(keys)
        assert (footer.minimum, footer.maximum) == (ends["min"].as_py(), ends["max"].as_py())


@pytest.mark.parametrize("kind", [-1, 1, 7, 100])
def test_bounds_of_another_type_than_the_schema_s_say_nothing(tmp_path: Path, kind: int) -> None:
    """pyarrow reads all rows of such a file, and ended the process where its bounds were asked."""
    store, file = write(tmp_path, KEYS)
    raw = Path(store.uri, file.path).read_bytes()
    footer = footer_struct(raw)
    footer[Footer.GROUPS][1][Group.COLUMNS][1][Column.META][Meta.TYPE] = kind
    Path(store.uri, file.path).write_bytes(with_footer(raw, footer))
    file = DataFile.decode(FILE.path, len(with_footer(raw, footer)))
    told, _ = read_key_footer(store, file)
    assert (told.minimum, told.maximum) == (None, None)
    assert sound_ends(read_footer(store, file.path, file.size_bytes)[1]) is None
    keys, _ = read_record_keys(store, file, "k08", "k09")
    assert set(keys.to_pylist()) >= {"k07", "k08", "k09"}
    with open_parquet(store, file) as parquet:
        held = parquet.schema_arrow
        found = of_footer(parquet.metadata, held, held)
    assert [one.column for one in found] == ["other"]
    with pytest.raises(CorruptError, match="column chunk of another type"):
        ToldBounds.read(store, file.path, file.size_bytes)


def test_bounds_that_end_within_a_character_are_bounds_of_bytes(tmp_path: Path) -> None:
    """As of a writer that cuts them off at so many bytes: the greatest is raised then."""
    store, file = write(tmp_path, ["ka", "kb", "kä"])
    path = Path(store.uri, file.path)
    raw = with_statistics(
        path.read_bytes(),
        "_hoodie_record_key",
        lambda told: told.changed((Statistics.GREATEST, BINARY, b"k\xc4")),
    )
    path.write_bytes(raw)
    file = DataFile.decode(FILE.path, len(raw))
    for first, last, expected in (("kä", "kä", ["ka", "kb", "kä"]), ("l", "m", [])):
        assert read_record_keys(store, file, first, last)[0].to_pylist() == expected
