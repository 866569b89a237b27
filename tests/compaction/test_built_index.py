"""Index files of services that write data files are built by tasks of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metatable import Table
from metatable.compaction.reshaping.cluster import Cluster
from metatable.compaction.reshaping.log_compaction import CompactLogs
from metatable.compaction.reshaping.waiting_resize import CarryOutResize
from metatable.compaction.service import Service, execute
from metatable.engine.local import LocalEngine
from metatable.index import build
from metatable.metadata.hfiles.entry_files import build_hfile
from metatable.storage.store import Store
from tests.compaction import test_log_compaction as logs
from tests.compaction import test_waiting_resize as resizes
from tests.compaction.test_cluster import rows
from tests.face.test_cluster_by import made
from tests.index.test_buckets import FAST
from tests.model import Model, arrow, check


class Elsewhere(LocalEngine):
    """Tasks run here, as if it were elsewhere."""

    in_process = False
    running = 0

    def run(self, *given: Any) -> Any:
        self.running += 1
        try:
            return super().run(*given)
        finally:
            self.running -= 1


def clustered(uri: str) -> tuple[Table, Model, Service[Any]]:
    table, model = made(uri, "ts", "v", options={"small_file_bytes": 0})
    model.upsert(rows())
    table.insert(arrow(rows()))
    return table, model, Cluster(("id",))


def compacted(uri: str) -> tuple[Table, Model, Service[Any]]:
    table, model = logs.filled(uri)
    plan = table.compact_logs(ratio=0, schedule=True).plan
    assert plan
    return table, model, CompactLogs(plan)


def resized(uri: str) -> tuple[Table, Model, Service[Any]]:
    table, model = resizes.filled(uri)
    return table, model, CarryOutResize(resizes.scheduled(table))


@pytest.mark.parametrize("riding", [0, build.RIDING_BYTES])
@pytest.mark.parametrize("due", [clustered, compacted, resized])
def test_index_files_of_a_service_are_built_by_tasks_and_counted(
    table_uri: str,
    due: Callable[[str], tuple[Table, Model, Service[Any]]],
    riding: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Be they put by their tasks, or with the version."""
    monkeypatch.setattr(build, "RIDING_BYTES", riding)
    table, model, service = due(table_uri)
    engine, store = Elsewhere(1), Store(table_uri, FAST)
    running: list[int] = []

    def noting(*given: Any) -> Any:
        running.append(engine.running)
        return build_hfile(*given)

    monkeypatch.setattr("metatable.index.build.build_hfile", noting)
    before = {one.path for one in store.walk()}
    done = execute(store, engine, service)
    assert running
    assert set(running) == {1}
    made_files = [one for one in store.walk() if one.path not in before]
    assert done.bytes_written >= sum(store.size(one.path) or 0 for one in made_files)
    check(table, model)
    assert not table.verify().findings
