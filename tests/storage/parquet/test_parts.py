"""A file as parts: what a footer says is held against itself before it is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Column, Element, Footer, Group, Meta, Word
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Elements, Struct
from tests.storage.parquet.files import ROWS, footer_of, with_footer, written

RAW = written(ROWS)


def read(raw: bytes) -> None:
    parts = ParquetParts.of_bytes(raw)
    for group in range(len(parts.groups)):
        assert len(parts.chunks(group)) == len(parts.leaves)
    assert isinstance(parts.metadata, dict)
    assert isinstance(parts.created_by, bytes)


def test_leaves_are_those_of_the_schema() -> None:
    parts = ParquetParts.of_bytes(RAW)
    assert [leaf.name for leaf in parts.leaves] == [
        *ROWS.column_names[:17],
        "list.list.element",
        "pairs.key_value.key",
        "pairs.key_value.value",
        "point.x",
        "point.y.list.element",
        "must",
        "file",
    ]
    assert [leaf.name for leaf in parts.leaves if leaf.is_repeated] == [
        "list.list.element",
        "pairs.key_value.key",
        "pairs.key_value.value",
        "point.y.list.element",
    ]
    assert all(leaf.order == {1: {}} for leaf in parts.leaves)
    assert len(parts.groups) == 3
    chunks = parts.chunks(2)
    assert {chunk.rows for chunk in chunks} == {100}
    assert [chunk.leaf for chunk in chunks] == list(parts.leaves)


def element(children: int | None = None, name: bytes | None = b"x") -> Struct:
    return Struct((Element.NAME, BINARY, name), (Element.CHILDREN, I32, children)).changed()


@pytest.mark.parametrize(
    ("elements", "told"),
    [
        ([], "no elements"),
        ([element(2), element()], "schema is damaged.*element=1"),
        ([element(1), element(), element()], "schema is damaged.*element=1"),
        ([element(1), element(name=None)], "schema is damaged.*element=1"),
        ([element(-1), element()], "footer is damaged.*field=5.*found=-1"),
        ([element(1)] * 80 + [element()], "schema is damaged.*element=64"),
        ([element(1), Struct((Element.NAME, I32, 7))], "field=4 expected='a text' found=7"),
        ([element(1), element(1), element(1)], "schema is damaged.*element=2"),
    ],
)
def test_a_schema_that_is_no_tree_is_damage(elements: list[Struct], told: str) -> None:
    footer = footer_of(RAW).changed((Footer.SCHEMA, LIST, Elements(STRUCT, elements)))
    with pytest.raises(CorruptError, match=told):
        read(with_footer(RAW, footer))


def of_footer(*change: tuple[int, int, Any]) -> bytes:
    return with_footer(RAW, footer_of(RAW).changed(*change))


def of_column(change: Callable[[Struct], Struct]) -> bytes:
    footer = footer_of(RAW)
    columns = footer[Footer.GROUPS][1][Group.COLUMNS]
    columns[3] = change(columns[3])
    return with_footer(RAW, footer)


def of_meta(*change: tuple[int, int, Any]) -> bytes:
    return of_column(lambda one: one.changed((Column.META, STRUCT, one[3].changed(*change))))


def of_fewer_columns() -> bytes:
    footer = footer_of(RAW)
    del footer[Footer.GROUPS][1][Group.COLUMNS][-1]
    return with_footer(RAW, footer)


WORD = Struct((Word.KEY, I32, 10**9))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (of_footer((Footer.GROUPS, I32, 3)), "field=4 expected='a list of structs' found='int'"),
        (of_footer((Footer.SCHEMA, LIST, Elements(I32, [7, 7]))), "expected='a list of structs'"),
        (of_footer((Footer.CREATED_BY, I64, 10**9)), "field=6 expected='a text' found=1000000000"),
        (of_footer((Footer.WORDS, LIST, Elements(STRUCT, [WORD]))), "field=1 expected='a text'"),
        (of_fewer_columns(), "another number of columns than its file.*row_group=1"),
        (of_column(lambda one: one.changed((Column.META, STRUCT, None))), "without metadata"),
        (of_column(lambda one: one.changed((Column.META, I32, 1))), "without metadata"),
        (of_meta((Meta.PATH, I32, 5)), "of another column.*column='flag' row_group=1"),
        (of_meta((Meta.ENCODINGS, LIST, None)), "column chunk without encodings"),
        (of_meta((Meta.VALUES, I64, 251)), "number of values.*expected=250 found=251"),
        (of_meta((Meta.DATA_PAGE, I64, 0)), "lies outside of its file"),
        (of_meta((Meta.DATA_PAGE, I64, len(RAW) - 100)), "lies outside of its file"),
        (of_meta((Meta.DATA_PAGE, BINARY, b"")), "field=9 expected='a number' found=b''"),
        (of_meta((Meta.STORED, I64, len(RAW))), "lies outside of its file"),
    ],
)
def test_a_footer_that_contradicts_itself_is_damage(raw: bytes, told: str) -> None:
    with pytest.raises(CorruptError, match=told):
        read(raw)


def test_a_footer_with_a_field_that_nobody_knows_is_bound_to_its_file() -> None:
    assert ParquetParts.of_bytes(RAW).bound is None
    assert "places in the file: [77]" in str(ParquetParts.of_bytes(of_footer((77, I64, 4))).bound)
