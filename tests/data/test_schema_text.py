"""Column ids: every field at every depth has one, and it stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.data.columns.schema_text import GREATEST_ID, TableSchema
from metatable.storage.errors import CorruptError
from tests.data.test_schema import EVERY_TYPE

PLAIN = st.sampled_from(
    [pa.int64(), pa.string(), pa.decimal128(9, 2), pa.binary(4), pa.timestamp("us", "UTC")]
)
NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True)


def fields(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    def named(names: list[str]) -> st.SearchStrategy[tuple[pa.Field, ...]]:
        made = [st.builds(pa.field, st.just(name), kinds, st.booleans()) for name in names]
        return st.tuples(*made)

    return NAMES.flatmap(named).map(list)


def nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    element = st.builds(pa.field, st.just("element"), kinds, st.booleans())
    value = st.builds(pa.field, st.just("value"), kinds, st.booleans())
    return st.one_of(
        fields(kinds).map(pa.struct),
        element.map(pa.list_),
        value.map(lambda one: pa.map_(pa.string(), one)),
    )


SCHEMAS = fields(st.recursive(PLAIN, nested, max_leaves=8)).map(pa.schema)

IN_ORDER = [
    *("id", "flag", "i", "f", "d", "s", "b", "x", "m", "m38", "day", "at", "t", "tz", "ms", "msz"),
    *("tags", "tags.element", "attrs", "attrs.value"),
    *("point", "point.x", "point.inner", "point.inner.y"),
    *("points", "points.element", "points.element.x"),
]


def stored_fields(body: Any) -> Iterator[dict[str, Any]]:
    """The objects of a text that stand for fields, in the order of the text."""
    if isinstance(body, dict):
        if "nullable" in body:
            yield body
        body = list(body.values())
    if isinstance(body, list):
        for one in body:
            yield from stored_fields(one)


def without_ids(text: str) -> str:
    """As writers wrote it before there were ids."""
    body = json.loads(text)
    del body["last_column_id"]
    for one in stored_fields(body):
        del one["id"]
    return json.dumps(body)


def edited(edit: Any) -> str:
    """The text of EVERY_TYPE after `edit(body, its fields in order)`."""
    body = json.loads(TableSchema.of(EVERY_TYPE).encode())
    edit(body, list(stored_fields(body)))
    return json.dumps(body)


def test_ids_of_a_new_table_count_in_pre_order() -> None:
    made = TableSchema.of(EVERY_TYPE)
    assert list(made.ids().items()) == [(name, n) for n, name in enumerate(IN_ORDER, 1)]
    assert made.last_column_id == len(IN_ORDER)
    stored = list(stored_fields(json.loads(made.encode())))
    assert [one["id"] for one in stored] == list(range(1, len(IN_ORDER) + 1))


@given(SCHEMAS)
def test_types_and_ids_come_back_as_they_were(schema: pa.Schema) -> None:
    made = TableSchema.of(schema)
    back = TableSchema.decode(made.encode(), "m")
    assert back == made
    assert back.arrow == schema
    assert back.encode() == made.encode()
    assert sorted(back.ids().values()) == list(range(1, back.last_column_id + 1))


@given(SCHEMAS)
def test_a_text_without_ids_is_given_those_of_a_new_table(schema: pa.Schema) -> None:
    made = TableSchema.of(schema)
    assert TableSchema.decode(without_ids(made.encode()), "m") == made


@given(SCHEMAS, st.data())
def test_any_ids_are_kept_whatever_their_order(schema: pa.Schema, data: st.DataObject) -> None:
    body = json.loads(TableSchema.of(schema).encode())
    stored = list(stored_fields(body))
    ids = st.lists(
        st.integers(1, GREATEST_ID), min_size=len(stored), max_size=len(stored), unique=True
    )
    for one, number in zip(stored, given_ids := data.draw(ids), strict=True):
        one["id"] = number
    body["last_column_id"] = greatest = data.draw(st.integers(max(given_ids), GREATEST_ID))
    read = TableSchema.decode(json.dumps(body), "m")
    assert list(read.ids().values()) == given_ids
    assert read.last_column_id == greatest
    assert json.loads(read.encode()) == body


def test_what_is_unknown_is_kept_at_every_depth_with_ids_and_without() -> None:
    def grow(body: dict[str, Any], stored: list[dict[str, Any]]) -> None:
        body["later"] = {"any": [1, None]}
        for number, one in enumerate(stored):
            one["doc"] = number

    text = edited(grow)
    assert json.loads(TableSchema.decode(text, "m").encode()) == json.loads(text)
    assert json.loads(TableSchema.decode(without_ids(text), "m").encode()) == json.loads(text)
    assert TableSchema.decode(text, "m").arrow == EVERY_TYPE


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (
            lambda _, stored: stored[0].update(id=0),
            "column id is not a positive integer of 32 bits: path='m' column='id' found=0",
        ),
        (lambda _, stored: stored[1].update(id=-1), "positive integer.* column='flag' found=-1"),
        (
            lambda _, stored: stored[1].update(id="2"),
            "positive integer.* found='str'",
        ),
        (lambda _, stored: stored[1].update(id=2.0), "positive integer.* found='float'"),
        (lambda _, stored: stored[1].update(id=True), "positive integer.* found=True"),
        (lambda _, stored: stored[1].update(id=None), "positive integer.* found='NoneType'"),
        (
            lambda _, stored: stored[23].update(id=1 << 31),
            "positive integer.* column='point.inner.y' found=2147483648",
        ),
        (
            lambda _, stored: stored[17].pop("id"),
            "column has no id, in a schema that has ids: path='m' column='tags.element'",
        ),
        (
            lambda _, stored: [one.pop("id") for one in stored],
            "column has no id, in a schema that has ids: path='m' column='id'",
        ),
        (
            lambda _, stored: stored[26].update(id=22),
            "two columns have one id: path='m' column='points.element.x' found=22 other='point.x'",
        ),
        (
            lambda body, _: body.update(last_column_id=26),
            "column id was never given out: path='m' column='points.element.x' found=27"
            " expected='26 or less'",
        ),
        (
            lambda body, _: body.pop("last_column_id"),
            "schema does not tell the greatest column id: path='m' found='NoneType'",
        ),
        (lambda body, _: body.update(last_column_id="27"), "greatest column id: .* found='str'"),
        (lambda body, _: body.update(last_column_id=True), "greatest column id: .* found=True"),
        (lambda body, _: body.update(last_column_id=-1), "greatest column id: .* found=-1"),
        (lambda body, _: body.update(last_column_id=1 << 31), "greatest column id: .*2147483648"),
    ],
)
def test_ids_that_are_lost_bent_or_given_twice_are_damage(edit: Any, told: str) -> None:
    with pytest.raises(CorruptError, match=told):
        TableSchema.decode(edited(edit), "m")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda _, stored: stored[1].update(known_as=5), "schema is not readable"),
        (lambda _, stored: stored[1].update(known_as="\ud800"), "schema is not readable"),
        (lambda _, stored: stored[1].update(known_as="id"), "two columns have one name"),
        (lambda _, stored: stored[1].update(name="id"), "two columns have one name"),
        (lambda body, _: body.update(past_names="id"), "not readable.*field='past_names'"),
        (lambda body, _: body.update(past_stats=[1]), "not readable.*field='past_stats'"),
        (lambda body, _: body.update(by_id=1), "not readable.*field='by_id' found=1"),
    ],
)
def test_a_past_that_is_bent_is_damage(edit: Any, told: str) -> None:
    with pytest.raises(CorruptError, match=told):
        TableSchema.decode(edited(edit), "m")


def test_the_past_comes_back_as_it_was_and_a_new_table_has_none() -> None:
    plain = TableSchema.decode(edited(lambda *_: None), "m")
    assert not {"past_names", "past_stats", "by_id"} & set(json.loads(plain.encode()))
    assert "known_as" not in plain.encode()

    def age(body: dict[str, Any], stored: list[dict[str, Any]]) -> None:
        body.update(past_names=["a.b"], past_stats=["c#9"], by_id=True)
        stored[22]["known_as"] = "former"

    aged = TableSchema.decode(edited(age), "m")
    assert (aged.past_names, aged.past_stats, aged.by_id) == (("a.b",), ("c#9",), True)
    assert json.loads(aged.encode()) == json.loads(edited(age))


@pytest.mark.parametrize("depth", [50, 5000])
def test_a_text_of_any_depth_is_read_or_told_as_damage(depth: int) -> None:
    kind = '{"list": {"nullable": true, "type": ' * depth + '"int32"' + "}}" * depth
    text = f'{{"fields": [{{"name": "a", "nullable": true, "type": {kind}}}]}}'
    if depth > 1000:
        with pytest.raises(CorruptError, match="schema is not readable: path='m'"):
            TableSchema.decode(text, "m")
        return
    read = TableSchema.decode(text, "m")
    assert read.last_column_id == depth + 1
    assert TableSchema.decode(read.encode(), "m") == read
