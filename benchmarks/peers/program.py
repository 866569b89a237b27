"""A peer as a program that stays, so that it is warm: commands go in, answers come out.

Peer.java has the commands. Java programs are compiled once into the cache of the jars, in a
folder named after a checksum of their sources.
"""

from __future__ import annotations

import select
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.jars import Library, cache

__all__ = ["QUICK", "WARM", "Answer", "PeerError", "Program", "java", "put_entries", "put_keys"]

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g")
"""For tests: the shortest start."""
WARM = ("-Xms2g", "-Xmx4g")
"""For benchmarks: whatever it takes."""
TIMEOUT_S = 300


class PeerError(Exception):
    """A peer's answer to a command was an error, or none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command took inside the program, and what Peer.java says of `count`, `checksum`."""

    seconds: float
    count: int
    checksum: int


class Program:
    """A running program; a context manager that ends it."""

    def __init__(self, title: str, command: Sequence[str | Path]) -> None:
        self.title = title
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )

    def ask(self, *words: object) -> Answer:
        """The answer to a command. Raises PeerError with what the program said instead."""
        commands, answers = self._pipes()
        try:
            commands.write("\t".join(map(str, words)).encode() + b"\n")
            commands.flush()
        except BrokenPipeError:
            pass  # the answer will be missing
        ready, _, _ = select.select([answers], [], [], TIMEOUT_S)
        told = answers.readline().decode().split() if ready else []
        if told[:1] != ["ok"]:
            raise PeerError(
                f"{' '.join(told) or 'no answer'}\n{self.title}: {words}\n{self._log()}"
            )
        return Answer(float(told[1]) / 1000, int(told[2]), int(told[3]))

    def close(self) -> None:
        commands, answers = self._pipes()
        commands.close()  # ends its loop
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        answers.close()
        self._said.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _log(self) -> str:
        self._said.seek(0)
        return self._said.read()[-2000:]


def java(library: Library, options: Sequence[str]) -> Program:
    """The program of a library in a JVM. Raises MissingError where jars or a JDK are missing."""
    jars = library.jars()
    path = f"{_classes(library)}:{jars}/*"
    return Program(library.title, ["java", *options, "-cp", path, library.program])


def _classes(library: Library) -> Path:
    """The folder of the compiled program."""
    here = Path(__file__).parent
    sources = [here / "Peer.java", here / f"{library.program}.java"]
    checksum = zlib.crc32(b"".join(source.read_bytes() for source in sources))
    folder = cache() / f"classes-{library.name}-{library.version}-{checksum:08x}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            made = Path(work, "classes")
            command = ["javac", "-cp", f"{library.jars()}/*", "-d", str(made), *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PeerError(done.stderr)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was first
                    raise
    return folder


def put_keys(path: Path, keys: pa.Array) -> Path:
    """`keys` (binary) as a file of {u32 size, key}."""
    return _put(path, keys)


def put_entries(path: Path, keys: pa.Array, values: pa.Array) -> Path:
    """Entries as a file of {u32 size, key, u32 size, value}."""
    return _put(path, keys, values)


def _put(path: Path, *columns: pa.Array) -> Path:
    with path.open("wb") as file:
        for start in range(0, len(columns[0]), 1 << 16):  # so that 32-bit offsets do
            parts: list[pa.Array] = []
            for column in columns:
                piece = column[start : start + (1 << 16)].cast(pa.binary())
                parts += [_sizes(piece), piece]
            joined = pc.binary_join_element_wise(*parts, b"")
            file.writelines(joined.to_pylist())
    return path


def _sizes(column: pa.Array) -> pa.Array:
    sizes = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(">u4")
    raw = pa.py_buffer(np.ascontiguousarray(sizes))
    fixed = pa.Array.from_buffers(pa.binary(4), len(sizes), [None, raw])
    return fixed.cast(pa.binary())
