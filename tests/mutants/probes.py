"""Probes: which pieces of the product a test executes.

A segment is a run of statements that are executed together unless one raises: a block, cut behind each statement that
has blocks itself. The first statement of each is a mark in an array of bytes, which costs some 30 ns.
"""

import ast
import builtins
from typing import Final, NamedTuple

from tests.mutants.syntax import Place, blocks_of, end_of, is_text, names_in, start_of

_ARRAY: Final = "__segments__"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Segment(NamedTuple):
    """A piece of a function.

    Attributes:
        names: What it names: variables, attributes, functions.
        spans: Lines and columns of its statements, from start to end; blocks within belong to other segments.
    """

    names: frozenset[str]
    spans: tuple[tuple[Place, Place], ...]


class _Cutter:
    def __init__(self, first: int) -> None:
        self.segments: list[Segment] = []
        self._first = first

    def outside(self, body: list[ast.stmt]) -> None:
        """Cut the functions of a module or class; its own statements have no probe."""
        for statement in body:
            if isinstance(statement, _FUNCTIONS):
                statement.body = self._block(statement.body)
            else:
                for block in blocks_of(statement):
                    self.outside(block)

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        run: list[ast.stmt] = []
        docstring = body[:1] if isinstance(body[0], ast.Expr) and is_text(body[0].value) else []
        for statement in body[len(docstring) :]:
            run.append(statement)
            if list(blocks_of(statement)):
                made += self._cut(run)
                run = []
        return [*docstring, *made, *(self._cut(run) if run else [])]

    def _cut(self, run: list[ast.stmt]) -> list[ast.stmt]:
        number = self._first + len(self.segments)
        self.segments.append(Segment(names_in(*run), tuple((start_of(one), end_of(one)) for one in run)))
        for statement in run:
            if isinstance(statement, ast.ClassDef):
                self.outside(statement.body)
            else:
                for block in blocks_of(statement):
                    block[:] = self._block(block)
        mark = ast.parse(f"{_ARRAY}[{number}] = 1").body[0]
        for node in ast.walk(mark):
            ast.copy_location(node, run[0])
        return [mark, *run]


def probed(source: bytes, first: int) -> tuple[ast.Module, list[Segment]]:
    """A module with probes, and its segments.

    Args:
        source: Its text.
        first: Number of its first segment.
    """
    tree = ast.parse(source)
    cutter = _Cutter(first)
    cutter.outside(tree.body)
    return tree, cutter.segments


def install_array(length: int) -> bytearray:
    """The array in which probes leave their marks, one byte a segment."""
    array = bytearray(length)
    setattr(builtins, _ARRAY, array)
    return array


def segment_at(segments: list[Segment], place: Place) -> int | None:
    """Which segment has a place, given as line and column; None outside of functions."""
    found: tuple[Place, int] | None = None
    for number, segment in enumerate(segments):
        for start, end in segment.spans:
            if start <= place < end and (found is None or start >= found[0]):
                found = start, number
    return None if found is None else found[1]
