"""Benchmarks: what they print. What they measure is for benchmarks to say, not for tests."""

from __future__ import annotations

import base64
import importlib
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

import metatable
from benchmarks import data, harness, merge_spark, report, synthetic, watching
from benchmarks.data import Cupboard
from benchmarks.harness import FIELDS, Case, Peer, Setup, absent, left_out, lines, main, timed

NAMES = (
    *("buckets", "changes", "commit", "compact", "hfile", "indexes", "layout", "logs", "memory"),
    *("merge_spark", "outside", "points", "rounds", "scale", "skip", "splice", "tag", "upkeep"),
    "upsert",
)


def taking(*seconds: float) -> harness.Measure:
    """A thing that takes these seconds, one after the other."""
    left = iter(seconds)
    return lambda: next(left)


def always(seconds: float) -> harness.Measure:
    return lambda: seconds


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_has_a_question_and_cases(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.QUESTION.endswith("?")
    assert callable(module.cases)


def test_every_benchmark_is_in_this_list_and_in_the_makefile() -> None:
    folder = Path(harness.__file__).parent
    found = [file.stem for file in folder.glob("*.py") if "QUESTION = " in file.read_text()]
    assert sorted(found) == list(NAMES)
    makefile = (folder.parent / "Makefile").read_text()
    [told] = [line for line in makefile.splitlines() if line.startswith("BENCH ?=")]
    assert sorted(told.removeprefix("BENCH ?=").split()) == list(NAMES)


def test_line_has_exactly_the_keys_that_are_promised() -> None:
    [line] = lines("b", Case("c", "s", always(2.0)), runs=5)
    assert tuple(line) == FIELDS
    assert " ".join(FIELDS) == "bench case unit median min max runs peer peer_median ratio setting"


def test_warm_up_is_not_counted() -> None:
    [line] = lines("b", Case("c", "s", taking(100.0, 3.0, 1.0, 2.0)), runs=3)
    assert (line["median"], line["min"], line["max"], line["runs"]) == (2.0, 1.0, 3.0, 3)


def test_a_process_of_its_own_is_not_run_to_warm_up() -> None:
    peers = [Peer("p", taking(6.0, 4.0, 5.0))]
    case = Case("c", "s", taking(3.0, 1.0, 2.0), peers, warm_up=False)
    [line] = lines("b", case, runs=3)
    assert (line["median"], line["max"], line["runs"]) == (2.0, 3.0, 3)
    assert line["peer_median"] == 5.0


def test_ratio_is_above_one_where_we_are_ahead() -> None:
    [line] = lines("b", Case("c", "s", always(2.0), [Peer("p", always(5.0))]), runs=1)
    assert (line["peer"], line["peer_median"], line["ratio"]) == ("p", 5.0, 2.5)


def test_ours_and_peers_run_in_turn() -> None:
    ran: list[str] = []
    sides = [timed(lambda name=name: ran.append(name)) for name in ("us", "first", "second")]
    peers = [Peer("first", sides[1]), Peer("second", sides[2])]
    made = lines("b", Case("c", "s", sides[0], peers), runs=2)
    assert ran == ["us", "first", "second"] * 3
    assert [line["peer"] for line in made] == ["first", "second"]


def test_missing_peer_is_a_line_with_its_reason() -> None:
    peers = [Peer("p", always(1.0)), absent("q", "q is not installed: make peers")]
    made = lines("b", Case("c", "s", always(1.0), peers), runs=1)
    assert [line["peer"] for line in made] == ["p", None]
    assert made[1]["ratio"] is None
    assert made[1]["peer_median"] is None
    assert made[1]["median"] == 1.0
    assert "no q: q is not installed: make peers" in made[1]["setting"]


def test_case_that_is_left_out_is_a_line_with_its_reason() -> None:
    [line] = lines("b", left_out("c", "left to --size full"), runs=5)
    assert (line["runs"], line["median"], line["peer"]) == (0, None, None)
    assert line["setting"].startswith("left to --size full")


def test_setting_tells_the_machine_and_the_versions() -> None:
    told = harness.machine()
    assert " cores, " in told
    assert f"metatable {metatable.__version__}" in told


def test_processes_that_are_looked_on_at_are_told_with_their_memory_and_their_work() -> None:
    code = "import time; held = b'x' * (96 << 20); print(sum(range(2_000_000))); time.sleep(0.6)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        with watching.watched(process.pid) as peaks:
            assert process.stdout is not None
            process.stdout.readline()
            worked = watching.processor_seconds(process.pid)
            process.wait()
    assert peaks["python"] > 96 << 20
    assert peaks["java"] == 0
    assert worked > 0
    assert watching.processor_seconds(process.pid) == 0


def test_looking_on_takes_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Over(threading.Event):
        """Over at the third time that it is waited for."""

        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return len(waited) == 3

    clock = itertools.count(0.0, 0.5)
    monkeypatch.setattr(watching.time, "perf_counter", lambda: next(clock))
    for share, expected in ((1.0, [0.2, 0.5, 0.5]), (0.05, [0.2, 10.0, 10.0])):
        waited.clear()
        watching._watch(0, share, {"python": 0, "java": 0}, Over())
        assert waited == expected


def some_cases(setup: Setup) -> Iterator[Case]:
    """What a benchmark yields, in small."""
    yield Case("first", "s", always(1.0), [Peer("p", always(0.5)), absent("q", "gone")], "why")
    yield left_out("second", "left out")


def test_json_output_is_one_object_a_line_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main("b", "?", some_cases, ["--json", "--runs", "2", "--data", str(tmp_path)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["case"], line["peer"]) for line in told] == [
        ("first", "p"),
        ("first", None),
        ("second", None),
    ]
    assert all(tuple(line) == FIELDS for line in told)


def test_readable_output_says_all_that_a_number_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main("b", "How long?", some_cases, ["--runs", "2", "--data", str(tmp_path)])
    told = capsys.readouterr().out
    for word in ("How long?", "1.00 s", "500 ms", "2 runs", "no q: gone", "cores"):
        assert word in told
    assert "We take 2.00 times as long as p: why." in told


def test_data_is_made_once_for_the_same_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Path] = []
    for checksum in ("a", "a", "b"):
        monkeypatch.setattr(data, "_code_checksum", lambda checksum=checksum: checksum)
        Cupboard(tmp_path).made("name", made.append)
    assert [one.name for one in made] == ["a", "b"]
    assert not made[0].exists()


def test_data_that_was_only_half_made_is_made_again(tmp_path: Path) -> None:
    def die(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cupboard(tmp_path).made("name", die)
    kept = Cupboard(tmp_path).made("name", lambda folder: (folder / "all").touch())
    assert [file.name for file in kept.iterdir()] == ["all"]


def test_each_process_merges_twice_and_the_table_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "table"
    place.mkdir()
    (place / "row").write_text("as it was")
    code = """
import sys, time
from pathlib import Path
from benchmarks.peers.spark_merge import serve
def merge(folder, rows, kind):
    place = Path(folder, "row")
    assert place.read_text() == "as it was" and (rows, kind) == ("rows", "cow")
    place.unlink()
    place.write_text("merged")
print("Spark says something")
serve({"merge": merge, "count": lambda folder: 7 if Path(folder, "row").exists() else 0})
"""
    command = [sys.executable, "-c", code]
    with Cupboard(tmp_path / "cupboard") as cupboard:
        for stays in (False, True):
            runs = merge_spark.Runs(cupboard, command, place, ("rows", "cow"), 7, stays)
            assert runs() > 0.0
            assert (len(runs.processor), len(runs.peaks)) == (1, 1)
            assert (place / "row").read_text() == "as it was"
            runs.after = 8
            with pytest.raises(AssertionError):
                runs()
            assert (place / "row").read_text() == "as it was"


def test_scratch_is_gone_at_the_end(tmp_path: Path) -> None:
    with Cupboard(tmp_path) as cupboard:
        source = cupboard.scratch()
        (source / "file").write_text("body")
        assert (cupboard.copy(source) / "file").read_text() == "body"
    assert list(tmp_path.iterdir()) == []


def aiming(setup: Setup) -> Iterator[Case]:
    """A case with targets, two of them met."""
    floor = Peer(harness.FLOOR + "f", always(0.5), target=0.4)
    peers = [Peer("fast", always(0.5), target=2), Peer("slow", always(3.0), target=2), floor]
    yield Case("first", "s", always(1.0), peers, target=0.9)


def test_reading_says_whether_targets_are_met(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main("b", "?", aiming, ["--runs", "1", "--data", str(tmp_path)])
    told = " ".join(capsys.readouterr().out.split())
    for sentence in (
        "at most 900 ms: not met",
        "times as long as fast. Target: at least 2 times as fast, not met.",
        "times as fast as slow. Target: at least 2 times as fast, met.",
        "the floor. Target: at most 2.5 times as long as the floor, met.",
        "floor It is 1.00 times as fast as fast: forbids the target of 2.",
        "floor It is 6.00 times as fast as slow: allows the target of 2.",
    ):
        assert sentence in told


def test_targets_stand_in_the_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main("b", "?", aiming, ["--json", "--runs", "1", "--data", str(tmp_path)])
    told = [json.loads(line)["setting"] for line in capsys.readouterr().out.splitlines()]
    assert told[0].startswith("s; target: 900 ms; target: at least 2 times as fast; ")
    assert told[2].startswith("s; target: 900 ms; target: at most 2.5 times as long as the floor")


@pytest.mark.parametrize("make", [data.uuid_entries, data.base64_entries, data.url_entries])
def test_entries_ascend_and_absent_keys_are_not_among_them(
    make: Callable[[int], data.Entries],
) -> None:
    (keys, values), absent_keys = data.split_entries(*make(1010), 101)
    assert (len(keys), len(values), len(absent_keys)) == (1000, 1000, 10)
    assert pc.all(pc.less(keys[:-1], keys[1:])).as_py()
    assert not pc.any(pc.is_in(absent_keys, keys)).as_py()
    assert keys[0].as_py() < absent_keys[0].as_py() < keys[999].as_py()


def test_base64_keys_are_those_of_16_bytes() -> None:
    keys, _ = data.base64_entries(100)
    raw, _ = data.sorted_entries(100)
    assert {base64.b64decode(key, validate=True) for key in keys.to_pylist()} == set(
        raw.to_pylist()
    )


@pytest.mark.parametrize("kind", ["uuid", "time"])
def test_rows_are_the_same_whenever_they_are_made(kind: str) -> None:
    whole = data.table_rows(kind, 1000)
    part = data.rows_of(kind, np.arange(500, 600), 1000)
    assert part.equals(whole.slice(500, 100).combine_chunks())
    keys = whole["id"].combine_chunks()
    assert len(keys.unique()) == 1000
    shaped = pc.match_substring_regex(keys, "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    assert pc.all(shaped).as_py()
    assert keys.equals(keys.take(pc.array_sort_indices(keys))) == (kind == "time")


@pytest.mark.parametrize("kind", ["uuid", "time"])
def test_batch_updates_what_is_there_in_its_partition(kind: str) -> None:
    held = data.table_rows(kind, 1000)
    batch = data.batch_rows(kind, 1000, 100)
    both = batch.join(held, "id", join_type="inner", right_suffix="_held")
    assert (batch.num_rows, both.num_rows) == (100, 70)
    assert both["day"].equals(both["day_held"])
    assert not both["note"].equals(both["note_held"])


def test_synthetic_table_lists_its_files_and_skips_by_their_bounds(tmp_path: Path) -> None:
    synthetic.make_ours(tmp_path, 300)
    table = metatable.open(tmp_path)
    where = [("place", ">=", 5 * synthetic.FILE_SPAN), ("place", "<", 8 * synthetic.FILE_SPAN)]
    assert len(table.files()) == 300
    kept = sorted(file.partition_path for file in table.files(where))
    assert kept == ["d05", "d06", "d07"]


@pytest.mark.parametrize("length", [5, 40, 98, 200])
def test_what_is_told_stays_readable_beside_a_long_name(length: int) -> None:
    case = Case("c", "s", always(1.0), [Peer("p" * length, always(2.0))], "why")
    told = harness.block(case, lines("m", case, 1))
    assert max(map(len, told.split("\n"))) <= max(100, length + 3)
    assert "2.00 s" in told


def reported(*cases: Case, runs: int = 1) -> list[str]:
    """What `report` makes of the lines of these cases, a row each, without the heading."""
    told = [json.dumps(line) for case in cases for line in lines("tag", case, runs)]
    heading, table = report.tables(told)
    assert heading.startswith("## tag: ")
    return table.splitlines()[2:]


def test_report_has_a_row_for_each_case_and_says_whether_what_was_asked_was_met() -> None:
    peers = [
        Peer("p", always(8.0), target=3.0),
        Peer("q", always(5.0), target=2.5),
        Peer(f"{harness.FLOOR}its half", always(1.0), target=1 / 1.5),
        absent("r", "gone"),
    ]
    assert reported(Case("c", "s", always(2.0), peers, target=1.5)) == [
        "| c | 2.00 s | 2.00 s, 2.00 s (1) "
        "| p 8.00 s (**4**); q 5.00 s (**2.5**); floor: its half 1.00 s (x2) "
        "| ≤ 1.50 s: **not met**; p ≥ 3: met; q ≥ 2.5: met; floor ≤ 1.5: **not met** |"
    ]


@pytest.mark.parametrize(
    ("asked", "told"), [(10.0, "forbids it: allows 4"), (4.0, "allows 4"), (2.5, "allows 4")]
)
def test_report_says_what_a_floor_allows_where_a_target_is_missed(asked: float, told: str) -> None:
    peers = [Peer("p", always(4.0), target=asked), Peer(f"{harness.FLOOR}half", always(1.0))]
    [row] = reported(Case("c", "s", always(2.0), peers))
    assert row.endswith(f"| p ≥ {asked:g}: **not met**, the floor {told} |")


def test_report_holds_times_in_milliseconds_against_what_they_may_be() -> None:
    cases = [Case(name, "s", always(0.002), target=at) for name, at in (("a", 2e-3), ("b", 1e-3))]
    asked = [row.split(" | ")[-1] for row in reported(*cases)]
    assert asked == ["≤ 2 ms: met |", "≤ 1 ms: **not met** |"]


def test_report_counts_the_later_of_two_measurements() -> None:
    peers = [
        Peer("p", always(1.0)),
        Peer("q", always(1.0)),
        absent("r", "gone"),
        absent("s", "gone"),
    ]
    rows = reported(Case("c", "s", always(2.0), peers), Case("c", "s", always(3.0), peers[:1]))
    assert [row.split(" | ")[:2] for row in rows] == [["| c", "3.00 s"]]


def test_report_leaves_a_case_that_was_not_run_in_its_place() -> None:
    [row] = reported(left_out("c", "left to --size full"))
    assert row == "| c | not run |  |  |  |"


@pytest.mark.parametrize("text", ["", "[1]", '{"bench": "tag"}', "Reading it:"])
def test_report_refuses_what_no_benchmark_printed(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_text(text + "\n")
    assert report.main([str(tmp_path / "lines")]) == 2
    assert "line 1 is none of a benchmark's --json" in capsys.readouterr().err
