"""MERGE INTO of Delta and of Iceberg, in a Spark of theirs: nothing but pyspark is imported.

    python -m benchmarks.peers.spark_merge delta|iceberg CLASSPATH HEAP

does what lines of its input ask it, and answers each with one line: seconds, and a number.

    make   FOLDER ROWS          a table of the rows of a Parquet file, by day
    merge  FOLDER ROWS KIND     these rows into it, by id and day
    count  FOLDER               its rows

FOLDER is the place of the table; of Iceberg's the warehouse, which must stay where it was made,
for its metadata have whole addresses. KIND is `cow` or `mor`: files are written anew, or rows
are marked as deleted (Delta's deletion vectors, Iceberg's position deletes).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["ANSWER", "KINDS", "MASTER", "SETTINGS", "serve"]

ANSWER = "answer:"
"""Begins the lines that answer: Spark may print others."""

MASTER = "local[2]"

KINDS = {"cow": "copy-on-write", "mor": "merge-on-read"}

_QUIET = Path(__file__).resolve().parents[2] / "metatable" / "spark" / "log4j2.properties"

SETTINGS = {
    "spark.master": MASTER,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile=file:{_QUIET}",
    "spark.sql.shuffle.partitions": "4",
}
"""What all sessions that are compared have in common, but for heap and class path."""

_FORMATS: dict[str, dict[str, str]] = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "4",  # 50 tasks for a log of few files
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    },
}

_MERGE = """
    MERGE INTO {} AS held USING batch ON held.id = batch.id AND held.day = batch.day
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


def serve(verbs: dict[str, Callable[..., int | None]]) -> None:
    """Answer lines of standard input, tabs between words, until it ends."""
    for line in sys.stdin:
        verb, *told = line.rstrip("\n").split("\t")
        began = time.perf_counter()
        count = verbs[verb](*told)
        print(ANSWER, time.perf_counter() - began, count or 0, flush=True)


class Delta:
    """Each folder is a table."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def make(self, folder: str, rows: str) -> None:
        by_day = self._session.read.parquet(rows).repartition("day")
        by_day.write.format("delta").partitionBy("day").save(folder)

    def merge(self, folder: str, rows: str, kind: str) -> None:
        table = f"delta.`{folder}`"
        if kind == "mor":
            setting = "'delta.enableDeletionVectors' = 'true'"
            self._session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({setting})")
        self._session.read.parquet(rows).createOrReplaceTempView("batch")
        self._session.sql(_MERGE.format(table))

    def count(self, folder: str) -> int:
        return int(self._session.read.format("delta").load(folder).count())


class Iceberg:
    """Each folder is a catalog's warehouse, under a name that nothing remembers."""

    def __init__(self, session: Any) -> None:
        self._session, self._catalogs = session, 0

    def make(self, folder: str, rows: str) -> None:
        by_day = self._session.read.parquet(rows).repartition("day").sortWithinPartitions("day")
        by_day.writeTo(self._table(folder)).using("iceberg").partitionedBy("day").create()

    def merge(self, folder: str, rows: str, kind: str) -> None:
        table = self._table(folder)
        setting = f"'write.merge.mode' = '{KINDS[kind]}'"
        self._session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({setting})")
        self._session.read.parquet(rows).createOrReplaceTempView("batch")
        self._session.sql(_MERGE.format(table))

    def count(self, folder: str) -> int:
        return int(self._session.table(self._table(folder)).count())

    def _table(self, folder: str) -> str:
        self._catalogs += 1
        name = f"place{self._catalogs}"
        conf = self._session.conf
        conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
        conf.set(f"spark.sql.catalog.{name}.warehouse", folder)
        return f"{name}.all.rows"


def main(format: str, classes: str, heap: str) -> None:
    """One session, from the first line to the last."""
    os.environ.pop("SPARK_HOME", None)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession  # noqa: PLC0415  (another one than ours may be meant)

    builder = SparkSession.builder.appName(f"merge {format}")
    given = {"spark.driver.memory": heap, "spark.driver.extraClassPath": classes}
    for name, value in (SETTINGS | _FORMATS[format] | given).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    work = Delta(session) if format == "delta" else Iceberg(session)
    serve({"make": work.make, "merge": work.merge, "count": work.count})
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
