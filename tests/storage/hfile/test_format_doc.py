"""FORMAT.md, the tables in docstrings and the code say the same."""

import re
from pathlib import Path

import pytest

from metatable.storage.hfile import (
    block,
    block_index,
    checksum,
    codec,
    file_info,
    key_values,
    trailer,
)

TEXT = (Path(block.__file__).parent / "FORMAT.md").read_text()


def tables(*heads: str) -> list[list[str]]:
    """The rows of the table of FORMAT.md whose head begins with these cells."""
    lines = iter(TEXT.splitlines())
    for line in lines:
        if cells(line)[: len(heads)] == list(heads):
            next(lines)
            rows = []
            for row in lines:
                if not row.startswith("|"):
                    return rows
                rows.append(cells(row))
    raise AssertionError(f"no such table: {heads}")


def cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def docstring_rows(module: object, pattern: str) -> list[tuple[str, ...]]:
    return re.findall(pattern, module.__doc__ or "", re.M)


def test_block_header_has_the_fields_of_the_table_at_their_offsets() -> None:
    rows = [(int(offset), int(size), name) for offset, size, name, _ in tables("offset", "size")]
    assert [name for _, _, name in rows] == [
        "magic",
        *list(block.BlockHeader.__dataclass_fields__)[1:],
    ]
    ends = [offset + size for offset, size, _ in rows]
    assert [offset for offset, _, _ in rows] == [0, *ends[:-1]]
    assert ends[-1] == block.HEADER_SIZE == 33
    header = block.BlockHeader(
        block.BlockType.DATA, 0x11121314, 0x21222324, 0x31, checksum.Checksum.CRC32C, 0x41, 0x51
    )
    raw = header.encode()
    for offset, size, name in rows[1:]:
        assert int.from_bytes(raw[offset : offset + size], "big") == getattr(header, name)


def test_block_docstring_repeats_the_table() -> None:
    told = docstring_rows(block, r"^ +(\d+) +(\d+)  (\w+)  ")
    assert told == [(offset, size, name) for offset, size, name, _ in tables("offset", "size")]


def test_magics_are_those_of_the_table() -> None:
    written = {name: magic.encode() for magic, name in tables("magic", "block")}
    assert written == {one.name: one.value for one in block.BlockType}


@pytest.mark.parametrize(
    ("head", "kinds"), [("checksum", checksum.Checksum), ("codec", codec.Codec)]
)
def test_ids_are_those_of_the_table(head: str, kinds: type) -> None:
    assert {row[1]: int(row[0]) for row in tables(head, "name")} == {
        name: int(kind) for name, kind in kinds.__members__.items()
    }


def test_codecs_called_unread_are_those_that_are_refused() -> None:
    unread = {row[1] for row in tables("codec", "name") if row[2].startswith("not read")}
    assert unread == {one.name for one in codec.Codec} - {one.name for one in codec.SUPPORTED}


def test_record_is_the_sum_of_its_fields() -> None:
    rows = tables("size", "field")
    fixed = sum(int(size) for size, _, _ in rows if size.isdigit())
    assert fixed == key_values.RECORD_OVERHEAD
    names = [name for _, name, _ in rows]
    told = docstring_rows(key_values, r"^    (\w+) +(\w+)(?:  |$)")
    assert [name for _, name in told if name != "field"] == names
    assert names.index("row") == 3
    assert sum(int(size) for size, _, _ in rows[:3]) == key_values._HEADER.size
    suffix = rows[names.index("row") + 1 : names.index("value")]
    assert sum(int(size) for size, _, _ in suffix) == len(key_values.KEY_SUFFIX)


def test_index_entry_is_as_written_in_words() -> None:
    assert "`i64 offset, i32 size of the whole block, Hadoop VInt length, key`" in TEXT
    assert block_index._PLACE.size == 8 + 4


def test_file_info_names_are_those_of_the_table() -> None:
    assert [name.encode() for name, _ in tables("name", "value")] == list(file_info.RESERVED)
    told = docstring_rows(file_info, r"^    ((?:hfile\.)?[A-Z_]{4,}|hfile\.\w+) ")
    assert [name.encode() for name in told] == list(file_info.RESERVED)


def test_trailer_fields_are_those_of_the_table() -> None:
    rows = tables("field", "name")
    assert {int(number): name for number, name, *_ in rows} == trailer.FIELDS
    kinds = {name for _, name, kind, _ in rows if kind == "bytes"}
    assert kinds == set(trailer._BYTES_FIELDS)
    told = docstring_rows(trailer, r"^ +(\d+)  (\w+) +(varint|bytes)")
    assert told == [(number, name, kind) for number, name, kind, _ in rows]


def test_constants_are_those_of_the_text() -> None:
    assert f"Magic `{trailer.MAGIC.decode()}`" in TEXT
    assert f"| trailer | {trailer.TRAILER_SIZE} bytes" in TEXT
    assert f"minor u8 ({trailer.MINOR}), major u24 ({trailer.MAJOR})" in TEXT
    assert trailer.COMPARATOR in TEXT
    assert "the first of {}, {} and {}".format(*block._CHUNK_BYTES) in TEXT
    assert f"at most {key_values.MAX_ROW_SIZE}" in TEXT
    assert f"header `{codec._GZ_HEADER.hex()}`" in TEXT
