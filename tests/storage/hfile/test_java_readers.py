"""HFiles of ours, read by those for whom the format was made: hudi-io and HBase.

Needs a JDK (17 or newer) and `mvn`, which fetches the readers once into the user's cache.
HBase's are 108 MB, so that one belongs to the long suite (METATABLE_LONG=1).
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from metatable.storage.hfile.codec import Codec
from tests.storage.hfile.making import folder, write

HERE = Path(__file__).parent
LONG = os.environ.get("METATABLE_LONG") == "1"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId><artifactId>reader</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


@dataclass(frozen=True)
class Reader:
    """A Java program and the library that it needs."""

    program: str
    group: str
    artifact: str
    version: str

    def jars(self) -> Path:
        """The folder of its jars, fetched if need be; skips the test where that fails."""
        for tool in ("java", "javac", "mvn"):
            if shutil.which(tool) is None:
                pytest.skip(f"no {tool} on this machine")
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jars = cache / "metatable" / "java" / f"{self.artifact}-{self.version}"
        if not jars.is_dir():
            self._fetch(jars)
        return jars

    def _fetch(self, jars: Path) -> None:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.parent) as work:
            pom = POM.format(group=self.group, artifact=self.artifact, version=self.version)
            (Path(work) / "pom.xml").write_text(pom)
            command = ["mvn", "-q", "-B", COPY, "-DincludeScope=runtime", "-DoutputDirectory=jars"]
            try:
                made = subprocess.run(
                    command, cwd=work, capture_output=True, text=True, timeout=300, check=False
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"maven took too long to fetch {self.artifact}")
            if made.returncode:
                pytest.skip(f"maven could not fetch {self.artifact}: {made.stdout[-300:]}")
            if not jars.is_dir():  # another process may have been first
                shutil.move(Path(work) / "jars", jars)

    def read(self, files: Mapping[Path, list[bytes]]) -> Iterator[list[str]]:
        """For each HFile, the lines that the program prints of it and of looking up keys."""
        command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", f"{self.jars()}/*", str(HERE / f"{self.program}.java")]
        for file, keys in files.items():
            asked = file.with_suffix(".keys")
            asked.write_text("".join(f"{base64.b64encode(key).decode()}\n" for key in keys))
            command += [str(file), str(asked)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        _, *parts = done.stdout.split("count ")
        yield from (part.splitlines() for part in parts)


HUDI_IO = Reader("PrintHFile", "org.apache.hudi", "hudi-io", "1.2.0")
HBASE = Reader("HBasePrintHFile", "org.apache.hbase", "hbase-server", "2.6.1")


@pytest.fixture(params=[HUDI_IO, HBASE], ids=["hudi-io", "hbase"])
def reader(request: pytest.FixtureRequest) -> Reader:
    found: Reader = request.param
    if found is HBASE and not LONG:
        pytest.skip("HBase's reader belongs to the long suite: METATABLE_LONG=1")
    return found


def text(raw: bytes | None) -> str:
    return "none" if raw is None else "=" + base64.b64encode(raw).decode()


def hashed_entries(count: int) -> dict[bytes, bytes]:
    noise = np.random.default_rng(5).bytes(20 * count)
    return {noise[at : at + 16]: noise[at + 16 : at + 20] for at in range(0, len(noise), 20)}


FORMS = ((Codec.GZ, 65536), (Codec.NONE, 65536), (Codec.NONE, 1 << 20), (Codec.GZ, 256))
CASES = {
    "hashed keys": hashed_entries(20_000),
    "texts": {f"clé-{n:06d}".encode() * (n % 12 + 1): b"v" * (n % 300) for n in range(5_000)},
    "one entry larger than a block": {b"a": b"1", b"b": b"2" * 300_000, b"c": b"3"},
    "long keys": {b"%03d" % n + b"k" * 300: b"v" for n in range(100)},
    "nothing": {},
}


def test_every_entry_of_ours_is_scanned_and_found(reader: Reader, tmp_path: Path) -> None:
    store = folder(tmp_path)
    body = b"\0meta\xff"
    asked: dict[Path, list[bytes]] = {}
    expected: dict[str, list[str]] = {}
    for (codec, block_size_bytes), (case, entries) in product(FORMS, CASES.items()):
        name = f"{codec.name} {block_size_bytes} {case}.hfile"
        write(
            store,
            name,
            entries,
            codec=codec,
            block_size_bytes=block_size_bytes,
            meta={"body": body},
        )
        pairs = sorted(entries.items())
        keys = sorted({*(key for key, _ in pairs[::7]), *(key + b"!" for key, _ in pairs[::11])})
        asked[tmp_path / name] = keys
        expected[name] = [
            str(len(pairs)),
            f"meta {text(body)}",
            *(f"entry {text(key)} {text(value)}" for key, value in pairs),
            *(f"found {text(entries.get(key))}" for key in keys),
        ]
    for (name, lines), printed in zip(expected.items(), reader.read(asked), strict=True):
        assert printed == lines, name
