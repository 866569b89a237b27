"""Picks the engine that runs a call, by its data. Spark is loaded only for Spark's data."""

from __future__ import annotations

from typing import Any

from metatable.engine.local import LocalEngine
from metatable.engine.protocol import Engine
from metatable.storage.errors import UsageError

__all__ = ["engine_for", "engine_of", "is_spark"]


def engine_for(session: Any) -> Engine[Any]:
    """The engine of a Spark session; for None, that of this process. Raises UsageError for anything
    else."""
    chosen = LocalEngine() if session is None else engine_of(session)
    if session is not None and chosen.in_process:
        raise UsageError("no such engine", found=session, expected="a Spark session, or none")
    return chosen


def engine_of(data: Any, counting: bool = False) -> Engine[Any]:
    """The engine that the data asks for; Spark is loaded only when a DataFrame comes.

    `counting`: on Spark too, lazy steps tell their counters.
    """
    if not is_spark(data):
        return LocalEngine()
    from metatable.spark.counting import CountingEngine  # noqa: PLC0415  (first use of Spark)
    from metatable.spark.engine import SparkEngine  # noqa: PLC0415

    return CountingEngine(data) if counting else SparkEngine(data)


def is_spark(data: Any) -> bool:
    """Whether this is an object of Spark's; told without loading Spark."""
    return type(data).__module__.startswith("pyspark.")
