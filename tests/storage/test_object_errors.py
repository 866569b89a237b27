"""What a service says is told as one of ours: a class for what one can do, and one line."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

import obstore
import pytest

from metatable.storage import objects
from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError
from metatable.storage.object_options import ClientOptions
from metatable.storage.store import Store
from tests.storage.s3_server import LOST, S3, serving


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with serving() as running:
        yield running


@pytest.fixture
def s3(server: S3) -> S3:
    server.start_anew()
    return server


def store_of(s3: S3, **options: str) -> Store:
    return Store(f"{s3.uri}/t", s3.options | {"max_retries": "0"} | options)


def _sink(store: Store) -> None:
    with store.sink("a/b") as file:
        file.write(b"1")


VERBS: dict[str, Callable[[Store], object]] = {
    "size": lambda store: store.size("a/b"),
    "get": lambda store: store.get("a/b"),
    "read": lambda store: store.read("a/b", [(0, 1)]),
    "put": lambda store: store.put("a/b", b"1"),
    "create": lambda store: store.create("a/b", b"1"),
    "sink": _sink,
    "list": lambda store: store.list("a/b"),
    "list recursively": lambda store: store.list("a/b", recursive=True),
    "delete": lambda store: store.delete(["a/b"]),
}


def is_one_line(error: MetatableError) -> bool:
    told = str(error)
    return not any(word in told for word in ("\n", "Debug source", "{", "<", "retry_timeout:"))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "InvalidAccessKeyId", AccessError),
        (403, "SignatureDoesNotMatch", AccessError),
        (400, "AuthorizationHeaderMalformed", AccessError),
        (500, "InternalError", StoreError),
        (503, "SlowDown", StoreError),
        (507, "InsufficientStorage", StoreError),
        (429, "TooManyRequests", StoreError),
    ],
)
def test_answer_of_a_service_is_told_in_one_line(
    s3: S3, verb: str, status: int, code: str, kind: type[MetatableError]
) -> None:
    s3.always = status, code
    with pytest.raises(MetatableError) as caught:
        VERBS[verb](store_of(s3))
    error = caught.value
    assert type(error) is kind
    assert is_one_line(error), str(error)
    assert str(status) in error.facts["found"]
    assert verb == "size" or code in error.facts["found"]  # an answer to HEAD has no body
    assert (error.facts["path"], error.facts["store"]) == ("a/b", f"{s3.uri}/t")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("verb", VERBS)
def test_bucket_of_another_region_is_told(s3: S3, verb: str) -> None:
    s3.always = 301, "PermanentRedirect"
    with pytest.raises(AccessError, match="region") as caught:
        VERBS[verb](store_of(s3))
    assert is_one_line(caught.value)


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"size"}))
def test_missing_bucket_is_no_missing_file(s3: S3, verb: str) -> None:
    store = Store("s3://else/t", s3.options)
    with pytest.raises(AccessError, match=r"^no such bucket: path='a/b' store='s3://else/t' "):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"size"}))
def test_unknown_user_is_no_missing_file_either(s3: S3, verb: str) -> None:
    s3.always = 404, "XAdminUserNotFound"
    with pytest.raises(AccessError, match=r"the store refuses us: .* XAdminUserNotFound"):
        VERBS[verb](store_of(s3))


@pytest.mark.parametrize("verb", VERBS)
def test_nobody_listens(s3: S3, verb: str) -> None:
    store = store_of(s3, endpoint="http://127.0.0.1:1")
    with pytest.raises(StoreError, match="Connection refused") as caught:
        VERBS[verb](store)
    assert is_one_line(caught.value), str(caught.value)


@pytest.mark.parametrize("answer", [None, (503, "SlowDown")])
def test_a_store_that_does_not_answer_is_not_asked_for_a_size_besides(
    s3: S3, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str] | None
) -> None:
    s3.always = answer
    options = {"max_retries": "2", "init_backoff": "1ms"}
    store = store_of(s3, **options, **({} if answer else {"endpoint": "http://127.0.0.1:1"}))
    asked: list[str] = []

    def head(_: object, path: str) -> dict[str, int]:
        asked.append(path)
        return {"size": 1}

    monkeypatch.setattr(obstore, "head", head)
    with pytest.raises(StoreError, match="tried='GET, 3 times in "):
        store.read("a", [(0, 1)])
    assert asked == []


def test_slow_service_is_given_up_after_the_timeout(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "lock", SlowLock(1))
    began = time.monotonic()
    with pytest.raises(StoreError, match="timed out"):
        store_of(s3, timeout="200ms").get("a")
    assert time.monotonic() - began < 1


class SlowLock:
    """Whoever takes it waits."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        time.sleep(self._seconds)

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are told no timeout wait for a tenth of a second, where they would for 30."""
    connect = objects.from_url

    def from_url(uri: str, *, client_options: Any, **how: Any) -> Any:
        return connect(uri, client_options={"timeout": "100ms", **client_options}, **how)

    monkeypatch.setattr(objects, "from_url", from_url)


def without_timeout(s3: S3) -> dict[str, str]:
    options = s3.options | {"max_retries": "0"}
    return {name: value for name, value in options.items() if name != "timeout"}


def put_by_sink(store: Store, path: str, body: bytes) -> None:
    with store.sink(path) as file:
        file.write(body)


PUTS: dict[str, Callable[[Store, str, bytes], object]] = {
    "put": Store.put,
    "create": Store.create,
    "create of a file": lambda store, path, body: store.create(path, io.BytesIO(body)),
    "sink": put_by_sink,
}


@pytest.mark.parametrize("verb", PUTS)
@pytest.mark.usefixtures("hasty")
def test_large_bodies_have_more_time_than_small_ones(
    s3: S3, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store = Store(f"{s3.uri}/t", without_timeout(s3))
    monkeypatch.setattr(s3, "lock", SlowLock(0.3))
    with pytest.raises(StoreError, match="timed out"):
        PUTS[verb](store, "small", b"1")
    size = 2 * PART_BYTES if verb == "sink" else 2 << 20
    for path in ("large", ".hoodie/metatable/files/large.hfile"):
        PUTS[verb](store, path, b"1" * size)
        assert len(s3.objects[f"t/{path}"][0]) == size
    with pytest.raises(StoreError, match="timed out"):  # a writer may wait for that
        PUTS[verb](store, ".hoodie/20260101000000000.commit", b"1" * size)


PART_BYTES = 5 << 20
"""What the client puts of a larger body by one request, where it may take several."""


@pytest.mark.parametrize("verb", PUTS)
def test_a_timeout_that_is_told_is_that_of_large_bodies_too(
    s3: S3, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store = store_of(s3, timeout="100ms")
    monkeypatch.setattr(s3, "lock", SlowLock(0.3))
    with pytest.raises(StoreError, match="timed out"):
        PUTS[verb](store, "large", b"1" * (2 << 20))


def test_large_bodies_are_put_by_what_the_environment_says_of_connections(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    options = {k: v for k, v in without_timeout(s3).items() if k != "allow_http"}
    store = Store(f"{s3.uri}/t", options)
    store.put("small", b"1")
    store.put("large", b"1" * (2 << 20))
    assert [*s3.objects] == ["t/small", "t/large"]
    monkeypatch.setenv("AWS_TIMEOUT", "100ms")
    store = Store(f"{s3.uri}/t", options)
    monkeypatch.setattr(s3, "lock", SlowLock(0.3))
    with pytest.raises(StoreError, match="timed out"):
        store.put("large", b"1" * (2 << 20))


def test_plain_http_must_be_allowed(s3: S3) -> None:
    with pytest.raises(UsageError, match=r"plain http is not allowed: .* allow_http=true"):
        store_of(s3, allow_http="false").get("a")
    azure = {"endpoint": s3.options["endpoint"], "account_name": "x", "sas_token": "sv=1&sig=x"}
    with pytest.raises(UsageError, match="plain http is not allowed"):  # obstore hides its address
        Store("az://c", azure).get("a")


def test_failing_service_is_asked_again_as_often_as_it_was_said(s3: S3) -> None:
    s3.answers = [(503, "SlowDown")] * 2
    store_of(s3, max_retries="2", init_backoff="1ms").put("a", b"1")
    assert s3.asked == [("PUT", "t/a")] * 3


def test_create_of_a_lost_answer_is_settled_by_what_is_stored(s3: S3) -> None:
    s3.answers = [LOST]
    assert store_of(s3).create("a", b"ours")
    assert s3.objects["t/a"][0] == b"ours"


def test_create_of_an_error_behind_another_writers_is_that_error(s3: S3) -> None:
    store = store_of(s3)
    store.put("a", b"theirs")
    s3.answers = [(500, "InternalError")]
    with pytest.raises(StoreError, match="500"):
        store.create("a", b"ours")


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchVersion"])
def test_object_that_another_has_deleted_is_deleted(s3: S3, code: str) -> None:
    s3.kept = {"t/a": code}
    store_of(s3).delete(["a"])
    assert s3.asked == [("POST", "")]


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDenied", AccessError), ("InternalError", StoreError)]
)
def test_object_that_is_not_deleted_is_an_error(
    s3: S3, code: str, kind: type[MetatableError]
) -> None:
    store = store_of(s3)
    store.put("a", b"1")
    s3.kept = {"t/a": code}
    with pytest.raises(kind, match=rf"path='a' .*{code}") as told:
        store.delete(["a"])
    assert is_one_line(told.value)
    assert store.get("a") == b"1"


def put_some(s3: S3, **options: str) -> Store:
    """A store of five objects; nothing is told of how they came."""
    store = store_of(s3, **options)
    for name in "abcde":
        store.put(name, b"1")
    s3.asked.clear()
    return store


def test_many_objects_are_deleted_by_one_request(s3: S3) -> None:
    store = put_some(s3)
    before = store.counters["store.deletes"]
    store.delete_all(iter([*"abcde", "absent"]))
    assert s3.asked == [("POST", "")]
    assert not s3.objects
    assert store.counters["store.deletes"] - before == 6


def test_of_many_more_objects_each_request_takes_as_many_as_it_may(s3: S3) -> None:
    store_of(s3).delete_all(f"a/{number}" for number in range(2001))
    assert s3.asked == [("POST", "")] * 3


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDenied", AccessError), ("InternalError", StoreError)]
)
def test_of_many_objects_the_one_that_is_not_deleted_is_told(
    s3: S3, code: str, kind: type[MetatableError]
) -> None:
    store = put_some(s3)
    s3.kept = {"t/c": code}
    with pytest.raises(kind, match=rf"path='c' .*{code}"):
        store.delete_all("abcde")
    assert [*s3.objects] == ["t/c"]


def test_who_may_not_delete_many_objects_asks_for_one_of_them_besides(s3: S3) -> None:
    store = put_some(s3)
    s3.always = 403, "AccessDenied"
    with pytest.raises(AccessError, match=r"path='a' .*AccessDenied"):
        store.delete_all("abcde")
    assert s3.asked == [("POST", "")] * 2


@pytest.mark.parametrize("code", ["NoSuchKey", "ServiceUnavailable"])
def test_of_many_objects_one_that_is_gone_or_busy_is_no_error(s3: S3, code: str) -> None:
    store = put_some(s3, max_retries="2", init_backoff="1ms")
    s3.kept_once = ["NoSuchKey", code]
    store.delete_all("abcde")
    assert not s3.objects


def test_of_many_objects_one_that_azure_says_is_gone_is_no_error(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is an error of its own, and nothing is told of the others: these go together."""
    store, delete = put_some(s3), obstore.delete

    def deletes(client: Any, paths: Any) -> None:
        if isinstance(paths, list):
            raise FileNotFoundError("Object at location t/absent not found")
        delete(client, paths)

    monkeypatch.setattr(obstore, "delete", deletes)
    monkeypatch.setattr(objects, "in_turn", lambda _: pytest.fail("one after the other"))
    store.delete_all([*"abcde", "absent"])
    assert not s3.objects


def test_a_store_that_does_not_answer_is_asked_once_to_delete_many(s3: S3) -> None:
    store = put_some(s3, max_retries="2", init_backoff="1ms")
    s3.always = 503, "SlowDown"
    with pytest.raises(StoreError, match="tried='POST, 3 times"):
        store.delete_all("abcde")
    assert s3.asked == [("POST", "")] * 3
    assert len(s3.objects) == 5


@pytest.mark.parametrize(
    "answer",
    [(409, "ConditionalRequestConflict"), (409, "OperationAborted"), (400, "RequestTimeout")],
)
@pytest.mark.parametrize("verb", ["create", "put", "sink"])
def test_write_that_met_what_passes_is_made_again(
    s3: S3, verb: str, answer: tuple[int, str]
) -> None:
    s3.answers = [answer]
    VERBS[verb](store_of(s3, max_retries="1", init_backoff="1ms"))
    assert s3.asked == [("PUT", "t/a/b")] * 2
    assert len(s3.objects) == 1


@pytest.mark.parametrize("code", ["InternalError", "SlowDown", "ServiceUnavailable"])
def test_delete_that_met_what_passes_is_made_again(s3: S3, code: str) -> None:
    """S3 says so of the object, in an answer that is no error: the client repeats nothing."""
    store = store_of(s3, max_retries="2", init_backoff="1ms")
    store.put("a", b"1")
    s3.kept_once = [code] * 2
    store.delete(["a"])
    assert s3.asked == [("PUT", "t/a"), *[("POST", "")] * 3]
    assert s3.objects == {}
    store.put("a", b"1")
    s3.kept_once = [code] * 3
    with pytest.raises(StoreError, match=code):
        store.delete(["a"])


def test_create_that_meets_others_for_ever_is_no_other_writers(s3: S3) -> None:
    """Nothing is there, and so nobody was first."""
    s3.always = 409, "ConditionalRequestConflict"
    with pytest.raises(StoreError, match="409 Conflict: ConditionalRequestConflict"):
        store_of(s3, max_retries="1", init_backoff="1ms").create("a", b"ours")
    assert s3.asked.count(("PUT", "t/a")) == 2


@pytest.mark.parametrize("verb", ["put", "sink"])
def test_put_in_parts_of_which_the_last_answer_is_lost_is_made_again(s3: S3, verb: str) -> None:
    body = bytes(6 << 20)
    s3.answers = [None, None, None, LOST]  # begun, two parts, completed
    store = store_of(s3, max_retries="1", init_backoff="1ms")
    if verb == "put":
        store.put("a", body)
    else:
        with store.sink("a") as file:
            file.write(body)
    assert s3.objects["t/a"][0] == body
    assert s3.parts == {}


# secrets


def kinds_of_service(s3: S3) -> dict[str, Store]:
    """One that is asked ten times more by default, of each kind."""
    near = {"endpoint": s3.options["endpoint"], "allow_http": "true"}
    azure = {**near, "account_name": "someone"}
    google = {"base_url": s3.options["endpoint"], "allow_http": "true"}
    return {
        "s3": Store(s3.uri, {**near, "access_key_id": "x", "secret_access_key": SECRET}),
        "azure": Store(f"az://{s3.bucket}", {**azure, "account_key": SECRET}),
        "azure sas": Store(f"az://{s3.bucket}", {**azure, "sas_token": f"sv=1&sig={SECRET}"}),
        "gcs": Store(f"gs://{s3.bucket}", {**google, "bearer_token": SECRET}),
    }


SECRET = "c2VjcmV0U0VDUkVU"


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("verb", ["get", "put", "list"])
@pytest.mark.parametrize("kind", ["s3", "azure", "azure sas", "gcs"])
def test_refusal_is_not_asked_again_and_tells_no_secret(
    s3: S3, kind: str, verb: str, status: int
) -> None:
    s3.always = status, "Refused"
    with pytest.raises(AccessError, match=rf"the store refuses us: path=.*'{status} ") as told:
        VERBS[verb](kinds_of_service(s3)[kind])
    assert len(s3.asked) == 1
    assert SECRET not in f"{told.value!r} {told.value}"


@pytest.mark.parametrize(
    ("uri", "option", "value"),
    [
        ("gs://b/x", "service_account_key", f'"{{\\"private_key\\": \\"{SECRET}\\"}}"'),
        ("gs://b/x", "service_account_key", f'{{"private_key": "{SECRET}"'),
        ("gs://b/x", "service_account_key", f'{{"disable_oauth": "{SECRET}"}}'),
        ("az://b/x", "account_key", f"{SECRET}!"),
        ("az://b/x", "sas_token", SECRET),
        ("s3://b/x", "proxy_url", f"someone:{SECRET}@proxy:3128"),
        ("s3://b/x", "endpoint", f"http://someone:{SECRET}@proxy:port"),
    ],
)
def test_option_that_cannot_be_read_is_refused_and_its_secret_not_told(
    uri: str, option: str, value: str
) -> None:
    options = {option: value, **({"account_name": "someone"} if uri.startswith("az") else {})}
    with pytest.raises(UsageError) as told:
        Store(uri, options)
    assert SECRET not in f"{told.value!r} {told.value}"
    assert is_one_line(told.value)


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://someone:{SECRET}@b/x",
        f"s3://someone:{SECRET}/half@b/x",
        f"https://someone:{SECRET}@host:9000/b",
        f"ftp://someone:{SECRET}@host/b",
        f"file://someone:{SECRET}@host/b",
        f"s3://someone:{SECRET}@[x/t",
    ],
)
def test_address_with_a_password_is_refused_and_the_password_not_told(uri: str) -> None:
    with pytest.raises(UsageError, match="address") as told:
        Store(uri)
    assert SECRET not in f"{told.value!r} {told.value}"
    assert uri.rpartition("@")[2] in str(told.value)


@pytest.mark.parametrize(
    "uri",
    [
        f"https://me.blob.core.windows.net/c/x?sv=1&sig={SECRET}",
        f"az://c/x?sig={SECRET}",
        f"s3://b/x#{SECRET}",
        f"file:///x?{SECRET}",
        "s3://b/x?",
    ],
)
def test_what_is_behind_an_address_is_refused_and_not_told(uri: str) -> None:
    """A client of a store would go to x, whatever comes behind it."""
    with pytest.raises(UsageError, match="address") as told:
        Store(uri)
    assert SECRET not in f"{told.value!r} {told.value}"
    assert uri.partition("?")[0].partition("#")[0] in str(told.value)


@pytest.mark.parametrize("uri", ["s3://b/x", "gs://b", "AZ://c/x"])
def test_an_address_that_pathlib_has_taken_for_a_path_is_no_folder(uri: str) -> None:
    with pytest.raises(UsageError, match="two slashes"):
        Store(PurePosixPath(uri))


# options


@pytest.mark.parametrize("flag", ["true", "True", "1", "yes"])
@pytest.mark.parametrize("prefix", ["", "aws_", "AWS_"])
def test_http_endpoint_is_set_through_options_alone(s3: S3, flag: str, prefix: str) -> None:
    options = {f"{prefix}{name}": value for name, value in s3.options.items()}
    store = Store(s3.uri, options | {f"{prefix}allow_http": flag})
    store.put("a", b"1")
    assert Store(s3.uri, s3.options).get("a") == b"1"
    assert pickle.loads(pickle.dumps(store)).get("a") == b"1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("virtual_hosted_style_request", "false"),
        ("timeout", "30"),
        ("timeout", "30s"),
        ("connect_timeout", "500ms"),
        ("read_timeout", "2 min"),
        ("pool_max_idle_per_host", "4"),
        ("pool_idle_timeout", "1.5"),
        ("allow_invalid_certificates", "no"),
        ("http1_only", "true"),
        ("user_agent", "metatable"),
        ("max_retries", "3"),
        ("retry_timeout", "20"),
        ("init_backoff", "0.1"),
        ("max_backoff", "1s"),
        ("base", "2"),
        ("skip_signature", "true"),
        ("unsigned_payload", "true"),
        ("checksum_algorithm", "sha256"),
        ("session_token", "x"),
        ("durable", "false"),
    ],
)
def test_option_is_taken(s3: S3, name: str, value: str) -> None:
    store_of(s3, **{name: value}).put("a", b"1")


def test_flag_and_number_need_not_be_texts(s3: S3) -> None:
    options = s3.options | {"allow_http": True, "timeout": 5, "max_retries": 0}
    Store(s3.uri, options).put("a", b"1")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("reigon", "eu", "unknown storage option: option='reigon' expected=['region'"),
        ("alow_http", "true", "expected=['allow_http'"),
        ("AWS_SECRET_KEY", "x", "secret_access_key"),
        ("zzz", "x", "'access_key_id', 'allow_http'"),
        ("account_name", "x", "unknown storage option"),
        ("allow_http", "maybe", "option='allow_http' expected='true or false' found='maybe'"),
        ("virtual_hosted_style_request", "2", "expected='true or false'"),
        ("timeout", "soon", "option='timeout' expected='seconds, or a number with ms, s, min"),
        ("timeout", "0", "found='0'"),
        ("timeout", "-5", "found='-5'"),
        ("timeout", "99999999999", "at most a day"),
        ("timeout", "nan", "found='nan'"),
        ("max_retries", "many", "expected='a whole number'"),
        ("max_retries", "99999999", "expected='a whole number'"),
        ("retry_timeout", "5 years", "found='5 years'"),
        ("endpoint", "localhost:9000", "expected='an address such as https://host:9000'"),
        ("endpoint", "not a url", "found='not a url'"),
        ("endpoint", "http://a b", "found='http://a b'"),
        ("endpoint", "http://h:99999", "found='http://h:99999'"),
        ("proxy_url", "proxy", "option='proxy_url'"),
        ("region", "", "option='region' expected='one line of text'"),
        ("secret_access_key", "secret\n", "option='secret_access_key' expected='one line"),
        ("checksum_algorithm", "md4", "md4"),
        ("server_side_encryption", "rot13", "rot13"),
        ("root_certificate", "x", "No certificates found"),
    ],
)
def test_bad_option_is_refused_with_its_name(
    s3: S3, name: str, value: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        store_of(s3, **{name: value}).put("a", b"1")
    assert words in str(caught.value)
    assert is_one_line(caught.value)
    assert "panicked" not in capfd.readouterr().err
    assert not s3.asked


@pytest.mark.parametrize("uri", ["hdfs://a/b", "ftp://a/b", "s4://b", "dbfs://x"])
def test_address_of_another_world_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match=r"no store for such an address: uri=.* s3, s3a"):
        Store(uri)


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3://b b/x", "s3://b:99999/x", "az://c/x"])
def test_address_that_names_no_bucket_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match=f"'{uri}'") as caught:
        Store(uri)
    assert is_one_line(caught.value)


@pytest.mark.parametrize("given", ["region=eu", ["region"], {"region": None}, {5: "x"}])
def test_options_of_another_type_are_refused(given: object) -> None:
    with pytest.raises(UsageError, match="storage option"):
        Store("s3://b/x", given)  # type: ignore[arg-type]


def test_panic_of_the_client_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(*_: object, **__: object) -> None:
        raise PanicException("called `Result::unwrap()` on an `Err` value: Bad {\n}")

    store = Store("memory://panics")
    monkeypatch.setattr(obstore, "get", panics)
    with pytest.raises(UsageError, match="client cannot work with this address") as caught:
        store.get("a")
    assert is_one_line(caught.value)
    monkeypatch.setattr("metatable.storage.objects.from_url", panics)
    with pytest.raises(UsageError, match="client cannot work with this address"):
        Store("s3://b/x")


def test_every_known_option_is_known_to_the_client() -> None:
    values = {"checksum_algorithm": "sha256", "conditional_put": "etag"}
    values |= {"copy_if_not_exists": "multipart", "server_side_encryption": "AES256"}
    refused = {}
    for uri in ("s3://b--use1-az4--x-s3/x", "az://b/x", "gs://b/x"):
        for name in known_options(uri):
            given = {name: values.get(name) or fitting(uri, name)}
            if uri.startswith("az"):
                given.setdefault("account_name", "someone")
            try:
                Store(uri, given)
            except UsageError as error:
                refused[name] = str(error)
    complaints = ("is not valid for store", "Invalid key", "unexpected keyword")
    unknown = {name: told for name, told in refused.items() if any(c in told for c in complaints)}
    assert not unknown


def known_options(uri: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        ClientOptions.of(uri, {"?": "x"})
    names: list[str] = caught.value.facts["expected"]
    return names


def fitting(uri: str, name: str) -> str:
    """A value that is read as the option's kind."""
    for value in ("5", "true", "http://h"):
        try:
            ClientOptions.of(uri, {name: value})
        except UsageError:
            continue
        return value
    raise AssertionError(name)


def test_repeats_are_bounded_in_number_and_in_time() -> None:
    told = ClientOptions.of("s3://bucket", {})
    assert told.retry == {"max_retries": 10, "retry_timeout": timedelta(seconds=20)}
    told = ClientOptions.of("s3://bucket", {"max_retries": "2", "retry_timeout": "3s"})
    assert told.retry == {"max_retries": 2, "retry_timeout": timedelta(seconds=3)}
