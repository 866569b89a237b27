"""`metatable hfile …`: what it prints and how it ends."""

from __future__ import annotations

import base64
import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import metatable
from metatable.cli import main as cli
from metatable.storage.errors import (
    AccessError,
    ConflictError,
    CorruptError,
    NotFoundError,
    StaleError,
    StoreError,
    UpgradeError,
    UsageError,
)
from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.file_info import AVG_KEY_LEN, decode_file_info, encode_file_info
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.sound_files import Form, laid_out

KEYS = [b"apple", b"b\xff\0", "żółw".encode()]
VALUES = [b"1", b"\0\1", b""]


@pytest.fixture
def file(tmp_path: Path) -> str:
    with HFileWriter(Store(tmp_path), "a.hfile", codec=Codec.NONE) as writer:
        writer.add(pa.array(KEYS, pa.binary()), pa.array(VALUES, pa.binary()))
        writer.add_meta("body", b"meta!")
        writer.add_file_info("schema", b'{"type": "string"}')
    return str(tmp_path / "a.hfile")


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    try:
        code = cli.main(words)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    told = capsys.readouterr()
    return code, told.out, told.err


def test_meta_prints_one_object(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, err = run(capsys, "hfile", "meta", file, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["codec"], facts["version"], facts["entry_count"]) == ("NONE", "3.3", 3)
    assert facts["comparator"] == "org.apache.hadoop.hbase.KeyValue$KVComparator"
    assert facts["first_key"] == encoded(KEYS[0])
    assert facts["last_key"] == encoded(KEYS[2])
    assert facts["size_bytes"] == Path(file).stat().st_size
    assert facts["trailer"]["entry_count"] == 3
    assert facts["trailer"]["load_on_open_data_offset"] > 0
    assert facts["file_info"]["schema"] == '{"type": "string"}'
    assert facts["file_info"]["KEY_VALUE_VERSION"] == 1
    assert list(facts["meta_blocks"]) == ["body"]


def test_scan_prints_an_object_a_line_in_file_order(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    code, out, _ = run(capsys, "hfile", "scan", file, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    expected = zip(KEYS, VALUES, strict=True)
    assert lines == [{"key": encoded(key), "value": encoded(value)} for key, value in expected]
    assert code == 0


def test_keys_prints_an_object_a_line_without_values(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    code, out, _ = run(capsys, "hfile", "keys", file, "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"key": encoded(key)} for key in KEYS
    ]
    assert code == 0
    lines = run(capsys, "hfile", "keys", file)[1].splitlines()
    assert lines == ["apple", "b'b\\xff\\x00'", "żółw"]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (("--limit", "2"), range(2)),
        (("--limit", "0"), range(0)),
        (("--limit", "99999"), range(3000)),
        (("--prefix", "12"), [12, *range(120, 130), *range(1200, 1300)]),
        (("--prefix", "12", "--limit", "3"), [12, 120, 1200]),
        (("--prefix", "2999"), [2999]),
        (("--prefix", "x"), []),
        (("--prefix", "/"), []),
        (("--prefix", ""), range(3000)),
        (("--prefix", encoded(b"299"), "--key-base64"), [299, *range(2990, 3000)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", ["keys", "scan"])
def test_a_prefix_and_a_limit_choose_entries(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    verb: str,
    words: tuple[str, ...],
    numbers: Sequence[int],
) -> None:
    keys = pa.array(sorted(b"%d" % number for number in range(3000)), pa.binary())
    with HFileWriter(Store(tmp_path), "a.hfile", block_size_bytes=500) as writer:
        writer.add(keys, keys)
    code, out, err = run(capsys, "hfile", verb, f"{tmp_path}/a.hfile", *words)
    expected = sorted(str(number) for number in numbers)
    expected = sorted(map(str, range(3000)))[: len(expected)] if words[0] == "--limit" else expected
    assert (code, err) == (0, "")
    assert [line.split("\t")[0] for line in out.splitlines()] == expected


def test_scans_print_before_they_have_read_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = pa.array([b"%06d" % number for number in range(5000)], pa.binary())
    store = Store(tmp_path)
    with HFileWriter(store, "a.hfile", codec=Codec.NONE, block_size_bytes=500) as writer:
        writer.add(keys, keys)
    path = tmp_path / "a.hfile"
    body = path.read_bytes()
    path.write_bytes(body.replace(b"004000", b"00400x"))  # the checksum of its block is wrong now
    monkeypatch.setattr("metatable.storage.hfile.reading.passes.GROUP_BYTES", 1000)
    for verb in ("keys", "scan"):
        code, out, err = run(capsys, "hfile", verb, str(path))
        assert code == 3
        assert "checksum mismatch" in err
        assert 3000 < len(out.splitlines()) < 4000
        code, out, err = run(capsys, "hfile", verb, str(path), "--limit", "100")
        assert (code, len(out.splitlines()), err) == (0, 100, "")


def test_get_prints_null_for_absent_keys(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = run(capsys, "hfile", "get", file, "żółw", "nope", "apple", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"key": encoded(KEYS[2]), "value": ""},
        {"key": encoded(b"nope"), "value": None},
        {"key": encoded(b"apple"), "value": encoded(b"1")},
    ]
    assert code == 0


def test_get_takes_binary_keys_as_base64(capsys: pytest.CaptureFixture[str], file: str) -> None:
    words = ("hfile", "get", file, "--key-base64", encoded(KEYS[1]), "--json")
    code, out, _ = run(capsys, *words)
    assert json.loads(out) == {"key": encoded(KEYS[1]), "value": encoded(VALUES[1])}
    assert code == 0


def test_verify_prints_no_findings_for_a_sound_file(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    assert run(capsys, "hfile", "verify", file, "--json") == (0, "[]\n", "")
    assert run(capsys, "hfile", "verify", file)[1] == f"{file}: nothing wrong\n"


def test_verify_prints_findings_and_ends_with_1(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    body = Path(file).read_bytes()
    Path(file).write_bytes(body.replace(b"apple", b"appl3", 1))
    code, out, err = run(capsys, "hfile", "verify", file, "--json")
    [finding] = json.loads(out)
    assert (code, err) == (1, "")
    assert finding["code"] == "block"
    assert finding["where"] == "a.hfile offset 0"
    assert "checksum mismatch" in finding["detail"]
    assert run(capsys, "hfile", "verify", file)[:1] == (1,)


def test_people_read_text_where_it_is_text(capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert run(capsys, "hfile", "scan", file)[1].splitlines() == [
        "apple\t1",
        "b'b\\xff\\x00'\tb'\\x00\\x01'",
        "żółw\t",
    ]
    assert run(capsys, "hfile", "get", file, "nope")[1] == "nope\t(absent)\n"
    code, told, _ = run(capsys, "hfile", "meta", file)
    assert code == 0
    assert "entry_count: 3" in told
    assert "first_key: apple" in told


@pytest.mark.parametrize("verb", ["meta", "keys", "scan", "verify", "get"])
def test_missing_file_ends_with_3_and_nothing_on_standard_output(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str
) -> None:
    words = ("hfile", verb, str(tmp_path / "none.hfile"), *(["key"] if verb == "get" else []))
    code, out, err = run(capsys, *words)
    assert (code, out) == (3, "")
    assert err == f"metatable: file is missing: path='none.hfile' store={str(tmp_path)!r}\n"


@pytest.mark.parametrize("verb", ["meta", "keys", "scan"])
def test_damaged_file_ends_with_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str
) -> None:
    (tmp_path / "a.hfile").write_bytes(b"no HFile" * 1000)
    code, out, err = run(capsys, "hfile", verb, str(tmp_path / "a.hfile"), "--json")
    assert (code, out) == (3, "")
    assert "file has no HFile trailer" in err


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("hfile", "meta"),
        ("hfile", "get", "a.hfile"),
        ("hfile", "meta", "folder/"),
        ("hfile", "keys", "a.hfile", "--limit", "few"),
        ("hfile", "keys", "a.hfile", "--limit", "-1"),
        ("hfile", "scan", "a.hfile", "--prefix", "%", "--key-base64"),
        ("hfile", "scan", "a.hfile", "b.hfile"),
        ("hfile", "meta", "nowhere://bucket/a.hfile"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("metatable")
    assert err.count("\n") == 1


def test_keys_that_are_no_base64_end_with_2(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, _, err = run(capsys, "hfile", "get", file, "--key-base64", "a")
    assert code == 2
    assert "key is not base64: Invalid base64-encoded string" in err
    assert err.endswith("found='a'\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConflictError, 4),
        (StaleError, 4),
        (StoreError, 4),
        (UpgradeError, 3),
        (CorruptError, 3),
        (NotFoundError, 3),
        (AccessError, 3),
        (UsageError, 2),
    ],
)
def test_every_error_has_an_exit_code(
    capsys: pytest.CaptureFixture[str],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    code: int,
) -> None:
    def fails(*_: object) -> None:
        raise error("it happened")

    monkeypatch.setattr("metatable.storage.hfile.inspect.meta", fails)
    assert run(capsys, "hfile", "meta", file) == (code, "", "metatable: it happened\n")


class Panic(BaseException):
    """As a library in Rust ends: no Exception."""


@pytest.mark.parametrize("error", [ValueError, OSError, RecursionError, Panic])
@pytest.mark.parametrize("debug", ["", "1"])
def test_what_nobody_expected_ends_with_5_and_a_line(
    capsys: pytest.CaptureFixture[str],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    debug: str,
) -> None:
    def fails(*_: object) -> None:
        raise error("it happened\nsomewhere\n\nDebug source {")

    monkeypatch.setattr("metatable.storage.hfile.inspect.meta", fails)
    monkeypatch.setenv("METATABLE_DEBUG", debug)
    code, out, err = run(capsys, "hfile", "meta", file)
    assert (code, out) == (5, "")
    *before, last = err.splitlines()
    assert last.startswith(
        f"metatable: unexpected {error.__name__}: it happened somewhere: a fault"
    )
    assert "open an issue" in last
    assert "METATABLE_DEBUG=1" in last
    assert any("Traceback" in line for line in before) == bool(debug)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), ""),
        (pa.ArrowMemoryError("malloc of size 64 failed"), ": found='malloc of size 64 failed'"),
        (OSError(errno.ENOMEM, "no map"), ": found='[Errno 12] no map'"),
    ],
)
def test_too_little_memory_is_no_fault_of_ours(
    capsys: pytest.CaptureFixture[str],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    told: str,
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("metatable.storage.hfile.inspect.meta", fails)
    message = f"not enough memory{told}"
    assert run(capsys, "hfile", "meta", file) == (4, "", f"metatable: {message}\n")
    code, _, err = run(capsys, "hfile", "meta", file, "--json")
    named = json.loads(err)
    assert (code, named["error"], named["message"]) == (4, "MemoryError", message)


def test_interrupt_ends_in_a_line_and_130(
    capsys: pytest.CaptureFixture[str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("metatable.storage.hfile.inspect.meta", interrupted)
    assert run(capsys, "hfile", "meta", file) == (130, "", "metatable: interrupted\n")


@pytest.mark.parametrize("words", [(), ("hfile",)], ids=["metatable", "metatable hfile"])
def test_command_without_a_verb_shows_help(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith(" ".join(["usage: metatable", *words]))
    assert ("describe" in err) == (words == ())
    assert "verify" in err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"metatable {metatable.__version__}\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full here")
def test_output_that_finds_no_room_ends_with_2_and_a_line(file: str) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "metatable", "hfile", "scan", file]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_python_m_metatable_is_the_same_program(file: str) -> None:
    command = [sys.executable, "-m", "metatable", "hfile", "scan", file, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""


def test_keys_that_the_terminal_cannot_show_are_spelled(file: str) -> None:
    command = [sys.executable, "-m", "metatable", "hfile", "keys", file]
    encoding = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, check=True, env=encoding)
    assert done.stdout.splitlines()[2] == rb"\u017c\xf3\u0142w"
    assert done.stderr == b""


@pytest.mark.parametrize(("verb", "first"), [("scan", "000000\t000000\n"), ("keys", "000000\n")])
def test_a_closed_pipe_is_no_error(tmp_path: Path, verb: str, first: str) -> None:
    keys = pa.array([b"%06d" % number for number in range(100_000)], pa.binary())
    with HFileWriter(Store(tmp_path), "a.hfile") as writer:
        writer.add(keys, keys)
    command = f"{sys.executable} -m metatable hfile {verb} {tmp_path}/a.hfile | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (first, "")


def test_files_of_other_writers_are_shown(
    capsys: pytest.CaptureFixture[str], interop: Path
) -> None:
    for file in sorted((interop / "hfile").iterdir()):
        code, out, _ = run(capsys, "hfile", "verify", str(file), "--json")
        assert (code, out) == (0, "[]\n")
        code, out, _ = run(capsys, "hfile", "meta", str(file), "--json")
        assert json.loads(out)["meta_blocks"].keys() == {"bloomFilter"}


def test_facts_of_strange_bytes_are_told_in_their_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw = laid_out(Form())
    info = raw.roots[2]
    facts = decode_file_info(info.payload, "", 0)
    facts |= {AVG_KEY_LEN: b"\1" * 2000, b"text\n": b"1\n\x1b[2J", b"CREATE": b"\xff"}
    info.payload = encode_file_info(facts)
    raw.trailer = [(n, b"Java\x1b[2J" if n == 11 else told) for n, told in raw.trailer]
    path = tmp_path / "a.hfile"
    path.write_bytes(raw.build())
    code, out, err = run(capsys, "hfile", "meta", str(path))
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "  text\\n: 1\\n\\x1b[2J\n" in out
    assert "comparator: Java\\x1b[2J\n" in out
    code, out, err = run(capsys, "hfile", "meta", str(path), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)["file_info"]
    assert told["hfile.AVG_KEY_LEN"] == "\1" * 2000
    assert told["text\n"] == "1\n\x1b[2J"


def test_a_file_url_names_the_file_that_its_path_does(
    capsys: pytest.CaptureFixture[str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(file).rename(Path(file).with_name("a b.hfile"))
    code, out, _ = run(capsys, "hfile", "keys", f"file://{path.parent}/a%20b.hfile")
    assert (code, len(out.splitlines())) == (0, len(KEYS))
    monkeypatch.chdir(path.parent)
    code, _, err = run(capsys, "hfile", "keys", "file:///a%20b.hfile")  # not in this folder
    assert (code, err) == (3, "metatable: file is missing: path='a b.hfile' store='/'\n")
