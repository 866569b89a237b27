"""The columns of files that another software wrote, held against those of the table that they come
into: what we, or Hudi's readers, would read otherwise than it was meant is refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from metatable.data.columns.align import align, is_list
from metatable.data.columns.old_calendar import by_old_calendar
from metatable.storage.errors import UpgradeError, UsageError

__all__ = ["check_calendar", "check_columns"]


def check_calendar(footer: pq.FileMetaData, path: str) -> None:
    """Raises UpgradeError for times that are told by a calendar of other days."""
    column = by_old_calendar(footer)
    if column is not None:
        raise UpgradeError(
            "a data file has days or moments of long ago by the calendar of Spark 2, which our"
            " files have not: create one from its rows",
            path=path,
            column=column,
            expected="spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED",
        )


def check_columns(schema: pa.Schema, held: pa.Schema, path: str) -> None:
    """Raises UpgradeError unless each column of `schema` can be read of the columns `held`."""
    for field in schema:
        if field.name in held.names:
            found = held.field(field.name).type
            what = _misfit(field, found)
            if what:
                told = {"column": field.name, "expected": str(field.type), "found": str(found)}
                raise UpgradeError(what, path=path, **told)
        elif not field.nullable:
            what = "a data file lacks a column that may not be null: rewrite it first"
            raise UpgradeError(what, path=path, column=field.name)


def _misfit(field: pa.Field, found: pa.DataType) -> str:
    """What is wrong with a file's column of this type; "": nothing."""
    found = _without_gone(found, field.type)
    try:
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, found)], names=[field.name])
        align(nothing, pa.schema([field]))
    except UsageError:
        return "a data file has a column of another type than the table: rewrite it first"
    if _anywhere(_is_finer, found, field.type):
        return (
            "a data file has microseconds in a column of milliseconds, which newer releases of"
            " Hudi take for milliseconds: have Hudi write it anew"
        )
    if _anywhere(_bends, found, field.type):
        return (
            "a data file has floats in a column of doubles, which Hudi's readers widen by"
            " their decimal texts: have Hudi write it anew, by a clustering or an update of"
            " its rows"
        )
    return ""


def _without_gone(found: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """The type without those fields of structs that the table's has no more: readers pass them
    over. Where none of them is left Spark reads no struct, and so it is another type."""
    t = pa.types
    if t.is_struct(found) and t.is_struct(kind):
        names = [one.name for one in kind]
        left = [one for one in found if one.name in names]
        fields = [_field_without_gone(one, kind.field(one.name)) for one in left]
        return pa.struct(fields) if left else found
    if t.is_map(found) and t.is_map(kind):
        return pa.map_(found.key_type, _field_without_gone(found.item_field, kind.item_field))
    if is_list(found) and is_list(kind):
        return pa.list_(_field_without_gone(found.value_field, kind.value_field))
    return found


def _field_without_gone(found: pa.Field, field: pa.Field) -> pa.Field:
    return found.with_type(_without_gone(found.type, field.type))


def _is_finer(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether moments of microseconds become milliseconds: Hudi 0.14 to 1.0 called numbers so that
    are milliseconds."""
    both = pa.types.is_timestamp(found) and pa.types.is_timestamp(kind)
    return bool(both and kind.unit == "ms" and found.unit in ("us", "ns"))


def _bends(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether floats become doubles: 0.1 would be another number for Hudi."""
    return bool(pa.types.is_float32(found) and pa.types.is_float64(kind))


def _anywhere(
    is_so: Callable[[pa.DataType, pa.DataType], bool], found: pa.DataType, kind: pa.DataType
) -> bool:
    """Whether it is so of these types, or of any two that stand for each other within."""
    if not pa.types.is_nested(found):
        return is_so(found, kind)
    if pa.types.is_map(found):
        return _anywhere(is_so, found.item_type, kind.item_type)
    if pa.types.is_struct(found):
        return any(_anywhere(is_so, one.type, kind.field(one.name).type) for one in found)
    return _anywhere(is_so, found.value_type, kind.value_type)
