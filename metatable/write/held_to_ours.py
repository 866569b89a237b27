"""Held to ours: files that are there already have whatever our writers would go by, or are refused.

    ids          of columns, where files tell them, are those of the table's columns   UpgradeError
    keys, paths  are the texts that we make of those rows: an upsert would not find
                 them by others                                                        UpgradeError
    placement    of an index that has one tells for each key the file that it is in    UsageError
    footers      of which an index believes what they deny, deny no key: UsageError where only logs
                 hold it, else UpgradeError

What types columns have, and by which calendar their days count, `files_columns.py` looks at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.file_groups.slices import FileSlice
from metatable.data.keys.key_texts import KEY, PATH
from metatable.data.keys.keygen import KeyGenerator
from metatable.index.footer_bloom import denied_by_footer
from metatable.index.placement import placed
from metatable.storage.errors import UpgradeError, UsageError
from metatable.write.stored_files import StoredFiles

__all__ = ["check_footer", "check_ids", "check_rows"]


def check_ids(files: StoredFiles, made: FileSlice, stored: StoredColumns) -> None:
    """Files of a table of ours that has lost its versions carry column ids. Raises UpgradeError
    unless they are those that its columns, and the fields in them, would get now."""
    if not stored.by_id:
        return
    known = files.table.ids()
    called = {number: path for path, number in known.items()}
    for path, found in stored.ids().items():
        if known.get(path, found) != found or called.get(found, path) != path:
            raise UpgradeError(
                "a data file tells its columns by ids that are not the table's: create one from"
                " its rows",
                path=made.path,
                column=path,
                expected=known.get(path),
                found=found,
            )


def check_rows(files: StoredFiles, made: FileSlice, piece: pa.Table) -> None:
    """Rows of a slice have the key texts that we make of them, and are where the index says."""
    if files.foreign:
        _check_texts(files, made, piece)
    placement = files.placement
    if placement is None or not piece.num_rows:
        return
    keys, paths = (piece[name].combine_chunks() for name in (KEY, PATH))
    rows, ids = placed(placement, keys, paths)
    elsewhere = pc.invert(pc.equal(ids, made.file_id)).to_numpy(zero_copy_only=False)
    if elsewhere.any():
        place = int(np.flatnonzero(elsewhere)[0])
        raise UsageError(
            "the index would look for a key in another file group than the one that it is in:"
            " take another index or, where that has buckets, another bucket_count",
            index=files.options.index,
            path=made.path,
            key=keys[int(rows[place])].as_py(),
            expected=ids[place].as_py(),
        )


def _check_texts(files: StoredFiles, made: FileSlice, piece: pa.Table) -> None:
    """Whether keys and partition paths are the texts that our writers would make of these rows."""
    generator = KeyGenerator(files.options, files.schema)
    try:
        made_texts = {KEY: generator.record_keys(piece), PATH: generator.partition_paths(piece)}
    except UsageError as error:
        raise UpgradeError(
            "this table cannot be adopted, our writers do not take keys of rows that it has",
            path=made.path,
            found=str(error),
        ) from error
    for name, expected in made_texts.items():
        _check_equal(made, name, piece[name], expected)
    _check_equal(made, PATH, piece[PATH], pa.scalar(made.partition_path))


def _check_equal(made: FileSlice, name: str, found: pa.ChunkedArray, expected: Any) -> None:
    same = pc.fill_null(pc.equal(found, expected), False).to_numpy()
    if same.all():
        return
    place = int(np.flatnonzero(~same)[0])
    expected = expected[place] if isinstance(expected, pa.Array) else expected
    raise UpgradeError(
        "this table cannot be adopted, its keys or partition paths are not those that our writers"
        " make of the same rows: create one from its rows",
        path=made.path,
        column=name,
        expected=expected.as_py(),
        found=found[place].as_py(),
    )


def check_footer(files: StoredFiles, made: FileSlice, keys: pa.Array) -> None:
    """The filter in a file's footer denies none of the keys that its slice has."""
    denied = denied_by_footer(files.store, made.base, keys)
    if denied and made.logs:
        raise UsageError(
            "keys that only logs hold are in no footer: compact the logs, or take another index,"
            " which does not believe footers",
            index=files.options.index,
            path=made.path,
            found=f"{denied} keys",
        )
    if denied:
        raise UpgradeError(
            "the footer of a data file leaves out keys that are in it: take another index, which"
            " does not believe footers",
            index=files.options.index,
            path=made.path,
            found=f"{denied} keys",
        )
