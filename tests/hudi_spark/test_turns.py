"""Hudi on Spark writes to a table of ours: its rows are right, and we refuse what comes of it.

Adopting such a table is not there yet. Until it is, every verb that writes says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import metatable
from metatable import UpgradeError
from tests.hudi_spark.histories import FAST, KINDS, Kind, rows
from tests.hudi_spark.session import PEACEFUL, HudiOnSpark
from tests.hudi_spark.writing import check_that_it_is_refused, options_for
from tests.model import arrow, listed

OTHERS = [kind for kind in KINDS if kind.index != "bucket" and kind.hive_style]
TURNS = [*((kind, "BLOOM") for kind in OTHERS), (OTHERS[0], "SIMPLE")]
"""BLOOM needs the filters of our footers; SIMPLE, Spark's own choice, asks nothing of us."""


@pytest.mark.parametrize(("kind", "their_index"), TURNS, ids=str)
def test_an_upsert_by_hudi_updates_our_rows_in_place(
    hudi: HudiOnSpark, table_uri: str, kind: Kind, their_index: str
) -> None:
    table, model = kind.create(table_uri), kind.model
    for given in (rows(0, 40), rows(30, 60, 1)):
        table.upsert(arrow(given))
        model.upsert(given)
    properties = Path(table_uri, ".hoodie", "hoodie.properties").read_bytes()
    theirs = rows(20, 80, 5)
    hudi.write(arrow(theirs), table_uri, options_for(table, hoodie__index__type=their_index))
    model.upsert(theirs)
    assert listed(hudi.read(table_uri).to_pylist()) == model.listed()
    assert Path(table_uri, ".hoodie", "hoodie.properties").read_bytes() == properties
    check_that_it_is_refused(table, rows(0, 1, 9), "another writer has committed to this table")
    told = metatable.open(table_uri, storage_options=FAST).verify()
    assert [finding.code for finding in told.findings] == ["foreign-commit"]


def test_what_hudi_does_by_default_is_told_with_the_way_out(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    """1.x upgrades the table; 0.15.0 leaves its version, and begins a metadata table in it."""
    table = Kind("record", "global").create(table_uri)
    table.insert(arrow(rows(0, 40)))
    default = {name: value for name, value in options_for(table).items() if name not in PEACEFUL}
    hudi.write(arrow(rows(20, 60, 1)), table_uri, default)
    assert hudi.read(table_uri).num_rows == 60
    why = "Hudi keeps a metadata table of its own" if hudi.is_old else "Hudi has upgraded this"
    with pytest.raises(UpgradeError, match=why):
        table.upsert(arrow(rows(0, 1, 9)))
    with pytest.raises(UpgradeError, match=why):
        metatable.open(table_uri, storage_options=FAST)


def test_one_key_and_two_partition_columns_make_keys_that_hudi_has_to_be_told(
    hudi: HudiOnSpark, table_uri: str
) -> None:
    """Hudi has written such keys in two ways (HUDI-7001): `k000`, as we do, and `id:k000`.

    0.15.0 writes them as we do. 1.x refuses to go on by itself, and agrees with us where it is
    told which they are.
    """
    table = metatable.create(
        table_uri,
        arrow([]).schema,
        key="id",
        partition_by=("city", "v"),
        ordering="ts",
        storage_options=FAST,
    )
    table.insert(arrow(rows(0, 20)))
    given = arrow(rows(10, 30))
    if not hudi.is_old:
        with pytest.raises(Exception, match="HUDI-7001"):
            hudi.write(given, table_uri, options_for(table))
    told = {
        "hoodie__write__complex__keygen__new__encoding": "true",
        "hoodie__write__complex__keygen__validation__enable": "false",
    }
    hudi.write(given, table_uri, options_for(table, **told))
    found = hudi.read(table_uri)
    assert listed(found.to_pylist()) == listed(rows(0, 30))
    assert found["_hoodie_record_key"].equals(found["id"])
