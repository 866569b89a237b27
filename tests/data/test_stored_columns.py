"""Columns of a data file: by id where the file tells ids of ours, else by what they were called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metatable import CorruptError
from metatable.data.base_files import base_file, statistics
from metatable.data.base_files.base_file_writer import write_base_file
from metatable.data.columns.schema import with_meta_columns
from metatable.data.columns.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
    changed,
)
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import Options
from metatable.data.file_groups.slices import DataFile
from metatable.storage.parquet.fields import Element, Footer
from metatable.storage.store import Store
from tests.storage.parquet.files import footer_of, with_footer

FIELD_ID = 9
"""Of a SchemaElement."""
FILE = DataFile("", "f-0", "0-0-0", "20260101000000000")
OPTIONS = Options.create("t", ["id"], key="id", options={"hudi_readable": False})
BEFORE = TableSchema.of(
    pa.schema([("id", pa.int32()), ("a", pa.int32()), ("s", pa.struct([("x", pa.int32())]))])
)
ROWS = [{"id": 1, "a": 5, "s": {"x": 7}}, {"id": 2, "a": None, "s": None}]
CHANGES = (
    RenameColumn("a", "b"),
    WidenColumn("b", pa.int64()),
    AddColumn("a", pa.string()),
    RenameColumn("s.x", "y"),
    AddColumn("s.x", pa.string()),
)
AFTER = changed(BEFORE, CHANGES, OPTIONS)


def stored(folder: Path, columns: TableSchema | None) -> Store:
    store = Store(folder, {"durable": "false"})
    nothing = dict.fromkeys(with_meta_columns(pa.schema([])).names, "")
    rows = [nothing | {"_hoodie_record_key": str(row["id"])} | row for row in ROWS]
    table = pa.Table.from_pylist(rows, with_meta_columns(BEFORE.arrow))
    write_base_file(store, FILE, table, options=OPTIONS, columns=columns)
    return store


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_file_of_before_has_the_columns_under_whatever_name(
    tmp_path: Path, with_ids: bool
) -> None:
    store = stored(tmp_path, BEFORE if with_ids else None)
    for read in (base_file.read_base_file, base_file.stream_base_file):
        found: Any = read(store, FILE, AFTER.arrow, AFTER)
        found = found if isinstance(found, pa.Table) else pa.concat_tables(found)
        assert found.schema == AFTER.arrow
        assert found.to_pylist() == [
            {"id": 1, "b": 5, "s": {"y": 7, "x": None}, "a": None},
            {"id": 2, "b": None, "s": None, "a": None},
        ]
    [a, b] = statistics.of_file(store, FILE, ["id", "b", "a", "s"], AFTER)[:2]
    assert (a.column, b.column, b.minimum, b.null_count) == ("id", "b", 5, 1)


def test_ids_of_other_engines_are_passed_over(tmp_path: Path) -> None:
    store = stored(tmp_path, None)
    path = tmp_path / FILE.path
    held = pq.read_table(path)
    swapped = {"id": b"2", "a": b"1"}
    fields = [
        one.with_metadata({b"PARQUET:field_id": swapped[one.name]}) if one.name in swapped else one
        for one in held.schema
    ]
    pq.write_table(held.cast(pa.schema(fields)), path, store_schema=False)
    found = base_file.read_base_file(store, FILE, BEFORE.arrow, BEFORE)
    assert found["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("with_ids", [True, False])
def test_two_columns_of_one_name_are_damage(tmp_path: Path, with_ids: bool) -> None:
    store = stored(tmp_path, BEFORE if with_ids else None)
    path = tmp_path / FILE.path
    held = pq.read_table(path)
    names = ["id" if name == "a" else name for name in held.schema.names]
    pq.write_table(held.rename_columns(names), path, store_schema=False)
    for read in (base_file.read_base_file, base_file.stream_base_file):
        with pytest.raises(CorruptError, match=r"two columns of a file have one name.*'id'"):
            list(read(store, FILE, BEFORE.arrow, BEFORE))


@pytest.mark.parametrize("path", ["a", "s.x"])
@pytest.mark.parametrize("bit", range(8))
def test_one_bit_of_a_column_s_id_is_damage(tmp_path: Path, path: str, bit: int) -> None:
    """It would be a column that nobody knows, and the table's null in all rows."""
    store = stored(tmp_path, BEFORE)
    raw = store.fetch(FILE.path)
    footer = footer_of(raw)
    [element] = [one for one in footer[Footer.SCHEMA] if one[Element.NAME] == path[-1].encode()]
    turned = element[FIELD_ID] << 1 ^ 1 << bit
    element[FIELD_ID] = turned >> 1 ^ -(turned & 1)
    store.put(FILE.path, with_footer(raw, footer))
    for read in (base_file.read_base_file, base_file.stream_base_file):
        with pytest.raises(CorruptError, match="column ids"):
            [*read(store, FILE, BEFORE.arrow, BEFORE)]
    with pytest.raises(CorruptError, match="column ids"):
        statistics.of_file(store, FILE, ["id"], BEFORE)


def test_a_struct_of_which_a_field_came_again_is_not_taken_as_it_is(tmp_path: Path) -> None:
    store = stored(tmp_path, BEFORE)
    again = (AddColumn("s.z", pa.int8()), DropColumn("s.x"), AddColumn("s.x", pa.int32()))
    after = changed(BEFORE, (*again, DropColumn("s.z")), OPTIONS)
    assert after.arrow == BEFORE.arrow
    found = base_file.read_base_file(store, FILE, after.arrow, after)
    assert found["s"].to_pylist() == [{"x": None}, None]


def test_required_fields_that_a_file_lacks_or_has_null_are_damage(tmp_path: Path) -> None:
    schema = pa.schema([*BEFORE.arrow])
    strict = pa.struct([pa.field("x", pa.int32(), False)])
    store = stored(tmp_path, BEFORE)
    required = TableSchema.of(schema.set(2, pa.field("s", strict)))
    found = base_file.read_base_file(store, FILE, required.arrow, required)
    assert found["s"].to_pylist() == [{"x": 7}, None]
    ROWS[0]["s"] = {"x": None}
    try:
        store = stored(tmp_path / "null", BEFORE)
    finally:
        ROWS[0]["s"] = {"x": 7}
    with pytest.raises(CorruptError, match=r"nulls in a required column.*s\.x"):
        base_file.read_base_file(store, FILE, required.arrow, required)
    [struct] = [replace(one, id=9) for one in required.columns[2].inner]
    other = replace(required, columns=(replace(required.columns[2], inner=(struct,)),))
    with pytest.raises(CorruptError, match="another type"):
        base_file.read_base_file(store, FILE, other.arrow, other)
