"""Names of log files, as tables of version 6 have them:

    .<file id>_<instant of the slice's base>.log.<version>_<write token>

The instant is the base file's, not that of the commit that wrote the log (a slice without a base
has that of its first log). Versions count up from 1 in a slice. A write token is three numbers
of Java's int, `<task>-<stage>-<attempt>` in Hudi; ours holds digits of the writer's nonce, so that
two writers never plan one name, and its first number is odd where there may be deletes. Who wrote
a log its blocks tell, not its name.

Hudi has one instant a commit in tables from version 8 on, and `.cdc` behind names of changes:
these are refused, as is whatever another writer of ours or Hudi's would not find again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metatable.storage.errors import CorruptError

__all__ = ["LogName", "log_write_token"]

_NUMBER = r"(?:0|[1-9]\d{0,9})"
_NAME = re.compile(
    rf"\.([^_./\\]+)_(\d{{17}}|\d{{14}})\.log\.([1-9]\d{{0,9}})_({_NUMBER}-{_NUMBER}-{_NUMBER})",
    re.ASCII,
)
_SHAPE = ".<file id>_<instant>.log.<version>_<n>-<n>-<n>"
_GREATEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LogName:
    """A log file's name; `encode` is `name`."""

    file_id: str
    base_instant: str
    version: int
    write_token: str

    @property
    def name(self) -> str:
        return f".{self.file_id}_{self.base_instant}.log.{self.version}_{self.write_token}"

    @property
    def order(self) -> tuple[str, int, str]:
        """Logs of a file group in the order in which Hudi merges them."""
        return self.base_instant, self.version, self.write_token

    @property
    def may_delete(self) -> bool:
        """Whether it may hold deletes, as `log_write_token` was told."""
        return int(self.write_token.partition("-")[0]) % 2 == 1

    @classmethod
    def decode(cls, name: str) -> LogName:
        """Raises CorruptError where it names no log file."""
        cut = _NAME.fullmatch(name)
        if cut is not None:
            file_id, instant, version, token = cut.groups()
            if max(map(int, (version, *token.split("-")))) <= _GREATEST:
                return cls(file_id, instant, int(version), token)
        raise CorruptError("not the name of a log file", path=name, expected=_SHAPE)


def log_write_token(nonce: str, place: int, may_delete: bool) -> str:
    """The token of the log that the writer with this nonce (hex) puts on the group at this place
    of its plan. `may_delete`: whether the log may hold deletes, for those who need only these."""
    digits = int(nonce, 16)
    return f"{place * 2 + may_delete}-{digits & _GREATEST}-{digits >> 31 & _GREATEST}"
