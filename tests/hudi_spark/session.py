"""Hudi on Spark: a session with one pinned bundle, and what tests ask of it.

Rows go in and come out as Parquet files: no Python worker is needed, and a file tells its types.
Nothing of `metatable.spark` is used. It refuses this Spark, which is too old to be its engine;
metatable works in process here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tests.hudi_spark.bundles import jar_of

__all__ = ["HudiOnSpark", "hudi_on_spark"]

ROOT = Path(__file__).resolve().parents[2]

PEACEFUL = {
    "hoodie.metadata.enable": "false",
    "hoodie.write.table.version": "6",
    "hoodie.write.auto.upgrade": "false",
}
"""With these a writer leaves a table of version 6 as it is; 0.15.0 needs only the first."""

_SMALL = {
    f"hoodie.{operation}.shuffle.parallelism": "2"
    for operation in ("upsert", "insert", "bulkinsert", "delete")
}


@dataclass(frozen=True, slots=True)
class HudiOnSpark:
    """A running session. `scratch`: a folder for the files by which rows come and go."""

    session: SparkSession
    version: str
    scratch: Path

    @property
    def is_old(self) -> bool:
        """Whether it is of the line before 1.0."""
        return self.version.startswith("0.")

    def read(self, uri: str, options: Mapping[str, str] | None = None) -> pa.Table:
        """The rows of a table with Hudi's meta columns, as its DataFrame source reads them."""
        frame = self.session.read.format("hudi").options(**dict(options or {})).load(uri)
        return self._collected(frame)

    def as_of(self, uri: str, instant: str) -> pa.Table:
        return self.read(uri, {"as.of.instant": instant})

    def since(self, uri: str, instant: str) -> pa.Table:
        """The rows that were written after an instant."""
        asked = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": instant,
        }
        return self.read(uri, asked)

    def sql(self, query: str) -> pa.Table:
        """What a query answers; of a statement, an empty table."""
        return self._collected(self.session.sql(query))

    def write(self, rows: pa.Table, uri: str, options: Mapping[str, str]) -> None:
        """Append to a table, or make it: what is done is said by the options."""
        path = self.scratch / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(rows, path)
        frame = self.session.read.parquet(str(path))
        frame.write.format("hudi").options(**_SMALL, **options).mode("append").save(uri)

    @contextmanager
    def settings(self, given: Mapping[str, str]) -> Iterator[None]:
        """Of the session, for as long as the block lasts."""
        for name, value in given.items():
            self.session.conf.set(name, value)
        try:
            yield
        finally:
            for name in given:
                self.session.conf.unset(name)

    def _collected(self, frame: DataFrame) -> pa.Table:
        if not frame.columns:
            return pa.table({})
        folder = self.scratch / uuid.uuid4().hex
        frame.coalesce(1).write.parquet(str(folder))
        [file] = folder.glob("*.parquet")
        return pq.ParquetFile(file).read()


@contextmanager
def hudi_on_spark(version: str, scratch: Path) -> Iterator[HudiOnSpark]:
    """A session with the bundle of this version. Raises MissingError where it is not there."""
    os.environ.pop("SPARK_HOME", None)  # another Spark than the pinned one
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName("metatable hudi-spark")
    for name, value in _settings(jar_of(version), scratch).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield HudiOnSpark(session, version, scratch)
    finally:
        session.stop()


def _settings(bundle: Path, scratch: Path) -> dict[str, str]:
    quiet = ROOT / "metatable" / "spark" / "log4j2.properties"
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": str(bundle),
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile=file:{quiet}",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    }
