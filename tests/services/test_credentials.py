"""Credentials come from storage options, or from the environment, as each service names them."""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import AccessError
from tests.model import arrow, scanned
from tests.services.servers import Bucket, GcsFront
from tests.services.test_s3_tables import created, rows

PREFIXES = {"s3": "AWS_", "az": "AZURE_STORAGE_", "gs": "GOOGLE_"}
SECRETS = ("secret_access_key", "account_key", "service_account_key")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine knows is no help."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


def tell(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    """All storage options of a bucket, by the environment."""
    for name, value in bucket.storage_options.items():
        prefix = "AZURE_" if name == "allow_http" and bucket.scheme == "az" else None
        monkeypatch.setenv((prefix or PREFIXES[bucket.scheme]) + name.upper(), value)


def test_the_environment_is_enough(any_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, any_bucket)
    created(any_bucket.uri, {}).insert(arrow(rows(0, 4, 1)))
    assert len(scanned(metatable.open(any_bucket.uri))) == 4


def test_options_go_before_the_environment(
    any_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(any_bucket.uri, any_bucket.storage_options)
    tell(monkeypatch, any_bucket.by_stranger())
    with pytest.raises(AccessError):
        metatable.open(any_bucket.uri)
    assert metatable.open(any_bucket.uri, storage_options=dict(any_bucket.storage_options)).version


def test_a_token_of_google_that_nobody_has_signed_is_refused(servers: Any) -> None:
    """So what the stand-in for GCS tells of others counts."""
    bucket = servers.get(GcsFront).bucket(f"test-{uuid.uuid4().hex}")
    key = json.loads(bucket.storage_options["service_account_key"])
    claims = {"iss": key["client_email"], "exp": int(time.time()) + 3600}
    forged = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "RS256"}, claims, "signed")
    )
    options = {"base_url": key["gcs_base_url"], "allow_http": "true", "bearer_token": forged}
    with pytest.raises(AccessError, match="401 Unauthorized") as raised:
        created(bucket.uri, options)
    assert forged not in str(raised.value)


@pytest.mark.parametrize("how", ["option", "GOOGLE_SERVICE_ACCOUNT"])
def test_a_key_of_google_may_lie_in_a_file(
    servers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    bucket = servers.get(GcsFront).bucket(f"test-{uuid.uuid4().hex}")
    file = tmp_path / "key.json"
    file.write_text(bucket.storage_options["service_account_key"])
    options = {"allow_http": "true"}
    if how == "option":
        options["service_account_path"] = str(file)
    else:
        monkeypatch.setenv(how, str(file))
    created(bucket.uri, options)
    assert metatable.open(bucket.uri, storage_options=options).version == 1


@pytest.mark.parametrize("kind", ["options", "environment"])
@pytest.mark.parametrize("mistake", ["bucket", "credentials"])
def test_no_error_tells_a_secret(
    any_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, mistake: str, kind: str
) -> None:
    bucket = any_bucket if mistake == "bucket" else any_bucket.by_stranger()
    uri = f"{bucket.scheme}://no-such-bucket" if mistake == "bucket" else bucket.uri
    options = dict(bucket.storage_options)
    if kind == "environment":
        tell(monkeypatch, bucket)
        options = {}
    facts = r"path='.+' store='.+' expected='.+' found='.+'"
    asks: list[Callable[[], object]] = [
        lambda: metatable.open(uri, storage_options=options),
        lambda: created(uri, options),
    ]
    for ask in asks:
        with pytest.raises(AccessError, match=facts) as raised:
            ask()
        told = f"{raised.value!r} {raised.value}"
        assert not [one for one in secrets(bucket) if one in told]


def secrets(bucket: Bucket) -> list[str]:
    """What no error may tell: keys, and each line of a key that has some."""
    given = [bucket.storage_options[name] for name in SECRETS if name in bucket.storage_options]
    return [line for one in given for line in one.split("\\n")]
