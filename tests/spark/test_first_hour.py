"""What a Spark user meets first: the workers' Python, the versions, the addresses of stores.

The session's Python for workers is exchanged under it (`pythonExec`), which Spark looks at
whenever a function is planned: so one session stands for many set-ups.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import UsageError
from metatable.storage.store import Store
from tests.index.rows import SCHEMA, make, rows

pytest.importorskip("pyspark", reason="pyspark is not installed")

from metatable.spark import addresses, demands
from metatable.write import few_rows

ROOT = Path(__file__).resolve().parent.parent.parent

WORKER = """#!/bin/sh
shift 2  # -m pyspark.daemon
exec {python} -c '
import runpy, sys
class Lacks:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "{package}":
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Lacks())
sys.argv = ["daemon", *sys.argv[1:]]
runpy.run_module("pyspark.daemon", run_name="__main__")
' "$@"
"""


def python_without(package: str, folder: Path) -> str:
    """A Python that has all but this package."""
    path = folder / f"python-without-{package}"
    path.write_text(WORKER.format(python=sys.executable, package=package))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def workers(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets the Python that Spark starts for its workers; `chosen`: as by PYSPARK_PYTHON."""

    def use(python: str, chosen: bool = True) -> None:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
        if chosen:
            monkeypatch.setenv("PYSPARK_PYTHON", python)
        else:
            monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
            monkeypatch.setenv("PATH", "/usr/bin:/bin")

    return use


@pytest.fixture
def table(tmp_path: Path) -> metatable.Table:
    made = make(str(tmp_path / "table"), "record", "global")
    made.insert(rows(0, 10))
    return made


# The workers' Python


def test_on_one_machine_workers_run_the_driver_s_own_python(
    spark: Any, workers: Any, table: metatable.Table
) -> None:
    workers("/nowhere/python3", chosen=False)
    frame = spark.createDataFrame(rows(5, 15))
    assert table.upsert(frame).inserted == 5
    assert table.filter_exists(frame).count() == 10
    assert spark.sparkContext.pythonExec == "/nowhere/python3"  # the session is as it was


def test_a_python_that_was_chosen_for_the_workers_is_not_exchanged(
    spark: Any, workers: Any, table: metatable.Table
) -> None:
    workers("/nowhere/python3")
    told = r"^Spark cannot start a Python for its workers: set PYSPARK_PYTHON before .*'/nowhere/"
    with pytest.raises(UsageError, match=told) as caught:
        table.upsert(spark.createDataFrame(rows(5, 15)))
    assert "\n" not in str(caught.value)
    assert table.version == 2


def test_planning_leaves_the_python_of_a_cluster_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def planned(master: str) -> str:
        session = type("Session", (), {})()
        session.sparkContext = type("Context", (), {"master": master, "pythonExec": "python3"})()
        with demands.planning(session):
            return session.sparkContext.pythonExec

    assert planned("local[2]") == sys.executable
    assert planned("spark://somewhere:7077") == planned("yarn") == "python3"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # an activated venv
    assert planned("local[2]") == "python3"


def test_a_worker_that_lacks_metatable_is_told_in_a_line(
    spark: Any, workers: Any, table: metatable.Table, tmp_path: Path
) -> None:
    workers(python_without("metatable", tmp_path))
    told = "^a Python of Spark's workers lacks metatable: set PYSPARK_PYTHON before the session"
    with pytest.raises(UsageError, match=told) as caught:
        table.upsert(spark.createDataFrame(rows(5, 15)))
    assert sys.executable in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ("x\nModuleNotFoundError: No module named 'pyarrow'\n", "workers lacks pyarrow: set"),
        ("ModuleNotFoundError: No module named 'numpy.core'", "workers lacks numpy: set"),
        (
            "[X] PyArrow >= 18.0.0 must be installed; however, it was not found.",
            "Spark lacks a package: expected='PyArrow >= 18.0.0' found='it was not found'",
        ),
        (
            'Cannot run program "py3": error=13, Permission denied\n\tat java',
            "found='py3' reason='Permission denied'",
        ),
        ("ModuleNotFoundError: No module named 'numpydoc'", None),
        ("Job aborted due to stage failure", None),
    ],
)
def test_what_can_be_mended_is_known_by_spark_s_words(failure: str, told: str | None) -> None:
    found = demands.mendable(RuntimeError(failure))
    assert (found is None) == (told is None)
    assert (told or "") in str(found)


def test_workers_of_another_python_version_are_told_in_a_line(
    spark: Any, table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")  # as if the driver's
    told = r"^Spark's workers run another Python than the driver: set PYSPARK_PYTHON .* found='3\.1"
    with pytest.raises(UsageError, match=told):
        table.upsert(spark.createDataFrame(rows(5, 15)))


def test_a_failure_of_the_user_s_own_rows_comes_as_spark_tells_it(
    spark: Any, table: metatable.Table
) -> None:
    def needy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import nowhere_to_be_found  # noqa: F401, PLC0415

        yield from batches

    frame = spark.createDataFrame(rows(5, 15))
    with pytest.raises(Exception, match="No module named 'nowhere_to_be_found'") as caught:
        table.upsert(frame.mapInArrow(needy, frame.schema))
    assert not isinstance(caught.value, metatable.MetatableError)


FIRST_HOUR = """
import metatable
from pyspark.sql import SparkSession
from tests.index.rows import rows

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
frame = spark.createDataFrame(rows(0, 12)).coalesce(1)
print(len(metatable.open({uri!r}).filter_exists(frame).collect()))
"""


def test_a_script_of_a_venv_that_is_not_activated_runs(
    spark: Any, table: metatable.Table, tmp_path: Path
) -> None:
    """In a process of its own; `spark` only says that there is a Java."""
    script = tmp_path / "script.py"
    script.write_text(FIRST_HOUR.format(uri=table.uri))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    plain = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    told = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=kept | plain, check=False
    )
    assert told.returncode == 0, told.stderr[-3000:]
    assert told.stdout.split() == ["10"]


# Versions


def test_a_pyspark_that_is_too_old_is_refused_at_its_first_use(
    table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark  # noqa: PLC0415

    for name in [name for name in sys.modules if name.startswith("metatable.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    kind = {"__module__": "pyspark.sql.dataframe", "createDataFrame": None}
    like = type("DataFrame", (), kind)
    told = "^pyspark is too old for metatable: expected='4.1 or newer' found='3.5.1'$"
    for use in (table.upsert, table.tag_locations, table.scan().to_spark):
        with pytest.raises(UsageError, match=told):
            use(like())


@pytest.mark.parametrize(
    ("version", "refused"),
    [("3.5.1", True), ("4.0.2", True), ("4.1.0.dev3", False), ("4.10.0", False), ("5.0", False)],
)
def test_spark_is_held_against_the_least_version(version: str, refused: bool) -> None:
    if refused:
        with pytest.raises(UsageError, match=r"4\.1 or newer"):
            demands.check_version(version, "pyspark")
    else:
        demands.check_version(version, "pyspark")


def test_a_session_of_an_older_spark_is_refused(
    spark: Any, table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame(rows(5, 15))
    monkeypatch.setattr(spark, "version", "4.0.1")
    told = "the session's Spark is too old for metatable: expected='4.1 or newer' found='4.0.1'"
    with pytest.raises(UsageError, match=told):
        table.upsert(frame)
    with pytest.raises(UsageError, match=told):
        table.scan().to_spark(spark)


def test_a_session_that_was_stopped_is_refused(
    spark: Any, table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame(rows(5, 15))
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)  # as `stop` leaves it
    for ask in (table.upsert, table.tag_locations):
        with pytest.raises(UsageError, match="the Spark session was stopped"):
            ask(frame)
    with pytest.raises(UsageError, match="the Spark session was stopped"):
        table.scan().to_spark(spark)


def test_a_package_that_pyspark_asks_for_is_told(
    spark: Any, table: metatable.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    frame = spark.createDataFrame(rows(5, 15))
    with pytest.raises(UsageError, match="Spark lacks a package: expected='Pandas >= "):
        table.upsert(frame)


# What is no session, no rows


def test_what_is_no_session_is_refused(spark: Any, table: metatable.Table) -> None:
    for found in ("local[2]", None, spark.range(1), spark.sparkContext):
        with pytest.raises(UsageError, match="not a Spark session: expected='a SparkSession'"):
            table.scan().to_spark(found)
    with pytest.raises(UsageError, match="these are no rows for Spark"):
        table.tag_locations(spark.range(1)["id"])


def test_read_keys_of_a_dataframe_says_how_to_go_on(spark: Any, table: metatable.Table) -> None:
    keys = spark.createDataFrame(rows(0, 3))
    with pytest.raises(UsageError, match=r"read_keys reads in this process: expected='keys.toArr"):
        table.read_keys(keys)
    assert table.read_keys(keys.toArrow()).num_rows == 3


# Addresses


NAME = "f-0_0-0-0_20240301000000000.parquet"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("s3://bucket/t", "s3a:// .*spark.jars.packages=org.apache.hadoop:hadoop-aws:[0-9.]+,"),
        ("s3a://bucket/t", "s3a:// .*spark.jars.packages=org.apache.hadoop:hadoop-aws:[0-9.]+,"),
        ("gs://bucket/t", "gs:// .*com.google.cloud.bigdataoss:gcs-connector"),
        ("az://box/t", "abfss:// .*spark.jars.packages=org.apache.hadoop:hadoop-azure:[0-9.]+,"),
        ("memory://t", "Spark does not see the memory of this process"),
    ],
)
def test_a_store_that_spark_cannot_reach_is_told_with_the_package(
    spark: Any, uri: str, told: str
) -> None:
    from metatable.spark import parquet  # noqa: PLC0415

    store = Store(uri, {"account_name": "me"} if uri.startswith("az") else {})
    with pytest.raises(UsageError, match=told.replace(":// ", "://: ")):
        parquet.read(spark, store, [NAME], SCHEMA)
    assert parquet.read(spark, store, [], SCHEMA).count() == 0


def test_a_table_in_the_memory_of_this_process_is_refused_where_tasks_would_look_for_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They found no version of it, and the advice was to open it again."""
    table = make("memory://first-hour", "record", "global")
    frame = spark.createDataFrame(rows(0, 3))
    monkeypatch.setattr(few_rows, "ROWS", 10)
    assert table.upsert(frame).engine == "local"
    monkeypatch.setattr(few_rows, "ROWS", 0)
    for ask in (table.tag_locations, table.filter_exists, table.upsert, table.insert_overwrite):
        with pytest.raises(UsageError, match="Spark does not see the memory of this process"):
            ask(frame)
    with pytest.raises(UsageError, match="Spark does not see the memory of this process"):
        table.compact(major=True, engine=spark)
    assert table.scan().count() == 3


@pytest.fixture
def hadoop(spark: Any) -> Iterator[Any]:
    """Makes Hadoop know schemes, for a while."""
    conf = spark._jsc.hadoopConfiguration()
    made: list[str] = []

    def knows(*schemes: str) -> None:
        for scheme in schemes:
            made.append(f"fs.{scheme}.impl")
            conf.set(made[-1], "org.apache.hadoop.fs.LocalFileSystem")

    yield knows
    for name in made:
        conf.unset(name)


def test_addresses_are_those_that_the_session_s_hadoop_knows(spark: Any, hadoop: Any) -> None:
    hadoop("s3a", "gs", "abfss")
    for given in ("s3://bucket/a b", "s3://bucket/a%20b"):  # one folder, for the store
        assert addresses.root_for(spark, Store(given)) == "s3a://bucket/a b"
    assert addresses.root_for(spark, Store("s3://bucket/a%2520b")) == "s3a://bucket/a%20b"
    assert addresses.root_for(spark, Store("gs://bucket/t")) == "gs://bucket/t"
    expected = "abfss://box@me.dfs.core.windows.net/t/u"
    for name in ("account_name", "AZURE_ACCOUNT_NAME", "azure_storage_account_name"):
        assert addresses.root_for(spark, Store("az://box/t/u", {name: "me"})) == expected
    hadoop("s3")  # as EMR's does
    assert addresses.root_for(spark, Store("s3://bucket/t")) == "s3://bucket/t"


def test_an_azure_address_without_an_account_is_refused(
    spark: Any, hadoop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hadoop("abfss")
    store = Store("az://box/t", {"account_name": "me"})
    store.options = {}
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UsageError, match=r"name of the storage account: .*account_name in storage"):
        addresses.root_for(spark, store)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "you")
    assert addresses.root_for(spark, store) == "abfss://box@you.dfs.core.windows.net/t"
    store.uri = "abfss://box@they.dfs.core.windows.net/t"
    assert addresses.root_for(spark, store) == store.uri


def test_on_connect_where_nothing_can_be_asked_addresses_are_the_usual_ones() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    assert addresses.root_for(remote, Store("s3://bucket/t")) == "s3a://bucket/t"
    with demands.planning(remote):
        pass


# Scans


def test_a_limit_holds_on_spark(spark: Any, table: metatable.Table) -> None:
    table.insert(rows(10, 70))
    scan = table.scan(["id"], limit=12)
    frame = scan.to_spark(spark)
    assert len(frame.inputFiles()) == len(scan.files()) < len(table.files())
    assert frame.count() == 12
    assert table.scan(["id"], [("value", ">", 65)], limit=9).to_spark(spark).count() == 4
    assert table.scan(limit=0).to_spark(spark).count() == 0
