"""Owner: whose an index file is, told by its name.

    <instant>-<nonce>-<id>.hfile      of a data commit: the nonce is that of its lease
    <operation>-<nonce>-<id>.hfile    of a service: the nonce is its own

Whoever gives up deletes what begins with the owner's prefix, and nothing else can. Two
writers whose clocks show the same millisecond have two nonces, and an operation is no instant.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from metatable.metadata.manifest import HOME

__all__ = ["Owner"]


@dataclass(frozen=True, slots=True)
class Owner:
    """`instant` is empty for a service."""

    operation: str
    nonce: str
    instant: str = ""

    @classmethod
    def new(cls, operation: str) -> Owner:
        """One that nobody else has, without an instant as yet."""
        return cls(operation, uuid.uuid4().hex)

    def of(self, instant: str) -> Owner:
        """The same, with the instant that it has taken."""
        return replace(self, instant=instant)

    @property
    def prefix(self) -> str:
        """What the names of its index files begin with."""
        return f"{self.instant or self.operation}-{self.nonce}-"

    def new_path(self, partition: str) -> str:
        """A path never given before for an HFile of a metadata partition."""
        return f"{HOME}/{partition}/{self.prefix}{uuid.uuid4().hex}.hfile"
