"""What a store is told about a service: the caller's texts, sorted and read for obstore.

obstore takes three kinds, and ends in a panic for one that comes in as another:

    config          of the service: region, endpoint, credentials, …   texts, as they are
    client_options  of the connection: timeout, allow_http, proxy_url  durations, flags, counts
    retry_config    of what is asked again                             durations, counts

Names may be in capitals and carry the service's prefix (`AWS_REGION`, `aws_region`, `region`).
A flag is true or false, a duration a number of seconds or a number with its unit (`500ms`,
`2min`). A request is repeated ten times and for 20 seconds at most, unless `max_retries` or
`retry_timeout` say otherwise: with the last attempt's own timeout, 30 seconds where `timeout` says
nothing, that is less than a lease of the default length, so nothing lands after its writer was
given up. Large bodies have more time (`PATIENT_SECONDS`).

What no option says the client takes from the environment: `AWS_ACCESS_KEY_ID` and its kin,
`AZURE_STORAGE_ACCOUNT_NAME` and its kin, `GOOGLE_APPLICATION_CREDENTIALS`,
`GOOGLE_SERVICE_ACCOUNT_KEY` and their kin.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from metatable.storage.errors import UsageError

__all__ = ["DURABLE", "ClientOptions", "refuse_unknown"]

DURABLE = "durable"
"""The one option of local folders; elsewhere it says nothing."""

MOST_SECONDS = 24 * 60 * 60
RETRY_SECONDS = 20
MOST_RETRIES = 10

OURS = 1 / 4
"""The part of this time in which we begin repeats of ours: with the client's own that, too, is less
than a lease."""

PATIENT_SECONDS = 15 * 60
"""How long an attempt to put a large body may take unless `timeout` is told: until its last byte is
answered, beside others on the same line. The writer renews its lease meanwhile; and what a process
sends that dies is cut off with its connection, and put nowhere."""

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = timedelta(milliseconds=100), timedelta(seconds=15), 2
"""How the client pauses between repeats where it is told nothing else."""

_FLAG_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]*)")


def _text(option: str, value: str) -> str:
    return value


def _url(option: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname)
        right = right and (parts.port is None or parts.port > 0) and value.isascii()
    except ValueError:
        right = False
    if not right or " " in value:
        told = value.rpartition("@")[2]  # what is before that may be a password
        raise _not(option, told, "an address such as https://host:9000")
    return value


def _flag(option: str, value: str) -> bool:
    if value.lower() not in _FLAG_WORDS:
        raise _not(option, value, "true or false")
    return _FLAG_WORDS[value.lower()]


def _flag_text(option: str, value: str) -> str:
    return "true" if _flag(option, value) else "false"


def _count(option: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 6:
        raise _not(option, value, "a whole number")
    return int(value)


def _count_text(option: str, value: str) -> str:
    return str(_count(option, value))


def _duration(option: str, value: str) -> timedelta:
    found = _DURATION.fullmatch(value.lower())
    unit = _UNITS.get(found[2] or "s") if found else None
    if found is None or unit is None or not 0 < float(found[1]) * unit <= MOST_SECONDS:
        raise _not(option, value, "seconds, or a number with ms, s, min or h, at most a day")
    return timedelta(seconds=float(found[1]) * unit)


def _duration_text(option: str, value: str) -> str:
    return f"{max(1, round(_duration(option, value) / timedelta(milliseconds=1)))}ms"


def _not(option: str, value: str, expected: str) -> UsageError:
    return UsageError("bad storage option", option=option, expected=expected, found=value)


Reader = Callable[[str, str], Any]


def _all(read: Reader, names: str) -> dict[str, Reader]:
    return dict.fromkeys(names.split(), read)


_S3 = (
    _all(_text, "access_key_id secret_access_key session_token token region default_region")
    | _all(_text, "checksum_algorithm conditional_put copy_if_not_exists request_payer")
    | _all(_text, "container_credentials_relative_uri container_credentials_full_uri")
    | _all(_text, "container_authorization_token_file web_identity_token_file")
    | _all(_text, "role_arn role_session_name server_side_encryption sse_kms_key_id")
    | _all(_text, "sse_customer_key_base64")
    | _all(_url, "endpoint endpoint_url metadata_endpoint endpoint_url_sts")
    | _all(_flag_text, "virtual_hosted_style_request s3_express imdsv1_fallback skip_signature")
    | _all(_flag_text, "unsigned_payload disable_tagging sse_bucket_key_enabled")
)
_AZURE = (
    _all(_text, "account_name account_key access_key client_id client_secret credential_type")
    | _all(_text, "tenant_id authority_id sas_key sas_token token bearer_token encryption_key")
    | _all(_text, "object_id msi_resource_id federated_token_file fabric_workload_host")
    | _all(_text, "fabric_session_token fabric_cluster_identifier")
    | _all(_url, "endpoint authority_host msi_endpoint identity_endpoint")
    | _all(_url, "fabric_token_service_url")
    | _all(_flag_text, "use_emulator use_fabric_endpoint use_azure_cli skip_signature")
    | _all(_flag_text, "disable_tagging")
)
_GCS = (
    _all(_text, "service_account service_account_path service_account_key bearer_token")
    | _all(_text, "application_credentials")
    | _all(_url, "base_url")
    | _all(_flag_text, "skip_signature")
)
_CLIENT = (
    _all(_flag, "allow_http allow_invalid_certificates http1_only http2_only randomize_addresses")
    | _all(_flag_text, "http2_keep_alive_while_idle")
    | _all(_duration_text, "timeout connect_timeout read_timeout pool_idle_timeout")
    | _all(_duration_text, "http2_keep_alive_interval http2_keep_alive_timeout")
    | _all(_count_text, "pool_max_idle_per_host")
    | _all(_text, "default_content_type user_agent proxy_excludes")
    | _all(_text, "root_certificate proxy_ca_certificate")
    | _all(_url, "proxy_url")
)
_BACKOFF = _all(_duration, "init_backoff max_backoff") | _all(_count, "base")
_RETRY = _all(_count, "max_retries") | _all(_duration, "retry_timeout") | _BACKOFF

_LINES = ("root_certificate", "proxy_ca_certificate", "service_account_key")
"""Options whose text has lines."""

_SERVICES: dict[str, tuple[dict[str, Reader], tuple[str, ...]]] = {
    "s3": (_S3, ("aws_",)),
    "s3a": (_S3, ("aws_",)),
    "gs": (_GCS, ("google_",)),
    **dict.fromkeys(
        ("az", "adl", "azure", "abfs", "abfss"), (_AZURE, ("azure_storage_", "azure_"))
    ),
    **dict.fromkeys(("http", "https", "memory"), ({}, ())),
}
"""Scheme of an address: the options of its service, the prefixes that they may carry."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What obstore is told, each in its place."""

    config: dict[str, str] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    retry: dict[str, Any] = field(default_factory=dict)
    environment: str = ""
    """What the names of variables begin with from which the service's client takes settings."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str]) -> ClientOptions:
        """What obstore is given for an address. Raises UsageError for its scheme, a name or a
        value."""
        scheme = uri.partition("://")[0].lower()
        if scheme not in _SERVICES:
            expected = f"a folder, or an address of {', '.join(sorted(_SERVICES))}"
            raise UsageError("no store for such an address", uri=uri, expected=expected)
        service, prefixes = _SERVICES[scheme]
        told = cls(environment=prefixes[-1].upper() if prefixes else "")
        for given, value in options.items():
            name = _bare(given.lower(), service, prefixes)
            told._take(given, name, value, service)
        told.retry.setdefault("retry_timeout", timedelta(seconds=RETRY_SECONDS))
        told.retry.setdefault("max_retries", MOST_RETRIES)
        return told

    def pauses(self) -> Iterator[float]:
        """Seconds to wait before each repeat of a call that we repeat ourselves, as long as there
        are any. Its time begins when the first is asked for."""
        told = self.retry.get("backoff", {})
        pause = told.get("init_backoff", _FIRST_PAUSE).total_seconds()
        longest = told.get("max_backoff", _LONGEST_PAUSE).total_seconds()
        until = time.monotonic() + OURS * self.retry["retry_timeout"].total_seconds()
        for _ in range(self.retry["max_retries"]):
            if time.monotonic() > until:
                return
            yield min(pause, longest)
            pause *= told.get("base", _GROWTH)

    def patient(self) -> ClientOptions:
        """The same for large bodies. A client that is told anything of its connections takes none
        of that from the environment: so what is there is told, too."""
        told = self.client or {
            name: os.environ[self.environment + name.upper()]
            for name in _CLIENT
            if self.environment and self.environment + name.upper() in os.environ
        }
        return replace(self, client={"timeout": f"{PATIENT_SECONDS}s", **told})

    def _take(self, given: str, name: str, value: str, service: Mapping[str, Reader]) -> None:
        if not value or (name not in _LINES and not value.isprintable()):
            raise UsageError("bad storage option", option=given, expected="one line of text")
        if name in service:
            self.config[name] = service[name](given, value)
        elif name in _CLIENT:
            self.client[name] = _CLIENT[name](given, value)
        elif name in _BACKOFF:
            self.retry.setdefault("backoff", {})[name] = _BACKOFF[name](given, value)
        elif name in _RETRY:
            self.retry[name] = _RETRY[name](given, value)
        elif name != DURABLE:
            refuse_unknown([given], [*service, *_CLIENT, *_RETRY])


def refuse_unknown(given: list[str], known: list[str]) -> None:
    """Raise UsageError for the first option that is not known, with the names that are near."""
    for name in given:
        if name not in known:
            near = get_close_matches(name.lower(), known, 3, 0.6)
            raise UsageError("unknown storage option", option=name, expected=near or sorted(known))


def _bare(name: str, service: Mapping[str, Reader], prefixes: tuple[str, ...]) -> str:
    """The name without its service's prefix."""
    for prefix in prefixes:
        bare = name.removeprefix(prefix)
        if bare != name and bare in {*service, *_CLIENT, *_RETRY}:
            return bare
    return name
