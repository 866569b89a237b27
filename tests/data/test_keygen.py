"""Key text and partition paths."""

from __future__ import annotations

import pickle
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.config.options import Options
from metatable.data.keys import keygen
from metatable.data.keys.keygen import DEFAULT_PARTITION, KeyGenerator
from metatable.storage.errors import UsageError

MOMENT = datetime(2024, 3, 1, 1, 2, 3, 4)


def generator(
    key: Any, partition_by: Any = (), schema: pa.Schema | None = None, hive_style: bool = True
) -> KeyGenerator:
    names = schema.names if schema else ["a", "b", "c", "p", "q"]
    options = {"hive_style": hive_style}
    made = Options.create("t", names, key=key, partition_by=partition_by, options=options)
    return KeyGenerator(made, schema)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    "kind",
    [
        pa.float64(),
        pa.float32(),
        pa.time64("us"),
        pa.list_(pa.int64()),
        pa.null(),
        pa.duration("s"),
    ],
)
def test_types_without_a_text_are_refused_when_the_table_is_made(kind: pa.DataType) -> None:
    schema = pa.schema([("a", kind), ("p", kind)])
    with pytest.raises(UsageError, match="type makes no key: column='a'"):
        generator("a", (), schema)


def test_key_of_one_column_is_its_text() -> None:
    made = generator("a").record_keys(batch(a=[3, 1], b=["x", "y"]))
    assert made.to_pylist() == ["3", "1"]
    assert made.type == pa.string()


def test_key_of_several_columns_names_them_in_the_order_of_the_options() -> None:
    made = generator(("b", "a")).record_keys(batch(a=[3, 1], b=["x", "y"]))
    assert made.to_pylist() == ["b:x,a:3", "b:y,a:1"]


def test_keys_of_a_table_are_those_of_its_batches() -> None:
    table = pa.concat_tables([pa.table({"a": [1, 2]}), pa.table({"a": [3]})])
    assert generator("a").record_keys(table).to_pylist() == ["1", "2", "3"]


def test_missing_keys_are_refused_with_the_first_five_rows() -> None:
    rows = batch(a=[None if row % 2 else row for row in range(20)], b=["x"] * 20)
    with pytest.raises(UsageError, match=r"key is null or empty") as raised:
        generator(("a", "b")).record_keys(rows)
    assert raised.value.facts["column"] == "a"
    assert raised.value.facts["rows"] == [1, 3, 5, 7, 9]
    assert raised.value.facts["found"][0] == {"a": None, "b": "x"}


def test_empty_text_is_no_key() -> None:
    with pytest.raises(UsageError, match=r"column='a' rows=\[1\]"):
        generator("a").record_keys(batch(a=["x", ""]))
    with pytest.raises(UsageError, match=r"column='a' rows=\[0\]"):
        generator("a").record_keys(batch(a=[b""]))


def test_a_missing_key_column_is_named() -> None:
    with pytest.raises(UsageError, match="key column is missing: column='b'"):
        generator(("a", "b")).record_keys(batch(a=[1]))


def test_values_that_look_like_the_next_part_are_refused() -> None:
    with pytest.raises(UsageError, match=r"could be taken for the next part.*found=.'1,b:2'"):
        generator(("a", "b")).record_keys(batch(a=["1", "1,b:2"], b=["x", "x"]))
    last = generator(("a", "b")).record_keys(batch(a=["1,a:2"], b=["2,b:3"]))
    assert last.to_pylist() == ["a:1,a:2,b:2,b:3"]


PART = st.text("ab,:", max_size=7).filter(bool)


@settings(deadline=None)
@given(st.lists(st.tuples(PART, PART, PART), unique=True))
def test_different_composite_keys_that_are_accepted_have_different_texts(
    keys: list[tuple[str, str, str]],
) -> None:
    made = generator(("a", "b", "c"))
    texts = []
    for a, b, c in keys:
        try:
            texts.append(made.record_keys(batch(a=[a], b=[b], c=[c]))[0].as_py())
        except UsageError:
            continue
    assert len(set(texts)) == len(texts)


def test_unpartitioned_tables_have_one_path() -> None:
    assert generator("a").partition_paths(batch(a=[1, 2])).to_pylist() == ["", ""]


@pytest.mark.parametrize(
    ("hive_style", "expected"),
    [
        (True, ["p=sf/q=2024-03-01", "p=ny/q=2024-03-01"]),
        (False, ["sf/2024-03-01", "ny/2024-03-01"]),
    ],
)
def test_partition_path_joins_the_columns(hive_style: bool, expected: list[str]) -> None:
    rows = batch(p=["sf", "ny", "sf"], q=[date(2024, 3, 1)] * 3)
    made = generator("a", ("p", "q"), hive_style=hive_style).partition_paths(rows)
    assert made.to_pylist() == [*expected, expected[0]]
    assert made.type == pa.string()


def test_null_and_empty_partition_values_share_the_default_partition() -> None:
    rows = batch(p=["x", None, ""])
    found = generator("a", "p").partition_paths(rows).to_pylist()
    assert found == ["p=x", f"p={DEFAULT_PARTITION}", f"p={DEFAULT_PARTITION}"]
    assert generator("a", "p").coded_paths(rows).dictionary.to_pylist() == found[:2]


_WORDS = st.none() | st.sampled_from(["", "x", "a/b", "metadata", "..", "ä" * 128]) | st.text()


@settings(deadline=None)
@given(st.lists(st.tuples(_WORDS, _WORDS), max_size=8), st.booleans())
def test_few_paths_are_those_of_many_rows_and_so_are_errors(
    rows: list[tuple[str | None, str | None]], hive_style: bool
) -> None:
    columns = {
        name: pa.array([row[place] for row in rows], pa.string())
        for place, name in ((0, "p"), (1, "q"))
    }
    made = generator("a", ("p", "q"), hive_style=hive_style)

    def told(times: int = 1) -> Any:
        given = {name: pa.concat_arrays([column] * times) for name, column in columns.items()}
        try:
            coded = made.coded_paths(batch(**given))
        except UsageError as error:
            return str(error)
        assert len(set(coded.dictionary.to_pylist())) == len(coded.dictionary)
        return coded.type, coded.dictionary_decode().to_pylist()

    few = told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keygen, "_FEW_ROWS", -1)
        assert told() == few
        many = told(9)
    assert told(9) == many  # of many rows whose values are few


@pytest.mark.parametrize(
    "value",
    [
        "a/b",
        "..",
        ".",
        "a\x00b",
        "a\nb",
        "a:b",
        "50%",
        "a*b",
        "a\\b",
        "what?",
        "a#b",
        DEFAULT_PARTITION,
    ],
)
def test_values_that_would_break_a_path_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match="not a partition value: column='p'"):
        generator("a", "p").partition_paths(batch(p=["fine", value]))


def test_a_value_that_is_refused_is_told_what_values_may_not_have() -> None:
    told = "no control characters, and none of " + '" # % * / : ? \\ { } [ ] ^'
    for sign in [*told.partition("none of ")[2].split(), "\t"]:
        with pytest.raises(UsageError) as refused:
            generator("a", "p").partition_paths(batch(p=[f"a{sign}b"]))
        assert refused.value.facts["expected"] == told
    guide = Path(__file__).resolve().parents[2].joinpath("docs/verbs.md").read_text("utf-8")
    assert told.partition("none of ")[2] in guide
    with pytest.raises(UsageError, match=r"expected='none of \., \.\., __HIVE_DEFAULT"):
        generator("a", "p").partition_paths(batch(p=[".."]))


@pytest.mark.parametrize("value", ["it's", "a b", "a=b", "São Paulo", "a..b", "a&b", "_x", ".x"])
def test_values_that_only_look_strange_are_kept(value: str) -> None:
    assert generator("a", "p").partition_paths(batch(p=[value])).to_pylist() == [f"p={value}"]


@pytest.mark.parametrize("by", ["p", ("p", "q"), ("q", "p")], ids=repr)
@pytest.mark.parametrize("value", ["a=b", "p=b", "=", "a="])
def test_without_hive_style_no_value_may_look_like_a_name(by: Any, value: str) -> None:
    """Hudi on Spark reads `b` of `a=b`, and fails where nothing is on one side."""
    made = generator("a", by, hive_style=False)
    for count in (1, 9):  # of few rows, and of many
        with pytest.raises(UsageError, match="not a partition value: column='p'"):
            made.partition_paths(batch(p=[value] * count, q=["x"] * count))
    assert generator("a", by).partition_paths(batch(p=[value], q=["x"])).to_pylist()


def test_values_longer_than_a_folder_name_are_refused() -> None:
    fits, too_long = "ä" * 126, "ä" * 127  # "p=" goes before
    made = generator("a", "p")
    assert made.partition_paths(batch(p=[fits])).to_pylist() == [f"p={fits}"]
    with pytest.raises(UsageError, match="too long"):
        made.partition_paths(batch(p=[too_long]))


def test_names_that_readers_pass_over_are_refused_only_at_the_top_and_without_hive_style() -> None:
    rows = batch(p=["metadata"], q=["x"])
    assert generator("a", "p").partition_paths(rows).to_pylist() == ["p=metadata"]
    plain = generator("a", ("q", "p"), hive_style=False)
    assert plain.partition_paths(rows).to_pylist() == ["x/metadata"]
    with pytest.raises(UsageError, match="not a partition value"):
        generator("a", "p", hive_style=False).partition_paths(rows)


def test_binary_makes_no_partition() -> None:
    schema = pa.schema([("a", pa.binary()), ("p", pa.binary())])
    with pytest.raises(UsageError, match="type makes no partition: column='p'"):
        generator("a", "p", schema)


def test_paths_of_no_rows_are_empty_and_text() -> None:
    schema = pa.schema([("a", pa.string()), ("p", pa.int32()), ("q", pa.date32())])
    empty = pa.RecordBatch.from_pylist([], schema)
    made = generator("a", ("p", "q"), schema)
    assert made.partition_paths(empty).equals(pa.array([], pa.string()))
    assert made.record_keys(empty).equals(pa.array([], pa.string()))


def test_generator_pickles_and_names_each_column_once() -> None:
    made = pickle.loads(pickle.dumps(generator(("a", "b"), ("b", "p"))))
    assert made.columns == ("a", "b", "p")
    assert made.record_keys(batch(a=[1], b=[2], p=[3])).to_pylist() == ["a:1,b:2"]


@pytest.mark.parametrize("most", [1, 7, 5000])
def test_combinations_are_numbered_alike_by_a_table_and_by_sorting(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(most).integers(0, most, 300)
    _, first, ranks = np.unique(values, return_index=True, return_inverse=True)
    for few in (0, 1 << 20):
        monkeypatch.setattr(keygen, "_FEW_VALUES", few)
        for found, expected in zip(keygen._numbered(values), (ranks, first), strict=True):
            assert found.tolist() == expected.tolist()
