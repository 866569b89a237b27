"""`metatable log FILE`: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable.cli.main import main
from metatable.data.columns.avro_schema import to_avro
from metatable.data.columns.schema import with_meta_columns
from metatable.data.logs.log_blocks import LogWriter
from metatable.storage.avro import RecordCodec
from metatable.storage.hudi_log.block import BlockKind, HeaderKey, LogBlock
from metatable.storage.hudi_log.log_file import LogFile
from metatable.storage.hudi_log.records import encode_datums
from tests.data.other_blocks import delete_block, rollback_block
from tests.storage.hudi_log.corpus import log_files, tables

T = "20260101000000000"
TABLE = pa.schema([("id", pa.string())])
WRITER = LogWriter(TABLE, "t")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = pa.Table.from_pylist([{"id": "a"}, {"id": "b"}], with_meta_columns(TABLE))
    blocks = [
        *WRITER.avro_blocks(rows, T),
        WRITER.parquet_block(rows.slice(1), T, "none"),
        delete_block(WRITER, pa.array(["a", "b", "c"]), "p", T),
        rollback_block("2", T),
        LogBlock(BlockKind.HFILE_DATA, {HeaderKey.INSTANT_TIME: T}, b"abc"),
    ]
    path = tmp_path / f".f-0_{T}.log.1_0-1-1"
    path.write_bytes(LogFile.encode(blocks))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    code = main(["log", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_blocks_are_told_in_lines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = run(capsys, file)
    assert (code, err) == (0, "")
    cells = [line.split("\t") for line in lines]
    blocks = LogFile.decode(file.read_bytes(), "").blocks
    assert [cell[0] for cell in cells] == [str(one.offset) for one in blocks]
    assert [cell[1:3] for cell in cells] == [
        ["avro_data", "2"],
        ["parquet_data", "1"],
        ["delete", "3"],
        ["command", "-"],
        ["hfile_data", "-"],
    ]
    assert [cell[3] for cell in cells] == [str(len(one.content)) for one in blocks]
    assert cells[0][4] == f"instant_time={T}"
    assert cells[3][4] == f"instant_time=2 target_instant_time={T} command_block_type=0"


def test_blocks_are_told_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, file, "--json")
    told = [json.loads(line) for line in lines]
    assert code == 0
    assert told[0]["header"] == {"instant_time": T, "schema": WRITER.schema_text}
    assert [one["rows"] for one in told] == [2, 1, 3, None, None]


def test_a_torn_end_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = file.read_bytes()
    start = LogFile.decode(body, "").blocks[-1].offset
    file.write_bytes(body[:-2])
    left = len(body) - 2 - start
    code, lines, _ = run(capsys, file)
    assert (code, len(lines)) == (0, 5)
    assert lines[-1] == f"{start}\ttorn\t{left} bytes that a dead writer left"
    _, lines, _ = run(capsys, file, "--json")
    assert json.loads(lines[-1]) == {"offset": start, "torn_bytes": left}


def test_blocks_that_others_may_write_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables of Hudi's may be without meta columns; updates may be of some columns, and deletes by
    several ordering values."""
    rows = pa.table({"id": ["a", "b"]})
    record = to_avro(TABLE, "t")
    header = {HeaderKey.INSTANT_TIME: "1\n\x1b[2J", HeaderKey.SCHEMA: json.dumps(record)}
    [datums] = encode_datums(RecordCodec(record).encode(rows))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    several = bytes.fromhex("00000003 00000008 02 02 02 61 00 18 00 00")
    blocks = [
        LogBlock(BlockKind.AVRO_DATA, header, datums),
        LogBlock(BlockKind.PARQUET_DATA, header, sink.getvalue().to_pybytes()),
        LogBlock(BlockKind.AVRO_DATA, {**header, HeaderKey.IS_PARTIAL: "true"}, datums),
        LogBlock(BlockKind.DELETE, header, several),
        delete_block(WRITER, pa.array(["a"]), "p", T),
    ]
    path = tmp_path / f".f-0_{T}.log.1_0-1-1"
    path.write_bytes(LogFile.encode(blocks))
    code, lines, err = run(capsys, path)
    assert (code, err) == (0, "")
    assert [line.split("\t")[2] for line in lines] == ["2", "2", "-", "-", "1"]
    assert lines[0].endswith("\tinstant_time=1\\n\\x1b[2J")


def test_damage_and_absence_are_told_with_their_exit_codes(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(b"no log")
    code, lines, err = run(capsys, file)
    assert (code, lines) == (3, [])
    assert "no log block begins here" in err
    assert run(capsys, f"{file}.gone")[0] == 3
    code, _, err = run(capsys, file.parent)
    assert code == 2
    assert "not a file" in err


def test_hudi_s_own_log_files_are_shown(
    interop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [table] = [one for one in tables(interop) if one.stem == "mor_avro_logs_v6"]
    for name, body in log_files(table):
        path = tmp_path / name.rpartition("/")[2]
        path.write_bytes(body)
        code, lines, _ = run(capsys, path)
        assert code == 0
        assert lines
