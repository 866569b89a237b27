"""Mutated HFiles: whatever is asked of them ends in an answer or in one of our errors.

500 here, 20 000 with METATABLE_LONG=1, a million with `make fuzz`. What is asked and what may
not happen is written in fuzz.py, what is done to the files in mutate.py, what they are in
sound_files.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from metatable.storage.hfile.codec import SUPPORTED, Codec
from tests.long import LONG
from tests.storage.hfile import raw_file
from tests.storage.hfile.fuzz import ask, fuzz, main
from tests.storage.hfile.mutate import mutated
from tests.storage.hfile.raw_file import RawFile
from tests.storage.hfile.sound_files import Form, laid_out, sound_files

FILES = 1000 if LONG else 25
PARTS = 20 if LONG else 10


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_files_end_in_answers_or_in_errors_of_ours(part: int, tmp_path: Path) -> None:
    refused = fuzz(FILES, part * 1000, tmp_path)
    assert FILES / 2 < refused < FILES  # else the mutations are too mild, or nothing is read


def test_sound_files_are_of_every_form() -> None:
    files = [one for one in sound_files().values() if one.entries]
    assert {one.codec for one in files} == set(SUPPORTED)
    assert {dict(one.trailer)[8] for one in files} >= {1, 2, 3}
    assert {one.blocks[0].checksum for one in files} == {0, 1, 2}
    assert all(any(one.meta(name) for one in files) for name in ("metatable.filter", "note"))
    assert max(len(one.build()) for one in files) < 16 << 10


def test_a_number_names_a_file_for_ever() -> None:
    base = laid_out(Form(Codec.GZ, "mixed", levels=3))
    made = [mutated(base, number) for number in range(40)]
    assert made == [mutated(base, number) for number in range(40)]
    assert len({one.body for one in made}) > 35
    assert base.build() == laid_out(Form(Codec.GZ, "mixed", levels=3)).build()


def test_a_file_taken_apart_is_laid_out_with_the_same_bytes() -> None:
    for base in sound_files().values():
        body = base.build()
        again = RawFile.parse(base.name, body)
        assert again.build() == body
        payloads = [one.payload for one in again.of(raw_file.DATA)]
        if "no_mvcc" not in base.name:
            assert raw_file.entries_in(payloads) == base.entries


def test_hbases_file_without_compression_is_laid_out_with_its_own_bytes(interop: Path) -> None:
    body = (interop / "hfile" / "hudi_1_0_hbase_2_4_9_16KB_NONE_5000.hfile").read_bytes()
    assert RawFile.parse("hbase", body).build() == body


def test_a_failure_can_be_seen_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "saved.hfile"
    assert (
        main(
            ["--replay", "gz-none-1_levels-crc32c-full_index_keys-no_hints:5", "--save", str(saved)]
        )
        == 0
    )
    assert "open:" in capsys.readouterr().out
    assert saved.stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("none-mixed-3_levels-null-full_index_keys-no_hints", 12821),
        ("gz-mixed-2_levels-crc32c-bare_index_keys-no_hints", 15118),
        ("lz4-mixed-2_levels-crc32c-full_index_keys-both_hints", 15025),
    ],
)
def test_a_key_that_leads_to_another_block_than_its_own_hides_none(
    name: str, number: int, tmp_path: Path
) -> None:
    """Index keys were changed, and all checksums are right: keys were not there, as it seemed,
    until all of the index was known."""
    base = sound_files()[name]
    sound = ask(base, base.build(), 0, tmp_path)
    answers = ask(base, mutated(base, number).body, number, tmp_path)
    assert "leads to it" in str(answers["verify"])
    asked = {question: answers[question] for question in ("get", "get_sorted", "find")}
    refused = [one for one in map(str, asked.values()) if one.startswith("CorruptError: ")]
    assert refused
    assert all("index" in one for one in refused)
    for question, answer in asked.items():
        assert str(answer) in refused or answer == sound[question]
