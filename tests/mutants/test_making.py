"""Mutants are small, many, and the same for the same seed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.mutants.__main__ import equivalents
from tests.mutants.making import mutants_of, sample
from tests.mutants.rooms import ROOMS, WIDE, modules

ROOT = Path(__file__).resolve().parents[2]


def made(source: str) -> list[str]:
    """What becomes of the lines that differ."""
    raw = textwrap.dedent(source).strip().encode()
    return ["\n".join(one.diff(raw)) for one in mutants_of("a.py", raw)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = (a) not in (b)", ["x = (a) in (b)"]),
        ("x = a and b or c", ["x = a or b or c", "x = a and b and c"]),
        ("x = not a", ["x =  a"]),
        ("x = b if a else c", ["x = b if (not a) else c"]),
        ("x = [a for a in b if c(a)]", ["x = [a for a in b if (not c(a))]"]),
        ("x = f(1, True)", ["x = f(2, True)", "x = f(1, False)"]),
        ("x = a + b * c", ["x = a - b * c", "x = a + b + c"]),
        ("x = any(a)", ["x = all(a)"]),
        ("f(a)", ["pass"]),
        ("x = zip(a, strict=True)", []),
        ("x: Literal[1] = a", []),
        ("LIMIT = 1", []),
        ("__all__ = ['a'] + b", []),
        ("x = 'a' + b", []),
        ("x = 4096", []),
        ("raise UsageError('a' if a else b)", []),
        ("'''Words.'''", []),
    ],
)
def test_a_line_has_its_faults(source: str, expected: list[str]) -> None:
    assert made(source) == [f"-{source}\n+{one}" for one in expected]


def test_a_function_has_the_faults_of_its_body() -> None:
    source = '''
        def f(self, a: int = 0) -> None:
            """Words of 1 and 2."""
            if a:
                raise ValueError(1)
            self.g(a)
    '''
    assert [one.replace(" ", "") for one in made(source)] == [
        "-deff(self,a:int=0)->None:\n+deff(self,a:int=1)->None:",
        "-ifa:\n+return\n+ifa:",
        "-ifa:\n+if(nota):",
        "-ifa:\n+ifFalse:",
        "-self.g(a)\n+pass",
    ]


def test_a_sample_is_the_same_for_a_seed() -> None:
    rooms = [modules(ROOT, room) for room in ROOMS if room.name in ("index", "cli")]
    assert sample(ROOT, rooms, 9, 7) == sample(ROOT, rooms, 9, 7) != sample(ROOT, rooms, 9, 8)


def test_a_sample_comes_from_every_room_and_compiles() -> None:
    rooms = [modules(ROOT, room) for room in ROOMS]
    chosen = sample(ROOT, rooms, 60, 7)
    assert len(chosen) == 60
    for paths in rooms:
        assert {one.path for one in chosen} & set(paths)
    for one in chosen:
        source = (ROOT / one.path).read_bytes()
        compile(one.apply(source), one.path, "exec")


def test_rooms_name_modules_and_tests_that_are_there() -> None:
    for room in ROOMS:
        assert modules(ROOT, room), room.name
    phases = [WIDE, *(phase for room in ROOMS for phase in room.tests)]
    named = [word for phase in phases for one in phase for word in one.split()]
    assert [one for one in named if not (ROOT / one.removeprefix("--ignore=")).exists()] == []


def test_every_module_is_in_a_room_but_those_of_spark_and_the_demo() -> None:
    folders = [ROOT / name for name in ("metatable", "index", "compaction", "storage")]
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    paths = {path for path in paths if not any(one.is_symlink() for one in path.parents)}
    held = {path for room in ROOMS for path in modules(ROOT, room)}
    left = {path.relative_to(ROOT).as_posix() for path in paths} - held
    left = {path for path in left if not path.startswith("metatable/spark/")}
    assert left == {f"metatable/{name}.py" for name in ("__init__", "__main__", "demo")}


def test_an_equivalent_is_a_mutant_of_the_code_as_it_is() -> None:
    names = {
        one.name(source)
        for path in {name.partition("\n")[0] for name in equivalents()}
        for source in [(ROOT / path).read_bytes()]
        for one in mutants_of(path, source)
    }
    assert equivalents().keys() <= names
