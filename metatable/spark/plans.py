"""What the optimized plan of a DataFrame tells, before anything runs: how large its source is, and
whether its rows are read as they lie there. Spark Connect shows no plans: nobody asks there."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["is_stored", "size_told"]

_CATALYST = "org.apache.spark.sql.catalyst"
_SOURCES = {
    "org.apache.spark.sql.execution.datasources.LogicalRelation",
    f"{_CATALYST}.plans.logical.LocalRelation",
    f"{_CATALYST}.plans.logical.Range",
}
"""Files (other relations tell of no size that is few), rows of the driver, and numbers."""

_CHOOSING = {f"{_CATALYST}.plans.logical.{one}" for one in ("Filter", "Project")}
_COMPARING = {
    f"{_CATALYST}.expressions.{one}"
    for one in (
        *("Alias", "AttributeReference", "Cast", "Literal"),
        *("And", "Or", "Not", "In", "InSet", "IsNull", "IsNotNull"),
        *("EqualTo", "EqualNullSafe"),
        *("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"),
    )
}
_KNOWN = _SOURCES | _CHOOSING | _COMPARING
_CLASS = re.compile(r'"class":"([^"]+)"')


def size_told(rows: Any) -> int:
    """Bytes by the statistics of the plan: exact for files and rows of the driver, far too many for
    what it knows nothing of."""
    return int(_plan(rows).stats().sizeInBytes())


def is_stored(rows: Any) -> bool:
    """Whether nothing is done but reading one source: columns chosen, renamed, cast or filled with
    a constant, rows chosen by comparing. What anything else costs, or does besides, is unknown, and
    whether it makes the same rows another time."""
    return set(_CLASS.findall(_plan(rows).toJSON())) <= _KNOWN


def _plan(rows: Any) -> Any:
    """Of the same rows, as another DataFrame: that one's own is made once, and would not know that
    it is kept from now on, by us or by its owner."""
    return rows.select("*")._jdf.queryExecution().optimizedPlan()
