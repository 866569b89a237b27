"""Updates: what becomes of the next version. Which HFiles it has: `page_updates.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from metatable.data.columns.schema_past import back_behind
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.options import Options
from metatable.metadata.commits.change import Draft
from metatable.metadata.manifests.manifest import Manifest
from metatable.metadata.manifests.versions import load_version

__all__ = ["BeginAnew", "ChangeOptions", "GoBack", "PutOptions", "SetSchema", "Withdraw"]


@dataclass(frozen=True, slots=True)
class GoBack:
    """Go back to the content of an older version, which lacks these data commits, and to its index.
    Index files of later compactions fall away, too; how new files are made stays as it is."""

    version: int
    undone: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        draft.content = load_version(draft.store, self.version, draft.newest.oldest)
        draft.pages = dict(draft.content.pages)
        names = _same_columns(draft.content, draft.newest)
        draft.options = draft.content.options.as_set_in(draft.options, names)
        draft.compactions = draft.content.compactions
        draft.schema = _taken_back(draft.content, draft.newest)
        draft.restored_at = draft.version
        draft.dropped |= set(self.undone)


def _same_columns(content: Manifest, newest: Manifest) -> list[str]:
    """Names that stand for the same columns in both: one that went may have left its own to
    another, of another type."""
    then, now = (TableSchema.decode(one.schema, one.path).ids() for one in (content, newest))
    return [name for name, number in then.items() if now.get(name) == number]


def _taken_back(content: Manifest, newest: Manifest) -> str:
    """The schema of an older version; ids that were given out since are not given again. Where
    something waits in it, files that were made of that since may stay: names of then are past."""
    schema, since = (TableSchema.decode(one.schema, one.path) for one in (content, newest))
    if content.compactions:
        schema = back_behind(schema, since)
    return replace(schema, last_column_id=max(schema.last_column_id, since.last_column_id)).encode()


@dataclass(frozen=True, slots=True)
class SetSchema:
    """The table's columns are these from now on; `schema` is their JSON text."""

    schema: str

    def apply(self, draft: Draft) -> None:
        draft.schema = self.schema


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Other options of the index; metadata partitions that belong to the old ones go. Writers that
    began before start again, because they would write entries by the old options."""

    options: Options
    gone: tuple[str, ...] = ()

    def apply(self, draft: Draft) -> None:
        draft.options = self.options
        draft.pages = {name: kept for name, kept in draft.pages.items() if name not in self.gone}
        draft.restored_at = draft.version


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """Writers that began before start again: they go by entries that are mended here."""

    def apply(self, draft: Draft) -> None:
        draft.restored_at = draft.version


@dataclass(frozen=True, slots=True)
class PutOptions:
    """Other options that do not matter to writers and readers that have begun before."""

    options: Options

    def apply(self, draft: Draft) -> None:
        draft.options = self.options


@dataclass(frozen=True, slots=True)
class Withdraw:
    """These instants are never published any more, nor given out again."""

    instants: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        draft.withdrawn = tuple(dict.fromkeys((*draft.withdrawn, *self.instants)))
