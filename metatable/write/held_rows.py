"""Rows that stay where they are: those of a commit in one process, which its tasks take by number.

Rows are dealt to tasks where these are elsewhere, or where they do not all fit into memory: each is
copied to its task, and again into its file. Here they lie in one piece already, as a rule that of
the table that was given, and a task is told the numbers of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.data.keys.key_texts import KEY
from metatable.data.rows.taking import whole
from metatable.engine.batches import one_piece
from metatable.engine.protocol import Engine
from metatable.index.locations import LOCATION_COLUMN
from metatable.storage.threads import in_order
from metatable.write.plan import WritePlan
from metatable.write.routes import Destinations
from metatable.write.task_rows import TaskRows

__all__ = ["held_rows"]

LEAST_ROWS = 16 << 10
"""Fewer are dealt: that takes no time, and files get theirs from what lies close together."""

LEAST_ROWS_ALONE = 1
"""The same where there is one task: to be dealt takes longer than to be written then."""

MOST_ROWS = 1 << 21
"""Of more, the numbers alone are more than a commit should hold: some 60 bytes per row."""

MOST_SORTED_BYTES = 512 << 20
"""Of columns that rows are in order by: texts of them are made in one piece, of twice the bytes."""

COPIED_BYTES = 96 << 20
"""What may be copied at most for columns to lie in one piece: less than dealing would."""


def held_rows(
    engine: Engine[Any], located: Any, plan: WritePlan, names: Sequence[str]
) -> TaskRows | None:
    """The kept rows of a commit, with these columns, for all tasks of its plan; None where they are
    few for several tasks, very many, on disk, in pieces, or elsewhere, or wide where they are in
    order by it."""
    batches = engine.held(located)
    least = LEAST_ROWS if plan.tasks > 1 else LEAST_ROWS_ALONE
    if batches is None or not least <= sum(map(len, batches)) <= MOST_ROWS:
        return None
    kept = list(dict.fromkeys([KEY, *names]))
    table = one_piece([batch.select(kept) for batch in batches], COPIED_BYTES)
    if table is None or sum(table[name].nbytes for name in plan.order.columns) > MOST_SORTED_BYTES:
        return None
    parts = list(in_order(partial(_destinations, plan), batches))
    return TaskRows.of(plan, table, Destinations.joined(parts))


def _destinations(plan: WritePlan, batch: pa.RecordBatch) -> Destinations:
    return Destinations.of(plan, batch, plan.located(whole(batch[LOCATION_COLUMN])))
