"""Places in the syntax tree of a product, found by their structure.

A pattern is Python. A name that begins with ``any_`` stands for any expression, for the name of an attribute, and as a
statement alone for any statements; what it stood for can be used in the text that replaces the place. Everything else
is as it is written, whatever its layout. Patterns name what a place is about, such as fields and messages, but not the
functions and variables around it, so that these can be renamed.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.generator import Edit, changed, sites_in
from tests.mutants.outcomes import Mutant, mutant_from, mutant_of
from tests.mutants.syntax import blocks_of, spans_of, tree_of
from tests.mutants.trees import TreeError, product_of

_ANY: Final = "any_"
_LEFT_OUT: Final = frozenset({"ctx", "type_comment", "kind"})


class Change(NamedTuple):
    """An edit of a module."""

    path: str
    edit: Edit


class Match(NamedTuple):
    """A place that a pattern fits.

    Attributes:
        path: The module.
        source: Its text.
        start: Where the place begins, in bytes.
        end: Where it ends.
        node: Its first node.
        parts: Texts that the names ``any_...`` stood for, without that beginning.
    """

    path: str
    source: bytes
    start: int
    end: int
    node: ast.AST
    parts: Mapping[str, str]

    @property
    def column(self) -> int:
        """How far its line is indented, when it is a statement."""
        return self.start - (self.source.rfind(b"\n", 0, self.start) + 1)

    def to(self, text: str) -> Change:
        """Replace the place; ``{x}`` in the text is what ``any_x`` stood for."""
        return Change(self.path, Edit(self.start, self.end, text.format(**self.parts)))

    def generated(self, kind: str) -> Mutant:
        """The only generated mutant of a kind within this place.

        Raises:
            TreeError: There is none, or more than one.
        """
        sites = [site for site in sites_in(self.path, self.source) if site.kind == kind]
        found = [one for one in sites if self.start <= one.edits[0].start and one.edits[-1].end <= self.end]
        if len(found) != 1:
            raise TreeError(f"{self.path}: {len(found)} generated mutants {kind} in a place: expected 1")
        return mutant_of(found[0], self.source)

    def behind(self, text: str) -> Change:
        """Put a statement of one line before the place."""
        return Change(self.path, Edit(self.start, self.start, f"{text.format(**self.parts)}\n{' ' * self.column}"))

    def one(self, pattern: str) -> "Match":
        """The only place within this one that another pattern fits.

        Raises:
            TreeError: There is none, or more than one.
        """
        within = [one for one in _matches(self.path, self.source, pattern) if self._holds(one)]
        return _only(within, f"{self.path}, a part", pattern)

    def _holds(self, other: "Match") -> bool:
        return self.start <= other.start and other.end <= self.end


class Product:
    """The product of a tree.

    Args:
        root: The tree.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def one(self, place: str, pattern: str) -> Match:
        """The only place in a package that a pattern fits.

        Args:
            place: How the paths of its modules begin.
            pattern: The pattern.

        Raises:
            TreeError: There is none, or more than one.
        """
        found = [one for path, source in self.modules(place) for one in _matches(path, source, pattern)]
        return _only(found, place, pattern)

    def modules(self, place: str) -> Iterator[tuple[str, bytes]]:
        """Modules of a package, by path."""
        for path in product_of(self._root):
            if path.startswith(place):
                yield path, _text(self._root / path)

    def mutant(self, name: str, *changes: Change) -> Mutant:
        """A mutant of changes."""
        edits: dict[str, list[Edit]] = {}
        for path, edit in changes:
            edits.setdefault(path, []).append(edit)
        texts = {path: (_text(self._root / path), tuple(sorted(each))) for path, each in edits.items()}
        return mutant_from(
            name,
            {path: (source, changed(source, each)) for path, (source, each) in texts.items()},
            {path: each[0].start for path, (_, each) in texts.items()},
        )


@functools.cache
def _text(path: Path) -> bytes:
    return path.read_bytes()


def _only(found: list[Match], place: str, pattern: str) -> Match:
    if len(found) != 1:
        raise TreeError(f"{place}: {len(found)} places are like {' '.join(pattern.split())!r}: expected 1")
    return found[0]


def _matches(path: str, source: bytes, pattern: str) -> Iterator[Match]:
    """Places that a pattern fits: an expression, or statements that stand one after the other."""
    wanted = ast.parse(pattern).body
    first = wanted[0]
    single = first.value if len(wanted) == 1 and isinstance(first, ast.Expr) and "\n" not in pattern else None
    for node in ast.walk(tree_of(source)):
        if single is not None:
            parts: dict[str, str] = {}
            if type(node) is type(single) and _fits(node, single, source, parts):
                yield Match(path, source, *spans_of(source).of(node), node, parts)
            continue
        for block in [] if isinstance(node, ast.excepthandler | ast.match_case) else blocks_of(node):
            for start in range(len(block) - len(wanted) + 1):
                run, parts = block[start : start + len(wanted)], {}
                if all(_fits(*pair, source, parts) for pair in zip(run, wanted, strict=True)):
                    yield Match(path, source, *spans_of(source).of(run[0], run[-1]), run[0], parts)


def _fits(node: object, wanted: object, source: bytes, parts: dict[str, str]) -> bool:
    """Whether a part of a tree is like a part of a pattern; notes what names stood for."""
    name = _any_name(wanted)
    if name and isinstance(node, ast.expr | ast.stmt):
        return _noted(name, spans_of(source).text(node), parts)
    if isinstance(wanted, str) and wanted.startswith(_ANY) and isinstance(node, str):
        return _noted(wanted, node, parts)
    if isinstance(wanted, list) and isinstance(node, list):
        if len(wanted) == 1 and _any_name(wanted[0]) and isinstance(wanted[0], ast.Expr) and node:
            return _noted(_any_name(wanted[0]), spans_of(source).text(node[0], node[-1]), parts)
        return len(node) == len(wanted) and all(_fits(*pair, source, parts) for pair in zip(node, wanted, strict=True))
    if isinstance(wanted, ast.AST) and type(node) is type(wanted):
        fields = [field for field in wanted._fields if field not in _LEFT_OUT]
        return all(_fits(getattr(node, one, None), getattr(wanted, one, None), source, parts) for one in fields)
    return type(node) is type(wanted) and node == wanted


def _any_name(wanted: object) -> str:
    inner = wanted.value if isinstance(wanted, ast.Expr) else wanted
    return inner.id if isinstance(inner, ast.Name) and inner.id.startswith(_ANY) else ""


def _noted(name: str, text: str, parts: dict[str, str]) -> bool:
    """Whether a name stands for the same wherever it is in a pattern."""
    return parts.setdefault(name.removeprefix(_ANY), text) == text
