"""Columns of Avro datums against fastavro, in both directions; and against hostile bytes."""

from __future__ import annotations

import io
from itertools import product
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from metatable.storage.arrays import Int64s
from metatable.storage.avro import RecordCodec, decode
from metatable.storage.avro.cursor import Cursor
from metatable.storage.avro.encode import encode_columns
from metatable.storage.avro.encode_few import FEW_ROWS, encode_few
from metatable.storage.avro.schema import parse
from metatable.storage.errors import CorruptError, UsageError
from tests.long import examples

# A schema and a datum at a time: unions in a datum are (branch number, value)

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=12),
    "string": st.text(max_size=12),
}
TAKES_BYTES = [name for name in PRIMITIVES if name != "null"]


class Schemas:
    """Draws schemas whose named types all have names of their own."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.named = draw, 0

    def name(self) -> str:
        self.named += 1
        return f"t{self.named}"

    def any(self, depth: int) -> Any:
        kinds = ["primitive", "nullable"] + (["union", *NESTED] if depth else [])
        return getattr(self, self.draw(st.sampled_from(kinds)))(depth - 1)

    def primitive(self, _: int) -> Any:
        return self.draw(st.sampled_from(list(PRIMITIVES)))

    def record(self, depth: int) -> Any:
        count = self.draw(st.integers(1, 4))
        fields = [{"name": f"f{i}", "type": self.any(depth)} for i in range(count)]
        return {"type": "record", "name": self.name(), "fields": fields}

    def array(self, depth: int) -> Any:
        items = self.draw(st.sampled_from(TAKES_BYTES)) if depth < 1 else self.map(depth - 1)
        return {"type": "array", "items": items}

    def map(self, depth: int) -> Any:
        return {"type": "map", "values": self.any(depth)}

    def enum(self, _: int) -> Any:
        return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}

    def fixed(self, _: int) -> Any:
        return {"type": "fixed", "name": self.name(), "size": self.draw(st.integers(1, 5))}

    def nullable(self, depth: int) -> Any:
        kinds = ["primitive", *NESTED] if depth > 0 else ["primitive"]
        branch = getattr(self, self.draw(st.sampled_from(kinds)))(depth - 1)
        assume(branch != "null")
        return ["null", branch] if self.draw(st.booleans()) else [branch, "null"]

    def union(self, depth: int) -> Any:
        # fastavro can be told the branch of records and primitives only
        plain = self.draw(st.lists(st.sampled_from(list(PRIMITIVES)), unique=True, max_size=4))
        records = [self.record(depth - 1) for _ in range(self.draw(st.integers(0, 3)))]
        branches = self.draw(st.permutations([*plain, *records]))
        assume(len(branches) > 2 or (branches and "null" not in branches))
        return branches


NESTED = ["record", "array", "map", "enum", "fixed"]


def datum(draw: Any, schema: Any) -> Any:
    if isinstance(schema, str):
        return draw(PRIMITIVES[schema])
    if isinstance(schema, list):
        branch = draw(st.integers(0, len(schema) - 1))
        return branch, datum(draw, schema[branch])
    return DATUMS[schema["type"]](draw, schema)


DATUMS: dict[str, Any] = {
    "record": lambda draw, s: {f["name"]: datum(draw, f["type"]) for f in s["fields"]},
    "array": lambda draw, s: [datum(draw, s["items"]) for _ in range(draw(st.integers(0, 3)))],
    "map": lambda draw, s: {
        key: datum(draw, s["values"])
        for key in draw(st.lists(st.text(max_size=5), max_size=3, unique=True))
    },
    "enum": lambda draw, s: draw(st.sampled_from(s["symbols"])),
    "fixed": lambda draw, s: draw(st.binary(min_size=s["size"], max_size=s["size"])),
}


def convert(schema: Any, value: Any, union: Any) -> Any:
    """A datum with every union put as `union(schema, branch, value)` says."""
    if isinstance(schema, list):
        branch, inner = value
        return union(schema, branch, convert(schema[branch], inner, union))
    if isinstance(schema, str) or schema["type"] in ("enum", "fixed"):
        return value
    if schema["type"] == "record":
        types = {f["name"]: f["type"] for f in schema["fields"]}
        return {name: convert(types[name], one, union) for name, one in value.items()}
    if schema["type"] == "array":
        return [convert(schema["items"], one, union) for one in value]
    return {key: convert(schema["values"], one, union) for key, one in value.items()}


def is_nullable(schema: list[Any]) -> bool:
    return len(schema) == 2 and "null" in schema


def for_fastavro(schema: list[Any], branch: int, value: Any) -> Any:
    kind = schema[branch]
    if kind == "null" or is_nullable(schema):
        return value
    return (kind if isinstance(kind, str) else kind["name"]), value


def in_arrow(schema: list[Any], branch: int, value: Any) -> Any:
    if schema[branch] == "null" or is_nullable(schema):
        return value
    names = {kind if isinstance(kind, str) else kind["name"] for kind in schema} - {"null"}
    kind = schema[branch]
    return {**dict.fromkeys(names), (kind if isinstance(kind, str) else kind["name"]): value}


@st.composite
def schema_and_data(draw: Any) -> tuple[Any, list[Any]]:
    schema = Schemas(draw).record(3)
    return schema, [datum(draw, schema) for _ in range(draw(st.integers(0, 5)))]


def fastavro_bytes(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def rows_of(table: pa.Table) -> list[Any]:
    return [undone(row) for row in table.to_pylist()]


def undone(value: Any) -> Any:
    """pyarrow gives maps as lists of pairs."""
    if isinstance(value, dict):
        return {key: undone(one) for key, one in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and all(isinstance(one, tuple) for one in value)
        return {k: undone(v) for k, v in value} if pairs else [undone(one) for one in value]
    return value


def no_empty_maps(value: Any) -> Any:
    """An empty map and an empty array look alike in Python, once they have been Arrow."""
    if isinstance(value, dict):
        return {key: no_empty_maps(one) for key, one in value.items()} or []
    return [no_empty_maps(one) for one in value] if isinstance(value, list) else value


@given(schema_and_data())
@settings(max_examples=examples(75, 300), deadline=None)
def test_any_schema_goes_both_ways_as_in_fastavro(case: tuple[Any, list[Any]]) -> None:
    schema, data = case
    bodies = [fastavro_bytes(schema, convert(schema, one, for_fastavro)) for one in data]
    codec = RecordCodec(schema)
    values = pa.array([b"\xff", *bodies], pa.binary())[1:]
    table = codec.decode(values)
    table.validate(full=True)
    assert table.schema == codec.arrow_schema
    expected = [no_empty_maps(convert(schema, one, in_arrow)) for one in data]
    assert [no_empty_maps(row) for row in rows_of(table)] == expected
    assert codec.encode(table).to_pylist() == bodies
    record = parse(schema)
    assert encode_columns(record, table).to_pylist() == bodies
    assert (encode_few(record, table) is None) == (len(bodies) > FEW_ROWS)
    for batch in table.combine_chunks().to_batches():
        assert codec.encode(batch.slice(1)).to_pylist() == bodies[1:]


@given(schema_and_data(), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_fields_not_asked_for_are_stepped_over(
    case: tuple[Any, list[Any]], draw: st.DataObject
) -> None:
    schema, data = case
    bodies = [fastavro_bytes(schema, convert(schema, one, for_fastavro)) for one in data]
    codec = RecordCodec(schema)
    values = pa.array(bodies, pa.binary())
    wanted = draw.draw(st.lists(st.sampled_from(codec.arrow_schema.names), unique=True))
    found = codec.decode(values, wanted)
    whole = codec.decode(values)
    for name in wanted:
        assert found.column(name).equals(whole.column(name))
    assert set(found.schema.names) == set(wanted)


INNER = {"type": "record", "name": "i", "fields": [{"name": n, "type": "long"} for n in "xyz"]}
MANY = ["null", INNER, "string", "double"]


@given(st.lists(st.tuples(st.sampled_from(range(4)), st.integers(-(1 << 63), (1 << 63) - 1))))
@settings(deadline=None)
def test_fields_within_fields_are_read_alone(rows: list[tuple[int, int]]) -> None:
    schema = record(a=["null", INNER], b=["null", "i", "string", "double"], c="long", d="bytes")
    cases = [lambda n: None, lambda n: {"x": n, "y": -n >> 1, "z": 3}, str, float]
    data = [
        {"a": cases[kind % 2](n), "b": cases[kind](n), "c": n, "d": b"." * kind} for kind, n in rows
    ]
    codec = RecordCodec(schema)
    values = pa.array([fastavro_bytes(schema, one) for one in data], pa.binary())
    whole = codec.decode(values)
    found = codec.decode(values, ["d", "b.string", "b.i.y", "a.z"])
    assert found.schema.names == ["a", "b", "d"]
    for path in (["a", "z"], ["b", "string"], ["b", "i", "y"]):
        read, told = (pc.struct_field(table[path[0]], path[1:]) for table in (found, whole))
        assert read.equals(told)
    assert found["d"].equals(whole["d"])
    assert found["b"].type == pa.struct([("i", pa.struct([("y", pa.int64())])), ("string", "str")])


def test_only_fields_that_are_there_are_read() -> None:
    codec = RecordCodec(record(a=["null", INNER], b="long"))
    for name in ("c", "a.w", "b.x"):
        with pytest.raises(UsageError, match=r"no (such field|fields)"):
            codec.decode(pa.array([], pa.binary()), [name])


@given(st.lists(st.integers(0, 1 << 70), min_size=1), st.sampled_from([b"", b"12345678", b"\xff"]))
@settings(deadline=None)
def test_numbers_are_read_alike_near_the_end_and_far_from_it(
    words: list[int], behind: bytes
) -> None:
    """From one word where there are eight bytes, and else byte by byte."""
    bodies = [varint(word) for word in words]
    codec = RecordCodec(record(a="long"))
    values = pa.array([*bodies, behind], pa.binary())[: len(bodies)]
    if max(words) >> 64:
        with pytest.raises(CorruptError, match=r"64 bits|after the end"):
            codec.decode(values)
    else:
        assert codec.decode(values)["a"].to_pylist() == [(one >> 1) ^ -(one & 1) for one in words]
    cut = pa.array([bodies[0][:-1] + b"\x80", *bodies, behind], pa.binary())[: len(values) + 1]
    with pytest.raises(CorruptError, match=r"ends too early|64 bits"):
        codec.decode(cut)


def varint(word: int) -> bytes:
    made = bytearray()
    while word > 0x7F:
        made.append(word & 0x7F | 0x80)
        word >>= 7
    return bytes([*made, word])


@pytest.mark.parametrize("other", [b"\x02\x02.", b"\x02\x04..", b""])
def test_fields_that_say_nothing_are_stepped_over_together(other: bytes) -> None:
    codec = RecordCodec(record(a=["null", "string"], b=["null", "string"], c="long"))
    nothing = b"\x00\x00\x06"
    bodies = [nothing, nothing if not other else b"\x00" + other + b"\x06", nothing]
    for behind in (b"", b"12345678"):
        values = pa.array([*bodies, behind], pa.binary())[:3]
        assert codec.decode(values, ["c"])["c"].to_pylist() == [3] * 3
        with pytest.raises(CorruptError, match="row=2"):
            codec.decode(pa.array([*bodies[:2], b"\x00", behind], pa.binary())[:3], ["c"])


@given(schema_and_data(), st.data())
@settings(max_examples=examples(50, 200), deadline=None)
def test_damaged_datums_are_corruption_or_another_datum(
    case: tuple[Any, list[Any]], draw: st.DataObject
) -> None:
    schema, data = case
    bodies = [fastavro_bytes(schema, convert(schema, one, for_fastavro)) for one in data]
    bodies.append(draw.draw(st.binary(max_size=20)))
    place = draw.draw(st.integers(0, len(bodies) - 1))
    body = bytearray(bodies[place])
    if body:
        body[draw.draw(st.integers(0, len(body) - 1))] = draw.draw(st.integers(0, 255))
    bodies[place] = bytes(body)
    codec = RecordCodec(schema)
    try:
        table = codec.decode(pa.array(bodies, pa.binary()), path="p/f")
    except CorruptError as error:
        assert "p/f" in str(error)  # noqa: PT017
        return
    table.validate(full=True)
    again = codec.decode(codec.encode(table))
    assert str(again.to_pylist()) == str(table.to_pylist())  # NaN is not itself


def record(**fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "r", "fields": listed}


def test_numbers_of_all_lengths_are_read_at_once_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = [sign * ((1 << bits) - 1) for bits in range(64) for sign in (1, -1)]
    codec = RecordCodec(record(f=["null", "long"], g="long"))
    columns = [numbers, [5] * 128], [[-7] * 128, numbers], [[None, *numbers[1:]], numbers[::-1]]
    for given_ in columns:
        table = pa.table(dict(zip("fg", given_, strict=True)))
        bodies = codec.encode(table)
        assert codec.decode(bodies).to_pydict() == table.to_pydict()
        assert codec.decode(bodies, ["g"])["g"].to_pylist() == given_[1]
        for cut, row in product(range(1, 12), (60, 127)):  # some end too early, or with all bytes
            listed = bodies.to_pylist()
            listed[row] = listed[row][:-cut]
            hurt = pa.array(listed, pa.binary())
            with monkeypatch.context() as patch:
                patch.setattr(Cursor, "_next_words", lambda _: None)
                expected = outcome(codec, hurt)
            assert outcome(codec, hurt) == expected


def outcome(codec: RecordCodec, bodies: pa.Array) -> Any:
    try:
        return codec.decode(bodies).to_pydict()
    except CorruptError as error:
        return str(error)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("long", b""),
        ("long", b"\x80"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\xff" * 11),
        ("int", b"\x80\x80\x80\x80\x20"),
        ("boolean", b"\x02"),
        ("double", b"1234567"),
        ("string", b"\x04a"),
        ("string", b"\x01"),
        ("string", b"\x02\xff"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a"),
        ("null", b"\x00"),
        (["null", "int"], b"\x04\x00"),
        (["null", "int"], b"\x01"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02"),
        ({"type": "fixed", "name": "x", "size": 4}, b"abc"),
        ({"type": "array", "items": "int"}, b"\x02\x02"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x00\x00"),
        ({"type": "map", "values": "int"}, b"\x02\x7f"),
    ],
)
def test_impossible_bytes_are_corruption(kind: Any, body: bytes) -> None:
    good = fastavro_bytes(record(a="long"), {"a": 5})
    with pytest.raises(CorruptError, match="p/f"):
        RecordCodec(record(a=kind)).decode(pa.array([body], pa.binary()), path="p/f")
    both = pa.array([good, good + b"\x00"], pa.binary())
    with pytest.raises(CorruptError, match="row=1"):
        RecordCodec(record(a="long")).decode(both)


@pytest.mark.parametrize(
    ("wide", "value"),
    [
        ({"type": "fixed", "name": "x", "size": 1 << 20}, bytes(1 << 20)),
        (record(**{f"f{number}": "double" for number in range(1 << 10)}), bytes(1 << 13)),
    ],
)
@pytest.mark.parametrize("others", [[], ["null"]])
def test_nulls_of_large_types_get_no_memory_without_end(
    wide: Any, value: bytes, others: list[Any]
) -> None:
    """A byte a row would take a MiB, or 8 KiB, each: a schema, too, may be hostile."""
    wide = dict(wide, name="wide")
    codec = RecordCodec(record(a=["null", wide, *(["int"] if others else [])]))
    few = pa.array([b"\x00", b"\x02" + value, b"\x00"], pa.binary())
    assert codec.decode(few).column("a").null_count == 2
    many = pa.array([b"\x00"] * 100_000, pa.binary())
    for bodies in (many, pa.concat_arrays([few, many])):
        with pytest.raises(CorruptError, match="nulls in Avro datums would take too much memory"):
            codec.decode(bodies, path="p/f")


def deep(levels: int, wrapped: Any) -> Any:
    kind: Any = "int"
    for level in range(levels):
        kind = wrapped(kind, level)
    return kind


@pytest.mark.parametrize(
    ("wrapped", "before", "behind"),
    [
        (lambda kind, _: {"type": "array", "items": kind}, b"\x02", b"\x00"),
        (lambda kind, _: {"type": "map", "values": kind}, b"\x02\x00", b"\x00"),
        (lambda kind, level: {**record(a=kind), "name": f"r{level}"}, b"", b""),
        (lambda kind, level: {**record(a=["null", kind]), "name": f"r{level}"}, b"\x02", b""),
    ],
)
def test_what_is_nested_is_read_or_refused_however_deep(
    wrapped: Any, before: bytes, behind: bytes
) -> None:
    for levels in (20, 60):
        codec = RecordCodec({**record(a=deep(levels, wrapped)), "name": "top"})
        datum = before * levels + b"\x02" + behind * levels
        assert codec.decode(pa.array([datum], pa.binary())).num_rows == 1
    for levels in (130, 240, 320, 900, 5000):
        with pytest.raises(UsageError, match="nested too deeply"):
            RecordCodec({**record(a=deep(levels, wrapped)), "name": "top"})


def test_a_type_that_is_told_again_and_again_is_refused() -> None:
    """Forty lines would be a million million columns, of which a datum takes no bytes."""
    kind: Any = {**record(a="null", b="null"), "name": "r0"}
    for level in range(1, 40):
        kind = {**record(a=kind, b=f"r{level - 1}"), "name": f"r{level}"}
    with pytest.raises(UsageError, match="too many types"):
        RecordCodec(kind)
    chain: Any = [{**record(a="int"), "name": "r0"}]
    chain += [{**record(a=f"r{level}"), "name": f"r{level + 1}"} for level in range(200)]
    with pytest.raises(UsageError, match="nested too deeply"):
        RecordCodec(record(**{f"f{place}": one for place, one in enumerate(chain)}))


def test_a_fixed_type_takes_no_memory_where_there_are_no_rows() -> None:
    largest = {"type": "fixed", "name": "x", "size": (1 << 31) - 1}
    assert RecordCodec(record(a=largest)).decode(pa.array([], pa.binary())).num_rows == 0
    for size in (-1, 1 << 31, 1 << 70):
        with pytest.raises(UsageError, match="not an Avro schema"):
            RecordCodec(record(a=dict(largest, size=size)))


@pytest.mark.parametrize("symbols", [[1], [None], "AB", ["\ud800"], [["A"]]])
def test_symbols_that_are_no_texts_are_refused(symbols: Any) -> None:
    with pytest.raises(UsageError, match="not an Avro schema"):
        RecordCodec(record(a={"type": "enum", "name": "e", "symbols": symbols}))


def test_a_record_that_names_a_field_twice_is_refused() -> None:
    fields = [{"name": name, "type": "int"} for name in ("a", "b", "b")]
    for schema in (
        dict(record(), fields=fields),
        record(x=dict(record(), name="x", fields=fields)),
    ):
        with pytest.raises(UsageError, match="names a field twice: found='b'"):
            RecordCodec(schema)


def test_of_many_rows_one_that_has_many_items_is_looked_at_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec = RecordCodec(record(a={"type": "array", "items": "int"}))
    rows = [[1, 2] if row else [*range(300)] for row in range(1000)]
    datums = codec.encode(pa.table({"a": pa.array(rows, pa.list_(pa.int32()))}))
    looked, back = [], Cursor.back

    def counted(cursor: Cursor, some: Cursor, own: Int64s) -> None:
        looked.append(len(cursor))
        back(cursor, some, own)

    monkeypatch.setattr(Cursor, "back", counted)
    monkeypatch.setattr(decode, "FEW_A_ROUND", 0)  # else it is walked over
    assert codec.decode(datums)["a"].to_pylist() == rows
    assert sum(looked) < 10 * len(rows)


def test_corruption_names_the_row_through_unions_and_items() -> None:
    nested = record(a=["null", {"type": "array", "items": "boolean"}])
    bodies = pa.array([b"\x00", b"\x02\x02\x01\x00", b"\x00", b"\x02\x04\x01\x07\x00"], pa.binary())
    with pytest.raises(CorruptError, match="row=3"):
        RecordCodec(nested).decode(bodies)


def test_blocks_with_their_size_are_read() -> None:
    codec = RecordCodec(record(a={"type": "array", "items": "int"}, b="int"))
    body = bytes([3, 4, 2, 4, 1, 2, 6, 0, 14])  # -2 items in 2 bytes, then -1 in 1, then the end
    assert rows_of(codec.decode(pa.array([body], pa.binary()))) == [{"a": [1, 2, 3], "b": 7}]


@pytest.mark.parametrize(
    "blocks",
    [
        [[1], [1]],
        [[1, 1], [1, 1]],
        [[1, 2], [1, 1]],
        [[1], [1, 1]],
        [[1, 2, 1], [1, 2]],
        [[], []],
        [[2], [2]],
    ],
)
def test_rows_whose_blocks_are_alike_for_a_while_are_read(blocks: list[list[int]]) -> None:
    """One item each is the rule: of a file that has no logs."""
    codec = RecordCodec(record(a={"type": "array", "items": "int"}, b="int"))
    bodies = [
        b"".join(bytes([2 * count, *range(2, 2 + 2 * count, 2)]) for count in row) + b"\x00\x0e"
        for row in blocks
    ]
    expected = [{"a": [n + 1 for count in row for n in range(count)], "b": 7} for row in blocks]
    assert rows_of(codec.decode(pa.array(bodies, pa.binary()))) == expected
    with pytest.raises(CorruptError):
        codec.decode(pa.array([body[:-2] for body in bodies], pa.binary()))


def test_large_values_are_read_from_large_columns() -> None:
    codec = RecordCodec(record(a="bytes"))
    values = codec.encode(pa.table({"a": pa.array([b"x" * 100_000, b"", b"y"])}))
    for kind in (pa.large_binary(), pa.binary_view()):
        assert codec.decode(values.cast(kind)).column("a").to_pylist()[1:] == [b"", b"y"]


def test_not_a_number_survives() -> None:
    codec = RecordCodec(record(a="double", b="float"))
    values = codec.encode(pa.table({"a": [float("nan"), -0.0], "b": [float("inf"), 1.5]}))
    assert str(rows_of(codec.decode(values))) == "[{'a': nan, 'b': inf}, {'a': -0.0, 'b': 1.5}]"


def test_absent_columns_are_null_where_the_schema_has_null() -> None:
    codec = RecordCodec(record(a="int", b=["null", "string"], c=["string", "null"]))
    values = codec.encode(pa.table({"a": [1, 2]}))
    assert values.to_pylist() == [b"\x02\x00\x02", b"\x04\x00\x02"]


def test_a_null_struct_hides_what_its_children_hold() -> None:
    codec = RecordCodec(record(a=["null", "int", "string"]))
    numbers = pa.array([1, 2], pa.int32())
    hidden = pa.StructArray.from_arrays([numbers], ["int"], mask=pa.array([True, False]))
    assert codec.encode(pa.table({"a": hidden})).to_pylist() == [b"\x00", b"\x02\x04"]


def test_types_are_cast_where_nothing_is_lost() -> None:
    codec = RecordCodec(record(a="int", b="string"))
    table = pa.table({"a": pa.array([7], pa.int64()), "b": pa.array(["x"]).dictionary_encode()})
    assert codec.encode(table).to_pylist() == [b"\x0e\x02x"]


@pytest.mark.parametrize(
    ("kind", "column", "match"),
    [
        ("int", pa.array([1, None]), "null in a field"),
        ("int", pa.array([1 << 40]), "another type"),
        ("int", pa.array(["x"]), "another type"),
        ("int", None, "missing column"),
        (record(x="int"), pa.array([1]), "struct"),
        (["int", "string"], pa.array([1]), "struct"),
        (["int", "string"], pa.array([{"int": 1, "string": "a"}]), "one branch"),
        (["int", "string"], pa.array([{"int": None, "string": None}]), "one branch"),
        ({"type": "array", "items": "int"}, pa.array([[1], [None]]), "null in a field"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.array(["B"]), "enum"),
    ],
)
def test_columns_that_do_not_fit_are_refused(kind: Any, column: Any, match: str) -> None:
    inner = dict(kind, name="inner") if isinstance(kind, dict) and "fields" in kind else kind
    table = pa.table({"z": [0]} if column is None else {"a": column})
    with pytest.raises(UsageError, match=match):
        RecordCodec(record(a=inner)).encode(table)


@pytest.mark.parametrize(
    "schema",
    [
        "int",
        "{",
        {"type": "record", "name": "r"},
        record(a="unheard-of"),
        record(a=["null", ["int"]]),
        record(a=["int", "int"]),
        record(a=[]),
        record(a={"type": "array", "items": "null"}),
        record(a={"type": "array", "items": {"type": "record", "name": "e", "fields": []}}),
        record(a=["null", "r"]),
    ],
)
def test_schemas_without_columns_are_refused(schema: Any) -> None:
    with pytest.raises(UsageError):
        RecordCodec(schema)


def test_named_types_are_found_in_their_name_space() -> None:
    inner = {"type": "record", "name": "i", "fields": [{"name": "v", "type": "int"}]}
    schema = {**record(a=inner, b=["null", "n.i"], c="i"), "namespace": "n"}
    codec = RecordCodec(schema)
    values = codec.encode(pa.table({"a": [{"v": 1}], "b": [{"v": 2}], "c": [{"v": 3}]}))
    assert values.to_pylist() == [b"\x02\x02\x04\x06"]
    assert rows_of(codec.decode(values)) == [{"a": {"v": 1}, "b": {"v": 2}, "c": {"v": 3}}]


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(UsageError, match="field"):
        RecordCodec(record(a="int")).decode(pa.array([], pa.binary()), ["b"])
