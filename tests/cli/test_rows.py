"""The verbs that take rows and give rows: forms, types, errors, streams."""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import io
import json
import math
import os
import sys
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metatable
from metatable.cli import chunks, csv_rows, json_rows, rows_in, rows_out
from metatable.cli.cell_values import values_of
from metatable.cli.column_types import parse_columns
from metatable.cli.csv_quotes import Quotes
from metatable.cli.main import main
from metatable.cli.rows_in import inferred_schema
from metatable.storage.errors import UsageError

FAST = ["--storage-option", "durable=false"]

SCHEMA = (
    "id: string, city: string, n: int64, fare: double, day: date, at: timestamp[us, UTC],"
    " price: decimal(10, 2), ok: bool, raw: binary, noon: time"
)
COLUMNS = (
    "id,city,n,fare,day,at,price,ok,raw,noon\n"
    "007,Ulm,1,9.5,2026-01-31,2026-01-31T13:45:00+01:00,1.10,true,AAH/,12:30:00\n"
    'b,"a ""quoted"", town",,,,,,,,\n'
    'c,"",3,1e300,,,,,,\n'
)
ROWS = [
    {
        "id": "007",
        "city": "Ulm",
        "n": 1,
        "fare": 9.5,
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, 45, tzinfo=UTC),
        "price": Decimal("1.10"),
        "ok": True,
        "raw": b"\0\1\xff",
        "noon": time(12, 30),
    },
    dict.fromkeys(["n", "fare", "day", "at", "price", "ok", "raw", "noon"])
    | {"id": "b", "city": 'a "quoted", town'},
]


MANY = "id,n\n" + "a,1\n" * 999

MAP = pa.map_(pa.string(), pa.list_(pa.date32()))


class Words:
    """The program, its output taken apart."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main([*words, *FAST]) == code, self._capfd.readouterr().err
        self.told = self._capfd.readouterr()
        return self.told.out

    def objects(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*words, "--json").splitlines()]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Words:
    return Words(capfd)


@pytest.fixture
def rides(run: Words, table_uri: str) -> str:
    """A table of many types."""
    run("create", table_uri, "--schema", SCHEMA, "--key", "id", "--index", "record")
    return table_uri


def held(uri: str) -> list[dict[str, Any]]:
    found = metatable.open(uri).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_csv_is_read_in_the_tables_types(run: Words, rides: str, tmp_path: Path) -> None:
    [done] = run.objects("insert", rides, write(tmp_path / "a.csv", COLUMNS), "--note", "job=x")
    assert (done["inserted"], done["operation"]) == (3, "insert")
    found = held(rides)
    assert found[:2] == ROWS
    assert (found[2]["city"], found[2]["fare"]) == ("", 1e300)
    assert metatable.open(rides).history(1)[0].note == {"job": "x"}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_what_scan_writes_upsert_reads(run: Words, rides: str, tmp_path: Path, form: str) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    before = held(rides)
    output = str(tmp_path / f"out.{form}")
    run("scan", rides, "--output", output)
    assert run.told.err == f"3 rows in {output}\n"
    run("delete", rides, output)
    assert held(rides) == []
    run("upsert", rides, output)
    assert repr(held(rides)) == repr(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", f"out.{form}", "table"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_files_and_several_are_one_stream(
    run: Words, rides: str, tmp_path: Path, pack: Any
) -> None:
    suffix = "gz" if pack is gzip.compress else "bz2"
    lines = b'{"n": 5, "id": "x"}\n\n{"id": "y", "n": 6}\n'
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(pack(lines))
    pq.write_table(pa.table({"n": [7], "id": ["z"]}), tmp_path / "b.parquet")
    second = write(tmp_path / "c.csv", "id,n\nw,8\n")
    files = [str(tmp_path / "b.parquet"), second]
    [done] = run.objects("insert", rides, *files)
    assert done["inserted"] == 2
    run("insert", rides, str(tmp_path / f"a.jsonl.{suffix}"))
    assert [(row["id"], row["n"]) for row in held(rides)] == [
        ("w", 8),
        ("x", 5),
        ("y", 6),
        ("z", 7),
    ]
    other = write(tmp_path / "d.csv", "id,fare\nq,8\n")
    run("insert", rides, second, other, code=2)
    assert "files of different columns" in run.told.err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_standard_input_is_read(
    run: Words, rides: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    body = {"csv": b"id,n\nx,5\n", "jsonl": b'{"id": "x", "n": 5}\n'}.get(form)
    if body is None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": ["x"], "n": [5]}), sink)
        body = sink.getvalue()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    run("upsert", rides, "-", "--from", form)
    assert [(row["id"], row["n"]) for row in held(rides)] == [("x", 5)]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "id,n\na,1\nb,x\n", "file='{}' line=3 column='n'"),
        ("a.csv", "id,n\na,1\nb\n", "line=3 found='Expected 2 columns, got 1: b'"),
        ("a.csv", "id,day\na,31.1.2026\n", "line=2 column='day'"),
        ("a.csv", "id,raw\na,QUI=\nb,!\n", "not base64 of the column's length: file='{}' line=3"),
        (
            "a.csv",
            "id,price\na,12345678\nb,123456789\n",
            "not a decimal of the column's type: file='{}' line=3 column='price'",
        ),
        ("a.csv", 'id,price\na,1\nb,""\n', "file='{}' line=3 column='price' expected="),
        ("a.csv", "id,price\na,1.234\n", "line=2 column='price' expected='decimal128(10, 2)'"),
        (
            "a.csv",
            "id,at\na,2024-07-01 10:00:00\n",
            "line=2 column='at' expected='a time with a zone, such as 2024-07-01T10:00:00Z'"
            " found='2024-07-01 10:00:00'\n",
        ),
        ("a.csv", "", "Empty CSV file"),
        ("a.csv", "id,id\na,b\n", "a column is there twice"),
        ("a.jsonl", '{"id": "a"}\n\n{"id": "b", "n": "x"}\n', "file='{}' line=3"),
        ("a.jsonl", '{"id": "a"}\n{"id": "b"\n', "line=2"),
        ("a.jsonl", '{"id": "a", "n": 1}\n{"id": "b", "day": "soon"}\n', "line=2 found="),
        ("a.jsonl", '{"id": 7}\n', "line=1"),
        (
            "a.jsonl",
            '{"id": "a"}\n{"id": "b", "price": 123456789}\n',
            "line=2 found=\"Decimal value does not fit in precision 10: column='price'",
        ),
        ("a.jsonl", '{"id": "a"}\n{"id": "b", "noon": "12:30Z"}\n', "'12:30Z' has a zone"),
        ("a.jsonl", '{"id": "a", "noon": "12:30:00.1234567"}\n', "finer than microseconds"),
        ("a.jsonl", '{"id": "a"}\n{"id": "b", "wat": 1}\n', "line=2 expected="),
        ("a.jsonl", '[{"id": "a"}]\n', "an object a line"),
        ("a.jsonl", '{"id": ' + "[" * 100_000 + "\n", "file='{}' line=1"),
        ("a.parquet", "no Parquet", "not a Parquet file"),
        ("a.csv", b"id,\xff\na,b\n", "rows that cannot be read: file='{}' line=1"),
        ("a.csv", b"\xff\xfei\0d\0\n\0", "rows that cannot be read: file='{}' line=1"),
        ("a.txt", "id\na\n", "rows of which form?: file='{}' expected='--from csv|jsonl|parquet"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line(
    run: Words, rides: str, tmp_path: Path, name: str, text: str | bytes, told: str
) -> None:
    path = write(tmp_path / name, text)
    run("upsert", rides, path, code=2)
    assert told.format(path) in run.told.err
    assert len(run.told.err.splitlines()) == 1
    assert metatable.open(rides).version == 1


@pytest.mark.parametrize("depth", [101, 600, 20_000])
@pytest.mark.parametrize("field", ["q", "other"])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")], ids=["list", "object"])
def test_what_is_nested_too_deep_to_be_guessed_is_refused(
    run: Words, rides: str, tmp_path: Path, depth: int, field: str, opens: str, closes: str
) -> None:
    """Arrow goes down types by calling itself, and the process ends where its stack does."""
    deep = f'{{"id": "b", "{field}": {opens * (depth - 1)}[]{closes * (depth - 1)}}}'
    path = write(tmp_path / "a.jsonl", '{"id": "a", "q": null}\n' + deep)
    for words in (("upsert", rides, path), ("tag", rides, path)):
        run(*words, code=2)
        assert f"file='{path}' line=2 expected='100 levels at most'" in run.told.err
    run("create", str(tmp_path / "new"), "--like", path, "--key", "id", code=2)
    assert "100 levels at most" in run.told.err
    assert metatable.open(rides).version == 1


def test_brackets_in_texts_are_no_levels(run: Words, rides: str, tmp_path: Path) -> None:
    text = "[{" * 200 + '\\"' + "[" * 200
    path = write(
        tmp_path / "a.jsonl", '{"id": "a", "q": "' + text + '", "r": [' + "[1]," * 200 + "[2]]}"
    )
    run("create", str(tmp_path / "new"), "--like", path, "--key", "id")
    run("upsert", str(tmp_path / "new"), path)
    [row] = held(str(tmp_path / "new"))
    assert row["q"].count("[") == 400
    assert len(row["r"]) == 201


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_a_packed_file_without_a_byte_is_no_file_without_rows(
    run: Words, rides: str, tmp_path: Path, suffix: str
) -> None:
    path = write(tmp_path / f"a.jsonl.{suffix}", "")
    run("upsert", rides, path, code=2)
    assert "an empty file" in run.told.err


def test_lines_that_are_none_replace_no_table(run: Words, rides: str, tmp_path: Path) -> None:
    """As what a call that failed hands on."""
    run("insert", rides, write(tmp_path / "a.jsonl", '{"id": "a"}'))
    empty = write(tmp_path / "b.jsonl", "\n")
    run("insert-overwrite", rides, empty, "--by", "table", code=2)
    assert "no line is there" in run.told.err
    assert [row["id"] for row in held(rides)] == ["a"]
    run("insert-overwrite", rides, empty)
    assert [row["id"] for row in held(rides)] == ["a"]
    run("insert-overwrite", rides, write(tmp_path / "c.csv", "id\n"), "--by", "table")
    assert held(rides) == []


def test_nul_is_no_delimiter(run: Words, rides: str, tmp_path: Path) -> None:
    run("upsert", rides, write(tmp_path / "a.csv", "id\na\n"), "--delimiter", "\0", code=2)
    assert "not a delimiter" in run.told.err


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_of_decimals_as_texts_none_becomes_another_one(
    run: Words, table_uri: str, tmp_path: Path, form: str
) -> None:
    """Within 128 bits Arrow makes 59717633079061536536.6… of the first one that is too large."""
    run("create", table_uri, "--schema", "id: decimal(38, 18), n: int64", "--key", "id")
    most = Decimal("99999999999999999999.999999999999999999")
    path = tmp_path / f"a.{form}"
    for told in ("400000000000000000000", "-700000000000000000000"):
        text = {"csv": f"id,n\n1,1\n{told},2\n", "jsonl": f'{{"id": 1}}\n{{"id": {told}}}\n'}
        run("insert", table_uri, write(path, text[form]), code=2)
        assert f"file='{path}' line={2 + (form == 'csv')} " in run.told.err
        assert "column='id'" in run.told.err
        assert "decimal128(38, 18)" in run.told.err
        run("lookup", table_uri, "--key", told, code=2)
    text = {"csv": f"id,n\n 1.5 ,\n-{most},\n{most},\n1e3,\n"}
    text["jsonl"] = f'{{"id": 1.5}}\n{{"id": "-{most}"}}\n{{"id": {most}}}\n{{"id": 1e3}}\n'
    run("insert", table_uri, write(path, text[form]))
    found = sorted(metatable.open(table_uri).scan().to_arrow()["id"].to_pylist())
    assert found == [most.copy_negate(), Decimal("1.5"), 1000, most]


def test_a_bad_line_far_behind_is_named_by_its_number(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 100)
    lines = [f'{{"id": "k{n}", "n": {n}}}\n' for n in range(50)]
    lines[37] = "\n"
    lines[41] = '{"id": "k41", "n": 1.5}\n'
    run("upsert", rides, write(tmp_path / "a.jsonl", "".join(lines)), code=2)
    assert "line=42" in run.told.err
    text = "id,n\n" + "".join(f"k{n},{n if n != 41 else 'x'}\n" for n in range(50))
    run("upsert", rides, write(tmp_path / "a.csv", text), code=2)
    assert "line=43" in run.told.err
    lines[41] = '{"id": "k41"}\n'
    run("upsert", rides, write(tmp_path / "a.jsonl", "".join(lines)))
    assert len(held(rides)) == 49


@pytest.mark.parametrize("pack", [None, gzip.compress])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id,city,n,raw,price\n" + 'k,"a\nb ""\n""",1,,\n' * 40 + "x,,y,,\n", 122),
        ("\n\nid,n\n\n\r\na,1\n\n\nb,x\n", 9),
        ('\ufeff"id",city,n\ra,"x\r\ny\rz",1\r\r\nb,,x\n', 6),
        ("id,city,n\n" + "a," + "x" * 200_000 + ",1\n\nb\n", 4),
        ('id,city,n\na,5" pipe,1\n\nb,"x\ny",2,3\n', 4),
        ('id,city,raw\na,"x\n\ny",QUI=\nb,"x\ny",!\n', 5),
        ('id,city,price\na,"x\n\ny",1\n\nb,,123456789\n', 6),
        ('id,city,n\na,"x\n\ny",1\nb,"c,1\n', 5),
    ],
)
def test_lines_of_csv_are_counted_where_rows_are_several_or_none(
    run: Words, rides: str, tmp_path: Path, text: str, line: int, pack: Any
) -> None:
    body = text.encode()
    path = write(tmp_path / ("a.csv.gz" if pack else "a.csv"), pack(body) if pack else body)
    run("upsert", rides, path, code=2)
    assert f"file='{path}' line={line} " in run.told.err


def test_of_a_pipe_the_row_is_told_whose_line_nobody_counts(
    run: Words, rides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'id,city,n\na,"x\ny",1\nb,,x\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    run("upsert", rides, "-", "--from", "csv", code=2)
    assert "file='-' row=2 column='n'" in run.told.err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_for_which_there_is_no_memory_are_not_told_as_wrong(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = str(tmp_path / f"a.{form}")
    run("insert", rides, write(tmp_path / "b.csv", COLUMNS))
    run("scan", rides, "--columns", "id,n", "--output", path)

    def fails(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    places = {"csv": "pyarrow.csv.open_csv", "jsonl": "pyarrow.json.read_json"}
    monkeypatch.setattr(places.get(form, "pyarrow.parquet.ParquetFile"), fails)
    run("upsert", rides, path, code=4)
    assert run.told.err == "metatable: not enough memory: found='malloc of size 64 failed'\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,n\na,"x"y\n', 2),
        ('id,n\na,""x\n', 2),
        ('id,n\na,"x" \n', 2),
        ('id,n\r\na,"x\r\n\r\ny""" z,1\r\n', 4),
        ('id,n\ra,"x\ry"z\r', 3),
        ('id,n\na,5" pipe\nb,"5"" pipe"\nc,6"6"\n"d"e,\n', 5),
        ('id,n\nb,"y\nc,"z"\n', 3),
        ('"id"x,n\n', 1),
        ('id,n\na,"x""y","z\n"\n', None),
        ('\ufeff"id","n"\n"a,""b"", c","{""k"":1,""l"":""""}"\n"",""\n"""",""""""\n', None),
        ('id,n\na,5" pipe\nb,x"y"z",""\n', None),
        ('id,n\na,"not closed\n""\n', None),
        ('id,n\na,"x"', None),
        ("", None),
    ],
)
def test_text_behind_a_closing_quote_is_found(text: str, line: int | None, size: int) -> None:
    body, quotes = text.encode(), Quotes(",")
    for at in range(0, len(body), size):
        quotes.see(body[at : at + size])
    quotes.see(b"")
    assert quotes.wrong_line == line


@given(st.text('ab",\r\n', max_size=40), st.integers(1, 9))
def test_text_behind_a_closing_quote_is_what_a_strict_reader_refuses(text: str, size: int) -> None:
    quotes, is_wrong = Quotes(","), False
    for at in range(0, len(text), size):
        quotes.see(text[at : at + size].encode())
    quotes.see(b"")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        deque(reader, 0)
    except csv.Error as error:
        is_wrong = "expected after" in str(error)
    assert quotes.wrong_line == (reader.line_num if is_wrong else None)


def test_text_behind_a_closing_quote_is_no_part_of_the_cell(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "id,city\n" + 'k,"x"\n' * 30 + 'a,"x"y\n' + "k,z\n" * 30
    for block in (csv_rows.BLOCK_BYTES, 40):
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block)
        path = write(tmp_path / "a.csv", text)
        run("insert", rides, path, code=2)
        found = "found='text behind a quote that closes a cell'"
        assert f"rows that cannot be read: file='{path}' line=32 {found}" in run.told.err
    run("insert", rides, write(tmp_path / "b.csv", 'id,city,n\na,"b"",c",1\nb,"x"y,"z,1\n'), code=2)
    assert found in run.told.err
    assert metatable.open(rides).version == 1


LONGER = ['b,"' + "é\n" * 80 + '"\n', "b," + "y" * 201 + "\n", 'b,"y\n']


@pytest.mark.parametrize("wrong", LONGER)
@pytest.mark.parametrize("before", [0, 1, 50])
def test_rows_that_arrow_cannot_hold_are_told_with_their_line(
    monkeypatch: pytest.MonkeyPatch, wrong: str, before: int
) -> None:
    """One that may be any row behind a quote that nobody closes, too."""
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 100)
    row = 'a,"x\nx"\n'
    body = ("id,city\n" + row * before + wrong + row.replace('"', "") * 50).encode()
    found = "expected='rows of up to 0 MiB; longer ones as JSON lines or Parquet' found='a longer"
    for again, line in ((lambda: io.BytesIO(body), f"line={2 + 2 * before} "), (None, "")):
        with pytest.raises(UsageError) as told:
            deque(csv_rows.read(io.BytesIO(body), None, "a.csv", again=again)[1], 0)
        assert f"file='a.csv' {line}{found}" in str(told.value)


@pytest.mark.parametrize("body", ["", "id,n\na,x\n", "id,n\na,1,2\n", MANY, MANY + "a,x\n"])
@pytest.mark.parametrize("batches", [0, 1, 99])
def test_arrow_has_let_go_of_csv_when_its_reading_ends(
    monkeypatch: pytest.MonkeyPatch, body: str, batches: int
) -> None:
    """Else an interpreter that ends then may be aborted by Arrow's thread."""
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 100)
    lent: list[Any] = []
    monkeypatch.setattr(csv_rows, "LET_GO_SECONDS", 60.0)
    monkeypatch.setattr(csv_rows, "_Lent", watched(csv_rows._Lent, lent))
    schema, stream = pa.schema({"id": pa.string(), "n": pa.int64()}), io.BytesIO(body.encode())
    error: UsageError | None = None  # with its traceback, as where a verb fails
    try:
        _, rows = csv_rows.read(pa.PythonFile(stream, "r"), schema, "a.csv")
        for _ in islice(rows, batches if batches < 99 else None):
            pass
        rows.close()
    except UsageError as raised:
        error = raised
    assert (error is None) == (body == MANY or (body.startswith(MANY) and batches < 99))
    assert [one() for one in lent] == [None]


def watched(kind: Any, made: list[Any]) -> Any:
    """Makes what `kind` makes, and lists weak references to it."""

    def make(*words: Any) -> Any:
        one = kind(*words)
        made.append(weakref.ref(one))
        return one

    return make


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,city\na,x\nb,"y\nc,z\n', 3),
        ('id,city\na,"', 2),
        ('id,city\na,"y""\nc,z', 2),
        ('city\tid\nx\ta\n"y\tb\n', 3),
        ('id,n\na,"1\n', 2),
    ],
)
def test_rows_behind_a_quote_that_is_not_closed_are_no_part_of_a_cell(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    form = "tsv" if "\t" in text else "csv"
    for block in (csv_rows.BLOCK_BYTES, 40):
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block)
        run("upsert", rides, write(tmp_path / f"a.{form}", text), code=2)
        assert f"line={line}" in run.told.err
        assert "found='a quote that is not closed'" in run.told.err
    assert metatable.open(rides).version == 1


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("id", []),
        ("id,city\n", []),
        ('id,city\na,"x\ny"', [("a", "x\ny")]),
        ('id,city\na,""\nb,""""\n\n', [("a", ""), ("b", '"')]),
        ('id,city\na,x"\n', [("a", 'x"')]),
        ('\n\n"id",city\rb,\r', [("b", None)]),
    ],
)
def test_the_end_of_csv_is_no_row(
    run: Words, rides: str, tmp_path: Path, text: str, rows: list[Any]
) -> None:
    run("upsert", rides, write(tmp_path / "a.csv", text))
    assert [(row["id"], row["city"]) for row in held(rides)] == rows


def test_merge_takes_no_absent_field_for_a_null(run: Words, rides: str, tmp_path: Path) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    run(
        "merge", rides, write(tmp_path / "b.jsonl", '{"id": "b", "n": 9}\n{"id": "c", "n": null}\n')
    )
    assert [(row["n"], row["city"]) for row in held(rides)[1:]] == [
        (9, 'a "quoted", town'),
        (None, ""),
    ]
    lines = '{"id": "b", "n": 9}\n{"id": "c"}\n'
    run("merge", rides, write(tmp_path / "c.jsonl", lines), code=2)
    assert "line=2 expected='the fields of the first line' found=\"no field 'n'\"" in run.told.err
    run("upsert", rides, write(tmp_path / "c.jsonl", lines))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_null_in_a_later_file_is_refused_as_one_in_the_first(
    run: Words, table_uri: str, tmp_path: Path, form: str
) -> None:
    run("create", table_uri, "--schema", "id: string, n: int64 not null", "--key", "id")
    schema = metatable.open(table_uri).schema
    files = []
    for name, n in (("a", 1), ("b", None)):
        path = tmp_path / f"{name}.{form}"
        if form == "jsonl":
            path.write_text(json.dumps({"id": name, "n": n}) + "\n")
        else:
            nullable = schema if n else schema.set(1, schema.field(1).with_nullable(True))
            pq.write_table(pa.table([[name], [n]], schema=nullable), path)
        files.append(str(path))
    run("insert", table_uri, *files, code=2)
    assert "column must not be null: column='n'" in run.told.err
    assert metatable.open(table_uri).version == 1


def test_null_is_what_the_user_says(run: Words, rides: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\tcity\tn\na\tNA\tNA\n")
    run("upsert", rides, path, "--null", "NA")
    assert held(rides)[0]["city"] is None
    run("upsert", rides, write(tmp_path / "b.csv", "id;city\na;NA\n"), "--delimiter", ";")
    assert held(rides)[0]["city"] == "NA"


def test_scan_takes_condition_columns_version_and_limit(
    run: Words, rides: str, tmp_path: Path
) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    run("delete", rides, "--key", "007")
    words = ("scan", rides, "--columns", "id,n")
    assert run(*words, "--where", "n >= 1") == '"id","n"\n"c",3\n'
    assert run.objects(*words, "--version", "2", "--where", "n = 1") == [{"id": "007", "n": 1}]
    assert len(run.objects(*words, "--limit", "1")) == 1
    assert run(*words, "--format", "table", "--where", "id = 'b'") == "id     n\nb   null\n"
    run("upsert", rides, write(tmp_path / "nan.csv", "id,fare\nc,NaN\n"))
    body = run.objects("scan", rides, "--where", "id = 'c'", "--columns", "fare")
    assert body == [{"fare": "NaN"}]
    run("scan", rides, "--where", "nope = 1", code=2)
    assert "no such column" in run.told.err
    run("scan", rides, "--output", str(tmp_path / "a.txt"), code=2)
    assert "rows in which form?" in run.told.err
    run("scan", rides, "--output", str(tmp_path / "nowhere" / "a.csv"), code=2)
    assert "cannot write" in run.told.err


def test_lookup_tag_changes_files_and_explain(run: Words, rides: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", COLUMNS)
    run("insert", rides, path)
    assert run("lookup", rides, "--key", "007", "--key", "zz", "--columns", "id,n") == (
        '"id","n"\n"007",1\n'
    )
    tagged = run.objects("tag", rides, "--key", "zz", "--key", "b")
    assert [row["id"] for row in tagged] == ["zz", "b"]
    assert tagged[0]["_location"] is None
    [file] = run.objects("files", rides)
    assert tagged[1]["_location"]["file_id"] == file["file_id"]
    assert run("files", rides, "--uris") == f"{file['uri']}\n"
    assert file["path"] in run("files", rides, "--where", "n > 2")
    assert file["rows"] == 3
    run("delete", rides, "--key", "b")
    assert len(run.objects("lookup", rides, path, "--version", "2")) == 3
    [change] = run.objects("changes", rides, "--since", "2", "--columns", "id")
    assert change == {"id": "b", "_change_type": "delete"}
    assert len(run.objects("changes", rides, "--since", "0", "--until", "2")) == 3
    [told] = run.objects("explain", rides, path)
    assert (told["keys"], told["found"]) == (3, 2)
    assert "after statistics" in run("explain", rides, "--where", "n > 2")
    assert "_location.file_id" in run("tag", rides, "--key", "c").splitlines()[0]
    for words in (("lookup", rides), ("lookup", rides, path, "--key", "b")):
        run(*words, code=2)
        assert "which rows?" in run.told.err


def test_files_of_rows_stand_before_options_or_behind_them(
    run: Words, rides: str, tmp_path: Path
) -> None:
    one, two = (write(tmp_path / f"{key}.csv", f"id\n{key}\n") for key in "ab")
    run("insert", rides, one, "--note", "job=nightly", two)
    for words in (
        ["--json", one, two],
        [one, "--json", two],
        ["--json", "--columns", "id", one, two],
    ):
        assert run("lookup", rides, *words).splitlines()[-1].startswith('{"id": "b"')
    assert "1 of 1 keys would go" in run("delete", rides, "--dry-run", one)
    run("delete", rides, "--key", "a", one, code=2)
    assert "which rows?" in run.told.err


@pytest.mark.parametrize(
    "words", [["delete", "--dry-run", "a.csv", "--jsn"], ["describe", "--jsn"]]
)
def test_words_that_are_neither_rows_nor_options_are_told(
    rides: str, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([words[0], rides, *words[1:]])
    assert "unrecognized arguments: --jsn (see" in capfd.readouterr().err


def test_keys_of_several_columns_are_lines_of_csv(run: Words, table_uri: str) -> None:
    run("create", table_uri, "--schema", "a: int64, b: string, p: date", "--key", "a,b",
        "--partition-by", "p")  # fmt: skip
    table = metatable.open(table_uri, {"durable": "false"})
    table.insert(pa.table({"a": [1], "b": ["x,y"], "p": [date(2026, 1, 1)]}))
    [row] = run.objects("lookup", table_uri, "--key", '1,"x,y",2026-01-01')
    assert row == {"a": 1, "b": "x,y", "p": "2026-01-01"}
    run("lookup", table_uri, "--key", "1", code=2)
    assert "expected='a,b,p'" in run.told.err
    run("lookup", table_uri, "--key", "1,x\ny,2026-01-01", code=2)
    assert "not a key of this table" in run.told.err


def test_a_key_whose_partition_is_null_is_named_by_an_empty_cell(
    run: Words, table_uri: str
) -> None:
    run("create", table_uri, "--schema", "a: string, p: date", "--key", "a",
        "--partition-by", "p")  # fmt: skip
    table = metatable.open(table_uri, {"durable": "false"})
    rows = {"a": ["x", 'a "b"'], "p": pa.array([None, date(2026, 1, 1)], pa.date32())}
    table.insert(pa.table(rows))
    found = run.objects("lookup", table_uri, "--key", "x,", "--key", '"a ""b""",2026-01-01')
    assert sorted(map(tuple, (row.values() for row in found))) == [
        ('a "b"', "2026-01-01"),
        ("x", None),
    ]
    run("lookup", table_uri, "--key", ",", code=2)
    assert "key is null or empty" in run.told.err


def test_delete_tells_first_what_would_go(run: Words, rides: str, tmp_path: Path) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    words = ("delete", rides, "--key", "b", "--key", "b", "--key", "zz")
    [told] = run.objects(*words, "--dry-run")
    expected = {"operation": "delete", "dry_run": True, "version": 2, "keys": 2, "deleted": 1}
    assert told == expected
    assert "1 of 2 keys would go at version 2" in run(*words, "--dry-run")
    assert metatable.open(rides).version == 2
    assert run.objects("delete", rides, "--key", "b", "--key", "zz")[0]["deleted"] == 1


def test_savepoints_can_be_tried(run: Words, rides: str, tmp_path: Path) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    assert "dry run, nothing was done" in run("savepoint", rides, "--keep", "june", "--dry-run")
    assert run.objects("savepoint", rides) == []
    run("savepoint", rides, "--keep", "june")
    assert "dry run, nothing was done" in run("savepoint", rides, "--drop", "june", "--dry-run")
    assert [one["name"] for one in run.objects("savepoint", rides)] == ["june"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_standard_input_is_named_once(
    run: Words, rides: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It ended with code 5, an operation on a closed file."""
    for words in (("-", "-"), ("-", "/dev/stdin"), ("/dev/stdin", "-"), ("/dev/fd/0",) * 2):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"id\na\n")))
        run("upsert", rides, *words, "--from", form, code=2)
        assert "standard input is named twice: file=" in run.told.err
    run("upsert", rides, "/dev/fd/1", "/dev/fd/1", "--from", form, code=2)
    assert "a stream is named twice: file='/dev/fd/1'" in run.told.err
    assert metatable.open(rides).version == 1


def test_options_of_columns_may_be_repeated(run: Words, tmp_path: Path) -> None:
    """`create --key a --key b` made a table of which b alone was the key."""
    uri, rows = str(tmp_path / "lines"), write(tmp_path / "a.csv", "a,b,c,d\n1,x,5,2\n1,y,4,1\n")
    columns = ("--schema", "a: string, b: string, c: int, d: int")
    repeated = ("--key", "a", "--key", "b", "--partition-by", "c", "--partition-by", "d")
    cut = ("--cluster-by", "d", "--cluster-by", "c, a")
    told = run("create", uri, *columns, *repeated, *cut)
    assert told.startswith(f"created {uri}: key a,b, partitioned by c,d, index ")
    options = metatable.open(uri).options
    assert (options.key, options.partition_by) == (("a", "b"), ("c", "d"))
    assert options.cluster_by == ("d", "c", "a")
    run("bulk-insert", uri, rows, "--sort-by", "nope", "--sort-by", "c", code=2)
    assert "nope" in run.told.err
    run("bulk-insert", uri, rows, "--sort-by", "d", "--sort-by", "c")
    found = run.objects("scan", uri, "--columns", "b,c", "--columns", "a", "--where", "d = 1")
    assert [[*one.items()] for one in found] == [[("b", "y"), ("c", 4), ("a", "1")]]
    [done] = run.objects("cluster", uri, "--by", "b,a", "--dry-run")
    assert [*done["depth_before"]] == ["b", "a"]


def test_an_option_that_names_no_column_is_refused(run: Words, rides: str, tmp_path: Path) -> None:
    file, new = write(tmp_path / "a.csv", COLUMNS), str(tmp_path / "new")
    schema = ("--schema", "id: string", "--key", "id")
    for words in (
        ("create", new, *schema, "--partition-by", ""),
        ("create", new, *schema, "--cluster-by", " , "),
        ("bulk-insert", rides, file, "--sort-by", ""),
        ("scan", rides, "--columns", ","),
        ("scan", rides, "--columns", "id", "--columns", ""),
    ):
        run(*words, code=2)
        assert "no column is named" in run.told.err
    assert not Path(new).exists()
    assert metatable.open(rides).version == 1


def test_options_are_set_by_name(run: Words, rides: str) -> None:
    told = run("set-options", rides, "file_rows=9", 'cluster_by=["fare"]', "--dry-run")
    assert "dry run, nothing was done: file_rows: 500000 -> 9, cluster_by: none -> fare" in told
    assert metatable.open(rides).options.file_rows == 500_000
    [done] = run.objects("set-options", rides, "file_rows=9", "parquet_codec=snappy")
    assert (done["service"], done["version"]) == ("set_options", 2)
    set_now = metatable.open(rides).options
    assert (set_now.file_rows, set_now.parquet_codec) == (9, "snappy")
    run("set-options", rides, "key_scope=global", code=2)


def test_rows_go_on_a_chunk_at_a_time(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "id,n\n" + "".join(f"k{n:02},{n}\n" for n in range(40))
    path = write(tmp_path / "a.csv", text)
    run("insert", rides, path)
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 50)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 10)
    monkeypatch.setattr(rows_out, "GROUP_ROWS", 16)
    sizes = []
    read = metatable.Table.read_keys

    def counted(self: metatable.Table, keys: pa.Table, *args: Any, **how: Any) -> pa.Table:
        sizes.append(keys.num_rows)
        return read(self, keys, *args, **how)

    monkeypatch.setattr(metatable.Table, "read_keys", counted)
    output = tmp_path / "out.parquet"
    run("lookup", rides, path, "--output", str(output))
    assert sum(sizes) == 40
    assert max(sizes) < 20
    file = pq.ParquetFile(output)
    assert file.metadata.num_rows == 40
    assert 2 <= file.num_row_groups <= 3


@pytest.mark.parametrize("text", ["007", "00", "-01", "00.5", "9223372036854775808", "9" * 5000])
def test_numbers_that_are_texts_are_guessed_as_texts(run: Words, tmp_path: Path, text: str) -> None:
    """Arrow takes these for 7, 0, -1, 0.5 and floats, which nobody turns back."""
    like = write(tmp_path / "a.csv", f"id,code\nx,1\ny,{text}\n")
    behind = write(tmp_path / "b.csv", "id,code\nz,8\n")
    table = str(tmp_path / "t")
    run("create", table, "--like", like, "--key", "id")
    run("insert", table, like, behind)
    assert {row["id"]: row["code"] for row in run.objects("scan", table)} == {
        "x": "1",
        "y": text,
        "z": "8",
    }


def test_numbers_that_are_numbers_are_guessed_as_numbers(run: Words, tmp_path: Path) -> None:
    cells = "0,-0,0.5,1e3,9223372036854775807,-9223372036854775808,000\n"
    like = write(tmp_path / "a.csv", f"a,b,c,d,e,f,g\n{cells}")
    made = inferred_schema(like)
    assert made.types == [*[pa.int64()] * 2, *[pa.float64()] * 2, *[pa.int64()] * 2, pa.string()]


def test_create_by_schema_file_options_and_likeness(run: Words, tmp_path: Path) -> None:
    columns = write(
        tmp_path / "columns", "# what it holds\nid: string not null  # the key\nn: int\n"
    )
    given = ["file_rows=77", "hive_style=False", 'buckets={"files": 2}', "key_scope=global"]
    options = [word for one in given for word in ("--option", one)]
    words = ("create", str(tmp_path / "a"), "--schema", columns, "--key", "id", *options)
    [told] = run.objects(*words)
    assert told["columns"] == {"id": "string", "n": "int32"}
    made = metatable.open(tmp_path / "a").options
    assert (made.file_rows, made.hive_style, made.key_scope) == (77, False, "global")
    assert made.buckets["files"] == 2
    like = write(tmp_path / "a.csv", "id,day\nx,2026-01-31\n")
    out = run("create", str(tmp_path / "b"), "--like", like, "--key", "id", "--partition-by", "day")
    assert out.startswith(f"created {tmp_path / 'b'}: key id, partitioned by day, index ")
    assert metatable.open(tmp_path / "b").schema.field("day").type == pa.date32()
    assert inferred_schema(write(tmp_path / "a.jsonl", '{"a": 1}\n')) == pa.schema(
        {"a": pa.int64()}
    )
    run("create", str(tmp_path / "c"), "--schema", "no columns", "--key", "id", code=2)
    assert "neither columns nor a file of them" in run.told.err
    run(
        "create",
        str(tmp_path / "c"),
        "--schema",
        "id: string",
        "--key",
        "id",
        "--option",
        "x",
        code=2,
    )
    assert "option without a value" in run.told.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: int64", {"a": pa.int64()}),
        ("a: DOUBLE, b:text", {"a": pa.float64(), "b": pa.string()}),
        ("a: decimal(10, 2), b: decimal(5)", {"a": pa.decimal128(10, 2), "b": pa.decimal128(5, 0)}),
        (
            "a: timestamp[ms], b: timestamp[us, tz=UTC]",
            {"a": pa.timestamp("ms"), "b": pa.timestamp("us", "UTC")},
        ),
        (
            "a: list<struct<x: int, y: map<string, list<date>>>>",
            {"a": pa.list_(pa.struct({"x": pa.int32(), "y": MAP}))},
        ),
        (
            "a: list<element: string not null>, b: timestamp[us, tz=America/New_York]",
            {
                "a": pa.list_(pa.field("element", pa.string(), nullable=False)),
                "b": pa.timestamp("us", "America/New_York"),
            },
        ),
        (
            "a: fixed_size_binary[16], b: date32[day], c: time64[us]",
            {"a": pa.binary(16), "b": pa.date32(), "c": pa.time64("us")},
        ),
    ],
)
def test_columns_are_told_in_text(text: str, expected: dict[str, pa.DataType]) -> None:
    assert parse_columns(text) == pa.schema(expected)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:", "a: wat", "a: int b: int", "a: decimal", "a: decimal(99)", "a: list<int",
     "a: timestamp[h]", "a: int not", "a: int,, b: int", "1a: int", "a: int; b: int",
     "a: " + "list<" * 100 + "int" + ">" * 100],
)  # fmt: skip
def test_what_are_no_columns_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_columns(text)


def test_columns_that_text_cannot_hold_ask_for_parquet(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    schema = "id: string, tags: list<string>, m: map<string, int64>, s: struct<x: int64>"
    run("create", table_uri, "--schema", schema, "--key", "id")
    rows = {"id": ["a"], "tags": [["x"]], "m": [[("k", 1)]], "s": [{"x": 5}]}
    known = metatable.open(table_uri).schema
    pq.write_table(pa.table(rows, schema=known), tmp_path / "a.parquet")
    run("insert", table_uri, str(tmp_path / "a.parquet"))
    assert run("scan", table_uri) == ('"id","tags","m","s.x"\n"a","[""x""]","{""k"": 1}",5\n')
    assert run.objects("scan", table_uri) == [
        {"id": "a", "tags": ["x"], "m": {"k": 1}, "s": {"x": 5}}
    ]
    run("upsert", table_uri, write(tmp_path / "b.csv", "id,tags\na,b\n"), code=2)
    assert "Parquet" in run.told.err
    lines = write(tmp_path / "b.jsonl", '{"id": "a"}\n')
    named = write(tmp_path / "c.jsonl", '{"id": "a", "m": {"k": 2}}\n')
    for verb in ("upsert", "merge", "tag"):
        run(verb, table_uri, named, code=2)
        assert "JSON lines cannot hold this column" in run.told.err
    tags = write(tmp_path / "d.jsonl", '{"id": "a", "tags": ["y"]}\n')
    run("merge", table_uri, tags)
    assert run.objects("lookup", table_uri, lines) == [
        {"id": "a", "tags": ["y"], "m": {"k": 1}, "s": {"x": 5}}
    ]
    run("delete", table_uri, lines)
    assert run("scan", table_uri, "--json") == ""


def test_json_lines_leave_a_map_out_or_have_it_null(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    schema = "id: string, m: map<string, int64>, s: struct<d: date>, n: double"
    run("create", table_uri, "--schema", schema, "--key", "id")
    left_out = '{"id": "a", "n": 1}\n{"id": "b", "m": null, "n": "NaN"}\n'
    run("insert", table_uri, write(tmp_path / "a.jsonl", left_out))
    named = '{"id": "c", "s": null, "m": null}\n\n{"id": "d"}\n'
    run("upsert", table_uri, write(tmp_path / "b.jsonl", named))
    assert [(row["id"], row["m"], row["s"]) for row in held(table_uri)] == [
        *((key, None, None) for key in "abcd")
    ]
    for verb, value in (("upsert", '"m": {}'), ("insert", '"s": {"d": null}'), ("tag", '"m": []')):
        path = write(tmp_path / "c.jsonl", f'{named}{{"id": "e", {value}}}\n')
        run(verb, table_uri, path, code=2)
        told = f"JSON lines cannot hold this column: file='{path}' line=4 column='{value[1]}'"
        assert told in run.told.err
    maps = {"id": ["a"], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}
    metatable.open(table_uri).merge(pa.table(maps))
    run("merge", table_uri, write(tmp_path / "d.jsonl", '{"id": "a", "m": null}\n'))
    assert held(table_uri)[0] == {"id": "a", "m": None, "s": None, "n": 1.0}


def test_tag_gives_the_fields_that_it_was_given(run: Words, rides: str, tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", '{"id": "a", "n": 1}\n{"id": "b"}\n')
    run("insert", rides, write(tmp_path / "a.csv", "id,city,n\na,Ulm,7\n"))
    first, second = run.objects("tag", rides, lines)
    assert (list(first), first["n"], second["n"]) == (["id", "n", "_location"], 1, None)
    more = write(tmp_path / "b.jsonl", '{"id": "a"}\n{"id": "b", "city": "Ulm"}\n')
    run("tag", rides, more, code=2)
    assert "line=2" in run.told.err
    assert "found=\"field 'city'\"" in run.told.err
    assert "expected='the fields of the first line' found" in run.told.err
    assert len(run.objects("lookup", rides, more)) == 1
    less = write(tmp_path / "c.jsonl", '{"id": "c"}\n')
    found = run.objects("tag", rides, lines, less)
    assert [(list(row), row["n"]) for row in found[1:]] == [(["id", "n", "_location"], None)] * 2
    run("tag", rides, less, lines, code=2)
    assert "files of different columns" in run.told.err


def test_hudis_own_columns_are_looked_up_from_every_form(
    run: Words, rides: str, tmp_path: Path
) -> None:
    run("insert", rides, write(tmp_path / "a.csv", "id,city,n\n007,Ulm,7\n"))
    for form in ("csv", "jsonl", "parquet"):
        both, keys = str(tmp_path / f"both.{form}"), str(tmp_path / f"keys.{form}")
        named = "_hoodie_record_key,_hoodie_partition_path"
        run("scan", rides, "--columns", named, "--output", both)
        assert run.objects("lookup", rides, both)[0]["n"] == 7
        run("delete", rides, both, code=2)
        told = run.told.err
        run("delete", rides, both, "--dry-run", code=2)
        assert told == run.told.err
        assert "the key column is missing: column='id'" in told
        run("scan", rides, "--columns", "_hoodie_record_key,id", "--output", keys)
        assert run.objects("lookup", rides, keys)[0]["n"] == 7
        assert "1 of 1 keys would go" in run("delete", rides, keys, "--dry-run")


def test_keys_and_paths_that_look_like_days_are_looked_up_from_every_form(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.date32()), ("day", pa.date32()), ("n", pa.int64())])
    table = metatable.create(
        table_uri, schema, key="id", partition_by="day", options={"hive_style": False}
    )
    day = date(2024, 3, 1)
    table.insert(pa.table([[day], [day], [7]], schema=schema))
    for form in ("csv", "jsonl", "parquet"):
        both = str(tmp_path / f"both.{form}")
        named = "_hoodie_record_key,_hoodie_partition_path"
        run("scan", table_uri, "--columns", named, "--output", both)
        [found] = run.objects("lookup", table_uri, both)
        assert (found["n"], found["day"]) == (7, "2024-03-01")


def test_columns_that_the_table_lacks_come_back_as_they_are(
    run: Words, rides: str, tmp_path: Path
) -> None:
    line = {"id": "x", "note": "2024-03-01", "in": {"at": ["2024-03-01 10:00:00"]}, "n": 1}
    [found] = run.objects("tag", rides, write(tmp_path / "a.jsonl", json.dumps(line)))
    assert {name: found[name] for name in line} == line


OTHER_COLUMNS = {
    "a.csv": b"note,n,id,at,raw,tags,m,note\n\xff,x,b,2026-01-31,!,[,a,\xff\n,,c,,,,,\n",
    "a.jsonl": b'{"m": {"k": 1}, "n": "x", "id": "b", "at": "soon", "tags": [1, "x"], "note": 1}\n'
    b'{"id": "c", "m": null, "note": {}, "more": "x", "raw": "!"}\n',
    "a.parquet": pa.table({"id": ["b", "c"], "n": ["x", None], "tags": [1, 2], "note": [b"", b""]}),
}


@pytest.mark.parametrize("name", OTHER_COLUMNS)
def test_columns_that_a_verb_ignores_may_hold_anything(
    run: Words, table_uri: str, tmp_path: Path, name: str
) -> None:
    columns = f"{SCHEMA}, tags: list<string>, m: map<string, int64>"
    run("create", table_uri, "--schema", columns, "--key", "id", "--index", "record")
    run("insert", table_uri, write(tmp_path / "rows.csv", COLUMNS))
    path, body = str(tmp_path / name), OTHER_COLUMNS[name]
    if isinstance(body, pa.Table):
        pq.write_table(body, path)
    else:
        write(tmp_path / name, body)
    run("upsert", table_uri, path, code=2)
    assert [row["id"] for row in run.objects("lookup", table_uri, path)] == ["b", "c"]
    assert run.objects("explain", table_uri, path)[0]["found"] == 2
    assert "2 of 2 keys would go" in run("delete", table_uri, path, "--dry-run")
    few = write(tmp_path / "few.csv", "id\n007\n")
    assert run.objects("delete", table_uri, few, path)[0]["deleted"] == 3


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_columns_that_a_verb_ignores_may_change_far_behind(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 100)
    monkeypatch.setattr(json_rows, "BLOCK_BYTES", 100)
    run("insert", rides, write(tmp_path / "rows.csv", COLUMNS))
    rows = [("x", "", "1")] * 99 + [("b", "moved away", "1.5")]
    if form == "csv":
        text = "".join(",".join(row) + "\n" for row in [("id", "note", "fee"), *rows])
    else:
        text = "".join(
            json.dumps({"id": key, "note": note or None, "fee": json.loads(fee)}) + "\n"
            for key, note, fee in rows
        )
    path = write(tmp_path / f"gone.{form}", text)
    assert "1 of 2 keys would go" in run("delete", rides, path, "--dry-run")
    assert run.objects("delete", rides, path)[0]["deleted"] == 1


def test_a_quote_that_is_not_closed_is_told_in_a_column_that_is_ignored(
    run: Words, rides: str, tmp_path: Path
) -> None:
    for text, line in (('id,note\na,x\n,"y\nb,z\n', 3), ('id,note\na,"x"y\n', 2)):
        path = write(tmp_path / "a.csv", text)
        run("delete", rides, path, code=2)
        assert f"rows that cannot be read: file='{path}' line={line} " in run.told.err


def test_names_of_columns_are_known_however_slowly_they_come() -> None:
    class Drops(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 3))

    schema = pa.schema({"id": pa.string(), "n": pa.int64()})
    stream = pa.PythonFile(Drops(b"note,id,n\n\xff,007,x\n,b,\n"), "r")
    made, rows = csv_rows.read(stream, schema, "a.csv", chosen=lambda _: ["id"])
    assert pa.Table.from_batches(rows, made).to_pydict() == {"id": ["007", "b"]}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_key_that_is_there_twice_is_refused(
    run: Words, rides: str, tmp_path: Path, form: str
) -> None:
    twice = pa.table([["a"], ["b"], ["x"], ["x"]], names=["id", "id", "n", "n"])
    path = tmp_path / f"a.{form}"
    if form == "csv":
        pyarrow.csv.write_csv(twice, path)
    else:
        pq.write_table(twice, path)
    for verb in ("delete", "lookup", "explain"):
        run(verb, rides, str(path), code=2)
        assert f"a column is there twice: file='{path}'" in run.told.err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_of_keys_that_are_not_there_every_column_is_told(
    run: Words, rides: str, tmp_path: Path, form: str
) -> None:
    path = str(tmp_path / f"a.{form}")
    if form == "parquet":
        pq.write_table(pa.table({"Id": ["a"], "note": [1]}), path)
    else:
        write(Path(path), {"csv": "Id,note\na,1\n", "jsonl": '{"Id": "a", "note": 1}\n'}[form])
    for verb in ("delete", "lookup", "explain"):
        run(verb, rides, path, code=2)
        told = "the key column is missing: column='id' found=['Id', 'note']"
        assert told in run.told.err


@pytest.mark.parametrize("form", ["uuid", "dictionaries"])
def test_a_delete_is_counted_of_whatever_type_the_keys_are_given_in(
    run: Words, table_uri: str, tmp_path: Path, form: str
) -> None:
    if form == "uuid":
        ids = pa.array([b"\1" * 16, b"\2" * 16, b"\1" * 16], pa.binary(16))
        given = pa.table({"id": pa.ExtensionArray.from_storage(pa.uuid(), ids)})
    else:
        ids = pa.array(["a", "b", "a"])
        parts = [ids[:1].dictionary_encode(), ids[1:].dictionary_encode()]
        given = pa.table({"id": pa.chunked_array(parts)})
    table = metatable.create(table_uri, pa.schema([("id", ids.type)]), key="id")
    table.insert(pa.table({"id": ids.unique()}))
    path = str(tmp_path / "gone.parquet")
    pq.write_table(given, path, row_group_size=1)
    assert "2 of 2 keys would go" in run("delete", table_uri, path, "--dry-run")
    [done] = run.objects("delete", table_uri, path)
    assert done["deleted"] == 2


def test_numbers_that_json_lacks_are_texts_in_pairs_of_a_map_too(
    run: Words, table_uri: str
) -> None:
    kind = pa.map_(pa.string(), pa.float64())
    twice = pa.array([[("k", math.nan), ("k", math.inf)]], kind)
    schema = pa.schema([("id", pa.string()), ("m", kind)])
    metatable.create(table_uri, schema, key="id").insert(pa.table([["a"], twice], schema=schema))
    [found] = run.objects("scan", table_uri)
    assert found["m"] == [["k", "NaN"], ["k", "Infinity"]]


def test_a_killed_scan_is_not_in_the_way_of_the_next(
    run: Words, rides: str, tmp_path: Path
) -> None:
    run("insert", rides, write(tmp_path / "a.csv", "id,n\na,1\n"))
    output = tmp_path / "out.csv"
    write(tmp_path / f"out.csv.{os.getpid()}.partial", "half")  # as one of this number leaves it
    run("scan", rides, "--columns", "n", "--output", str(output))
    assert output.read_text() == '"n"\n1\n'
    assert run("scan", rides, "--columns", "n", "--output", "-", "--format", "csv") == '"n"\n1\n'


def test_object_stores_are_told_by_the_environment(
    run: Words, monkeypatch: pytest.MonkeyPatch, table_uri: str
) -> None:
    asked: list[dict[str, str]] = []

    def opened(uri: str, options: dict[str, str]) -> Any:
        asked.append(options)
        raise metatable.NotFoundError("no table", path=uri)

    monkeypatch.setattr(metatable, "open", opened, raising=False)
    monkeypatch.setenv("METATABLE_STORAGE_ENDPOINT", "http://here")
    monkeypatch.setenv("METATABLE_STORAGE_REGION", "one")
    words: Sequence[str] = ("describe", "--storage-option", "region=two")
    main([*words, "s3://bucket/t"])
    main([*words, table_uri])
    main([*words, f"file://{table_uri}"])
    near = {"region": "two"}
    assert asked == [{"endpoint": "http://here", "region": "two"}, near, near]


def test_a_failed_scan_leaves_no_file(run: Words, rides: str, tmp_path: Path) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    [file] = metatable.open(rides).files().uris
    Path(file).write_bytes(b"PAR1 and no more")
    run("scan", rides, "--output", str(tmp_path / "out.csv"), code=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "table"]


def test_partitions_are_overwritten_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> dict[str, Any]:
        assert main([*words, *FAST, "--json"]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    uri, rows = str(tmp_path / "t"), tmp_path / "rows.csv"
    run("create", uri, "--schema", "id: string, city: string", "--key", "id,city",
        "--partition-by", "city")  # fmt: skip
    rows.write_text("id,city\na,Ulm\nb,Ulm\nc,Bonn\n")
    assert run("bulk-insert", uri, str(rows), "--sort-by", "city")["inserted"] == 3
    rows.write_text("id,city\nd,Ulm\n")
    for dry, by in (("partition", (1, 1, 2)), ("table", (2, 2, 3))):
        told = run("insert-overwrite", uri, str(rows), "--by", dry, "--dry-run")
        assert (told["partitions"], told["files"], told["rows"]) == by
    assert metatable.open(uri).scan().count() == 3
    assert run("insert-overwrite", uri, str(rows))["deleted"] == 2
    told = run("delete-partition", uri, "city=Bonn", "city=Rome", "--dry-run")
    assert (told["partitions"], told["rows"]) == (1, 1)
    assert run("delete-partition", uri, "city=Bonn")["deleted"] == 1
    assert metatable.open(uri).scan().to_arrow().to_pylist() == [{"id": "d", "city": "Ulm"}]
    assert (
        run("adopt", uri, "--index", "record", "--option", "key_scope=partition")["index"]
        == "record"
    )
    assert metatable.open(uri).verify().findings == ()


def test_names_of_other_case_and_of_folders_tell_no_wrong_delimiter(
    run: Words, rides: str, tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").mkdir()
    run("upsert", rides, write(tmp_path / "a.tsv" / "b.csv", "id,n\nx,1\n"))
    run("upsert", rides, write(tmp_path / "C.TSV", "id\tn\ny\t2\n"))
    run("upsert", rides, write(tmp_path / "D.TSV.GZ", gzip.compress(b"id\tn\nz\t3\n")))
    assert [(row["id"], row["n"]) for row in held(rides)] == [("x", 1), ("y", 2), ("z", 3)]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_an_output_that_is_no_file_is_written_to_and_a_link_is_followed(
    run: Words, rides: str, tmp_path: Path, form: str
) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    pipe, link, target = (tmp_path / name for name in ("pipe", "link", "target"))
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        for output in (pipe, link):
            run("scan", rides, "--format", form, "--output", str(output), "-q")
        assert os.read(reader, 1 << 16) == target.read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.csv", "link", "pipe", "table", "target")
    ]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_ends_of_lines_within_quotes_stay_wherever_a_block_ends(
    run: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    cells = {f"{length:02}": "x" * length + ends + "y" for length in range(20)}
    lines = [f'{key},"{cell}"' for key, cell in cells.items()]
    made, table = tmp_path / "cells.csv", str(tmp_path / "told")
    made.write_bytes(ends.join(["id,s", *lines, ""]).encode())
    run("create", table, "--schema", "id: string, s: string", "--key", "id")
    for block in range(40, 60):
        monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block)
        run("upsert", table, str(made))
        found = metatable.open(table).scan().to_arrow().to_pylist()
        assert {row["id"]: row["s"] for row in found} == cells


def test_an_output_that_is_open_already_goes_on_behind_what_is_there(
    run: Words, rides: str, tmp_path: Path
) -> None:
    run("insert", rides, write(tmp_path / "a.csv", "id,n\na,1\n"))
    log, link = tmp_path / "log.txt", tmp_path / "link"
    scan = ("scan", rides, "--columns", "id,n", "--format", "csv", "--output")
    rows, said = '"id","n"\n"a",1\n', ""
    with log.open("a") as opened:
        link.symlink_to(f"/dev/fd/{opened.fileno()}")
        for output in (f"/dev/fd/{opened.fileno()}", f"/proc/self/fd/{opened.fileno()}", link):
            opened.write(said := "before\n")
            opened.flush()
            run(*scan, str(output))
        opened.write("behind\n")
    assert log.read_text() == (said + rows) * 3 + "behind\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.csv", "link", "log.txt", "table")
    ]
    told = run(*scan, "/dev/stdout")
    assert (told, run.told.err) == (rows, "")
    assert run(*scan, "/dev/stderr", "-q") == ""
    assert run.told.err == rows
    for none in (999, 10**20):
        run(*scan, f"/dev/fd/{none}", code=2)


def test_a_dry_run_of_an_overwrite_knows_partitions_by_the_tables_types(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    run("create", table_uri, "--schema", "id: string, price: decimal(9, 2)", "--key", "id",
        "--partition-by", "price")  # fmt: skip
    run("insert", table_uri, write(tmp_path / "a.csv", "id,price\na,1.50\nb,1.50\n"))
    given = pa.table({"id": ["c"], "price": pa.array([Decimal("1.5")], pa.decimal128(4, 1))})
    pq.write_table(given, tmp_path / "b.parquet")
    words = ("insert-overwrite", table_uri, str(tmp_path / "b.parquet"))
    [told] = run.objects(*words, "--dry-run")
    assert (told["partitions"], told["rows"]) == (1, 2)
    assert run.objects(*words)[0]["deleted"] == 2


def test_a_dry_run_says_that_it_does_not_know_rows_below_logs(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    run("create", table_uri, "--schema", "id: string, city: string", "--key", "id",
        "--partition-by", "city", "--index", "record", "--table-type", "mor")  # fmt: skip
    run("insert", table_uri, write(tmp_path / "a.csv", "id,city\na,Ulm\nb,Ulm\nc,Bonn\n"))
    run("upsert", table_uri, write(tmp_path / "b.csv", "id,city\na,Ulm\n"))
    words = ("delete-partition", table_uri, "--dry-run")
    assert run.objects(*words, "city=Ulm")[0]["rows"] is None
    assert "1 files and an unknown number of rows would go" in run(*words, "city=Ulm")
    assert "1 files and 1 rows would go" in run(*words, "city=Bonn")


def test_a_condition_names_columns_as_the_version_that_is_asked_for(
    run: Words, rides: str, tmp_path: Path
) -> None:
    run("insert", rides, write(tmp_path / "a.csv", COLUMNS))
    metatable.open(rides).alter(metatable.RenameColumn("n", "m"))
    of_old = ("--version", "2", "--where", "n = 1")
    assert [row["n"] for row in run.objects("scan", rides, *of_old)] == [1]
    assert len(run.objects("files", rides, *of_old)) == 1
    assert run.objects("explain", rides, *of_old)[0]["files"]["after statistics"] == 1
    assert [row["m"] for row in run.objects("scan", rides, "--where", "m = 1")] == [1]
    run("scan", rides, "--version", "2", "--where", "m = 1", code=2)
    assert "no such column: column='m'" in run.told.err


@pytest.mark.parametrize("form", ["key", "csv", "jsonl"])
def test_keys_are_read_in_the_types_of_the_version_that_is_asked_for(
    run: Words, table_uri: str, tmp_path: Path, form: str
) -> None:
    run("create", table_uri, "--schema", "id: int32, day: int32, n: int64", "--key", "id",
        "--partition-by", "day")  # fmt: skip
    run("insert", table_uri, write(tmp_path / "a.csv", "id,day,n\n5,1,7\n"))
    wider = (metatable.WidenColumn(name, pa.int64()) for name in ("id", "day"))
    metatable.open(table_uri).alter(*wider)
    keys = {
        "key": ["--key", "5,1"],
        "csv": [write(tmp_path / "keys.csv", "id,day\n5,1\n")],
        "jsonl": [write(tmp_path / "keys.jsonl", '{"id": 5, "day": 1}\n')],
    }[form]
    for version in ([], ["--version", "2"]):
        assert run.objects("lookup", table_uri, *keys, *version)[0]["n"] == 7
        assert run.objects("tag", table_uri, *keys, *version)[0]["_location"] is not None
        assert run.objects("explain", table_uri, *keys, *version)[0]["found"] == 1


@pytest.mark.parametrize("verb", ["lookup", "tag", "scan"])
def test_there_is_no_version_below_the_first(
    run: Words, rides: str, verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = () if verb == "scan" else ("--key", "b")
    with pytest.raises(SystemExit):
        run(verb, rides, *keys, "--version", "0")
    assert "must be a whole number, 1 or more" in capfd.readouterr().err


def test_files_with_logs_are_listed_and_base_files_read_alone(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    run("create", table_uri, "--schema", "id: string, n: int64", "--key", "id",
        "--index", "record", "--table-type", "mor")  # fmt: skip
    run("insert", table_uri, write(tmp_path / "a.csv", "id,n\na,1\nb,2\n"))
    [file] = run.objects("files", table_uri)
    assert (file["has_logs"], file["rows"]) == (False, 2)
    run("upsert", table_uri, write(tmp_path / "b.csv", "id,n\nb,3\n"))
    [one] = run.objects("files", table_uri)
    assert one == file | {"has_logs": True, "rows": None, "uri": None}
    assert run.objects("files", table_uri, "--read-optimized") == [file]
    assert run("files", table_uri, "--read-optimized", "--uris") == f"{file['uri']}\n"
    run("files", table_uri, "--uris", code=2)
    assert [row["n"] for row in run.objects("scan", table_uri)] == [1, 3]
    assert [row["n"] for row in run.objects("scan", table_uri, "--read-optimized")] == [1, 2]


def test_lines_may_end_as_on_old_macs(run: Words, rides: str, tmp_path: Path) -> None:
    run("upsert", rides, write(tmp_path / "a.csv", "id,n\rx,5\ry,6\r"))
    assert [(row["id"], row["n"]) for row in held(rides)] == [("x", 5), ("y", 6)]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_closed_standard_input_is_told(
    run: Words, rides: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    run("upsert", rides, "-", "--from", form, code=2)
    assert run.told.err == "metatable: there is no standard input, it is closed: file='-'\n"


def test_times_of_no_calendar_are_told_as_texts(run: Words, table_uri: str) -> None:
    days = pa.array([0, 2932897, None], pa.int32()).view(pa.date32())
    moments = pa.array([0, 253402300800000000, -(1 << 63)], pa.int64()).view(pa.timestamp("us"))
    inner = pa.StructArray.from_arrays([days], ["d"])
    rows = pa.table({"id": [1, 2, 3], "d": days, "at": moments, "s": inner})
    metatable.create(table_uri, rows.schema, key="id").insert(rows)
    assert run.objects("scan", table_uri) == [
        {"id": 1, "d": "1970-01-01", "at": "1970-01-01T00:00:00", "s": {"d": "1970-01-01"}},
        {"id": 2, "d": "10000-01-01", "at": "10000-01-01 00:00:00.000000"}
        | {"s": {"d": "10000-01-01"}},
        {"id": 3, "d": None, "at": "<value out of range: -9223372036854775808>", "s": {"d": None}},
    ]
    lines = run("scan", table_uri, "--format", "table", "--columns", "id,d,at").splitlines()
    assert lines[1:3] == [
        " 1  1970-01-01   1970-01-01 00:00:00",
        " 2  10000-01-01  10000-01-01 00:00:00.000000",
    ]


def latin(*values: bytes) -> pa.Array:
    """Text as a program writes it that knows Latin-1 alone."""
    raw = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])


def test_text_that_is_not_utf8_is_told_wherever_it_stands() -> None:
    text = latin(b"ok", b"M\xfcnchen")
    lists = pa.ListArray.from_arrays([0, 0, 2], text)
    maps = pa.MapArray.from_arrays([0, 1, 2], text, pa.array([b"\xfc", b"b"]))
    told = ["ok", "M\ufffdnchen"]
    columns: list[tuple[pa.Array, list[Any]]] = [
        (text, told),
        (text.dictionary_encode(), told),
        (lists, [[], told]),
        (pa.StructArray.from_arrays([text], ["x"]), [{"x": one} for one in told]),
        (maps, [{told[0]: b"\xfc"}, {told[1]: b"b"}]),
    ]
    for column, expected in columns:
        assert values_of(column) == expected
        assert values_of(pa.chunked_array([column[:1], column[1:]])) == expected


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("csv", b'"city"\n"M\xfcnchen"\n'),
        ("jsonl", '{"city": "M\ufffdnchen"}\n'.encode()),
        ("table", "city\nM\ufffdnchen\n".encode()),
    ],
)
def test_text_that_is_not_utf8_ends_no_output(tmp_path: Path, form: str, told: bytes) -> None:
    """CSV has it as it is stored."""
    rows = pa.RecordBatch.from_arrays([latin(b"M\xfcnchen")], ["city"])
    output = tmp_path / "out"
    args = argparse.Namespace(output=str(output), format=form, limit=None, json=False, quiet=True)
    assert rows_out.print_rows(rows.schema, [rows], args) == 1
    assert output.read_bytes() == told


def test_times_that_python_lacks_are_told_as_texts() -> None:
    def of(kind: pa.DataType, *values: int) -> list[Any]:
        return values_of(pa.array([*values, None], pa.int64()).view(kind))

    day = 86_400_000_000
    assert of(pa.time64("us"), 1, day) == [time(0, 0, 0, 1), f"<value out of range: {day}>", None]
    assert of(pa.duration("s"), 1 << 62) == [str(1 << 62), None]
    assert of(pa.timestamp("us", "No/Where"), 5) == [5, None]


def test_a_map_that_has_a_key_twice_is_told_as_pairs(run: Words, table_uri: str) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([[("k", 1), ("k", 2)], [("k", 1)]], kind)
    rows = pa.table({"id": [1, 2], "m": maps})
    metatable.create(table_uri, rows.schema, key="id").insert(rows)
    found = [row["m"] for row in run.objects("scan", table_uri)]
    assert found == [[["k", 1], ["k", 2]], {"k": 1}]
    lines = run("scan", table_uri, "--columns", "m").splitlines()
    assert lines[1:] == ['"[[""k"", 1], [""k"", 2]]"', '"{""k"": 1}"']


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_numbers_that_json_has_no_word_for_are_written_and_read(
    run: Words, table_uri: str, tmp_path: Path, form: str
) -> None:
    nan, inf = math.nan, math.inf
    rows = pa.table(
        {
            "id": [1, 2, 3, 4, 5],
            "x": [nan, inf, -inf, 0.1, None],
            "f": pa.array([-inf, None, nan, 0.1, inf], pa.float32()),
            "s": ["NaN", '{"x": "NaN"}', "-Infinity", None, "1"],
        }
    )
    table = metatable.create(table_uri, rows.schema, key="id")
    table.insert(rows)
    output = str(tmp_path / f"out.{form}")
    run("scan", table_uri, "--output", output)
    table.delete(rows)
    run("upsert", table_uri, output)
    assert table.scan().to_arrow().to_string() == rows.to_string()


def test_a_number_goes_to_its_own_row_or_nowhere(run: Words, rides: str, tmp_path: Path) -> None:
    """Arrow takes several objects in a line."""
    lines = '{"id": "x"}\n{"id": "a", "fare": 1}{"id": "b"}\n{"id": "c", "fare": "NaN"}\n'
    run("upsert", rides, write(tmp_path / "a.jsonl", lines), code=2)
    assert "line=2 found='Extra data" in run.told.err


def test_a_text_in_place_of_a_number_is_refused(run: Words, rides: str, tmp_path: Path) -> None:
    lines = '{"id": "a", "fare": "NaN"}\n\n{"id": "b", "fare": "Infinity"}\n'
    run("upsert", rides, write(tmp_path / "a.jsonl", lines))
    assert repr([row["fare"] for row in held(rides)]) == "[nan, inf]"
    for word, line in (('{"id": "a", "fare": "none"}', 4), ('{"id": "a", "n": "NaN"}', 4)):
        run("upsert", rides, write(tmp_path / "b.jsonl", lines + word + "\n"), code=2)
        assert f"line={line} found=" in run.told.err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_come_through_a_named_pipe(run: Words, rides: str, tmp_path: Path, form: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    body = {"csv": b"id,n\nx,5\n", "jsonl": b'{"id": "x", "n": 5}\n'}.get(form)
    if body is None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": ["x"], "n": [5]}), sink)
        body = sink.getvalue()
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_bytes, body)
        run("upsert", rides, str(pipe), "--from", form)
        assert written.result() == len(body)
    assert [(row["id"], row["n"]) for row in held(rides)] == [("x", 5)]


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.tsv", b'"id"\t"city"\n"007"\t"Ulm"\n'),
        ("a.csv.gz", b"\x1f\x8b"),
        ("a.TSV.bz2", b"BZh"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd"),
    ],
)
def test_rows_go_out_into_what_they_come_in_from(
    run: Words, rides: str, tmp_path: Path, name: str, begins: bytes
) -> None:
    run("insert", rides, write(tmp_path / "rows.csv", COLUMNS))
    before, output = held(rides), tmp_path / name
    run("scan", rides, "--output", str(output), "--columns", "id,city", "--where", "id <= 'b'")
    assert output.read_bytes().startswith(begins)
    run("scan", rides, "--output", str(output))
    run("delete", rides, str(output))
    assert held(rides) == []
    run("upsert", rides, str(output))
    assert repr(held(rides)) == repr(before)
    run("scan", rides, "--output", f"{output}.parquet.gz", code=2)
    assert "rows in which form?" in run.told.err


def comes_back(run: Words, table: metatable.Table, rows: pa.Table, folder: Path) -> None:
    """Rows of a table that are written as JSON lines, deleted and read again are the same."""
    output = str(folder / "out.jsonl")
    run("scan", table.uri, "--output", output)
    table.delete(rows)
    run("upsert", table.uri, output)
    assert table.scan().to_arrow().equals(rows)


def test_moments_in_json_lines_are_those_that_are_written_and_drop_no_zone(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    at = datetime(2024, 1, 1, 12, 0, 0, 123000)
    kinds = {"ms": pa.timestamp("ms"), "us": pa.timestamp("us"), "z": pa.timestamp("ms", "UTC")}
    schema = pa.schema([("id", pa.int64()), *kinds.items()])
    table = metatable.create(table_uri, schema, key="id")
    rows = pa.table({"id": [1, 2], "ms": [at, None], "us": [at, None], "z": [at, None]}, schema)
    table.insert(rows)
    comes_back(run, table, rows, tmp_path)
    run("upsert", table_uri, write(tmp_path / "a.jsonl", '{"id": 1, "z": "2024-01-01 12:00"}\n'))
    run("upsert", table_uri, write(tmp_path / "a.jsonl", '{"id": 2, "z": "2024-01-01T13+01"}\n'))
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert table.scan().to_arrow()["z"].to_pylist() == [noon, noon]
    for name, text in (("us", "12:00+01:00"), ("ms", "12:00Z"), ("ms", "12:00:00.1234")):
        line = f'{{"id": 1}}\n{{"id": 2, "{name}": "2024-01-01T{text}"}}\n'
        run("upsert", table_uri, write(tmp_path / "b.jsonl", line), code=2)
        assert "line=2 found=" in run.told.err


def test_moments_within_lists_and_structs_are_read_as_columns_of_them(
    run: Words, table_uri: str, tmp_path: Path
) -> None:
    at = datetime(2024, 1, 1, 12, 0, 0, 123000)
    inner = pa.struct([("ms", pa.timestamp("ms")), ("z", pa.timestamp("ms", "UTC"))])
    schema = pa.schema({"id": pa.int64(), "s": inner, "l": pa.list_(pa.timestamp("us"))})
    table = metatable.create(table_uri, schema, key="id")
    moments = [{"ms": at, "z": at.replace(tzinfo=UTC)}, None]
    rows = pa.table({"id": [1, 2], "s": moments, "l": [[at, None], []]}, schema)
    table.insert(rows)
    comes_back(run, table, rows, tmp_path)
    for told in ('"s": {"ms": "2024-01-01T12:00+05:00"}', '"l": ["2024-01-01T12:00Z"]'):
        line = f'{{"id": 1}}\n{{"id": 2, {told}}}\n'
        run("upsert", table_uri, write(tmp_path / "b.jsonl", line), code=2)
        assert "line=2 found=" in run.told.err
    assert table.scan().to_arrow().equals(rows)


def test_of_many_files_one_is_open_at_a_time(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, most, real = 0, 0, rows_in._bytes_of

    @contextmanager
    def counted(path: str) -> Iterator[IO[bytes]]:
        nonlocal opened, most
        with real(path) as file:
            opened, most = opened + 1, max(most, opened + 1)
            yield file
        opened -= 1

    monkeypatch.setattr(rows_in, "_bytes_of", counted)
    files = [write(tmp_path / f"{place}.csv", f"id,n\nx{place},{place}\n") for place in range(5)]

    pq.write_table(pa.table({"id": ["z"], "n": pa.array([7], pa.int32())}), tmp_path / "z.parquet")
    run("insert", rides, *files, str(tmp_path / "z.parquet"))
    assert (opened, most) == (0, 1)
    assert run("scan", rides, "--columns", "n", "--where", "id starts with 'x'").count("\n") == 6


def test_a_line_without_an_end_is_not_read_whole(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "LONGEST_LINE", 100)
    monkeypatch.setattr(json_rows, "BLOCK_BYTES", 50)
    lines = '{"id": "a"}\n{"id": "b"}\n'
    run("upsert", rides, write(tmp_path / "a.jsonl", lines + '{"id": "c"}' + " " * 90))
    run("upsert", rides, write(tmp_path / "a.jsonl", lines + '{"id": "c"' + " " * 900), code=2)
    assert "line=3 expected='an object a line' found='more than 100 bytes'" in run.told.err


def test_wide_rows_make_small_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_out, "GROUP_BYTES", 2000)
    batches = [pa.record_batch({"x": ["a" * 100] * 10})] * 5
    path = tmp_path / "a.parquet"
    args = argparse.Namespace(output=str(path), format=None, limit=None, quiet=True, json=False)
    assert rows_out.print_rows(batches[0].schema, batches, args) == 50
    found = pq.ParquetFile(path)
    assert (found.metadata.num_rows, found.num_row_groups) == (50, 3)


def test_wide_rows_of_parquet_come_few_at_a_time(
    run: Words, rides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{n:03d}" * 1000 for n in range(100)]
    pq.write_table(pa.table({"id": texts, "n": range(100)}), path, use_dictionary=False)
    monkeypatch.setattr(rows_in, "BATCH_BYTES", 32 << 10)
    with path.open("rb") as file:
        sizes = [batch.num_rows for batch in rows_in._parquet(file, str(path)).batches]
    assert sum(sizes) == 100
    assert 5 <= max(sizes) <= 10
    [done] = run.objects("insert", rides, str(path))
    assert done["inserted"] == 100


def test_columns_of_other_types_beside_the_keys_are_told_in_csv(
    run: Words, rides: str, tmp_path: Path
) -> None:
    """Those of rows that are looked up: tables have none."""
    path = tmp_path / "a.parquet"
    columns = {
        "id": ["x"],
        "large": pa.array([b"\xff\0"], pa.large_binary()),
        "coded": pa.array([b"\xff\0"]).dictionary_encode(),
        "words": pa.array(["a"], pa.large_string()),
        "key": pa.array([b"\1" * 16], pa.binary(16)).cast(pa.uuid()),
    }
    pq.write_table(pa.table(columns), path)
    assert run("tag", rides, str(path), "--format", "csv").splitlines()[1:] == [
        '"x","/wA=","/wA=","a","01010101-0101-0101-0101-010101010101",,,,'
    ]
