"""What a footer tells of chunks' sizes is held against its schema before pyarrow is asked for them,
which ends the process where the two differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.storage.errors import CorruptError
from metatable.storage.parquet import sound_chunks
from metatable.storage.parquet.fields import Column, Element, Footer, Group, Meta, Sizes
from metatable.storage.parquet.footer import understood, whole_footer
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.sound_chunks import WRONG_SIZES, check_chunks
from metatable.storage.parquet.thrift import (
    I64,
    LIST,
    STRUCT,
    Elements,
    Struct,
    encode_struct,
)
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


class Watched(bytes):
    """Tells how many bytes of it were looked through."""

    looked = 0

    def find(self, told: Any, start: Any = 0) -> int:
        found = super().find(told, start)
        Watched.looked += (len(self) if found < 0 else found) - start
        return found


@pytest.mark.parametrize("dot", ["", "."])
def test_a_footer_of_many_columns_is_looked_through_once(
    monkeypatch: pytest.MonkeyPatch, dot: str
) -> None:
    """Or taken apart once, where paths are not those that names make."""
    tail = Watched(footer_bytes(written(pa.table({f"c{dot}{n}": range(9) for n in range(200)}), 1)))
    apart, decode = list[int](), sound_chunks.decode_struct

    def counted(raw: Any, path: str, start: int = 0, behind: int = 0) -> Any:
        apart.extend([] if behind else [start])
        return decode(raw, path, start, behind)

    monkeypatch.setattr(sound_chunks, "decode_struct", counted)
    monkeypatch.setattr(Watched, "looked", 0)
    check_chunks(tail, understood(tail, "p"), "p")
    assert 0 < Watched.looked < 2 * len(tail)
    assert apart == ([0] if dot else [])


@pytest.mark.parametrize("again", [b"\x05\x08\x02", b"\x08\x08\x00"], ids=["number", "text"])
def test_row_groups_that_come_again_as_something_else_are_damage(again: bytes) -> None:
    """pyarrow passes over them."""
    footer = footer_of(written(pa.table({"b.c": ["a"]})))
    tail = whole_footer(encode_struct(footer)[:-1] + again + b"\0")
    with pytest.raises(CorruptError, match="footer is damaged"):
        check_chunks(tail, understood(tail, "p"), "p")


def test_a_footer_without_row_groups_passes() -> None:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, ROWS.schema).close()
    check(bytes(sink.getvalue()))
