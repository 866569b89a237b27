"""Locations whose texts are numbers: the same for whoever reads them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metatable.index.locations import (
    CODED_LOCATION,
    LOCATION,
    LOCATION_COLUMN,
    coded_locations,
    location_codes,
    location_texts,
    locations,
    without_codes,
)

GROUPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("fgh")), min_size=1, max_size=4, unique=True
)


@given(GROUPS, GROUPS, st.lists(st.integers(-1, 3), max_size=12), st.integers(0, 12))
def test_coded_locations_tell_what_texts_do(
    one: list[tuple[str, str]], other: list[tuple[str, str]], rows: list[int], start: int
) -> None:
    parts = []
    for groups in (one, other):
        places = np.array([row if row < len(groups) else -1 for row in rows], np.int64)
        told = places, *(list(texts) for texts in zip(*groups, strict=True)), ["1"] * len(groups)
        parts.append((coded_locations(*told), locations(*told)))
    cases = [parts[0], tuple(map(pa.concat_arrays, zip(*parts, strict=True)))]
    cases += [(coded[start:], plain[start:]) for coded, plain in cases]
    for coded, plain in cases:
        assert coded.type == CODED_LOCATION
        assert plain.type == LOCATION
        for name in ("partition_path", "file_id", "instant"):
            assert location_texts(coded, name).equals(location_texts(plain, name))
        codes = location_codes(coded)
        assert codes is not None
        of, paths, ids = codes
        named = [None if row < 0 else (paths[row], ids[row]) for row in of.tolist()]
        texts = (location_texts(plain, name).to_pylist() for name in ("partition_path", "file_id"))
        assert named == [
            None if path is None else (path, name) for path, name in zip(*texts, strict=True)
        ]
        table = pa.table({LOCATION_COLUMN: coded, "n": range(len(coded))})
        assert without_codes(table)[LOCATION_COLUMN].combine_chunks().equals(plain)
    assert location_codes(parts[0][1]) is None
