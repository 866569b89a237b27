"""Credentials come from storage options, or from the environment, as each service names them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import metatable
from metatable import AccessError
from tests.model import arrow, scanned
from tests.services.servers import Bucket, GcsFront
from tests.services.test_s3_tables import created, rows

PREFIXES = {"s3": "AWS_", "az": "AZURE_STORAGE_", "gs": "GOOGLE_"}
WRONG = {"s3": ("SECRET_ACCESS_KEY", "another"), "az": ("ACCOUNT_KEY", "YW5vdGhlcg==")}
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
    tell(monkeypatch, any_bucket)
    if any_bucket.scheme in WRONG:
        name, value = WRONG[any_bucket.scheme]
        monkeypatch.setenv(PREFIXES[any_bucket.scheme] + name, value)
        with pytest.raises(AccessError):
            metatable.open(any_bucket.uri)
    else:  # whose server believes everybody
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "{}")
    assert metatable.open(any_bucket.uri, storage_options=dict(any_bucket.storage_options)).version


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
def test_no_error_tells_a_secret(
    any_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options = dict(any_bucket.storage_options)
    if kind == "environment":
        tell(monkeypatch, any_bucket)
        options = {}
    with pytest.raises(AccessError) as raised:
        metatable.open(f"{any_bucket.scheme}://no-such-bucket", storage_options=options)
    for name in SECRETS:
        assert any_bucket.storage_options.get(name, "no secret") not in str(raised.value)
