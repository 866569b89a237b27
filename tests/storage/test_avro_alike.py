"""Fields that lie alike in all rows are read as those of rows that part ways."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.storage.avro import RecordCodec
from metatable.storage.avro.cursor import Cursor
from metatable.storage.errors import CorruptError

FIELDS: dict[str, Any] = {
    "key": "string",
    "text": ["null", "string"],
    "last": ["bytes", "null"],
    "size": "int",
    "time": {"type": "long", "logicalType": "timestamp-micros"},
    "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
    "hash": {"type": "fixed", "name": "hash", "size": 3},
    "rate": ["null", "double"],
    "flag": "boolean",
    "kind": {"type": "enum", "name": "kind", "symbols": ["a", "b"]},
    "list": {"type": "array", "items": "int"},
    "none": "null",
    "many": ["null", "int", "string"],
    "inner": {
        "type": "record",
        "name": "inner",
        "fields": [{"name": "x", "type": ["null", "string"]}, {"name": "y", "type": "float"}],
    },
}
DRAWN: dict[str, list[Any]] = {
    "key": ["k-0001", "k-0002", "k"],
    "text": ["some", "text", None, ""],
    "last": [b"\xff\0", None, b"a" * 200],
    "size": [0, 7, -(1 << 31)],
    "time": [0, 1_700_000_000_000_000],
    "price": [None, b"\x10\0", b"\0"],
    "hash": [b"abc", b"\0\1\2"],
    "rate": [None, 0.5, -1.0],
    "flag": [True, False],
    "kind": ["a", "b"],
    "list": [[], [1], [2, 3]],
    "none": [None],
    "many": [None, {"int": 5, "string": None}, {"int": None, "string": "five"}],
    "inner": [{"x": None, "y": 1.0}, {"x": "in", "y": 2.0}],
}


def codec_of(names: list[str], logical: bool) -> RecordCodec:
    fields = [{"name": name, "type": FIELDS[name]} for name in names]
    return RecordCodec({"type": "record", "name": "row", "fields": fields}, logical)


@given(st.data())
def test_they_are_read_as_if_rows_parted_ways(data: st.DataObject) -> None:
    """Sound ones and hurt ones, of all columns or some: the same values, or the same error."""
    names = data.draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True, min_size=1))
    stored = codec_of(names, logical=False)
    count = data.draw(st.integers(1, 5))
    columns = [_column(data, name, count, stored.arrow_schema.field(name).type) for name in names]
    bodies = stored.encode(pa.table(columns, schema=stored.arrow_schema)).to_pylist()
    for _ in range(data.draw(st.integers(0, 2))):
        row = data.draw(st.integers(0, count - 1))
        bodies[row] = _hurt(data, bodies[row])
    wanted = [name for name in names if data.draw(st.booleans())]
    codec, datums = codec_of(names, data.draw(st.booleans())), pa.array(bodies, pa.binary())
    found = outcome(codec, datums, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "_next_words", lambda _: None)
        patch.setattr(Cursor, "_seen", lambda *_: None)
        assert found == outcome(codec, datums, wanted)


def test_a_look_copies_no_more_than_the_datums_or_a_word_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []

    def look(cursor: Cursor) -> None:
        plain(cursor)
        looks.append(cursor._window.nbytes)
        assert cursor._window.nbytes <= max(len(cursor.data), 8 * len(cursor))

    plain = Cursor._look
    monkeypatch.setattr(Cursor, "_look", look)
    for names in (["size"], ["key", "text", "size"], ["hash"], ["rate", "key", "last"]):
        codec = codec_of(names, logical=True)
        rows = [{"key": "k" * 40, "last": b"", "size": row} for row in range(500)]
        filled = [
            {name: row.get(name, b"abc" if name == "hash" else None) for name in names}
            for row in rows
        ]
        table = pa.Table.from_pylist(filled, codec.arrow_schema)
        assert codec.decode(codec.encode(table)).equals(table)
    assert max(looks) > 500 * 8


def _column(data: st.DataObject, name: str, count: int, kind: pa.DataType) -> pa.Array:
    """One value for all rows, or any."""
    one = st.sampled_from(DRAWN[name])
    values = data.draw(
        one.map(lambda value: [value] * count) | st.lists(one, min_size=count, max_size=count)
    )
    return pa.array(values, kind)


def _hurt(data: st.DataObject, body: bytes) -> bytes:
    cut = data.draw(st.integers(0, len(body)))
    if data.draw(st.booleans()) or not body[cut:]:
        return body[:cut]
    return body[:cut] + bytes([body[cut] ^ data.draw(st.integers(1, 255))]) + body[cut + 1 :]


def outcome(codec: RecordCodec, datums: pa.Array, wanted: list[str]) -> Any:
    try:
        found = codec.decode(datums, wanted)
    except CorruptError as error:
        return str(error)
    found.validate(full=True)
    return str(found.to_pydict()), found.schema
