"""Spill: batches held for later, in memory up to a budget and beyond it on local disk.

A `Spill` deals out hands, one for each partition that is being collected. Spills share a budget,
their `Memory`; the one that passes it appends all that it has in memory to a file for each hand:
uncompressed Arrow streams, so that reading it back maps the file and copies nothing. Order within
a hand is the order of `add`. Files, and what is held, go when the last hand is forgotten.

What a batch is, is counted by columns, each once however many batches or spills hold it: rows that
are kept, tagged and kept again share most of theirs. A column of rows that were given to the engine
counts nothing, for whoever gave them holds it, and a copy on disk would free none of it.

One thread fills the hands; after `finish` any number may read them, as often as they like.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator

import pyarrow as pa

from metatable.engine.batches import gathered, joined
from metatable.engine.folders import folder_of
from metatable.storage.system_errors import in_temporary_folder

__all__ = ["Hand", "Memory", "Spill"]

LEAST_SHARE = 8
"""A spill keeps an eighth of the budget, whatever others hold: files of single batches are slow."""

MOST_OPEN = 256
"""Hands whose files stay open while they are filled. Of more, as of a commit that writes a thousand
files, each file is closed behind what was put to it: a process may hold some thousand open."""

LEAST_COUNTED = 64 << 10
"""Bytes of a batch whose columns are worth a look: a smaller one counts whole."""

LIGHT_BATCHES = 4096
"""So many batches of a spill weigh what their columns do."""

WRITTEN_BYTES = 32 << 20
"""So much of a hand is joined at a time on its way to the disk: joining takes as much again."""

BATCH_BYTES, COLUMN_BYTES = 512, 256
"""What each further one weighs besides: rows that are dealt to a thousand tasks are batches of a
few rows each, which take more memory than the rows."""

Column = tuple[int, ...]
"""What tells a column from others: where its buffers are, its offset, length and bytes."""


class Memory:
    """A budget, and what its spills hold of it."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self._holders: dict[Column, int] = {}
        self._lent: dict[int, pa.Buffer] = {}

    def lend(self, table: pa.Table) -> None:
        """These rows are held by others as long as this is needed."""
        chunks = (chunk for column in table.columns for chunk in column.chunks)
        self._lent.update((one.address, one) for chunk in chunks for one in _buffers(chunk))

    def columns(self, batch: pa.RecordBatch) -> dict[Column, int]:
        """Bytes of the columns of a batch that nobody has lent."""
        found: dict[Column, int] = {}
        for column in batch.columns:
            places = [one.address for one in _buffers(column)]
            if not all(place in self._lent for place in places):
                size_bytes = column.nbytes
                found[(*places, column.offset, len(column), size_bytes)] = size_bytes
        return found

    def hold(self, column: Column, size_bytes: int) -> None:
        count = self._holders.get(column, 0)
        self._holders[column] = count + 1
        self.held_bytes += 0 if count else size_bytes

    def drop(self, column: Column, size_bytes: int) -> None:
        count = self._holders.pop(column, 1)  # whoever is forgotten may be so on any thread
        if count > 1:
            self._holders[column] = count - 1
        else:
            self.held_bytes -= size_bytes


def _buffers(column: pa.Array) -> list[pa.Buffer]:
    found = [one for one in column.buffers() if one is not None]
    return found + _buffers(column.dictionary) if pa.types.is_dictionary(column.type) else found


class _Share:
    """What one spill holds."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._columns: dict[Column, int] = {}
        self._small_bytes = 0
        self._batches = 0
        self.held_bytes = 0

    def take(self, batch: pa.RecordBatch) -> None:
        size_bytes = batch.nbytes
        self._batches += 1
        if size_bytes < LEAST_COUNTED:
            if self._batches > LIGHT_BATCHES:
                size_bytes += BATCH_BYTES + COLUMN_BYTES * batch.num_columns
            self._small_bytes += size_bytes
            self._memory.held_bytes += size_bytes
            self.held_bytes += size_bytes
            return
        for column, size_bytes in self._memory.columns(batch).items():
            if column not in self._columns:
                self._columns[column] = size_bytes
                self._memory.hold(column, size_bytes)
                self.held_bytes += size_bytes

    def give_back(self) -> None:
        for column, size_bytes in self._columns.items():
            self._memory.drop(column, size_bytes)
        self._memory.held_bytes -= self._small_bytes
        self._columns, self._small_bytes, self._batches, self.held_bytes = {}, 0, 0, 0

    @property
    def is_too_much(self) -> bool:
        memory = self._memory
        least = memory.size_bytes // LEAST_SHARE
        return memory.held_bytes > memory.size_bytes and self.held_bytes > least


class Spill:
    """Hands of one collection."""

    def __init__(self, memory: Memory) -> None:
        self.spilled_bytes = 0
        self._share = _Share(memory)
        weakref.finalize(self, self._share.give_back)
        self._filling: list[Hand] = []
        self._folder: str | None = None

    def hand(self) -> Hand:
        """A new, empty hand."""
        self._filling.append(Hand(self, len(self._filling)))
        return self._filling[-1]

    def add(self, hand: Hand, batch: pa.RecordBatch) -> None:
        """Hold one more batch in `hand`."""
        hand.pieces.append(batch)
        self._share.take(batch)
        if self._share.is_too_much:
            are_many = len(self._filling) > MOST_OPEN
            for one in self._filling:
                one.write_out()
                if are_many:
                    one.close()
            self.spilled_bytes += self._share.held_bytes
            self._share.give_back()

    def full(self, hand: Hand) -> None:
        """Nothing more comes into this hand: its file, if there is one, need not stay open."""
        hand.is_full = True
        if not hand.pieces:
            hand.close()

    def finish(self) -> None:
        """Nothing more will be added."""
        for hand in self._filling:
            hand.close()
        self._filling = []  # from here on hands hold the spill, not the spill its hands

    def path(self, number: int) -> str:
        """The path of the file to which hand `number` puts what does not fit."""
        if self._folder is None:
            self._folder = folder_of(self)
            with in_temporary_folder():
                os.makedirs(self._folder)
        return os.path.join(self._folder, f"{number}.arrows")


class Hand:
    """The batches of one partition."""

    def __init__(self, spill: Spill, number: int) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.is_full = False
        self._spill = spill
        self._number = number
        self._path: str | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return self._path is None and not self.pieces

    @property
    def is_on_disk(self) -> bool:
        """Whether some of it is."""
        return self._path is not None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Everything that was added, in order, in few batches."""
        if self._path is not None:
            with _mapped(self._path) as file:
                while file.tell() < file.size():
                    yield from pa.ipc.open_stream(file)
        yield from joined(self.pieces)

    def write_out(self) -> None:
        """Move what is in memory behind what is on disk."""
        if not self.pieces:
            return
        if self._writer is None:
            self._path = self._spill.path(self._number)
        with in_temporary_folder():
            if self._writer is None:
                file = pa.OSFile(self._path, "ab")
                self._writer = pa.ipc.new_stream(file, self.pieces[0].schema)
            for piece in gathered(self.pieces, sys.maxsize, WRITTEN_BYTES):
                self._writer.write_batch(piece)
        self.pieces = []
        if self.is_full:
            self.close()

    def close(self) -> None:
        """Finish what is open of the file, if there is one."""
        if self._writer is not None:
            with in_temporary_folder():
                self._writer.close()
            self._writer = None


def _mapped(path: str) -> pa.MemoryMappedFile:
    try:
        return pa.memory_map(path)
    except OSError as error:
        if error.errno is not None:
            raise
        raise MemoryError(str(error)) from error  # of a mapping Arrow tells no number
