"""What every kind of storage must do: one suite of facts, run over each of them.

A test module that has a kind of storage makes a class of it: `class TestMine(StoreContract)`,
with a fixture `place` that gives an address and options under which nothing is stored yet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from metatable.storage.errors import CorruptError, UsageError
from metatable.storage.store import Store

Place = tuple[str, dict[str, str]]

LARGE = 3 << 20
"""More than one write of a pipe or a socket, so that a half of it could be seen."""

STRANGE_PATHS = ["../a", "a/../b", "/a", "a//b", "./a", "a/", "a\\b", "a\0b", ".."]


class Died(BaseException):
    """What ends a block as a kill does: no `except Exception` sees it."""


class StoreContract:
    """The facts."""

    clock_seconds = 0.05
    """How finely the store tells when a file was written; services of whole seconds say 1.1."""

    @pytest.fixture
    def store(self, place: Place) -> Store:
        return Store(*place)

    # absence

    def test_what_is_not_there_is_none(self, store: Store) -> None:
        assert store.size("a/b") is None
        assert store.get("a/b") is None
        assert store.map("a/b", 1) is None
        assert store.backend.read("a/b", [(0, 1)]) is None
        assert store.list("a") == []

    def test_what_must_be_there_and_is_not_is_an_error(self, store: Store) -> None:
        for ask in (store.fetch, store.open, lambda path: store.read(path, [(0, 1)])):
            with pytest.raises(CorruptError, match="file is missing: path='a/b' store="):
                ask("a/b")

    def test_folder_is_not_a_file(self, store: Store) -> None:
        store.put("a/b", b"1")
        assert store.size("a") is None
        assert store.get("a") is None
        assert store.backend.read("a", [(0, 1)]) is None

    def test_file_is_not_a_folder(self, store: Store) -> None:
        store.put("a", b"1")
        assert store.list("a") == []
        assert store.list("a", recursive=True) == []
        assert store.get("a/b") is None

    # put

    def test_put_is_read_back(self, store: Store) -> None:
        for body in (b"", b"1", bytes(range(256)) * 100):
            store.put("a/b", body)
            assert store.get("a/b") == body
            assert store.size("a/b") == len(body)

    def test_put_replaces(self, store: Store) -> None:
        store.put("a", b"long")
        store.put("a", b"b")
        assert store.get("a") == b"b"

    def test_what_is_put_together_is_read_back(self, store: Store) -> None:
        files = {"a": b"", "b/c": b"1", "b/d": bytes(range(256)) * 100}
        store.put_all(files)
        assert {path: store.get(path) for path in files} == files
        store.put_all({})
        assert [one.path for one in store.list("", recursive=True)] == [*files]

    def test_what_is_jotted_is_read_back_whatever_was_there(self, store: Store) -> None:
        for body in (b"first", b"2", b"longer than before"):
            store.jot("a/hint", body)
            assert store.get("a/hint") == body
        store.put("a/hint", b"put")
        assert store.get("a/hint") == b"put"

    def test_reader_beside_puts_never_sees_a_half(self, store: Store) -> None:
        bodies = [bytes([one]) * LARGE for one in range(4)]
        store.put("a", bodies[0])
        done = threading.Event()

        def put_again() -> None:
            try:
                for body in bodies * 3:
                    store.put("a", body)
            finally:
                done.set()

        with ThreadPoolExecutor(1) as pool:
            putting = pool.submit(put_again)
            while not done.is_set():
                assert store.get("a") in bodies
            putting.result()

    # create

    def test_marks_are_empty_files_and_those_that_are_there_stay(self, store: Store) -> None:
        paths = ["a/1", "a/2", "b/c/1"]
        for _ in range(2):
            for mark in store.marking(paths):
                mark()
        assert [one.path for one in store.list("", recursive=True)] == paths
        assert [store.get(path) for path in paths] == [b""] * 3
        store.put("a/1", b"own")
        assert [store.get(path) for path in paths] == [b"own", b"", b""]
        assert not store.marking([])

    def test_create_writes_what_is_not_there(self, store: Store) -> None:
        assert store.create("a/b", b"1")
        assert store.get("a/b") == b"1"

    def test_create_never_overwrites(self, store: Store) -> None:
        store.put("a", b"1")
        assert not store.create("a", b"2")
        assert not store.create("a", b"22")
        assert store.get("a") == b"1"

    def test_create_of_the_same_bytes_is_true_again(self, store: Store) -> None:
        assert store.create("a", b"1")
        assert store.create("a", b"1")

    def test_second_create_of_an_empty_file_is_false(self, store: Store) -> None:
        assert store.create("a", b"")
        assert not store.create("a", b"")

    def test_of_many_creators_one_wins(self, store: Store) -> None:
        start = threading.Barrier(8)

        def create(number: int) -> bool:
            start.wait()
            return store.create("a/b/c", b"%d" % number)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(create, range(8)))
        assert won.count(True) == 1
        assert store.get("a/b/c") == b"%d" % won.index(True)

    def test_create_respects_a_put_placed_after_its_look(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever a backend asks before it writes is no proof: the writing itself must fail."""
        interpose(store, monkeypatch, lambda: store.put("a", b"first"))
        assert not store.create("a", b"second")
        assert store.get("a") == b"first"

    # sink

    def test_sink_appears_when_its_block_ends(self, store: Store) -> None:
        with store.sink("a/b") as file:
            file.write(b"1")
            file.write(b"2")
            assert file.tell() == 2
            assert store.get("a/b") is None
            assert store.list("a") == []
        assert store.get("a/b") == b"12"

    def test_sink_replaces_when_its_block_ends(self, store: Store) -> None:
        store.put("a", b"before")
        with store.sink("a") as file:
            file.write(b"x" * LARGE)
            assert store.get("a") == b"before"
        assert store.get("a") == b"x" * LARGE

    @pytest.mark.parametrize("death", [ValueError, OSError, KeyboardInterrupt, Died])
    def test_sink_that_dies_leaves_nothing(self, store: Store, death: type[BaseException]) -> None:
        def dies() -> None:
            with store.sink("a/b") as file:
                file.write(b"x" * LARGE)
                raise death("mine")

        with pytest.raises(death, match="mine"):
            dies()
        assert store.list("", recursive=True) == []

    # list

    def test_list_tells_the_files_of_a_folder_by_path(self, store: Store) -> None:
        for path in ("a/c", "a/b", "a/d/e", "f"):
            store.put(path, path.encode())
        assert [one.path for one in store.list("a")] == ["a/b", "a/c"]
        assert [one.path for one in store.list("a", recursive=True)] == ["a/b", "a/c", "a/d/e"]
        assert [one.path for one in store.list("")] == ["f"]
        every = store.list("", recursive=True)
        assert [one.path for one in every] == ["a/b", "a/c", "a/d/e", "f"]
        assert [one.size_bytes for one in every] == [3, 3, 5, 1]

    def test_names_of_a_folder_come_with_the_sizes_that_are_asked_for(self, store: Store) -> None:
        for path in ("a/c", "a/b", "a/d/e", "f"):
            store.put(path, path.encode())
        assert store.names("a", lambda _: True) == [("b", 3), ("c", 3)]
        assert dict(store.names("a", lambda name: name == "c"))["c"] == 3
        assert store.names("b", lambda _: True) == []

    def test_list_takes_no_neighbour_of_a_like_name(self, store: Store) -> None:
        for path in ("a/b", "ab/c", "a.b", "a-"):
            store.put(path, b"1")
        for recursive in (False, True):
            assert [one.path for one in store.list("a", recursive)] == ["a/b"]

    def test_names_of_other_scripts_and_signs_are_kept(self, store: Store) -> None:
        names = ["city=Köln", "a b", "a%20b", "a+b", "a&b=c", "~", "名", "a'b", "a:b", "#", "a?b"]
        for name in names:
            store.put(f"p/{name}/x", name.encode())
        listed = store.list("p", recursive=True)
        assert sorted(one.path for one in listed) == sorted(f"p/{name}/x" for name in names)
        assert [store.get(one.path) for one in listed] == [
            one.path.split("/")[1].encode() for one in listed
        ]
        for name in names:
            assert [one.path for one in store.list(f"p/{name}")] == [f"p/{name}/x"]

    def test_list_tells_when_a_file_was_written(self, store: Store) -> None:
        store.put("a", b"1")
        [first] = store.list("")
        time.sleep(self.clock_seconds)
        store.put("a", b"1")
        [second] = store.list("")
        assert first.modified < second.modified
        assert abs(second.modified - time.time()) < 60

    # delete

    def test_deleted_is_gone_and_its_neighbours_are_not(self, store: Store) -> None:
        for path in ("a/b/c", "a/b/d", "a/e"):
            store.put(path, b"1")
        store.delete(["a/b/c", "a/b/d"])
        assert [one.path for one in store.list("", recursive=True)] == ["a/e"]
        assert store.list("a/b") == []

    def test_delete_of_what_is_not_there_passes(self, store: Store) -> None:
        store.put("a", b"1")
        store.delete(["b", "b/c", "a/b"])
        assert store.get("a") == b"1"

    # read

    def test_ranges_come_in_the_order_asked_for(self, store: Store) -> None:
        store.put("a", bytes(range(200)))
        parts = store.read("a", [(100, 2), (0, 1), (50, 0), (199, 1)])
        assert parts == [b"\x64\x65", b"\x00", b"", b"\xc7"]

    def test_range_behind_the_end_is_what_there_is_of_it(self, store: Store) -> None:
        store.put("a", b"0123456789")
        ranges = [(8, 5), (10, 1), (1 << 20, 3), (2, 2)]
        assert store.backend.read("a", ranges) == [b"89", b"", b"", b"23"]

    def test_file_that_ends_before_a_range_does_is_damaged(self, store: Store) -> None:
        store.put("a", b"0123")
        with pytest.raises(CorruptError, match="file ends too early: path='a' offset=2 "):
            store.read("a", [(2, 5)])

    def test_ranges_are_read_into_memory_each_to_its_place(self, store: Store) -> None:
        store.put("a", body := bytes(range(256)) * 9)
        for ranges in (
            [(100, 2), (102, 30), (0, 1), (50, 7), (57, 0), (57, 3), (2303, 1)],
            [(0, len(body))],
            [(7, 2), (8, 2)],
            [],
        ):
            parts, memory = store.read("a", ranges), bytearray(len(body) + 90)
            ends = np.cumsum([size for _, size in ranges]).tolist()
            behind = [0, *ends][: len(ranges)]
            turned = [len(memory) - end - place for place, end in enumerate(ends)]
            for begins in (behind, turned):  # neighbours are read together, or apart
                memory[:] = bytes(len(memory))
                store.read_into("a", ranges, memoryview(memory), begins)
                for begin, part in zip(begins, parts, strict=True):
                    assert memory[begin : begin + len(part)] == part
                assert memory.count(0) >= len(memory) - ends[-1] if ends else not any(memory)

    def test_memory_is_not_filled_from_a_file_that_ends_before_or_is_not_there(
        self, store: Store
    ) -> None:
        store.put("a", b"0123")
        for ranges in ([(0, 1), (2, 5)], [(2, 1), (3, 5)]):
            memory = memoryview(bytearray(6))
            with pytest.raises(CorruptError, match="file ends too early: path='a' offset="):
                store.read_into("a", ranges, memory, [0, 1])
        with pytest.raises(CorruptError, match="file is missing: path='b'"):
            store.read_into("b", [(0, 6)], memory, [0])

    # paths

    @pytest.mark.parametrize("path", STRANGE_PATHS)
    def test_path_that_leaves_the_root_is_refused_by_every_verb(
        self, store: Store, path: str
    ) -> None:
        for ask in VERBS:
            with pytest.raises(UsageError, match="path leaves the table: path="):
                ask(store, path)
        assert store.list("", recursive=True) == []

    def test_root_is_no_file(self, store: Store) -> None:
        for ask in VERBS[1:]:
            with pytest.raises(UsageError, match="a file needs a name"):
                ask(store, "")


def _sink(store: Store, path: str) -> None:
    with store.sink(path) as file:
        file.write(b"1")


VERBS: list[Callable[[Store, str], object]] = [
    lambda store, path: store.list(path),
    lambda store, path: store.size(path),
    lambda store, path: store.get(path),
    lambda store, path: store.fetch(path),
    lambda store, path: store.read(path, [(0, 1)]),
    lambda store, path: store.read_into(path, [(0, 1)], memoryview(bytearray(1)), [0]),
    lambda store, path: store.map(path, 1),
    lambda store, path: store.open(path, 1).read(),
    lambda store, path: store.put(path, b"1"),
    lambda store, path: store.marking([path])[0](),
    lambda store, path: store.create(path, b"1"),
    _sink,
    lambda store, path: store.delete([path]),
]


def interpose(store: Store, monkeypatch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    """Do `step` at the last moment before a create of this store is carried out."""
    import os  # noqa: PLC0415

    import obstore  # noqa: PLC0415

    for module, name in ((os, "link"), (os, "replace"), (obstore, "put")):
        true = getattr(module, name)

        def first(*given: object, true: Callable[..., object] = true, **named: object) -> object:
            monkeypatch.undo()
            step()
            return true(*given, **named)

        monkeypatch.setattr(module, name, first)
