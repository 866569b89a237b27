"""Local files: durable in the right order, placed beside others who tidy up, and told as ours."""

from __future__ import annotations

import errno
import io
import os
import resource
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from metatable.storage import local_files
from metatable.storage.errors import AccessError, MetatableError, StoreError, UsageError
from metatable.storage.pieces import Pieces
from metatable.storage.store import TEMPORARY, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "root")


def _sink(store: Store) -> None:
    with store.sink("a/b") as file:
        file.write(b"1")


WRITES: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("a/b", b"1"),
    "create": lambda store: store.create("a/b", b"1"),
    "sink": _sink,
    "mark": lambda store: [mark() for mark in store.marking(["a/b"])],
}


STEPS = {"put": "replace", "create": "link", "sink": "replace", "mark": "link"}
"""How each gives a file its name."""
LASTING = ["put", "create", "sink"]
"""Those that wait for the disk."""


# what is written


def test_pieces_are_stored_as_an_open_file_is(store: Store) -> None:
    parts = [b"a" * 300_000, b"", b"b", b"c" * 5000, b"d" * (2 << 20)]
    pieces, plain = Pieces(), io.BytesIO(b"".join(parts))
    for part in parts:
        pieces.write(part)
    assert store.create("pieces", pieces)
    assert store.create("plain", plain)
    assert store.get("pieces") == store.get("plain") == plain.getvalue()
    assert store.create("pieces", pieces)
    assert not store.create("pieces", io.BytesIO(b"other"))


# durability


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(call, what it was about), in order: fsyncs of files and folders, and how names are given."""
    calls: list[tuple[str, str]] = []
    fsync, replace, link, mkdir = os.fsync, os.replace, os.link, os.mkdir

    def logged_fsync(handle: int) -> None:
        fsync(handle)
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        calls.append((f"fsync {kind}", Path(os.readlink(f"/proc/self/fd/{handle}")).name))

    def logged_replace(source: str, target: str) -> None:
        replace(source, target)
        calls.append(("replace", Path(target).name))

    def logged_link(source: str, target: str) -> None:
        link(source, target)
        calls.append(("link", Path(target).name))

    def logged_mkdir(path: str) -> None:
        mkdir(path)
        calls.append(("mkdir", Path(path).name))

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    monkeypatch.setattr(os, "link", logged_link)
    monkeypatch.setattr(os, "mkdir", logged_mkdir)
    return calls


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of handles are unknown here")
@pytest.mark.parametrize("verb", LASTING)
def test_file_is_durable_before_its_name_and_the_name_before_the_answer(
    store: Store, verb: str, log: list[tuple[str, str]]
) -> None:
    store.put("a/first", b"")
    log.clear()
    WRITES[verb](store)
    step = STEPS[verb]
    assert [call for call, _ in log] == ["fsync file", step, "fsync folder"]
    assert log[1:] == [(step, "b"), ("fsync folder", "a")]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of handles are unknown here")
@pytest.mark.parametrize("verb", LASTING)
def test_new_folder_is_durable_in_the_folder_that_holds_it(
    store: Store, verb: str, log: list[tuple[str, str]]
) -> None:
    store.put("first", b"")
    log.clear()
    WRITES[verb](store)
    told = [one for one in log if one[0] in ("mkdir", "fsync folder", "replace", "link")]
    assert told[:2] == [("mkdir", "a"), ("fsync folder", "root")]
    assert told[-1] == ("fsync folder", "a")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of handles are unknown here")
@pytest.mark.parametrize("verb", LASTING)
def test_folders_that_hold_a_new_root_are_durable_too(
    tmp_path: Path, verb: str, log: list[tuple[str, str]]
) -> None:
    """Or all that was answered for may be gone with them."""
    WRITES[verb](Store(tmp_path / "far" / "root"))
    made = [name for call, name in log if call == "mkdir"]
    assert made[:2] == ["far", "root"]
    settled = [name for call, name in log if call == "fsync folder"]
    assert {tmp_path.name, *made} - {"tmp"} <= {*settled}


def test_without_durability_nothing_is_synced(tmp_path: Path, log: list[tuple[str, str]]) -> None:
    store = Store(tmp_path, {"durable": "false"})
    for write in WRITES.values():
        write(store)
    assert not any("fsync" in call for call, _ in log)


# empty files


def _is_one(store: Store, *paths: str) -> bool:
    first, *others = [Path(store.uri, path) for path in paths]
    return all(first.samefile(other) for other in others)


def test_what_is_created_empty_is_one_file_of_many_names(
    store: Store, log: list[tuple[str, str]]
) -> None:
    assert store.create("a/1.x", b"")
    log.clear()
    assert store.create("a/1", b"")
    [mark] = store.marking(["b/1", "b/c_1.y"])
    mark()
    assert _is_one(store, "a/1.x", "a/1", "b/1", "b/c_1.y")
    store.settle()
    folders = [one for one in log if one[0] in ("mkdir", "fsync folder")]
    assert folders == [
        ("fsync folder", "a"),
        ("mkdir", "b"),
        ("fsync folder", Path(store.uri).name),
        ("fsync folder", "b"),
    ]
    assert "fsync file" not in {call for call, _ in log}
    store.delete(["a/1"])
    assert [store.get(path) for path in ("a/1", "a/1.x", "b/1")] == [None, b"", b""]
    assert store.create("a/2", b"")
    assert not _is_one(store, "a/1.x", "a/2")


def test_a_file_is_given_no_more_names_than_file_systems_allow(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some allow 177 of one file (AWS EFS)."""
    true = os.link

    def link(source: str, target: str) -> None:
        if os.stat(source).st_nlink == 177:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), target)
        true(source, target)

    monkeypatch.setattr(os, "link", link)
    assert store.create("a/1.x", b"")
    paths = [f"b/1.{number}" for number in range(500)]
    [mark] = store.marking(paths)
    mark()
    assert {store.size(path) for path in paths} == {0}


def test_where_a_table_lies_says_nothing_of_its_instants(tmp_path: Path) -> None:
    store = Store(tmp_path / "of-1")
    assert store.create("a/1.x", b"")
    assert store.create("a/2", b"")
    assert not _is_one(store, "a/1.x", "a/2")


def test_name_that_is_taken_stays_as_it_is_whatever_is_to_be_there(store: Store) -> None:
    store.put("a/1.2", b"theirs")
    assert store.create("a/1", b"")
    assert not store.create("a/1", b"")
    assert not store.create("a/1.2", b"")
    [mark] = store.marking(["a/1.2", "a/1.3"])
    mark()
    assert [store.get(f"a/{name}") for name in ("1", "1.2", "1.3")] == [b"", b"theirs", b""]


@pytest.mark.parametrize("change", ["written to", "gone", "a link", "a folder", "old", "full"])
def test_empty_file_that_will_not_do_gets_no_other_name(
    store: Store, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.create("a/1", b"")
    path = Path(store.uri, "a/1")
    if change == "written to":
        path.write_bytes(b"theirs")
    elif change == "old":
        monkeypatch.setattr(local_files, "_YOUNG_SECONDS", -1.0)
    elif change == "full":
        monkeypatch.setattr(local_files, "_MOST_NAMES", 0)
    else:
        path.unlink()
    if change == "a link":
        path.symlink_to(path.with_name("other"))
        path.with_name("other").touch()
    elif change == "a folder":
        path.mkdir()
    assert store.create("b/1", b"")
    [mark] = store.marking(["c/1"])
    mark()
    made = Path(store.uri, "b/1")
    assert (store.get("b/1"), store.get("c/1")) == (b"", b"")
    assert not path.is_file() or not path.samefile(made)
    assert stat.S_ISREG(made.lstat().st_mode)


def test_what_is_jotted_is_written_where_it_lies(store: Store) -> None:
    path = Path(store.uri, "hint")
    for body in (b"99 old", b"100 longer", b"1", b""):
        before = path.stat().st_ino if path.exists() else None
        store.jot("hint", body)
        assert store.get("hint") == body
        assert before in (None, path.stat().st_ino)
    assert store.counters["store.writes"] == 4
    assert not any(Path(store.uri, TEMPORARY).glob("*"))


@pytest.mark.parametrize(
    "kind", ["another name", "link", "pipe", "pipe with a reader", "read only"]
)
def test_what_else_lies_where_something_is_jotted_is_replaced(
    store: Store, kind: str, request: pytest.FixtureRequest
) -> None:
    """A copy of the table by hard links keeps its own; nobody waits for a pipe."""
    path, other = Path(store.uri, "hint"), Path(store.uri, "other")
    store.put("other", b"theirs")
    if kind == "another name":
        os.link(other, path)
    elif kind == "link":
        path.symlink_to(other)
    elif kind.startswith("pipe"):
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if "read" in kind else None
        request.addfinalizer(lambda: reader is None or os.close(reader))
    else:
        path.write_bytes(b"theirs")
        path.chmod(0o400)
    store.jot("hint", b"ours")
    assert (store.get("hint"), store.get("other")) == (b"ours", b"theirs")
    assert path.is_file()
    assert not path.is_symlink()


def test_names_are_told_with_those_sizes_that_are_asked_for(store: Store) -> None:
    store.put("a/1", b"1")
    store.put("a/2", b"22")
    store.put("a/b/3", b"")
    assert store.names("a", lambda name: name == "2") == [("1", 0), ("2", 2)]
    assert store.names("a", lambda _: True) == [("1", 1), ("2", 2)]
    assert store.names("a/1", lambda _: True) == store.names("b", lambda _: True) == []


def test_links_that_lead_nowhere_or_back_are_passed_over(store: Store, tmp_path: Path) -> None:
    store.put("a/b/1", b"1")
    store.put("c/2", b"2")
    other = tmp_path / "other"
    other.mkdir()
    (other / "3").write_bytes(b"3")
    (other / "back").symlink_to(store.uri)
    for path, to in (
        *(("a/up", ".."), ("a/b/top", store.uri), ("a/self", "self"), ("a/gone", "nowhere")),
        *(("a/out", other), ("a/file", "../c/2")),
    ):
        Path(store.uri, path).symlink_to(to)
    found = [one.path for one in store.walk()]
    assert sorted(found) == ["a/b/1", "a/file", "a/out/3", "c/2"]


def test_names_that_are_no_text_are_passed_over(store: Store) -> None:
    """As columns of paths they ended clean, due and describe."""
    for path in ("a/é", "a/\udcff", "a/\udcff-too/1", "a/b/1"):
        place = Path(store.uri, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
    assert [one.path for one in store.list("a", recursive=True)] == ["a/b/1", "a/é"]
    assert sorted(one.path for one in store.walk()) == ["a/b/1", "a/é"]


def test_nothing_is_deleted_by_a_link_that_leads_elsewhere(store: Store, tmp_path: Path) -> None:
    store.put("a/b/1", b"1")
    store.put("a/b/2", b"2")
    other = tmp_path / "root-too"
    (other / "b").mkdir(parents=True)
    (other / "b" / "1").write_bytes(b"theirs")
    Path(store.uri, "within").symlink_to("a")
    Path(store.uri, "out").symlink_to(other)
    Path(store.uri, "a", "out").symlink_to("../out")
    Path(store.uri, "a", "single").symlink_to(other / "b" / "1")
    store.delete(["within/b/1", "out/b/1", "a/out/b/1", "a/single"])
    assert (other / "b" / "1").read_bytes() == b"theirs"
    assert sorted(one.path for one in store.list("a")) == []
    assert [one.path for one in store.list("a/b")] == ["a/b/2"]


# beside others


@pytest.mark.parametrize("verb", WRITES)
def test_folder_that_vanishes_before_the_name_is_given_is_made_again(
    store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = STEPS[verb]
    true, left = getattr(os, place), [3]

    def placed(source: str, target: str) -> None:
        if left[0]:
            left[0] -= 1
            os.rmdir(os.path.dirname(target))  # as a delete of its last file does
        true(source, target)

    monkeypatch.setattr(os, place, placed)
    WRITES[verb](store)
    assert store.get("a/b") == (b"" if verb == "mark" else b"1")


@pytest.mark.parametrize("verb", WRITES)
def test_file_that_another_deletes_before_its_folder_is_synced_was_written(
    store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = STEPS[verb]
    true = getattr(os, place)

    def placed(source: str, target: str) -> None:
        true(source, target)
        store.delete(["a/b"])

    monkeypatch.setattr(os, place, placed)
    WRITES[verb](store)
    assert store.get("a/b") is None


def test_writers_beside_deleters_of_the_same_folder_never_fail(tmp_path: Path) -> None:
    store = Store(tmp_path, {"durable": "false"})
    stop = threading.Event()

    def write(number: int) -> int:
        done = 0
        while not stop.is_set():
            path = f"x/leases/{number}"
            assert store.create(path, b"%d" % done)
            store.put(path, b"again")
            store.delete([path])
            done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, number) for number in range(4)]
        stop.wait(1.0)
        stop.set()
        assert all(one.result() > 10 for one in writing)


def test_staged_files_go_whatever_happens(store: Store) -> None:
    def dies() -> None:
        with store.sink("a/b") as file:
            file.write(b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dies()
    assert store.create("a/b", b"1")
    for write in WRITES.values():
        write(store)
        assert [one.path for one in store.list("", recursive=True)] == ["a/b"]


# errors


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        *((verb, call) for verb in WRITES for call in ("link or replace", "open")),
        *((verb, "fsync") for verb in LASTING),
    ],
)
@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EACCES, AccessError, "the system refuses us"),
        (errno.EROFS, AccessError, "Read-only file system"),
        (errno.ENOSPC, StoreError, "the disk takes no more"),
        (errno.EDQUOT, StoreError, "the disk takes no more"),
        (errno.EMFILE, StoreError, "too many files are open"),
        (errno.EXDEV, UsageError, "cannot be given this name"),
        (errno.EOPNOTSUPP, UsageError, "a file system with hard links"),
        (errno.EIO, StoreError, "the disk did not do it"),
        (errno.ENAMETOOLONG, UsageError, "there can be no such file"),
    ],
)
def test_what_the_system_says_to_a_write_is_told_with_path_and_store(
    store: Store,
    verb: str,
    call: str,
    number: int,
    kind: type[MetatableError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/else")

    with monkeypatch.context() as patched:
        if call == "open":
            patched.setattr("metatable.storage.local_files._StagedFile", fails)
        elif call == "fsync":
            patched.setattr(os, "fsync", fails)
        else:
            patched.setattr(os, "link", fails)
            patched.setattr(os, "replace", fails)
        with pytest.raises(MetatableError, match=words) as caught:
            WRITES[verb](store)
    assert type(caught.value) is kind
    assert f"path='a/b' store='{store.uri}'" in str(caught.value)
    assert os.strerror(number) in str(caught.value)
    assert store.list("", recursive=True) == []


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """The system refuses what goes beyond, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of handles are unknown here")
@pytest.mark.parametrize("verb", ["put", "sink"])
def test_what_the_system_says_to_the_end_of_a_file_is_told(
    store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a/first", b"")
    give = getattr(os, STEPS[verb])

    def closed_by_another(source: str, target: str) -> None:
        give(source, target)
        for handle in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{handle}") in (source, target):
                    os.close(int(handle))

    monkeypatch.setattr(os, STEPS[verb], closed_by_another)
    with pytest.raises(StoreError, match=r"path='a/b' .*Bad file descriptor"):
        WRITES[verb](store)


@pytest.mark.parametrize("size", [20_000, 1 << 20])
@pytest.mark.parametrize("verb", ["put", "create", "sink"])
def test_file_that_finds_no_room_is_a_store_error_and_leaves_nothing(
    store: Store, verb: str, size: int
) -> None:
    body = b"x" * size

    def sink() -> None:
        with store.sink("a/b") as file:
            for start in range(0, size, 1000):
                file.write(body[start : start + 1000])

    writes = {"sink": sink, "put": lambda: store.put("a/b", body)}
    writes["create"] = lambda: store.create("a/b", body)  # type: ignore[assignment, return-value]
    with files_of_at_most(10_000), pytest.raises(StoreError, match="the disk takes no more: make"):
        writes[verb]()
    assert store.list("", recursive=True) == []


@pytest.mark.parametrize("verb", ["get", "read", "size", "list"])
def test_what_the_system_says_to_a_read_is_told(
    store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a/b", b"1")

    def fails(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    asks = {"get": lambda: store.get("a/b"), "read": lambda: store.read("a/b", [(0, 1)])}
    asks |= {"size": lambda: store.size("a/b"), "list": lambda: store.list("a")}  # type: ignore[dict-item]
    monkeypatch.setattr(io, "FileIO", fails)
    monkeypatch.setattr(os, "open", fails)
    monkeypatch.setattr(Path, "read_bytes", fails)
    monkeypatch.setattr(os, "stat", fails)
    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(AccessError, match="Permission denied"):
        asks[verb]()


def test_root_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    store = Store(tmp_path / "file")
    assert store.get("a/b") is None
    for write in WRITES.values():
        with pytest.raises(UsageError, match="there can be no such file: path='a/b'"):
            write(store)


def test_name_that_is_too_long_is_told(store: Store) -> None:
    for ask in (store.size, store.get, lambda path: store.put(path, b"")):
        with pytest.raises(UsageError, match="there can be no such file"):
            ask("x" * 5000)


def test_unknown_option_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"option='durabel' expected=\['durable'\]"):
        Store(tmp_path, {"durabel": "false"})
    with pytest.raises(UsageError, match="option='durable' expected='true or false' found='no'"):
        Store(tmp_path, {"durable": "no"})


def test_home_is_where_the_shell_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/x").uri == str(tmp_path / "x")


@pytest.mark.parametrize("uri", ["", "  ", "a\0b", "memory://", "file://host/x", b"x", None, 5])
def test_what_is_no_address_is_refused(uri: object) -> None:
    with pytest.raises(UsageError, match="not an address: found="):
        Store(uri)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WRITES)
def test_names_that_others_would_not_find_are_refused_where_the_locale_is_no_utf8(
    store: Store, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(local_files, "_NAMES_ARE_UTF8", False)
    WRITES[way](store)
    assert store.get("a/b") is not None
    for call in (
        lambda: store.put("city=Köln/b", b"1"),
        lambda: store.create("city=Köln/b", b"1"),
        lambda: store.get("city=Köln/b"),
        lambda: [*store.list("city=Köln")],
    ):
        with pytest.raises(UsageError, match=r"city=Köln.* expected=.*PYTHONUTF8=1"):
            call()
    assert [one.path for one in store.list("", recursive=True)] == ["a/b"]


def test_names_that_the_locale_cannot_read_are_told_and_not_left_out_of_a_listing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds the listing against an index takes what is left out for lost."""
    store.put("a/b", b"1")
    os.mkdir(os.fsencode(store.uri) + b"/a/city=K\xf6ln")
    assert [one.path for one in store.list("", recursive=True)] == ["a/b"]
    monkeypatch.setattr(local_files, "_NAMES_ARE_UTF8", False)
    with pytest.raises(UsageError, match=r"not UTF-8 in this process.* expected=.*PYTHONUTF8=1"):
        store.list("", recursive=True)


@pytest.mark.parametrize("root", ["link", "link/below"])
def test_a_folder_behind_a_link_that_leads_nowhere_is_not_made(tmp_path: Path, root: str) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    store = Store(tmp_path / root)
    for write in (store.put, store.create):
        with pytest.raises(UsageError, match=r"a link leads nowhere: path='.*link'.*'nowhere'"):
            write("a/b", b"body")
    assert [one.name for one in tmp_path.iterdir()] == ["link"]
    (tmp_path / "nowhere").mkdir()
    assert store.create("a/b", b"body")


def test_a_folder_that_nobody_may_read_is_told_unless_it_is_the_file_system_s_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table may lie at the root of a disk: what is lost and found there is the superuser's."""
    store.put("a/b", b"1")
    os.mkdir(f"{store.uri}/lost+found")
    monkeypatch.setattr(os, "scandir", refusing(f"{store.uri}/lost+found", os.scandir))
    assert [one.path for one in store.walk()] == ["a/b"]
    monkeypatch.setattr(os, "scandir", refusing(f"{store.uri}/a", os.scandir))
    with pytest.raises(AccessError, match="path='a'"):
        list(store.walk())


def refusing(folder: str, scandir: Callable[[str], Any]) -> Callable[[str], Any]:
    def refuses(path: str) -> Any:
        if path == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    return refuses
