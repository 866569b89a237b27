"""Owner: which writer an index file belongs to, told by the file's name.

    <instant>-<nonce>-<id>.hfile      of a data commit: the nonce is that of its lease
    <operation>-<nonce>-<id>.hfile    of a service: the nonce is its own

Names of pages are `<the same>-<id>.json`; what tasks elsewhere hand to each other lies in a folder
called `<the same>`. Whoever gives up deletes the index files that begin with the owner's prefix,
and nothing else can. Two writers whose clocks show the same millisecond have two nonces, and an
operation is no instant.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace

from metatable.metadata.manifests.home import HOME

__all__ = ["Owner"]

_NAME = r"((?:\d{17}|\d{14}|[a-z_]+)-[0-9a-f]{32})"
_OWNED, _FOLDER = re.compile(rf"{_NAME}-[0-9a-f]{{32}}\."), re.compile(rf"{_NAME}/")


@dataclass(frozen=True, slots=True)
class Owner:
    """The writer of index files: a data commit, or a service, whose `instant` is empty."""

    operation: str
    nonce: str
    instant: str = ""
    after: str = ""
    """The greatest instant and the version that a service knows, `<instant>.<10 digits>`."""

    @classmethod
    def new(cls, operation: str) -> Owner:
        """An owner that nobody else is, without an instant as yet."""
        return cls(operation, uuid.uuid4().hex)

    def of(self, instant: str) -> Owner:
        """This owner with the instant that it has taken."""
        return replace(self, instant=instant)

    @property
    def name(self) -> str:
        """A name that nobody else has."""
        return f"{self.instant or self.operation}-{self.nonce}"

    @property
    def prefix(self) -> str:
        """What the names of its index files and pages begin with."""
        return f"{self.name}-"

    @staticmethod
    def of_folder(path: str) -> str:
        """The name of the owner that the first folder of this path is called by; "" where it is
        called otherwise."""
        told = _FOLDER.match(path)
        return told[1] if told else ""

    @staticmethod
    def of_file(name: str) -> str:
        """The name of a file's owner, by the file's name; "" where it does not tell (format 1)."""
        told = _OWNED.match(name)
        return told[1] if told else ""

    def new_path(self, partition: str) -> str:
        """A path never given before for an HFile of a metadata partition."""
        return f"{HOME}/{partition}/{self.prefix}{uuid.uuid4().hex}.hfile"
