"""The verbs that take a table: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import metatable
from metatable.cli import render
from metatable.cli.main import main
from metatable.storage.errors import StoreError
from metatable.storage.local_files import LocalFiles
from tests.index.rows import make, rows

FAST = ["--storage-option", "durable=false"]


@pytest.fixture
def table(table_uri: str) -> metatable.Table:
    """Ninety keys in three partitions, ten of them updated, by three commits."""
    table = make(table_uri, "record", "global")
    table.insert(rows(0, 90))
    table.upsert(rows(10, 20, value=1000))
    table.delete(rows(0, 5))
    return table


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main([*words, *FAST]) == code
    told = capsys.readouterr()
    return told.out, told.err


def test_describe_tells_the_facts_of_the_table(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = run(capsys, "describe", table.uri)
    facts = dict(line.split(maxsplit=1) for line in out.splitlines()[:1] + out.splitlines()[6:7])
    assert facts == {"table": f"table   {table.uri}", "rows": "85"}
    assert "record, keys are unique in the table" in out
    parsed = json.loads(run(capsys, "describe", table.uri, "--json")[0])
    assert parsed["rows"] == 85
    assert parsed["version"] == table.version == 4
    assert parsed["metadata"]["record_index"]["entries"] == 95
    assert parsed["columns"]["value"] == "int64"


def test_clean_says_what_goes_and_describe_what_bytes_are_for(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    def usage() -> dict[str, int]:
        found = json.loads(run(capsys, "describe", table.uri, "--listing", "--json")[0])["usage"]
        assert sum(found.values()) == sum(
            path.stat().st_size for path in Path(table.uri).rglob("*") if path.is_file()
        )
        return dict(found)

    before = usage()
    assert before["kept"] > 10_000
    assert before["reclaimable"] == before["others"] == 0
    asked = ("clean", table.uri, "--versions", "1", "--hours", "0")
    dry = json.loads(run(capsys, *asked, "--dry-run", "--json")[0])
    assert dry["files_deleted"] > 5
    assert usage() == before
    out, _ = run(capsys, *asked)
    assert "data files" in out
    assert f"{dry['files_deleted']} files deleted" in out
    after = usage()
    assert after["kept"] < 10_000 < before["kept"]
    Path(table.uri, ".hoodie/metatable/files/left-over.hfile").write_text("x" * 77)
    assert usage()["reclaimable"] == 77
    text, _ = run(capsys, "describe", table.uri, "--listing")
    assert "reclaimable bytes  77 B" in text
    assert "kept from 4" in text
    assert "usage" in json.loads(run(capsys, "describe", table.uri, "--json")[0])
    _, err = run(capsys, "clean", table.uri, "--hours", "-1", code=2)
    assert "hours to keep" in err


def test_savepoints_are_kept_listed_gone_back_to_and_dropped(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "savepoint", table.uri)[0] == "no savepoints\n"
    assert (
        "kept as june"
        in run(
            capsys, "savepoint", table.uri, "--keep", "june", "--version", "3", "--note", "closed"
        )[0]
    )
    text = run(capsys, "savepoint", table.uri)[0].splitlines()
    assert text[1].split()[:2] == ["june", "3"]
    assert text[1].endswith("closed")
    told = json.loads(run(capsys, "savepoint", table.uri, "--json")[0])
    assert (told["name"], told["version"], told["note"]) == ("june", 3, "closed")
    dry = run(capsys, "restore", table.uri, "--savepoint", "june", "--dry-run")[0]
    assert "dry run, nothing was done: back to version 3: 1 commit undone" in dry
    assert "back to version 3" in run(capsys, "restore", table.uri, "--savepoint", "june")[0]
    assert table.scan().count() == 90
    _, err = run(capsys, "restore", table.uri, "--version", "2", code=2)
    assert "drop it first" in err
    assert "dropped" in run(capsys, "savepoint", table.uri, "--drop", "june")[0]
    moment = table.history()[-2].instant
    done = json.loads(run(capsys, "restore", table.uri, "--as-of", moment, "--json")[0])
    assert done["service"] == "restore"
    _, err = run(capsys, "savepoint", table.uri, "--drop", "june", code=2)
    assert "no such savepoint" in err
    with pytest.raises(SystemExit):
        main(["restore", table.uri])


def test_history_is_newest_first_one_object_a_line(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(capsys, "history", table.uri, "--json")[0].splitlines()
    assert [json.loads(line)["version"] for line in lines] == [4, 3, 2, 1]
    assert json.loads(lines[0])["summary"]["deleted"] == 5
    text = run(capsys, "history", table.uri, "--limit", "2")[0].splitlines()
    assert [line.split()[0] for line in text] == ["version", "4", "3"]
    assert "deleted 5" in text[1]


def test_compact_leaves_fewer_hfiles_and_then_finds_nothing_to_do(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.tag_locations(rows(0, 100))
    done = json.loads(run(capsys, "compact", table.uri, "--major", "--json")[0])
    assert done["files_after"] < done["files_before"]
    assert done["version"] == table.version == 5
    assert table.describe().metadata["record_index"]["tombstones"] == 0
    assert table.tag_locations(rows(0, 100)).equals(before)
    assert "nothing to compact" in run(capsys, "compact", table.uri, "--major")[0]
    assert table.version == 5


def test_compact_takes_only_what_is_named(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.describe().metadata
    run(capsys, "compact", table.uri, "--major", "--partition", "files", "--bucket", "0")
    after = table.describe().metadata
    assert after["files"]["hfiles"] == 1 < before["files"]["hfiles"]
    assert after["record_index"] == before["record_index"]


def test_compact_stores_a_plan_and_carries_it_out_by_its_name(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.tag_locations(rows(0, 100))
    out, _ = run(capsys, "compact", table.uri, "--major", "--schedule")
    told = re.search(r"scheduled, nothing was done: major, .*; plan (compact-[0-9a-f]{32});", out)
    assert told is not None
    assert table.version == 4
    done = json.loads(run(capsys, "compact", table.uri, "--plan", told[1], "--json")[0])
    assert (done["plan"], done["version"]) == (told[1], table.version) == (told[1], 5)
    assert done["files_after"] < done["files_before"]
    assert table.tag_locations(rows(0, 100)).equals(before)
    _, err = run(capsys, "compact", table.uri, "--plan", told[1], code=3)
    assert "it is carried out, was taken back, or never was" in err


def test_resize_buckets_splits_by_a_plan_or_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rings = make(str(tmp_path / "rings"), "consistent_hashing", "partition", bucket_count=1)
    rings.insert(rows(0, 30))
    asked = ("resize-buckets", rings.uri, "--split-above", "1", "--merge-below", "0")
    assert "3 splits and 0 merges" in run(capsys, *asked, "--dry-run")[0]
    out, _ = run(capsys, *asked, "--partition", "city=cairo", "--schedule", "--json")
    run(capsys, "resize-buckets", rings.uri, "--plan", json.loads(out)["plan"])
    done = json.loads(run(capsys, *asked, "--cut", "median", "--most-partitions", "1", "--json")[0])
    assert (done["files_before"], done["files_after"]) in {(1, 2), (2, 4)}
    assert rings.scan().count() == 30
    assert re.search(
        r"buckets +[4-6], [4-6] with files; the largest", run(capsys, "describe", rings.uri)[0]
    )
    told = run(capsys, "history", rings.uri)[0]
    assert re.search(r"splits 1, why=split in city=cairo: [\d,]+ bytes, above 1\n", told)
    _, err = run(capsys, *asked, "--most-bytes", "0", code=2)
    assert "a bound is 1 or more" in err


def test_buckets_prints_a_line_for_each_or_the_largest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: metatable.Table
) -> None:
    rings = make(str(tmp_path / "rings"), "consistent_hashing", "partition", bucket_count=2)
    rings.insert(rows(0, 1))
    head, filled, *others, last = run(capsys, "buckets", rings.uri)[0].splitlines()
    assert head.split() == [
        "bytes",
        "x",
        "mean",
        "rows",
        "hashes",
        "after",
        "up",
        "to",
        "resized",
        "partition",
    ]
    lines = [filled.split(), *(one.split() for one in others)]
    assert sorted(one[-6:] for one in lines) == [
        ["-", "-", "1073741824", "2147483647", "0", "city=amsterdam"],
        ["1.00", "1", "2147483647", "1073741824", "0", "city=amsterdam"],
    ]
    assert last.startswith("2 buckets, ")
    told = run(capsys, "buckets", rings.uri, "--largest", "1", "--json")[0]
    assert json.loads(told) == max(rings.buckets().to_pylist(), key=lambda one: one["bytes"] or 0)
    rings.insert(rows(1, 30))
    largest = pc.max(rings.buckets()["bytes"]).as_py()
    told = run(capsys, "buckets", rings.uri, "--largest", "1")[0]
    assert told.endswith(f"1 buckets, {render.size(largest)}\n")
    chosen = "--partition", "city=amsterdam", "--version", "1"
    assert run(capsys, "buckets", rings.uri, *chosen)[0].endswith("0 buckets, 0 B\n")
    _, err = run(capsys, "buckets", table.uri, code=2)
    assert "no rings" in err


def test_cluster_cuts_files_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "cut")
    columns = "id: string, city: string, value: int64, note: string"
    made = ("--key", "id", "--cluster-by", "value", "--option", "file_rows=30")
    run(capsys, "create", uri, "--schema", columns, *made)
    table = metatable.open(uri)
    for part, last in ((0, [39]), (1, [])):
        taken = [*range(part, 39 - part, 2), *last]
        table.bulk_insert(rows(0, 40, value=1000 * part).take(taken))
    assert "clustered by    value, a value in 1.0 files" in run(capsys, "describe", uri)[0]
    asked = ("cluster", uri, "--by", "id")
    assert "nothing to cluster: a value of value in 1.0 files" in run(capsys, *asked[:2])[0]
    assert "of id in 2.0 files" in run(capsys, *asked, "--dry-run")[0]
    done = json.loads(run(capsys, *asked, "--where", "value < 2000", "--json")[0])
    assert (done["files_before"], done["depth_after"]) == (2, {"id": 1.0})
    _, err = run(capsys, *asked, "--most-bytes", "0", code=2)
    assert "a bound is 1 or more" in err


def test_compact_logs_schedules_and_carries_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = make(str(tmp_path / "logs"), "record", "global", table_type="mor")
    logs.insert(rows(0, 30))
    asked = ("compact-logs", logs.uri, "--ratio", "0")
    assert "no logs to compact" in run(capsys, *asked)[0]
    logs.upsert(rows(0, 9))
    assert "3 logs of 3 slices" in run(capsys, *asked, "--dry-run")[0]
    assert "no logs to compact" in run(capsys, *asked, "--hours", "1", "--partition", "x")[0]
    out, _ = run(capsys, *asked, "--most-bytes", "1", "--schedule", "--json")
    plan = json.loads(out)["plan"]
    assert "scheduled: 1 slices, " in run(capsys, "due", logs.uri)[0]
    done = json.loads(run(capsys, "compact-logs", logs.uri, "--plan", plan, "--json")[0])
    assert (done["plan"], done["files_before"], done["files_after"]) == (plan, 2, 1)
    out, _ = run(capsys, *asked, "--count", "1", "--schedule", "--json")
    plan = json.loads(out)["plan"]
    assert (
        "2 slices taken back"
        in run(capsys, "compact-logs", logs.uri, "--plan", plan, "--take-back")[0]
    )
    assert json.loads(run(capsys, *asked, "--json")[0])["files_after"] == 2
    assert "compact_logs" not in run(capsys, "due", logs.uri)[0]
    _, err = run(capsys, "compact-logs", logs.uri, "--plan", plan, code=3)
    assert "no such compaction of logs waits" in err


def test_stored_plans_are_taken_back(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    name = table.compact(schedule=True).plan
    out, _ = run(capsys, "compact", table.uri, "--plan", name, "--take-back")
    assert "plan taken back: minor" in out
    assert name not in run(capsys, "due", table.uri)[0]


def test_due_tells_a_line_for_each_service_and_nothing_where_none_is_due(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = run(capsys, "due", table.uri)[0].splitlines()
    assert line.startswith("compact -> version 4: due: minor, ")
    name = table.compact(schedule=True).plan
    told = [json.loads(one) for one in run(capsys, "due", table.uri, "--json")[0].splitlines()]
    assert [(one["service"], one["plan"]) for one in told] == [("compact", name), ("compact", "")]
    table.compact(plan=name)
    assert run(capsys, "due", table.uri)[0] == ""


def test_compact_by_a_plan_that_is_out_of_date_says_to_schedule_again(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("compact", table.uri, "--major", "--json")
    plan = json.loads(run(capsys, *asked, "--schedule")[0])["plan"]
    run(capsys, *asked)
    _, err = run(capsys, "compact", table.uri, "--plan", plan, code=4)
    assert "schedule it again" in err


def test_rollback_undoes_the_last_data_commit(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    instant = table.instant
    told = f"commit {instant} of version 4 (delete) undone"
    assert told in run(capsys, "rollback", table.uri)[0]
    assert table.scan().count() == 90
    assert instant is not None
    assert "is undone already" in run(capsys, "rollback", table.uri, "--instant", instant)[0]
    assert table.scan().count() == 90
    nothing = run(capsys, "rollback", table.uri, "--instant", "", code=2)[1]
    assert "only the last commit can be rolled back" in nothing
    assert table.scan().count() == 90


def test_a_rollback_without_an_answer_tells_how_to_repeat_it(
    table: metatable.Table,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = LocalFiles.create

    def unanswered(files: LocalFiles, path: str, body: bytes, **how: Any) -> bool:
        made = create(files, path, body, **how)
        if "/manifest/" in path:
            monkeypatch.setattr(LocalFiles, "read_whole", failing)
            raise StoreError("no answer", path=path)
        return made

    def failing(files: LocalFiles, path: str) -> bytes:
        raise StoreError("no answer", path=path)

    instant = table.instant
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "create", unanswered)
        told = run(capsys, "rollback", table.uri, code=4)[1]
    monkeypatch.undo()
    assert len(told.splitlines()) == 1
    assert f"metatable rollback {table.uri} --instant {instant}" in told
    assert table.instant != instant, "it was carried out"
    assert "is undone already" in run(capsys, "rollback", table.uri, "--instant", str(instant))[0]
    assert table.scan().count() == 90


def test_verify_ends_with_code_one_on_findings(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "index equals data" in run(capsys, "verify", table.uri)[0]
    file = table.scan().files()[0]
    Path(table.uri, file.path).write_bytes(b"PAR1 and no more")
    out, _ = run(capsys, "verify", table.uri, code=1)
    assert f"file-size: {file.path}" in out
    findings = json.loads(run(capsys, "verify", table.uri, "--json", code=1)[0])["findings"]
    assert any(file.path in one for one in findings)


def test_repair_mends_only_when_it_is_told_to(
    table: metatable.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "index equals data" in run(capsys, "repair", table.uri)[0]
    file = table.scan().files()[0]
    Path(table.uri, file.path).unlink()
    out, _ = run(capsys, "repair", table.uri, code=1)
    assert "rows are gone" in out
    told = json.loads(run(capsys, "repair", table.uri, "--apply", "--json")[0])
    assert told["rows_lost"] == file.row_count
    assert "index equals data" in run(capsys, "verify", table.uri)[0]


def test_errors_go_to_standard_error_and_choose_the_exit_code(
    table: metatable.Table, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nothing = str(tmp_path / "nothing")
    out, err = run(capsys, "describe", nothing, "--json", code=3)
    told = json.loads(err)
    assert out == ""
    assert (told["error"], told["exit_code"]) == ("NotFoundError", 3)
    assert told["facts"]["path"] == nothing
    assert told["message"].startswith(told["what"])
    with pytest.raises(SystemExit):
        main(["history", "--json"])
    told = json.loads(capsys.readouterr().err)
    assert (told["error"], told["exit_code"]) == ("UsageError", 2)
    out, err = run(capsys, "describe", nothing, code=3)
    assert out == ""
    assert err.startswith("metatable: there is no table here: path=")
    _, err = run(capsys, "compact", table.uri, "--partition", "nonsense", code=2)
    assert "no such metadata partition: found='nonsense'" in err
    _, err = run(capsys, "describe", table.uri, "--storage-option", "durable", code=2)
    assert "storage option without a value: found='durable'" in err
    secret = "secret_access_key:c2VjcmV0"
    _, err = run(capsys, "describe", table.uri, "--storage-option", secret, code=2)
    assert "storage option without a value: found='secret_access_key'" in err
    assert "c2VjcmV0" not in err
    with pytest.raises(SystemExit) as end:
        main(["history", table.uri, "--limit", "0"])
    assert end.value.code == 2
    with pytest.raises(SystemExit):
        main(["history", table.uri, "--limit", "ten"])
    assert "argument --limit: must be a whole number, 1 or more" in capsys.readouterr().err


def test_rollback_of_an_empty_table_is_a_usage_error(
    table_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(table_uri, "record", "global")
    assert "no commit to roll back" in run(capsys, "rollback", table_uri, code=2)[1]


def test_explain_counts_what_it_finds_and_what_it_costs(table: metatable.Table) -> None:
    before = dict(table.counters)
    told = table.explain(rows(0, 100))
    assert (told.keys, told.found) == (100, 85)
    assert told.counters["tag.keys"] == 100
    counted = table.counters.since(before)
    assert counted["store.requests"] >= told.counters["store.requests"] > 0
    assert (table.explain(pa.table({"id": []}, schema=pa.schema([("id", pa.string())]))).keys) == 0


def test_columns_stand_below_each_other() -> None:
    lines = render.columns(("name", "count"), [("a", "1"), ("long name", "1,000")], left=("name",))
    assert lines == "name       count\na              1\nlong name  1,000"
    assert render.pairs([("a", "1"), ("bc", "")]) == "a   1\nbc"


@pytest.mark.parametrize("time_ms", [10**30, -(10**30), 10**15])
def test_time_of_no_calendar_is_a_dash(time_ms: int) -> None:
    assert render.when(time_ms) == "-"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB")]
)
def test_sizes_are_in_units_of_a_thousand(number: int, text: str) -> None:
    assert render.size(number) == text
    assert render.size(None) == render.count(None) == "-"
