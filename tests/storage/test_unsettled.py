"""What is to be durable soon: there at once, and settled before what means something by it."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from metatable.storage import local_files, unsettled
from metatable.storage.errors import MetatableError, StoreError
from metatable.storage.store import Store
from metatable.storage.unsettled import Unsettled

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of handles are unknown here"
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "root")
    for path in ("a/first", "b/first"):
        store.put(path, b"")
    return store


@pytest.fixture
def log(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is settled, and which names are given, by their paths, in order."""
    calls: list[str] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def told(path: str) -> str:
        return "a new file" if path.endswith(".tmp") else os.path.relpath(path, store.uri)

    def logged_fsync(handle: int) -> None:
        fsync(handle)
        calls.append(f"fsync {told(os.readlink(f'/proc/self/fd/{handle}'))}")

    def naming(give: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def logged(source: str, target: str) -> None:
            give(source, target)
            calls.append(f"name {told(target)}")

        return logged

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", naming(replace))
    monkeypatch.setattr(os, "link", naming(link))
    return calls


def test_what_is_to_be_soon_is_durable_before_the_next_name(store: Store, log: list[str]) -> None:
    assert store.create("a/soon", b"1", soon=True)
    assert store.get("a/soon") == b"1"
    assert not store.create("a/soon", b"2", soon=True)
    assert log == ["name a/soon"]
    log.clear()
    assert store.create("b/next", b"2")
    settled = ["fsync a/soon", "fsync a"]
    assert log == ["fsync a new file", *settled, "name b/next", "fsync b"]
    log.clear()
    store.put("b/last", b"3")
    assert log == ["fsync a new file", "name b/last", "fsync b"]


def test_of_empty_files_and_new_folders_names_are_settled(store: Store, log: list[str]) -> None:
    assert store.create("c/1.x", b"", soon=True)
    [mark] = store.marking(["d/1", "d/e/1"])
    mark()
    assert store.create("c/1.y", b"", soon=True)
    assert not any("fsync" in call for call in log)
    log.clear()
    store.settle()
    assert sorted(log) == [f"fsync {folder}" for folder in (".", "c", "d", "d/e")]
    assert store.create("f/1.z", b"")
    assert log[-2:] == ["fsync .", "fsync f"]


def test_what_may_be_lost_is_never_waited_for(store: Store, log: list[str]) -> None:
    store.put("a/hint", b"1", lasting=False)
    store.put("g/hint", b"1", lasting=False)
    assert (store.get("a/hint"), store.get("g/hint")) == (b"1", b"1")
    store.settle()
    assert log == ["name a/hint", "name g/hint"]


def test_files_that_are_put_together_settle_together_and_a_folder_once(
    store: Store, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsettled, "_QUICK_SECONDS", 60)
    before = store.counters["store.writes"]
    store.put_all({"a/1": b"one", "b/1": b"two", "a/2": b"three"})
    assert [store.get(path) for path in ("a/1", "b/1", "a/2")] == [b"one", b"two", b"three"]
    assert store.counters["store.writes"] == before + 3
    settled = [f"fsync {path}" for path in ("a/1", "b/1", "a/2", "a", "b")]
    assert log == ["name a/1", "name b/1", "name a/2", *settled]


def test_what_the_disk_refuses_of_several_files_is_told_to_who_wrote_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk tells it once, and another writer who waits meanwhile must not be the one."""
    fsync, refused = os.fsync, list[str]()

    def refuse_once(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith("a/2") and not refused:
            refused.append("a/2")
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    settle, begun = Unsettled.settle_in_turn, list[Unsettled]()

    def behind_another(own: Unsettled, calls: Sequence[Callable[[], object]]) -> None:
        if calls and not begun:
            begun.append(own)
            assert store.create("b/theirs", b"root")
        settle(own, calls)

    monkeypatch.setattr(os, "fsync", refuse_once)
    monkeypatch.setattr(Unsettled, "settle_in_turn", behind_another)
    with pytest.raises(StoreError, match=r"path='a/2' store=.*Input/output error"):
        store.put_all({"a/2": b"two"})
    assert refused == ["a/2"]


def test_of_very_many_files_some_are_open_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "_OPEN_FILES", 3)
    files = {f"c/{number}": bytes([number]) for number in range(10)}
    store.put_all(files)
    assert {path: store.get(path) for path in files} == files


@pytest.mark.parametrize("error", [OSError, RuntimeError, KeyboardInterrupt])
def test_what_was_not_settled_is_settled_by_the_next_who_waits(
    store: Store, log: list[str], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(_: object) -> None:
        raise error

    assert store.create("a/soon", b"1", soon=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises((StoreError, error)):
            store.settle()
    log.clear()
    store.settle()
    assert log == ["fsync a/soon", "fsync a"]


@pytest.mark.parametrize("path", ["a/name", "c/d/name"])
def test_a_name_that_the_disk_does_not_settle_is_not_told_as_written(
    store: Store, log: list[str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    fsync = os.fsync

    def no_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_folders)
        for _ in range(3):
            with pytest.raises(StoreError, match=r"path='.*' store=.*Input/output error"):
                store.create(path, b"ours")
    log.clear()
    assert store.create(path, b"ours")
    assert not store.create(path, b"theirs")
    assert store.get(path) == b"ours"
    folders = ["a"] if path == "a/name" else [".", "c", "c/d"]
    assert [one for one in log if "fsync" in one and "new" not in one] == [
        f"fsync {folder}" for folder in folders
    ]


def test_whoever_works_on_a_folder_here_waits_for_the_same(store: Store, log: list[str]) -> None:
    other = pickle.loads(pickle.dumps(store))
    assert store.create("a/soon", b"1", soon=True)
    other.put("b/next", b"2")
    assert log.index("fsync a") < log.index("name b/next")


def test_without_durability_nothing_is_settled(tmp_path: Path, log: list[str]) -> None:
    store = Store(tmp_path / "other", {"durable": "false"})
    assert store.create("a/soon", b"1", soon=True)
    store.marking(["a/mark"])[0]()
    store.settle()
    assert not any("fsync" in call for call in log)


def test_what_went_meanwhile_needs_no_settling(store: Store, log: list[str]) -> None:
    assert store.create("h/soon", b"1", soon=True)
    store.delete(["h/soon"])
    store.settle()
    assert log == ["name h/soon", "fsync ."]


def test_who_comes_while_another_settles_waits_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.create("a/soon", b"1", soon=True)
    reached, released = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith("soon"):
            reached.set()
            assert released.wait(60)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slow)
    store.begin_to_settle()
    assert reached.wait(60)
    writer = threading.Thread(target=store.put, args=("b/next", b"2"))
    writer.start()
    writer.join(0.2)
    early = store.get("b/next")
    released.set()
    writer.join(60)
    assert (early, store.get("b/next")) == (None, b"2")


@pytest.mark.parametrize("quick", [True, False])
def test_a_disk_that_takes_its_time_settles_many_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    monkeypatch.setattr(unsettled, "_QUICK_SECONDS", 60.0 if quick else -1.0)
    settling: list[str] = []
    together = threading.Barrier(3 if not quick else 1)

    def fsync(handle: int) -> None:
        settling.append(threading.current_thread().name)
        if len(settling) > 1:
            together.wait(60)

    for name in ("1", "2", "3"):
        [mark] = store.marking([f"{name}/mark"])
        mark()
    monkeypatch.setattr(os, "fsync", fsync)
    store.settle()
    assert len(settling) == 4
    assert (len(set(settling)) == 1) == quick


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_waits_for_nothing_of_its_parent(store: Store, log: list[str]) -> None:
    assert store.create("a/soon", b"1", soon=True)
    own = store.backend._unsettled  # type: ignore[attr-defined]
    with own._settling, own._adding:
        child = os.fork()
        if not child:
            signal.alarm(30)
            store.put("b/next", b"2")
            os._exit(3 if "fsync a" in log else 0)
        assert os.waitpid(child, 0)[1] == 0
    assert store.get("b/next") == b"2"
    store.settle()
    assert log[-1] == "fsync a"


def test_what_a_disk_says_while_nobody_waits_is_told_to_who_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: some systems tell of a lost write only the first who asks."""
    assert store.create("a/soon", b"1", soon=True)
    begun = threading.Event()
    fsync = os.fsync

    def fails(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode) and not begun.is_set():
            begun.set()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fails)
    store.begin_to_settle()
    assert begun.wait(60)
    with pytest.raises(StoreError, match=r"path='a' store=.*Input/output error"):
        store.put("b/next", b"2")
    assert store.get("b/next") is None
    store.put("b/next", b"2")
    assert store.get("b/next") == b"2"


def test_what_no_disk_was_asked_while_nobody_waited_is_told_to_nobody(
    store: Store, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process with too many open files: it has some to spare again, and another one waits."""
    assert store.create("a/soon", b"1", soon=True)
    tried = threading.Event()
    system = os.open

    def full(path: str, *how: int) -> int:
        if not tried.is_set():
            tried.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return system(path, *how)

    monkeypatch.setattr(os, "open", full)
    store.begin_to_settle()
    assert tried.wait(60)
    store.put("b/next", b"2")
    assert log.index("fsync a/soon") < log.index("fsync a") < log.index("name b/next")


def test_what_the_system_does_not_open_is_told_to_who_waits(
    store: Store, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.create("a/soon", b"1", soon=True)

    def full(path: str, *_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(StoreError, match=r"too many files are open.* path='a/soon'"):
            store.settle()
    store.settle()
    assert log[-2:] == ["fsync a/soon", "fsync a"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF])
def test_where_folders_are_not_settled_files_are(
    store: Store, log: list[str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Some file systems know no such call: there names cannot be made safer."""
    fsync = os.fsync

    def no_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", no_folders)
    store.put("c/1", b"1")
    assert store.create("c/2", b"2", soon=True)
    store.put_all({"c/3": b"3"})
    assert {store.get(f"c/{number}") for number in (1, 2, 3)} == {b"1", b"2", b"3"}
    assert "fsync c/2" in log

    def no_files(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", no_files)
    with pytest.raises(MetatableError):
        store.put("c/4", b"4")


def test_who_waits_and_is_told_is_told_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.create("a/soon", b"1", soon=True)
    settled: list[str] = []

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fsync(handle: int) -> None:
        settled.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="path='a/soon'"):
            store.settle()
    monkeypatch.setattr(os, "fsync", fsync)
    store.settle()
    assert settled == ["soon", "a"]
