"""Rows to measure with, and the cupboard where tables are kept between calls.

Every column is a function of a row's number, so that any row can be made again without the
others: a table of n rows holds the numbers 0 to n - 1, and a batch that updates some of them
and adds others is two more lists of numbers.

    id        string     36 characters: a random uuid, or one that begins with the time (v7)
    day       string     the partition, one of 10; with uuid keys any, with time keys in order
    seen      timestamp  microseconds, in order
    customer  int64
    amount    float64
    quantity  int32
    city      string     one of 100
    note      string     16 characters that do not compress

The cupboard keeps what was made under a name that holds a checksum of the code that shapes
it: tables of older code are thrown away, not measured.
"""

from __future__ import annotations

import os
import shutil
import string
import tempfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import metatable
from metatable.storage.arrays import Int64s, UInt8s, UInt64s
from metatable.storage.avro.one_long import encoded_long

__all__ = [
    "KEY_BYTES",
    "SCHEMA",
    "Cupboard",
    "Entries",
    "base64_entries",
    "batch_rows",
    "make_lance",
    "make_table",
    "numbers_of",
    "rows_of",
    "sorted_entries",
    "split_entries",
    "table_rows",
    "url_entries",
    "uuid_entries",
]

Entries = tuple[pa.Array, pa.Array]
"""Keys and values of one length, binary, ascending by key."""

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("seen", pa.timestamp("us")),
        pa.field("customer", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("quantity", pa.int32()),
        pa.field("city", pa.string()),
        pa.field("note", pa.string()),
    ]
)

KEY_BYTES = 36
DAYS = 10
UPDATES = 0.7
"""Share of a batch that is in the table already."""
RECENT = 0.2
"""With time keys, updates meet this newest part of the table."""

_START_MS = 1_760_000_000_000
_CHUNK_ROWS = 1 << 20
_BASE64 = np.frombuffer(
    string.ascii_uppercase.encode() + string.ascii_lowercase.encode() + b"0123456789+/", np.uint8
)
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_DASHES = (8, 13, 18, 23)


class Cupboard:
    """Data that is made once, and scratch that goes when the benchmark ends."""

    def __init__(self, folder: Path | None = None) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.folder = folder or home / "metatable" / "benchmarks"
        self._scratch: list[Path] = []

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder that `make` fills, from a former call if the code is the same.

        It is filled where it stays, for some tables hold their own address.
        """
        place = self.folder / name
        kept = place / _code_checksum()
        done = kept.with_suffix(".done")
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            kept.mkdir(parents=True)
            make(kept)
            done.touch()
        return kept

    def scratch(self) -> Path:
        """An empty folder, on the same disk, until the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._scratch.append(Path(tempfile.mkdtemp(prefix="scratch-", dir=self.folder)))
        return self._scratch[-1]

    def copy(self, source: Path) -> Path:
        """A copy to be changed: files are linked, for nobody writes into one that is there."""
        target = self.scratch()
        shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)
        return target

    def drop(self, scratch: Path | None) -> None:
        """Give back a scratch folder before the end."""
        if scratch in self._scratch:
            self._scratch.remove(scratch)
            shutil.rmtree(scratch, ignore_errors=True)

    def __enter__(self) -> Cupboard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in list(self._scratch):
            self.drop(one)


def _code_checksum() -> str:
    package = Path(metatable.__file__).parent
    folders = [package / name for name in ("storage", "data", "metadata")]
    files = [file for folder in folders for file in sorted(folder.resolve().rglob("*.py"))]
    files += [Path(__file__).with_name(name) for name in ("data.py", "synthetic.py")]
    body = b"".join(file.read_bytes() for file in files)
    return f"{zlib.crc32(body):08x}"


# Rows


def table_rows(kind: str, count: int) -> pa.Table:
    """Rows 0 to `count` - 1 with keys of a `kind`: "uuid" or "time"."""
    return _some_rows(kind, 0, count, count)


def _some_rows(kind: str, first: int, end: int, held: int) -> pa.Table:
    starts = range(first, end, _CHUNK_ROWS)
    parts = [np.arange(start, min(start + _CHUNK_ROWS, end)) for start in starts]
    return pa.concat_tables([rows_of(kind, part, held) for part in parts])


def batch_rows(kind: str, held: int, count: int) -> pa.Table:
    """`count` rows for a table of `held`: UPDATES of them its own with new values, the rest new.

    In no order; with time keys the updated ones are among the newest.
    """
    chance = np.random.default_rng(7)
    first = int(held * (1 - RECENT)) if kind == "time" else 0
    updates = min(int(count * UPDATES), held - first)
    old = first + chance.choice(held - first, updates, replace=False)
    numbers = np.concatenate([old, np.arange(held, held + count - updates)])
    return rows_of(kind, chance.permutation(numbers), held, generation=1)


def rows_of(kind: str, numbers: Int64s, held: int, generation: int = 0) -> pa.Table:
    """The rows of these numbers, of a table of `held`; another generation has other values."""
    lane = 10 * generation
    spread = _words(numbers, lane + 3)
    micros = np.int64(_START_MS * 1000) + numbers * 10_000
    days = np.minimum(numbers * DAYS // max(held, 1), DAYS - 1)
    if kind == "uuid":
        days = (_words(numbers, 2) % np.uint64(DAYS)).astype(np.int64)
    columns = [
        _keys(kind, numbers),
        pa.array([f"2026-11-{10 + day}" for day in range(DAYS)]).take(pa.array(days)),
        pa.array(micros).cast(pa.timestamp("us")),
        pa.array((spread % np.uint64(100_000)).astype(np.int64)),
        pa.array((_words(numbers, lane + 4) % np.uint64(1_000_000)) / 100),
        pa.array((spread >> np.uint64(40)).astype(np.int32) % 100),
        pa.array([f"city {number:02d}" for number in range(100)]).take(
            pa.array((_words(numbers, lane + 5) % np.uint64(100)).astype(np.int64))
        ),
        _text(_hex(_words(numbers, lane + 6))),
    ]
    return pa.table(columns, schema=SCHEMA)


def numbers_of(seen: pa.ChunkedArray) -> Int64s:
    """The numbers of rows, by when they were seen."""
    micros = seen.cast(pa.int64()).to_numpy()
    return np.asarray((micros - _START_MS * 1000) // 10_000)


def _keys(kind: str, numbers: Int64s) -> pa.Array:
    first, second = _words(numbers, 0), _words(numbers, 1)
    if kind == "time":
        millis = (np.uint64(_START_MS) + numbers.astype(np.uint64) * np.uint64(10)) << np.uint64(16)
        first = millis | np.uint64(0x7000) | (first >> np.uint64(52))
    digits = np.concatenate([_hex(first), _hex(second)], axis=1)
    return _text(np.insert(digits, [at - n for n, at in enumerate(_DASHES)], ord("-"), axis=1))


def _words(numbers: Int64s, lane: int) -> UInt64s:
    """64 random bits a number and lane (splitmix64)."""
    with np.errstate(over="ignore"):
        word = (numbers.astype(np.uint64) * np.uint64(64) + np.uint64(lane + 1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(word ^ (word >> np.uint64(31)), dtype=np.uint64)


def _hex(words: UInt64s) -> UInt8s:
    return _HEX[words.astype(">u8").view(np.uint8)].reshape(len(words), 16)


def _text(digits: UInt8s) -> pa.Array:
    rows, width = digits.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


# Entries of HFiles


def sorted_entries(count: int) -> Entries:
    """Ascending 16-byte keys and 4-byte values: what a record index stores."""
    halves = np.stack([_words(np.arange(count), lane) for lane in (0, 1)], axis=1)
    halves = halves[np.argsort(halves[:, 0], kind="stable")]
    values = np.arange(count, dtype=">i4") % 1000
    return _fixed(halves.astype(">u8"), 16), _fixed(values.astype(">i4"), 4)


def uuid_entries(count: int) -> Entries:
    """Ascending uuids as text, and values like Hudi's record index: 108 bytes a record in all."""
    return _ascending(_keys("uuid", np.arange(count)), _locations(count))


def base64_entries(count: int) -> Entries:
    """Ascending base64 of 16 bytes, 24 characters, and values like Hudi's record index."""
    halves = np.stack([_words(np.arange(count), lane) for lane in (0, 1)], axis=1)
    return _ascending(_base64(halves.astype(">u8").view(np.uint8)), _locations(count))


def url_entries(count: int) -> Entries:
    """Ascending addresses of 44 to 97 characters that begin alike, and 8-byte values."""
    numbers = np.arange(count)
    words = ("item", "category", "archive", "user-content", "a", "2026-11")
    hosts = [f"https://shop{number:02d}.example.org/" for number in range(16)]
    starts = [
        hosts[number % 16] + "/".join(words[number * step % 6] for step in range(1, number % 7 + 1))
        for number in range(512)
    ]
    chosen = (_words(numbers, 7) % np.uint64(len(starts))).astype(np.int64)
    ids = _text(_hex(_words(numbers, 0)))
    keys = pc.binary_join_element_wise(pa.array(starts).take(pa.array(chosen)), ids, "/")
    return _ascending(keys, _fixed(_words(numbers, 8).astype(">u8"), 8))


def split_entries(keys: pa.Array, values: pa.Array, each: int) -> tuple[Entries, pa.Array]:
    """Entries without every `each`th, and the keys of those: absent ones from all over."""
    away = np.arange(len(keys)) % each == each - 1
    kept = pa.array(~away)
    return (keys.filter(kept), values.filter(kept)), keys.filter(pa.array(away))


def _locations(count: int) -> pa.Array:
    """Avro data as Hudi's record index has them, of 90 files: 49 to 54 bytes."""
    chance = np.random.default_rng(11)
    made = []
    for number in range(90):
        partition = f"region={number % 10}".encode()
        high, low = (int(chance.integers(-(2**63), 2**63)) >> (number % 13) for _ in range(2))
        told = (encoded_long(len(partition)), partition)
        location = (b"\2", encoded_long(high), b"\2", encoded_long(low))
        parts = (*told, *location)
        instant = encoded_long(_START_MS + 7919 * number)
        made.append(
            b"".join((bytes.fromhex("000000000a0000000202"), *parts, _REST, instant, b"\0\0"))
        )
    order = (_words(np.arange(count), 9) % np.uint64(len(made))).astype(np.int64)
    return pa.array(made, pa.binary()).take(pa.array(order))


_REST = bytes.fromhex("0200020002")


def _base64(raw: UInt8s) -> pa.Array:
    """24 characters for 16 bytes each."""
    threes = np.concatenate([raw, np.zeros((len(raw), 2), np.uint8)], axis=1).reshape(-1, 6, 3)
    first, second, third = (threes[:, :, place] for place in range(3))
    sixes = [first >> 2, first << 4 & 63 | second >> 4, second << 2 & 63 | third >> 6, third & 63]
    digits = _BASE64[np.stack(sixes, axis=2)].reshape(len(raw), 24)
    digits[:, 22:] = ord("=")
    return _text(digits)


def _ascending(keys: pa.Array, values: pa.Array) -> Entries:
    raw = keys.cast(pa.binary())
    order = pc.array_sort_indices(raw)
    return raw.take(order), values.take(order)


def _fixed(rows: npt.NDArray[np.generic], width: int) -> pa.Array:
    column = pa.Array.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)])
    return column.cast(pa.binary())


# Tables


def make_table(
    folder: Path, kind: str, index: str, rows: int, commits: int = 1, **options: str | float
) -> None:
    """A table of ours of `rows` rows, by so many commits of as many rows, each in new files."""
    table = metatable.create(
        folder,
        SCHEMA,
        key="id",
        partition_by="day",
        index=index,
        options=options,
        storage_options={"durable": "false"},
    )
    for number in range(commits):
        first, end = (rows * part // commits for part in (number, number + 1))
        table.bulk_insert(_some_rows(kind, first, end, rows))


def make_lance(held: int, folder: Path) -> None:
    """The `table_rows` of random keys as Lance stores them, and its index of their key."""
    lance = import_module("lance")
    made = lance.write_dataset(table_rows("uuid", held), str(folder / "rows"))
    made.create_scalar_index("id", "BTREE")
