"""Files of a table hurt at random: what is asked is answered as before or refused, what is wrong
is found, and mended; then the table goes on.

The list of faults in `test_repair` is what somebody thought of; this is what nobody did. Of one
file, or of some together: what is mended by the help of another file must cope where that is
damaged, too. METATABLE_SEED replays one, METATABLE_LONG=1 plays 800 instead of 6.

Not hurt is what has no twin (the newest root, which is refused). A sound file in another's place is
believed by who reads, and found by `verify`. Footers and indexes of Parquet files have no checksum:
where one is hurt, Hudi's reader may stop at what pyarrow reads past. Nor have rows in Avro and
deletes, so no bytes of a log are changed in their place: another value there is a value.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import metatable
from metatable import MetatableError, Table
from metatable.metadata.manifests.manifest import version_path
from metatable.metadata.manifests.versions import load_newest
from metatable.storage import cache
from metatable.storage.store import Store
from tests.compaction.hurt_tables import FAST, LOGGED, TABLES, made, once, rows
from tests.long import LONG
from tests.model import arrow, listed, read_by_hudi, scanned

SEED = os.environ.get("METATABLE_SEED")
SEEDS = [int(SEED)] if SEED else range(800 if LONG else 6)

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return once(tmp_path_factory, made)


def flipped(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(random.choice((1, 1, 1, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def zeroed(body: bytes, random: Random) -> bytes:
    start = random.randrange(len(body) + 1)
    end = min(start + random.randrange(1, 64), len(body))
    return body[:start] + bytes(end - start) + body[end:]


WAYS: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "flipped": flipped,
    "flipped too": flipped,
    "zeroed": zeroed,
    "cut": lambda body, random: body[: random.randrange(len(body) + 1)],
    "longer": lambda body, random: body + random.randbytes(random.randrange(1, 50)),
    "empty": lambda body, random: b"",
    "lost": lambda body, random: None,
}


IN_PLACE = ("flipped", "flipped too", "zeroed")


def hurt(uri: str, random: Random) -> str:
    """Change one file: of each folder as often as of another; what was done."""
    newest = load_newest(Store(uri, FAST))
    assert newest is not None
    kinds: dict[str, list[Path]] = {}
    for path in sorted(Path(uri).rglob("*")):
        name = path.relative_to(uri).as_posix()
        if path.is_file() and name != version_path(newest.version):
            folder = name.rpartition("/")[0] if name.startswith(".hoodie") else "data"
            kinds.setdefault(folder, []).append(path)
    path = random.choice(kinds[random.choice(sorted(kinds))])
    ways = [way for way in WAYS if way not in IN_PLACE or ".log." not in path.name]
    how = random.choice([*ways, "another's"])
    if how == "another's":
        alike = [one for one in path.parent.iterdir() if one.suffix == path.suffix]
        body: bytes | None = random.choice(sorted(alike)).read_bytes()
    else:
        body = WAYS[how](path.read_bytes(), random)
    if body is None:
        path.unlink()
    else:
        path.write_bytes(body)
    return f"{how} {path.relative_to(uri)}"


def answered(ask: Callable[[], Rows], expected: Rows) -> bool:
    """Whether it was answered, and then as it should be."""
    try:
        found = ask()
    except MetatableError:
        return False
    assert found == expected, "another answer"
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_hurt_anywhere_is_told_and_mended(
    seed: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    random = Random(seed)
    index = TABLES[seed % len(TABLES)]
    uri = str(shutil.copytree(sound(index), tmp_path / "table"))
    table = metatable.open(uri, FAST)
    before = scanned(table)
    done = [hurt(uri, random) for _ in range(random.choice((1, 1, 2, 3)))]
    print(f"METATABLE_SEED={seed}", index, *done, sep="\n")
    cache.clear()
    moved = any(one.startswith("another's") for one in done)
    is_whole = False
    if not moved:
        is_whole = answered(lambda: scanned(table), before)
        is_whole &= answered(lambda: keys_found(table), [row[:1] for row in before])
    cache.clear()
    found = table.verify().findings
    assert found or is_whole or moved, "damage that verify does not see"

    mended = table.repair(dry_run=False)
    assert mended.unmended == ()
    cache.clear()
    assert [str(one) for one in table.verify().findings] == []
    left = scanned(table)
    lost = {"file-size", "file-damaged"} & {str(one.kind) for one in mended.findings}
    assert lost or left == before
    if index not in LOGGED:  # where a log is lost, rows of before it are back
        assert set(left) <= set(before)
        assert len(before) - len(left) == mended.rows_lost
    if not any(".hoodie" not in one for one in done):
        assert read_by_hudi(uri) == left
    table.upsert(arrow(rows(10, 22, 7)))
    held = {row[0]: row for row in left} | {row[0]: row for row in listed(rows(10, 22, 7))}
    assert scanned(table) == sorted(held.values())


def keys_found(table: Table) -> Rows:
    """Which of the keys that the table may hold are there, by point reads."""
    asked = pa.table({"id": [f"k{one:02}" for one in range(24) for _ in "ns"]})
    asked = asked.append_column("city", pa.array(["ny", "sf"] * 24))
    return sorted((key,) for key in table.read_keys(asked, ["id"])["id"].to_pylist())
