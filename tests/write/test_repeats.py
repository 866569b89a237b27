"""Keys that are given twice are found wherever hashes are compared."""

from __future__ import annotations

import pyarrow as pa
import pytest

from metatable.data.config.options import Options
from metatable.data.keys.key_texts import KEY, PATH
from metatable.engine.local import LocalEngine
from metatable.storage.errors import UsageError
from metatable.write import prepare

ROWS = 3000


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("scope", ["global", "partition"])
def test_a_key_given_twice_is_found_in_any_batch(
    here: bool, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "HASHES_HERE", ROWS if here else ROWS - 1)
    options = Options(name="t", key=("id",), partition_by=("city",), key_scope=scope)
    keys, paths = [f"key {row}" for row in range(ROWS)], [f"city={row % 3}" for row in range(ROWS)]

    def told(keys: list[str], paths: list[str]) -> prepare.Distinct:
        engine = LocalEngine(2)
        batches = pa.table({KEY: keys, PATH: paths}).to_batches(max_chunksize=700)
        with engine.keep(engine.rows(pa.Table.from_batches(batches))) as rows:
            return prepare.distinct(engine, rows, options, "upsert")

    assert told(keys, paths).count == ROWS
    with pytest.raises(UsageError, match=r"keys repeat in the rows given: keys=\['key 2999'\]"):
        told([keys[-1], *keys[1:]], [paths[-1], *paths[1:]])
    apart = [keys[-1], *keys[1:]], ["city=9", *paths[1:]]
    if scope == "partition":
        assert told(*apart).count == ROWS
    else:
        with pytest.raises(UsageError, match="keys repeat"):
            told(*apart)
