"""Tables of other formats in a folder: two formats would share it, and each takes what the other
one has written for rubbish. Told by what names the newest version of each."""

from __future__ import annotations

from functools import partial

from metatable.storage.store import Store

__all__ = ["FORMATS", "other_format"]

FORMATS = {
    "a Delta table": ("_delta_log", (".json", ".checkpoint.parquet", "_last_checkpoint")),
    "an Iceberg table": ("metadata", (".metadata.json", "version-hint.text")),
}
"""The folder of each, and how names end in it that tell of a version."""


def other_format(store: Store) -> str | None:
    """What lies there, and where; None: nothing that we know."""
    folders = [folder for folder, _ in FORMATS.values()]
    listed = store.together([partial(store.list, folder) for folder in folders])
    for (told, (folder, ends)), files in zip(FORMATS.items(), listed, strict=True):
        if any(file.path.endswith(ends) for file in files):
            return f"{told} ({folder}/)"
    return None
