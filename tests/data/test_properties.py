"""hoodie.properties: ours, and those of real tables."""

from __future__ import annotations

import json
import resource
import time
import zipfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metatable.data.config.options import Options
from metatable.data.hoodie.properties import TableProperties
from metatable.storage.errors import CorruptError, UpgradeError

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("val", pa.int64())])


def made(**given_: object) -> TableProperties:
    options = Options.create("trips", SCHEMA.names, **({"key": "id"} | given_))  # type: ignore[arg-type]
    return TableProperties.of(options, SCHEMA)


def test_properties_of_a_partitioned_table_say_what_every_reader_needs() -> None:
    values = dict(made(partition_by="city", ordering="val").values)
    schema = json.loads(values.pop("hoodie.table.create.schema"))
    assert schema["name"] == "trips_record"
    assert values == {
        "hoodie.table.name": "trips",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "city",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.database.name": "default",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.populate.meta.fields": "true",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.precombine.field": "val",
        "hoodie.table.checksum": "2200697520",
    }


@pytest.mark.parametrize(
    ("key", "partition_by", "generator"),
    [
        ("id", (), "NonpartitionedKeyGenerator"),
        (("id", "val"), (), "NonpartitionedKeyGenerator"),
        ("id", "city", "SimpleKeyGenerator"),
        (("id", "val"), "city", "ComplexKeyGenerator"),
        ("id", ("city", "val"), "ComplexKeyGenerator"),
    ],
)
def test_key_generator_follows_from_the_columns(
    key: str, partition_by: str, generator: str
) -> None:
    values = made(key=key, partition_by=partition_by).values
    assert values["hoodie.table.keygenerator.class"].endswith(f".{generator}")
    assert ("hoodie.table.partition.fields" in values) == bool(partition_by)


def test_every_line_is_read_by_the_plainest_parser() -> None:
    first, *lines = made(partition_by="city").encode().decode().splitlines()
    assert first.startswith("#Properties saved on ")
    assert all(line.count("=") == 1 for line in lines)


def test_properties_come_back_as_they_were() -> None:
    properties = made(partition_by="city", ordering="val")
    assert TableProperties.decode(properties.encode()) == properties
    assert (properties.version, properties.layout, properties.metadata_partitions) == (6, 1, ())


def test_time_of_saving_is_the_first_line() -> None:
    raw = made().encode(datetime(2026, 11, 20, 11, 41, 50, tzinfo=UTC))
    assert raw.startswith(
        b"#Properties saved on 2026-11-20T11:41:50+00:00\nhoodie.table.name=trips\n"
    )


VALUES = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)


@settings(deadline=None)
@example(" a ", " b ")
@example("#=:", "\\")
@given(VALUES.filter(bool), VALUES)
def test_any_key_and_value_survive_escaping(key: str, value: str) -> None:
    properties = TableProperties({key: value, "next": "n"})
    raw = properties.encode()
    assert raw.isascii()  # Java reads Latin-1
    assert raw.count(b"\n") == 3
    assert TableProperties.decode(raw) == properties


def test_values_are_left_as_they_are_where_java_allows_it() -> None:
    raw = TableProperties({"hoodie.table.name": "a:b#c!d"}).encode()
    assert raw.splitlines()[1] == b"hoodie.table.name=a:b#c!d"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("  a = b ", "a", "b"),
        ("a\\:b=c", "a:b", "c"),
        ("a=b:c=d", "a", "b:c=d"),
        ("a\\=b=c", "a=b", "c"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a=\\u00e9\\t", "a", "é\t"),
        ("a=b\\\r\n   c", "a", "bc"),
        ("a=b\\\\\nx=y", "a", "b\\"),
        ("a", "a", ""),
        ("! no\n\n# no\na=b", "a", "b"),
    ],
)
def test_java_forms_are_understood(line: str, key: str, value: str) -> None:
    assert TableProperties.decode(line.encode()).values[key] == value


def test_a_wrong_checksum_is_damage() -> None:
    raw = made().encode().replace(b"checksum=2200697520", b"checksum=7")
    with pytest.raises(CorruptError, match=r"checksum mismatch.*expected='2200697520' found='7'"):
        TableProperties.decode(raw, ".hoodie/hoodie.properties")


def test_bytes_that_are_no_text_are_damage() -> None:
    with pytest.raises(CorruptError, match="not a properties file"):
        TableProperties.decode(b"\xff\xfe=")


def test_hudi_metadata_partitions_and_versions_are_seen() -> None:
    raw = b"hoodie.table.version=9\nhoodie.table.metadata.partitions=files, column_stats,\n"
    read = TableProperties.decode(raw)
    assert (read.version, read.layout) == (9, 0)
    assert read.metadata_partitions == ("files", "column_stats")
    assert TableProperties.decode(b"hoodie.table.version=six").version == 0


def test_properties_of_real_tables_have_our_checksum_and_survive(interop: Path) -> None:
    seen = set()
    for archive in sorted(interop.glob("hudi*/*.zip")):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.endswith("/.hoodie/hoodie.properties") and "MACOSX" not in name:
                    read = TableProperties.decode(opened.read(name), name)
                    assert TableProperties.decode(read.encode()) == read
                    assert "hoodie.table.checksum" in read.values
                    seen.add(read.version)
    assert seen == {6, 8, 9}


@pytest.mark.parametrize(
    "value", ["9" * 5000, "-6", "6.0", "", " ", "٦", "6e0", "0x6"], ids=lambda value: value[:5]
)
def test_number_that_is_none_is_read_as_none(value: str) -> None:
    raw = f"hoodie.table.version={value}\n".encode()
    assert TableProperties.decode(raw).version == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"=",
        b"\\",
        b"a\\",
        b"=\\u",
        b"\\ud800=\\udfff\\u12",
        b"\\\\" * 5000,
        b"a" * 100_000,
        b"\0\0\n\r\r\n\t=\f",
        b"hoodie.table.name=\\ud800\nhoodie.database.name=x\n",
        b"\xef\xbb\xbfhoodie.table.version=6",
    ],
    ids=range(10),
)
def test_crafted_text_is_read_or_damage(raw: bytes) -> None:
    with suppress(CorruptError):
        found = TableProperties.decode(raw)
        assert TableProperties.decode(found.encode()).version == found.version


def test_a_line_that_goes_on_and_on_takes_no_longer_than_its_bytes() -> None:
    begun = time.process_time()
    assert TableProperties.decode(b"a=" + b"b\\\n" * 200_000 + b"c").values == {
        "a": "b" * 200_000 + "c"
    }
    assert time.process_time() - begun < 3


def test_a_line_without_a_value_takes_no_memory_without_end() -> None:
    raw = b"a" * 2_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert TableProperties.decode(raw).values == {raw.decode(): ""}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("hoodie.table.name", "other"),
        ("hoodie.table.recordkey.fields", "id"),
        ("hoodie.table.recordkey.fields", None),
        ("hoodie.table.partition.fields", ""),
        ("hoodie.table.partition.fields", "id"),
        ("hoodie.datasource.write.hive_style_partitioning", "false"),
        ("hoodie.datasource.write.partitionpath.urlencode", "falsa"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.table.base.file.format", "ORC"),
    ],
)
def test_properties_of_another_key_or_layout_are_damage(key: str, found: str | None) -> None:
    options = Options("t", ("id", "day"), ("city",))
    properties = TableProperties.of(options, SCHEMA)
    properties.check(options)
    values = dict(properties.values)
    if found is None:
        del values[key]
    else:
        values[key] = found
    with pytest.raises(CorruptError, match=f"{key} is not what the table was created with"):
        TableProperties(values).check(options)
    assert TableProperties(values).mended(options, SCHEMA).values == properties.values


@pytest.mark.parametrize("name", ["a, b", "a,b", " a ", "a ,", "ä, 日"])
def test_a_folder_of_any_name_is_a_table(name: str) -> None:
    options = Options(name, ("id", "day"), ("city",))
    raw = TableProperties.of(options, SCHEMA).encode()
    TableProperties.decode(raw).check(options)


def test_how_files_are_laid_out_need_not_be_told_and_its_case_is_nothing() -> None:
    options = Options("t", ("id",), ("city",))
    values = dict(TableProperties.of(options, SCHEMA).values)
    values["hoodie.table.base.file.format"] = "parquet"
    values["hoodie.populate.meta.fields"] = "TRUE"
    del values["hoodie.datasource.write.drop.partition.columns"]
    TableProperties(values).check(options)


def test_a_type_that_is_missing_is_damage_where_hudi_would_read_no_logs() -> None:
    """Another one that is told is not: Hudi has changed the table."""
    logged, plain = (Options("t", ("id",), ("city",), table_type=one) for one in ("mor", "cow"))
    values = dict(TableProperties.of(logged, SCHEMA).values)
    TableProperties(values).check(logged)
    with pytest.raises(UpgradeError, match=r"another type of table.*COPY_ON.*MERGE_ON"):
        TableProperties(values).check(plain)
    del values["hoodie.table.type"]
    TableProperties(values).check(plain)
    with pytest.raises(CorruptError, match=r"hoodie.table.type is missing.*MERGE_ON_READ"):
        TableProperties(values).check(logged)
    TableProperties(values).mended(logged, SCHEMA).check(logged)
