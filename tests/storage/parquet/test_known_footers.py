"""Known footers: numbers read by a form are those that decoding field by field gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metatable.storage import cache
from metatable.storage.errors import CorruptError
from metatable.storage.parquet import footer, paged_file
from metatable.storage.parquet.fields import Footer
from metatable.storage.parquet.paged_file import PagedFile, paged
from metatable.storage.parquet.parts import ParquetParts
from metatable.storage.parquet.thrift import BINARY, LIST, STRUCT, Elements, Struct
from metatable.storage.store import Store
from tests.storage.parquet.files import (
    OPTIONS,
    OTHERS,
    PAGES,
    ROWS,
    footer_of,
    spliced,
    with_footer,
    written,
)


def opened(store: Store, raw: bytes, name: str) -> PagedFile | None:
    store.put(name, raw)
    return paged(store, [(name, len(raw))])[0]


def plainly(store: Store, raw: bytes, name: str) -> PagedFile | None:
    """As if nothing were known of other files."""
    cache.shared.replace(("footer-forms", store.uri), (), 0)
    return opened(store, raw, name)


def told(file: PagedFile | None) -> Any:
    if file is None:
        return None
    return file.rows.tolist(), file.chunks.tolist(), file.words, file.shape.schema


def worded(raw: bytes, value: str = "filter") -> bytes:
    words = [("some", value), ("more", "")]
    told = [Struct((1, BINARY, a.encode()), (2, BINARY, b.encode())) for a, b in words]
    every = (Footer.WORDS, LIST, Elements(STRUCT, told))
    return with_footer(raw, footer_of(raw).changed(every))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_footer_of_a_known_form_tells_what_decoding_it_tells(
    store: Store, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raws = [worded(written(one, **PAGES | options)) for one in (ROWS, OTHERS, ROWS.slice(0, 30))]
    expected = [told(plainly(store, raw, f"plain-{n}")) for n, raw in enumerate(raws)]
    plainly(store, raws[0], "first")
    monkeypatch.setattr(ParquetParts, "of_footer", None)
    assert [told(opened(store, raw, f"known-{n}")) for n, raw in enumerate(raws)] == expected


def test_spliced_files_have_a_form_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = worded(spliced(ParquetParts.of_bytes(written(ROWS, **PAGES))))
    expected = told(plainly(store, raw, "plain"))
    monkeypatch.setattr(ParquetParts, "of_footer", None)
    assert told(opened(store, raw, "known")) == expected


def test_what_a_word_tells_at_length_is_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footer, "TAIL_BYTES", 200)
    monkeypatch.setattr(paged_file, "_MORE_BYTES", 0)
    raws = [worded(written(one, **PAGES), "f" * 200_000) for one in (ROWS, OTHERS)]
    expected = [told(plainly(store, raw, f"plain-{n}")) for n, raw in enumerate(raws)]
    assert store.counters["store.bytes_read"] > 400_000
    before = dict(store.counters)
    assert [told(opened(store, raw, f"known-{n}")) for n, raw in enumerate(raws)] == expected
    assert store.counters["store.bytes_read"] - before["store.bytes_read"] < 100_000
    assert store.counters["store.reads"] - before["store.reads"] == 4


def test_a_file_of_another_form_is_decoded_and_its_form_kept(store: Store) -> None:
    first = worded(written(ROWS, **PAGES))
    other = worded(written(ROWS.select(["city", "id"]), **PAGES))
    plainly(store, first, "first")
    assert told(opened(store, other, "other")) == told(plainly(store, other, "plain"))
    plainly(store, first, "again")
    for number, raw in enumerate([other, first, other]):
        assert opened(store, raw, f"one-{number}") is not None
    assert len(paged_file._forms(store)) == 2


def test_a_bit_of_a_footer_that_is_another_one_is_seen_as_without_a_form(store: Store) -> None:
    rows = pa.table({"n": range(250), "word": pa.array(["a", "b"] * 125)})
    raw = worded(written(rows, use_dictionary=["word"], **PAGES))
    size = int.from_bytes(raw[-8:-4], "little")
    draw, differ = random.Random(4), 0
    for turn in range(400):
        bad = bytearray(raw)
        bad[len(raw) - 8 - draw.randrange(1, size + 1)] ^= 1 << draw.randrange(8)
        found = []
        for name, forms in (("plain", ()), ("known", None)):
            if forms is None:
                plainly(store, raw, f"form-{turn}")
            try:
                read = plainly if forms is not None else opened
                found.append(str(told(read(store, bytes(bad), f"{name}-{turn}"))))
            except CorruptError as error:
                found.append(str(error).replace(f"{name}-{turn}", ""))
        assert found[0] == found[1]
        differ += found[0] != str(told(opened(store, raw, f"sound-{turn}")))
    assert differ > 200


def test_random_bytes_are_of_no_form(store: Store) -> None:
    plainly(store, worded(written(ROWS, **PAGES)), "first")
    [(form, _)] = paged_file._forms(store)
    draw = np.random.default_rng(3)
    for size in (0, 8, 50, 5000):
        for tail in (b"", draw.bytes(size)):
            assert form.numbers(form.before + draw.bytes(size), tail, size, 1000) is None
