"""What every index must answer, as suites: those of each engine inherit them.

`IndexContract` asks: a table is made and changed, and each answer is held against a brute-force
join over the data files. `HistoryContract` writes: random histories beside a plain dict, and two
writers at once. `RaceContract` has what is decided where the engine is asked nothing.

A subclass says on which engine, by two methods: `given(rows)` makes of Arrow rows what the verbs
are given, `told(answer)` brings an answer back. Answers are put into the order of the rows first,
because an engine may keep it or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import metatable
from metatable.index import create_index
from metatable.storage.errors import ConflictError, UsageError
from tests.index.rows import (
    RINGS,
    SMALL,
    expected_tags,
    fitting,
    index_of,
    make,
    rows,
    told_tags,
)
from tests.long import LONG
from tests.model import SCHEMA, Model, arrow, check, check_counts, check_tags
from tests.shared import made_once

INDEXES = ("record", "hbase", "metadata_bloom", "bloom")
SCOPES = ("partition", "global")
BUCKETS = ("bucket", *RINGS)
KINDS = [
    (index, scope)
    for number, index in enumerate(INDEXES)
    for scope in (SCOPES[::-1] if number % 2 else SCOPES)
]
KINDS += [(engine, "partition") for engine in BUCKETS]
"""Of every other one each index but some buckets is there, and each scope."""

OPENS_NO_FILE = ("record", "hbase", *BUCKETS)
"""These know no positions and ask no file."""

every_other = pytest.mark.in_turn("kind", one_in=2)
"""Of tests that make tables of their own."""

CLASH = dict.fromkeys(BUCKETS, "another commit (rewrote|opened) the same file group")
SAME_KEYS = "another commit inserted the same keys"
"""What is told of two who insert one key."""

Kind = tuple[str, str]


class OnAnEngine:
    """How rows go in and come back. As it stands, in process."""

    options: ClassVar[dict[str, Any]] = {}
    """Of its tables."""

    @pytest.fixture(scope="class", params=KINDS, ids="-".join)
    @classmethod
    def kind(cls, request: pytest.FixtureRequest) -> Kind:
        """(index, scope)"""
        return request.param

    def given(self, asked: pa.Table) -> Any:
        return asked

    def told(self, answer: Any) -> pa.Table:
        return answer


class IndexContract(OnAnEngine):
    @pytest.fixture(scope="class")
    @classmethod
    def table(cls, tmp_path_factory: pytest.TempPathFactory, kind: Kind) -> metatable.Table:
        """300 keys in over 15 file groups, some rewritten, some deleted, some gone and back.

        It is only asked: whoever writes makes a table of its own.
        """

        def asked(uri: str) -> None:
            made = make(uri, *kind, **cls.options)
            made.insert(rows(0, 300))
            made.upsert(rows(150, 200, value=1000))
            made.delete(rows(50, 90))
            made.insert(rows(60, 70))

        name = "-".join(["asked", *kind, *map(str, cls.options.values())])
        return metatable.open(made_once(tmp_path_factory, name, asked), {"durable": "false"})

    def tags(self, table: metatable.Table, asked: pa.Table, **chosen: Any) -> list[Any]:
        """The locations of the rows, in their order."""
        numbered = asked.append_column("number", pa.array(range(asked.num_rows), pa.int64()))
        tagged = self.told(table.tag_locations(self.given(numbered), **chosen)).sort_by("number")
        if self.proves(table):
            return told_tags(tagged)
        found = told_tags(tagged)
        if chosen:  # `filter_exists` knows the newest version alone
            return found
        there = set(self.told(table.filter_exists(self.given(numbered)))["number"].to_pylist())
        return [place if n in there else None for n, place in enumerate(found)]

    def proves(self, table: metatable.Table) -> bool:
        """Whether a location says that the key is there."""
        return create_index(table.options).proves_presence

    def finds(self, table: metatable.Table, asked: pa.Table, count: int) -> None:
        """What `explain` tells of it, too."""
        found = table.explain(self.given(asked)).found
        assert found == count or (not self.proves(table) and found >= count)

    def agrees(self, table: metatable.Table, kind: Kind, asked: pa.Table) -> list[Any]:
        """The locations, after they were held against those that a join finds."""
        index, scope = kind
        found, expected = self.tags(table, asked), expected_tags(table, asked, scope)
        if index in OPENS_NO_FILE:
            expected = [place and (*place[:3], None) for place in expected]
        assert found == expected
        return found

    def test_tags_equal_a_brute_force_join(self, table: metatable.Table, kind: Kind) -> None:
        found = self.agrees(table, kind, pa.concat_tables([rows(0, 400), rows(10, 20)]))
        assert sum(place is not None for place in found) == 280

    def test_absent_keys_within_the_ranges_are_nowhere(
        self, table: metatable.Table, kind: Kind
    ) -> None:
        odd = pa.array([f"k{number:06d}x" for number in range(100, 130)])
        asked = rows(100, 130).set_column(0, "id", odd)
        assert self.agrees(table, kind, asked) == [None] * 30
        self.finds(table, asked, 0)

    def test_a_key_in_another_partition_is_found_in_global_scope_only(
        self, table: metatable.Table, kind: Kind
    ) -> None:
        asked = pa.table({"id": ["k000000"], "city": ["berlin"]})
        [found] = self.tags(table, asked)
        assert (found is not None) == (kind[1] == "global")

    def test_key_columns_are_enough(self, table: metatable.Table, kind: Kind) -> None:
        wanted = ["id"] if kind[1] == "global" else ["city", "id"]
        asked = rows(100, 110)
        expected = self.tags(table, asked)
        assert None not in expected
        assert self.tags(table, asked.select(wanted)) == expected

    def test_no_rows_are_no_rows(self, table: metatable.Table) -> None:
        typed = rows(0, 1).slice(0, 0)
        assert self.told(table.tag_locations(self.given(typed))).num_rows == 0
        assert table.explain(self.given(typed)).found == 0

    @every_other
    def test_a_table_without_rows_knows_no_key(self, table_uri: str, kind: Kind) -> None:
        empty = make(table_uri, *kind)
        assert self.tags(empty, rows(0, 5)) == [None] * 5

    @every_other
    def test_groups_without_rows_know_no_key(self, table_uri: str, kind: Kind) -> None:
        table = make(table_uri, *kind)
        table.insert(rows(0, 30))
        table.delete(rows(0, 30))
        assert self.agrees(table, kind, rows(0, 40)) == [None] * 40

    @every_other
    def test_an_older_version_answers_as_it_did(self, table_uri: str, kind: Kind) -> None:
        table = make(table_uri, *kind)
        table.insert(rows(0, 30))
        version = table.version
        before = self.tags(table, rows(0, 40), version=version)
        table.upsert(rows(20, 40))
        assert self.tags(table, rows(0, 40), version=version) == before
        assert self.tags(table, rows(0, 40)) != before

    def test_null_keys_are_refused(self, table: metatable.Table) -> None:
        asked = rows(0, 3).set_column(0, "id", pa.array(["k000000", None, "k000002"]))
        with pytest.raises(UsageError, match="null"):
            table.explain(self.given(asked))

    def test_a_missing_key_column_is_named(self, table: metatable.Table) -> None:
        with pytest.raises(UsageError, match="column='id'"):
            table.tag_locations(self.given(pa.table({"city": ["cairo"]})))

    def test_filter_exists_keeps_the_rows_whose_key_is_there(self, table: metatable.Table) -> None:
        kept = self.told(table.filter_exists(self.given(rows(40, 100)))).sort_by("id")
        expected = pa.concat_tables([rows(40, 50), rows(60, 70), rows(90, 100)])
        assert kept.to_pylist() == expected.to_pylist()

    def test_read_keys_gives_the_rows_of_present_keys(self, table: metatable.Table) -> None:
        found = table.read_keys(rows(48, 52), columns=["id", "value"]).sort_by("id")
        assert found.to_pylist() == [{"id": "k000048", "value": 48}, {"id": "k000049", "value": 49}]

    @every_other
    def test_a_null_and_an_empty_partition_value_name_the_same_key(
        self, table_uri: str, kind: Kind
    ) -> None:
        table = make(table_uri, *kind)
        table.insert(rows(0, 9))
        cities: list[str | None] = [None, "", None, "", "cairo", "nowhere"]
        asked = pa.table({"id": ["k000099"] * 6, "city": pa.array(cities, pa.string())})
        stored = asked.slice(0, 1).append_column("value", pa.array([1]))
        stored = stored.append_column("note", [["n"]])
        table.insert(stored)
        there = [True] * 4 + [kind[1] == "global"] * 2
        assert [one is not None for one in self.tags(table, asked)] == there
        assert self.told(table.filter_exists(self.given(asked))).num_rows == sum(there)
        self.finds(table, asked, sum(there))
        assert table.read_keys(asked).num_rows == 1
        emptied = stored.set_column(1, "city", pa.array([""]))
        assert table.upsert(self.given(emptied)).updated == 1
        assert table.delete(self.given(asked.slice(0, 4))).deleted == 1
        assert table.scan().count() == 9

    @every_other
    def test_rows_that_repeat_a_key_are_all_found(self, table_uri: str, kind: Kind) -> None:
        table = make(table_uri, *kind)
        table.insert(rows(0, 30))
        asked = pa.concat_tables([rows(0, 30), rows(20, 40), rows(0, 10)])
        assert sum(place is not None for place in self.agrees(table, kind, asked)) == 50
        self.finds(table, asked, 50)

    @every_other
    def test_composite_keys_tell_their_parts_apart(self, table_uri: str, kind: Kind) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("value", pa.int32())])
        chosen = fitting(kind[0], {**SMALL, "key_scope": kind[1]})
        table = metatable.create(
            table_uri, schema, key=["a", "b"], index=index_of(kind[0]), options=chosen
        )
        held = {"a": ["x", "x", "y"], "b": [1, 2, 1], "value": [1, 2, 3]}
        table.insert(self.given(pa.table(held, schema=schema)))
        asked = pa.table({"a": ["x", "y", "y"], "b": pa.array([2, 2, 1], pa.int32())})
        assert [one is not None for one in self.tags(table, asked)] == [True, False, True]

    @every_other
    def test_keys_of_any_script_are_found_again(self, table_uri: str, kind: Kind) -> None:
        """In many files, with keys that Java and the order of bytes put in another order."""
        texts = ["plain", "ümläut", "\U0001f600", "\uffff", "\ue000z", "a\x00b", "x" * 300, " "]
        texts += [f"{text}-{number}" for text in texts for number in range(8)]
        held = pa.table({"id": texts, "city": ["cairo"] * len(texts)})
        table = make(table_uri, *kind, file_rows=5)
        stored = held.append_column("value", pa.array(range(len(texts)), pa.int64()))
        table.insert(self.given(stored.append_column("note", pa.array(texts))))
        assert len(table.files()) > 10
        assert None not in self.agrees(table, kind, held)
        odd = pa.array([f"{text}?" for text in texts])
        assert self.tags(table, held.set_column(0, "id", odd)) == [None] * len(texts)


# writing

CITIES = ("ny", "sf")
KEYS = [f"k{number:02}" for number in range(30)] + ["é", "\U0001f600", "\uffff"]
SHRUNK = {**SMALL, "file_rows": 5, "row_group_rows": 3, "hfile_target_bytes": 4096}
SHRUNK["buckets"] = {"files": 2, "bloom_filter": 2, "column_stats": 2, "record_index": 2}


class HistoryContract(OnAnEngine):
    steps = 10 if LONG else 7

    def made(self, uri: str, kind: Kind, **options: Any) -> metatable.Table:
        return metatable.create(
            uri,
            SCHEMA,
            key="id",
            partition_by="city",
            index=index_of(kind[0]),
            options=fitting(kind[0], {**SHRUNK, "key_scope": kind[1], **self.options, **options}),
            storage_options={"durable": "false"},
        )

    @every_other
    def test_a_random_history_leaves_tags_that_a_plain_dict_gives(
        self, table_uri: str, kind: Kind
    ) -> None:
        draw = random.Random(f"{kind}")
        model = Model(kind[1] == "global", ordering=False)
        table = self.made(table_uri, kind)
        probe = [{"id": key, "city": city} for key in (*KEYS, "absent") for city in CITIES]
        self.write(table, model, "insert", drawn(draw, 20))
        verbs = ["upsert", "upsert", "insert", "delete", "move", "compact", "rollback"]
        for step in range(self.steps):
            verb = verbs[step % len(verbs)] if step < len(verbs) else draw.choice(verbs)
            self.step(table, model, verb, draw)
            check_tags(table, model, probe)
        check(table, model)

    def step(self, table: metatable.Table, model: Model, verb: str, draw: random.Random) -> None:
        given = list(model.distinct(drawn(draw, 8)).values())
        held = draw.sample(list(model.rows.values()), min(6, len(model.rows)))
        if verb == "compact":
            table.compact(major=draw.random() < 0.5)
        elif verb == "rollback":
            table.rollback()
            model.rollback()
        elif verb == "insert":
            new = [row for row in given if model.identity(row) not in model.rows]
            self.write(table, model, verb, new)
        elif verb == "move":
            self.write(table, model, "upsert", [{**row, "city": "la", "v": 5} for row in held])
        else:
            self.write(table, model, verb, held + [row for row in given if row not in held][:2])

    def write(self, table: metatable.Table, model: Model, verb: str, given: list[Any]) -> None:
        distinct = list(model.distinct(given).values())
        if not distinct:
            return
        result = getattr(table, verb)(self.given(arrow(distinct)))
        counts = getattr(model, "delete" if verb == "delete" else "upsert")(distinct)
        check_counts(table, result, counts)
        if create_index(table.options).proves_presence:
            assert None not in (result.inserted, result.updated, result.deleted)
        if result.instant is None:
            model.forget_commit()

    def test_of_two_writers_of_a_new_key_one_wins(
        self, table_uri: str, kind: Kind, between: Callable[[Any], None]
    ) -> None:
        table = self.made(table_uri, kind, commit_retries=0)
        model = Model(kind[1] == "global", ordering=False)
        self.write(table, model, "insert", named(0, 10, "ny"))
        between(lambda: self.write(table, model, "insert", named(10, 14, "ny")))
        with pytest.raises(ConflictError, match=CLASH.get(kind[0], SAME_KEYS)):
            table.insert(self.given(arrow(named(13, 17, "ny"))))
        check(table, model, named(0, 20, "ny"))


class RaceContract(HistoryContract):
    @every_other
    @pytest.mark.each_once
    @pytest.mark.parametrize("partitions", [None, "files", "column_stats"])
    def test_a_compaction_between_hides_no_writer_and_invents_none(
        self, table_uri: str, kind: Kind, between: Callable[[Any], None], partitions: str | None
    ) -> None:
        """Whatever it lifts of older slices into what was published since."""
        table = self.made(table_uri, kind, commit_retries=0)
        model = Model(kind[1] == "global", ordering=False)
        self.write(table, model, "insert", named(0, 10, "ny"))

        def act() -> None:
            self.write(table, model, "insert", named(20, 24, "ny"))
            table.compact(major=True, partitions=partitions)

        between(act)
        with pytest.raises(ConflictError, match=CLASH.get(kind[0], SAME_KEYS)):
            table.upsert(self.given(arrow(named(23, 26, "ny"))))
        between(table.compact)
        self.write(table, model, "upsert", named(8, 12, "sf"))  # moved or new, and new
        check(table, model, named(0, 30, "ny") + named(0, 30, "sf"))


def drawn(draw: random.Random, count: int) -> list[Any]:
    cities = draw.choices(CITIES, k=count)
    pairs = zip(draw.sample(KEYS, count), cities, strict=True)
    return [{"id": key, "city": city, "v": draw.randrange(9), "ts": None} for key, city in pairs]


def named(first: int, last: int, city: str) -> list[Any]:
    return [{"id": f"k{n:02}", "city": city, "v": n, "ts": None} for n in range(first, last)]
