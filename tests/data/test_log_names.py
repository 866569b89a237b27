"""Names of log files: Hudi's pattern, Hudi's files, hostile ones."""

from __future__ import annotations

import pickle
import re
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metatable.data.file_groups.log_names import LogName, log_write_token
from metatable.storage.errors import CorruptError
from tests.storage.hudi_log.corpus import log_files, tables

T = "20250102030405006"
HUDI = re.compile(r"^\.([^._]+)_([^.]*)\.(log|archive)\.(\d+)(_((\d+)-(\d+)-(\d+))(.cdc)?)?")
"""What Hudi takes names apart by (FSUtils.LOG_FILE_PATTERN)."""
MOST = (1 << 31) - 1
NAMES = st.builds(
    LogName,
    st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True),
    st.sampled_from([T, T[:14]]),
    st.integers(1, MOST),
    st.builds(
        log_write_token,
        st.uuids().map(lambda one: one.hex),
        st.integers(0, MOST // 2),
        st.booleans(),
    ),
)


@given(NAMES)
def test_a_name_is_its_encoding_and_hudi_takes_it_apart_alike(name: LogName) -> None:
    assert LogName.decode(name.name) == name
    assert pickle.loads(pickle.dumps(name)) == name
    cut = HUDI.fullmatch(name.name)
    assert cut
    assert cut.group(1, 2, 4, 6) == (
        name.file_id,
        name.base_instant,
        str(name.version),
        name.write_token,
    )
    assert all(int(number) <= MOST for number in cut.group(7, 8, 9))


@pytest.mark.parametrize(
    "name",
    [
        "",
        f"f-0_{T}.log.1_0-0-0",
        f".f-0_{T}.log.1",
        f".f-0_{T}.log.0_0-0-0",
        f".f-0_{T}.log.01_0-0-0",
        f".f-0_{T}.log.-1_0-0-0",
        f".f-0_{T}.log.2147483648_0-0-0",
        f".f-0_{T}.log.1_0-0-2147483648",
        f".f-0_{T}.log.1_0-00-0",
        f".f-0_{T}.log.1_0-0",
        f".f-0_{T}.log.1_a-0-0",
        f".f-0_{T}.log.1_\u0660-0-0",
        f".f-0_{T}.log.1_0-0-0.cdc",
        f".f-0_{T}.log.1_0-0-0\n",
        f".f-0_{T}.log.1_0-0-0.crc",
        f"..f-0_{T}.log.1_0-0-0.crc",
        f".f-0_{T}0.log.1_0-0-0",
        f".f_0_{T}.log.1_0-0-0",
        f".f.0_{T}.log.1_0-0-0",
        f"./f-0_{T}.log.1_0-0-0",
        f".a/f-0_{T}.log.1_0-0-0",
        f".a\\f-0_{T}.log.1_0-0-0",
        f".f-0_{T}.archive.1_0-0-0",
        f"._{T}.log.1_0-0-0",
    ],
)
def test_a_name_that_is_none_is_damage(name: str) -> None:
    with pytest.raises(CorruptError, match="not the name of a log file"):
        LogName.decode(name)


def test_logs_are_ordered_by_number_not_by_text() -> None:
    names = [LogName("f-0", T, version, "1-0-0") for version in (1, 2, 10)]
    later = LogName("f-0", str(int(T) + 1), 1, "0-0-0")
    assert sorted([later, *reversed(names)], key=lambda one: one.order) == [*names, later]


def test_writers_never_plan_one_name() -> None:
    nonces = [uuid.uuid4().hex for _ in range(1000)]
    tokens = {log_write_token(one, place, True) for one in nonces for place in (0, 1)}
    assert len(tokens) == 2000
    assert log_write_token("f" * 32, 7, True) == f"15-{MOST}-{MOST}"
    assert log_write_token("0" * 32, 7, False) == "14-0-0"
    for may_delete in (True, False):
        token = log_write_token("f" * 32, 7, may_delete)
        assert LogName("f-0", T, 1, token).may_delete is may_delete


def test_names_of_hudi_s_tables_are_taken_apart(interop: Path) -> None:
    [table] = [one for one in tables(interop) if one.stem == "mor_avro_logs_v6"]
    paths = [path for path, _ in log_files(table) if "/.hoodie/" not in path]
    names = [LogName.decode(path.rpartition("/")[2]) for path in paths]
    assert [one.name for one in names] == [path.rpartition("/")[2] for path in paths]
    assert {one.version for one in names} == {1, 2, 3, 4, 5}
    assert len(names) == 24
