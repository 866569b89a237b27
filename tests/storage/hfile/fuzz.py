"""Everything that can be asked of an HFile, asked of mutated ones: `make fuzz`.

    python -m tests.storage.hfile.fuzz --count 1000000 --jobs 2 --first 0
    python -m tests.storage.hfile.fuzz --replay NAME:NUMBER [--save FILE]

Each question is answered, or ends in CorruptError or UpgradeError that names the file;
`verify` always answers. And
- the question that was asked first has the same answer when all others were answered; or, of
  files that `verify` objects to, an error of ours, as by then more of them was looked at;
- nothing takes for ever: requests, bytes and blocks are counted, and a minute is a hang;
- memory stays below MOST_MEMORY (looked at with bombs and in one other file of MEMORY_STEP,
  because looking is slow; all others must do with MOST_ADDRESSES);
- plain damage before the trailer never changes an answer: it is the sound one or an error;
- hints that lie never lead to an answer that the records do not give;
- where `verify` finds nothing, every question has an answer, and all of them agree.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pyarrow as pa

try:
    import resource
except ImportError:  # not everywhere
    resource = None  # type: ignore[assignment]

from metatable.storage import cache
from metatable.storage.counters import Counters
from metatable.storage.errors import CorruptError, UpgradeError
from metatable.storage.hfile import inspect
from metatable.storage.hfile.reader import HFileReader
from metatable.storage.hfile.reading import index_tree, opened, passes, searching
from metatable.storage.store import Store
from tests.storage.hfile.making import binary
from tests.storage.hfile.mutate import Mutated, mutated
from tests.storage.hfile.raw_file import RawFile
from tests.storage.hfile.sound_files import sound_files

__all__ = ["FuzzError", "fuzz", "main"]

MEMORY_STEP = 50
MOST_MEMORY = 24 << 20
MOST_ADDRESSES = 1 << 30
"""Much more than MOST_MEMORY, because threads and allocators reserve what they do not use."""
MOST_SECONDS = 60
MOST_REQUESTS = 600
MOST_READ = 200
"""Times the size of the file, over all questions."""
MOST_BLOCKS = 4000
CONSTANTS: tuple[tuple[ModuleType, str, tuple[int, ...]], ...] = (
    (opened, "TAIL_BYTES", (4096, 4500, 64 << 10)),
    (passes, "READ_BYTES", (600, 4 << 20, 4 << 20)),
    (passes, "GROUP_BYTES", (500, 2 << 20, 2 << 20, 2 << 20)),
    (passes, "SEARCH_BYTES", (500, 2 << 20, 2 << 20, 2 << 20)),
    (passes, "ALONE_BYTES", (0, 192 << 10, 192 << 10, 192 << 10)),
    (index_tree, "FEW_KEYS", (64, 3)),
    (passes, "SIZES_SHARE", (8, 1, 1000)),
    (passes, "SIZES_FROM_BLOCKS", (1, 1, 99)),
    (searching, "TIED_SHARE", (16, 1 << 20)),
)
"""What to make smaller in turn, so that little files are read as large ones are: opened in
pieces, blocks in many groups on several threads, and through the whole index or parts of it."""

Answers = dict[str, Any]


class FuzzError(AssertionError):
    """A reader did what it must not do. The message says how to see it again."""


class _Failed:
    """An answer that is an error of ours."""

    def __init__(
        self, error: Exception, path: str, before: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        if path not in str(error):
            raise FuzzError(f"a message without the path: {error!r}")
        self.told = f"{type(error).__name__}: {error}"  # the error itself holds on to blocks
        self.before = before

    def __repr__(self) -> str:
        return self.told


def fuzz(count: int, first: int, folder: Path) -> int:
    """Ask `count` mutated files from number `first` on, in turn of all forms; how many refused.

    Raises FuzzError for the first that a reader does not survive.
    """
    fuzzer = Fuzzer(folder)
    return sum(fuzzer.check(number) for number in range(first, first + count))


class Fuzzer:
    """Mutated files in a folder, and what they answered before they were mutated."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bases = list(sound_files().values())
        self._sound: dict[str, Answers] = {}

    def check(self, number: int) -> bool:
        """Whether file `number` was refused. Raises FuzzError."""
        base = self._bases[number % len(self._bases)]
        return check(base, number, self._folder, self.sound(base))

    def sound(self, base: RawFile) -> Answers:
        """What the file answers if nothing is done to it."""
        if base.name not in self._sound:
            found = ask(base, base.build(), 0, self._folder)
            failed = [one for one in found.items() if isinstance(one[1], _Failed)]
            if failed or found["verify"]:
                raise FuzzError(f"{base.name} is not sound: {failed or found['verify']}")
            self._sound[base.name] = found
        return self._sound[base.name]


def check(base: RawFile, number: int, folder: Path, sound: Answers) -> bool:
    """Whether file `number` of `base` was refused. Raises FuzzError."""
    made = mutated(base, number)
    try:
        found = _asked_within_bounds(base, made, number, folder)
        if made.plain:
            _compare_with_sound(found, sound)
        if made.hints:
            _compare_what_is_there(found, sound)
        if not found["verify"]:
            _compare_with_each_other(found, base)
    except Exception as error:
        raise FuzzError(
            f"{base.name}:{number} ({made.told}): {type(error).__name__}: {error}; again with "
            f"python -m tests.storage.hfile.fuzz --replay {base.name}:{number}"
        ) from error
    return any(isinstance(one, _Failed) for one in found.values())


def _asked_within_bounds(base: RawFile, made: Mutated, number: int, folder: Path) -> Answers:
    if number // 7 % MEMORY_STEP and "bomb" not in made.told:
        with _alarm(), _little_memory():
            return ask(base, made.body, number, folder)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    try:
        with _alarm(), _little_memory():
            found = ask(base, made.body, number, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    held = pool.bytes_allocated() - before
    assert peak < MOST_MEMORY, f"{peak} bytes of memory"
    assert held < MOST_MEMORY, f"{held} bytes of Arrow's memory"
    return found


@contextmanager
def _little_memory() -> Iterator[None]:
    """More than MOST_ADDRESSES on top of what there is ends in a MemoryError: every file is
    looked at in this way, which costs nothing."""
    statm = Path("/proc/self/statm")
    if resource is None or not statm.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(statm.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_ADDRESSES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _alarm() -> Iterator[None]:
    def hangs(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer after {MOST_SECONDS} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ask(base: RawFile, body: bytes, number: int, folder: Path) -> Answers:
    """Question to answer, an error of ours being one."""
    store = Store(folder, {"durable": "false"}) if number % 4 else Store("memory://fuzz")
    path = f"{number}.hfile"
    if number % 4:
        (folder / path).write_bytes(body)
    else:
        store.put(path, body)
    counters = Counters()
    try:
        with _constants(number):
            return _answers(store.counting(counters), path, base)
    finally:
        cache.clear()
        store.delete([path])
        _check_counts(counters, len(body))


@contextmanager
def _constants(number: int) -> Iterator[None]:
    usual = [getattr(module, name) for module, name, _ in CONSTANTS]
    rng = random.Random(number)
    for module, name, values in CONSTANTS:
        setattr(module, name, rng.choice(values))
    try:
        yield
    finally:
        for (module, name, _), value in zip(CONSTANTS, usual, strict=True):
            setattr(module, name, value)


def _check_counts(counters: Counters, size: int) -> None:
    assert counters["store.requests"] <= MOST_REQUESTS, counters
    assert counters["store.bytes_read"] <= MOST_READ * max(size, 1 << 14), counters
    assert counters["hfile.blocks"] <= MOST_BLOCKS, counters


def _answers(store: Store, path: str, base: RawFile) -> Answers:
    found: Answers = {"verify": [str(one) for one in inspect.verify(store, path)]}
    cache.clear()
    reader = _told(path, lambda: HFileReader.open(store, path))
    found["open"] = reader if isinstance(reader, _Failed) else None
    if isinstance(reader, _Failed):
        return found
    wanted = _wanted(base)
    shuffled = random.Random(7).sample(wanted, len(wanted))
    metas = [link.key.decode() for link in base.roots[1].links or []]
    questions: dict[str, Callable[[], object]] = {
        "get": lambda: {key: reader.get(key) for key in shuffled[::9]},
        "find": lambda: _matched(shuffled, reader.find(binary(shuffled))),
        "get_sorted": lambda: _matched(wanted, reader.get_sorted(binary(wanted))),
        "prefix": lambda: {one: _pairs(reader.prefix(one)) for one in (b"k3", b"key00")},
        "all": lambda: _pairs(reader.prefix(b"")),
        "meta": lambda: {name: reader.meta(name) for name in [*metas, "none"]},
        "facts": lambda: _facts(reader),
    }
    asked: dict[str, Callable[[], object]] = {
        name: partial(_told, path, question) for name, question in questions.items()
    }
    asked["scan"] = lambda: _scanned(path, reader, None)
    asked["scan from"] = lambda: _scanned(path, reader, b"k3")
    asked["views"] = lambda: _scanned(path, reader, None, views=True)
    order = random.Random(path).sample(list(asked), len(asked))
    for name in [*order, order[0]]:
        answer = asked[name]()
        if name in found:
            before = found[name]
            if isinstance(answer, _Failed):
                assert isinstance(before, _Failed) or found["verify"], f"{name} once more"
            else:
                assert answer == before, f"{name} once more"
        found[name] = answer
    return found


def _matched(keys: list[bytes], values: pa.Array) -> dict[bytes, bytes | None]:
    values.validate(full=True)
    assert len(values) == len(keys), f"{len(values)} answers to {len(keys)} keys"
    return dict(zip(keys, values.to_pylist(), strict=True))


def _told(path: str, question: Callable[[], object]) -> Any:
    """The answer, or an error that is ours and names the file; others pass through."""
    try:
        return question()
    except (CorruptError, UpgradeError) as error:
        return _Failed(error, path)


def _facts(reader: HFileReader) -> tuple[object, ...]:
    json.dumps(inspect.meta(reader))
    return reader.entry_count, reader.first_key, reader.last_key


def _wanted(base: RawFile) -> list[bytes]:
    """Keys that the file holds, and some that it does not, ascending."""
    held = [key for key, _ in base.entries]
    others = [b"", b"\0", b"k", b"zz", *(key + b"\0" for key in held[::6]), b"\xff" * 3]
    return sorted({*held[:60], *held[-20:], *others})


def _scanned(path: str, reader: HFileReader, start: bytes | None, *, views: bool = False) -> object:
    """All pairs; of a scan that ends in an error, those before it are kept."""
    pairs: list[tuple[bytes, bytes]] = []
    try:
        for batch in reader.scan(start, views=views):
            pairs += _pairs(batch)
    except (CorruptError, UpgradeError) as error:
        return _Failed(error, path, pairs)
    return pairs


def _pairs(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    batch.validate(full=True)
    return list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))


def _compare_with_sound(found: Answers, sound: Answers) -> None:
    for name, answer in found.items():
        if name in ("verify", "open"):
            continue
        if not isinstance(answer, _Failed):
            assert answer == sound[name], f"{name} answers otherwise after damage"
        elif answer.before is not None:
            begun = answer.before
            assert begun == sound[name][: len(begun)], f"{name} begins otherwise after damage"


def _compare_what_is_there(found: Answers, sound: Answers) -> None:
    """Hints lie: keys may be missed, which `verify` reports, but nothing else may be answered."""
    for name in ("get", "find", "get_sorted"):
        for key, value in found[name].items() if isinstance(found[name], dict) else ():
            assert value in (None, sound[name][key]), f"{name} of {key!r} after hints were changed"
    _compare_with_sound({name: found[name] for name in ("scan", "scan from", "views")}, sound)


def _compare_with_each_other(found: Answers, base: RawFile) -> None:
    """`verify` found nothing: then nothing may fail, and lookups answer what a scan shows."""
    for name, answer in found.items():
        assert not isinstance(answer, _Failed), f"verify finds nothing, but {name}: {answer}"
    pairs = found["scan"]
    held = dict(reversed(pairs))
    for name in ("get", "find", "get_sorted"):
        for key, value in found[name].items():
            assert held.get(key) == value, f"{name} and scan differ in {key!r}"
    assert found["all"] == pairs, "prefix and scan differ"
    assert found["views"] == pairs, "scans with views and without differ"
    for prefix, part in found["prefix"].items():
        assert part == [one for one in pairs if one[0].startswith(prefix)], f"prefix {prefix!r}"
    assert found["scan from"] == [one for one in pairs if one[0] >= b"k3"], "scan from b'k3'"
    ends = (pairs[0][0], pairs[-1][0]) if pairs else (b"", b"")
    count, first, last = found["facts"]
    assert count == len(pairs), "entry_count and scan differ"
    assert (first <= ends[0], last) == (True, ends[1]), "first or last key and scan differ"


def main(words: list[str] | None = None) -> int:
    """Fuzz in several processes, or replay one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--count", type=int, default=int(os.environ.get("METATABLE_FUZZ", "1000000"))
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--replay", metavar="NAME:NUMBER")
    parser.add_argument("--save", metavar="FILE", help="where to put the replayed file's bytes")
    args = parser.parse_args(words)
    if args.replay:
        return _replay(args.replay, args.save)
    return _run(args.count, args.first, args.jobs)


def _replay(name: str, save: str | None) -> int:
    base_name, _, number = name.rpartition(":")
    base = sound_files()[base_name]
    made = mutated(base, int(number))
    print(f"{base_name}:{number}: {made.told}; {len(made.body)} bytes, plain={made.plain}")
    if save:
        Path(save).write_bytes(made.body)
    with tempfile.TemporaryDirectory() as folder:
        for question, answer in ask(base, made.body, int(number), Path(folder)).items():
            print(f"  {question}: {str(answer)[:300]}")
        check(base, int(number), Path(folder), Fuzzer(Path(folder)).sound(base))
    return 0


PART = 2000


def _run(count: int, first: int, jobs: int) -> int:
    parts = [
        (start, min(PART, first + count - start)) for start in range(first, first + count, PART)
    ]
    begun = time.monotonic()
    done = refused = failures = 0
    with ProcessPoolExecutor(jobs) as pool:
        for size, bad, failed in pool.map(_part, parts):
            done, refused, failures = done + size, refused + bad, failures + len(failed)
            rate = done / (time.monotonic() - begun)
            for one in failed:
                print(f"\n{one}", file=sys.stderr)
            print(
                f"\r{done:,} of {count:,} files, {refused:,} refused, {rate:,.0f} a second", end=""
            )
            sys.stdout.flush()
    print(f"\n{failures} failures" if failures else "\nall survived")
    return 1 if failures else 0


def _part(part: tuple[int, int]) -> tuple[int, int, list[str]]:
    """(files, refused, what failed)."""
    first, count = part
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        fuzzer, refused = Fuzzer(Path(folder)), 0
        failed: list[str] = []
        for number in range(first, first + count):
            try:
                refused += fuzzer.check(number)
            except FuzzError as error:
                failed.append(str(error))
        return count, refused, failed


if __name__ == "__main__":
    sys.exit(main())
