"""The demo on a slice of the real rows: the same steps, checks and page, in seconds."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable import demo


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return some_flights()


def some_flights() -> pa.Table:
    """Two days of every month, with cancelled and diverted flights among them."""
    try:
        every = demo.load_flights()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return every.filter(pc.less_equal(every["day"], 2))


def test_flights_are_read_without_importing_their_package(flights: pa.Table) -> None:
    every = demo.load_flights()
    assert (every.num_rows, every["dep_time"].null_count) == (demo.FLIGHTS, demo.CANCELLED)
    assert every.select(demo.KEY).group_by(demo.KEY).aggregate([]).num_rows == demo.FLIGHTS
    assert every.schema.field("time_hour").type == pa.timestamp("us", "UTC")


def test_every_step_of_a_small_demo_is_as_expected(flights: pa.Table, tmp_path: Path) -> None:
    page = demo.Page(io.StringIO())
    demo.run(flights, str(tmp_path / "flights"), page, None, "no Java in this test")
    text = page.out.getvalue()  # type: ignore[attr-defined]
    assert page.wrong == []
    flown = flights.num_rows - flights["dep_time"].null_count
    assert f"another software reads the same {flown:,} flights" in text
    assert "left out: no Java in this test" in text
    numbers = [int(found) for found in re.findall(r"^ ?(\d+)\. ", text, re.M)]
    assert numbers == list(range(1, page.steps + 1))
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert metatable.open(tmp_path / "flights").describe().rows == flown


def test_the_costs_of_a_step_stand_below_their_heads(flights: pa.Table, tmp_path: Path) -> None:
    page = demo.Page(io.StringIO())
    page.heads()
    table = metatable.create(tmp_path / "t", flights.schema, key=demo.KEY)
    with page.step("insert", table) as step:
        step.rows, step.files = 1234, 5
        table.insert(flights)
    heads, line = page.out.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(heads) == len(line)
    assert line.split()[:4] == ["1.", "insert", "1,234", "5"]
    assert int(line.split()[4]) > 10  # requests


def test_a_count_that_is_not_as_expected_ends_with_code_one(
    flights: pa.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def few(flights: pa.Table, folder: str, page: demo.Page, *_: Any) -> None:
        metatable.create(folder, flights.schema, key=demo.KEY)

    monkeypatch.setattr(demo, "run", few)
    words = ["--dir", str(tmp_path), "--engine", "local"]
    assert demo.main(words) == 0
    monkeypatch.setattr(demo, "load_flights", lambda: flights)
    assert demo.main(words) == 1
    out = capsys.readouterr().out
    found = f"expected {demo.FLIGHTS:,}, found {flights.num_rows:,}"
    assert f"NOT AS EXPECTED: flights in the package: {found}" in out


def test_a_folder_that_is_not_the_demos_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "flights" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert demo.main(["--dir", str(tmp_path), "--engine", "local"]) == 2
    assert mine.read_text() == "mine"
    assert "no table of the demo" in capsys.readouterr().err


def test_without_java_spark_is_left_out_or_refused_as_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = pytest.importorskip("metatable.spark.session")
    monkeypatch.setattr(session, "find_java", lambda: None)
    make_session, why = demo._spark("auto")
    assert make_session is None
    assert "Java 17" in why
    with pytest.raises(RuntimeError, match="Java 17"):
        demo._spark("spark")
    assert demo._spark("local")[0] is None
