"""What obstore and the services behind it say of objects, told by errors of our family.

    AccessError   the service refuses us, or has no such bucket
    UsageError    what no service would do, and whatever makes obstore panic
    StoreError    the rest: asking again may help

A service's answer (XML or JSON) and obstore's dump of its own values are cut down to the status,
the code and the sentence in them. Some answers are no errors to a caller (an object that is not
there, a call that may be repeated): those are told apart here, too. `system_errors.py` does the
same for disks.
"""

from __future__ import annotations

import re

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError

__all__ = [
    "NO_OBJECT",
    "check_absence",
    "code_of_one",
    "is_panic",
    "is_passing",
    "is_silent",
    "ours",
    "panicked",
    "sentence",
]

NO_OBJECT = ("NoSuchKey", "NoSuchVersion", "BlobNotFound", "NotFound")
"""What services call an object that is missing; a 404 of another name tells of something else."""

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")

_PASSING = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "NoSuchUpload")
"""What S3 answers with a 4xx though the same put may be carried out a moment later: another one of
this object was under way, a body came too slowly, or the last answer to a put in parts was lost, so
that its repeat found nothing to complete."""

_PASSING_OF_ONE = ("ServiceUnavailable", "500", "503", "429")
"""What services of S3's kind, and Azure by a status, say of an object that was not deleted and may
be a moment later, in an answer that is no error itself. `InternalError` and `SlowDown` in such an
answer the client finds by itself, and repeats."""

_REFUSED_OF_ONE = ("AccessDenied", "401", "403")
"""The same, of S3 and of Azure, where we are not allowed to."""

_NO_SUCH_RANGE = "416"
"""What services say of a range that begins behind the end."""

_MISPLACED = ("169.254.", "incorrectly configured region")
"""What obstore says of a machine that is given no credentials, and of a bucket elsewhere."""


def check_absence(error: FileNotFoundError) -> None:
    """An object that is not there is no error; its bucket, or our key of access, is one."""
    if _code(error) not in ("", *NO_OBJECT):
        raise error


def _code(error: Exception) -> str:
    """What a service calls an error, where its answer is XML."""
    code = re.search("<Code>([^<]*)<", str(error))
    return code[1] if code else ""


def is_passing(error: Exception) -> bool:
    """Whether the call was not carried out, and may be a moment later."""
    return _code(error) in _PASSING or code_of_one(error) in _PASSING_OF_ONE


def code_of_one(error: Exception) -> str:
    """What a service that deletes many objects at once says of the one that it did not: some say
    so of an object that another deleted meanwhile. Azure says a status."""
    form = r"(?:DeleteObjects|Bulk delete) request failed for key .*\(code: (\w+)\)"
    code = re.search(form, str(error))
    return code[1] if code else ""


def ours(error: Exception, **where: str) -> MetatableError:
    """The error of our family that tells of this one."""
    told, found = str(error), sentence(str(error))
    status = re.search(r"status code: (\d{3})", told)
    if any(word in told for word in _NO_BUCKET):
        expected = "a bucket or container that is there"
        return AccessError("no such bucket", **where, expected=expected, found=found)
    if "source: BadScheme" in told:
        expected = "the storage option allow_http=true"
        return UsageError("plain http is not allowed", **where, expected=expected, found=found)
    if isinstance(error, InvalidPathError | NotSupportedError | ValueError):
        return UsageError("the store cannot do this", **where, found=found)
    refused = code_of_one(error) in _REFUSED_OF_ONE
    if refused or _is_refusal(error, int(status[1]) if status else 0, told):
        expected = "credentials, permissions and a region that fit this bucket"
        return AccessError("the store refuses us", **where, expected=expected, found=found)
    what = "the store did not answer as it should: try again"
    return StoreError(what, **where, **_tried(told), found=found)


_PERFORMING = r"Error performing (\w+) .*? in ([\d.]+)(ns|µs|ms|s)(?:, after (\d+) retries)?"


def _tried(told: str) -> dict[str, str]:
    """How often it was asked, and how long that took, where the client tells."""
    found = re.search(_PERFORMING, told)
    if found is None:
        return {}
    verb, amount, unit, repeats = found.groups()
    seconds = float(amount) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
    times = int(repeats or 0) + 1
    return {"tried": f"{verb}, {times} {'time' if times == 1 else 'times'} in {seconds:.1f} s"}


def is_silent(error: StoreError) -> bool:
    """Whether the store was asked again and again: another question would take as long."""
    tried, found = (str(error.facts.get(name, "")) for name in ("tried", "found"))
    return " times " in tried and not found.startswith(_NO_SUCH_RANGE)


def _is_refusal(error: Exception, status: int, told: str) -> bool:
    """Whether asking again as we are can never help."""
    if is_passing(error):
        return False
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | FileNotFoundError):
        return True
    if any(word in told for word in _MISPLACED):
        return True
    return 300 <= status < 500 and status not in (408, 409, 412, 416, 425, 429)


def sentence(told: str) -> str:
    """The one line in what obstore says: status and reason, without dumps, XML or JSON."""
    told, _, dump = told.partition("Debug source:")
    head, _, body = told.partition("status code: ")
    if body:
        status, _, answer = body.partition(":")
        return ": ".join(filter(None, (status.strip(), _answer(answer))))
    reason = head.rpartition(" - ")[2]
    cause = re.search(r'(?:message|error): "([^"]*)"', dump)
    inner = cause[1] if cause else "timed out" if "TimedOut" in dump else ""
    return _line(": ".join(dict.fromkeys(filter(None, (reason.strip(), inner)))))


def _answer(body: str) -> str:
    """What a service says in its answer."""
    words = [
        re.search(rf'<{name}>([^<]*)<|"{name}": ?"([^"]*)"', body, re.IGNORECASE)
        for name in ("Code", "Message")
    ]
    told = [word[1] or word[2] or "" for word in words if word is not None]
    if not told and not re.search(r"[<{]", body):
        told = [body]
    return _line(": ".join(told))


def _line(text: str, most: int = 300) -> str:
    text = " ".join(text.translate(_BRACKETS).split())
    return text if len(text) <= most else f"{text[:most]}…"


_BRACKETS = str.maketrans("<>{}", "    ")


def is_panic(error: BaseException) -> bool:
    """Rust's own end of all things; pyo3 keeps its class to itself, and below BaseException."""
    return type(error).__name__ == "PanicException"


def panicked(error: BaseException, **where: str) -> UsageError:
    """The error of our family that tells of a panic."""
    what = "the store's client cannot work with this address and these storage options"
    return UsageError(what, **where, found=_line(str(error)))
