"""What a footer tells of chunks' sizes is held against its schema before pyarrow is asked for them,
which ends the process where the two differ."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.parquet.fields import Column, Element, Footer, Group, Meta, Sizes
from metatable.storage.parquet.footer import understood
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.sound_chunks import WRONG_SIZES, check_chunks
from metatable.storage.parquet.thrift import I64, LIST, STRUCT, Elements, Struct
from tests.storage.parquet.files import (
    OPTIONS,
    ROWS,
    changed_chunks,
    footer_of,
    with_footer,
    written,
)


def footer_bytes(raw: bytes) -> bytes:
    return raw[-8 - int.from_bytes(raw[-8:-4], "little") :]


def check(raw: bytes, name: str | None = None) -> None:
    tail = footer_bytes(raw)
    footer = understood(tail, "p")
    leaves = [leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path == name]
    check_chunks(tail, footer, "p", None if name is None else leaves)


def every_element(raw: bytes, name: str, **fields: int) -> bytes:
    footer = footer_of(raw)
    for element in footer[Footer.SCHEMA]:
        if element[Element.NAME] == name.encode():
            element.update({getattr(Element, field): value for field, value in fields.items()})
    return with_footer(raw, footer)


def told_sizes(raw: bytes, name: str, change: Callable[[Struct], Struct]) -> bytes:
    def one(chunk: Struct) -> Struct:
        meta = chunk[Column.META]
        told = meta.changed((Meta.SIZES, STRUCT, change(meta[Meta.SIZES])))
        return chunk.changed((Column.META, STRUCT, told))

    return changed_chunks(raw, name, one)


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "a column that may be null may not": lambda raw: every_element(raw, "text", REPETITION=0),
    "a number a level too many": lambda raw: told_sizes(
        raw,
        "text",
        lambda told: told.changed(
            (Sizes.DEFINITION, LIST, Elements(I64, [*told[Sizes.DEFINITION], 0]))
        ),
    ),
    "bytes of numbers": lambda raw: told_sizes(
        every_element(raw, "text", TYPE=2), "text", lambda told: told
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_sizes_of_another_column_are_damage(way: str) -> None:
    raw = WAYS[way](written(ROWS))
    for name in ("text", None):
        with pytest.raises(CorruptError, match=WRONG_SIZES):
            check(raw, name)
    check(raw, "raw")
    with pytest.raises(CorruptError):
        ParquetParts.of_bytes(raw).chunks(0)


@pytest.mark.parametrize("options", OPTIONS)
def test_sound_files_of_every_writer_pass(options: str) -> None:
    check(written(ROWS, **OPTIONS[options]))


def test_a_row_group_that_lacks_a_column_is_damage() -> None:
    raw = written(ROWS)
    footer = footer_of(raw)
    footer[Footer.GROUPS][1][Group.COLUMNS].pop()
    with pytest.raises(CorruptError, match="another number of columns"):
        check(with_footer(raw, footer), "text")


def test_what_looks_like_a_path_elsewhere_is_none() -> None:
    """Then the whole footer is taken apart."""
    rows = pa.table({"id": ["a"], "b.c": ["\x19\x18\x02id"]})
    check(written(rows))
    with pytest.raises(CorruptError, match=WRONG_SIZES):
        check(every_element(written(rows), "id", REPETITION=0))
    with pytest.raises(CorruptError, match=WRONG_SIZES):
        check(every_element(written(rows), "b.c", REPETITION=0))


def test_a_footer_without_row_groups_passes() -> None:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, ROWS.schema).close()
    check(bytes(sink.getvalue()))
