"""Files that are skipped hold no row asked for; rows that come are those that DuckDB finds.

Three tables of many small files are made once: Hive style partitions, plain ones of three
columns, and one without partitions that keeps statistics of a few columns only. DuckDB, the
judge, reads the same Parquet files by itself. METATABLE_SEED replays a run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import metatable
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.query.expressions import (
    And,
    Comparison,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    StartsWith,
)
from metatable.query.predicates import bind
from metatable.query.row_dialect import matches
from metatable.query.skipping import keep_files
from tests.every_kind import (
    COLUMNS,
    KINDS,
    LAST,
    LONG_TEXT,
    NAN,
    PARTITIONS,
    SCHEMA,
    made_rows,
    value_of,
)
from tests.long import LONG

SEED = int(os.environ.get("METATABLE_SEED", random.SystemRandom().randrange(1 << 32)))
CASES = 1000 if LONG else 60
"""Predicates for each of the three tables; every `SCANNED`-th is also answered by a scan."""
SCANNED = 25
ROWS = 600
FILE_ROWS = 12


# Predicates, and the same as SQL

ODD: dict[str, list[Any]] = {
    "small": [2**40, -(2**40), 5.5, Decimal("-7.25"), float("inf"), NAN],
    "big": [10**25, Decimal("12345678901234567.5"), -(10**25)],
    "single": [NAN, float("inf"), -0.0, 0, 0.1, Decimal("0.1")],
    "double": [NAN, float("inf"), -0.0, 0, 0.1, 7],
    "price": [Decimal("1.005"), Decimal("-1.005"), 1, Decimal("1E+12"), Decimal("-1E+12")],
    "wide": [Decimal("0.00005"), 0, Decimal(-(10**32)), Decimal("9E+32")],
    "text": ["", "k", LONG_TEXT, LAST, "k0100", "l"],
    "raw": [b"", b"\xff" * 70, b"\x10"],
    "fixed": [b"", b"\x01", b"\x01\x00\x00"],
    "clock": [datetime(1970, 1, 5, 0, 0, 0, 500), datetime(1, 1, 1), datetime(9999, 12, 31)],
    "nothing": [0, 7],
}


class Making:
    """Random predicates, of literals that are near the data, on its edges, or beside it."""

    def __init__(self, seed: int, rows: pa.Table) -> None:
        self.random = random.Random(seed)
        self._names = [name for name in KINDS if name in rows.schema.names and name != "id"]
        self._values = {name: rows[name].drop_null().unique().to_pylist() for name in self._names}

    def expression(self, depth: int = 0) -> Expression:
        roll = self.random.random()
        if depth == 3 or roll < 0.35 + 0.1 * depth:
            return self._leaf(self.random.choice(self._names))
        if roll < 0.5:
            return Not(self.expression(depth + 1))
        kind = And if roll < 0.8 else Or
        return kind(tuple(self.expression(depth + 1) for _ in range(self.random.choice([2, 2, 3]))))

    def _leaf(self, name: str) -> Expression:
        roll = self.random.random()
        if name in ("text", "raw", "city") and roll < 0.25:
            prefix = self._literal(name, nulls=False)
            return StartsWith(name, prefix[: self.random.randrange(1, 72)], roll < 0.1)
        if roll < 0.65:
            op = self.random.choice(["=", "=", "!=", "<", "<=", ">", ">="])
            return Comparison(name, op, self._literal(name))
        if roll < 0.85:
            count = self.random.choice([1, 2, 3, 30])
            return In(name, tuple(self._literal(name) for _ in range(count)), roll > 0.77)
        return IsNull(name, roll > 0.92)

    def _literal(self, name: str, nulls: bool = True) -> Any:
        roll = self.random.random()
        if nulls and roll < 0.02:
            return None
        odd = ODD.get(PARTITIONS.get(name, name))
        if odd and (roll < 0.15 or not self._values[name]):
            return self.random.choice(odd)
        return self.random.choice(self._values[name])


def sql(one: Expression) -> str:
    """The predicate as DuckDB has it."""
    if isinstance(one, And | Or):
        word = " AND " if isinstance(one, And) else " OR "
        return "(" + word.join(sql(term) for term in one.terms) + ")"
    if isinstance(one, Not):
        return f"(NOT {sql(one.term)})"
    if isinstance(one, Comparison):
        return f"({one.column} {one.op} {literal(one.column, one.value)})"
    if isinstance(one, In):
        word = "NOT IN" if one.negated else "IN"
        values = ", ".join(literal(one.column, value) for value in one.values)
        return f"({one.column} {word} ({values}))"
    if isinstance(one, StartsWith):
        return ("NOT " if one.negated else "") + starts_with(one)
    assert isinstance(one, IsNull)
    return f"({one.column} IS {'NOT ' if one.negated else ''}NULL)"


def starts_with(one: StartsWith) -> str:
    if isinstance(one.prefix, str):
        return f"starts_with({one.column}, {literal(one.column, one.prefix)})"
    return f"starts_with(hex({one.column}), '{one.prefix.hex().upper()}')"


def literal(column: str, value: Any) -> str:
    """Decimals and whole numbers are doubles to DuckDB only where the column is."""
    kind = KINDS[column]
    if value is None or isinstance(value, bool):
        return str(value).replace("None", "NULL")
    if pa.types.is_floating(kind) or isinstance(value, float):
        return f"'{float(value)!r}'::DOUBLE"
    if isinstance(value, int | Decimal):
        return f"{Decimal(value):f}"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    names = {pa.date32(): "DATE", pa.time64("us"): "TIME", COLUMNS["moment"]: "TIMESTAMPTZ"}
    return f"'{value.isoformat()}'::{names.get(kind, 'TIMESTAMP')}"


# Tables, and the judge


@dataclass
class Case:
    """A table, its files' rows as the judge holds them, and as Arrow does."""

    table: metatable.Table
    snapshot: Snapshot
    duck: duckdb.DuckDBPyConnection
    rows: pa.RecordBatch
    file_of: dict[str, int]

    def judge(self, one: Expression) -> tuple[set[int], set[int]]:
        """(ordinals of the files with such rows, their ids)."""
        found = self.duck.execute(f"SELECT _file, id FROM rows WHERE {sql(one)}").fetchnumpy()
        return set(found["_file"].tolist()), set(found["id"].tolist())


LAYOUTS: dict[str, dict[str, Any]] = {
    "hive": {"partition_by": ["city", "flag"]},
    "plain": {"partition_by": ["flag", "clock10", "price10"], "options": {"hive_style": False}},
    "none": {"options": {"stats_columns": 9}},
}


@pytest.fixture(scope="module", params=list(LAYOUTS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    layout = dict(LAYOUTS[request.param])
    options = {"file_rows": FILE_ROWS, "small_file_bytes": 0} | layout.pop("options", {})
    uri = str(tmp_path_factory.mktemp("skipping") / request.param)
    schema = SCHEMA
    for name, source in PARTITIONS.items():
        if name in layout.get("partition_by", ()):
            schema = schema.append(pa.field(name, COLUMNS[source]))
    table = metatable.create(
        uri, schema, key="id", options=options, storage_options={"durable": "false"}, **layout
    )
    seeded = random.Random(SEED)
    first, second = made_rows(0, ROWS // 2, seeded), made_rows(ROWS // 2, ROWS // 2, seeded)
    for part in (first, second, changed(first, seeded)):
        table.upsert(coarse(part, schema))
    return judged(table)


def changed(rows: pa.Table, random: random.Random) -> pa.Table:
    """A tenth of the rows, with other values in columns that make no partition."""
    taken = rows.take(random.sample(range(rows.num_rows), rows.num_rows // 10))
    values = [value_of("double", random.randrange(300), random) for _ in range(taken.num_rows)]
    return taken.set_column(
        taken.schema.get_field_index("double"), SCHEMA.field("double"), [values]
    )


def coarse(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the partition columns that a schema has more than `SCHEMA`."""
    for name, source in PARTITIONS.items():
        if name in schema.names:
            step = {"clock10": timedelta(days=20), "price10": Decimal(2)}[name]
            zero: Any = datetime(1969, 12, 20) if name == "clock10" else Decimal(-4)
            values = rows[source].to_pylist()
            cut = [None if one is None else zero + (one - zero) // step * step for one in values]
            rows = rows.append_column(schema.field(name), [pa.array(cut, COLUMNS[source])])
    return rows


def judged(table: metatable.Table) -> Case:
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    files = table.files()
    paths = [f"{table.uri}/{one.path}" for one in files]
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    duck.register("names", pa.table({"name": paths, "_file": np.arange(len(paths))}))
    duck.execute(
        "CREATE TABLE rows AS SELECT _file, r.* EXCLUDE (filename) FROM"
        f" read_parquet([{listed}], filename = true, hive_partitioning = false) r"
        " JOIN names ON r.filename = names.name"
    )
    [batch] = table.scan().to_arrow().combine_chunks().to_batches()
    ordinals = {one.path: number for number, one in enumerate(files)}
    return Case(table, table._snapshot(None), duck, batch, ordinals)


def smallest_failure(one: Expression, fails: Callable[[Expression], bool]) -> Expression:
    """A part of a failing predicate that fails alone, as small as there is."""
    parts = one.terms if isinstance(one, And | Or) else (one.term,) if isinstance(one, Not) else ()
    for part in parts:
        if fails(part):
            return smallest_failure(part, fails)
    return one


def test_no_file_with_a_row_asked_for_is_skipped_and_rows_are_those_of_duckdb(case: Case) -> None:
    """`CASES` random predicates a table; a good part of all files must be skipped."""
    making = Making(SEED + len(case.file_of), pa.table(case.rows))
    skipped = needless = 0

    def fails(one: Expression) -> bool:
        files, ids = case.judge(one)
        kept, found = skipping(case, one)
        return not files <= kept or ids != found

    for number in range(CASES):
        one = making.expression()
        files, ids = case.judge(one)
        kept, found = skipping(case, one)
        if not files <= kept or ids != found:
            small = smallest_failure(one, fails)
            raise AssertionError(f"METATABLE_SEED={SEED}: {small}: {sql(small)}")
        if number % SCANNED == 0:
            told = case.table.scan(["id"], one).to_arrow()["id"].to_pylist()
            assert sorted(told) == sorted(ids), f"METATABLE_SEED={SEED}: {one}"
            assert case.table.scan(where=one).count() == len(ids)
        skipped += len(case.file_of) - len(kept)
        needless += len(case.file_of) - len(files)
    print(f"{skipped} of {needless} files without such rows skipped")
    assert skipped > needless * 0.2


def skipping(case: Case, one: Expression) -> tuple[set[int], set[int]]:
    """(ordinals of the files kept, ids of all rows for which the predicate is true)."""
    bound = bind(one, case.snapshot.schema)
    kept = {case.file_of[file.path] for file in keep_files(bound, case.snapshot).files()}
    return kept, set(case.rows.filter(matches(bound, case.rows))["id"].to_pylist())
