"""The `hudi` wheel (hudi-rs) reads a table whose metadata HFile is one of ours."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from metatable.storage.hfile.codec import Codec
from metatable.storage.hfile.writer import HFileWriter
from metatable.storage.store import Store
from tests.storage.hfile.making import cold, entries_of, folder

hudi = pytest.importorskip("hudi", reason="the hudi wheel is not installed")

NAME = "v9_txns_simple_meta"
FACTS = ("schema", "minRecordKey", "maxRecordKey", "bloomFilterTypeCode")


@pytest.fixture
def table(interop: Path, tmp_path: Path) -> Path:
    """A copy of a v9 table that Hudi wrote, with its metadata table."""
    with zipfile.ZipFile(interop / "hudi" / f"sample_table__cow__{NAME}.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / NAME


def newest_base_file(table: Path) -> Path:
    """The HFile of the last compaction of the partition `files`."""
    found = (table / ".hoodie" / "metadata" / "files").glob("*.hfile")
    return max(found, key=lambda path: path.stem.rpartition("_")[2])


def rows(table: Path) -> list[dict[str, object]]:
    batches = hudi.HudiTableBuilder.from_base_uri(str(table)).build().read()
    read = pa.Table.from_batches(batches)
    return sorted(read.to_pylist(), key=lambda row: str(row["txn_id"]))


def rewrite(path: Path, aside: Path, codec: Codec, block_size_bytes: int) -> None:
    """Replace an HFile by one of ours with the same entries, META block and facts."""
    theirs = cold(Store(path.parent), path.name)
    ours = folder(aside)
    with HFileWriter(ours, path.name, codec=codec, block_size_bytes=block_size_bytes) as file:
        for batch in theirs.scan():
            file.add(batch["key"], batch["value"])
        bloom = theirs.meta("bloomFilter")
        assert bloom is not None
        file.add_meta("bloomFilter", bloom)
        for name in FACTS:
            file.add_file_info(name, theirs.file_info[name.encode()])
    assert entries_of(cold(ours, path.name)) == entries_of(theirs)
    path.write_bytes(ours.fetch(path.name))


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.NONE])
@pytest.mark.parametrize("block_size_bytes", [64, 65536])
def test_rows_are_the_same_when_the_files_partition_is_ours(
    table: Path, tmp_path: Path, codec: Codec, block_size_bytes: int
) -> None:
    before = rows(table)
    assert len(before) == 12
    rewrite(newest_base_file(table), tmp_path / "aside", codec, block_size_bytes)
    assert rows(table) == before


def test_the_wheel_does_read_that_file(table: Path, tmp_path: Path) -> None:
    path = newest_base_file(table)
    rewrite(path, tmp_path / "aside", Codec.NONE, 65536)
    path.write_bytes(path.read_bytes().replace(b"DATABLK*", b"DATABLK?"))
    reading: Callable[[Path], object] = rows
    with pytest.raises(hudi_error(), match=path.name):
        reading(table)


def hudi_error() -> type[BaseException]:
    return getattr(hudi._internal, "HudiCoreError", Exception)


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.NONE])
def test_every_partition_of_the_metadata_table_can_be_ours(
    table: Path, tmp_path: Path, codec: Codec
) -> None:
    before = rows(table)
    for number, path in enumerate((table / ".hoodie" / "metadata").rglob("*.hfile")):
        rewrite(path, tmp_path / f"aside{number}", codec, 256)
    assert rows(table) == before
