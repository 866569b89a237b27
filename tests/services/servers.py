"""Servers on the loopback that hold objects as the services of S3, Azure and GCS do, and a proxy
that spoils the way to them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.services.programs import AZURITE, GCS_FRONT, TOXIPROXY, VERSITYGW, Program

__all__ = ["KINDS", "Azurite", "Bucket", "GcsFront", "Server", "Toxiproxy", "Versitygw"]

ACCESS_KEY, SECRET = "tester", "a secret of tests"
ACCOUNT, ACCOUNT_KEY = "tester", base64.b64encode(b"a key of tests").decode()
PATIENCE_S = 60
TRIES = 5
"""A free port may be taken by somebody else before the server has it."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`storage_options` are all that a table in it needs; `folder` holds the same files, where the
    server keeps them as such."""

    name: str
    scheme: str
    folder: Path
    storage_options: Mapping[str, str]

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.name}"

    def at(self, port: int) -> Bucket:
        """The same bucket, behind another port of this machine."""
        words = dict(self.storage_options)
        for name, value in words.items():
            if "://127.0.0.1:" in value:
                head, _, tail = value.partition("://127.0.0.1:")
                words[name] = f"{head}://127.0.0.1:{port}{tail.lstrip('0123456789')}"
        return replace(self, storage_options=words)

    def by_stranger(self) -> Bucket:
        """The same bucket, with credentials that the server does not know."""
        key = self.storage_options.get("service_account_key", "")
        wrong = {
            "secret_access_key": "another",
            "account_key": "YW5vdGhlcg==",
            "service_account_key": key.replace("tester@", "stranger@"),
        }
        return self.told(**{name: wrong[name] for name in wrong.keys() & self.storage_options})

    def told(self, **options: str) -> Bucket:
        """The same bucket, with more options."""
        return replace(self, storage_options={**self.storage_options, **options})


class Server:
    """A server over one folder. Use as a context manager, or `start` and `stop`."""

    program: ClassVar[Program]
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, root: Path) -> None:
        self._root = root
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str | Path]:
        """What is behind the program's path, for `port`."""
        raise NotImplementedError

    def start(self, again: bool = False) -> None:
        """Return when it answers; `again` at the address that it had. Raises MissingError where
        it was not built."""
        program = self.program.path()
        self._root.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES):
            self.port = self.port if again else free_port()
            with open(self._root / "log", "ab") as log:
                self._process = subprocess.Popen(
                    [program, *self.command()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | self.environment,
                )
            if self._answers():
                return
            self.stop()
        raise AssertionError(f"no answer from {self.program.title}: {self._said()}")

    def stop(self) -> None:
        """At once, as if the machine had lost its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        behind = time.monotonic() + PATIENCE_S
        while time.monotonic() < behind and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self._process.poll() is None
        return False

    def _said(self) -> str:
        return (self._root / "log").read_text(errors="replace")[-500:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Versitygw(Server):
    """S3."""

    program = VERSITYGW

    def command(self) -> Sequence[str | Path]:
        buckets = self._root / "buckets"
        buckets.mkdir(exist_ok=True)
        named = ["--access", ACCESS_KEY, "--secret", SECRET, "--port", f"127.0.0.1:{self.port}"]
        return [*named, "--quiet", "posix", buckets]

    def bucket(self, name: str) -> Bucket:
        """A bucket, made if it is not there."""
        folder = self._root / "buckets" / name
        folder.mkdir(parents=True, exist_ok=True)
        return Bucket(name, "s3", folder, self.storage_options())

    def storage_options(self) -> dict[str, str]:
        return {
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "allow_http": "true",
        }


class Azurite(Server):
    """Azure."""

    program = AZURITE

    def command(self) -> Sequence[str | Path]:
        quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
        return ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), *quiet]

    environment: ClassVar[Mapping[str, str]] = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}

    def bucket(self, name: str) -> Bucket:
        date = formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": "2021-12-02", "Content-Type": "text/plain"}
        signed = "".join(f"{one}:{headers[one]}\n" for one in ("x-ms-date", "x-ms-version"))
        resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        text = "PUT" + "\n" * 5 + "text/plain" + "\n" * 7 + signed + resource
        raw = hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(raw).decode()}"
        _asked(f"{self._endpoint}/{name}?restype=container", "PUT", b"", headers)
        return Bucket(name, "az", self._root, self.storage_options())

    def storage_options(self) -> dict[str, str]:
        return {
            "account_name": ACCOUNT,
            "account_key": ACCOUNT_KEY,
            "endpoint": self._endpoint,
            "allow_http": "true",
        }

    @property
    def _endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"


class GcsFront(Server):
    """GCS."""

    program = GCS_FRONT

    def command(self) -> Sequence[str | Path]:
        return [f"127.0.0.1:{self.port}"]

    def bucket(self, name: str) -> Bucket:
        body = json.dumps({"name": name}).encode()
        headers = {"Content-Type": "application/json"}
        _asked(f"http://127.0.0.1:{self.port}/storage/v1/b?project=tests", "POST", body, headers)
        return Bucket(name, "gs", self._root, self.storage_options())

    def storage_options(self) -> dict[str, str]:
        key = _asked(f"http://127.0.0.1:{self.port}/_account", "GET", b"", {})
        return {"service_account_key": key.decode(), "allow_http": "true"}


KINDS: dict[str, type[Versitygw] | type[Azurite] | type[GcsFront]] = {
    "s3": Versitygw,
    "azure": Azurite,
    "gcs": GcsFront,
}


class Toxiproxy(Server):
    """What is put between: `proxy` opens a port that leads to another one, `spoil` spoils it."""

    program = TOXIPROXY

    def command(self) -> Sequence[str | Path]:
        return ["-host", "127.0.0.1", "-port", str(self.port)]

    def proxy(self, name: str, upstream: int) -> int:
        """The port of a new proxy."""
        body = {"name": name, "listen": "127.0.0.1:0", "upstream": f"127.0.0.1:{upstream}"}
        told = self._told("POST", "/proxies", {**body, "enabled": True})
        return int(told["listen"].rpartition(":")[2])

    def spoil(self, proxy: str, kind: str, stream: str = "downstream", **attributes: int) -> None:
        """Add a toxic: latency, bandwidth, reset_peer, limit_data, slicer, timeout."""
        toxic = {"name": kind, "type": kind, "stream": stream, "attributes": attributes}
        self._told("POST", f"/proxies/{proxy}/toxics", toxic)

    def mend(self, proxy: str, kind: str) -> None:
        """Take it away again."""
        self._told("DELETE", f"/proxies/{proxy}/toxics/{kind}")

    def _told(self, method: str, path: str, body: Any = None) -> Any:
        raw = b"" if body is None else json.dumps(body).encode()
        said = _asked(f"http://127.0.0.1:{self.port}{path}", method, raw, {"User-Agent": "tests"})
        return json.loads(said or "null")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _asked(url: str, method: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    request = urllib.request.Request(url, body, dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())
