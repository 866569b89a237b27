"""`hoodie.properties`: what Hudi's readers and writers must know of a table.

Java properties text, one `key=value` a line, comments first. Written so that the plainest
parser reads it: no continuation lines, and in values only what Java cannot do without is escaped
(backslashes, line ends, outer blanks, and all beyond ASCII: Java reads Latin-1).
`hoodie.table.checksum` is the CRC-32 of `<database>.<table name>`; Hudi refuses a wrong one.
Keys that we do not know are kept.

Written last when a table is made, and replaced atomically. Rules: version 6, timeline layout 1.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from metatable.data.columns.avro_schema import to_avro
from metatable.data.config.options import COPY_ON_WRITE, MERGE_ON_READ, Options
from metatable.storage.errors import CorruptError, UpgradeError

__all__ = ["PROPERTIES_PATH", "TableProperties"]

PROPERTIES_PATH = ".hoodie/hoodie.properties"

_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CHECKSUM = "hoodie.table.checksum"
_TYPE = "hoodie.table.type"
TABLE_TYPES = {COPY_ON_WRITE: "COPY_ON_WRITE", MERGE_ON_READ: "MERGE_ON_READ"}
_PAYLOADS = "org.apache.hudi.common.model."
_GENERATORS = "org.apache.hudi.keygen."


@dataclass(frozen=True, slots=True)
class TableProperties:
    """All keys and values, as text."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, options: Options, schema: pa.Schema) -> TableProperties:
        """Those of a table of version 6."""
        values = {
            "hoodie.table.name": options.name,
            _TYPE: TABLE_TYPES[options.table_type],
            "hoodie.table.version": "6",
            "hoodie.timeline.layout.version": "1",
            "hoodie.table.recordkey.fields": ",".join(options.key),
            "hoodie.table.partition.fields": ",".join(options.partition_by),
            "hoodie.database.name": "default",
            "hoodie.table.keygenerator.class": _GENERATORS + _generator(options),
            **_layout(options),
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.timeline.timezone": "UTC",
            **_merging(options),
            "hoodie.table.precombine.field": options.ordering or "",
            "hoodie.table.create.schema": json.dumps(
                to_avro(schema, options.name), separators=(",", ":")
            ),
        }
        made = {key: value for key, value in values.items() if value}
        return cls(made | {_CHECKSUM: _checksum(made)})

    @property
    def version(self) -> int:
        """`hoodie.table.version`; 0 where it is missing."""
        return self._number("hoodie.table.version")

    @property
    def layout(self) -> int:
        """`hoodie.timeline.layout.version`; 0 where it is missing."""
        return self._number("hoodie.timeline.layout.version")

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of Hudi's own metadata table, where it has one."""
        named = self.values.get("hoodie.table.metadata.partitions", "")
        return tuple(filter(None, (word.strip() for word in named.split(","))))

    def encode(self, saved: datetime | None = None) -> bytes:
        """The bytes of the file, with the time of saving in its first line."""
        stamp = (saved or datetime.now(UTC)).isoformat()
        lines = [f"{_escape_key(key)}={_escape(value)}" for key, value in self.values.items()]
        return "\n".join([f"#Properties saved on {stamp}", *lines, ""]).encode()

    @classmethod
    def decode(cls, raw: bytes, path: str = PROPERTIES_PATH) -> TableProperties:
        """Read any Hudi writer's. Raises CorruptError for no text or a wrong checksum."""
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptError("not a properties file", path=path, found=str(error)) from error
        values = dict(_pair(line) for line in _logical_lines(text))
        expected, found = _checksum(values), values.get(_CHECKSUM)
        if found is not None and found != expected:
            what = "properties checksum mismatch"
            raise CorruptError(what, path=path, expected=expected, found=found)
        return cls(values)

    @property
    def table_type(self) -> str:
        """`hoodie.table.type`; COPY_ON_WRITE where it is missing, as Hudi takes it."""
        return self.values.get(_TYPE, "COPY_ON_WRITE")

    def check(self, options: Options, path: str = PROPERTIES_PATH) -> None:
        """Refuse properties that name another table, key, partitioning or table type than our
        options, or tell of files that are not laid out as ours are.

        Raises CorruptError: Hudi's readers would go by these, our writers by those. UpgradeError
        for another type that is told, which is Hudi's to change.
        """
        for key, expected in _identity(options).items():
            found = self.values.get(key, "")
            if _words(found) != _words(expected):
                raise _another(key, path, expected, found)
        for key, expected in _layout(options).items():
            found = self.values.get(key) or expected
            if found.casefold() != expected.casefold():
                raise _another(key, path, expected, found)
        ours, theirs = TABLE_TYPES[options.table_type], self.table_type
        if theirs != ours and _TYPE not in self.values:
            what = f"{_TYPE} is missing, and Hudi would read no logs: restore the file"
            raise CorruptError(what, path=path, expected=ours, found="")
        if theirs != ours:
            what = "Hudi keeps another type of table here. Create a new one from its rows"
            raise UpgradeError(what, path=path, expected=ours, found=theirs)

    def mended(self, options: Options, schema: pa.Schema) -> TableProperties:
        """These, with what is missing, and what `check` refuses, as the table was created with."""
        ours = self.of(options, schema).values
        fixed = {**_identity(options), **_layout(options)}
        kept = {key: value for key, value in self.values.items() if key not in fixed}
        values = {**ours, **kept}
        return TableProperties(values | {_CHECKSUM: _checksum(values)})

    def _number(self, key: str) -> int:
        value = self.values.get(key, "0")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _identity(options: Options) -> dict[str, str]:
    """What tells one table from another."""
    return {
        "hoodie.table.name": options.name,
        "hoodie.table.recordkey.fields": ",".join(options.key),
        "hoodie.table.partition.fields": ",".join(options.partition_by),
    }


def _layout(options: Options) -> dict[str, str]:
    """How files and folders are written, by which Hudi's readers and writers go."""
    return {
        "hoodie.datasource.write.hive_style_partitioning": _word(options.hive_style),
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.base.file.format": "PARQUET",
    }


def _words(value: str) -> list[str]:
    """Names with commas between them, whatever blanks stand around these; a folder, and so a table,
    may have both in its name."""
    return [word.strip() for word in value.split(",")]


def _another(key: str, path: str, expected: str, found: str) -> CorruptError:
    what = f"{key} is not what the table was created with: restore the file"
    return CorruptError(what, path=path, expected=expected, found=found)


def _merging(options: Options) -> dict[str, str]:
    """How Hudi's readers merge logs: as we do."""
    if not options.has_logs:
        return {}
    by = "DefaultHoodieRecordPayload" if options.ordering else "OverwriteWithLatestAvroPayload"
    return {"hoodie.compaction.payload.class": _PAYLOADS + by}


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def _generator(options: Options) -> str:
    if not options.partition_by:
        return "NonpartitionedKeyGenerator"
    simple = len(options.key) == len(options.partition_by) == 1
    return "SimpleKeyGenerator" if simple else "ComplexKeyGenerator"


def _checksum(values: Mapping[str, str]) -> str:
    named = f"{values.get('hoodie.database.name', '')}.{values.get('hoodie.table.name', '')}"
    return str(zlib.crc32(named.encode()))


def _escape(value: str) -> str:
    return re.sub(r"^ | $|[\\\x00-\x1f]|[^\x00-\x7f]", _escaped, value)


def _escape_key(key: str) -> str:
    return re.sub(r"[\\:=#! ]|[^\x20-\x7f]", _escaped, key)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if "!" <= character <= "~":
        return f"\\{character}"
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def _logical_lines(text: str) -> list[str]:
    """Lines that hold a pair; one that ends in an odd number of backslashes goes on."""
    joined: list[str] = []
    pending: list[str] = []
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip()
        if not any(pending) and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        pending.append(line[:-1] if goes_on else line)
        if not goes_on:
            joined.append("".join(pending))
            pending = []
    return [*joined, "".join(pending)] if any(pending) else joined


def _pair(line: str) -> tuple[str, str]:
    """(key, value) of a line, cut at the first "=" that is not escaped (":" and blanks separate
    only where there is none).

    Values of Hudi's are often written with ":" and "=" left as they are.
    """
    cut = re.match(r"((?:[^\\=]++|\\.)*+)=(.*)", line, re.DOTALL)  # nothing to be taken back
    cut = cut or re.match(r"((?:[^\\:\s]++|\\.)*+)[:\s]?(.*)", line, re.DOTALL)
    key, value = cut.groups() if cut else (line, "")
    return _unescape(key.strip()), _unescape(value.strip(" \t\f"))


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        word = found[1]
        return chr(int(word[1:], 16)) if len(word) == 5 else _CONTROL.get(word, word)

    units = _ESCAPED.sub(plain, text).encode("utf-16", "surrogatepass")
    return units.decode("utf-16", "replace")
