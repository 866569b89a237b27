"""hudi-rs as a peer: a small program in hudi_rs/, built by cargo when it is asked for.

    ~/.cache/metatable/rust/CHECKSUM/hudi_rs        named after a checksum of its sources

`python -m benchmarks.peers.rust` builds it (`make peers-rust`): some 500 crates, which take
half an hour on two cores and want `protoc` (Debian: protobuf-compiler, libprotobuf-dev).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

from benchmarks.peers.jars import MissingError, cache
from benchmarks.peers.program import Program

__all__ = ["VERSION", "build", "program"]

VERSION = "0.5.0"
_PROJECT = Path(__file__).with_name("hudi_rs")
_FILES = ("Cargo.toml", "src/main.rs")


def program() -> Program:
    """Raises MissingError where it was not built."""
    if not _binary().exists():
        raise MissingError("its program was not built: make peers-rust")
    return Program(f"hudi-rs {VERSION}", [_binary()])


def build() -> Path:
    """The program, built if need be. Raises MissingError where a tool is missing."""
    made = _binary()
    if made.exists():
        return made
    for tool in ("cargo", "protoc"):
        if shutil.which(tool) is None:
            raise MissingError(f"no {tool} on this machine")
    work = cache().parent / "rust" / "build"
    for name in _FILES:  # cargo writes beside them what is of no use in the sources
        target = work / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_PROJECT / name, target)
    jobs = os.environ.get("JOBS", "2")
    command = ["nice", "-n", "19", "cargo", "build", "--release", "--jobs", jobs]
    if subprocess.run(command, cwd=work, check=False).returncode:
        raise MissingError("cargo could not build it")
    made.parent.mkdir(exist_ok=True)
    shutil.copy(work / "target" / "release" / "hudi_rs", made)
    return made


def _binary() -> Path:
    sources = b"".join((_PROJECT / name).read_bytes() for name in _FILES)
    return cache().parent / "rust" / f"{zlib.crc32(sources):08x}" / "hudi_rs"


if __name__ == "__main__":
    try:
        print(build())
    except MissingError as error:
        sys.exit(str(error))
