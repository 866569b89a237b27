"""A small server that answers as S3 does, over plain http: one bucket, objects in memory.

`answers` makes the next requests end otherwise: a status and a code (as S3 sends them, in XML),
or `LOST`, which carries the request out and closes the connection instead of answering.
`kept` names objects that a request to delete many does not, each with the code it gives for that;
`kept_once` has the codes that it gives for the next ones, one for each. Where it `overwrites`, it
passes over the condition of a put-if-absent, as some servers do that speak S3's language.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "lake"
LOST = (0, "")


@dataclass
class S3:
    """What is stored, what is to be answered, and how a client gets here."""

    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    always: tuple[int, str] | None = None
    answers: list[tuple[int, str] | None] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    kept_once: list[str] = field(default_factory=list)
    overwrites: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0
    bucket: str = field(default_factory=lambda: f"{BUCKET}-{uuid.uuid4().hex}")

    def start_anew(self) -> None:
        """An empty bucket of a new name: what was asked of the old one may still be on its way."""
        with self.lock:
            self.bucket = f"{BUCKET}-{uuid.uuid4().hex}"
            self.always, self.overwrites = None, False
            held = self.objects, self.parts, self.answers, self.asked, self.kept, self.kept_once
            for one in held:
                one.clear()

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "allow_http": "true",
            "access_key_id": "someone",
            "secret_access_key": "secret",
            "region": "us-east-1",
            "timeout": "5",
            "max_retries": "1",
        }


@contextmanager
def serving() -> Iterator[S3]:
    """A server in a thread, gone after the block."""
    state = S3()
    handler = type("Handler", (_Handler,), {"state": state})
    server = _Server(("127.0.0.1", 0), handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Nothing: a client may hang up."""


class _Handler(BaseHTTPRequestHandler):
    """Looks for `do_GET` and its like; one method does them all."""

    state: S3
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.do_any
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Nothing: a test says what it wants to know."""

    def do_any(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.state.lock:
            if bucket.startswith(f"{BUCKET}-") and bucket != self.state.bucket:
                self._fail(404, "NoSuchBucket")  # of a test before, or of one that had this port
                return
            if bucket == self.state.bucket:  # a client may come back to a port that another had
                self.state.asked.append((self.command, key))
            told = self.state.answers.pop(0) if self.state.answers else self.state.always
            if told not in (None, LOST):
                self._fail(*told)
                return
            if bucket != self.state.bucket:
                self._fail(404, "NoSuchBucket")
                return
            if told == LOST:
                self.wfile = _Nowhere()
                self.close_connection = True
            self._carry_out(key, parse_qs(parts.query, keep_blank_values=True), body)

    def _carry_out(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        objects = self.state.objects
        if "list-type" in query:
            delimiter = "delimiter" in query
            self._answer(200, _listing(objects, query.get("prefix", [""])[0], delimiter))
        elif "uploads" in query or "uploadId" in query:
            self._carry_out_upload(key, query, body)
        elif self.command == "POST":
            names = re.findall("<Key>(.*?)</Key>", body.decode())
            told = "".join(map(self._delete_one, names))
            self._answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())
        elif self.command == "DELETE":
            objects.pop(key, None)
            self._answer(204)
        elif self.command == "PUT":
            conditional = self.headers.get("if-none-match") == "*" and not self.state.overwrites
            if conditional and key in objects:
                self._fail(412, "PreconditionFailed")
                return
            objects[key] = body, datetime.now(UTC)
            self._answer(200)
        elif key not in objects:
            self._fail(404, "NoSuchKey")
        else:
            self._send(*objects[key])

    def _carry_out_upload(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        """A put in parts: it is begun, has its parts, and is completed or given up."""
        name = query.get("uploadId", [uuid.uuid4().hex])[0]
        parts = self.state.parts
        if "uploads" in query:
            parts[name] = {}
            told = f"<UploadId>{name}</UploadId>"
            self._answer(200, _upload("Initiate", told))
        elif name not in parts:
            self._fail(404, "NoSuchUpload")
        elif self.command == "PUT":
            parts[name][int(query["partNumber"][0])] = body
            self._answer(200)
        else:
            held = parts.pop(name)
            if self.command == "POST":
                whole = b"".join(held[number] for number in sorted(held))
                self.state.objects[key] = whole, datetime.now(UTC)
            self._answer(200, _upload("Complete", "<ETag>e</ETag>"))

    def _delete_one(self, name: str) -> str:
        once = self.state.kept_once
        code = once.pop(0) if once else self.state.kept.get(unescape(name))
        if code is not None:
            told = f"<Code>{code}</Code><Message>This is {code}.</Message>"
            return f"<Error><Key>{name}</Key>{told}</Error>"
        self.state.objects.pop(unescape(name), None)
        return f"<Deleted><Key>{name}</Key></Deleted>"

    def _send(self, body: bytes, modified: datetime) -> None:
        headers = {"Last-Modified": f"{modified:%a, %d %b %Y %H:%M:%S GMT}", "ETag": '"e"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or "")
        if wanted is None:
            self._answer(200, body, headers)
            return
        start, end = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
        if start >= len(body):
            self._fail(416, "InvalidRange")
            return
        headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
        self._answer(206, body[start : end + 1], headers)

    def _fail(self, status: int, code: str) -> None:
        told = f"<Code>{code}</Code><Message>This is\n{code}.</Message>"
        self._answer(status, f'<?xml version="1.0"?>\n<Error>{told}</Error>'.encode())

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in ({"ETag": '"e"'} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Nowhere:
    """Where an answer goes that gets lost."""

    def write(self, body: bytes) -> int:
        return len(body)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    closed = False


def _listing(objects: dict[str, tuple[bytes, datetime]], prefix: str, delimited: bool) -> bytes:
    found, folders = [], set()
    for key, (body, modified) in sorted(objects.items()):
        rest = key.removeprefix(prefix)
        if rest == key and prefix:
            continue
        if delimited and "/" in rest:
            folders.add(prefix + rest.partition("/")[0] + "/")
            continue
        when = f"{modified:%Y-%m-%dT%H:%M:%S}.{modified.microsecond // 1000:03}Z"
        found.append(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size>"
            f'<LastModified>{when}</LastModified><ETag>"e"</ETag></Contents>'
        )
    found += [f"<CommonPrefixes><Prefix>{one}</Prefix></CommonPrefixes>" for one in sorted(folders)]
    count = len(found)
    told = f"<KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult>{told}{''.join(found)}</ListBucketResult>".encode()


def _upload(verb: str, told: str) -> bytes:
    name = f"{verb}MultipartUploadResult"
    return f"<{name}>{told}</{name}>".encode()
