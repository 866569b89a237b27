"""An S3 server on the loopback, over a folder that tests can look into."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.services.programs import VERSITYGW

__all__ = ["Bucket", "Versitygw"]

ACCESS_KEY, SECRET = "tester", "a secret of tests"
PATIENCE_S = 30
TRIES = 5
"""A free port may be taken by somebody else before the server has it."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`storage_options` are all that a table in it needs; `folder` holds the same files."""

    name: str
    folder: Path
    storage_options: Mapping[str, str]

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"


class Versitygw:
    """The server, over one folder. Use as a context manager, or `start` and `stop`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, again: bool = False) -> None:
        """Return when it answers; `again` at the address that it had. Raises MissingError where
        it was not built."""
        program = VERSITYGW.path()
        for _ in range(TRIES):
            self._port = self._port if again else _free_port()
            self._process = self._launch(program)
            if self._answers():
                return
            self.stop()
        raise AssertionError(f"no answer from {VERSITYGW.title}: {self._said()}")

    def stop(self) -> None:
        """At once, as if the machine had lost its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def bucket(self, name: str) -> Bucket:
        """A bucket, made if it is not there."""
        folder = self._root / "buckets" / name
        folder.mkdir(parents=True, exist_ok=True)
        return Bucket(name, folder, self.storage_options())

    def storage_options(self) -> dict[str, str]:
        return {
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "endpoint": f"http://127.0.0.1:{self._port}",
            "allow_http": "true",
        }

    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        (self._root / "buckets").mkdir(parents=True, exist_ok=True)
        named = ["--access", ACCESS_KEY, "--secret", SECRET, "--port", f"127.0.0.1:{self._port}"]
        command = [program, *named, "--quiet", "posix", self._root / "buckets"]
        with open(self._root / "log", "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self) -> bool:
        assert self._process is not None
        behind = time.monotonic() + PATIENCE_S
        while time.monotonic() < behind and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self._process.poll() is None
        return False

    def _said(self) -> str:
        return (self._root / "log").read_text(errors="replace")[-500:]

    def __enter__(self) -> Versitygw:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
