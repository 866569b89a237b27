"""Whole merge-on-read tables of Hudi's read by our parts: slices are found here, by listing."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from pathlib import Path

import fastavro
import pyarrow as pa

from metatable.data.base_files.base_file import read_base_file
from metatable.data.columns.read_columns import ReadColumns
from metatable.data.file_groups.log_names import LogName
from metatable.data.file_groups.slices import DataFile
from metatable.data.logs.log_merge import SliceLogs, live_blocks
from metatable.storage.hudi_log.block import HeaderKey
from metatable.storage.hudi_log.log_file import LogFile
from metatable.storage.store import Store

__all__ = ["read_table", "unpacked"]

PIECE = 100


def unpacked(archive: Path, folder: Path) -> Path:
    """The folder of a table that was zipped."""
    with zipfile.ZipFile(archive) as inside:
        names = [one for one in inside.namelist() if not one.startswith("__MACOSX")]
        inside.extractall(folder, names)
    return folder / names[0].partition("/")[0]


def read_table(root: Path, schema: pa.Schema, ordering: str | None) -> pa.Table:
    """All rows of a table of version 6, 8 or 9, these columns of them."""
    published, replaced = _timeline(root)
    bases: dict[tuple[str, str], DataFile] = {}
    logs: defaultdict[tuple[str, str], list[tuple[LogName, LogFile]]] = defaultdict(list)
    for path in sorted(root.rglob("*")):
        folder = "/".join(path.relative_to(root).parts[:-1])
        if path.relative_to(root).parts[0] == ".hoodie" or path.name.endswith(".crc"):
            continue
        if path.suffix == ".parquet":
            base = DataFile.decode(path.relative_to(root).as_posix())
            newest = bases.get((folder, base.file_id))
            if base.instant in published and (newest is None or newest.instant < base.instant):
                bases[folder, base.file_id] = base
        elif ".log." in path.name:
            name = LogName.decode(path.name)
            logs[folder, name.file_id].append((name, LogFile.decode(path.read_bytes(), path.name)))
    parts = [schema.empty_table()]
    for folder, file_id in sorted({*bases, *logs} - replaced):
        held = bases.get((folder, file_id))
        parts += _slice(root, held, logs[folder, file_id], published, schema, ordering)
    return pa.concat_tables(parts)


def _slice(
    root: Path,
    base: DataFile | None,
    logs: list[tuple[LogName, LogFile]],
    published: set[str],
    schema: pa.Schema,
    ordering: str | None,
) -> list[pa.Table]:
    """Logs are ordered by their instants: those of a resize are all of one version."""
    table = None if base is None else read_base_file(Store(root), base, schema)
    if base is None:
        logs = [one for one in logs if one[0].base_instant in published]
    files = sorted((file for _, file in logs), key=_instant)
    late = [file for file in files if base is None or _instant(file) > base.instant]
    blocks = live_blocks([one for file in late for one in file.blocks], published.__contains__)
    merged = SliceLogs.of(blocks, ReadColumns(schema, None, ordering))
    pieces = [] if table is None else [table.slice(at, PIECE) for at in range(0, len(table), PIECE)]
    return list(merged.merged(pieces))


def _instant(file: LogFile) -> str:
    return file.blocks[0].header[HeaderKey.INSTANT_TIME]


def _timeline(root: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """(instants of completed commits, file groups that were replaced)."""
    published: set[str] = set()
    replaced: set[tuple[str, str]] = set()
    for path in [*root.glob(".hoodie/*commit"), *root.glob(".hoodie/timeline/*commit")]:
        if path.name.startswith("."):
            continue
        published.add(path.name.partition(".")[0].partition("_")[0])
        if path.suffix == ".replacecommit":
            with path.open("rb") as file:
                [told] = fastavro.reader(file)
            for partition, ids in told["partitionToReplaceFileIds"].items():
                replaced.update((partition, one) for one in ids)
    return published, replaced
