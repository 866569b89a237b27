"""Held slices: live slices read whole, a column at a time, to be held against their entries.

Of each it is told which keys its rows have, logs merged in, what statistics its files should have,
and whether what its base file tells of its rows is true; a file that cannot be read so is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.base_files import statistics
from metatable.data.base_files.parquet import OpenedFile, open_parquet
from metatable.data.base_files.statistics import ColumnStats
from metatable.data.columns.schema import META_COLUMNS
from metatable.data.columns.stored_columns import StoredColumns
from metatable.data.file_groups.slices import DataFile, FileSlice, LogFile
from metatable.data.reading.slice_reader import HeldLog, read_logs, stream_left
from metatable.data.rows.taking import whole
from metatable.metadata.partitions.column_stats import RECORD_KEY
from metatable.metadata.partitions.snapshot import Snapshot
from metatable.metadata.view import read_columns
from metatable.metadata.written import NO_KEYS, WrittenSlice, stats_columns, stats_of_rows
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.parquet.parts import ReadRaw
from metatable.storage.parquet.told_bounds import ToldBounds
from metatable.storage.remembering import RememberingFile
from metatable.storage.store import Store

__all__ = ["Held", "damage_of", "read_held", "texts_left"]

_, _, _, PATH, FILE_NAME = META_COLUMNS
_TEXTS = pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PATH, pa.string())])

_OURS = "parquet-cpp-arrow"
"""What files of ours say of their writer, in their footers."""

SMALL_BYTES = 1 << 20
"""Files up to it are read at once: a request for each column would cost more."""


@dataclass(frozen=True, slots=True)
class Held:
    """A live slice that could be read: the keys and partition paths of its rows, logs merged in;
    the keys of its base file; statistics of each of its files, also those of which there may be no
    entries (`sure_of_stats`); in words what is wrong with what the base file tells of its rows, and
    why one of its columns cannot be read as the table's."""

    file: FileSlice
    keys: pa.Array
    paths: pa.Array
    base_keys: pa.Array
    stats: tuple[tuple[ColumnStats, ...], ...]
    footer_fault: str
    misfit: str

    @property
    def every_key(self) -> pa.Array:
        """Keys that must be found here: those of the base file, and others that logs brought."""
        if not self.file.logs:
            return self.keys
        more = pc.invert(pc.is_in(self.keys, value_set=self.base_keys))
        return pa.concat_arrays([self.base_keys, self.keys.filter(more)])

    def written(self, arrived: pa.Array, place: int = 0) -> WrittenSlice:
        """As if one of its files, the base if not told, had been written just now; `arrived` are
        keys that shall be indexed."""
        file, stats = self.file.files[place], self.stats[place]
        logs = ((file, stats),) if isinstance(file, LogFile) else ()
        made = FileSlice(self.file.base)
        return WrittenSlice(made, keys=self.every_key, arrived=arrived, stats=stats, logs=logs)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What one file tells."""

    keys: pa.Array
    paths: pa.Array
    stats: tuple[ColumnStats, ...]
    footer_fault: str = ""
    misfit: str = ""


class _Footer:
    """What a file tells of its columns, with its first fault. Hudi's readers and ours leave out row
    groups and pages by it; where ours alone cannot make it out, others may be misled as well."""

    def __init__(self, store: Store, path: str, size_bytes: int) -> None:
        self.fault = ""
        self._told: ToldBounds | None = None
        try:
            self._told = ToldBounds.read(store, path, size_bytes)
        except CorruptError as error:
            self.fault = str(error)

    def look_at(self, columns: pa.Table, read: ReadRaw) -> None:
        """Hold what the file tells of these columns, with all of its rows, against their values,
        and against the pages that `read` gives. Raises CorruptError where those are damaged: what
        was made of them are other rows' values."""
        if self._told is None:
            return
        self._told.check_pages(columns.column_names, read)
        try:
            told = (self._told.fault_of(name, columns[name]) for name in columns.column_names)
            self.fault = self.fault or next(filter(None, told), "")
        except CorruptError as error:
            self.fault = str(error)


def read_held(view: Snapshot, file: FileSlice, writers: Mapping[str, str]) -> Held:
    """All of a slice; in memory a column at a time, or all of a small one, and the logs.

    `writers`: instants of the commits that wrote logs, by path, where they are known. Raises
    CorruptError where it is damaged.
    """
    base = _read_base(view, file.base) if file.has_base else _Facts(NO_KEYS, NO_KEYS, ())
    logs = [one for one in file.files if isinstance(one, LogFile)]
    stats = [base.stats] if file.has_base else []
    stats += [
        _stats_of_log(view, log, held, writers.get(log.path, ""))
        for log, held in zip(logs, _read_logs(view, logs), strict=True)
    ]
    texts = texts_left(view, file.merged) if logs else (base.keys, base.paths)
    return Held(file, *texts, base.keys, tuple(stats), base.footer_fault, base.misfit)


def texts_left(view: Snapshot, files: Sequence[DataFile | LogFile]) -> tuple[pa.Array, pa.Array]:
    """(key texts, partition paths) of the rows that these files of a slice come to.

    Where a base holds a key twice nobody can merge logs with it: then all that is in it.
    """
    texts = read_columns(view, _TEXTS)
    read = partial(stream_left, view.store, read=texts)
    try:
        rows = pa.concat_tables([_TEXTS.empty_table(), *read(files)])
    except CorruptError:
        rows = pa.concat_tables(piece for one in files for piece in read([one]))
    return whole(rows[RECORD_KEY]), whole(rows[PATH])


def damage_of(view: Snapshot, file: DataFile | LogFile, writer: str = "") -> str:
    """What keeps a file from being read, itself; "": nothing. `writer` as of `read_held`."""
    try:
        if isinstance(file, DataFile):
            _read_base(view, file)
        else:
            [held] = _read_logs(view, [file])
            _stats_of_log(view, file, held, writer)
    except (CorruptError, UpgradeError) as error:
        return str(error)
    return ""


def _read_base(view: Snapshot, file: DataFile) -> _Facts:
    """Read all of a base file: all at once if it is small, else a column at a time. Raises
    CorruptError."""
    stats = dict[str, ColumnStats]()
    texts: dict[str, pa.Array] = {}
    size_bytes = view.store.open(file.path, file.size_bytes or None).size()
    stored = RememberingFile(view.store, file.path, size_bytes)
    footer = _Footer(view.store, file.path, size_bytes)
    with open_parquet(view.store, file, file=stored) as parquet:
        rows, names = parquet.metadata.num_rows, parquet.schema_arrow.names
        held = StoredColumns.of(parquet, file.path)
        wanted, misfit = _called(view, held), held.misfit(view.table_schema)
        at_once = [names] if file.size_bytes <= SMALL_BYTES else [[name] for name in names]
        for columns in map(parquet.read, at_once):
            if columns.num_rows != rows:
                raise CorruptError(
                    "columns lack rows", path=file.path, columns=columns.column_names
                )
            for one in statistics.of_table(
                columns, [*filter(wanted.__contains__, columns.column_names)]
            ):
                stats[one.column] = replace(one, column=wanted[one.column])
            footer.look_at(columns, stored.again)
            stored.forget()
            if FILE_NAME in columns.column_names and _is_of_ours(view, file, parquet):
                _check_names(file, columns[FILE_NAME])
            for name in {RECORD_KEY, PATH}.intersection(columns.column_names):
                texts[name] = columns[name].combine_chunks().cast(pa.string())
    if texts.keys() != {RECORD_KEY, PATH} or any(one.null_count for one in texts.values()):
        raise CorruptError("data file lacks Hudi's meta columns", path=file.path)
    told = tuple(stats[name] for name in wanted if name in stats)
    return _Facts(texts[RECORD_KEY], texts[PATH], told, footer.fault, misfit)


def _is_of_ours(view: Snapshot, file: DataFile, parquet: OpenedFile) -> bool:
    """Other writers, in tables that were adopted, left names of older slices and, where they
    clustered, of other groups."""
    is_adopted = file.instant <= max(view.manifest.adopted, default="")
    return not is_adopted and parquet.metadata.created_by.startswith(_OURS)


def _check_names(file: DataFile, names: pa.ChunkedArray) -> None:
    """Rows tell the file that they were written to: one that was put in another's place is sound,
    and has other rows."""
    for other in pc.unique(names).drop_null().cast(pa.string()).to_pylist():
        if other != file.name:
            raise CorruptError(
                "rows of another file", path=file.path, expected=file.name, found=other
            )


def _read_logs(view: Snapshot, logs: Sequence[LogFile]) -> list[HeldLog]:
    return read_logs(view.store, logs, view.table_schema, view.options.ordering)


def _stats_of_log(
    view: Snapshot, log: LogFile, held: HeldLog, writer: str
) -> tuple[ColumnStats, ...]:
    """The statistics of its rows."""
    if writer and held.instants != {writer}:
        found = sorted(held.instants)
        raise CorruptError("log is of another commit", path=log.path, expected=writer, found=found)
    kept = stats_columns(view.table_schema, view.options)
    wanted = {name: called for name, called in kept.items() if name in held.columns}
    return tuple(stats_of_rows(held.rows, wanted))


def _called(view: Snapshot, stored: StoredColumns) -> dict[str, str]:
    """Columns of a file of which there may be statistics, and what they are called there."""
    kept = stats_columns(view.table_schema, view.options)
    found = zip(stored.find_each([*kept], view.table_schema), kept.values(), strict=True)
    return {field.name: called for field, called in found if field is not None}
