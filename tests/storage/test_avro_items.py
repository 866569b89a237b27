"""Items of Avro arrays and maps that a walk finds are those that rounds read, of any bytes."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.storage.avro import RecordCodec, decode
from metatable.storage.avro.cursor import Cursor
from metatable.storage.avro.one_long import encoded_long
from metatable.storage.errors import CorruptError
from tests.long import examples

INNER = {
    "type": "record",
    "name": "inner",
    "fields": [
        {"name": "size", "type": ["null", "long"]},
        {"name": "gone", "type": "boolean"},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "named", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["a", "b"]}},
    ],
}
ITEMS: dict[str, tuple[Any, list[Any]]] = {
    "int": ("int", [0, -1, 1 << 30]),
    "text": ("string", ["", "some", "ü" * 70]),
    "maybe": (["null", "double"], [None, 0.5]),
    "fixed": ({"type": "fixed", "name": "three", "size": 3}, [b"abc"]),
    "time": ({"type": "long", "logicalType": "timestamp-micros"}, [0, 1_700_000_000_000_000]),
    "many": (
        ["null", "int", "string"],
        [None, {"int": 5, "string": None}, {"int": None, "string": "five"}],
    ),
    "inner": (
        INNER,
        [
            {"size": None, "gone": True, "list": [], "named": [("k", 1)], "kind": "a"},
            {"size": 1 << 40, "gone": False, "list": [1, 2, 3], "named": [], "kind": "b"},
        ],
    ),
}


def record(**fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "r", "fields": listed}


def item_bytes(kind: Any, key: str | None, values: list[Any]) -> list[bytes]:
    codec = RecordCodec(record(v=kind) if key is None else record(k="string", v=kind), False)
    rows = [{"v": one} if key is None else {"k": key, "v": one} for one in values]
    encoded: list[bytes] = codec.encode(pa.Table.from_pylist(rows, codec.arrow_schema)).to_pylist()
    return encoded


def in_blocks(data: st.DataObject, items: list[bytes]) -> bytes:
    """Some blocks of these items, with their sizes or without."""
    body = b""
    while items:
        count = data.draw(st.integers(1, len(items)))
        held, items = b"".join(items[:count]), items[count:]
        with_size = data.draw(st.booleans())
        body += encoded_long(-count) + encoded_long(len(held)) if with_size else encoded_long(count)
        body += held
    return body + b"\0"


def hurt(data: st.DataObject, body: bytes) -> bytes:
    place, raw = data.draw(st.integers(0, len(body))), data.draw(st.binary(max_size=10))
    return body[:place] + raw + body[place + data.draw(st.integers(0, 3)) :]


def outcome(codec: RecordCodec, bodies: list[bytes], wanted: list[str], few: int) -> Any:
    """What is read, or what is said to be wrong, with so many items a round by a walk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "FEW_A_ROUND", few)
        try:
            table = codec.decode(pa.array(bodies, pa.binary()), wanted, path="p/f")
        except CorruptError as error:
            return str(error)
        table.validate(full=True)
        return str(table.to_pylist())  # NaN is not itself


@given(st.data())
@settings(max_examples=examples(150, 1000), deadline=None)
def test_items_are_read_by_a_walk_as_in_rounds(data: st.DataObject) -> None:
    """Sound ones, of which no walk is unsure, and hurt ones: the same values, or the same error."""
    kind, drawn = ITEMS[data.draw(st.sampled_from(sorted(ITEMS)))]
    is_map, logical = data.draw(st.booleans()), data.draw(st.booleans())
    held = {"type": "map", "values": kind} if is_map else {"type": "array", "items": kind}
    if not is_map and kind == ITEMS["inner"][0]:
        held = {"type": "array", "items": {"type": "array", "items": kind}}
        drawn = [drawn, drawn[:1], []]
        kind = held["items"]
    codec = RecordCodec(record(a="long", x=held, z="string"), logical)
    bodies = []
    for _ in range(data.draw(st.integers(1, 4))):
        values = data.draw(st.lists(st.sampled_from(drawn), max_size=12))
        items = item_bytes(kind, "key" if is_map else None, values)
        bodies.append(b"\x04" + in_blocks(data, items) + b"\x02z")
    hurts = data.draw(st.integers(0, 2))
    for _ in range(hurts):
        row = data.draw(st.integers(0, len(bodies) - 1))
        bodies[row] = hurt(data, bodies[row])
    wanted = data.draw(st.sampled_from([["a", "x", "z"], ["x"], ["z"]]))
    asked = list[bool]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_decoded", partial(noted, asked, decode._decoded))
        found = outcome(codec, bodies, wanted, 1 << 62)
    assert asked == [True] or hurts
    assert found == outcome(codec, bodies, wanted, 0)


def noted(asked: list[bool], decoded: Any, *given_: Any, walks: bool) -> Any:
    asked.append(walks)
    return decoded(*given_, walks=walks)


LONG = b"\xff" * 9
"""The number below that of 64 bits, but for its last byte."""


@pytest.mark.parametrize(
    "block",
    [
        b"\x06\x02\x02",  # an item too few
        b"\x06\x02\x02\x80",  # a number that does not end
        b"\x06\x02\x02" + LONG + b"\x02",  # or has more than 64 bits
        b"\x06\x02\x02" + LONG + b"\x80\x00",
        LONG + b"\x01\x00\x02\x02",  # -(1 << 63) items
        b"\xfe" + LONG[:8] + b"\x01\x02\x02",  # (1 << 63) - 1 of them
        b"\x05\x7e\x02\x02\x02\x03",  # then a block of -2 items, which ends the datum
        b"\x04\x02\x02\x04\x02\x02\xfe\x01",
        b"\x04\x02\x80\x80\x80\x80\x80\x01\x00",  # an int of more than 32 bits
    ],
)
def test_blocks_that_cannot_be_are_refused_as_in_rounds(block: bytes) -> None:
    codec = RecordCodec(record(a={"type": "array", "items": "int"}))
    bodies = [b"\x04\x02\x02\x00", block]
    told = outcome(codec, bodies, ["a"], 1 << 62)
    assert re.search("'?p/f'?.*row=1", told)
    assert told == outcome(codec, bodies, ["a"], 0)


def test_a_text_among_items_that_is_none_is_refused_as_in_rounds() -> None:
    codec = RecordCodec(record(a={"type": "map", "values": "string"}))
    bodies = [b"\x06\x02a\x02\xff\x02b\x02b\x02c\x02\xfe\x00"]
    told = outcome(codec, bodies, ["a"], 1 << 62)
    assert "not UTF-8" in told
    assert told == outcome(codec, bodies, ["a"], 0)


def test_a_damaged_datum_of_arrays_in_arrays_is_not_read_again_for_each_level() -> None:
    """Twice a level would be a million million times."""
    levels = 40
    kind: Any = "boolean"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    body = b"\x04" * levels + b"\x01\x07\x00" + b"\x00\x00" * (levels - 1)
    told = outcome(RecordCodec(record(a=kind)), [body], ["a"], 1 << 62)
    assert "neither 0 nor 1" in told


def test_one_record_of_many_items_is_read_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = RecordCodec(record(a={"type": "map", "values": INNER}))
    held = [(f"k{number}", dict(ITEMS["inner"][1][number % 2])) for number in range(300)]
    rows = [held, held[:2], [], held[:200]]
    datums = codec.encode(pa.table({"a": pa.array(rows, codec.arrow_schema.field("a").type)}))
    steps, longs = [], Cursor.longs

    def counted(cursor: Cursor) -> Any:
        steps.append(len(cursor))
        return longs(cursor)

    monkeypatch.setattr(Cursor, "longs", counted)
    assert codec.decode(datums)["a"].to_pylist() == rows
    assert len(steps) < 20
