"""Data files: the sequence that `Table.files` and `Scan.files` give, a result like those of
`results.py`. It is held in columns, and files become objects as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metatable.data.file_groups.slices import DataFile, LogFile, decoded
from metatable.storage.arrays import Bools, Int64s
from metatable.storage.errors import UsageError
from metatable.storage.sizes import size_text

__all__ = ["DataFiles"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataFiles(Sequence[DataFile | LogFile]):
    """Data files of a table, by partition path and file name; equal to a list of the same ones.
    A file group without a base file is represented by its first log.

    The files are held in columns, and become objects one by one. `root` is the table's address,
    and `paths` (strings) are relative to it. `row_counts` are -1 where the number is not known.
    `has_logs` says which files' groups have logs, without which rows are out of date (None: none
    has).
    """

    root: str
    paths: pa.Array
    sizes: Int64s
    row_counts: Int64s
    has_logs: Bools | None = None

    @property
    def uris(self) -> list[str]:
        """Where each file is, for any reader: a local path, or a URL of the table's scheme. Raises
        UsageError where a file has logs, which no Parquet reader merges.

        The paths may spell partition values (`city=Ulm`), which the files hold as well: tell
        a reader that takes such folders for columns not to.
        """
        if self.has_logs is not None and self.has_logs.any():
            raise UsageError(
                "log files lie on some of these, of which Parquet readers know nothing: scan()"
                " reads them merged, files(read_optimized=True) are base files as they are",
                found=int(self.has_logs.sum()),
            )
        joined: list[str] = pc.binary_join_element_wise(self.root, self.paths, "/").to_pylist()
        return joined

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return int(self.sizes.sum())

    @property
    def row_count(self) -> int | None:
        """Rows of all of them; None where that is not known."""
        return None if (self.row_counts < 0).any() else int(self.row_counts.sum())

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, place: int) -> DataFile | LogFile: ...
    @overload
    def __getitem__(self, place: slice) -> DataFiles: ...
    def __getitem__(self, place: int | slice) -> DataFile | LogFile | DataFiles:
        if isinstance(place, slice):
            paths = self.paths.take(pa.array(np.arange(len(self))[place]))
            logs = None if self.has_logs is None else self.has_logs[place]
            return DataFiles(self.root, paths, self.sizes[place], self.row_counts[place], logs)
        at = range(len(self))[place]
        return _file(self.paths[at].as_py(), int(self.sizes[at]), int(self.row_counts[at]))

    def __iter__(self) -> Iterator[DataFile | LogFile]:
        for begin in range(0, len(self), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            sizes, counts = self.sizes[some].tolist(), self.row_counts[some].tolist()
            yield from map(_file, self.paths[some].to_pylist(), sizes, counts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DataFiles) and self.root != other.root:
            return False
        return isinstance(other, DataFiles | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it is equal to lists

    def __repr__(self) -> str:
        total = [f"{len(self):,} data files", size_text(self.size_bytes)]
        if self.row_count is not None:
            total.insert(1, f"{self.row_count:,} rows")
        lines = [f"  {one.path}" for one in self[:_SHOWN]]
        if len(self) > _SHOWN:
            lines.append(f"  and {len(self) - _SHOWN:,} more")
        return "\n".join([", ".join(total), *lines])


_SHOWN = 10
"""Files that a repr names."""

_AT_ONCE = 4096
"""Files whose names are made texts together."""


def _file(path: str, size_bytes: int, row_count: int) -> DataFile | LogFile:
    file = decoded(path, size_bytes)
    if isinstance(file, LogFile) or row_count < 0:
        return file
    return replace(file, row_count=row_count)
