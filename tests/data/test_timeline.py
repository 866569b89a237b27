"""Instants and the files of the timeline."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metatable.data.hoodie.timeline import (
    CLUSTERING,
    COMPACTION,
    Instant,
    Timeline,
    later_of,
    next_instant,
)
from metatable.storage.errors import CorruptError
from metatable.storage.store import Store

T = "20250102030405006"
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))


@settings(deadline=None)
@given(MOMENTS)
def test_an_instant_is_its_moment_in_utc_to_the_millisecond(moment: datetime) -> None:
    instant = next_instant(moment.astimezone(timezone(timedelta(hours=-7))))
    read = datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    assert len(instant) == 17
    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)


@settings(deadline=None)
@given(MOMENTS, MOMENTS)
def test_the_next_instant_is_greater_and_a_time_of_the_calendar(a: datetime, b: datetime) -> None:
    after = next_instant(a)
    following = next_instant(b, after)
    assert following > after
    datetime.strptime(following + "000", "%Y%m%d%H%M%S%f")


def test_the_instant_after_the_last_millisecond_of_a_year_is_in_the_next_one() -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    assert next_instant(past, "20231231235959999") == "20240101000000000"
    assert next_instant(past, "20231231235959") == "20231231235959001"


def test_a_number_that_is_no_time_is_damage() -> None:
    with pytest.raises(CorruptError, match="not an instant"):
        next_instant(after="20251399999999999")
    with pytest.raises(CorruptError, match="no instant is later: found='99991231235959999'"):
        next_instant(after="99991231235959999")


def test_what_is_no_time_is_not_counted_among_the_instants_used() -> None:
    now = next_instant()
    strange = ["99999999999999999", "20251399999999999", "99991231235959999", "20260231000000000"]
    assert later_of("", strange) == ""
    ahead = next_instant(datetime.now(UTC) + timedelta(days=900))
    assert later_of(now, [*strange, ahead, "20200101000000000"]) == ahead


def test_an_instant_is_taken_once(table_uri: str) -> None:
    timeline = Timeline(Store(table_uri))
    assert timeline.request(T)
    assert not timeline.request(T)
    assert timeline.inflight(T)
    assert not timeline.is_complete(T)


def test_completing_again_with_the_same_bytes_is_success(table_uri: str) -> None:
    timeline = Timeline(Store(table_uri))
    assert timeline.complete(T, b"{1}")
    assert timeline.complete(T, b"{1}")
    assert not timeline.complete(T, b"{2}")
    assert timeline.is_complete(T)


def test_files_of_an_instant_are_named_as_hudi_names_them(table_uri: str) -> None:
    store = Store(table_uri)
    timeline = Timeline(store)
    timeline.request(T)
    timeline.inflight(T)
    timeline.complete(T, b"{}")
    timeline.request("20250102030405007", "replacecommit")
    timeline.inflight("20250102030405007", "replacecommit")
    assert [one.name for one in store.list(".hoodie")] == [
        f"{T}.commit",
        f"{T}.commit.requested",
        f"{T}.inflight",
        "20250102030405007.replacecommit.inflight",
        "20250102030405007.replacecommit.requested",
    ]


def test_an_action_is_loaded_in_its_furthest_state(table_uri: str) -> None:
    store = Store(table_uri)
    timeline = Timeline(store)
    for name in ("hoodie.properties", "abc.commit", "1.commit", f"{T}.requested", f"{T}.a.b.c"):
        store.put(f".hoodie/{name}", b"x")
    store.put(f".hoodie/metatable/{T}.commit", b"x")
    one, two, three = (f"2025010203040500{digit}" for digit in "789")
    timeline.request(three)
    timeline.request(two)
    timeline.inflight(two)
    for step in (timeline.request, timeline.inflight):
        step(one)
    timeline.complete(one, b"{}")
    before = store.counters["store.requests"]
    assert timeline.load() == [
        Instant(one, "commit", "completed"),
        Instant(two, "commit", "inflight"),
        Instant(three, "commit", "requested"),
    ]
    assert store.counters["store.requests"] == before + 1


def test_withdrawing_deletes_what_hides_the_data_files_last(
    table_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(table_uri)
    timeline = Timeline(store)
    timeline.request(T)
    timeline.inflight(T)
    deleted: list[str] = []
    monkeypatch.setattr(store.backend, "delete", deleted.append)
    timeline.withdraw(T)
    assert deleted == [f".hoodie/{T}{end}" for end in (".commit", ".inflight", ".commit.requested")]


def test_withdrawn_instant_is_gone_and_may_be_withdrawn_again(table_uri: str) -> None:
    timeline = Timeline(Store(table_uri))
    timeline.request(T)
    timeline.inflight(T)
    timeline.withdraw(T, ("inflight",))
    assert timeline.load() == [Instant(T, "commit", "requested")]
    timeline.withdraw(T)
    timeline.withdraw(T)
    assert timeline.load() == []


def test_timeline_of_a_real_table_is_read(interop: Path, tmp_path: Path) -> None:
    name = "cow_bloom_footer"
    with zipfile.ZipFile(interop / "hudi-spark" / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    loaded = Timeline(Store(tmp_path / name)).load()
    assert {instant.state for instant in loaded} == {"completed"}
    assert {instant.action for instant in loaded} >= {"commit", "clean", "savepoint", "rollback"}


def test_a_replacecommit_of_which_there_is_a_plan_is_a_clustering(table_uri: str) -> None:
    timeline = Timeline(Store(table_uri))
    planned, begun = "20250102030405006", "20250102030405007"
    timeline.request(planned, "replacecommit", b"plan")
    timeline.request(begun, "replacecommit")
    assert timeline.load() == [
        Instant(planned, CLUSTERING, "requested"),
        Instant(begun, "replacecommit", "requested"),
    ]


def test_a_compaction_is_planned_and_completed_as_a_commit(table_uri: str) -> None:
    timeline = Timeline(Store(table_uri))
    timeline.request(T, COMPACTION, b"plan")
    assert timeline.load() == [Instant(T, COMPACTION, "requested")]
    timeline.inflight(T, COMPACTION)
    assert timeline.load() == [Instant(T, COMPACTION, "inflight")]
    assert timeline.completed() == set()
    timeline.complete(T, b"{}", COMPACTION)
    names = {path.name for path in Path(table_uri, ".hoodie").iterdir() if path.is_file()}
    assert names == {
        f"{T}{end}" for end in (".compaction.requested", ".compaction.inflight", ".commit")
    }
    assert timeline.load() == [Instant(T, COMPACTION, "completed")]
    assert timeline.completed() == {T}
    timeline.withdraw(T, ("completed",), COMPACTION)
    assert timeline.load() == [Instant(T, COMPACTION, "inflight")]
