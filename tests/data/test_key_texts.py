"""Which column tells keys: a table's own where it has the same texts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from metatable.data.config.options import Options
from metatable.data.keys.key_texts import KEY, key_column

TEXT, NUMBER = pa.schema([("id", pa.string()), ("v", pa.int64())]), pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("key", "schema", "expected"),
    [
        ("id", TEXT, "id"),
        ("id", pa.schema([("v", pa.int64())]), KEY),
        ("id", NUMBER, KEY),
        ("id", pa.schema([("id", pa.large_string())]), KEY),
        (["id", "v"], TEXT, KEY),
    ],
)
def test_a_key_of_one_column_of_text_stands_there(
    key: str | list[str], schema: pa.Schema, expected: str
) -> None:
    assert key_column(Options.create("t", ["id", "v"], key=key), schema) == expected
