"""New keys: those of an insert, which the table must not hold, and those that a commit brings,
which nobody may have published meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from metatable.data.keys.key_texts import KEY, PATH
from metatable.index.protocol import Index
from metatable.metadata.commits.change import Race
from metatable.metadata.hfiles.entry_files import Run, read_runs
from metatable.storage.errors import UsageError
from metatable.storage.store import Store
from metatable.write.profile import NAMED_KEYS, row_count

__all__ = ["KeysAbsent", "refuse_existing"]


def refuse_existing(profile: pa.Table) -> None:
    """Raises UsageError, naming some, where rows to insert have keys that the table holds."""
    existing = profile.filter(profile["file_id"].is_valid())
    if existing.num_rows:
        named = sorted(key for keys in existing["keys"].to_pylist() for key in keys)
        raise UsageError(
            "insert of keys that the table holds: use upsert",
            keys=named[:NAMED_KEYS],
            found=f"{row_count(existing)} existing keys",
        )


@dataclass(frozen=True, slots=True)
class KeysAbsent:
    """Nobody has published a key that we insert: those in `arrivals`, runs in the scratch."""

    index: Index
    scratch: Store
    arrivals: tuple[Run, ...]

    def check(self, race: Race) -> None:
        since = race.snapshot.since(race.base.version)
        for batch in read_runs(self.scratch, self.arrivals):
            held = self.index.holds(since, batch[KEY], batch[PATH])
            if held.any():
                keys = batch[KEY].filter(pa.array(held))[:NAMED_KEYS].to_pylist()
                raise race.lost("another commit inserted the same keys: retry", keys=keys)
