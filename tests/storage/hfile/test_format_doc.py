"""FORMAT.md, the tables in docstrings and the code say the same."""

import re
import struct
from pathlib import Path

import pytest

from metatable.storage.hfile import (
    block,
    block_index,
    checksum,
    codec,
    file_info,
    forms,
    key_values,
    record_sizes,
    trailer,
)
from metatable.storage.hfile.reading import file_filter, index_tree
from metatable.storage.hfile.writing import index_writer, packing

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
    assert unread == {one.name for one in codec.Codec} - {one.name for one in codec.READABLE}
    unwritten = {row[1] for row in tables("codec", "name") if "not written" in row[2]}
    assert unwritten == {one.name for one in set(codec.READABLE) - set(codec.SUPPORTED)}


def test_limits_of_payloads_are_those_of_the_text() -> None:
    assert f"above {codec.BOMB_BYTES >> 20} MiB" in TEXT
    assert f"at least 1/{codec.BOMB_RATIO} of it is stored" in TEXT
    level = index_tree.LEVEL_BYTES >> 20, index_tree.LEVEL_RATIO
    assert "more than {} MiB and more than {} times the file".format(*level) in TEXT
    assert f"a meta index of more than {block_index.MOST_NAMES} names" in TEXT
    assert f"More than {file_info.MOST_PAIRS} pairs are refused" in TEXT
    assert f"chunks of {codec._CHUNK_BYTES} bytes" in TEXT
    assert f"more than {codec._LZ4_BLOCK_BYTES[7] >> 20} MiB" in TEXT


def test_record_is_the_sum_of_its_fields() -> None:
    rows = tables("size", "field")
    fixed = sum(int(size) for size, _, _ in rows if size.isdigit())
    assert fixed == key_values.RECORD_OVERHEAD
    names = [name for _, name, _ in rows]
    told = docstring_rows(key_values, r"^    (\w+) +(\w+)(?:  |$)")
    assert [name for _, name in told if name != "field"] == names
    assert names.index("row") == 3
    assert sum(int(size) for size, _, _ in rows[:3]) == key_values.HEADER.size
    suffix = rows[names.index("row") + 1 : names.index("value")]
    assert sum(int(size) for size, _, _ in suffix) == len(key_values.KEY_SUFFIX)


def test_index_entry_is_as_written_in_words() -> None:
    assert "`i64 offset, i32 size of the whole block, Hadoop VInt length, key`" in TEXT
    assert block_index._PLACE.size == index_writer._PLACE.size == 8 + 4
    assert "`i32 n, n + 1 i32 positions, n entries of i64 offset, i32 size, key`" in TEXT


def check_layout(module: object, layout: struct.Struct, *heads: str) -> list[str]:
    """The names of a table's fields, which are those of `layout` and of the docstring."""
    rows = [(int(offset), int(size), name) for offset, size, name, _ in tables(*heads)]
    ends = [offset + size for offset, size, _ in rows]
    assert [offset for offset, _, _ in rows] == [0, *ends[:-1]]
    assert ends[-1] == layout.size
    values = layout.unpack(bytes(range(layout.size)))
    raw = bytes(range(layout.size))
    for (offset, size, _), value in zip(rows, values, strict=True):
        assert int.from_bytes(raw[offset : offset + size], "big") == value
    told = docstring_rows(module, r"^ +(\d+) +(\d+)  (\w+)(?: |$)")
    assert {(str(offset), str(size), name) for offset, size, name in rows} <= set(told)
    return [name for _, _, name in rows]


def test_mid_key_is_laid_out_as_in_the_table() -> None:
    names = check_layout(index_writer, index_writer._MID_KEY, "byte", "size", "field")
    assert names == ["offset", "size", "entry"]
    assert index_writer._MID_KEY.size == block_index.MID_KEY_SIZE


def test_record_sizes_are_laid_out_as_in_the_tables() -> None:
    names = check_layout(record_sizes, record_sizes._FACT, "part", "size", "field")
    assert names == ["key_size", "value_size"]
    names = check_layout(record_sizes, record_sizes._HEADER, "place", "size", "field")
    assert names[-2:] == ["block_count", "entry_count"]
    version, key_width, value_width = (row[3] for row in tables("place", "size", "field")[:3])
    assert version == str(record_sizes.VERSION)
    assert key_width.startswith(
        "bytes of one key size: {1} or {2};".format(*record_sizes._KEY_WIDTHS)
    )
    expected = "bytes of one value size: {1}, {2} or {3};".format(*record_sizes._VALUE_WIDTHS)
    assert value_width.startswith(expected)


def test_hints_have_the_names_of_the_text() -> None:
    for one in (record_sizes, file_filter):
        assert one.META.encode() == one.FACT
        assert f"act `{one.META}`" in TEXT
        assert f"a META block `{one.META}`" in TEXT


def words_of(form: forms.Form) -> dict[str, str]:
    """What the table must say of a form."""
    full, link = "full keys" if form.key_suffix else "", "of the same magic"
    size = 'see "Two hazards"' if len(form.chunk_bytes) > 1 else str(form.chunk_bytes[0])
    return {
        "a block ends": "behind the record that reaches its size"
        if form.overfills_blocks
        else "before the record that would pass its size",
        "checksums": form.checksum.name,
        "chunk_bytes": size,
        "previous_offset": link
        if form.links_blocks
        else "-1; DATA blocks from the second on: their own",
        "GZ": "zlib, level 6" if form.java_deflate else "isal",
        "index keys, LASTKEY": full or "length and row, without the 10 bytes behind",
        "index key of a block": "the shortest key between (below)"
        if form.shortens_keys
        else "its first key",
        "index levels": "as many as needed" if form.has_levels else "1",
        "order in FILE_INFO": "a Java HashMap's"
        if form.fact_order is forms.java_order
        else "bytes",
        "AVG_KEY_LEN": "of full keys" if form.key_overhead else "of rows",
        "LASTKEY in an empty file": "empty" if form.names_no_last_key else "absent",
        "hints": "yes" if form.has_hints else "no",
        "trailer field 3": "index payloads" if form.sums_indexes else "DATA payloads",
        "trailer field 4": "yes" if form.sums_indexes else "absent",
        "trailer field 10 in an empty file": str(form.last_block_of_none),
        "trailer field 11": re.split(r"[.$]", form.comparator)[-1],
        "minor version": str(form.minor),
    }


@pytest.mark.parametrize("form", [forms.OURS, forms.HUDI, forms.HBASE], ids=lambda one: one.name)
def test_forms_are_those_of_the_table(form: forms.Form) -> None:
    head = ["what", "OURS", "HUDI", "HBASE"]
    column = head.index(form.name.upper())
    assert {row[0]: row[column] for row in tables(*head)} == words_of(form)


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
    assert f"more than {packing.HINTED_ENTRIES} entries" in TEXT
    assert "the first of {} and {}".format(*forms.OURS.chunk_bytes) in TEXT
    assert f"the chunk size ({index_writer.INDEX_CHUNK_BYTES} bytes" in TEXT
    assert f"more than {index_writer._LEAST_ENTRIES} of them" in TEXT
    assert f"there are {index_writer._MOST_LEVELS} levels at most" in TEXT
    assert index_writer._MOST_LEVELS == trailer._MOST_LEVELS
    assert f"at most {key_values.MAX_ROW_SIZE}" in TEXT
    assert f"header `{codec._GZ_HEADER.hex()}`" in TEXT
