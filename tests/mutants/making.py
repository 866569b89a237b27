"""Mutants: every place of a module where a small fault can be put, found in its syntax tree.

    a < b          a <= b, a == b: a != b, `in`, `is` and their opposites
    a and b        a or b
    not a          a
    if a:          if not a:
    if a: raise    if False: raise
    1, True        2, False
    a + b          a - b, and the like
    f(a)           pass, where it is a statement
    def f(): ...   def f(): return, where it returns nothing
    min(a)         max(a), any(a): all(a)
    continue       break

Left alone are words: docstrings, annotations, decorators, `__all__`, what an error says. Numbers
above eight are settings, which may be one more without harm.

A mutant is named by what it does to which line of which function, not by a line number, so that
a sample stays the same, and a named equivalent stays found, when something else is altered.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants_of", "sample"]

LARGEST_NUMBER = 8

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_WORDS = ("__repr__", "__str__")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`source[start:end]` becomes `text`; `inside` is the function or class around it."""

    path: str
    inside: str
    line: int
    start: int
    end: int
    text: bytes

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.end :]

    def diff(self, source: bytes) -> list[str]:
        """The lines that differ, with their sign."""
        start = source.rfind(b"\n", 0, self.start) + 1
        end = (source + b"\n").find(b"\n", self.end)
        was = source[start:end]
        becomes = source[start : self.start] + self.text + source[self.end : end]
        return [
            f"{sign}{line.decode()}"
            for sign, lines in (("-", was), ("+", becomes))
            for line in lines.split(b"\n")
        ]

    def name(self, source: bytes) -> str:
        """What it is known by."""
        changed = (line[0] + " " + line[1:].strip() for line in self.diff(source))
        return "\n".join((self.path, self.inside, *changed))


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All of a module, in the order of their places."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found), key=lambda one: (one.start, one.end, one.text))


def sample(root: Path, rooms: Sequence[Sequence[str]], count: int, seed: int) -> list[Mutant]:
    """So many of the modules of all rooms; a room gives by the square root of what it has."""
    ranked = [_ranked(root, paths, seed) for paths in rooms]
    weights = [math.sqrt(len(one)) for one in ranked]
    shares = [count * weight / sum(weights) for weight in weights]
    ends = [round(sum(shares[: number + 1])) for number in range(len(shares))]
    starts = [0, *ends[:-1]]
    return [
        mutant
        for start, end, one in zip(starts, ends, ranked, strict=True)
        for mutant in one[: end - start]
    ]


def _ranked(root: Path, paths: Sequence[str], seed: int) -> list[Mutant]:
    found = []
    for path in paths:
        source = (root / path).read_bytes()
        for mutant in mutants_of(path, source):
            name = f"{seed}\n{mutant.name(source)}".encode()
            found.append((hashlib.sha256(name).digest(), mutant.start, mutant))
    return [mutant for *_, mutant in sorted(found, key=lambda one: one[:2])]


class _Finder(ast.NodeVisitor):
    """Walks a module; what it does not walk into is left alone."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._inside: list[str] = []
        self.found: list[Mutant] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            return
        self._enter(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _WORDS:
            return
        self._inside.append(node.name)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._inside.pop()
        self._return_early(node)
        self._enter(node.name, node.body)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [one.id for one in node.targets if isinstance(one, ast.Name)]
        if not self._inside and any(name.isupper() for name in names):
            return  # a setting, or a list of names
        if "__all__" not in names:
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Never to happen."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Words; places inside of them are known to some versions of Python only."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, b"pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
            self._replace(node.test, b"False")
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for number, operator in enumerate(node.ops):
            was, becomes = _COMPARED[type(operator)]
            self._between(sides[number], sides[number + 1], was, becomes)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        pair = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, *pair)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._start(node)
            self._add(node, start, start + len("not"), b"")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _COMPUTED and not {_is_text(node.left), _is_text(node.right)} & {True}:
            self._between(node.left, node.right, *_COMPUTED[type(node.op)])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if called.endswith("Error") or called == "Finding":
            return
        if isinstance(node.func, ast.Name) and called in _CALLED:
            self._replace(node.func, _CALLED[called].encode())
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of `zip`: what is never to happen
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value).encode())
        elif isinstance(node.value, int) and node.value <= LARGEST_NUMBER:
            self._replace(node, str(node.value + 1).encode())

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, b"break")

    def _enter(self, name: str, body: Sequence[ast.stmt]) -> None:
        self._inside.append(name)
        for statement in body:
            self.visit(statement)
        self._inside.pop()

    def _return_early(self, node: ast.FunctionDef) -> None:
        nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if nothing and len(body) > 1:
            start = self._start(body[0])
            self._inside.append(node.name)
            self._add(body[0], start, start, b"return\n" + b" " * body[0].col_offset)
            self._inside.pop()

    def _negate(self, test: ast.expr) -> None:
        """Others have mutants of their own."""
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            start, end = self._start(test), self._end(test)
            self._add(test, start, end, b"(not " + self._source[start:end] + b")")

    def _replace(self, node: ast.AST, text: bytes) -> None:
        self._add(node, self._start(node), self._end(node), text)

    def _between(self, left: ast.AST, right: ast.AST, was: str, becomes: str) -> None:
        """An operator stands between two nodes, with spaces and brackets."""
        start = self._end(left)
        there = self._source[start : self._start(right)]
        place = there.find(was.encode())
        if place >= 0:
            self._add(left, start + place, start + place + len(was), becomes.encode())

    def _add(self, node: ast.AST, start: int, end: int, text: bytes) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        self.found.append(Mutant(self._path, ".".join(self._inside), line, start, end, text))

    def _start(self, node: ast.AST) -> int:
        return int(self._lines[node.lineno - 1] + node.col_offset)  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return int(self._lines[node.end_lineno - 1] + node.end_col_offset)  # type: ignore[attr-defined]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
